"""Tables that the rules of a program join: which versions it reads, and which columns events get from them.

The compiler writes them; `cep.engine.windows` looks up the versions once events are in order.

A version is a row of `Program.event_schema`, like an event: `VERSION_COLUMN` distinguishes them. So versions
are grouped by key, wait for the watermark, are late and are corrected like events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from cep.expression import Expression, Type
from cep.schema.stream import Stream, TableKind

VERSION_COLUMN = "_version"
"""Column of a prepared batch: 0 for an event, t + 1 for a version of table t, -(t + 1) for its deletion.

Only programs that take in versions have it (`Joins.takes_versions`).
"""


def table_name(number: int) -> str:
    """Return the name under which the identity of a program describes table `number`."""
    return f"_table{number}"


@dataclass(frozen=True, slots=True)
class JoinedTable:
    """A table that rules of a program join.

    - `key`: its key columns, in the order of `key_columns`.
    - `key_columns`: the columns of a prepared batch that hold the key of a version. If the table is
      co-partitioned, they are those of the program's key.
    - `values`: columns of the table that rules read, or that order versions of one time, each with the column
      of a prepared batch that holds it. For events they are NULL.
    """

    table: Stream
    key: tuple[str, ...]
    key_columns: tuple[str, ...]
    values: tuple[tuple[str, str], ...]

    @property
    def is_co_partitioned(self) -> bool:
        """Whether its key is the key of the rules, so versions are needed only where their key is."""
        return self.table.table is not None and self.table.table.kind is TableKind.CHANGELOG

    def own_columns(self) -> dict[str, Type]:
        """Return the columns of a prepared batch that only versions of the table have, with their types."""
        columns = dict(self.values)
        if not self.is_co_partitioned:
            columns |= dict(zip(self.key, self.key_columns, strict=True))
        types = {field.name: field.type for field in self.table.fields}
        return {prepared: types[name] for name, prepared in columns.items()}


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """A column that an event gets from the version of a table that was valid at its time.

    `table`: index in `Joins.tables`. `keys`: columns of a prepared batch, or joined columns that precede this
    one: the key of the version, in the order of `JoinedTable.key`. If one of them is NULL, so is the column.
    `is_before`: whether the version is the one that was valid directly before the time of the event.
    """

    name: str
    type: Type
    table: int
    keys: tuple[str, ...]
    column: str
    is_before: bool = False


@dataclass(frozen=True)
class Joins:
    """The joins of the rules of a program.

    `columns` are looked up once events are in order. Then come `derived`, named expressions over events and
    their `columns`. For a predicate that reads joined columns, `Program.predicates` has the part that does
    not; `refined` has its word, its bit and the rest, as far as this reads no windows. `unread` are tables
    that rules join without reading a column: they are inputs, but none of their rows is kept.
    """

    tables: tuple[JoinedTable, ...] = ()
    columns: tuple[JoinedColumn, ...] = ()
    derived: tuple[tuple[str, Expression], ...] = ()
    refined: tuple[tuple[int, int, Expression], ...] = ()
    unread: tuple[Stream, ...] = ()

    @property
    def declared(self) -> tuple[Stream, ...]:
        """All tables that the rules join."""
        return (*(joined.table for joined in self.tables), *self.unread)

    @cached_property
    def takes_versions(self) -> bool:
        """Whether versions arrive in order of time: not all tables are static."""
        return any(not joined.table.is_static for joined in self.tables)

    @cached_property
    def late_types(self) -> dict[str, Type]:
        """Types of the columns that events get once they are in order."""
        types = {column.name: column.type for column in self.columns}
        return types | {name: expression.type for name, expression in self.derived}

    @cached_property
    def version_types(self) -> dict[str, Type]:
        """Types of the columns of a prepared batch that only versions have."""
        found = (joined.own_columns() for joined in self.tables if not joined.table.is_static)
        return {name: kind for columns in found for name, kind in columns.items()}


NO_JOINS = Joins()
