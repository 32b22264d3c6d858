"""What the rules of one program join. Equal joins are shared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from cep.expression import Expression, Joined, column_names
from cep.program.tables import JoinedColumn, JoinedTable, Joins
from cep.schema.stream import Stream


@dataclass
class SharedJoins:
    """The joins of one program, collected while its rules are lowered."""

    declared: dict[str, Stream] = field(default_factory=dict)
    tables: list[JoinedTable] = field(default_factory=list)
    columns: dict[Joined, JoinedColumn] = field(default_factory=dict)
    derived: dict[Expression, str] = field(default_factory=dict)  # over columns

    def declare(self, tables: Iterable[Stream]) -> None:
        """Add the tables that a rule joins."""
        self.declared |= {table.name: table for table in tables}

    def column(self, leaf: Joined) -> str:
        """Return the name of the column that holds `leaf` for each event."""
        if leaf not in self.columns:
            number, keys = self._table(leaf)
            name = f"_j{len(self.columns)}"
            self.columns[leaf] = JoinedColumn(name, leaf.type, number, keys, leaf.column, leaf.is_before)
        return self.columns[leaf].name

    def name(self, expression: Expression) -> str:
        """Return the name of the column that holds `expression`, which is over columns."""
        return self.derived.setdefault(expression, f"_jd{len(self.derived)}")

    def _table(self, leaf: Joined) -> tuple[int, tuple[str, ...]]:
        """Return the number of the table, and the event's columns in the order of its key."""
        stream = self.declared[leaf.table]
        assert stream.table is not None
        key = leaf.order or stream.table.key
        of_key = dict(zip(stream.table.key, leaf.keys, strict=True))
        keys = (of_key[name] for name in key)
        return self.number(stream, key), tuple(
            self.column(of) if isinstance(of, Joined) else of.name for of in keys
        )

    def number(self, table: Stream, key: tuple[str, ...]) -> int:
        """Return the number of a table; `key` is its key in the order in which it is needed."""
        found = [(of.table.name, of.key) for of in self.tables]
        if (table.name, key) not in found:
            found.append((table.name, key))
            self.tables.append(JoinedTable(table, key, (), ()))
        return found.index((table.name, key))

    def context_columns(self, refined: Iterable[Expression]) -> list[str]:
        """Return the columns of prepared events that joins, and what is computed from them, read."""
        names = [name for column in self.columns.values() for name in column.keys]
        names += [name for expression in (*self.derived, *refined) for name in column_names(expression)]
        own = {column.name for column in self.columns.values()} | set(self.derived.values())
        return [name for name in names if name not in own]

    def lowered(
        self, key_columns: tuple[str, ...], refined: tuple[tuple[int, int, Expression], ...]
    ) -> Joins:
        """Return all joins; `key_columns` are the columns of a prepared batch that hold the rules' key."""
        read = {joined.table.name for joined in self.tables}
        return Joins(
            tables=tuple(self._with_columns(key_columns)),
            columns=tuple(self.columns.values()),
            derived=tuple((name, expression) for expression, name in self.derived.items()),
            refined=refined,
            unread=tuple(table for name, table in self.declared.items() if name not in read),
        )

    def _with_columns(self, key_columns: tuple[str, ...]) -> Iterable[JoinedTable]:
        number = 0
        for at, joined in enumerate(self.tables):
            names: Mapping[str, None] = dict.fromkeys(
                (
                    *(column.column for column in self.columns.values() if column.table == at),
                    *joined.table.tie_break,
                )
            )
            own = () if joined.is_co_partitioned else joined.key
            columns = list(dict.fromkeys((*own, *names)))
            prepared = {name: f"_v{number + place}" for place, name in enumerate(columns)}
            number += len(prepared)
            yield replace(
                joined,
                key_columns=tuple(prepared[name] for name in own) if own else key_columns,
                values=tuple((name, prepared[name]) for name in names),
            )
