"""Programs that read each other's matches as one unit, for a `Corrector`, which resets all of them together.

A late event may change the matches of a rule, and with them those of its readers. Therefore the whole chain
must return to a saved state and repeat the later events. Its events are those of all its programs in one
table, with a column for the program.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.engine.chains.fed_matchers import FedMatchers
from cep.engine.matching.counters import Counters, n_counted
from cep.engine.matching.matcher import Emit, Matcher
from cep.program.program import TIME_COLUMN, Program, RuleProgram
from cep.rule_set import RuleSet

if TYPE_CHECKING:
    from cep.engine.matching.regrouping import GroupsOf, Part
    from cep.engine.tables.tables import GivenTable

_PROGRAM = "_program"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class LinkedPrograms:
    """All programs that feeds connect with each other.

    `programs`: each program after those whose matches it reads.
    """

    programs: tuple[Program, ...]
    tables: Mapping[str, GivenTable] | None = field(default=None, compare=False)

    @cached_property
    def rule_set(self) -> RuleSet:
        """The programs as a rule set of their own."""
        return RuleSet(self.programs)

    @property
    def rules(self) -> tuple[RuleProgram, ...]:
        """The rules of all programs."""
        return self.rule_set.rules

    @property
    def match_schema(self) -> pa.Schema:
        """Columns of the matches of all rules."""
        return self.rule_set.match_schema

    @cached_property
    def event_schema(self) -> pa.Schema:
        """Columns of events of all programs: time, program, then the columns of each program."""
        fields = [pa.field(TIME_COLUMN, pa.int64(), nullable=False), pa.field(_PROGRAM, pa.int64())]
        fields += [
            pa.field(_column(number, item.name), item.type)
            for number, program in enumerate(self.programs)
            for item in program.event_schema
        ]
        return pa.schema(fields)

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of 16 bytes that differs if the meaning of stored state differs."""
        return hashlib.sha256(b"".join(program.fingerprint for program in self.programs)).digest()[:16]

    @cached_property
    def reported_within_us(self) -> tuple[int, ...]:
        """How long after its start, or end, a match of each rule may be reported (`Evaluated`)."""
        lags = self.rule_set.chains.lags_us
        return tuple(
            lag if rule.windowed is not None else rule.span_us + lag if rule.span_us >= 0 else -1
            for program, lag in zip(self.programs, lags, strict=True)
            for rule in program.rules
        )

    def joined(self, number: int, events: pa.Table) -> pa.Table:
        """Return prepared events of program `number` as events of the whole chain (`event_schema`)."""
        columns = {_column(number, name): events.column(name) for name in events.column_names}
        columns[TIME_COLUMN] = events.column(TIME_COLUMN)
        columns[_PROGRAM] = pa.array(np.full(events.num_rows, number, np.int64))
        n = events.num_rows
        return pa.Table.from_arrays(
            [
                columns[item.name] if item.name in columns else pa.nulls(n, item.type)
                for item in self.event_schema
            ],
            schema=self.event_schema,
        )

    def split(self, number: int, events: pa.Table) -> pa.Table:
        """Return the events of program `number` among `events`, as prepared for it."""
        own = events.filter(pc.equal(events.column(_PROGRAM), number))
        schema = self.programs[number].event_schema
        return pa.Table.from_arrays(
            [own.column(_column(number, name)) for name in schema.names], schema=schema
        )

    def n_counted(self, events: pa.Table) -> int:
        """Return the number of events; an event that several programs read counts once."""
        return max(n_counted(self.split(number, events)) for number in range(len(self.programs)))

    def matcher(self) -> LinkedMatchers:
        """Return matchers of the programs, in their initial state."""
        return LinkedMatchers(self, [Matcher(program, self.tables) for program in self.programs])

    def restored(self, data: bytes | memoryview) -> LinkedMatchers:
        """Return the `LinkedMatchers` that wrote `data`. Raises StateError as `Matcher.restore` does."""
        pairs = zip(self.programs, self.snapshots(data), strict=True)
        return LinkedMatchers(self, [Matcher.restore(program, part, self.tables) for program, part in pairs])

    def snapshots(self, data: bytes | memoryview) -> list[memoryview]:
        """Return the snapshots of the matchers."""
        view, found = memoryview(data), []
        for _ in self.programs:
            (length,) = _LENGTH.unpack_from(view)
            found.append(view[_LENGTH.size :][:length])
            view = view[_LENGTH.size + length :]
        return found

    def together(self, snapshots: Sequence[bytes | memoryview]) -> bytes:
        """Return the snapshots of matchers of the programs as that of `LinkedMatchers`."""
        return b"".join(part for data in snapshots for part in (_LENGTH.pack(len(data)), data))

    def own_rows(self, number: int, events: pa.Table) -> I64:
        """Return the rows of the events of program `number`."""
        return np.flatnonzero(np.asarray(events.column(_PROGRAM)) == number)

    def divided(self, data: bytes | memoryview, groups_of: Sequence[GroupsOf], n: int) -> list[Part]:
        """Return the state in a snapshot by group of keys."""
        from cep.engine.matching.regrouping import Part, divided  # it loads kernels that only a restore uses

        of_programs = [
            divided(program, part, of, n)
            for program, part, of in zip(self.programs, self.snapshots(data), groups_of, strict=True)
        ]
        return [
            Part(self.together([part.data for part in parts]), all(part.is_empty for part in parts))
            for parts in zip(*of_programs, strict=True)
        ]

    def as_one(self, snapshots: Sequence[bytes | memoryview]) -> bytes:
        """Merge several snapshots of `LinkedMatchers` into one."""
        from cep.engine.matching.regrouping import joined

        of_programs = zip(*map(self.snapshots, snapshots), strict=True)
        return self.together(
            [joined(program, parts) for program, parts in zip(self.programs, of_programs, strict=True)]
        )


class LinkedMatchers:
    """A `Matcher` for `LinkedPrograms`."""

    def __init__(self, program: LinkedPrograms, matchers: Sequence[Matcher]) -> None:
        self.program = program
        self._matchers = matchers
        self._chain = FedMatchers(program.rule_set.chains, matchers)

    @property
    def watermark_us(self) -> int:
        """The event time that the inputs have reached."""
        return self._chain.watermark_us

    @property
    def open_runs(self) -> dict[str, int]:
        """Number of open runs of all keys, by rule."""
        return {name: n for matcher in self._matchers for name, n in matcher.open_runs.items()}

    @property
    def n_keys(self) -> int:
        """Number of keys that at least one program has stored."""
        return max(matcher.n_keys for matcher in self._matchers)

    @property
    def n_waiting(self) -> int:
        """Prepared events that wait until event time reaches them."""
        return sum(matcher.n_waiting for matcher in self._matchers)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of these events in memory."""
        return sum(matcher.waiting_bytes for matcher in self._matchers)

    @property
    def counters(self) -> Counters:
        """The counts of all programs; `duplicates_of` contains the streams of one program after another."""
        found = Counters(duplicates_of=[])
        for matcher in self._matchers:
            counters = matcher.counters
            found.duplicates_of += counters.duplicates_of
            found.keys += counters.keys
            for name in ("matches", "timeouts", "suppressed", "dropped_runs"):
                getattr(found, name).update(getattr(counters, name))
        return found

    def take_in(self, events: pa.Table) -> None:
        """Add events of ``program.event_schema`` that the watermark has not passed."""
        for number, matcher in enumerate(self._matchers):
            matcher.take_in(self.program.split(number, events))

    def advance(self, watermark_us: int, emit: Emit | None = None) -> pa.Table:
        """Advance event time to `watermark_us`; return the matches of all rules, in order.

        `emit`, if given, receives the matches of each rule in parts; the returned table is then empty.
        """
        rules = self.program.rule_set
        found: list[pa.Table] = []
        if emit is None:
            self._chain.advance(watermark_us, found.append, in_parts=False)
        else:
            to_emit = emit

            def put(matches: pa.Table) -> None:
                if matches.num_rows:
                    to_emit(rules.in_order([matches]))

            self._chain.advance(watermark_us, put)
        return rules.in_order(found)

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        return self._chain.next_deadline_us()

    def snapshot(self) -> bytes:
        """Return everything needed to continue elsewhere, as bytes."""
        return self.program.together([matcher.snapshot() for matcher in self._matchers])


def _column(number: int, name: str) -> str:
    return f"{number}.{name}"
