"""What a `Corrector` evaluates repeatedly: a single program, or several that feed each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.engine.matching.counters import Counters, n_counted
from cep.engine.matching.matcher import Emit, Matcher
from cep.program.program import Program, RuleProgram

if TYPE_CHECKING:
    from cep.engine.matching.regrouping import GroupsOf, Part
    from cep.engine.tables.tables import GivenTable


class Front(Protocol):
    """An evaluator with savable state: a `Matcher`, or those of programs that feed each other."""

    @property
    def watermark_us(self) -> int:
        """The event time reached."""

    @property
    def counters(self) -> Counters:
        """The counts so far."""

    @property
    def open_runs(self) -> Mapping[str, int]:
        """Number of open runs of all keys, by rule."""

    @property
    def n_keys(self) -> int:
        """Number of keys that have or had state."""

    @property
    def n_waiting(self) -> int:
        """Prepared events that wait until event time reaches them."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of these events in memory."""

    def take_in(self, events: pa.Table) -> None:
        """Add events that the watermark has not passed."""

    def advance(self, watermark_us: int, emit: Emit | None = None) -> pa.Table:
        """Advance event time to `watermark_us`; return the matches."""

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""

    def snapshot(self) -> bytes:
        """Return everything needed to continue elsewhere."""


class Evaluated(Protocol):
    """Rules, the columns of their events and matches, and their evaluator."""

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs."""

    @property
    def rules(self) -> tuple[RuleProgram, ...]:
        """The rules."""

    @property
    def event_schema(self) -> pa.Schema:
        """Columns of their events."""

    @property
    def match_schema(self) -> pa.Schema:
        """Columns of their matches."""

    @property
    def fingerprint(self) -> bytes:
        """A hash of 16 bytes that differs if the meaning of stored state differs."""

    @property
    def reported_within_us(self) -> tuple[int, ...]:
        """How long after its start a match of each rule may be reported; -1: no bound.

        For a window rule, how long after its end: only the events of the window change the row.
        """

    def n_counted(self, events: pa.Table) -> int:
        """Return the number of events; an event in several rows counts once."""

    def matcher(self) -> Front:
        """Return an evaluator of the rules in its initial state."""

    def restored(self, data: bytes | memoryview) -> Front:
        """Return the evaluator that wrote `data`. Raises StateError."""

    def own_rows(self, number: int, events: pa.Table) -> I64:
        """Return the rows of the events of program `number`."""

    def split(self, number: int, events: pa.Table) -> pa.Table:
        """Return the events of program `number`, as prepared for it."""

    def joined(self, number: int, events: pa.Table) -> pa.Table:
        """Return prepared events of program `number` with the columns of `event_schema`."""

    def snapshots(self, data: bytes | memoryview) -> Sequence[bytes | memoryview]:
        """Return the snapshots of the matchers of the programs, given that of an evaluator."""

    def together(self, snapshots: Sequence[bytes]) -> bytes:
        """Combine the snapshots of the programs' matchers into that of an evaluator."""

    def divided(self, data: bytes | memoryview, groups_of: Sequence[GroupsOf], n: int) -> list[Part]:
        """Return the state in a snapshot by group of keys (`cep.engine.matching.regrouping`).

        `groups_of` returns the group of rows, for each program.
        """

    def as_one(self, snapshots: Sequence[bytes | memoryview]) -> bytes:
        """Merge the snapshots of several evaluators into one (`cep.engine.matching.regrouping`)."""


@dataclass(frozen=True)
class OneProgram:
    """A single program, with its static tables."""

    program: Program
    tables: Mapping[str, GivenTable] | None = None

    @property
    def programs(self) -> tuple[Program, ...]:
        """The program."""
        return (self.program,)

    @property
    def rules(self) -> tuple[RuleProgram, ...]:
        """The rules."""
        return self.program.rules

    @property
    def event_schema(self) -> pa.Schema:
        """Columns of a prepared event."""
        return self.program.event_schema

    @property
    def match_schema(self) -> pa.Schema:
        """Columns of matches."""
        return self.program.match_schema

    @property
    def fingerprint(self) -> bytes:
        """The fingerprint of the program."""
        return self.program.fingerprint

    @property
    def reported_within_us(self) -> tuple[int, ...]:
        """Return the windows: a match waits for runs that started before it, but not beyond their windows."""
        return tuple(0 if rule.windowed is not None else rule.span_us for rule in self.program.rules)

    def n_counted(self, events: pa.Table) -> int:
        """Return the number of events; an event in several partitions counts once."""
        return n_counted(events)

    def matcher(self) -> Matcher:
        """Return a matcher."""
        return Matcher(self.program, self.tables)

    def restored(self, data: bytes | memoryview) -> Matcher:
        """Return the matcher that wrote `data`."""
        return Matcher.restore(self.program, data, self.tables)

    def own_rows(self, number: int, events: pa.Table) -> I64:
        """Return all rows."""
        return np.arange(events.num_rows)

    def split(self, number: int, events: pa.Table) -> pa.Table:
        """Return all events."""
        return events

    def joined(self, number: int, events: pa.Table) -> pa.Table:
        """Return all events."""
        return events

    def snapshots(self, data: bytes | memoryview) -> Sequence[bytes | memoryview]:
        """Return the snapshot."""
        return (data,)

    def together(self, snapshots: Sequence[bytes]) -> bytes:
        """Return the only snapshot."""
        (data,) = snapshots
        return data

    def divided(self, data: bytes | memoryview, groups_of: Sequence[GroupsOf], n: int) -> list[Part]:
        """Return the state in a snapshot by group of keys."""
        from cep.engine.matching.regrouping import divided  # it loads kernels that only a restore uses

        return divided(self.program, data, groups_of[0], n)

    def as_one(self, snapshots: Sequence[bytes | memoryview]) -> bytes:
        """Merge the snapshots of several matchers into one."""
        from cep.engine.matching.regrouping import joined

        return joined(self.program, snapshots)
