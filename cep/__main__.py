"""The process of the command `cep`, also as ``python -m cep``."""

import atexit
import gc
import os
import sys

_UNUSED = frozenset(("dateutil", "pandas"))
"""Packages that Arrow imports, where they are installed, just to ask whether a value is one of theirs.

That is a third of the time a small file takes.
"""

_COLLECT_AFTER = 100_000
"""Objects after which Python searches for cycles of garbage, not 700: imports create 200,000 that stay."""


class _WithoutUnused:
    """Prevents the import of some packages in this process."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise an error for these packages, leave all others to other finders."""
        if fullname in _UNUSED:
            raise ModuleNotFoundError("not used by this command", name=fullname)


def _start_small() -> None:
    """Skip what a run over a small file does not need.

    Here, and not in the command: it holds for the process.
    """
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)  # the process ends without a search for garbage, a sixth of its time
    sys.meta_path.insert(0, _WithoutUnused())
    # numpy's linear algebra, which is not used, starts a thread for each core, which spins until it has work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # numpy requests pages of 2 MiB, which the system may have to free first: a third of a run of seconds.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    # Arrow's own allocator returns memory that the next block requests again: up to a sixth of a run.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def start() -> None:
    """Run the command given by the process's arguments."""
    command = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)
    if command == "match":
        _start_small()
    from cep.commands.cli import main

    main(prog_name="cep")


if __name__ == "__main__":
    start()
