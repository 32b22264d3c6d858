"""Calls functions of C libraries in a loop of machine code."""

from __future__ import annotations

from cep.arrays import I64
from cep.jit import compiled


def _no_call(function: int, argument: int) -> None:
    """Only machine code calls it."""


_call = compiled.instruction(_no_call, "cep.jit.instructions:call")


@compiled.kernel(compiled.Sources(modules=(("cep.jit", "foreign.py"),)))
def call_each(function: int, addresses: I64) -> None:
    """Call a C function with each address. A call takes a few nanoseconds; with ctypes it takes 200.

    `function`: the address of a function that takes an address and returns nothing. This is not checked.
    `addresses`: int64[n].
    """
    for address in addresses:
        _call(function, address)
