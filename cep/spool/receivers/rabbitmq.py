"""Takes messages of a RabbitMQ queue (AMQP 0-9-1): acknowledged when they are on disk."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cep.errors import InputError
from cep.schema.foreign_values import text_of
from cep.spool.intake import Intake, Outcome
from cep.spool.receivers.held import HeldBatches
from cep.spool.receivers.protocol import ServerReceiver, ServerSettings
from cep.spool.segments import ReceivedBatch

_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 8.0
_RECONNECT_SECONDS = 1.0
_NOT_FOUND, _IMPOSSIBLE = 404, 406

_NO_STREAM = {"x-priority": 0}
"""The default of all queues but streams, which refuse it.

A stream would give only what arrives while it is consumed.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RabbitSettings(ServerSettings):
    """The queue that is read, and how.

    `prefetch`: messages that the broker sends before the first of them is acknowledged.
    """

    port: int = 5672
    queue: str = ""
    virtual_host: str = "/"
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    prefetch: int = 1000


class RabbitReceiver(ServerReceiver[RabbitSettings]):
    """See `Receiver`. Only the thread of `run` calls pika."""

    def __post_init__(self) -> None:
        self._pending: list[tuple[int, bytes, Any, Any]] = []

    def check(self) -> None:
        """Connect and check the queue; raises InputError."""
        connection = self._connect()
        try:
            self._declare(connection.channel())
        finally:
            _close(connection)

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set; reconnect after a lost connection."""
        import pika.exceptions

        while not stopped.is_set():
            try:
                self._consume(intake, stopped)
            except (pika.exceptions.AMQPError, OSError) as error:
                self.say(f"the connection to {self.settings.where} is lost: {_words(error)}")
            except InputError as error:
                if error.code != "E0955":  # the broker answers and refuses
                    raise
            stopped.wait(_RECONNECT_SECONDS)

    def _consume(self, intake: Intake, stopped: threading.Event) -> None:
        settings = self.settings
        connection = self._connect()
        try:
            channel = connection.channel()
            self._declare(channel)
            channel.basic_qos(prefetch_count=settings.prefetch)
            tag = self._subscribe(channel)
            gone = threading.Event()
            channel.add_on_cancel_callback(lambda frame: gone.set())
            held: HeldBatches[int] = HeldBatches(intake, lambda: _wake(connection))
            while not stopped.is_set():
                connection.process_data_events(_POLL_SECONDS)
                if gone.is_set():
                    raise _no_queue(settings)
                self._settle(channel, held, intake)
                if self._pending and not held.is_full:  # otherwise the broker stops at `prefetch`
                    self._offer(held)
            channel.basic_cancel(tag)
            intake.flush()
            self._settle(channel, held, intake)
        finally:
            # When the connection ends, messages that are not acknowledged return to the queue.
            intake.flush()
            self._pending.clear()
            _close(connection)

    def _take(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        self._pending.append((method.delivery_tag, body, method, properties))

    def _offer(self, held: HeldBatches[int]) -> None:
        """Offer everything that has arrived since the last call as one batch."""
        taken, self._pending = self._pending, []
        columns: dict[str, list[str | None]] = {
            "topic": [method.routing_key for _, _, method, _ in taken],
            "id": [properties.message_id for *_, properties in taken],
            "key": [properties.correlation_id for *_, properties in taken],
        }
        headers = [properties.headers or {} for *_, properties in taken]
        for name in dict.fromkeys(name for each in headers for name in each):
            columns[f"header.{name}"] = [text_of(each.get(name)) for each in headers]
        kept = {name: texts for name, texts in columns.items() if any(text is not None for text in texts)}
        received_us = np.full(len(taken), self.now_us(), np.int64)
        held.offer(ReceivedBatch([body for _, body, *_ in taken], received_us, kept), taken[-1][0])

    @staticmethod
    def _settle(channel: Any, held: HeldBatches[int], intake: Intake) -> None:
        """Acknowledge what is on disk."""
        for tag, n, outcome in held.settled():
            channel.basic_ack(tag, multiple=True)  # all before it are acknowledged already
            if outcome is Outcome.WRITTEN:
                intake.acknowledged(n)

    # ------------------------------------------------------------ the connection

    def _connect(self) -> Any:
        import pika
        import pika.exceptions

        settings = self.settings
        parameters = pika.ConnectionParameters(
            host=settings.host,
            port=settings.port,
            virtual_host=settings.virtual_host,
            credentials=pika.PlainCredentials(settings.user, settings.password),
            ssl_options=self._tls(),
            socket_timeout=_CONNECT_SECONDS,
            stack_timeout=_CONNECT_SECONDS,
            blocked_connection_timeout=None,
        )
        try:
            return pika.BlockingConnection(parameters)
        except pika.exceptions.ProbableAuthenticationError as error:
            raise InputError(
                "E0956",
                f"{settings.where} refuses the user `{settings.user}`",
                "--user NAME, and the variable that --password-env names",
            ) from error
        except pika.exceptions.ProbableAccessDeniedError as error:
            raise InputError(
                "E0956",
                f"{settings.where} has no virtual host `{settings.virtual_host}` for `{settings.user}`",
                "--virtual-host NAME",
            ) from error
        except (pika.exceptions.AMQPError, OSError) as error:
            raise InputError(
                "E0955",
                f"no RabbitMQ answers at {settings.where}: {_words(error)}",
                "start it, or name its address: --host, --port",
            ) from error

    def _tls(self) -> Any:
        if not self.settings.tls:
            return None
        import ssl

        import pika

        return pika.SSLOptions(
            ssl.create_default_context(cafile=self.settings.ca_file or None), self.settings.host
        )

    def _declare(self, channel: Any) -> None:
        """Raise InputError unless the queue exists."""
        import pika.exceptions

        try:
            channel.queue_declare(self.settings.queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            raise self._refusal(error) from error

    def _subscribe(self, channel: Any) -> str:
        """Consume the queue and return the tag; raises InputError."""
        import pika.exceptions

        try:
            tag: str = channel.basic_consume(self.settings.queue, self._take, arguments=_NO_STREAM)
        except pika.exceptions.ChannelClosedByBroker as error:
            raise self._refusal(error) from error
        return tag

    def _refusal(self, error: Any) -> InputError:
        """Return the error for a channel that the broker has closed."""
        settings = self.settings
        if error.reply_code == _NOT_FOUND:
            return _no_queue(settings)
        if error.reply_code == _IMPOSSIBLE and "rabbit_stream_queue" in error.reply_text:
            return InputError(
                "E0956",
                f"queue `{settings.queue}` at {settings.where} is a stream",
                "read it with the source `rabbitmq_stream` of a pipeline, which misses nothing",
            )
        return InputError(
            "E0956",
            f"{settings.where} does not let `{settings.user}` read queue `{settings.queue}`: "
            f"{error.reply_text}",
            "give the user the right to read it, or end the consumer that has it exclusively",
        )


def _no_queue(settings: RabbitSettings) -> InputError:
    return InputError(
        "E0956",
        f"there is no queue `{settings.queue}` at {settings.where}",
        "make it, or name another one: --queue",
    )


def _wake(connection: Any) -> None:
    import pika.exceptions

    with suppress(pika.exceptions.AMQPError, OSError):
        connection.add_callback_threadsafe(lambda: None)


def _close(connection: Any) -> None:
    import pika.exceptions

    with suppress(pika.exceptions.AMQPError, OSError):
        if connection.is_open:
            connection.close()


def _words(error: BaseException) -> str:
    """Return the message of an error of pika; some have only a name."""
    inner = error.args[0] if error.args and isinstance(error.args[0], BaseException) else error
    return str(inner) or type(inner).__name__
