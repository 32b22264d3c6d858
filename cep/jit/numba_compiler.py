"""Compiles kernels with numba. It is imported only when something must be compiled.

Kernels are compiled without two things that numba adds for safety, and parts also without a third (decisions
7, 15):

- *Reference counts.* Kernels create no arrays, so numba need not count references to those that they receive.
  It would do so with two atomic operations for each array and each part, inlined or not.
- *Negative indices.* numba tests at every access whether an index is below 0, and adds the length then.
  Kernels use no negative indices, so all indices are treated as unsigned (`UnsignedIndices`).
- *Machine code of parts*, which only kernels call (`_PartCode`).

Private parts of numba that are used here (`tests/unit/jit/test_handles.py` has a test for each):

- the passes of its compiler, their state, and ``DefaultPassBuilder``;
- the options ``_nrt``, ``no_cpython_wrapper`` and ``no_cfunc_wrapper``;
- ``JITCodeLibrary``, its codegen and the methods that `_PartCode` replaces;
- ``Dispatcher.get_call_template``, ``Dispatcher.overloads``;
- of what was compiled: ``library.serialize_using_object_code``, ``library._final_module``,
  ``library.has_dynamic_globals``, ``fndesc.env_name``, ``fndesc.llvm_cpython_wrapper_name``,
  ``environment.consts``, ``environment.lookup_environment``, ``entry_point``.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
from numba.core import environment, ir, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing.templates import Signature
from numba.extending import intrinsic, typeof_impl
from numba.np.numpy_support import from_dtype

from cep.jit.arguments import C_ORDER, DIMENSION, F_ORDER, WRITEABLE, Key
from cep.jit.stored import MachineCode


@register_pass(mutates_CFG=False, analysis_only=False)
class UnsignedIndices(FunctionPass):
    """After type inference: make every array access cast its indices to unsigned integers."""

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

    numba would also compile each part by itself, together with all parts that it calls (decision 15).
    """

    @property
    def codegen(self) -> Any:
        """Parts use no Python objects, so numba needs no place for them."""
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
        """Give the compiler its own library."""
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
_PART_OPTIONS: dict[str, Any] = {
    **_OPTIONS,
    "pipeline_class": _PartPipeline,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
}


def kernel(function: Callable[..., Any]) -> Any:
    """Return numba's dispatcher of a kernel."""
    return numba.njit(**_OPTIONS)(function)


def part(function: Callable[..., Any], *, inline: bool) -> Any:
    """Return numba's dispatcher of a part."""
    options: dict[str, Any] = {"forceinline": True} if inline else {}
    dispatcher: Any = numba.njit(**{**options, **_PART_OPTIONS})(function)
    typed = dispatcher.get_call_template

    def get_call_template(args: tuple[types.Type, ...], kws: Any) -> Any:
        """Type a call with a constant number as a call with any number.

        numba would compile the part a second time for a constant, even for the first value of a variable.
        LLVM knows the constant where the part is inlined.
        """
        return typed(tuple(map(_any_number, args)), kws)

    dispatcher.get_call_template = get_call_template
    return dispatcher


def _any_number(argument: types.Type) -> types.Type:
    return types.unliteral(argument) if isinstance(argument, types.IntegerLiteral) else argument


def instruction(generator: Callable[..., Any]) -> Any:
    """Return the object from which numba generates the code of an `Instruction`."""
    made = intrinsic(generator)
    cpu_target.typing_context.refresh()  # a kernel that names it is being compiled
    cpu_target.target_context.refresh()
    return made


def register(kind: type) -> None:
    """Make numba use its own object for a part or an instruction, an object of `kind`, in code."""
    typeof_impl.register(kind)(_type_of_part)


def _type_of_part(value: Any, context: Any) -> types.Type:
    found: types.Type = cpu_target.typing_context.resolve_value_type(value.of_numba())
    return found


def compile_kernel(dispatcher: Any, key: Key) -> tuple[Callable[..., Any], MachineCode | None]:
    """Compile a kernel for arguments of some types.

    Returns
    -------
    called
        The function that Python calls.
    code
        The code for the disk; None if it contains values of this process.
    """
    signature = types_of(key)
    dispatcher.compile(signature)
    result = dispatcher.overloads[signature]
    called: Callable[..., Any] = result.entry_point
    return called, _machine_code(result, key)


def _machine_code(result: Any, key: Key) -> MachineCode | None:
    module = result.library._final_module
    names = [value.name for value in module.global_variables]
    environments = [environment.lookup_environment(name) for name in names]
    has_objects = any(found is not None and found.consts for found in environments)
    if has_objects or result.environment.consts or result.library.has_dynamic_globals:
        return None
    declared = [
        value.name
        for value in (*module.functions, *module.global_variables)
        if value.is_declaration and not value.name.startswith("llvm.")
    ]
    _, _, (code, _) = result.library.serialize_using_object_code()
    description = result.fndesc
    return MachineCode(
        key, description.llvm_cpython_wrapper_name, description.env_name, tuple(declared), code
    )


def types_of(key: Key) -> tuple[types.Type, ...]:
    """Return numba's types of arguments with a key."""
    parts = iter(key)
    found = []
    while (first := next(parts, None)) is not None:
        found.append(_type_of(first, parts))
    return tuple(found)


def _type_of(first: Any, parts: Iterator[Any]) -> types.Type:
    if isinstance(first, np.dtype):
        bits = next(parts)
        layout: Any = "C" if bits & C_ORDER else "F" if bits & F_ORDER else "A"
        element: Any = from_dtype(first)
        n_dimensions = bits // DIMENSION
        return types.Array(element, n_dimensions, layout, readonly=not bits & WRITEABLE)
    module, is_tuple, name = first.partition(":")
    if not is_tuple:
        number: types.Type = from_dtype(np.dtype(first))
        return number
    members: Any = tuple(_type_of(next(parts), parts) for _ in range(next(parts)))
    of_class = getattr(importlib.import_module(module), name)
    if of_class is tuple:
        return types.Tuple(members)
    if len(set(members)) == 1:
        return types.NamedUniTuple(members[0], len(members), of_class)
    return types.NamedTuple(members, of_class)
