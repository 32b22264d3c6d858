"""How kernels are compiled: once, for every rule, without two things that numba adds for safety.

These two would multiply the run time of the loops (docs/design/decisions/0007):

- *Counts of references.* Kernels make no arrays, so numba need not count references to those they are given.
  It would do so with two atomic operations for each array and each part, inlined or not.
- *Negative indices.* numba tests at every access whether an index is below 0, and adds the length then.
  Kernels have no such indices, so theirs are read as unsigned numbers (`UnsignedIndices`).
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, TypeVar, cast

import numba
from numba.core import ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing.templates import Signature

_F = TypeVar("_F", bound=Callable[..., Any])

KERNELS: dict[str, Any] = {}
"""The kernels of all modules, by name."""

PARTS: set[str] = set()
"""The names of the parts of kernels."""


@register_pass(mutates_CFG=False, analysis_only=False)
class UnsignedIndices(FunctionPass):
    """After type inference: let every access to an array cast its indices to unsigned integers."""

    _name = "unsigned_indices"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Change the signatures of accesses; return whether there were any."""
        found = False
        for instruction, signature in list(state.calltypes.items()):
            is_access = isinstance(instruction, ir.SetItem) or (
                isinstance(instruction, ir.Expr) and instruction.op == "getitem"
            )
            if is_access and isinstance(signature, Signature) and isinstance(signature.args[0], types.Array):
                array, index, *value = signature.args
                del state.calltypes[instruction]  # it takes no second value
                state.calltypes[instruction] = signature.replace(args=(array, _unsigned(index), *value))
                found = True
        return found


def _unsigned(index: types.Type) -> types.Type:
    if isinstance(index, types.BaseTuple):
        members: Any = index
        return types.Tuple(tuple(_unsigned(member) for member in members))
    return types.uintp if isinstance(index, types.Integer) else index


class _PartCode(JITCodeLibrary):
    """The code of a part. It becomes machine code in the kernels that use it, and nowhere else.

    numba would do that for each part as well, together with all parts that it calls (decision 15).
    """

    @property
    def codegen(self) -> Any:
        """Parts have no Python objects, so numba gets nothing to put them into."""
        return _NoEnvironment()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address that Python would call. Only kernels call parts, so it raises an exception."""
        address = ctypes.cast(ctypes.pythonapi.PyErr_NoMemory, ctypes.c_void_p).value
        assert address is not None
        return address


class _NoEnvironment:
    """A part has no Python objects."""

    def set_env(self, name: str, environment: object) -> None:
        """Do nothing."""


@register_pass(mutates_CFG=False, analysis_only=False)
class WithinKernels(FunctionPass):
    """Before code is generated: make it the code of a part."""

    _name = "within_kernels"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Give the compiler a library of its own."""
        state.library = _PartCode(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


class _Pipeline(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.add_pass_after(UnsignedIndices, NopythonTypeInference)
        builder.finalize()
        return [builder]


class _PartPipeline(_Pipeline):
    def define_pipelines(self) -> list[Any]:
        [builder] = super().define_pipelines()
        builder.add_pass_after(WithinKernels, UnsignedIndices)
        builder.finalize()
        return [builder]


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "pipeline_class": _Pipeline}
# `_PartCode` was tried with this numba. Under another one parts are compiled as kernels are, in more time.
_PART_OPTIONS = _OPTIONS
if numba.__version__.startswith("0.68."):
    _PART_OPTIONS = {
        **_OPTIONS,
        "pipeline_class": _PartPipeline,
        "no_cpython_wrapper": True,
        "no_cfunc_wrapper": True,
    }


Stamp = tuple[tuple[str, bytes], ...]
"""Names of sources and digests of what is in them."""


def source_stamp(*packages: str, modules: Sequence[tuple[str, str]] = ()) -> Stamp:
    """Return the content of the sources of packages, and of modules: package, file.

    Their times would not do: archives and images of containers do not keep the time of a file exactly.
    """
    files = {
        f"{package}/{file.name}": file
        for package in packages
        for file in resources.files(package).iterdir()
        if file.name.endswith(".py")
    }
    files |= {f"{package}/{name}": resources.files(package) / name for package, name in modules}
    return tuple((name, hashlib.sha256(file.read_bytes()).digest()) for name, file in sorted(files.items()))


def kernel(stamp: Stamp) -> Callable[[_F], _F]:
    """Return what compiles a loop that Python calls, at its first call; the machine code is kept on disk.

    No fastmath: NaN and times are exact. To see whether code on disk is still good numba looks only at the
    file of the kernel. If the layout changed in another file, that code would read wrong memory. So `stamp`
    has the sources of all parts and numbers of the kernel.
    """

    def compile_kernel(function: _F) -> _F:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
        if hasattr(compiled, "_cache"):  # without the compiler it is the function itself
            compiled._cache._cache_file._source_stamp = stamp
        KERNELS[function.__name__] = compiled
        return cast(_F, compiled)

    return compile_kernel


def inlined(function: _F) -> _F:
    """Compile a part of a kernel into its callers."""
    return _part(function, {"forceinline": True})


def outlined(function: _F) -> _F:
    """Compile a part that is rarely needed. LLVM may still inline it, and does where its caller is inlined.

    Loops without these parts inside are half as large, and up to three times slower (decision 15).
    """
    return _part(function, {})


def _part(function: _F, options: dict[str, Any]) -> _F:
    PARTS.add(function.__name__)
    compiled: Any = numba.njit(**options, **_PART_OPTIONS)(function)
    if hasattr(compiled, "get_call_template"):
        typed = compiled.get_call_template

        def get_call_template(args: tuple[types.Type, ...], kws: Any) -> Any:
            """Type a call with a constant number as a call with any number.

            numba would compile the part once more for a constant, even for the first value of a variable.
            LLVM knows the constant where the part is inlined.
            """
            return typed(tuple(map(_any_number, args)), kws)

        compiled.get_call_template = get_call_template
    return cast(_F, compiled)


def _any_number(argument: types.Type) -> types.Type:
    return types.unliteral(argument) if isinstance(argument, types.IntegerLiteral) else argument


def is_compiled(kernel: Any) -> bool:
    """Return whether a kernel is compiled, in this process or on disk. numba has no public way to ask."""
    if not hasattr(kernel, "_cache") or kernel.signatures:
        return True  # without the compiler it is a plain function
    processor = kernel.targetctx.codegen().magic_tuple()
    return any(key[1] == processor for key in kernel._cache._cache_file._load_index())
