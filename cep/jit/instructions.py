"""LLVM's instructions for `cep.jit.wide`, `memory` and `foreign`: what numba calls when it compiles them.

A function receives the types of arguments, and returns the signature of a call and its code generator.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.np import arrayobj

_WORD, _TWO, _THREE, _FOUR, _SIX = (ir.IntType(64 * n) for n in (1, 2, 3, 4, 6))


def _whole(builder: Any, words: Sequence[Any], form: Any) -> Any:
    """Return the number with these words, the lowest first."""
    found = builder.zext(words[0], form)
    for number, word in enumerate(words[1:], 1):
        found = builder.or_(found, builder.shl(builder.zext(word, form), form(64 * number)))
    return found


def _tuple_of(n: int) -> Any:
    return types.UniTuple(types.int64, n)  # type: ignore[no-untyped-call]


def _split(builder: Any, number: Any) -> list[Any]:
    """Return the words of a number, the lowest first."""
    n_words = number.type.width // 64
    return [builder.trunc(builder.lshr(number, number.type(64 * word)), _WORD) for word in range(n_words)]


def _words(context: Any, builder: Any, number: Any, n: int) -> Any:
    """Return the lowest words of a number as a tuple."""
    return context.make_tuple(builder, _tuple_of(n), _split(builder, number)[:n])


def _magnitude(builder: Any, upper: Any, lower: Any, low_bits: Any) -> tuple[Any, Any]:
    """Return the two words of the magnitude of a number of two halves."""
    number = builder.shl(builder.sext(upper, _TWO), builder.zext(low_bits, _TWO))
    number = builder.add(number, builder.sext(lower, _TWO))
    is_negative = builder.icmp_signed("<", number, _TWO(0))
    number = builder.select(is_negative, builder.neg(number), number)
    return builder.trunc(number, _WORD), builder.trunc(builder.lshr(number, _TWO(64)), _WORD)


def _product(builder: Any, one: Any, other: Any, place: int, form: Any = _FOUR) -> Any:
    """Return the product of two words, whose lowest bit is the bit `place` of the result."""
    product = builder.mul(builder.zext(one, _TWO), builder.zext(other, _TWO))  # one instruction
    return builder.shl(builder.zext(product, form), form(place))


def _of_chunks(builder: Any, chunks: Sequence[Any], form: Any) -> Any:
    """Return the number with these chunks."""
    found = builder.sext(chunks[0], form)
    for number, chunk in enumerate(chunks[1:], 1):
        found = builder.add(found, builder.shl(builder.sext(chunk, form), form(32 * number)))
    return found


def _square(builder: Any, upper: Any, lower: Any, low_bits: Any) -> Any:
    low, high = _magnitude(builder, upper, lower, low_bits)
    outer = builder.add(_product(builder, low, low, 0), _product(builder, high, high, 128))
    return builder.add(outer, _product(builder, low, high, 65))


def add_square(context: Any, upper: Any, lower: Any, low_bits: Any, sum0: Any, sum1: Any, sum2: Any) -> Any:
    """Add the square of a number to three words."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        number = _square(builder, given[0], given[1], given[2])
        return _words(context, builder, builder.add(number, _whole(builder, given[3:], _FOUR)), 3)

    return _tuple_of(3)(*[types.int64] * 6), generate


def less(context: Any, a0: Any, a1: Any, a2: Any, b0: Any, b1: Any, b2: Any) -> Any:
    """Subtract three words from three words."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        difference = builder.sub(_whole(builder, given[:3], _THREE), _whole(builder, given[3:], _THREE))
        return _words(context, builder, difference, 3)

    return _tuple_of(3)(*[types.int64] * 6), generate


def spread(
    context: Any, n: Any, upper: Any, lower: Any, low_bits: Any, sum0: Any, sum1: Any, sum2: Any
) -> Any:
    """Multiply three words, and subtract the square of a number."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        n, upper, lower, low_bits, *squares = given
        total = _FOUR(0)
        for number, word in enumerate(squares):
            total = builder.add(total, _product(builder, word, n, 64 * number))
        return _words(context, builder, builder.sub(total, _square(builder, upper, lower, low_bits)), 4)

    return _tuple_of(4)(*[types.int64] * 7), generate


def spread_of_chunks(context: Any, n: Any, sums: Any, squares: Any) -> Any:
    """Multiply eight chunks, and subtract the square of four."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        n = given[0]
        sums, squares = (
            [builder.extract_value(part, number) for number in range(part.type.count)] for part in given[1:]
        )
        total = _of_chunks(builder, sums, _THREE)
        is_negative = builder.icmp_signed("<", total, _THREE(0))
        words = _split(builder, builder.select(is_negative, builder.neg(total), total))
        found = _SIX(0)
        for number, word in enumerate(_split(builder, _of_chunks(builder, squares, _SIX))[:5]):
            found = builder.add(found, _product(builder, word, n, 64 * number, _SIX))
        for number, word in enumerate(words):
            for other in range(number, 3):
                place = 64 * (number + other) + (other > number)
                found = builder.sub(found, _product(builder, word, words[other], place, _SIX))
        return _words(context, builder, found, 6)

    return _tuple_of(6)(types.int64, _tuple_of(4), _tuple_of(8)), generate


def leading_zeros(context: Any, word: Any) -> Any:
    """Count the uppermost bits that are 0."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        form = ir.FunctionType(_WORD, [_WORD, ir.IntType(1)])
        function = cgutils.get_or_insert_function(builder.module, form, "llvm.ctlz.i64")  # type: ignore[no-untyped-call]
        return builder.call(function, [given[0], ir.IntType(1)(0)])

    return types.int64(types.int64), generate


def prefetch(context: Any, table: Any, row: Any) -> Any:
    """Fetch the start of a row of an array."""

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


def read_word(context: Any, data: Any, at: Any) -> Any:
    """Read 8 bytes, which start anywhere."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        kind = signature.args[0]
        array = arrayobj.make_array(kind)(context, builder, given[0])  # type: ignore[no-untyped-call]
        at = context.cast(builder, given[1], signature.args[1], types.intp)
        place = cgutils.get_item_pointer(context, builder, kind, array, [at])  # type: ignore[no-untyped-call]
        return builder.load(builder.bitcast(place, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, at), generate


def call(context: Any, function: Any, argument: Any) -> Any:
    """Call the C function at an address with an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        c_function = ir.FunctionType(ir.VoidType(), [ir.IntType(64)])
        builder.call(builder.inttoptr(given[0], c_function.as_pointer()), [given[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate
