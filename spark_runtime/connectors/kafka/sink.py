"""Writes a Kafka topic: each micro-batch is one transaction. Only for the driver.

The transaction also stores the number of the micro-batch, as the offset of a consumer group with the name of
the stream; the metadata of the offset contains its plan. So a micro-batch that is repeated after a crash is
skipped if its number is stored. Otherwise its transaction was not committed. Nothing else needs to be stored.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pyarrow as pa

from cep.errors import InputError
from cep.rule_set import KIND, RETRACT, REVISION
from spark_runtime.connectors.kafka.connection import Client, Connection, is_moving, patiently
from spark_runtime.sinks.json_rows import json_rows, value_texts
from spark_runtime.sinks.protocol import Collected, Guarantee, Mark, MicroBatch, Output

_SECONDS = 60.0
"""How many seconds Kafka may take for a step of a transaction."""

_RETRY_SECONDS = 0.1


@dataclass(slots=True)
class TopicSink:
    """A topic; see `TableSink`.

    `key`: the columns that form the key of a message. Several are a JSON array. `has_tombstones`: whether a
    row that withdraws another one is a message without a value.
    """

    output: Output
    connection: Connection
    topic: str
    key: tuple[str, ...] = ()
    has_tombstones: bool = False
    _name: str = ""  # of the producer; a stream has one
    _producer: Client | None = None
    _numbers: Client | None = field(default=None)  # reads and stores the numbers of micro-batches
    _is_begun: bool = False  # whether a transaction is open
    _is_written: bool = False  # whether an earlier run has committed the micro-batch

    guarantee = Guarantee.EXACTLY_ONCE

    def check(self) -> None:
        """Check that the topic exists and can be written; raise InputError if not."""
        from confluent_kafka import Consumer, KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient

        client = self._client(Consumer, {"group.id": "cep"})
        client.partitions(self.topic)
        client.client.close()
        admin = self._client(AdminClient, {})
        asked = TopicCollection([self.topic])
        try:
            allowed = patiently(
                lambda: (
                    admin.client.describe_topics(asked, include_authorized_operations=True)[self.topic]
                    .result(_SECONDS)
                    .authorized_operations
                )
            )
        except KafkaException as error:
            raise self._error(admin, error) from error
        if allowed and not {"ALL", "WRITE"} & {operation.name for operation in allowed}:
            raise InputError(
                "E0852",
                f"`{self.connection.brokers}` refuses access to topic `{self.topic}`: it must not be written",
                "give this user the right to write it",
            )

    def last(self, run: str) -> Mark | None:
        """Return the number that the last transaction stored, after any open transaction has ended."""
        self._open(self._name_for(MicroBatch(run, 0)))
        return self._stored()

    def begin(self, batch: MicroBatch) -> None:
        """Abort an interrupted micro-batch; find out whether this one was written."""
        from confluent_kafka import KafkaException

        name = self._name_for(batch)
        if self._producer is None or name != self._name:
            self._open(name)
        assert self._producer is not None
        try:
            if self._is_begun:
                self._producer.client.abort_transaction(_SECONDS)
                self._is_begun = False
        except KafkaException as error:
            raise self._error(self._producer, error) from error
        stored = None if batch.run is None else self._stored()
        self._is_written = stored is not None and stored.is_of(batch)

    def _stored(self) -> Mark | None:
        """Return the micro-batch whose number is stored."""
        from confluent_kafka import KafkaException, TopicPartition

        assert self._numbers is not None
        numbers = self._numbers.client
        try:
            (stored,) = patiently(
                lambda: numbers.committed([TopicPartition(self.topic, 0)], timeout=_SECONDS)
            )
        except KafkaException as error:
            raise self._error(self._numbers, error) from error
        if stored.error is not None:
            raise self._error(self._numbers, stored.error)
        if stored.offset <= 0:
            return None
        return Mark(f"topic `{self.topic}`", stored.offset - 1, stored.metadata or "")

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Send the rows in a transaction; without rows, open none."""
        if self._is_written or not rows.n_rows:
            return
        from confluent_kafka import KafkaException

        assert self._producer is not None
        producer = self._producer.client
        try:
            producer.begin_transaction()
            self._is_begun = True
            produce, topic = producer.produce, self.topic
            for key, value in self._messages(rows):
                try:
                    produce(topic, value, key)
                except BufferError:  # earlier messages are still being sent
                    self._send_again(key, value)
        except KafkaException as error:
            raise self._error(self._producer, error) from error

    def _send_again(self, key: str | None, value: str | None) -> None:
        """Send a message once there is room for it."""
        assert self._producer is not None
        producer = self._producer.client
        deadline = time.monotonic() + _SECONDS
        while True:
            producer.poll(_RETRY_SECONDS)
            try:
                producer.produce(self.topic, value, key)
            except BufferError:
                if time.monotonic() > deadline:
                    raise
            else:
                return

    def _messages(self, rows: Collected) -> Iterator[tuple[str | None, str | None]]:
        """Yield the key and value of each message."""
        if not self.has_tombstones:
            yield from zip(self._keys(rows), rows.lines(), strict=True)
            return
        # A match may be withdrawn and found again in one micro-batch: the last row counts.
        table = pa.concat_tables(rows.tables()).sort_by(REVISION)
        columns = (table.column(KIND).to_pylist(), json_rows(table))
        for key, kind, value in zip(self._keys_of(table), *columns, strict=True):
            yield key, None if kind == RETRACT else value

    def _keys(self, rows: Collected) -> Iterator[str | None]:
        """Yield the key of each message."""
        if not self.key:
            yield from repeat(None, rows.n_rows)
            return
        for table in rows.tables():
            yield from self._keys_of(table)

    def _keys_of(self, table: pa.Table) -> Iterator[str | None]:
        columns = [value_texts(table.column(name)) for name in self.key]
        if len(columns) == 1:
            yield from columns[0]
        else:
            yield from map(_array, zip(*columns, strict=True))

    def commit(self, batch: MicroBatch) -> None:
        """Commit the transaction, with the number of the micro-batch in it."""
        if not self._is_begun:
            return
        from confluent_kafka import KafkaException, TopicPartition

        assert self._producer is not None
        assert self._numbers is not None
        producer = self._producer.client
        try:
            if batch.run is not None:
                numbers = [TopicPartition(self.topic, 0, batch.number + 1, batch.plan)]
                group = self._numbers.client.consumer_group_metadata()
                self._repeated(lambda: producer.send_offsets_to_transaction(numbers, group, _SECONDS))
            self._repeated(lambda: producer.commit_transaction(_SECONDS))
        except KafkaException as error:
            raise self._error(self._producer, error) from error
        self._is_begun = False

    def close(self) -> None:
        """Close the connections."""
        if self._numbers is not None:
            self._numbers.client.close()
        self._producer = self._numbers = None

    def _repeated(self, step: Any) -> None:
        """Perform a step of a transaction; repeat it while Kafka requests a retry."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _SECONDS
        while True:
            try:
                step()
            except KafkaException as error:
                is_passing = error.args[0].retriable() or is_moving(error)
                if not is_passing or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_SECONDS)
            else:
                return

    def _name_for(self, batch: MicroBatch) -> str:
        """Return the name of the producer and of its group: the same for all runs of a stream."""
        if batch.run is None:  # a batch never continues an earlier run
            return self._name or f"cep-batch-{uuid.uuid4()}"
        kind = "-".join(self.output.kind.replace(":", " ").split())
        return f"cep-{batch.run}-{kind}-{self.topic}"

    def _open(self, name: str) -> None:
        """Replace any earlier producer with this name; its open transaction is aborted."""
        from confluent_kafka import Consumer, KafkaException, Producer

        self.close()
        group = {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        self._numbers = self._client(Consumer, group)
        self._producer = self._client(Producer, {"transactional.id": name})
        producer = self._producer.client
        try:
            self._repeated(lambda: producer.init_transactions(_SECONDS))
        except KafkaException as error:
            raise self._error(self._producer, error) from error
        self._name, self._is_begun = name, False

    def _client(self, kind: Any, ours: dict[str, Any]) -> Client:
        return Client(kind, self.connection, ours)

    def _error(self, client: Client, cause: Any) -> InputError:
        return client.error(cause, f"topic `{self.topic}`")


def _array(texts: tuple[str | None, ...]) -> str:
    """Return the key of a message that consists of several columns."""
    return json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
