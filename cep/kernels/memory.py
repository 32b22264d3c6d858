"""Tells the processor which memory is read soon."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from cep.arrays import I64


@intrinsic
def _prefetch(context: Any, table: Any, row: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = signature.args[0]
        array = arrayobj.make_array(kind)(context, builder, given[0])  # type: ignore[no-untyped-call]
        row = context.cast(builder, given[1], signature.args[1], types.intp)
        zero = context.get_constant(types.intp, 0)
        indices = [row] + [zero] * (kind.ndim - 1)
        place = cgutils.get_item_pointer(context, builder, kind, array, indices)  # type: ignore[no-untyped-call]
        place = builder.bitcast(place, cgutils.voidptr_t)
        flag = ir.IntType(32)
        form = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
        name = "llvm.prefetch.p0i8"
        function = cgutils.get_or_insert_function(builder.module, form, name)  # type: ignore[no-untyped-call]
        builder.call(function, [place, flag(0), flag(3), flag(1)])  # to read, to stay, data
        return context.get_dummy_value()

    return types.void(table, row), generate


def _no_prefetch(table: I64, row: int) -> None:
    """Kernels that are not compiled wait anyway."""


prefetch: Callable[[I64, int], None] = _no_prefetch if config.DISABLE_JIT else _prefetch  # type: ignore
"""``prefetch(table, row)`` lets the processor fetch the beginning of a row of `table`, and does not wait."""
