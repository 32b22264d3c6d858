"""What `cep explain` says about the tables that a rule joins."""

from __future__ import annotations

from collections.abc import Iterator

from cep.compiler import ir
from cep.explain.shown import show_expression
from cep.expression import Joined, walk
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
