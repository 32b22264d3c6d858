"""The compiled rules: flat arrays and small frozen tables that the compiler writes and the engine reads.

A `Program` contains all rules that share streams and a partition key, so events are grouped once for all of
them. It knows nothing about text, syntax trees or graphs, and its import loads neither pyparsing nor
networkx, because it is sent to executors. Only schemas load pyarrow: a check needs none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from cep.expression import Aggregate, Column, Expression, Literal, RoleTest, Type, column_names, rebuild, walk
from cep.program.fingerprint import (
    identity_of,
    window_meanings,
    window_rule_meanings,
    windows_read,
    windows_together,
)
from cep.program.opcodes import OverflowCode, SelectionCode, SkipCode
from cep.program.records import RuleTables
from cep.program.tables import NO_JOINS, VERSION_COLUMN, Joins
from cep.program.views import KIND, REVISION
from cep.program.windows import COUNT_ALL, WindowColumn, WindowRule
from cep.schema.stream import Field, Role, Stream, qualified

if TYPE_CHECKING:
    import pyarrow as pa

    from cep.program.identity import ProgramIdentity

TIME_COLUMN = "_ts_us"
"""Column of a prepared batch: event time, int64 microseconds."""

EVENT_NUMBER, EVENT_VARIABLE, EVENT = EVENT_COLUMNS = ("event_number", "event_variable", "event")
"""Columns of matches about one event. They exist if a rule of the program has ALL ROWS PER MATCH."""

OUTCOME = "outcome"
"""Column of matches: `MATCH` or `TIMEOUT`. It exists if a rule of the program has ON TIMEOUT."""

MATCH, TIMEOUT = "match", "timeout"

STREAM_COLUMN = "_stream"
"""Column of a prepared batch of several streams: index of the event's stream in `Program.streams`."""

COUNTED_COLUMN = "_counted"
"""Column of a prepared batch where an event may be in several partitions: TRUE in one row of each event."""

MAX_BITS = 64
"""Local predicates in one word; a rule's predicates never span two words."""


def bits_column(word: int) -> str:
    """Return the name of the prepared column that holds predicate word `word`."""
    return f"_bits{word}"


def role_column(role: int) -> str:
    """Return the name of the column that marks the events that take part in a role (`RoleTest`)."""
    return f"_role{role}"


def register_column(register: int) -> str:
    """Return the name of the column that holds a register of matches (`RegisterRef`)."""
    return f"#{register}"


@dataclass(frozen=True, slots=True)
class Register:
    """One slot of a run: its type and, for a value read by measures, what it holds (for `explain`)."""

    type: Type
    label: str
    starts_at_zero: bool = False  # counts; all others start as NULL
    values: Type | None = None  # leads to a set of values of this type; the register before it counts them


@dataclass(frozen=True, slots=True)
class RuleProgram:
    """One compiled rule. Measures are expressions over registers (`RegisterRef`) of the match."""

    name: str
    title: str
    severity: str
    tags: tuple[str, ...]
    word: int  # the predicate word of the program that holds this rule's bits
    event_mask: int  # bits that make an event relevant to the rule
    needs_every_event: bool  # a strict joint, or a variable without a local predicate: filter no event
    tables: RuleTables
    registers: tuple[Register, ...]
    measures: tuple[tuple[str, Expression], ...]
    is_timed: bool  # runs have clocks: more time limits than the window, limits in events, or timeouts
    span_us: int  # window, largest distance inside; -1: no window in time
    span_events: int  # window, number of events after the first; -1: no window in events
    close_us: int  # distance from first event to the stamp of an absence match (the window's length)
    has_closing: bool  # the window's close can complete a run
    selection: SelectionCode
    skip: SkipCode
    skip_register: int  # of the position to skip to; -1: none
    max_runs: int  # per key
    overflow: OverflowCode = OverflowCode.DROP_OLDEST
    timeouts: bool = False  # a run that a limit ends is reported, too (only if `is_timed`)
    variables: tuple[str, ...] = ()  # names by number
    subsets: tuple[tuple[str, tuple[str, ...]], ...] = ()  # name, and the variables it stands for
    node_register: int = -1  # holds the last of the events a run took (`kernels.event_nodes`); -1: none
    all_rows: bool = False  # a row for each event of a match
    suppress_us: int = 0  # after a match, those of the same key that end within this time are not reported
    n_per_day: int = 0  # matches of a key that end in one day, beyond which they are not reported; 0: none
    windowed: WindowRule | None = None  # of a window rule; its tables are those of a pattern of one event
    is_shadow: bool = False  # its matches alert nobody
    is_view: bool = False  # each row replaces that of its key; its tables are those of a pattern of one event

    @property
    def suppresses(self) -> bool:
        """Whether earlier matches of a key may keep one from being reported."""
        return bool(self.suppress_us or self.n_per_day)


@dataclass(frozen=True)
class Program:
    """All rules over `streams` that are partitioned by `key`, in the same roles.

    With one stream and one role, by columns with the names of the key, the program `is_plain`: its columns
    are those of the stream. Otherwise the key has separate columns (`key_columns`), a predicate may test a
    role (`RoleTest`), and with several streams their columns are `cep.schema.stream.qualified`.

    `predicates[w][b]` is the local predicate of bit b in word w; it holds only where it is TRUE. `derived`
    are named expressions over one event, computed before matching. `columns` are the columns (of the stream
    or derived) that registers and bytecode read; kernels receive strings among them as codes. `listed` are
    those that lists (ARRAY_AGG) contain.

    `windows` are computed once events are in order, then `computed`, named expressions over an event and its
    windows. For a predicate that reads them, `predicates` has the part that does not, and `refined` its word,
    its bit and the rest. `joins` are computed before windows. `context_columns` are the columns of a prepared
    event that joins, windows and these expressions read.

    All rules are window rules (`has_window_rules`), or none is. All are views (`has_views`), or none is.
    """

    streams: tuple[Stream, ...]
    key: tuple[str, ...]
    roles: tuple[Role, ...]
    predicates: tuple[tuple[Expression, ...], ...]
    derived: tuple[tuple[str, Expression], ...]
    columns: tuple[str, ...]
    rules: tuple[RuleProgram, ...]
    listed: tuple[str, ...] = ()
    windows: tuple[WindowColumn, ...] = ()
    computed: tuple[tuple[str, Expression], ...] = ()
    refined: tuple[tuple[int, int, Expression], ...] = ()
    context_columns: tuple[str, ...] = ()
    joins: Joins = NO_JOINS

    @cached_property
    def has_all_rows(self) -> bool:
        """Whether a rule reports each event of a match."""
        return any(rule.all_rows for rule in self.rules)

    @cached_property
    def kept_columns(self) -> tuple[str, ...]:
        """Columns of the events that runs took, for rules that report them."""
        if not self.has_all_rows:
            return self.listed
        stream = (STREAM_COLUMN,) if len(self.streams) > 1 else ()
        return tuple(dict.fromkeys((*self.listed, *stream, *self._sources)))

    @property
    def stream(self) -> Stream:
        """The only stream."""
        (stream,) = self.streams
        return stream

    @cached_property
    def is_plain(self) -> bool:
        """Whether the columns of the key are columns of the only stream."""
        return is_plain(self.streams, self.key, self.roles)

    @cached_property
    def repeats_events(self) -> bool:
        """Whether an event may be in several partitions."""
        return len({role.stream for role in self.roles}) < len(self.roles)

    @cached_property
    def key_columns(self) -> tuple[str, ...]:
        """Columns of a prepared batch that hold the key."""
        return key_columns_of(self.streams, self.key, self.roles)

    @cached_property
    def tie_columns(self) -> tuple[str, ...]:
        """Columns of a prepared batch that order events of equal time; for other streams they are NULL."""
        if len(self.streams) == 1:
            return self.streams[0].tie_break
        ties = (self.column_of(stream, name) for stream in self.streams for name in stream.tie_break)
        return (STREAM_COLUMN, *ties)

    @cached_property
    def event_type(self) -> pa.StructType:
        """Type of a whole event: the columns of its stream (`reported_type`).

        With several streams there is a struct for each; all but one are NULL.
        """
        import pyarrow as pa

        from cep.schema.arrow_types import reported_type

        types = {
            stream.name: pa.struct([(field.name, reported_type(field)) for field in stream.fields])
            for stream in self.streams
        }
        return pa.struct(list(types.items())) if len(types) > 1 else types[self.stream.name]

    @cached_property
    def needs_every_event(self) -> bool:
        """Whether no event may be dropped before matching."""
        if self.has_window_rules:
            return any(rule.needs_every_event for rule in self.rules)
        return any(rule.needs_every_event for rule in self.rules) or any(
            window.within is None and (window.counts is None or window.window.frame in COUNT_ALL)
            for window in self.windows
        )

    @cached_property
    def has_window_rules(self) -> bool:
        """Whether the rules are window rules."""
        return any(rule.windowed is not None for rule in self.rules)

    @cached_property
    def has_silent_windows(self) -> bool:
        """Whether there are windows without events, for which the time range of the input must be known."""
        return any(rule.windowed is not None and rule.windowed.table is not None for rule in self.rules)

    @cached_property
    def has_views(self) -> bool:
        """Whether the rules are views."""
        return any(rule.is_view for rule in self.rules)

    @cached_property
    def has_timeouts(self) -> bool:
        """Whether rows say if they are matches or timeouts."""
        return any(rule.timeouts for rule in self.rules)

    def roles_of(self, stream: Stream) -> dict[int, Role]:
        """Return the roles of the events of `stream`, by number."""
        return {number: role for number, role in enumerate(self.roles) if role.stream == stream.name}

    def column_of(self, stream: Stream, name: str) -> str:
        """Return what column `name` of `stream` is called in this program."""
        return name if len(self.streams) == 1 else qualified(stream.name, name)

    def source_of(self, column: str) -> tuple[Stream, Field] | None:
        """Return the stream's column that is called `column` here, or None."""
        return self._sources.get(column)

    @cached_property
    def _sources(self) -> dict[str, tuple[Stream, Field]]:
        return {
            self.column_of(stream, field.name): (stream, field)
            for stream in self.streams
            for field in stream.fields
        }

    @cached_property
    def _own_types(self) -> dict[str, Type]:
        """Types of columns that no stream has."""
        types = {name: expression.type for name, expression in (*self.derived, *self.computed)}
        types |= {window.name: window.type for window in self.windows}
        types |= self.joins.late_types | self.joins.version_types
        if self.joins.takes_versions:
            types[VERSION_COLUMN] = Type.BIGINT
        if len(self.streams) > 1:
            types[STREAM_COLUMN] = Type.BIGINT
        if self.repeats_events:
            types[COUNTED_COLUMN] = Type.BOOLEAN
        if not self.is_plain:
            role = self.roles[0]
            stream = next(stream for stream in self.streams if stream.name == role.stream)
            for name, column in zip(self.key_columns, role.key, strict=True):
                field = stream.field(column)
                assert field is not None, column
                types[name] = field.type
        return types

    @cached_property
    def read_columns(self) -> frozenset[tuple[str, str]]:
        """Names of streams or tables, and of their columns, that the rules read; keys and times included."""
        expressions = [
            *(predicate for word in self.predicates for predicate in word),
            *(expression for _, expression in (*self.derived, *self.computed, *self.joins.derived)),
            *(expression for *_, expression in (*self.refined, *self.joins.refined)),
        ]
        names = {part.name for whole in expressions for part in walk(whole) if isinstance(part, Column)}
        names |= {*self.columns, *self.listed, *self.context_columns}
        known = (self._sources[name] for name in names if name in self._sources)
        found = {(stream.name, field.name) for stream, field in known}
        found |= {(role.stream, name) for role in self.roles for name in role.key}
        found |= {(joined.table.name, name) for joined in self.joins.tables for name, _ in joined.values}
        found |= {(joined.table.name, name) for joined in self.joins.tables for name in joined.key}
        timed = (*self.streams, *(joined.table for joined in self.joins.tables))
        return frozenset(found | {(stream.name, stream.event_time) for stream in timed if stream.event_time})

    def type_of(self, column: str) -> Type:
        """Return the type of a column of a prepared batch, or of a stream."""
        if column in self._own_types:
            return self._own_types[column]
        return self._sources[column][1].type

    def local_predicates(self, stream: Stream) -> tuple[tuple[Expression, ...], ...]:
        """Return `predicates` for events of `stream`: FALSE where they test the role of another stream.

        For an event, the columns of other streams are NULL: a value of DISTINCT BY contains one of each
        stream.
        """
        if self.is_plain:
            return self.predicates
        own = self.roles_of(stream)
        no = Literal(value=False, type=Type.BOOLEAN)

        def asks_for_another(predicate: Expression) -> bool:
            return any(isinstance(part, RoleTest) and part.number not in own for part in walk(predicate))

        return tuple(
            tuple(
                no if asks_for_another(predicate) else self._without_others(predicate, stream)
                for predicate in word
            )
            for word in self.predicates
        )

    def seen_by(self, expression: Expression, stream: Stream) -> Expression | None:
        """Return `expression` for events of `stream`, for which columns of others are NULL.

        None: it has only columns of other streams.
        """
        names = column_names(expression)
        if names and len(self._of_others(names, stream)) == len(names):
            return None
        return self._without_others(expression, stream)

    def _without_others(self, expression: Expression, stream: Stream) -> Expression:
        others = self._of_others(column_names(expression), stream)
        nulls = {name: Literal(None, kind) for name, kind in others.items()}
        if not nulls:
            return expression
        return rebuild(
            expression, lambda leaf: nulls.get(leaf.name, leaf) if isinstance(leaf, Column) else leaf
        )

    def _of_others(self, names: Iterable[str], stream: Stream) -> dict[str, Type]:
        """Return the types of those columns that are of other streams."""
        sources = {name: source for name in names if (source := self.source_of(name)) is not None}
        return {name: field.type for name, (other, field) in sources.items() if other != stream}

    @cached_property
    def event_schema(self) -> pa.Schema:
        """Columns of a prepared batch: time, predicate words, then key, tie breakers and values by name.

        Words are int64 (the bits of a uint64: Spark has no unsigned type). Values have the Arrow type of
        their rule type: bool, int64, float64, string; timestamps are int64 microseconds. `STREAM_COLUMN` and
        `COUNTED_COLUMN` are added where they are needed. Only values are ever NULL (a row without a key is
        not prepared).
        """
        import pyarrow as pa

        from cep.schema.arrow_types import ARROW_TYPES

        fields = [pa.field(TIME_COLUMN, pa.int64(), nullable=False)]
        fields += [
            pa.field(bits_column(word), pa.int64(), nullable=False) for word in range(len(self.predicates))
        ]
        counted = (COUNTED_COLUMN,) if self.repeats_events else ()
        names = dict.fromkeys(
            (*self.key_columns, *counted, *self.tie_columns, *self.columns, *self.kept_columns)
        )
        names |= dict.fromkeys(self.context_columns)
        if self.joins.takes_versions:
            names |= dict.fromkeys((VERSION_COLUMN, *self.joins.version_types))
        late = {window.name for window in self.windows} | {name for name, _ in self.computed}
        late |= self.joins.late_types.keys()
        fields += [pa.field(name, ARROW_TYPES[self.type_of(name)]) for name in names if name not in late]
        return pa.schema(fields)

    @cached_property
    def columns_of_versions(self) -> tuple[str, ...]:
        """The columns of a prepared batch that versions of tables have."""
        own = {TIME_COLUMN, VERSION_COLUMN, *self.key_columns, *self.joins.version_types}
        return tuple(name for name in self.event_schema.names if name in own)

    @cached_property
    def columns_of_events(self) -> tuple[str, ...]:
        """The columns of a prepared batch that are read for events: all but words without predicates."""
        others = {VERSION_COLUMN, *self.joins.version_types}
        others |= {bits_column(word) for word, of_word in enumerate(self.predicates) if not of_word}
        return tuple(name for name in self.event_schema.names if name not in others)

    @cached_property
    def kept_schema(self) -> pa.Schema:
        """The `kept_columns`."""
        import pyarrow as pa

        from cep.schema.arrow_types import ARROW_TYPES

        return pa.schema([pa.field(name, ARROW_TYPES[self.type_of(name)]) for name in self.kept_columns])

    @cached_property
    def match_schema(self) -> pa.Schema:
        """Columns of the matches: rule, key columns, match_id, match_start, match_end, then all measures.

        A measure of one rule is NULL in the rows of rules that do not have it; where two rules use one name
        for a BIGINT and a DOUBLE, the column is DOUBLE (the compiler refuses other differences).
        """
        import pyarrow as pa

        from cep.schema.arrow_types import ARROW_TYPES

        time = pa.timestamp("us", tz="UTC")
        fields = [pa.field("rule", pa.string(), nullable=False)]
        for name, column in zip(self.key, self.key_columns, strict=True):
            kind = self.type_of(column)
            fields.append(pa.field(name, time if kind is Type.TIMESTAMP else ARROW_TYPES[kind]))
        fields += [
            pa.field("match_id", pa.string(), nullable=False),
            pa.field("match_start", time, nullable=False),
            pa.field("match_end", time, nullable=False),
        ]
        if self.has_timeouts:
            fields.append(pa.field(OUTCOME, pa.string(), nullable=False))
        measures: dict[str, pa.DataType] = {}
        for rule in self.rules:
            for name, expression in rule.measures:
                value = time if expression.type is Type.TIMESTAMP else ARROW_TYPES[expression.type]
                found = pa.list_(value) if is_list(expression) else value
                if measures.setdefault(name, found) != found:
                    measures[name] = pa.float64()
        fields += [pa.field(name, found) for name, found in measures.items()]
        if self.has_all_rows:
            fields.append(pa.field(EVENT_NUMBER, pa.int64()))
            fields.append(pa.field(EVENT_VARIABLE, pa.string()))
            fields.append(pa.field(EVENT, self.event_type))
        return pa.schema(fields)

    @cached_property
    def identity(self) -> ProgramIdentity:
        """The meaning of stored state, rule by rule."""
        return identity_of(self)

    @cached_property
    def window_meanings(self) -> dict[str, bytes]:
        """The meaning of each windowed column, in 16 bytes: names of columns change when rules are added."""
        return window_meanings(self)

    @cached_property
    def windows_together(self) -> frozenset[tuple[bytes, frozenset[bytes]]]:
        """The windowed columns that may share their state (`cep.program.fingerprint.windows_together`)."""
        return windows_together(self)

    @cached_property
    def windows_read(self) -> tuple[frozenset[bytes], ...]:
        """For each rule, the meaning of the windowed columns that it reads."""
        return windows_read(self)

    @cached_property
    def window_rule_meanings(self) -> tuple[bytes, ...]:
        """The meaning of the windows of each window rule and their events, in 16 bytes."""
        return window_rule_meanings(self)

    @property
    def fingerprint(self) -> bytes:
        """A hash of 16 bytes that differs when the rules, and so the meaning of stored state, differ."""
        return self.identity.fingerprint


def is_plain(streams: tuple[Stream, ...], key: tuple[str, ...], roles: tuple[Role, ...]) -> bool:
    """Return whether the columns of the key are columns of the only stream."""
    return len(streams) == 1 and roles == (Role(streams[0].name, key),)


def key_columns_of(
    streams: tuple[Stream, ...], key: tuple[str, ...], roles: tuple[Role, ...]
) -> tuple[str, ...]:
    """Return the columns of a prepared batch that hold the key."""
    return key if is_plain(streams, key, roles) else tuple(f"_key{number}" for number in range(len(key)))


def is_list(measure: Expression) -> bool:
    """Return whether a measure is a list: ARRAY_AGG over a column of `Program.kept_columns`."""
    return isinstance(measure, Aggregate)


def widened(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a column of matches in the type that it has in the common table of all rules.

    BIGINT becomes the nearest DOUBLE, as in SQL: Arrow refuses what a DOUBLE cannot represent exactly.
    """
    import pyarrow as pa

    return values.cast(kind, safe=not (pa.types.is_int64(values.type) and pa.types.is_float64(kind)))


def missing_column(item: pa.Field, n: int) -> pa.Array:
    """Return the values of a column for matches of other programs.

    With timeouts, these rows are matches; with rows of views (`RuleSet.has_kinds`), they are matches with
    revision 0. Other columns are NULL.
    """
    import pyarrow as pa

    if item.name == OUTCOME or (item.name == KIND and not item.nullable):
        return pa.repeat(pa.scalar(MATCH), n)
    if item.name == REVISION and not item.nullable:
        return pa.repeat(pa.scalar(0, pa.int64()), n)
    return pa.nulls(n, item.type)


def name_hash(name: str) -> int:
    """Return 64 bits that represent a name in match ids; they must never change."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
