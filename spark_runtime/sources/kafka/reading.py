"""How topics are read: settings, and what makes of them a client and a reader of messages.

Executors read this: it imports nothing of the compiler, and librdkafka only when a client is made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from cep.formats.payloads.registry import payload_format
from cep.formats.protocol import RecordFormat
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.stream import Stream
from spark_runtime.kafka_connection import Client, Connection, no_topic
from spark_runtime.sources.kafka.fetch import TAKEN

HEADER = "header."
METADATA = ("key", "headers", "topic", "partition", "offset", "timestamp")
"""What may be a column besides the value; also `HEADER` and the name of a header."""

EARLIEST, LATEST = "earliest", "latest"

Begin = str | int | Mapping[str, int]
"""Where a stream begins: `EARLIEST`, `LATEST`, microseconds since 1970, or offsets by partition, such as
``{"orders[0]": 17}``."""


@dataclass(frozen=True, slots=True)
class KafkaReading:
    """How the messages of topics become events of `stream`.

    Parameters
    ----------
    topics
        The topics; with `pattern` those whose names match it as a whole.
    begin
        Where a stream begins.
    value_format
        The format of the values.
    keys
        Keys of the rules: an event with a NULL in each of them is a dead letter.
    columns
        What is a column besides the value (`METADATA`), by the name of the column.
    max_events
        Messages of one micro-batch.
    goes_on_without
        Whether messages that retention has removed before they were read are counted and passed over.
    has_dead_tombstones
        Whether a message without a value is a dead letter. Else it is only counted.
    log
        The file in which a stream writes down where it began.
    """

    stream: Stream
    connection: Connection
    topics: tuple[str, ...]
    pattern: str = ""
    begin: Begin = EARLIEST
    value_format: RecordFormat = field(default_factory=lambda: payload_format("json"))
    keys: tuple[tuple[str, ...], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    max_events: int | None = None
    isolation: str = "read_committed"
    goes_on_without: bool = False
    has_dead_tombstones: bool = False
    log: str = ""

    def client(self, **more: Any) -> Client:
        """Return a consumer that is in no group and stores no offsets; raises InputError."""
        from confluent_kafka import Consumer

        ours = {
            "group.id": "cep",  # librdkafka wants a name; nothing is stored under it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self.isolation,
            "enable.partition.eof": True,
            # What is asked for is there: a fetch does not wait for more.
            "fetch.wait.max.ms": 10,
            # By default it fetches 100,000 messages ahead, mostly beyond the end of the range.
            "queued.min.messages": 5 * TAKEN,
            # By default it pauses for a second when it has fetched enough, though it is taken at once.
            "fetch.queue.backoff.ms": 2,
        }
        return Client(Consumer, self.connection, {**ours, **more})

    def found_topics(self, client: Client) -> tuple[str, ...]:
        """Return the topics that are there now; raises InputError if there are none."""
        if not self.pattern:
            return self.topics
        form = re.compile(self.pattern)
        found = tuple(sorted(name for name in client.metadata() if form.fullmatch(name)))
        if not found:
            raise no_topic(f"topic of the pattern `{self.pattern}`", self.connection.brokers)
        return found

    def message_reader(self) -> MessageReader:
        """Return what decodes values."""
        return MessageReader(self.stream, self.value_format, self.keys, tuple(self.columns))

    def as_messages(self, origin: str, messages: Sequence[Any]) -> Messages:
        """Return messages of librdkafka, which have values, with the columns that the stream wants."""
        values = [message.value() for message in messages]
        offsets = np.array([message.offset() for message in messages], np.int64)
        columns = {name: _column(what, messages, offsets) for name, what in self.columns.items()}
        return Messages(origin, values, offsets, columns)


def _column(what: str, messages: Sequence[Any], offsets: np.ndarray[Any, Any]) -> pa.Array:
    """Return something of messages besides their values: texts, or times in microseconds since 1970."""
    match what:
        case "key":
            return pa.array([_text(message.key()) for message in messages], pa.string())
        case "topic":
            return pa.array([message.topic() for message in messages], pa.string())
        case "partition":
            return pa.array([str(message.partition()) for message in messages], pa.string())
        case "offset":
            return pa.array(offsets).cast(pa.string())
        case "timestamp":
            times = (message.timestamp() for message in messages)
            # Type 0: the message has none.
            return pa.array([at_ms * 1000 if kind else None for kind, at_ms in times], pa.int64())
        case "headers":
            return pa.array([_all_headers(message.headers()) for message in messages], pa.string())
        case _:
            name = what.removeprefix(HEADER)
            return pa.array([_header(message.headers(), name) for message in messages], pa.string())


def _text(value: bytes | str | None) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _header(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> str | None:
    """Return the last header of a name: Kafka lets a message have several."""
    return next((_text(value) for found, value in reversed(headers or ()) if found == name), None)


def _all_headers(headers: Sequence[tuple[str, bytes | None]] | None) -> str | None:
    """Return the headers as a JSON object."""
    if headers is None:
        return None
    return json.dumps({name: _text(value) for name, value in headers}, ensure_ascii=False)
