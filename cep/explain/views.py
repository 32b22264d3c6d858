"""A view as text: of which tables its rows are, when a row is there, what changes it."""

from __future__ import annotations

from collections.abc import Iterator

from cep.compiler import ir
from cep.explain.shown import show_expression
from cep.explain.tables import joined_tables
from cep.schema.stream import TableKind


def view_lines(rule: ir.Rule) -> Iterator[str]:
    """Yield the lines about a view, behind its name."""
    viewing = rule.viewing
    assert viewing is not None
    base, *others = rule.tables
    yield f"  view       of the rows of {base.name}, with the key {', '.join(rule.key)}"
    needed = [table.name for table in others if table.name not in viewing.left]
    conditions = [f"in {base.name}", *(f"in {name}" for name in needed)]
    conditions += [] if viewing.where is None else [f"where {show_expression(viewing.where)}"]
    yield f"  a row      is there while it is {' and '.join(conditions)}"
    if viewing.left:
        yield f"             its columns of {', '.join(viewing.left)} are NULL where there is no row of it"
    yield "  reports    each change of a row, once for each instant: kind `match` when it comes or has other"
    yield "             values, `retract` when it is gone, with what it was; revision is the time"
    kinds = {table.name: table.table.kind for table in others if table.table is not None}
    searched = [name for name, kind in kinds.items() if kind is TableKind.REPLICATED]
    if searched:
        yield f"  costs      a version of {', '.join(searched)} is looked for in all rows of {base.name}"
    yield from joined_tables(rule)
    yield "measures"
    for measure in viewing.selected:
        yield f"  {measure.name} = {show_expression(measure.expression)}"
