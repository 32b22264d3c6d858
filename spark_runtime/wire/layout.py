"""How the prepared events of several programs share the columns of one DataFrame.

A row is one event for one program, or a heartbeat: a time, for the watermark only. The other codes are those
of parcels (`spark_runtime.wire.parcels`).

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from cep.program.program import TIME_COLUMN, Program, bits_column
from cep.rule_set import RuleSet

PROGRAM = "_program"
"""Column: index of the program that a row or a parcel is for, or one of the eight below."""

DEAD_LETTER = -1
END_OF_INPUT = -2
HEARTBEAT = -3
COUNTED = -4
LATE_EVENTS = -5
MAY_BE_LATE = -6
FOUND = -7
EXTENT = -8

TEXT = "_text"
"""Column: a dead letter, counts or an extent as JSON, the stream of late events; NULL in events."""


@dataclass(frozen=True)
class Layout:
    """Columns that hold the prepared events of any program of `rules`: time, predicate words, then slots.

    A column of a stream has one slot, whichever programs read it; all others have slots of their own.
    """

    rules: RuleSet

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of `rules`."""
        return self.rules.programs

    @cached_property
    def n_words(self) -> int:
        """Number of predicate words of the program that has most."""
        return max(len(program.predicates) for program in self.programs)

    @cached_property
    def slots_of(self) -> tuple[dict[str, int], ...]:
        """For each program: value column of its `event_schema` -> slot."""
        numbers: dict[tuple[int | str, str], int] = {}
        result = []
        for number, program in enumerate(self.programs):
            slots = {}
            for name in self._value_names(program):
                source = program.source_of(name)
                place = (number, name) if source is None else (source[0].name, source[1].name)
                slots[name] = numbers.setdefault(place, len(numbers))
            result.append(slots)
        return tuple(result)

    @staticmethod
    def _value_names(program: Program) -> list[str]:
        return list(program.event_schema.names[1 + len(program.predicates) :])

    @cached_property
    def slot_types(self) -> tuple[pa.DataType, ...]:
        """Arrow type of each slot."""
        types: dict[int, pa.DataType] = {}
        for program, slots in zip(self.programs, self.slots_of, strict=True):
            for name, slot in slots.items():
                types[slot] = program.event_schema.field(name).type
        return tuple(types[slot] for slot in range(len(types)))

    @cached_property
    def row_schema(self) -> pa.Schema:
        """Columns of rows."""
        words = [bits_column(word) for word in range(self.n_words)]
        return pa.schema(
            [
                pa.field(PROGRAM, pa.int32()),
                pa.field(TIME_COLUMN, pa.int64()),
                *(pa.field(name, pa.int64()) for name in words),
                *(pa.field(slot_column(slot), kind) for slot, kind in enumerate(self.slot_types)),
            ]
        )

    def events_of(self, number: int, rows: pa.Table) -> pa.Table:
        """Return rows that are all of program `number` as its prepared events."""
        program = self.programs[number]
        slots = self.slots_of[number]
        arrays = [
            rows.column(slot_column(slots[name]) if name in slots else name)
            for name in program.event_schema.names
        ]
        return pa.Table.from_arrays(arrays, schema=program.event_schema)


_SLOT = "_v"


def slot_column(slot: int) -> str:
    """Return the name of the column that holds slot `slot`."""
    return f"{_SLOT}{slot}"
