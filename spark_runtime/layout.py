"""How the prepared events of several programs share the columns of one shuffle.

A row is one event for one program, or one of four things that travel with the events: a malformed row on
its way to the dead letters, the end of the input, a heartbeat (a time, for the watermark only), a number of
lines read.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.program import TIME_COLUMN, Program, bits_column

PROGRAM = "_program"
"""Column: index of the program the row is for, or one of the four below."""

DEAD_LETTER = -1
END_OF_INPUT = -2
HEARTBEAT = -3
INPUT_COUNT = -4

TEXT = "_text"
"""Column: a dead letter as JSON, or a number; NULL in events."""

REFUSED = "_refused"
"""Column of typed events: 0, or the number of the reason why the event is a dead letter."""

GROUP = "_group"
"""Column: the key group, as a label that Spark sends to the partition meant (see `key_groups`)."""

KNOWN_BITS = 62
"""Slots whose validity fits in one bigint, with the sign left alone."""


def known_column(word: int) -> str:
    """Return the name of the column that says which slots of a row are not NULL."""
    return f"_known{word}"


@dataclass(frozen=True)
class Layout:
    """Columns that hold the prepared events of any of `programs`: time, predicate words, then slots.

    A column of a stream has one slot, whichever programs read it; all others have slots of their own.
    """

    programs: tuple[Program, ...]

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
        """Columns of rows before they are grouped."""
        words = [bits_column(word) for word in range(self.n_words)]
        return pa.schema(
            [
                pa.field(PROGRAM, pa.int32()),
                pa.field(TIME_COLUMN, pa.int64()),
                *(pa.field(name, pa.int64()) for name in words),
                *(pa.field(slot_column(slot), kind) for slot, kind in enumerate(self.slot_types)),
                pa.field(TEXT, pa.string()),
            ]
        )

    def rows_of(self, number: int, events: pa.Table) -> pa.Table:
        """Return the prepared `events` of program `number` as rows (`row_schema`)."""
        n = events.num_rows
        names = {slot: name for name, slot in self.slots_of[number].items()}
        columns = {PROGRAM: pa.array(np.full(n, number, np.int32)), TIME_COLUMN: events.column(TIME_COLUMN)}
        for word in range(len(self.programs[number].predicates)):
            columns[bits_column(word)] = events.column(bits_column(word))
        for slot, name in names.items():
            columns[slot_column(slot)] = events.column(name)
        return self._rows(columns, n)

    def special_rows(self, code: int, times_us: Sequence[int], texts: Sequence[str]) -> pa.Table:
        """Return rows that are not events: with times (`HEARTBEAT`) or texts (the others)."""
        n = max(len(times_us), len(texts))
        columns = {PROGRAM: pa.array(np.full(n, code, np.int32))}
        if times_us:
            columns[TIME_COLUMN] = pa.array(times_us, pa.int64())
        if texts:
            columns[TEXT] = pa.array(texts, pa.string())
        return self._rows(columns, n)

    def _rows(self, columns: dict[str, Any], n: int) -> pa.Table:
        return pa.Table.from_arrays(
            [columns.get(field.name, pa.nulls(n, field.type)) for field in self.row_schema],
            schema=self.row_schema,
        )

    def events_of(self, number: int, rows: pa.Table) -> pa.Table:
        """Return rows that are all of program `number` as its prepared events; undoes `rows_of`."""
        program = self.programs[number]
        slots = self.slots_of[number]
        arrays = [
            rows.column(slot_column(slots[name]) if name in slots else name)
            for name in program.event_schema.names
        ]
        return pa.Table.from_arrays(arrays, schema=program.event_schema)

    def packed_names(self) -> list[str]:
        """Return the columns of rows on their way through pandas (see `unpacked`)."""
        words = [known_column(word) for word in range(self.n_known_words)]
        return [*self.row_schema.names, *words]

    @property
    def n_known_words(self) -> int:
        """Number of bigints that hold the validity of a row's slots."""
        return -(-len(self.slot_types) // KNOWN_BITS)

    def unpacked(self, columns: dict[str, npt.NDArray[Any]]) -> pa.Table:
        """Return rows out of numpy columns as pandas had them.

        pandas would turn an integer column with a NULL into floats, and 2**60 + 1 with it, and takes NaN for
        NULL: so no column but strings comes with NULLs, and `known_column` says which values count.
        """
        arrays = []
        for field in self.row_schema:
            values = columns[field.name]
            if pa.types.is_string(field.type):
                arrays.append(pa.array(values, field.type, from_pandas=True))
                continue
            if field.name.startswith(_SLOT):
                slot = int(field.name.removeprefix(_SLOT))
                known = columns[known_column(slot // KNOWN_BITS)] >> (slot % KNOWN_BITS) & 1 != 0
                if not known.all():
                    arrays.append(pa.array(values, mask=~known).cast(field.type))
                    continue
            arrays.append(pa.array(values).cast(field.type))
        return pa.Table.from_arrays(arrays, schema=self.row_schema)


_SLOT = "_v"


def slot_column(slot: int) -> str:
    """Return the name of the column that holds slot `slot`."""
    return f"{_SLOT}{slot}"
