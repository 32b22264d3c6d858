"""Files of machine code that the package carries for some processors: from an installation, or compiled.

What is compiled is kept where the code for this machine is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from cep.jit.arguments import Key, as_json, of_json
from cep.jit.compiled import KERNELS, Kernel
from cep.jit.processors import HOST, PROCESSORS
from cep.jit.stored import MachineCode, compile_for, machine, machine_of

Work = Sequence[tuple[Kernel, Key]]
"""Kernels and the types of their arguments."""


def files(
    work: Work,
    names: Sequence[str],
    n_processes: int,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Iterator[tuple[str, bytes]]:
    """Yield the path, inside the package ``cep.jit``, and the content of each file of kernels for processors.

    Parameters
    ----------
    work
        The largest first.
    names
        Some of `PROCESSORS`, or `HOST`. The kernels must have been compiled here for it.
    n_processes
        How many kernels are compiled at the same time.
    progress
        Receives how many of the kernels that must be compiled are done, and their total; first 0, if there
        are any.
    """
    kernels = list(dict.fromkeys(kernel for kernel, _ in work))
    if HOST in names:
        for kernel in kernels:
            yield kernel.place.carried_in(HOST), kernel.place.data(machine(), kernel.place.load())
    others = [name for name in names if name != HOST]
    found: dict[tuple[Kernel, str], dict[Key, MachineCode]] = {
        (kernel, name): {code.key: code for code in kernel.place.carried(name)}
        for kernel in kernels
        for name in others
    }
    left = [item for item in work if any(item[1] not in found[item[0], name] for name in others)]
    if left:
        progress(0, len(left))
    compiled = zip(left, _compiled(left, others, n_processes), strict=True)
    for done, ((kernel, key), codes) in enumerate(compiled, 1):
        progress(done, len(left))
        for name, code in zip(others, codes, strict=False):  # no codes: values of a process are in them
            found[kernel, name][key] = code
            kernel.place.save(found[kernel, name].values(), name)
    for (kernel, name), by_key in found.items():
        yield kernel.place.carried_in(name), kernel.place.data(machine_of(name), by_key.values())


def _compiled(work: Work, names: Sequence[str], n_processes: int) -> Iterator[list[MachineCode]]:
    if not work:
        return
    import llvmlite.binding as llvm

    # LLVM optimizes for one processor, whatever machine this is.
    model = "x86-64-v3" if llvm.get_process_triple().startswith("x86_64-") else "generic"
    asked = [
        (kernel.py_func.__module__, kernel.py_func.__name__, as_json(key), tuple(names))
        for kernel, key in work
    ]
    with ProcessPoolExecutor(n_processes, get_context("spawn"), compile_for, (model,)) as processes:
        yield from processes.map(_compiled_here, asked)


def _compiled_here(asked: tuple[str, str, list[Any], tuple[str, ...]]) -> list[MachineCode]:
    """Compile a kernel in a process that numba's settings were given to."""
    from cep.jit.retargeted import machine_codes

    module, name, key, names = asked
    importlib.import_module(module)
    return machine_codes(KERNELS[name], of_json(key), [PROCESSORS[processor] for processor in names])
