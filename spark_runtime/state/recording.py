"""A chain that records its input, and repeats what a chain of the same rules recorded.

The engine is deterministic: the same input leads to the same state. So the input of a micro-batch describes
completely what the micro-batch changed, whatever kinds of state the rules have. This is command logging
(Malviya, Weisberg, Madden and Stonebraker, "Rethinking main memory OLTP recovery", ICDE 2014, section III).
The alternative, marking what changes, needs a separate mechanism in each kernel and for each kind of state.

The content of a static table is input, too, but it is the same for a long time and for all key groups. So a
record only names the contents, once until they change. The driver keeps the contents as long as there are
such records.

A record is a sequence of steps. A step is a header (what, number of the program, time, length) and its data,
which start at a multiple of 8 bytes, as Arrow requires.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from cep.engine.chains.chain import Chain
from cep.engine.corrections.corrector import Corrector
from cep.engine.matching.matcher import Emit, Matcher
from cep.engine.matching.shedding import DropOrder, Dropped, DroppedEvents
from cep.engine.state.sections import moved
from cep.program.fingerprint import programs_of
from cep.program.identity import SharedIdentity, packed_json_in
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import Tables
from spark_runtime.wire.parcels import record_parts, table_of_bytes

if TYPE_CHECKING:
    from cep.engine.tables.tables import GivenTable

_STEP = struct.Struct("<iiqq")  # what, program, time in microseconds, length of the data
_ALIGNMENT = 8


class _What(IntEnum):
    """What a chain was given."""

    PUSH = 0
    """Events of a program; some may be late."""

    TAKE_IN = 1
    """Events of a program; none is late."""

    ADVANCE = 2
    """Event time reached a time."""

    ADVANCE_APART = 3
    """The same; what corrections add beyond that time was received apart."""

    CONTENTS = 4
    """Static tables have these contents from now on."""

    SHED = 5
    """Open runs beyond a number were dropped, in this order."""

    SHED_WAITING = 6
    """Waiting events were, in the same way."""


Contents = Mapping[str, str]
"""By static table, the name of what it contains."""

TablesOf = Callable[[Contents], Tables]
"""Returns the tables that have these contents. Raises StateError: they no longer exist (E0713)."""


@dataclass(frozen=True)
class Layout:
    """What the records of a run depend on: the programs, the columns of their events, and corrections.

    `programs`: the fingerprint of each program, `SharedIdentity.packed` and the schema of its events.
    `corrections`: `within_us` and `max_retained`, or None.
    """

    programs: tuple[tuple[bytes, bytes, bytes], ...]
    corrections: tuple[int, int] | None

    @classmethod
    def of(cls, rules: RuleSet) -> Layout:
        """Return the layout of rules."""
        bound = rules.corrections
        return cls(
            tuple(
                (of.fingerprint, of.identity.shared.packed, bytes(of.event_schema.serialize()))
                for of in rules.programs
            ),
            None if bound is None else (bound.within_us, bound.max_retained),
        )

    @classmethod
    def decode(cls, data: bytes) -> Layout:
        """Return the layout that `encode` wrote. Raises ValueError or KeyError if it is damaged."""
        found = json.loads(data)
        bound = found["corrections"]
        programs = (tuple(bytes.fromhex(part) for part in parts) for parts in found["programs"])
        return cls(
            tuple((fingerprint, about, schema) for fingerprint, about, schema in programs),
            None if bound is None else (bound[0], bound[1]),
        )

    def encode(self) -> bytes:
        """Return the layout as bytes."""
        programs = [[part.hex() for part in parts] for parts in self.programs]
        return json.dumps({"programs": programs, "corrections": self.corrections}).encode()

    @cached_property
    def digest(self) -> str:
        """A name for the layout."""
        return hashlib.sha256(self.encode()).hexdigest()[:16]

    def events_in(self, data: pa.Buffer, number: int, rules: RuleSet) -> tuple[int, pa.Table]:
        """Return the number of a recorded program in `rules`, and its recorded events in that form."""
        fingerprint, about, schema = self.programs[number]
        events = table_of_bytes(data, pa.ipc.read_schema(pa.py_buffer(schema)))
        program = programs_of([of[0] for of in self.programs], rules.programs)[fingerprint]
        now = next(at for at, of in enumerate(rules.programs) if of is program)  # `==` compares arrays
        then = SharedIdentity.of_json(packed_json_in(about))
        return now, moved(events, then, program.identity.shared, program)


class RecordedChain(Chain):
    """A chain that records its input. It gets the contents of static tables before any input.

    `tables`: the mapping in which the matchers look up static tables. The chain changes it. `tables_of`:
    returns the contents that records name.
    """

    def __init__(
        self,
        rules: RuleSet,
        matchers: Sequence[Matcher | Corrector],
        tables: dict[str, GivenTable],
        tables_of: TablesOf,
    ) -> None:
        super().__init__(rules, matchers, tables=tables)
        self._tables = tables
        self._tables_of = tables_of
        self._contents: Contents = {}  # as the last record that names any
        self._steps: list[bytes | pa.Buffer] = []
        self.is_recording = True
        """False in a call after which a snapshot is written, which needs no record."""

    def record(self) -> list[bytes | pa.Buffer]:
        """Return the record since the last call, as bytes to be joined."""
        steps, self._steps = self._steps, []
        return steps

    def begin(self) -> None:
        """Let the next record be the first one after a snapshot."""
        self._steps.clear()
        self._contents = {}

    def give(self, contents: Contents, tables: Tables) -> None:
        """Set the contents of static tables, which are `tables`, for later input."""
        self._tables.update(tables)
        if contents != self._contents:
            self._contents = contents
            self._add(_What.CONTENTS, data=[json.dumps(contents).encode()])

    def repeat(self, record: bytes, layout: Layout | None = None) -> None:
        """Repeat the steps of a record, without matches. `layout`: the layout of the run that wrote the
        record, if it is different.

        Raises StateError: it names contents of a static table that no longer exist (E0713).
        """
        whole = pa.py_buffer(record)
        at = 0
        while at < len(record):
            what, number, time_us, length = _STEP.unpack_from(record, at)
            at += _STEP.size
            data = whole.slice(at, length)
            at += length + -length % _ALIGNMENT
            assert what == _What.CONTENTS or len(self._contents) == len(self._tables)
            match _What(what):
                case _What.CONTENTS:
                    self._contents = json.loads(data.to_pybytes())
                    self._tables.update(self._tables_of(self._contents))
                case _What.PUSH:
                    super().push(*self._events(data, number, layout))
                case _What.TAKE_IN:
                    super().take_in(*self._events(data, number, layout))
                case _What.ADVANCE:
                    super().advance(time_us, _forget)
                case _What.ADVANCE_APART:
                    super().advance(time_us, _forget, put_beyond=_forget)
                case _What.SHED | _What.SHED_WAITING:
                    found = json.loads(data.to_pybytes())
                    shed = super().shed_runs if what == _What.SHED else super().shed_waiting
                    shed(found["most"], DropOrder(found["ranks"], found["newest"]))
        self._steps.clear()  # what the chain does through its own methods

    def _events(self, data: pa.Buffer, number: int, layout: Layout | None) -> tuple[int, pa.Table]:
        if layout is not None:
            return layout.events_in(data, number, self.rules)
        return number, table_of_bytes(data, self.rules.programs[number].event_schema)

    def _add(
        self, what: _What, number: int = 0, time_us: int = 0, data: Sequence[bytes | pa.Buffer] = ()
    ) -> None:
        if self.is_recording:
            self._steps += _step(what, number, time_us, data)

    def push(self, number: int, events: pa.Table) -> pa.Table:
        """Add prepared events of program `number` in any order; return those that are late."""
        if self.is_recording and events.num_rows:
            self._add(_What.PUSH, number, data=record_parts(events))
        return super().push(number, events)

    def take_in(self, number: int, events: pa.Table, data: bytes | pa.Buffer | None = None) -> None:
        """Add prepared events of program `number` that `watermark_us` has not passed.

        `data`: the same events as bytes (`table_of_bytes`), which are then recorded.
        """
        # With corrections, `push` is called, which records them.
        if self._fed is not None and self.is_recording and events.num_rows:
            self._add(_What.TAKE_IN, number, data=record_parts(events) if data is None else [data])
        super().take_in(number, events)

    def advance(
        self,
        watermark_us: int,
        put: Emit,
        *,
        in_parts: bool = True,
        put_beyond: Emit | None = None,
    ) -> None:
        """Advance event time to `watermark_us`; see `Chain.advance`."""
        self._add(_What.ADVANCE if put_beyond is None else _What.ADVANCE_APART, time_us=watermark_us)
        super().advance(watermark_us, put, in_parts=in_parts, put_beyond=put_beyond)

    def shed_runs(self, most: int, order: DropOrder) -> Dropped:
        """Drop the open runs of all keys and rules beyond `most`."""
        dropped = super().shed_runs(most, order)
        if dropped.by_rule:
            self._add_shed(_What.SHED, most, order)
        return dropped

    def shed_waiting(self, most: int, order: DropOrder) -> DroppedEvents:
        """Drop the waiting events of all keys and programs beyond `most`."""
        dropped = super().shed_waiting(most, order)
        if dropped.by_stream:
            self._add_shed(_What.SHED_WAITING, most, order)
        return dropped

    def _add_shed(self, what: _What, most: int, order: DropOrder) -> None:
        """Record an order: limits, and severities, may be others when it is repeated."""
        found = {"most": most, "ranks": dict(order.ranks), "newest": order.newest}
        self._add(what, data=[json.dumps(found).encode()])


def _step(
    what: _What, number: int, time_us: int, data: Sequence[bytes | pa.Buffer]
) -> tuple[bytes | pa.Buffer, ...]:
    length = sum(map(len, data))
    return _STEP.pack(what, number, time_us, length), *data, bytes(-length % _ALIGNMENT)


def steps_of(inputs: Iterable[tuple[int, bytes | pa.Buffer]]) -> tuple[list[bytes | pa.Buffer], list[int]]:
    """Return what a chain records when it gets events that are not late, and where each of them starts in it.

    `inputs`: the number of the program, and the events as bytes (`table_of_bytes`).
    """
    steps: list[bytes | pa.Buffer] = []
    places, at = [], 0
    for number, data in inputs:
        places.append(at + _STEP.size)
        step = _step(_What.TAKE_IN, number, 0, [data])
        steps += step
        at += sum(map(len, step))
    return steps, places


def _forget(matches: pa.Table) -> None:
    """Take in matches that were reported when the record was made."""
