"""Calls functions of C libraries in a loop of machine code."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from cep.arrays import I64
from cep.jit import compiled


@intrinsic
def _call(context: Any, function: Any, argument: Any) -> Any:
    """Call the C function at an address with an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        c_function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(given[0], c_function.as_pointer()), [given[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@compiled.kernel(compiled.source_stamp("cep.jit"))
def call_each(function: int, addresses: I64) -> None:
    """Call a C function with each address. A call takes some nanoseconds; by ctypes it takes 200.

    Parameters
    ----------
    function
        Where the code is of a function that takes an address and returns nothing. Nothing checks this.
    addresses
        int64[n].
    """
    for address in addresses:
        _call(function, address)  # type: ignore[call-arg]  # numba gives the context itself
