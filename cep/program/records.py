"""The records of a compiled rule, declared once: the columns of `RuleTables` and the meaning of their
numbers.

A rule is an automaton and the code of its registers. Both are records of 64-bit fields: a state, a take, a
variable, an exclusion. The compiler writes `RuleTables`, with a column for each field of each kind of record.
`COLUMNS` and `RECORDS` follow from the annotations of the columns. From these follow:

- the addresses that kernels use (`cep.engine.kernels.layout`): ``rule[place + at.STATE_MODE]``,
- the one array that kernels read (`cep.engine.matching.packed_rule`), in which references are addresses,
- the tables that ``cep explain --stages program`` prints.

So a new field of a state needs a line here, a line in `cep.compiler.lowering.lower`, and the kernel that
reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Annotated, NamedTuple, get_type_hints

from cep.arrays import I32, I64, U8, U64
from cep.program.opcodes import Code, Mode, Update

ACCEPT = -1
"""In `RuleTables.after_state`: the run is complete."""


class Kind(Enum):
    """What the numbers of a column refer to, and so what they become in the packed rule."""

    NUMBER = "a number, which stays as it is; states and groups are numbers, too"
    MASK = "bits of local predicates"
    HASH = "64 bits that stand for a name"
    REFERENCE = "the number of another record, which becomes its address; -1: none"
    LIST = "row pointers (n + 1) to other records, which become the two addresses first and end"
    SHARED_LIST = "the number of a row of `after_ptr`, which becomes the two addresses first and end"
    ROWS = "row pointers of shared lists; no field"
    ENCODED = "a part of an instruction, for which `ENCODED_FIELDS` has the fields"


@dataclass(frozen=True, slots=True)
class RecordField:
    """The content of a column of `RuleTables`: field `name` of each record of kind `record`.

    `to` is the kind of records that a reference or a list refers to, `names` the meaning of a number.
    """

    record: str
    name: str
    kind: Kind = Kind.NUMBER
    to: str = ""
    names: type[IntEnum] | None = None


def _variable(record: str, name: str = "variable") -> RecordField:
    return RecordField(record, name, Kind.REFERENCE, "variable")


def _list(record: str, name: str, to: str) -> RecordField:
    return RecordField(record, name, Kind.LIST, to)


def _encoded(record: str, name: str, names: type[IntEnum] | None = None) -> RecordField:
    return RecordField(record, name, Kind.ENCODED, names=names)


class RuleTables(NamedTuple):
    """The automaton and the register code of one rule, a column for each field.

    A *state* says what a run can take next and what it may ignore. New runs start in state 0. A *take* is an
    edge: the event becomes one of a variable, and the run continues in the states of `after`. The fields of a
    record are in the order of its columns here. Shapes are in brackets.
    """

    state_mode: Annotated[U8, RecordField("state", "mode", names=Mode)]  # (S,)
    # (S,) local predicates that can move a run here; an event without any of them is ignored
    state_trigger_mask: Annotated[U64, RecordField("state", "trigger_mask", Kind.MASK)]
    # (S,) 1: every event must be examined (strict, or a variable without a local predicate)
    state_always: Annotated[U8, RecordField("state", "always")]
    state_next: Annotated[I32, RecordField("state", "next")]  # (S,) state after an event is ignored
    # (S,) 1: a run is complete if the window closes here
    state_closes: Annotated[U8, RecordField("state", "closes")]
    # (S,) ACCEPT: ignoring one event completes the run (a trailing "not next"); else 0
    state_after_ignore: Annotated[I32, RecordField("state", "after_ignore")]
    take_ptr: Annotated[I32, _list("state", "takes", "take")]  # (S + 1,)
    take_variable: Annotated[I32, _variable("take")]  # (T,) in order of preference
    take_after: Annotated[
        I32, RecordField("take", "afters", Kind.SHARED_LIST, "after")
    ]  # (T,) row of `after_ptr`
    begin_ptr: Annotated[I32, _list("state", "begins", "begin")]  # (S + 1,)
    # Variables, apart from those of the takes, whose events NEXT does not ignore.
    begin_variable: Annotated[I32, _variable("begin")]
    not_followed_by_ptr: Annotated[I32, _list("state", "not_followed_by", "not_followed_by")]  # (S + 1,)
    # An event of these is never ignored: it ends the run.
    not_followed_by_variable: Annotated[I32, _variable("not_followed_by")]
    not_next_ptr: Annotated[I32, _list("state", "not_next", "not_next")]  # (S + 1,)
    # An event of these is neither taken nor ignored.
    not_next_variable: Annotated[I32, _variable("not_next")]
    release_ptr: Annotated[I32, _list("state", "releases", "release")]  # (S + 1,)
    # An event for which this holds moves the run, before anything else, to `release_state`.
    release_variable: Annotated[I32, _variable("release")]
    release_state: Annotated[I32, RecordField("release", "state")]
    state_exclusion_ptr: Annotated[I32, _list("state", "exclusions", "exclusion")]  # (S + 1,)
    # (T + 1,) an event of these is not taken by this take
    take_exclusion_ptr: Annotated[I32, _list("take", "exclusions", "exclusion")]
    # An event of this is neither taken nor ignored, as with `not_next`, but until the next take ...
    exclusion_variable: Annotated[I32, _variable("exclusion")]
    # ... and not where this holds for it; -1: no such exception.
    exclusion_released_by: Annotated[I32, _variable("exclusion", "released_by")]
    after_ptr: Annotated[I32, RecordField("after", "", Kind.ROWS)]  # (A + 1,)
    # successors of a take, in order of preference; ACCEPT
    after_state: Annotated[I32, RecordField("after", "state")]
    # (V,) the bit of the variable's local predicate; 0: none, always true
    variable_mask: Annotated[U64, RecordField("variable", "mask", Kind.MASK)]
    variable_hash: Annotated[
        U64, RecordField("variable", "hash", Kind.HASH)
    ]  # (V,) of its name, for match ids
    # (V,) 1: its code reads the registers with the event taken; 0: before
    variable_after_take: Annotated[U8, RecordField("variable", "after_take")]
    # (V + 1,) correlated part of the predicate; empty: none
    code_ptr: Annotated[I32, _list("variable", "code", "code")]
    code_op: Annotated[I32, _encoded("code", "op", Code)]
    code_arg: Annotated[I64, _encoded("code", "arg")]
    update_ptr: Annotated[I32, _list("variable", "updates", "update")]  # (V + 1,)
    update_op: Annotated[I32, _encoded("update", "op", Update)]
    update_register: Annotated[I32, _encoded("update", "register")]
    update_column: Annotated[I32, _encoded("update", "column")]  # index into `Program.columns`; -1: none
    update_arg: Annotated[I32, _encoded("update", "arg")]
    update_arg2: Annotated[I32, _encoded("update", "arg2")]
    # Clocks: read only for a rule with `RuleProgram.is_timed`.
    state_low: Annotated[
        I64, RecordField("state", "low")
    ]  # (S,) at least this many us since the event taken last; 0: none
    state_high: Annotated[I64, RecordField("state", "high")]  # (S,) at most; -1: none
    # (S,) -1: none; otherwise us after which the run continues by itself (a timed absence) ...
    state_absence: Annotated[I64, RecordField("state", "absence")]
    # ... which count as this many us.
    state_absence_length: Annotated[I64, RecordField("state", "absence_length")]
    # (S,) row of `after_ptr`
    state_absence_after: Annotated[I32, RecordField("state", "absence_afters", Kind.SHARED_LIST, "after")]
    state_limit: Annotated[
        I64, RecordField("state", "limit")
    ]  # (S,) `state_high` as it was written, for timeouts
    limit_ptr: Annotated[I32, _list("state", "limits", "limit")]  # (S + 1,)
    limit_group: Annotated[I32, RecordField("limit", "group")]  # groups whose windows end the run
    open_ptr: Annotated[I32, _list("take", "opens", "open")]  # (T + 1,)
    open_group: Annotated[I32, RecordField("open", "group")]  # groups whose first event a take is
    look_behind_ptr: Annotated[I32, _list("take", "look_behinds", "look_behind")]  # (T + 1,)
    # A run must not start after the event with this number in `last_variable` ...
    look_behind_last: Annotated[I32, RecordField("look_behind", "last")]
    look_behind_us: Annotated[I64, RecordField("look_behind", "us")]  # ... if it is at most this old ...
    # ... and at most this many events back.
    look_behind_events: Annotated[I64, RecordField("look_behind", "events")]
    # (G,) from its first event to its last; -1: no limit in time
    group_us: Annotated[I64, RecordField("group", "us")]
    # (G,) events after the first; -1: no limit in events
    group_events: Annotated[I64, RecordField("group", "events")]
    group_limit: Annotated[I64, RecordField("group", "limit")]  # (G,) `group_us` as it was written
    last_variable: Annotated[I32, _variable("last")]  # (M,) a key remembers its last event of this variable


ENCODED_FIELDS = {"code": ("op", "arg", "second"), "update": ("word", "arg2")}
"""Fields of the records that packing computes: fused instructions, and updates of two words."""

SCALARS = (
    "span_us",  # `RuleProgram.span_us`, as the names below are where they are the same
    "close_us",
    "selection",
    "skip",
    "skip_register",
    "max_runs",
    "zero_valid",  # bit r: register r starts as 0, not as NULL
    "n_values",  # columns of events
    "overflow",
    "timeouts",
    "span_events",
    "clock",  # column of `runs` where a run's clocks start
    "has_exclusions",  # 1: there are exclusions
    "node_register",  # holds a run's last node; NONE: the rule does not report events
    "has_sets",  # 1: some variable's events belong to sets of values
    "nodes_per_take",  # the largest number of nodes that a take adds: for the event, and for each set
    "always_walks",  # 1: a run may wait in a state where every event must be examined
    "zero",  # the initial value of registers
    "variables",  # address of the first variable
    "groups",  # address of the first group
    "last_variables",  # address of the first `last_variable`
)
"""Numbers that a rule has once. They lie before its records."""


@dataclass(frozen=True, slots=True)
class Record:
    """A kind of records: the places of its fields, and the distance from one record to the next."""

    places: dict[str, int]
    width: int


def _columns() -> dict[str, RecordField]:
    hints = get_type_hints(RuleTables, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items()}


def _records(columns: dict[str, RecordField]) -> dict[str, Record]:
    sizes: dict[str, dict[str, int]] = {}
    for field in columns.values():
        record = sizes.setdefault(field.record, {})
        if field.kind in (Kind.LIST, Kind.SHARED_LIST):
            record[field.name] = 2
        elif field.kind not in (Kind.ROWS, Kind.ENCODED):
            record[field.name] = 1
    sizes |= {record: dict.fromkeys(names, 1) for record, names in ENCODED_FIELDS.items()}
    records = {}
    for kind, of_fields in sizes.items():
        places, width = {}, 0
        for name, size in of_fields.items():
            places[name] = width
            width += size
        # A state's number becomes its address by a shift, because runs hold numbers of states: addresses in
        # snapshots would tie them to the layout.
        records[kind] = Record(places, 1 << (width - 1).bit_length() if kind == "state" else width)
    return records


COLUMNS = _columns()
"""The fields by the names of their columns."""

RECORDS = _records(COLUMNS)
"""The kinds of records by name, in the order in which they lie in the packed rule."""
