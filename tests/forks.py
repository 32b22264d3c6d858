"""Processes that have made their imports already: for programs that need a process of their own, many times.

Python takes a twentieth of a second to start, and its packages several times as long. A `Forks` is a process
that imports them once, and is forked for each program. What it does not import a program has for itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

_SERVER = """
import json, os, sys, tempfile, traceback, warnings

def run(asked):
    try:
        os.environ.clear()
        os.environ.update(asked["environment"])
        tempfile.tempdir = None  # as the environment says
        os.chdir(asked["folder"])
        sys.path[:0] = asked["path"]
        sys.argv = ["-c", *asked["arguments"]]
        exec(compile(asked["program"], "<program>", "exec"), {"__name__": "__main__"})
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else left.code is not None
        if code is True:
            print(left.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

def forked(asked):
    written = [tempfile.TemporaryFile() for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the packages may have threads, all of them idle
        process = os.fork()
    if process == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, file in enumerate(written, 1):
            os.dup2(file.fileno(), number)
        run(asked)
    return process, written

def text(file):
    with file:
        file.seek(0)
        return file.read().decode()

for line in sys.stdin:
    asked = json.loads(line)
    started = [forked(asked) for _ in range(asked["copies"])]
    done = [(os.waitpid(process, 0)[1], *map(text, written)) for process, written in started]
    print(json.dumps([(os.waitstatus_to_exitcode(status), *said) for status, *said in done]), flush=True)
"""


class Done(NamedTuple):
    """What a process has left: ``-9`` is the code of one that was killed."""

    code: int
    out: str
    err: str


class Forks:
    """A process that has run `first`, and is forked for each program.

    Warnings of the programs are errors.
    """

    def __init__(self, first: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", first + _SERVER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # a fork has none of the threads
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(
        self,
        program: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        path: Sequence[object] = (),
        folder: object = ".",
    ) -> Done:
        """Run a program in a process of its own.

        `environment`: instead of this process's. `path`: what comes before the import path of `first`.
        """
        [done] = self.run_together(1, program, *arguments, environment=environment, path=path, folder=folder)
        return done

    def run_together(
        self,
        n_processes: int,
        program: str,
        *arguments: object,
        environment: Mapping[str, str] | None = None,
        path: Sequence[object] = (),
        folder: object = ".",
    ) -> list[Done]:
        """Run a program in some processes at the same time."""
        asked = {
            "program": program,
            "arguments": [*map(str, arguments)],
            "environment": {**os.environ} if environment is None else {**environment},
            "path": [*map(str, path)],
            "folder": os.path.abspath(str(folder)),
            "copies": n_processes,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return [Done(*told) for told in json.loads(self._process.stdout.readline())]
