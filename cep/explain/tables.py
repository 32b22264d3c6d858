"""What `cep explain` says about the tables that a rule joins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from cep.compiler import ir
from cep.explain.shown import show_expression
from cep.expression import Expression, Joined, walk
from cep.schema.stream import Stream, TableKind


def joined_tables(rule: ir.Rule) -> Iterator[str]:
    """Yield the tables of the rule, where their versions are needed, and what is kept of them."""
    leaves = list(_leaves(rule))
    of_keys = () if rule.windowing is None else rule.windowing.tables  # FOR EACH reads no column
    tables = [t for t in rule.tables if t not in of_keys or any(leaf.table == t.name for leaf in leaves)]
    if not tables:
        return
    yield "tables, looked up once events are in order"
    for table in tables:
        of_table = [leaf for leaf in leaves if leaf.table == table.name]
        if not of_table:
            yield f"  {table.name}: no column of it is read"
            continue
        yield f"  {table.name} ON {_pairs(table, of_table[0])}"
        columns = ", ".join(dict.fromkeys(leaf.column for leaf in of_table))
        yield from (f"    {line}" for line in _kept(table, columns))


def _kept(table: Stream, columns: str) -> Iterator[str]:
    assert table.table is not None
    most = table.table.max_rows
    limit = "any number of rows" if most is None else f"at most {most:,} rows"
    version = "the last version that the watermark has passed, and those that wait for it"
    match table.table.kind:
        case TableKind.CHANGELOG:
            yield "co-partitioned: it has the key of the rule, so a version is needed where its key is only"
            yield f"a key keeps {columns}: {version}; {limit}"
        case TableKind.REPLICATED:
            yield "replicated: every key group needs all of it"
            yield f"kept is {columns} of each row: {version}; {limit}"
        case TableKind.STATIC:
            yield f"static: read as a whole, valid always; {columns} of each row, {limit}"


def _pairs(table: Stream, leaf: Joined) -> str:
    assert table.table is not None
    pairs = zip(leaf.keys, table.table.key, strict=True)
    return " AND ".join(f"{show_expression(column)} = {table.name}.{key}" for column, key in pairs)


def _leaves(rule: ir.Rule) -> Iterator[Joined]:
    """Yield the columns of tables that the rule reads."""
    for expression in rule.expressions:
        yield from (node for node in walk(expression) if isinstance(node, Joined))


def view_lines(rule: ir.Rule) -> Iterator[str]:
    """Yield the lines about a view, after its name."""
    viewing = rule.viewing
    assert viewing is not None
    base, *others = rule.tables
    rows_of, condition, may_lack = _rows(base.name, viewing.kinds, viewing.where)
    shown = " and ".join(rows_of)
    yield f"  view       of the rows of {shown}, with the key {', '.join(rule.key)}"
    yield f"  a row      exists while it is {condition}"
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
