"""How kernels are compiled: once, for every rule, to code without what numba adds for safety in general.

Two things are left out, which cost several times the run time of the loops:

- *Counts of references.* Kernels make no arrays, so numba need not count references to those they are given.
  It would do so with two atomic operations for each array and each part, inlined or not.
- *Negative indices.* numba adds the length to an index below 0, which it tests at every access. Kernels have
  no such indices, so theirs are read as unsigned numbers (`UnsignedIndices`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.typed_passes import NopythonTypeInference
from numba.core.typing.templates import Signature

_F = TypeVar("_F", bound=Callable[..., Any])

KERNELS: dict[str, Any] = {}
"""The kernels of all modules, by name."""


@register_pass(mutates_CFG=False, analysis_only=False)
class UnsignedIndices(FunctionPass):
    """After type inference: let every access to an array cast its indices to unsigned integers."""

    _name = "unsigned_indices"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Change the signatures of accesses; say whether there were any."""
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


class _Pipeline(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        builder = DefaultPassBuilder.define_nopython_pipeline(self.state)
        builder.add_pass_after(UnsignedIndices, NopythonTypeInference)
        builder.finalize()
        return [builder]


_OPTIONS: dict[str, Any] = {"nogil": True, "_nrt": False, "pipeline_class": _Pipeline}


def _source_stamp() -> tuple[tuple[str, float, int], ...]:
    """Return what changes when a source of any kernel does: parts and numbers come from several files."""
    here = Path(__file__).parent
    files = [*sorted(here.glob("*.py")), here.parents[1] / "program.py"]
    return tuple((file.name, file.stat().st_mtime, file.stat().st_size) for file in files if file.exists())


_STAMP = _source_stamp()


def kernel(function: _F) -> _F:
    """Compile a loop that Python calls, at its first call; the machine code is kept on disk.

    No fastmath: NaN and times are exact. numba looks only at the file a kernel stands in to see whether the
    code on disk is still good; with the layout of another file's changed it would run on wrong memory.
    """
    compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    if hasattr(compiled, "_cache"):  # without the compiler it is the function itself
        compiled._cache._cache_file._source_stamp = _STAMP
    KERNELS[function.__name__] = compiled
    return compiled


def part(function: _F) -> _F:
    """Compile a part of a kernel into its callers."""
    compiled: _F = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled


def apart(function: _F) -> _F:
    """Compile a part of a kernel that is called, not inlined: what happens seldom keeps the loops small."""
    compiled: _F = numba.njit(**_OPTIONS)(function)
    return compiled
