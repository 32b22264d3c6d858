"""Parcels: the operator's input, one binary value for many events of one key group and program.

Spark moves, sorts and passes to Python one row for many thousands of events. If each event were a row, Spark
would convert, shuffle and sort each one, and put it into a pandas frame.

Parcels are written and read only here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from cep.engine.prepare.columns import nulls, zeros
from spark_runtime.wire.output import TEXT

if TYPE_CHECKING:
    import pandas as pd

    from cep.arrays import Mask


class Contents(IntEnum):
    """The contents of a parcel. *Text* and *data* are the fields of `Parcel`."""

    EVENTS = 0
    """Prepared events of a program, or versions of its tables. Data: its `event_schema`. Text: `arrival`, or
    None."""

    COUNTS = 1
    """Text: `cep.counts.Counts` as JSON."""

    DEAD_LETTER = 2
    """Text: the dead letter as JSON."""

    LATE_EVENTS = 3
    """Events that are late. Text: their stream. Data: its `late_schema`."""

    MAY_BE_LATE = 4
    """Whole events; the operator decides whether they are late. Text: their stream. Data: its
    `event_table_schema`."""

    EXTENT = 5
    """The first and last times of some events. Text: stream, times and last time as JSON."""

    OUTPUT = 6
    """Output of an earlier stage. Text: its kind and text as JSON. Data: its matches."""

    NOTHING = 7
    """Empty: makes Spark call the operator, or moves Spark's watermark."""

    END_OF_INPUT = 8
    """The input is complete."""


GROUP = "_group"
"""Column: the key group, as a label that Spark sends to the intended partition (see `key_groups`)."""

LATEST = "_latest"
"""Column: the latest event time that was read, for the watermark; NULL if another parcel has it."""

CONTENTS = "_contents"
"""Column: the number of the `Contents`."""

PROGRAM = "_program"
"""Column: the number of the program of the events; NULL in all other parcels."""

DATA = "_data"
"""Column: a table as `record_bytes`, or NULL."""

PARCEL_SCHEMA = pa.schema(
    [
        pa.field(GROUP, pa.int32()),
        pa.field(LATEST, pa.int64()),
        pa.field(CONTENTS, pa.int8()),
        pa.field(PROGRAM, pa.int32()),
        pa.field(TEXT, pa.string()),
        pa.field(DATA, pa.binary()),
    ]
)

PARCEL_COLUMNS = (CONTENTS, PROGRAM, TEXT, DATA)
"""The columns of a `Parcel`: `PARCEL_SCHEMA` without those that only Spark needs."""


class Parcel(NamedTuple):
    """One parcel, as the operator gets it.

    `contents`: the kind of contents. `program`: the number of the program of `EVENTS`; None in other parcels.
    `text` and `data`: see `Contents`; None if the contents have none.
    """

    contents: Contents
    program: int | None
    text: str | None
    data: bytes | pa.Buffer | None


def arrival(place: int, chunk: int) -> str:
    """Return a text that sorts parcels of events in the order in which these arrived, however Spark brings
    them: by the place of their range in the micro-batch (`Plan.order`), then by their chunk in it.
    """
    return f"{place:09}:{chunk:09}"


def parcels(
    labels: Sequence[int],
    contents: Contents,
    *,
    program: int | None = None,
    texts: Sequence[str | None] | None = None,
    data: Sequence[bytes | None] | pa.Array | None = None,
    latest_us: int | None = None,
) -> pa.RecordBatch:
    """Return parcels (`PARCEL_SCHEMA`), one for each of the key groups `labels`.

    `texts` and `data`: one for each of `labels`; None if the contents have none. `latest_us`: the latest
    event time that was read; None: another parcel has it.
    """
    n = len(labels)
    columns = [
        labels,
        None if latest_us is None else [latest_us] * n,
        [contents] * n,
        None if program is None else [program] * n,
        texts,
        data,
    ]
    arrays = [_column(values, field.type, n) for values, field in zip(columns, PARCEL_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PARCEL_SCHEMA)


def _column(values: Sequence[Any] | pa.Array | None, kind: pa.DataType, n: int) -> pa.Array:
    if values is None:
        return pa.nulls(n, kind)
    return values if isinstance(values, pa.Array) else pa.array(values, kind)


def of_frame(frame: pd.DataFrame) -> Iterator[Parcel]:
    """Yield the parcels of a DataFrame of pandas with `PARCEL_COLUMNS`."""
    for contents, program, text, data in zip(*(frame[name] for name in PARCEL_COLUMNS), strict=True):
        # pandas turns a column with NULL into floats.
        number = int(program) if contents == Contents.EVENTS else None
        yield Parcel(Contents(contents), number, text, data)


def of_batch(batch: pa.RecordBatch) -> Iterator[Parcel]:
    """Yield the parcels of a batch of `PARCEL_SCHEMA`; their bytes are not copied."""
    columns = (batch.column(name).to_pylist() for name in (CONTENTS, PROGRAM, TEXT))
    for contents, program, text, data in zip(*columns, batch.column(DATA), strict=True):
        yield Parcel(Contents(contents), program, text, data.as_buffer() if data.is_valid else None)


def which(batch: pa.RecordBatch, contents: Contents, programs: Sequence[int] | None = None) -> Mask:
    """Return bool[n]: which parcels have these contents and belong to one of `programs`, if given."""
    found: Mask = np.asarray(batch.column(CONTENTS)) == contents
    if programs is not None:
        found &= np.isin(np.asarray(batch.column(PROGRAM).fill_null(-1)), programs)
    return found


def record_bytes(table: pa.Table) -> bytes:
    """Return the rows of a nonempty table as bytes, without its schema."""
    return b"".join(record_parts(table))


def record_parts(table: pa.Table) -> list[bytes | pa.Buffer]:
    """Return `record_bytes` in parts.

    Columns that are NULL everywhere, or 0, are only named: events have several such columns for versions of
    tables, and versions for events.
    """
    (batch,) = table.combine_chunks().to_batches()
    left_out = {at: code for at, column in enumerate(batch.columns) if at and (code := _constant(column))}
    if not left_out:
        return [batch.serialize()]
    kept = batch.select([at for at in range(batch.num_columns) if at not in left_out])
    pairs = np.array([(_LEFT_OUT, len(left_out)), *left_out.items()], np.int32)
    return [pairs.tobytes(), kept.serialize()]


def _constant(column: pa.Array) -> int:
    """Return which value all rows of a column have, if it need not be written."""
    if column.null_count:
        return _IS_NULL if column.null_count == len(column) else 0
    is_number = column.type == pa.int64() and column[0].as_py() == 0
    return _IS_ZERO if is_number and not np.asarray(column).any() else 0


def table_of_bytes(data: bytes | pa.Buffer, schema: pa.Schema) -> pa.Table:
    """Return the table that `record_bytes` wrote."""
    buffer = pa.py_buffer(data)
    mark, n = np.frombuffer(buffer, np.int32, 2).tolist()
    if mark != _LEFT_OUT:
        return pa.Table.from_batches([pa.ipc.read_record_batch(buffer, schema)])
    left_out = dict(zip(*np.frombuffer(buffer, np.int32, 2 * n, 8).reshape(n, 2).T.tolist(), strict=True))
    kept = pa.schema([field for at, field in enumerate(schema) if at not in left_out])
    batch = pa.ipc.read_record_batch(buffer.slice(8 + 8 * n), kept)
    n_rows, columns = batch.num_rows, batch.columns
    for at, code in left_out.items():  # in ascending order
        columns.insert(at, zeros(n_rows) if code == _IS_ZERO else nulls(n_rows, schema.field(at).type))
    return pa.Table.from_arrays(columns, schema=schema)


_LEFT_OUT = 0
"""In front of rows without some columns; other rows begin with -1, as all messages of Arrow."""

_IS_NULL, _IS_ZERO = 1, 2
