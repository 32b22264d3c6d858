"""Calls machine code from disk without importing numba, which takes longer than a small run.

Private parts of numba that are used here (`tests/unit/jit/test_handles.py` has a test for each):

- ``numba._helperlib`` and ``numba._dynfunc``, two modules in C, which are loaded alone: their ``c_helpers``,
  functions that the code calls by names that start with ``numba_``; ``_dynfunc.Environment`` and
  ``_dynfunc.make_function``, with which a function of Python calls the code.
- How numba sets up LLVM for machine code that it has on disk (`_engine`).
"""

from __future__ import annotations

import builtins
import ctypes
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm

from cep.jit.stored import MachineCode


class NotLoadedError(Exception):
    """Machine code cannot be loaded in this process."""


def call(code: MachineCode, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a Python function that runs machine code.

    Raises NotLoadedError if something that the code needs is missing.

    `code`: must be for this machine; otherwise the process crashes.
    """
    dynamic = _extension("_dynfunc")
    _register_symbols()
    engine = _engine()  # from now on LLVM also knows the symbols of the process
    missing = [name for name in code.needed if not llvm.address_of_symbol(name)]
    if missing:  # LLVM would end the process
        raise NotLoadedError(", ".join(missing))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code.code))
    engine.finalize_object()
    address = engine.get_function_address(code.function)
    place = engine.get_global_value_address(code.environment)
    if not address or not place:
        raise NotLoadedError(code.function)
    environment = dynamic.Environment(function.__globals__)
    ctypes.c_void_p.from_address(place).value = id(environment)
    module = sys.modules[function.__module__]
    name, text = function.__name__, f"machine code of {function.__qualname__}"
    called: Callable[..., Any] = dynamic.make_function(module, name, text, address, environment, (engine,))
    return called


def _engine() -> Any:
    """Return a compiler of LLVM for one object file, as numba's codegen has one for all.

    This keeps the symbols of different files separate, whichever processes compiled them.
    """
    target = target_machine(llvm.Target.from_default_triple())
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def target_machine(target: Any, **options: Any) -> Any:
    """Return LLVM's compiler for a target, set up as numba does for code that is loaded into the process."""
    is_x86 = target.name.startswith("x86")
    return target.create_target_machine(
        reloc="static" if is_x86 else "default", codemodel="jitdefault", jit=True, **options
    )


@cache
def _register_symbols() -> None:
    """Give LLVM the addresses of the functions that machine code calls, as numba does when it starts."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    helpers = _extension("_helperlib").c_helpers
    llvm.add_symbol("_Py_NoneStruct", id(None))
    for functions in (helpers, _extension("_dynfunc").c_helpers):
        for name, address in functions.items():
            llvm.add_symbol(f"numba_{name}", address)
    for name, value in vars(builtins).items():
        if isinstance(value, type) and issubclass(value, BaseException):
            llvm.add_symbol(f"PyExc_{name}", id(value))


@cache
def _extension(name: str) -> ModuleType:
    """Return a module of numba in C, without the package around it.

    numba uses the same module if it is imported later.
    """
    full = f"numba.{name}"
    if full in sys.modules:
        return sys.modules[full]
    package = importlib.util.find_spec("numba")
    if package is None or not package.submodule_search_locations:
        raise NotLoadedError("numba is not installed")
    finder = FileFinder(package.submodule_search_locations[0], (ExtensionFileLoader, EXTENSION_SUFFIXES))
    spec = finder.find_spec(full)
    if spec is None or spec.loader is None:
        raise NotLoadedError(full)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[full] = module
    return module
