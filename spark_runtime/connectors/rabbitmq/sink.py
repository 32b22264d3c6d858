"""Sends rows to RabbitMQ, where the broker confirms each. Only for the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from cep.errors import InputError
from spark_runtime.connectors.rabbitmq.connection import Address
from spark_runtime.sinks.messages import messages
from spark_runtime.sinks.protocol import Collected, Guarantee, MicroBatch, Output

_PERSISTENT = 2


@dataclass(slots=True)
class RabbitSink:
    """An exchange or a queue; see `TableSink`.

    `exchange` and `routing_key`: the destination; without an exchange, the key is the name of a queue.
    """

    output: Output
    address: Address
    exchange: str
    routing_key: str
    _connection: Any = field(default=None, repr=False)
    _channel: Any = field(default=None, repr=False)

    guarantee = Guarantee.AT_LEAST_ONCE

    def check(self) -> None:
        """Connect, and check that the exchange or queue exists."""
        self._open()
        try:
            with self._said():
                if self.exchange:
                    self._channel.exchange_declare(self.exchange, passive=True)
                else:
                    self._channel.queue_declare(self.routing_key, passive=True)
        finally:
            self.close()

    def last(self, run: str) -> None:
        """Return None: the broker does not report what it got."""

    def begin(self, batch: MicroBatch) -> None:
        """Connect if there is no connection or it was closed."""
        from pika.exceptions import AMQPError

        if self._connection is not None:
            with suppress(AMQPError, OSError):
                # It also answers the heartbeats of the broker.
                self._connection.process_data_events(0)
            if not (self._connection.is_open and self._channel.is_open):
                self.close()
        if self._connection is None:
            self._open()

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Send the rows; raise an error unless each is on the broker's disk."""
        if not rows.n_rows:
            return
        from pika import BasicProperties

        with self._said():
            for message in messages(batch, rows):
                properties = BasicProperties(
                    content_type="application/json",
                    delivery_mode=_PERSISTENT,
                    message_id=message.key,
                    type=self.output.kind.partition(":")[0],
                )
                body = message.text.encode()
                self._channel.basic_publish(self.exchange, self.routing_key, body, properties, mandatory=True)

    def commit(self, batch: MicroBatch) -> None:
        """Do nothing: the broker has confirmed each message."""

    def close(self) -> None:
        """Close the connection."""
        from pika.exceptions import AMQPError

        connection, self._connection, self._channel = self._connection, None, None
        if connection is not None:
            with suppress(AMQPError, OSError):
                connection.close()

    @property
    def _place(self) -> str:
        return f"exchange `{self.exchange}`" if self.exchange else f"queue `{self.routing_key}`"

    def _open(self) -> None:
        self._connection = self.address.connect()
        with self._said():
            self._channel = self._connection.channel()
            self._channel.confirm_delivery()

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Turn an error of pika into one that a user can act on."""
        from pika import exceptions

        try:
            yield
        except exceptions.UnroutableError as error:
            self.close()
            raise InputError(
                "E0878",
                f"a message to {self._place} of `{self.address.shown}` reaches no queue"
                + (f", its routing key is `{self.routing_key}`" if self.exchange else ""),
                "bind a queue to the exchange, or correct the name",
            ) from error
        except exceptions.NackError as error:
            self.close()
            raise InputError(
                "E0879",
                f"the broker `{self.address.shown}` does not take a message to {self._place}",
                "check the limits of the queue; the next run continues with this micro-batch",
            ) from error
        except (exceptions.AMQPError, OSError) as error:
            self.close()
            raise self.address.failure(error, self._place) from error
