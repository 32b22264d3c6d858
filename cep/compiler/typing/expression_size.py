"""The size of an expression once the short forms of the language are written out."""

from __future__ import annotations

from typing import assert_never

from cep.language import ast
from cep.language.expressions import parts_of

MAX_EXPRESSION = 10_000
"""Operations of an expression that is written out."""


def written_out(node: ast.Expression) -> int:
    """Return the number of operations and values of `node` with nothing left short.

    BETWEEN compares its operand twice, IN and a CASE with an operand once for each of their items. Nested,
    they multiply.
    """
    match node:
        case ast.Between(operand=operand, low=low, high=high):
            return 3 + 2 * written_out(operand) + written_out(low) + written_out(high)
        case ast.In(operand=operand, items=items):
            return 1 + len(items) * (written_out(operand) + 2)
        case ast.Case(operand=operand, whens=whens) if operand is not None:
            first, *rest = map(written_out, parts_of(node))  # the operand is first, and looked at once
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
            return 1 + sum(map(written_out, parts_of(node)))
        case _:
            assert_never(node)
