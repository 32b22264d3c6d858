"""What the rules of one program have in common: predicate words, columns, windows. Equal ones are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from cep.expression import (
    Call,
    Column,
    Expression,
    Joined,
    Literal,
    RoleTest,
    Type,
    Windowed,
    column_names,
    is_joined,
    is_windowed,
    rebuild,
)
from cep.program.program import MAX_BITS
from cep.program.tables import JoinedColumn, JoinedTable, Joins
from cep.program.windows import Function, WindowColumn
from cep.schema.stream import Role, Stream


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
        """Return the columns of prepared events that joins read, or that expressions over joins read."""
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


_TRUE = Literal(True, Type.BOOLEAN)


@dataclass
class Shared:
    """What the rules of one program have in common."""

    streams: tuple[Stream, ...]
    roles: tuple[Role, ...] = ()
    optimize: bool = True
    words: list[dict[Expression, None]] = field(default_factory=list)
    derived: dict[Expression, str] = field(default_factory=dict)
    computed: dict[Expression, str] = field(default_factory=dict)
    windows: dict[Windowed, WindowColumn] = field(default_factory=dict)
    joins: SharedJoins = field(default_factory=SharedJoins)
    columns: dict[str, int] = field(default_factory=dict)
    listed: dict[str, None] = field(default_factory=dict)

    def word_for(self, predicates: dict[Expression, None]) -> int:
        """Return the first word that can take `predicates`; equal ones share a bit."""
        number = next(
            (at for at, word in enumerate(self.words) if len(word | predicates) <= MAX_BITS), len(self.words)
        )
        if number == len(self.words):
            self.words.append({})
        self.words[number].update(predicates)
        for predicate in predicates:  # their windows may need bits of their own
            self.over_columns(predicate)
        return number

    def column(self, expression: Expression) -> int:
        """Return the index of the column that holds `expression` for each event."""
        return self.columns.setdefault(self.name(expression), len(self.columns))

    def listed_column(self, expression: Expression) -> Column:
        """Return the column that holds `expression` for each event that is reported."""
        name = self.name(expression)
        self.listed[name] = None
        return Column(name, expression.type)

    def name(self, expression: Expression) -> str:
        """Return the name of the column that holds `expression`."""
        if isinstance(expression, Column):
            return expression.name
        if isinstance(expression, Windowed):
            return self.window(expression).name
        if isinstance(expression, Joined):
            return self.joins.column(expression)
        if is_windowed(expression):
            expression = self.over_columns(expression)
            return self.computed.setdefault(expression, f"_c{len(self.computed)}")
        if is_joined(expression):
            return self.joins.name(self.over_columns(expression))
        return self.derived.setdefault(expression, f"_d{len(self.derived)}")

    def over_columns(self, expression: Expression) -> Expression:
        """Return `expression` with columns in place of the parts that read more than the event."""

        def read(leaf: Expression) -> Expression:
            is_late = isinstance(leaf, Windowed | Joined)
            return Column(self.name(leaf), leaf.type) if is_late else leaf

        return rebuild(expression, read)

    def window(self, windowed: Windowed) -> WindowColumn:
        """Return the column that holds a windowed aggregate."""
        if windowed not in self.windows:
            argument, condition = windowed.argument, windowed.condition
            within = self._of_stream(windowed.stream)
            counts = conjunction([part for part in (within, condition) if part is not None])
            self.windows[windowed] = WindowColumn(
                name=f"_w{len(self.windows)}",
                type=windowed.type,
                function=Function[windowed.function],
                argument=None if argument is None else self.name(argument),
                argument_type=None if argument is None else argument.type,
                window=windowed.window,
                parameter=windowed.parameter,
                within=self.place(within),
                counts=self.place(counts),
            )
        return self.windows[windowed]

    def _of_stream(self, name: str) -> Expression | None:
        """Return the predicate of the events of a stream; None: all events belong to it."""
        if not name:
            return None
        tests = [RoleTest(number) for number, role in enumerate(self.roles) if role.stream == name]
        return reduce(lambda a, b: Call("or", (a, b), Type.BOOLEAN), tests[1:], tests[0])  # type: ignore[arg-type, return-value]

    def place(self, predicate: Expression | None) -> tuple[int, int] | None:
        """Return word and bit of a predicate; None: there is none."""
        if predicate is None:
            return None
        word = self.word_for({predicate: None})
        return word, list(self.words[word]).index(predicate)

    def early_predicates(self) -> tuple[tuple[Expression, ...], ...]:
        """Return for each predicate an implied condition that can be tested before events are in order."""
        return tuple(tuple(_early(predicate) for predicate in word) for word in self.words)

    def refined(self) -> tuple[tuple[int, int, Expression], ...]:
        """Return word, bit and the rest of each predicate that reads a window."""
        return self._rests(is_windowed)

    def refined_by_joins(self) -> tuple[tuple[int, int, Expression], ...]:
        """Return word, bit and what each predicate says about tables, as far as it reads no window."""
        return self._rests(lambda part: is_joined(part) and not is_windowed(part))

    def _rests(self, of: Callable[[Expression], bool]) -> tuple[tuple[int, int, Expression], ...]:
        """Return word, bit and the conjunction of those parts of each predicate that are `of` a kind."""
        return tuple(
            (word, bit, self.over_columns(rest))
            for word, predicates in enumerate(self.words)
            for bit, predicate in enumerate(predicates)
            if (rest := conjunction(list(filter(of, conjuncts(predicate))))) is not None
        )

    def context_columns(self) -> tuple[str, ...]:
        """Return the columns of prepared events that joins and windows read, or that expressions over these
        read.
        """
        own = {window.name for window in self.windows.values()} | set(self.computed.values())
        own |= {column.name for column in self.joins.columns.values()} | set(self.joins.derived.values())
        names = [window.argument for window in self.windows.values() if window.argument is not None]
        expressions = [*self.computed, *(rest for _, _, rest in self.refined())]
        names += [name for expression in expressions for name in column_names(expression)]
        names += self.joins.context_columns([rest for _, _, rest in self.refined_by_joins()])
        return tuple(name for name in dict.fromkeys(names) if name not in own)


def conjuncts(expression: Expression) -> Iterable[Expression]:
    """Yield what the top-level ANDs of `expression` connect."""
    if isinstance(expression, Call) and expression.function == "and":
        for arg in expression.args:
            yield from conjuncts(arg)
    else:
        yield expression


def conjunction(parts: list[Expression]) -> Expression | None:
    """Return the conjunction of `parts`; None: there are none."""
    if len(parts) > 1:
        return Call("and", tuple(parts), Type.BOOLEAN)
    return parts[0] if parts else None


def _early(predicate: Expression) -> Expression:
    """Return what `predicate` says about only the event."""
    parts = list(conjuncts(predicate))
    alone = [part for part in parts if not is_windowed(part) and not is_joined(part)]
    return predicate if len(alone) == len(parts) else conjunction(alone) or _TRUE
