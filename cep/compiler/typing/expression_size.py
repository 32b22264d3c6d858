"""The size of an expression with the short forms of the language written out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from cep.language import ast
from cep.language.expressions import parts_of

MAX_EXPRESSION = 10_000
"""Operations of an expression that is written out."""


_NO_LETS: Mapping[str, int] = MappingProxyType({})


def written_out(node: ast.Expression, sizes: Mapping[str, int] = _NO_LETS) -> int:
    """Return the number of operations and values of `node`, written out in full.

    BETWEEN compares its operand twice, IN and a CASE with an operand once for each of their items. Nested,
    they multiply. `sizes` has the size of what each name of LET stands for.
    """

    def size(part: ast.Expression) -> int:
        return written_out(part, sizes)

    match node:
        case ast.Column(name=name) if name.text in sizes:
            return sizes[name.text]
        case ast.Between(operand=operand, low=low, high=high):
            return 3 + 2 * size(operand) + size(low) + size(high)
        case ast.In(operand=operand, items=items):
            return 1 + len(items) * (size(operand) + 2)
        case ast.Case(operand=operand, whens=whens) if operand is not None:
            first, *rest = map(size, parts_of(node))  # the operand is first, and examined once
            return 1 + len(whens) * (1 + first) + sum(rest)
        case (
            ast.Constant()
            | ast.Column()
            | ast.Events()
            | ast.Function()
            | ast.Windowed()
            | ast.Unary()
            | ast.Binary()
            | ast.Junction()
            | ast.Like()
            | ast.Is()
            | ast.Case()
            | ast.Cast()
        ):
            return 1 + sum(map(size, parts_of(node)))
        case _:
            assert_never(node)
