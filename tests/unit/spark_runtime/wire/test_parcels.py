"""Parcels: what is written is read, whatever they contain."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa
import pytest

from spark_runtime.wire.parcels import (
    PARCEL_COLUMNS,
    PARCEL_SCHEMA,
    Contents,
    Parcel,
    of_batch,
    of_frame,
    parcels,
    record_bytes,
    table_of_bytes,
    which,
)

TABLE = pa.table({"n": pa.array([1, 2], pa.int64())})
BATCH = pa.Table.from_batches(
    [
        parcels([7], Contents.EVENTS, program=3, data=[record_bytes(TABLE)]),
        parcels([7, 8], Contents.DEAD_LETTER, texts=["a", "b"]),
        parcels([7], Contents.EVENTS, program=0, data=[record_bytes(TABLE)]),
        parcels([7], Contents.COUNTS, texts=["{}"], latest_us=-5),
        parcels([8], Contents.LATE_EVENTS, texts=["s"], data=[record_bytes(TABLE)]),
        parcels([8], Contents.END_OF_INPUT),
        parcels([8], Contents.NOTHING),
    ]
).combine_chunks()


def read_batch(found: pa.Table) -> Iterable[Parcel]:
    (batch,) = found.to_batches()
    return of_batch(batch)


def read_frame(found: pa.Table) -> Iterable[Parcel]:
    return of_frame(found.select(PARCEL_COLUMNS).to_pandas())


@pytest.mark.parametrize("read", [read_batch, read_frame])
def test_what_is_written_is_read(read: Callable[[pa.Table], Iterable[Parcel]]) -> None:
    assert BATCH.schema == PARCEL_SCHEMA
    found = list(read(BATCH))
    assert [(parcel.contents, parcel.program, parcel.text) for parcel in found] == [
        (Contents.EVENTS, 3, None),
        (Contents.DEAD_LETTER, None, "a"),
        (Contents.DEAD_LETTER, None, "b"),
        (Contents.EVENTS, 0, None),
        (Contents.COUNTS, None, "{}"),
        (Contents.LATE_EVENTS, None, "s"),
        (Contents.END_OF_INPUT, None, None),
        (Contents.NOTHING, None, None),
    ]
    assert all(type(parcel.program) is int for parcel in found if parcel.contents is Contents.EVENTS)
    with_data = [parcel for parcel in found if parcel.data is not None]
    assert [parcel.contents for parcel in with_data] == [
        Contents.EVENTS,
        Contents.EVENTS,
        Contents.LATE_EVENTS,
    ]
    assert all(table_of_bytes(parcel.data, TABLE.schema) == TABLE for parcel in with_data)


def test_parcels_are_chosen_by_their_contents_and_by_the_program_of_events() -> None:
    (batch,) = BATCH.to_batches()
    assert which(batch, Contents.DEAD_LETTER).nonzero()[0].tolist() == [1, 2]
    assert which(batch, Contents.EVENTS).nonzero()[0].tolist() == [0, 3]
    assert which(batch, Contents.EVENTS, [1, 3]).nonzero()[0].tolist() == [0]
    assert not which(batch, Contents.EVENTS, []).any()


N = 1000
ANY = pa.array(range(N), pa.int64())
CONSTANTS = {
    "zeros": pa.array([0] * N, pa.int64()),
    "nulls": pa.nulls(N, pa.int64()),
    "no number": pa.nulls(N, pa.float64()),
    "no text": pa.nulls(N, pa.string()),
    "no list": pa.nulls(N, pa.list_(pa.struct({"a": pa.int64()}))),
}


@pytest.mark.parametrize("names", [["zeros"], ["nulls", "no list"], [*CONSTANTS]])
def test_columns_that_are_null_or_zero_everywhere_are_only_named(names: list[str]) -> None:
    columns: dict[str, pa.Array] = {"any": ANY}
    for name in names:
        columns |= {name: CONSTANTS[name], f"after {name}": ANY}
    table = pa.table(columns)
    data = record_bytes(table)
    found = table_of_bytes(data, table.schema)
    found.validate(full=True)
    assert found == table
    others = table.select([name for name in columns if name not in names])
    assert len(data) == len(record_bytes(others)) + 8 + 8 * len(names)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([*[0] * (N - 1), 1], pa.int64()),
        pa.array([None, *[0] * (N - 1)], pa.int64()),
        pa.array([0] * N, pa.int32()),
        pa.array([-0.0] * N, pa.float64()),
        pa.array([False] * N, pa.bool_()),
        pa.array([""] * N, pa.string()),
    ],
)
def test_other_columns_are_written(column: pa.Array) -> None:
    table = pa.table({"any": ANY, "column": column})
    data = record_bytes(table)
    assert data.startswith(b"\xff\xff\xff\xff"), "a message of Arrow"
    found = table_of_bytes(data, table.schema)
    assert found == table
    assert str(found) == str(table), "also the sign of 0"


def test_the_first_column_is_written_so_that_rows_can_be_counted() -> None:
    table = pa.table({"zeros": CONSTANTS["zeros"], "nulls": CONSTANTS["nulls"]})
    assert table_of_bytes(record_bytes(table), table.schema) == table
