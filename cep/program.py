"""The compiled rules: flat arrays and small frozen tables. The compiler writes them, the engine reads them.

A `Program` holds all rules that share streams and a partition key, so that events are brought together
once for all of them. It knows nothing of text, syntax trees or graphs, and importing it imports neither
pyparsing nor networkx: this is what travels to an executor.
"""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.expression import Aggregate, Call, Expression, Literal, Type, column_names, substitute
from cep.schema import Field, Role, Stream, qualified

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

ACCEPT = -1
"""In `RuleTables.after_state`: the run is complete."""

MAX_BITS = 64
"""Local predicates in one word; a rule's predicates never span two words."""


def bits_column(word: int) -> str:
    """Return the name of the prepared column that holds predicate word `word`."""
    return f"_bits{word}"


def role_column(role: int) -> str:
    """Return the name that local predicates have for "the event takes part in this role"."""
    return f"_role{role}"


class Mode(IntEnum):
    """How a waiting run treats an event it does not take (`ir.Contiguity`, as numbers)."""

    STRICT = 0
    NEXT = 1
    ANY = 2


class SelectionCode(IntEnum):
    """`ir.Selection`, as numbers."""

    EARLIEST = 0
    ALL = 1
    PREFERRED = 2


class SkipCode(IntEnum):
    """`ir.SkipKind`, as numbers."""

    NO_SKIP = 0
    PAST_LAST = 1
    TO_NEXT = 2
    TO_FIRST = 3
    TO_LAST = 4


class OverflowCode(IntEnum):
    """`ir.Overflow`, as numbers."""

    DROP_OLDEST = 0
    DROP_NEWEST = 1
    FAIL = 2


class Update(IntEnum):
    """What taking an event does to one register. Executed in order."""

    LAST = 0  # register = column
    FIRST = 1  # register = column, if register `arg` (a count) equals the offset in `arg2`
    SHIFT = 2  # register = register `arg`
    COUNT = 3  # register += 1
    COUNT_VALUE = 4  # register += 1, if the column is not NULL
    SUM_I = 5
    SUM_F = 6
    MIN_I = 7
    MIN_F = 8
    MAX_I = 9
    MAX_F = 10
    POSITION = 11  # register = sequence number of the event
    POSITION_FIRST = 12  # the same, if register `arg` (a count) is 0
    MEAN_F = 13  # Welford's running mean; register `arg` holds the count of values, this event included
    SQUARES_F = 14  # Welford's squares; `arg`: the count, `arg2`: the register of the mean before this event


class Code(IntEnum):
    """Bytecode of correlated predicates: a stack machine over int64 and float64 with NULLs."""

    CONST_I = 0
    CONST_F = 1
    CONST_NULL = 2
    COLUMN = 3  # int64 or float64 by the operation that reads it: 64 bits are copied
    REGISTER = 4
    I_TO_F = 5
    ADD_I = 6
    SUB_I = 7
    MUL_I = 8
    MOD_I = 9
    NEG_I = 10
    ABS_I = 11
    ADD_F = 12
    SUB_F = 13
    MUL_F = 14
    DIV_F = 15
    MOD_F = 16
    NEG_F = 17
    ABS_F = 18
    SQRT_F = 19
    FLOOR_F = 20
    CEIL_F = 21
    EQ_I = 22
    LT_I = 23
    LE_I = 24
    EQ_F = 25
    LT_F = 26
    LE_F = 27
    AND = 28
    OR = 29
    NOT = 30
    IS_NULL = 31
    COALESCE = 32  # of the two on top
    SELECT = 33  # condition, value, else
    MIN_OF_I = 34
    MIN_OF_F = 35
    MAX_OF_I = 36
    MAX_OF_F = 37
    # From here on: `kernels.functions`.
    DATE_PART = 38  # arg: place in DATE_PARTS
    DATE_TRUNC = 39  # arg: place in TRUNC_UNITS
    FLOOR_DIV = 40  # by arg
    SCALE = 41  # times arg
    ROUND_F = 42  # to arg digits
    SIGN_F = 43
    EXP_F = 44
    LN_F = 45
    LOG2_F = 46
    LOG10_F = 47
    POWER_F = 48  # of the two on top


DATE_PARTS = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofweek",
    "weekday",
    "dayofyear",
    "hour",
    "minute",
    "second",
)
"""Functions that take a part of a point in time."""

TRUNC_UNITS = (
    "year",
    "quarter",
    "month",
    "week",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "microsecond",
)
"""Units of ``date_trunc``."""

_COMPUTED: dict[str, tuple[Code, int]] = {
    **{name: (Code.DATE_PART, number) for number, name in enumerate(DATE_PARTS)},
    "unix_seconds": (Code.FLOOR_DIV, 1_000_000),
    "unix_millis": (Code.FLOOR_DIV, 1_000),
    "unix_micros": (Code.FLOOR_DIV, 1),
    "timestamp_seconds": (Code.SCALE, 1_000_000),
    "timestamp_millis": (Code.SCALE, 1_000),
    "timestamp_micros": (Code.SCALE, 1),
    "sign": (Code.SIGN_F, 0),
    "exp": (Code.EXP_F, 0),
    "ln": (Code.LN_F, 0),
    "log2": (Code.LOG2_F, 0),
    "log10": (Code.LOG10_F, 0),
    "power": (Code.POWER_F, 0),
}


class Computation(NamedTuple):
    """How `kernels.functions` computes a call from its operands."""

    code: Code
    arg: int
    operands: tuple[Expression, ...]


def computation_of(call: Call) -> Computation | None:
    """Return how a call of a function of numbers or of time is computed; None: otherwise."""
    match call:
        case Call(function="round", args=(value, Literal(value=int() as places))):
            return Computation(Code.ROUND_F, places, (value,))
        case Call(function="date_trunc", args=(Literal(value=str() as unit), value)):
            return Computation(Code.DATE_TRUNC, TRUNC_UNITS.index(unit), (value,))
        case Call(function=function, args=args) if function in _COMPUTED:
            return Computation(*_COMPUTED[function], args)
        case _:
            return None


I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
U8 = npt.NDArray[np.uint8]


class RuleTables(NamedTuple):
    """The automaton and the register code of one rule; `cep.engine.packed_rule` makes one array of them.

    A *state* is a wait: what a run can take next and what it may skip. State 0 is the start, where a new
    run begins. ``x_ptr`` arrays are row pointers (n + 1).
    """

    state_mode: U8  # (S,) Mode
    state_interest: U64  # (S,) local predicates that can move a run here; an event without any is skipped
    state_always: (
        U8  # (S,) 1: every event must be looked at (strict, or a variable without a local predicate)
    )
    state_next: I32  # (S,) state after an event is skipped
    state_closes: U8  # (S,) 1: if the window closes here, the run is complete
    state_after_skip: I32  # (S,) ACCEPT: skipping one event completes the run (a trailing "not next"); else 0
    take_ptr: I32  # (S + 1,)
    take_variable: I32  # (T,) in order of preference
    take_after: I32  # (T,) row of `after_ptr`
    begin_ptr: I32  # (S + 1,)
    begin_variable: I32  # variables, besides those of `take`, whose events NEXT does not skip
    bar_ptr: I32  # (S + 1,)
    bar_variable: I32  # an event of these is never skipped: it ends the run
    guard_ptr: I32  # (S + 1,)
    guard_variable: I32  # an event of these is neither taken nor skipped
    lift_ptr: I32  # (S + 1,)
    lift_variable: I32  # an event for which this holds moves the run, before anything else ...
    lift_state: I32  # ... to this state
    state_fence_ptr: I32  # (S + 1,)
    take_fence_ptr: I32  # (T + 1,): an event of these is not taken by this take
    fence_variable: (
        I32  # an event of this is neither taken nor skipped: as guards, but until the next take ...
    )
    fence_until: I32  # ... unless this holds for it; -1: no such exception
    after_ptr: I32  # (A + 1,)
    after_state: I32  # successors of a take, in order of preference; ACCEPT
    variable_mask: U64  # (V,) the bit of the variable's local predicate; 0: none, always true
    variable_hash: U64  # (V,) of the variable's name, for match ids
    variable_after_take: U8  # (V,) 1: its code reads the registers with the event taken; 0: before
    code_ptr: I32  # (V + 1,) correlated part of the predicate; empty: none
    code_op: I32
    code_arg: I64
    update_ptr: I32  # (V + 1,)
    update_op: I32
    update_register: I32
    update_column: I32  # index into `Program.columns`; -1: none
    update_arg: I32
    update_arg2: I32
    # Clocks: read only for a rule with `RuleProgram.is_timed`.
    state_low: I64  # (S,) shortest time since the event taken last; 0: none
    state_high: I64  # (S,) longest; -1: none
    state_timer: I64  # (S,) -1: none; else the run goes on by itself after so long ...
    state_timer_length: I64  # (S,) ... which counts as so long
    state_timer_after: I32  # (S,) row of `after_ptr`
    state_limit: I64  # (S,) `state_high` as it was written, for ends of timeouts
    limit_ptr: I32  # (S + 1,)
    limit_group: I32  # groups whose windows end the wait
    open_ptr: I32  # (T + 1,)
    open_group: I32  # groups whose first event a take is
    look_ptr: I32  # (T + 1,)
    look_memory: I32  # a run must not begin after what this memory holds ...
    look_us: I64  # ... if that is at most so old ...
    look_events: I64  # ... and at most so many events back
    group_us: I64  # (G,) from the group's first event to its last; -1: no limit in time
    group_events: I64  # (G,) number of events after the first; -1: no limit in events
    group_limit: I64  # (G,) `group_us` as it was written
    memory_variable: I32  # (M,) a key remembers its last event of this variable


@dataclass(frozen=True, slots=True)
class Register:
    """One slot of a run: its type and, for a value read by measures, what it holds (for `explain`)."""

    type: Type
    label: str
    starts_at_zero: bool = False  # counts; all others start as NULL


@dataclass(frozen=True, slots=True)
class RuleProgram:
    """One compiled rule. Measures are expressions over ``Column("#r", ...)``, register r of the match."""

    name: str
    title: str
    severity: str
    tags: tuple[str, ...]
    word: int  # which predicate word of the program holds this rule's bits
    event_mask: int  # bits that make an event relevant to the rule
    needs_every_event: bool  # a strict joint or a variable without a local predicate: nothing may be filtered
    tables: RuleTables
    registers: tuple[Register, ...]
    measures: tuple[tuple[str, Expression], ...]
    is_timed: bool  # runs carry clocks: more bounds in time than the window, bounds in events, or timeouts
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
    suppress_us: int = 0  # after a match, matches of the same key that end within this time are not reported


@dataclass(frozen=True)
class Program:
    """All rules over `streams` that are partitioned by `key`, in the same roles.

    With one stream and one role, by columns that are called as the key is, the program `is_plain`: its
    columns are those of the stream. Else the key has columns of its own (`key_columns`), a predicate may ask
    for a role (`role_column`), and with several streams their columns are `cep.schema.qualified`.

    `predicates[w][b]` is the local predicate of bit b in word w; it counts only where it is TRUE.
    `derived` are named expressions over one event, computed before matching. `columns` are the
    columns (of the stream or derived) that registers and bytecode read; strings among them are
    given to the kernels as codes. `listed` are those that lists (ARRAY_AGG) are made of.
    """

    streams: tuple[Stream, ...]
    key: tuple[str, ...]
    roles: tuple[Role, ...]
    predicates: tuple[tuple[Expression, ...], ...]
    derived: tuple[tuple[str, Expression], ...]
    columns: tuple[str, ...]
    rules: tuple[RuleProgram, ...]
    listed: tuple[str, ...] = ()

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
        return len(self.streams) == 1 and self.roles == (Role(self.streams[0].name, self.key),)

    @cached_property
    def repeats_events(self) -> bool:
        """Whether an event may be in several partitions."""
        return len({role.stream for role in self.roles}) < len(self.roles)

    @cached_property
    def key_columns(self) -> tuple[str, ...]:
        """Columns of a prepared batch that hold the key."""
        return self.key if self.is_plain else tuple(f"_key{number}" for number in range(len(self.key)))

    @cached_property
    def tie_columns(self) -> tuple[str, ...]:
        """Columns of a prepared batch that order events of equal time; of other streams they are NULL."""
        if len(self.streams) == 1:
            return self.streams[0].tie_break
        ties = (self.column_of(stream, name) for stream in self.streams for name in stream.tie_break)
        return (STREAM_COLUMN, *ties)

    @cached_property
    def event_type(self) -> pa.StructType:
        """Type of a whole event: the columns of its stream (`reported_type`).

        With several streams there is such a struct for each; those of
        other streams are NULL.
        """
        types = {
            stream.name: pa.struct([(field.name, reported_type(field)) for field in stream.fields])
            for stream in self.streams
        }
        return pa.struct(list(types.items())) if len(types) > 1 else types[self.stream.name]

    @cached_property
    def needs_every_event(self) -> bool:
        """Whether no event may be dropped before matching."""
        return any(rule.needs_every_event for rule in self.rules)

    @cached_property
    def has_timeouts(self) -> bool:
        """Whether rows say if they are matches or timeouts."""
        return any(rule.timeouts for rule in self.rules)

    def stream_named(self, name: str) -> Stream | None:
        """Return the stream called `name` if the program reads it."""
        return next((stream for stream in self.streams if stream.name == name), None)

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
        types = {name: expression.type for name, expression in self.derived}
        if len(self.streams) > 1:
            types[STREAM_COLUMN] = Type.BIGINT
        if self.repeats_events:
            types[COUNTED_COLUMN] = Type.BOOLEAN
        if not self.is_plain:
            role = self.roles[0]
            stream = self.stream_named(role.stream)
            assert stream is not None
            for name, column in zip(self.key_columns, role.key, strict=True):
                field = stream.field(column)
                assert field is not None, column
                types[name] = field.type
        return types

    def type_of(self, column: str) -> Type:
        """Return the type of a column of a prepared batch, or of a stream."""
        if column in self._own_types:
            return self._own_types[column]
        return self._sources[column][1].type

    def local_predicates(self, stream: Stream) -> tuple[tuple[Expression, ...], ...]:
        """Return `predicates` as they are for events of `stream`: FALSE where they ask for another's role."""
        if self.is_plain:
            return self.predicates
        others = {role_column(number) for number in range(len(self.roles))}
        others -= {role_column(number) for number in self.roles_of(stream)}
        no = Literal(value=False, type=Type.BOOLEAN)
        return tuple(
            tuple(predicate if others.isdisjoint(column_names(predicate)) else no for predicate in word)
            for word in self.predicates
        )

    def seen_by(self, expression: Expression, stream: Stream) -> Expression | None:
        """Return `expression` for events of `stream`, to which columns of others are NULL.

        None: it has no columns but those of others.
        """
        names = column_names(expression)
        sources = {name: source for name in names if (source := self.source_of(name)) is not None}
        others = {name: field.type for name, (other, field) in sources.items() if other != stream}
        if not others:
            return expression
        if len(others) == len(names):
            return None
        return substitute(expression, {name: Literal(None, kind) for name, kind in others.items()})

    @cached_property
    def event_schema(self) -> pa.Schema:
        """Columns of a prepared batch: time, predicate words, then key, tie breakers and values by name.

        Words are int64 (the bits of a uint64: Spark has no unsigned type). Values have the Arrow type of
        their rule type: bool, int64, float64, string; timestamps are int64 microseconds. `STREAM_COLUMN` and
        `COUNTED_COLUMN` come with them where they are needed. Of all columns only values are ever NULL (a row
        without a key is not prepared).
        """
        fields = [pa.field(TIME_COLUMN, pa.int64(), nullable=False)]
        fields += [
            pa.field(bits_column(word), pa.int64(), nullable=False) for word in range(len(self.predicates))
        ]
        counted = (COUNTED_COLUMN,) if self.repeats_events else ()
        names = dict.fromkeys(
            (*self.key_columns, *counted, *self.tie_columns, *self.columns, *self.kept_columns)
        )
        fields += [pa.field(name, ARROW_TYPES[self.type_of(name)]) for name in names]
        return pa.schema(fields)

    @cached_property
    def match_schema(self) -> pa.Schema:
        """Columns of the matches: rule, key columns, match_id, match_start, match_end, then all measures.

        A measure of one rule is NULL in the rows of rules that do not have it; where two rules give one
        name to a BIGINT and a DOUBLE, the column is DOUBLE (the compiler refuses other differences).
        """
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
    def fingerprint(self) -> bytes:
        """16 bytes that differ when the rules, and so the meaning of stored state, differ."""
        digest = hashlib.sha256()
        _feed(digest, self)
        return digest.digest()[:16]


def is_list(measure: Expression) -> bool:
    """Say whether a measure is a list: ARRAY_AGG over a column of `Program.kept_columns`."""
    return isinstance(measure, Aggregate)


DDL_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
"""Arrow type of a column as its stream declares it, but for decimals and what is opaque."""


EXACT_DIGITS = 15
"""Decimals of so many digits are told apart by the nearest DOUBLE."""


def reported_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a column in events of matches: as declared where the value is still exact.

    What is opaque is JSON text, a decimal of too many digits the DOUBLE that rules see.
    """
    if field.is_decimal:
        return pa.decimal128(*field.digits) if field.digits[0] <= EXACT_DIGITS else pa.float64()
    return DDL_ARROW_TYPES.get(field.ddl, pa.string())


ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.BOOLEAN: pa.bool_(),
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.int64(),
    Type.INTERVAL: pa.int64(),
    Type.OPAQUE: pa.string(),
}
"""Arrow type of a value in a prepared batch."""


def missing_column(item: pa.Field, n: int) -> pa.Array:
    """Return what rows of other programs have in a column of matches: NULL, but their outcome is known."""
    return pa.repeat(pa.scalar(MATCH), n) if item.name == OUTCOME else pa.nulls(n, item.type)


def name_hash(name: str) -> int:
    """Return 64 bits that stand for a name in match ids; they must never change."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def _feed(digest: Any, value: object) -> None:
    """Hash a tree of frozen dataclasses, tuples, arrays and scalars, with its structure."""
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        digest.update(f"{type(value).__name__}(".encode())
        for field in dataclasses.fields(value):
            _feed(digest, getattr(value, field.name))
        digest.update(b")")
    elif isinstance(value, tuple):
        digest.update(f"({len(value)}".encode())
        for item in value:
            _feed(digest, item)
    else:
        digest.update(f"{type(value).__name__}:{value!r};".encode())
