"""Keys and headers of messages: bytes that are not UTF-8 make a dead letter, never another text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cep.formats.ahead import AheadGuard
from cep.formats.dead_letter import NOT_UTF8
from cep.formats.lines import lines_of_objects
from cep.formats.payloads.registry import payload_format
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.arrow_values import texts_of
from cep.schema.foreign_values import text_of
from cep.schema.stream import Field, Stream
from cep.spool.receivers import amqp as amqp_receiver
from cep.spool.segments import ReceivedBatch, batch_of, block_of, blocks
from spark_runtime.connectors.kafka.librdkafka import Columns
from spark_runtime.connectors.kafka.log import _column, _portion_of_columns
from spark_runtime.connectors.message_logs.log import MessageRange
from spark_runtime.connectors.spool.reading import _column as spool_column

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp"), Field("k", "string")), "ts")


class Message:
    """A message of Kafka's client."""

    def __init__(self, key: bytes | str | None, *headers: tuple[str, bytes | None]) -> None:
        self._key, self._headers = key, list(headers) or None

    def key(self) -> bytes | str | None:
        return self._key

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers


def read(column: pa.Array) -> tuple[list[Any], list[tuple[int, str]]]:
    """Return the column of the events, and the dead letters."""
    n = len(column)
    values = [b'{"id":%d,"ts":"2024-05-01"}' % number for number in range(n)]
    reader = MessageReader(STREAM, payload_format("json"), columns=["k"])
    messages = Messages("t[0]", values, np.arange(n, dtype=np.int64), {"k": column})
    chunk = reader.chunk(messages, AheadGuard(STREAM.max_ahead_us))
    dead = [(row["position"], row["reason"]) for row in chunk.dead_letters.to_pylist()]
    return chunk.events.column("k").to_pylist(), dead


KEYS = [b"\xff\x01", b"\xfe\x01", "käse".encode(), None, b""]
READ = ["käse", None, ""], [(0, NOT_UTF8), (1, NOT_UTF8)]


def of_objects(keys: Sequence[bytes | None]) -> pa.Array:
    return _column("key", [Message(key) for key in keys], np.arange(len(keys)))


def of_columns(keys: Sequence[bytes | None]) -> pa.Array:
    n = len(keys)
    values = lines_of_objects([b"{}"] * n)
    found = Columns(np.arange(n, dtype=np.int64), values, np.zeros(n, bool), keys)
    return _portion_of_columns(found, MessageRange("t", 0, 0, n), ["key"]).columns["key"]


def of_header(keys: Sequence[bytes | None]) -> pa.Array:
    messages = [Message(None, ("h", b"other"), ("h", key)) for key in keys]
    return _column("header.h", messages, np.arange(len(keys)))


@pytest.mark.parametrize("column", [of_objects, of_columns, of_header, texts_of])
def test_bytes_that_are_not_text_make_a_dead_letter(column: Any) -> None:
    assert read(column(KEYS)) == READ


def test_all_headers_are_an_object_with_the_last_of_each_name() -> None:
    messages = [
        Message(None, ("h", b"v"), ("h", b"second"), ("i", None)),
        Message(None),
        Message(None, ("h", b"\xff")),
    ]
    assert read(_column("headers", messages, np.arange(3))) == (
        ['{"h": "second", "i": null}', None],
        [(2, NOT_UTF8)],
    )


def test_of_rabbitmq_they_stay_what_they_are() -> None:
    assert read(texts_of(map(text_of, KEYS))) == READ
    assert amqp_receiver._value({"a": b"\xff"}) != amqp_receiver._value({"a": b"\xfe"})


def test_a_spool_keeps_them(tmp_path: Path) -> None:
    texts = [None if key is None else key.decode(errors="surrogateescape") for key in KEYS]
    given = ReceivedBatch(
        [b"{}"] * len(KEYS), np.zeros(len(KEYS), np.int64), {"key": texts, "header.h": texts}
    )
    data = block_of(given, 0, 0)
    (block,) = blocks(data, 0, len(data))
    batch = batch_of(data, block)
    assert read(spool_column("key", batch, np.arange(len(KEYS)))) == READ
    found, dead = read(spool_column("headers", batch, np.arange(len(KEYS))))
    assert found == ['{"h": "käse"}', None, '{"h": ""}']
    assert dead == READ[1]
