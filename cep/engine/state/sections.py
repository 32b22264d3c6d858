"""The state of a `Matcher` in sections: one that all rules share, and one for each rule.

Each section describes its own meaning (`cep.program.identity`). So `cep.engine.state.codec` reads sections
without the program that wrote them, and they can be compared and changed. `fitted` adapts them to a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from cep.arrays import U64
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.kernels.layout import N_RUNS, NODE_WIDTH
from cep.engine.state.event_lists import KeptEvents
from cep.engine.state.packing import Packed
from cep.engine.state.runs import key_width, row_width
from cep.errors import StateError
from cep.program.identity import ProgramIdentity, RuleIdentity, SharedIdentity, differences, packed_json_in
from cep.program.program import Program, RuleProgram, bits_column
from cep.program.tables import VERSION_COLUMN, table_name

N_COUNTERS = 4
"""Counters of a rule: matches, timeouts, suppressed matches, dropped runs."""


@dataclass(frozen=True, slots=True)
class SharedSection:
    """The shared state of all rules of a program. Empty tables and empty strings are None."""

    fingerprint: bytes
    about: bytes  # `SharedIdentity.packed`
    watermark_us: int
    position: int
    counters: tuple[int, ...]  # events, late events, duplicates of each stream
    waiting: pa.Table | None
    keys: pa.Table | None
    strings: pa.Array | None
    kept: KeptEvents | None

    def identity(self) -> SharedIdentity:
        """Return what the section means."""
        return SharedIdentity.of_json(packed_json_in(self.about))


@dataclass(frozen=True, slots=True)
class RuleSection:
    """The state of one rule."""

    name: str
    fingerprint: bytes
    about: bytes  # `RuleIdentity.packed`
    counters: tuple[int, ...]  # `N_COUNTERS`
    keys: Packed  # (keys, columns of `kernels.keys` from N_RUNS on)
    rows: Packed  # (runs, columns of `kernels.runs` from STATE on), key by key
    suppressed_until: Packed  # by key (`suppression.Suppression`); empty: the rule has no SUPPRESS
    nodes: Packed  # (n, NODE_WIDTH)
    begins_us: int = START_OF_TIME_US  # the rule sees only events after this time

    def identity(self) -> RuleIdentity:
        """Return what the section means."""
        return RuleIdentity.of_json(packed_json_in(self.about))


@dataclass(frozen=True, slots=True)
class WindowSection:
    """The state of each group of windowed columns, by its meaning (`Program.window_groups`)."""

    meaning: bytes
    parts: tuple[Packed, ...]


@dataclass(frozen=True, slots=True)
class TableSection:
    """The rows kept of each joined table, by its meaning (`cep.program.fingerprint.joined_meanings`)."""

    meaning: bytes
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class StateSections:
    """All live state of a `Matcher`, compact."""

    shared: SharedSection
    rules: tuple[RuleSection, ...]
    windows: tuple[WindowSection, ...] = ()
    tables: tuple[TableSection, ...] = ()

    def identity(self) -> ProgramIdentity:
        """Return what the state means.

        Raises StateError: the sections do not describe it in a readable form (E0702).
        """
        try:
            return ProgramIdentity(self.shared.identity(), tuple(rule.identity() for rule in self.rules))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise damaged("what it says of its rules cannot be read") from error


def damaged(fact: str) -> StateError:
    """Return the error for a snapshot that was damaged after it was written."""
    return StateError(
        "E0702",
        f"the snapshot is damaged: {fact}",
        "restore the checkpoint as a whole, or start from a new one",
    )


def other_rules(then: Sequence[ProgramIdentity], now: Sequence[ProgramIdentity]) -> StateError:
    """Return the error for state that other rules wrote; it names them and the differences."""
    return StateError(
        "E0701",
        f"the stored state was written by other rules: {differences(then, now)}",
        "restore the rules as they were, or start from a new checkpoint",
    )


def fitted(stored: StateSections, program: Program) -> StateSections:
    """Return the sections as `program` needs them: in the order of its rules, and with its columns for the
    waiting events.

    Raises StateError: the state was written by other rules (E0701), or is damaged (E0702).
    """
    identity = program.identity
    sections = {section.name: section for section in stored.rules}
    if (
        len(sections) != len(program.rules)
        or stored.shared.fingerprint != identity.shared.fingerprint
        or any(
            rule.name not in sections or sections[rule.name].fingerprint != rule.fingerprint
            for rule in identity.rules
        )
    ):
        raise other_rules([stored.identity()], [identity])
    shared = stored.shared
    if shared.about != identity.shared.packed or not _has_columns(shared, program):
        then, now = stored.identity().shared, identity.shared
        shared = replace(
            shared,
            waiting=None if shared.waiting is None else moved(shared.waiting, then, now, program),
            kept=None if shared.kept is None else with_names(shared.kept, then, now, program),
        )
    rules = tuple(sections[rule.name] for rule in program.rules)
    _check_shapes(shared, program)
    n_keys = 0 if shared.keys is None else shared.keys.num_rows
    for section, rule in zip(rules, program.rules, strict=True):
        _check_rule(section, rule, n_keys)
    return replace(stored, shared=shared, rules=rules)


# ---------------------------------------------------------------- rules in another order


def moved(
    waiting: pa.Table,
    then: SharedIdentity,
    now: SharedIdentity,
    program: Program,
    *,
    is_of_other_rules: bool = False,
) -> pa.Table:
    """Return stored events with the predicate words and derived columns of `program`.

    What the events of other rules lack is FALSE or NULL.
    """
    names = program.event_schema.names
    words = [bits_column(word) for word in range(len(now.predicates))]
    bits = _moved_bits(waiting, then.predicates, now.predicates, may_lack=is_of_other_rules)
    columns = dict(zip(words, bits, strict=True))
    before = _names_then(then, now)
    if is_of_other_rules:
        waiting = _with_nulls(waiting, before, program.event_schema)
    values = [name for name in names if name not in columns]
    columns |= {name: _column(waiting, before.get(name, name)) for name in values}
    if VERSION_COLUMN in columns:
        columns[VERSION_COLUMN] = _moved_versions(columns[VERSION_COLUMN], before, len(program.joins.tables))
    return _table([columns[name] for name in names], program.event_schema)


def _moved_versions(column: pa.ChunkedArray, before: Mapping[str, str], n_tables: int) -> pa.ChunkedArray:
    """Return the current numbers of tables; `before` contains the former name of each table."""
    old = np.asarray(column)
    moved = np.zeros_like(old)
    for number in range(n_tables):
        was = before.get(table_name(number), "").removeprefix(table_name(0)[:-1])
        if not was.isdigit():
            raise damaged("its tables do not fit its rules")
        moved[np.abs(old) == int(was) + 1] = number + 1
    return pa.chunked_array([pa.array(np.sign(old) * moved)])


def _moved_bits(
    waiting: pa.Table, then: Sequence[Sequence[str]], now: Sequence[Sequence[str]], *, may_lack: bool
) -> list[pa.Array]:
    """Return the predicate words `now`, composed from the bits of the words `then`."""
    places = {of: (word, bit) for word, bits in enumerate(then) for bit, of in enumerate(bits)}
    words = [_column(waiting, bits_column(word)) for word in range(len(then))]
    if any(word.type != pa.int64() or word.null_count for word in words):
        raise damaged("its events have columns of other types")
    old: list[U64] = [np.asarray(word).view(np.uint64) for word in words]
    moved = []
    for bits in now:
        word_now = np.zeros(waiting.num_rows, np.uint64)
        for bit, of in enumerate(bits):
            if of not in places:
                if may_lack:
                    continue
                raise damaged("the waiting events lack a condition of the rules")
            word, place = places[of]
            word_now |= (old[word] >> np.uint64(place) & np.uint64(1)) << np.uint64(bit)
        moved.append(pa.array(word_now.view(np.int64)))
    return moved


def with_names(
    kept: KeptEvents,
    then: SharedIdentity,
    now: SharedIdentity,
    program: Program,
    *,
    is_of_other_rules: bool = False,
) -> KeptEvents:
    """Return kept events with the columns of `program`. What the events of other rules lack is NULL."""
    before, columns = _names_then(then, now), kept.columns
    if is_of_other_rules:
        columns = _with_nulls(columns, before, program.kept_schema)
    found = [_column(columns, before.get(name, name)) for name in program.kept_columns]
    return KeptEvents(kept.positions, _table(found, program.kept_schema))


def _with_nulls(events: pa.Table, before: dict[str, str], schema: pa.Schema) -> pa.Table:
    """Return events with NULL in the columns of `schema` that they lack; `before` gets their names."""
    for field in schema:
        name = before.get(field.name, field.name)
        if name not in events.column_names or events.schema.field(name).type != field.type:
            before[field.name] = f"new {field.name}"
            events = events.append_column(before[field.name], pa.nulls(events.num_rows, field.type))
    return events


def _names_then(then: SharedIdentity, now: SharedIdentity) -> dict[str, str]:
    """Return the former name of each derived column."""
    names = {of: name for name, of in then.derived}
    return {name: names.get(of, "") for name, of in now.derived}


def _table(columns: Sequence[pa.ChunkedArray], schema: pa.Schema) -> pa.Table:
    if [column.type for column in columns] != list(schema.types):
        raise damaged("its events have columns of other types")
    return pa.table(columns, schema=schema)


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in table.column_names:
        raise damaged("its events lack a column")
    return table.column(name)


# ---------------------------------------------------------------- what must hold for sound sections


def _has_columns(shared: SharedSection, program: Program) -> bool:
    """Return whether waiting and kept events have the columns of `program`, in its order."""
    schema = program.event_schema
    return (shared.waiting is None or bool(shared.waiting.schema.equals(schema))) and (
        shared.kept is None or bool(shared.kept.columns.schema.equals(program.kept_schema))
    )


def _check_shapes(shared: SharedSection, program: Program) -> None:
    """Raise StateError unless the tables have the columns that `program` reads."""
    key_schema = pa.schema([program.event_schema.field(name) for name in program.key_columns])
    fits = (
        _has_columns(shared, program)
        and (shared.keys is None or shared.keys.schema.equals(key_schema))
        and (shared.strings is None or shared.strings.type == pa.string())
        and (shared.kept is None or len(shared.kept.positions) == shared.kept.columns.num_rows)
        and len(shared.counters) == 2 + len(program.streams)
    )
    if not fits:
        raise damaged("its events do not fit its rules")


def _check_rule(section: RuleSection, rule: RuleProgram, n_keys: int) -> None:
    """Raise StateError unless the matrices of a rule are as wide and as long as they must be."""
    fits = (
        len(section.counters) == N_COUNTERS
        and (section.keys.n_rows, len(section.keys.low)) == (n_keys, key_width(rule) - N_RUNS)
        and len(section.rows.low) == row_width(rule)
        and len(section.nodes.low) == NODE_WIDTH
        and section.suppressed_until.n_rows == (n_keys if rule.suppresses else 0)
        and len(section.suppressed_until.low) == 1
    )
    if not fits:
        raise damaged(f"the runs of rule `{rule.name}` do not fit it")
