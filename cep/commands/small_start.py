"""What makes the start of a small run cheap: half of it would be for things that the run does not use."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import os
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_UNUSED = frozenset(("dateutil", "pandas"))
"""Packages that Arrow imports, where they are installed, just to ask whether a value is one of theirs.

That is a third of the time a small file takes.
"""

_COLLECT_AFTER = 100_000
"""Objects after which Python searches for cycles of garbage, not 700: imports create 200,000 that stay."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Options of `mallopt` (mallopt(3))."""

_KEPT_BYTES, _MOST_OF_HEAP = 1 << 30, 1 << 25
"""So much free memory the C library keeps, and so large a block it takes from it: the most that it allows."""


_STAND_INS: dict[str, dict[str, Any]] = {
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "numpy.ma": {"MaskedArray": type("MaskedArray", (), {})},
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda text: {"Parameters": ()}},
    "pyparsing.common": {"pyparsing_common": None, "_builtin_exprs": []},
    "pyparsing.testing": {"pyparsing_test": None},
}
"""The only things that packages use of modules that take long to load, as they are if nothing else uses them.

Arrow asks whether an array is a masked one, and reads the docstrings of its functions to write others. numpy
adds docstrings. pyparsing offers its help for tests, which loads `unittest`, and expressions that many
grammars have.
"""


class _WithoutUnused(Loader):
    """Prevents the import of some packages in this process, and replaces some modules."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Raise an error for the packages, leave all but the modules to other finders."""
        if fullname in _UNUSED:
            raise ModuleNotFoundError("not used by this command", name=fullname)
        return ModuleSpec(fullname, self) if fullname in _STAND_INS else None

    def exec_module(self, module: ModuleType) -> None:
        """Give a module its contents. Whoever asks for anything else receives that of the true module."""
        name = module.__name__

        def of_true_module(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if _STAND_INS.pop(name, None) is not None:
                del sys.modules[name]
            return getattr(importlib.import_module(name), attribute)

        vars(module).update(_STAND_INS[name], __getattr__=of_true_module)


def _keep_memory() -> None:
    """Let the C library keep freed memory: to get memory from the system takes eight times as long."""
    with contextlib.suppress(AttributeError, OSError):  # not every C library has this function
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, _KEPT_BYTES)
        set_option(_MMAP_THRESHOLD, _MOST_OF_HEAP)


def _compiled_when_called(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return what dataclasses of Python before 3.13 create methods with, but each is compiled when called.

    They compile all methods of each class, of which a small run calls one in ten.
    """

    def create_later(name: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
        made: list[Callable[..., Any]] = []

        def method(*of_call: Any, **named_of_call: Any) -> Any:
            if not made:
                made.append(create(name, *arguments, **named))
                for kind in type(of_call[0]).__mro__:
                    if vars(kind).get(name) is method:
                        setattr(kind, name, made[0])
            return made[0](*of_call, **named_of_call)

        method.__name__ = name
        return method

    return create_later


def start_small() -> None:
    """Skip what a run over a small file does not need.

    It holds for the process, and must come before the imports that it makes cheaper.
    """
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)  # the process ends without a search for garbage, a sixth of its time
    sys.meta_path.insert(0, _WithoutUnused())
    _keep_memory()
    of_dataclasses = vars(dataclasses)
    if "_create_fn" in of_dataclasses:
        of_dataclasses["_create_fn"] = _compiled_when_called(of_dataclasses["_create_fn"])
    # numpy's linear algebra, which is not used, starts a thread for each core, which spins until it has work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # numpy requests pages of 2 MiB, which the system may have to free first: a third of a run of seconds.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    # Arrow's own allocator returns memory that the next block requests again: up to a sixth of a run.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
