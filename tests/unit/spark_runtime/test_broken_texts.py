"""Strings of DataFrames that are not UTF-8, as Spark's `cast(X'FF' as string)` gives them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cep.counts import Counts
from cep.formats.ahead import ANY_TIME_US, AheadGuard
from cep.formats.chunks import Chunk
from cep.formats.payloads.registry import payload_format
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.stream import Field, Stream
from spark_runtime.dataflow.frame_readers import Renamed, TypedReader

STREAM = Stream("t", (Field("ts", "timestamp"), Field("k", "string")), event_time="ts")


class Packed:
    """Keeps what a reader packs."""

    def __init__(self) -> None:
        self.chunks: list[Chunk] = []

    def keys_of(self, _: Stream) -> tuple[tuple[str, ...], ...]:
        return (("k",),)

    def chunk(self, chunk: Chunk, *_: object, **__: object) -> Iterator[pa.RecordBatch]:
        self.chunks.append(chunk)
        return iter(())

    def counted(self, _: Counts) -> Iterator[pa.RecordBatch]:
        return iter(())


def broken() -> pa.Array:
    """Return "a", a byte that begins no character, and "é"."""
    offsets = pa.array([0, 1, 2, 4], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"a\xff\xc3\xa9")])


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_row_of_a_dataframe_with_a_string_that_is_no_text_is_no_event(is_checked: bool) -> None:
    packed = Packed()
    reader = Renamed(TypedReader(packed, STREAM, is_checked=is_checked), ("ts", "k"))  # type: ignore[arg-type]
    batch = pa.record_batch([pa.array([1, 2, 3]), broken()], names=["_0", "_1"])
    assert list(reader([batch])) == []
    (chunk,) = packed.chunks
    assert chunk.events.column("k").to_pylist() == ["a", "é"]
    expected = [("not UTF-8 text", '{"ts":2,"k":"\ufffd"}')] if is_checked else []
    dead = chunk.dead_letters.to_pylist()
    assert [(row["reason"], row["raw"]) for row in dead] == expected


@pytest.mark.parametrize("is_checked", [False, True])
def test_opaque_values_have_the_texts_that_they_have_without_spark(is_checked: bool) -> None:
    """A value that Python cannot hold is a dead letter, as in a Parquet file."""
    stream = replace(
        STREAM, fields=(*STREAM.fields, Field("a", "array<double>"), Field("b", "array<timestamp>"))
    )
    numbers = pa.array([[1e7, 1e20, 1e-5, None], None, []], pa.list_(pa.float64()))
    times = pa.array([[0], None, [2**62]], pa.list_(pa.int64())).cast(
        pa.list_(pa.timestamp("us", "Asia/Tokyo"))
    )
    batch = pa.record_batch(
        [pa.array([1, 2, 3]), pa.array(["x"] * 3), numbers, times], names=["ts", "k", "a", "b"]
    )
    packed = Packed()
    assert list(TypedReader(packed, stream, is_checked=is_checked)([batch])) == []  # type: ignore[arg-type]
    (chunk,) = packed.chunks
    assert chunk.events.column("a").to_pylist() == ["[10000000.0,1e+20,1e-05,null]", None]
    assert chunk.events.column("b").to_pylist() == ['["1970-01-01T00:00:00.000000Z"]', None]
    dead = [row["reason"] for row in chunk.dead_letters.to_pylist()]
    assert [reason.partition(":")[0] for reason in dead] == [
        "field `b` is not of type array<timestamp>"
    ] * is_checked


def test_a_column_of_messages_that_is_no_text_is_a_dead_letter() -> None:
    reader = MessageReader(STREAM, payload_format("json", {}), (("k",),), ("k",))
    messages = Messages("t", [b'{"ts": "2024-05-01"}'] * 3, np.arange(5, 8), {"k": broken()})
    chunk = reader.chunk(messages, AheadGuard(ANY_TIME_US))
    assert chunk.events.column("k").to_pylist() == ["a", "é"]
    assert chunk.dead_letters.select(["reason", "position"]).to_pylist() == [
        {"reason": "not UTF-8 text", "position": 6}
    ]
