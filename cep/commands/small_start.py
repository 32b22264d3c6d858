"""What makes the start of a small run cheap: the half of it was for things that it does not use."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_UNUSED = frozenset(("dateutil", "pandas"))
"""Packages that Arrow imports, where they are installed, just to ask whether a value is one of theirs.

That is a third of the time a small file takes.
"""

_COLLECT_AFTER = 100_000
"""Objects after which Python searches for cycles of garbage, not 700: imports create 200,000 that stay."""


_STAND_INS: dict[str, dict[str, Any]] = {
    "numpy.ma": {"MaskedArray": type("MaskedArray", (), {})},
    "pyarrow.vendored.docscrape": {"NumpyDocString": lambda text: defaultdict(tuple)},
}
"""The only things that Arrow uses of modules that take long to load, as they are if nothing else uses them.

It asks whether an array is a masked one, and reads the documentation of its own functions to write another.
"""


class _WithoutUnused:
    """Prevents the import of some packages in this process, and stands in for some modules."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        """Raise an error for the packages, leave all but the modules to other finders."""
        if fullname in _UNUSED:
            raise ModuleNotFoundError("not used by this command", name=fullname)
        return ModuleSpec(fullname, self) if fullname in _STAND_INS else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Make a module with these contents. Who asks for anything else receives the true one."""
        name = module.__name__

        def of_true_module(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if _STAND_INS.pop(name, None) is not None:
                del sys.modules[name]
            return getattr(importlib.import_module(name), attribute)

        vars(module).update(_STAND_INS[name], __getattr__=of_true_module)


def _later(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return `dataclasses._create_fn`, of Python up to 3.12, so that a method is compiled when it is called.

    Dataclasses write their methods as texts and compile them. A small run calls one of ten.
    """

    def create_later(name: str, *arguments: Any, **named: Any) -> Callable[..., Any]:
        made: list[Callable[..., Any]] = []

        def method(self: Any, *of_call: Any, **named_of_call: Any) -> Any:
            if not made:
                made.append(create(name, *arguments, **named))
                for kind in type(self).__mro__:
                    if vars(kind).get(name) is method:
                        setattr(kind, name, made[0])
            return made[0](self, *of_call, **named_of_call)

        method.__name__ = name
        return method

    return create_later


def _keep_memory() -> None:
    """Let the C library keep memory that was freed: the system gives new memory only page by page."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # not every C library has it
        set_option = ctypes.CDLL(None).mallopt
        set_option(_TRIM_THRESHOLD, _NEVER)
        set_option(_MMAP_THRESHOLD, _NEVER)


_TRIM_THRESHOLD, _MMAP_THRESHOLD, _NEVER = -1, -3, (1 << 31) - 1
"""Options of `mallopt` (mallopt(3)), and the most bytes that they take."""


def start_small() -> None:
    """Skip what a run over a small file does not need.

    It holds for the process, and must come before the imports that it makes cheaper.
    """
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)  # the process ends without a search for garbage, a sixth of its time
    sys.meta_path.insert(0, _WithoutUnused())
    _keep_memory()
    if hasattr(dataclasses, "_create_fn"):
        dataclasses._create_fn = _later(dataclasses._create_fn)
    # numpy's linear algebra, which is not used, starts a thread for each core, which spins until it has work.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # numpy requests pages of 2 MiB, which the system may have to free first: a third of a run of seconds.
    os.environ.setdefault("NUMPY_MADVISE_HUGEPAGE", "0")
    # Arrow's own allocator returns memory that the next block requests again: up to a sixth of a run.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
