"""Memory as the processor reads it: by lines of its cache, fetched ahead, and by words of 8 bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np import arrayobj

from cep.arrays import I32, I64, U8


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


def _no_prefetch(table: I32 | I64, row: int) -> None:
    """Kernels that are not compiled wait anyway."""


prefetch: Callable[[I32 | I64, int], None] = _no_prefetch if config.DISABLE_JIT else _prefetch  # type: ignore
"""``prefetch(table, row)`` lets the processor fetch the beginning of a row of `table`, and does not wait."""


@intrinsic
def _read_word(context: Any, data: Any, at: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = signature.args[0]
        array = arrayobj.make_array(kind)(context, builder, given[0])  # type: ignore[no-untyped-call]
        at = context.cast(builder, given[1], signature.args[1], types.intp)
        place = cgutils.get_item_pointer(context, builder, kind, array, [at])  # type: ignore[no-untyped-call]
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, at), generate


def _word_at(data: U8, at: int) -> np.uint64:
    return np.uint64(int.from_bytes(data[at : at + 8].tobytes(), "little"))


read_word: Callable[[U8, int], np.uint64] = _word_at if config.DISABLE_JIT else _read_word  # type: ignore
"""``read_word(data, at)`` returns 8 bytes as one number, the first one lowest. All of them must be there."""

_LINE = 64
"""Bytes of a line of the processor's cache."""


def in_lines(n_rows: int, width: int) -> I64:
    """Return (n_rows, width) int64, not set, that begin with a line: rows of 8 or 4 are in one line each."""
    n = n_rows * width
    room = np.empty(n + _LINE // 8, np.int64)
    first = -room.ctypes.data % _LINE // 8
    return room[first : first + n].reshape(n_rows, width)
