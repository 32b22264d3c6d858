"""JSON lines -> columns of typed events, for plain lines (`read_lines` defines them).

The kernel is used where it has been compiled (`cep warm`, a run). No reader waits for the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, U8, Mask
from cep.expression import Type
from cep.formats.lines import Lines
from cep.formats.text.json.kernel import (
    COUNT,
    DAY,
    FLAG,
    N_BUCKETS,
    OTHER,
    OUTSIDE,
    PRESENT,
    PRESENT_REAL,
    REAL,
    ROOT,
    TEXT,
    TIME,
    WHOLE,
    Columns,
    Names,
    bucket_of_bytes,
    read_lines,
)
from cep.formats.text.json.scan import MAX_SKIPPED_NESTING
from cep.jit.compiled import Kernel
from cep.schema.stream import Field, Stream
from cep.schema.text_values import column_from_text, event_table_schema, fit_column, integer_range
from cep.schema.time_values import END_US, FIRST_US, times_of_numbers

MAX_PLACE = 30
"""Levels of a place at which a column may stand. The kernel skips `MAX_SKIPPED_NESTING` more."""

N_USUAL = 256
"""Names of an object whose order is remembered."""

_PART_BYTES = 1 << 20
"""Bytes of lines in one call of the kernel, about: what it writes stays in the processor's cache."""

_MOST_BYTES = 1 << 30
"""Bytes of lines that the kernel reads at once: places in a column of texts have 32 bits."""


@dataclass(frozen=True, slots=True)
class FieldPlan:
    """What the kernel searches for one stream: `Names` and `Columns` without the parts that change."""

    text: U8
    ptr: I64
    inside: I64
    column: I64
    same: I64
    enclosing: I64
    bucket: I64
    next_name: I64
    kind: I64
    low: I64
    high: I64
    text_number: I64

    @property
    def n_texts(self) -> int:
        """The number of columns with strings."""
        return int((self.kind == TEXT).sum())


@lru_cache(maxsize=64)
def plan_of(stream: Stream) -> FieldPlan | None:
    """Return the plan for a stream; None: the kernel does not read its lines."""
    names: dict[tuple[int, str], int] = {}  # object, name -> column, or -1 - object
    enclosing = [OUTSIDE]
    for number, field in enumerate(stream.fields):
        *way, last = field.place
        if field.type is Type.OPAQUE or field.element or len(way) >= MAX_PLACE:
            return None
        inside = ROOT
        for name in way:
            found = names.setdefault((inside, name), -1 - len(enclosing))
            if found >= 0:
                return None
            if found == -1 - len(enclosing):
                enclosing.append(inside)
            inside = -1 - found
        if names.setdefault((inside, last), number) != number:
            return None
    spellings = [(*key, text) for key in names for text in _spellings(key[1])]
    bucket, next_name = np.full(N_BUCKETS, OTHER, np.int64), np.full(len(spellings), OTHER, np.int64)
    for number, (inside, _, text) in enumerate(spellings):
        at = bucket_of_bytes(inside, text)
        next_name[number], bucket[at] = bucket[at], number
    first = {(inside, name): number for number, (inside, name, _) in reversed([*enumerate(spellings)])}
    texts = [text for _, _, text in spellings]
    kinds = [_kind(field) for field in stream.fields]
    ranges = [_range(field) for field in stream.fields]
    is_text = np.array(kinds) == TEXT
    return FieldPlan(
        text=np.frombuffer(b"".join(texts) or b"\0", np.uint8),
        ptr=np.cumsum([0, *map(len, texts)]),
        inside=np.array([inside for inside, _, _ in spellings], np.int64),
        column=np.array([names[inside, name] for inside, name, _ in spellings], np.int64),
        same=np.array([first[inside, name] for inside, name, _ in spellings], np.int64),
        enclosing=np.array(enclosing, np.int64),
        bucket=bucket,
        next_name=next_name,
        kind=np.array(kinds, np.int64),
        low=np.array([low for low, _ in ranges], np.int64),
        high=np.array([high for _, high in ranges], np.int64),
        text_number=np.cumsum(is_text) - 1,
    )


def _spellings(name: str) -> Iterable[bytes]:
    """Return the usual forms of a name in JSON: as it is, and in ASCII; both without quotes."""
    return dict.fromkeys(json.dumps(name, ensure_ascii=is_ascii)[1:-1].encode() for is_ascii in (False, True))


def _kind(field: Field) -> int:
    match field.type:
        case Type.STRING:
            return TEXT
        case Type.BOOLEAN:
            return FLAG
        case Type.BIGINT:
            return WHOLE
        case Type.DOUBLE:
            return REAL
        case _ if field.unit:
            return COUNT
        case _ if field.format or field.zone:
            return TEXT
        case _:
            return DAY if field.ddl == "date" else TIME


def _range(field: Field) -> tuple[int, int]:
    if field.type is Type.BIGINT:
        return integer_range(field.ddl)
    if field.type is Type.TIMESTAMP and not field.unit:
        return FIRST_US, END_US - 1
    return integer_range("bigint")


def is_ready(*, look_on_disk: bool) -> bool:
    """Return whether the kernel is compiled, in this process or, if requested, on disk."""
    if not isinstance(read_lines, Kernel):
        return False  # as Python it is slower than any other way
    return bool(read_lines.keys) or (look_on_disk and read_lines.is_compiled())


def compile_kernel() -> None:
    """Compile the kernel, or load it from disk."""
    if not isinstance(read_lines, Kernel):
        return
    stream = Stream("warm", (Field("ts", "timestamp"),), "ts")
    plan = plan_of(stream)
    assert plan is not None
    data = np.frombuffer(b"{}\n", np.uint8)
    _read(Lines(data, np.array([0]), np.array([2])), stream, plan)


def plain_events(lines: Lines, stream: Stream, plan: FieldPlan) -> tuple[pa.Table, I64, I64]:
    """Return the events of plain lines, the line of each, and all other lines.

    Returns
    -------
    events
        See `cep.schema.text_values.event_table_schema`.
    rows
        int64[n_events], ascending: the line of each event.
    others
        int64[n], ascending: lines for another reader, whether they are events or not.
    """
    if len(lines) == 0:
        return _read(lines, stream, plan)
    n_bytes = int(lines.ends[-1] - lines.starts[0])
    step = max(1, len(lines) * _PART_BYTES // max(n_bytes, 1))
    parts = [(row, _read(lines[row : row + step], stream, plan)) for row in range(0, len(lines), step)]
    if len(parts) == 1:
        return parts[0][1]
    events = pa.concat_tables([found[0] for _, found in parts]).combine_chunks()
    rows, others = (np.concatenate([row + found[at] for row, found in parts]) for at in (1, 2))
    return events, rows, others


def _read(lines: Lines, stream: Stream, plan: FieldPlan) -> tuple[pa.Table, I64, I64]:
    n, n_columns = len(lines), len(plan.kind)
    n_bytes = int(lines.ends[-1] - lines.starts[0]) if n else 0
    if n_bytes > _MOST_BYTES:
        return event_table_schema(stream).empty_table(), np.zeros(0, np.int64), np.arange(n)
    names = Names(
        text=plan.text,
        ptr=plan.ptr,
        inside=plan.inside,
        column=plan.column,
        same=plan.same,
        enclosing=plan.enclosing,
        bucket=plan.bucket,
        next_name=plan.next_name,
        usual=np.full(N_USUAL, OTHER, np.int64),
        seen=np.full(len(plan.column), -1, np.int64),
        is_list=np.zeros(MAX_SKIPPED_NESTING + 1, np.uint8),
    )
    numbers = np.zeros((n_columns, n), np.int64)
    columns = Columns(
        kind=plan.kind,
        low=plan.low,
        high=plan.high,
        text_number=plan.text_number,
        state=np.zeros((n_columns, n), np.uint8),
        numbers=numbers,
        reals=numbers.view(np.float64),
        texts=np.empty((plan.n_texts, n_bytes), np.uint8),
        ends=np.zeros((plan.n_texts, n + 1), np.int32),
        text_end=np.zeros(plan.n_texts, np.int64),
    )
    rows, others = np.empty(n, np.int64), np.empty(n, np.int64)
    n_events = read_lines(lines.data, lines.starts, lines.ends, names, columns, rows, others)
    rows, others = rows[:n_events], others[: n - n_events]
    is_event = np.ones(n_events, dtype=bool)
    arrays: list[pa.Array] = []
    for number, field in enumerate(stream.fields):
        values, bad = _column(columns, number, field, n_events)
        arrays.append(values)
        if bad is not None:
            is_event &= ~bad
    events = pa.Table.from_arrays(arrays, schema=event_table_schema(stream))
    if not is_event.all():
        others = np.sort(np.concatenate([others, rows[~is_event]]))
        events, rows = events.filter(pa.array(is_event)).combine_chunks(), rows[is_event]
    return events, rows, others


def _column(columns: Columns, number: int, field: Field, n: int) -> tuple[pa.Array, Mask | None]:
    """Return a column of `n` events, and where another reader must read the value; None: nowhere."""
    state = columns.state[number, :n]
    values = columns.numbers[number, :n]
    kind = columns.kind[number]
    if kind == TEXT:
        at = columns.text_number[number]
        ends = columns.ends[at, : n + 1]
        texts = _of_buffers(pa.string(), state == PRESENT, ends, columns.texts[at, : ends[-1]])
        return (texts, None) if field.type is Type.STRING else column_from_text(texts, field)
    if kind == FLAG:
        bits = np.packbits(values != 0, bitorder="little")
        return _of_buffers(pa.bool_(), state == PRESENT, bits), None
    if kind == REAL:
        reals = _of_buffers(pa.float64(), state == PRESENT, values)
        return (reals, None) if field.ddl == "double" else fit_column(reals, field)
    wholes = _of_buffers(pa.int64(), state == PRESENT, values)
    if kind != COUNT:
        return wholes, None
    times, bad = times_of_numbers(wholes, field.unit)
    if (state == PRESENT_REAL).any():
        reals = _of_buffers(pa.float64(), state == PRESENT_REAL, values)
        others, no_time = times_of_numbers(reals, field.unit)
        times, bad = pc.coalesce(times, others), bad | no_time
    return times, bad


def _of_buffers(kind: pa.DataType, is_known: Mask, *content: npt.NDArray[Any]) -> pa.Array:
    """Return a column with separate memory: keeping one must not keep all others."""
    n_null = len(is_known) - int(np.count_nonzero(is_known))
    known = pa.py_buffer(np.packbits(is_known, bitorder="little")) if n_null else None
    return pa.Array.from_buffers(
        kind, len(is_known), [known, *(pa.py_buffer(values.copy()) for values in content)], n_null
    )
