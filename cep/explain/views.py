"""A view as text: the tables of its rows, when a row exists, and what changes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from cep.compiler import ir
from cep.explain.shown import show_expression
from cep.explain.tables import joined_tables
from cep.expression import Expression
from cep.schema.stream import TableKind


def view_lines(rule: ir.Rule) -> Iterator[str]:
    """Yield the lines about a view, after its name."""
    viewing = rule.viewing
    assert viewing is not None
    base, *others = rule.tables
    rows_of, condition, may_lack = _rows(base.name, viewing.kinds, viewing.where)
    shown = " and ".join(rows_of)
    yield f"  view       of the rows of {shown}, with the key {', '.join(rule.key)}"
    yield f"  a row      is there while it is {condition}"
    if may_lack:
        yield f"             its columns of {', '.join(may_lack)} are NULL where there is no row of it"
    yield "  reports    each change of a row, once for each instant: kind `match` when it comes or has other"
    yield "             values, `retract` when it is gone, with what it was; revision is the time"
    kinds = {table.name: table.table.kind for table in others if table.table is not None}
    searched = [name for name, kind in kinds.items() if kind is TableKind.REPLICATED]
    if searched:
        yield f"  costs      a version of {', '.join(searched)} is looked for in all rows of {shown}"
    static = [name for name, kind in kinds.items() if kind is TableKind.STATIC]
    if static:
        yield f"  static     a new file of {', '.join(static)} changes no row that was reported;"
        yield "             to be followed, a table is replicated, and its rows have an event time"
    yield from joined_tables(rule)
    yield "measures"
    for measure in viewing.selected:
        yield f"  {measure.name} = {show_expression(measure.expression)}"


def _rows(
    base: str, kinds: Iterable[tuple[str, ir.JoinKind]], where: Expression | None
) -> tuple[list[str], str, list[str]]:
    """Return the tables whose rows create rows of the view, when a row exists, and what it may lack."""
    rows_of, condition, is_either = [base], f"in {base}", False
    before, may_lack = [base], []
    for name, kind in kinds:
        match kind:
            case ir.JoinKind.INNER:
                condition, is_either = f"{_one_of(condition, is_either)} and in {name}", False
            case ir.JoinKind.LEFT:
                may_lack.append(name)
            case ir.JoinKind.RIGHT:
                rows_of, condition, is_either = [name], f"in {name}", False
                may_lack = list(before)
            case ir.JoinKind.FULL:
                rows_of, condition, is_either = [*rows_of, name], f"{condition} or in {name}", True
                may_lack = [*before, name]
            case _:
                assert_never(kind)
        before.append(name)
    if where is not None:
        condition = f"{_one_of(condition, is_either)} and where {show_expression(where)}"
    return rows_of, condition, may_lack


def _one_of(condition: str, is_either: bool) -> str:
    return f"({condition})" if is_either else condition
