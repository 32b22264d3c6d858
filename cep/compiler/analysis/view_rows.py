"""When a row of a view exists, and from which tables it has columns: SQL's joins, from left to right.

    a LEFT JOIN b    while a has a row
    a FULL JOIN b    while a or b has one
    a JOIN b FULL JOIN c    while both a and b have one, or c has one

In the last view the columns of a are NULL where b has no row, although a has one: then `a JOIN b` has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cep.compiler.typing.joins import RuleJoin
from cep.diagnostics.report import Reporter
from cep.expression import Call, Expression, Joined, Literal, Type
from cep.language import ast


@dataclass(frozen=True, slots=True)
class Presence:
    """Which rows the joins of a view have.

    `shown`: table -> what else must hold for the row to have the columns of this table's row.
    """

    is_there: Expression
    shown: Mapping[str, tuple[Expression, ...]]

    def column(self, of_table: Joined) -> Expression:
        """Return a column of a table as it is in the row."""
        needed = self.shown.get(of_table.table, ())
        if not needed:
            return of_table
        return Call("case", (all_of(needed), of_table, Literal(None, of_table.type)), of_table.type)


def has_outer(rule: ast.Rule) -> bool:
    """Return whether a view may have rows without one of the table in FROM."""
    return any(join.kind in ast.OUTER for join in rule.joins)


def tables_with_rows(rule: ast.Rule) -> list[str]:
    """Return tables such that each row of a view has a row of at least one."""
    found = [rule.streams[0].text]
    for join in rule.joins:
        if join.kind in ast.OUTER:
            found = [*(found if join.kind is ast.JoinKind.FULL else ()), join.table.text]
    return found


def presence(base: RuleJoin, joins: Sequence[tuple[ast.Join, RuleJoin]]) -> Presence:
    """Return the conditions under which rows exist.

    `base`: how a change finds the row of the table in FROM. `joins`: for each of the other tables, the join
    as written, and how a change finds its rows.
    """
    of_base = _found(base, all_of_key=True)
    alone = {base.table.name: of_base}  # table -> whether it has a row that the previous joins accept
    shown: dict[str, tuple[Expression, ...]] = {base.table.name: ()}
    ways = [of_base]  # one of which must hold for a row to exist
    is_after_outer = False
    for written, join in joins:
        name, is_outer = join.table.name, written.kind in ast.OUTER
        needed: tuple[Expression, ...] = ()
        if is_after_outer and _reads(written, base):
            needed = (of_base, *shown[base.table.name])
        if is_outer:
            for other, found in alone.items():
                if found not in ways:
                    shown[other] = (*shown[other], any_of(ways))
        shown[name] = needed
        # Rows of an outer join are searched for their keys, so the whole key is kept.
        alone[name] = all_of([_found(join, all_of_key=is_outer), *needed])
        match written.kind:
            case ast.JoinKind.INNER:
                ways = [all_of([any_of(ways), alone[name]])]
            case ast.JoinKind.RIGHT:
                ways = [alone[name]]
            case ast.JoinKind.FULL:
                ways.append(alone[name])
            case ast.JoinKind.LEFT:
                pass
        is_after_outer |= is_outer
    return Presence(any_of(ways), shown)


def check_outer(rule: ast.Rule, report: Reporter) -> None:
    """Report outer joins that would give two rows for one key: by a column that may be NULL."""
    outer = [join for join in rule.joins if join.kind in ast.OUTER]
    base = rule.streams[0].text
    for first, join in pairwise(outer):
        named = [column for column in _columns_of(join) if _is_of(column, base)]
        if named:
            report(
                "E0328",
                f"`{base}.{named[0].name.text}` is NULL in rows of `{first.table.text}` alone",
                named[0].span,
                f"these rows and those of `{join.table.text}` could have one key, but be two rows",
                f"write ON {named[0].name.text}: the key of the view is never NULL",
            )


def _reads(written: ast.Join, base: RuleJoin) -> bool:
    """Return whether a join needs a row of the table in FROM: it is not only by the key of the view."""
    assert base.order is not None
    columns = [column for column in _columns_of(written) if not _is_of(column, written.table.text)]
    return any(column.variable is not None or column.name.text not in base.order for column in columns)


def _columns_of(join: ast.Join) -> list[ast.Column]:
    return [column for pair in join.pairs for column in (pair.left, pair.right) if column is not None]


def _is_of(column: ast.Column, table: str) -> bool:
    return column.variable is not None and column.variable.text == table


def _found(join: RuleJoin, *, all_of_key: bool) -> Expression:
    """Return whether the table has the row that a change needs."""
    assert join.table.table is not None
    names = (join.order or join.table.table.key) if all_of_key else join.table.table.key[:1]
    types = {field.name: field.type for field in join.table.fields}
    columns = [Joined(join.table.name, join.keys, name, join.order, types[name]) for name in names]
    return all_of([Call("is_not_null", (column,), Type.BOOLEAN) for column in columns])


def all_of(parts: Sequence[Expression]) -> Expression:
    """Return whether all of the conditions are TRUE."""
    return Call("and", tuple(parts), Type.BOOLEAN) if len(parts) > 1 else parts[0]


def any_of(parts: Sequence[Expression]) -> Expression:
    """Return whether one of the conditions is TRUE."""
    return Call("or", tuple(parts), Type.BOOLEAN) if len(parts) > 1 else parts[0]
