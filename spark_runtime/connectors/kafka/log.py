"""Kafka topics as a log of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cep.schema.arrow_values import texts_of
from spark_runtime.connectors.kafka.connection import Client, Connection, no_topic, patiently
from spark_runtime.connectors.kafka.fetch import (
    TAKEN,
    begins,
    ends,
    first_messages,
    first_offsets,
    portions,
    require_right,
    topic_ids,
)
from spark_runtime.connectors.kafka.librdkafka import Columns, ColumnTaker, column_taker, together
from spark_runtime.connectors.kafka.taking import ObjectTaker
from spark_runtime.connectors.message_logs.log import (
    HEADER,
    PEEK_MESSAGES,
    Incarnation,
    LogWords,
    MessageRange,
    Place,
    Portion,
)
from spark_runtime.event_time.partitions import place_text

METADATA = ("key", "headers", "topic", "partition", "offset", "timestamp")
"""What may be a column in addition to the value; also `HEADER` and the name of a header."""

OF_COLUMNS = frozenset(("key", "topic", "partition", "offset"))
"""The part of `METADATA` that needs no object for each message."""

_PEEK_SECONDS = 5.0
_PEEK_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """Topics of a cluster; see `MessageLog`. `isolation`: librdkafka's ``isolation.level``."""

    connection: Connection
    topics: tuple[str, ...] = ()
    pattern: str = ""
    isolation: str = "read_committed"

    reads_ahead = False  # false: offsets count messages

    @property
    def connected_to(self) -> Hashable:
        """The cluster. A client can read all of its topics."""
        return self.connection, self.isolation

    @property
    def words(self) -> LogWords:
        """The words for topics in errors."""
        return LogWords("topic", self.connection.brokers, unknown="E0851", lost="E0854")

    def open(self) -> KafkaClient:
        """Return a client; it connects when it is used."""
        return KafkaClient(self)

    def origin(self, place: Place) -> str:
        """Return topic and partition: ``orders[3]``."""
        return place_text(*place)

    def consumer(self, **more: Any) -> Client:
        """Return a consumer that is in no group and stores no offsets; raises InputError."""
        from confluent_kafka import Consumer

        return Client(Consumer, self.connection, {**self.consumer_settings(), **more})

    def admin(self) -> Client:
        """Return a client that describes topics; raises InputError."""
        from confluent_kafka.admin import AdminClient

        return Client(AdminClient, self.connection, {})

    def consumer_settings(self) -> dict[str, Any]:
        """Return librdkafka's settings of a consumer."""
        return {
            "group.id": "cep",  # librdkafka requires a name; nothing is stored under it
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            "isolation.level": self.isolation,
            "enable.partition.eof": True,
            # The requested messages exist: a fetch must not wait for more.
            "fetch.wait.max.ms": 10,
            # By default it fetches 100,000 messages ahead, mostly beyond the end of the range.
            "queued.min.messages": 5 * TAKEN,
            # By default it pauses for a second after fetching enough, although everything is taken at once.
            "fetch.queue.backoff.ms": 2,
        }


class KafkaClient:
    """Consumers of a cluster; see `LogClient`."""

    def __init__(self, log: KafkaLog) -> None:
        self._log = log
        self._consumer = log.consumer()
        self._peeking: Client | None = None  # reads a few messages of each partition
        self._admin: Client | None = None  # reads the identifiers of topics
        self._taker: ColumnTaker | None = None  # a separate consumer
        self._has_looked = False

    def require_right(self) -> None:
        """Fetch from the end of each topic."""
        for topic in self._topics():
            require_right(self._consumer, topic, self._consumer.partitions(topic)[0])

    def _topics(self) -> tuple[str, ...]:
        """Return the existing topics; raise InputError if there are none."""
        if not self._log.pattern:
            return self._log.topics
        form = re.compile(self._log.pattern)
        found = tuple(sorted(name for name in self._consumer.metadata() if form.fullmatch(name)))
        if not found:
            raise no_topic(f"topic of the pattern `{self._log.pattern}`", self._log.connection.brokers)
        return found

    def places(self) -> list[Place]:
        """Return the partitions of the topics."""
        return [(topic, number) for topic in self._topics() for number in self._consumer.partitions(topic)]

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the first offset that each partition still has."""
        return patiently(lambda: begins(self._consumer, list(places)))

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the end offset of each partition that this reader may see: before open transactions."""
        return patiently(lambda: ends(self._consumer, list(places)))

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return the identifiers of topics; brokers before Kafka 2.8 have none."""
        if not known:
            return {}
        if self._admin is None:
            self._admin = self._log.admin()
        admin = self._admin
        found = patiently(lambda: topic_ids(admin, list(known)))
        return {topic: Incarnation.of(found[topic], text) for topic, text in known.items()}

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return the first offset at a time or later."""
        behind = self.ends(places)
        at_ms = -(-time_us // 1000)
        of_time = patiently(lambda: first_offsets(self._consumer, dict.fromkeys(places, at_ms)))
        return {place: behind[place] if at < 0 else at for place, at in of_time.items()}

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield the messages of a range of offsets."""
        taker = self._column_taker() if OF_COLUMNS.issuperset(columns) else None
        if taker is None:
            for objects in portions(self._consumer, ObjectTaker(self._consumer), part):
                yield _portion(list(chain.from_iterable(objects)), columns)
            return
        taker.has_keys = "key" in columns
        for found in portions(self._consumer, taker, part):
            yield _portion_of_columns(together(found), part, columns)

    def _column_taker(self) -> ColumnTaker | None:
        """Return a `ColumnTaker`, or None if messages must be read as objects."""
        if not self._has_looked:
            self._has_looked = True
            ours = self._log.consumer_settings()
            self._taker = column_taker(self._log.connection, ours, self._consumer.noted, TAKEN)
        return self._taker

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two offsets of each partition."""
        if self._peeking is None:
            few = {"fetch.message.max.bytes": _PEEK_BYTES, "queued.min.messages": PEEK_MESSAGES}
            self._peeking = self._log.consumer(**few)
        found = first_messages(self._peeking, ranges, PEEK_MESSAGES, _PEEK_SECONDS)
        return {
            place: None if messages is None else _portion(messages, columns)
            for place, messages in found.items()
        }

    def close(self) -> None:
        """Close the connections."""
        self._consumer.client.close()
        if self._peeking is not None:
            self._peeking.client.close()
        if self._taker is not None:
            self._taker.close()


def _portion(messages: Sequence[Any], columns: Sequence[str]) -> Portion:
    """Return a portion of messages that were read as objects."""
    from confluent_kafka import Message

    values = list(map(Message.value, messages))
    offsets = np.fromiter(map(Message.offset, messages), np.int64, len(messages))
    return Portion(values, offsets, {what: _column(what, messages, offsets) for what in columns})


def _portion_of_columns(found: Columns, part: MessageRange, columns: Sequence[str]) -> Portion:
    """Return a portion of messages that were read as columns."""
    n = len(found)
    more: dict[str, pa.Array] = {}
    for what in columns:
        match what:
            case "key":
                more[what] = texts_of(found.keys)
            case "topic":
                more[what] = pa.array([part.log] * n, pa.string())
            case "partition":
                more[what] = pa.array([str(part.partition)] * n, pa.string())
            case _:
                more[what] = pa.array(found.offsets).cast(pa.string())
    return Portion(found.values, found.offsets, more, found.is_none if found.is_none.any() else None)


def _column(what: str, messages: Sequence[Any], offsets: np.ndarray[Any, Any]) -> pa.Array:
    """Return metadata of messages: texts, or times in microseconds since 1970."""
    match what:
        case "key":
            return texts_of(message.key() for message in messages)
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
            return texts_of(_all_headers(message.headers()) for message in messages)
        case _:
            name = what.removeprefix(HEADER)
            return texts_of(_header(message.headers(), name) for message in messages)


def _header(headers: Sequence[tuple[str, bytes | None]] | None, name: str) -> bytes | None:
    """Return the last header with a name: a message may have several."""
    return next((value for found, value in reversed(headers or ()) if found == name), None)


def _all_headers(headers: Sequence[tuple[str, bytes | None]] | None) -> str | None:
    """Return the headers as a JSON object; the last of several with the same name."""
    if headers is None:
        return None
    texts = {
        name: value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
        for name, value in headers
    }
    return json.dumps(texts, ensure_ascii=False)
