"""Compiles kernels in several processes at the same time: the compiler itself uses one core.

A process compiles one kernel after another, and reports each: a JSON line in, a JSON line out.
"""

from __future__ import annotations

import importlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from cep.jit.arguments import Key, as_json, of_json
from cep.jit.compiled import KERNELS, Kernel

_START = "import sys; sys.path[:] = sys.argv[1:]; from cep.jit.side_by_side import work; work()"


def compile_all(
    work: Sequence[tuple[Kernel, Key]], n_processes: int, told: Callable[[Kernel], None] = lambda kernel: None
) -> None:
    """Compile kernels for arguments of some types, and keep the code on disk.

    `work`: the largest first. `n_processes`: with one, or with one kernel, this process compiles itself.
    `told`: is called with each compiled kernel, from threads.
    """
    if min(n_processes, len(work)) <= 1:
        for kernel, key in work:
            kernel.code_for(key)
            told(kernel)
        return
    left: queue.SimpleQueue[tuple[Kernel, Key]] = queue.SimpleQueue()
    for item in work:
        left.put(item)
    threads = [threading.Thread(target=_serve, args=(left, told)) for _ in range(min(n_processes, len(work)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _serve(left: queue.SimpleQueue[tuple[Kernel, Key]], told: Callable[[Kernel], None]) -> None:
    """Give work to a separate process until none is left."""
    command = [sys.executable, "-c", _START, *sys.path]
    with subprocess.Popen(  # noqa: S603 - this Python
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while True:
            try:
                kernel, key = left.get_nowait()
            except queue.Empty:
                break
            function = kernel.py_func
            try:
                process.stdin.write(f"{json.dumps([function.__module__, function.__name__, as_json(key)])}\n")
                process.stdin.flush()
                answer = process.stdout.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:  # it has reported the reason; a call of the kernel compiles it
                break
            told(kernel)
        process.stdin.close()


def work() -> None:
    """Compile the kernels that standard input names, one in each line."""
    for line in sys.stdin:
        given: list[Any] = json.loads(line)
        module, name, key = given
        importlib.import_module(module)
        KERNELS[name].code_for(of_json(key))
        sys.stdout.write("done\n")
        sys.stdout.flush()
