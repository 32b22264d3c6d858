"""Takes messages of AMQP 1.0 (ActiveMQ, Azure Service Bus) and settles them when they are on disk."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from cep.errors import InputError
from cep.schema.foreign_values import body_of, decimal_of, text_of, time_of_ms
from cep.spool.intake import Intake, Outcome
from cep.spool.receivers.held import HeldBatches
from cep.spool.receivers.protocol import ServerReceiver, ServerSettings
from cep.spool.segments import ReceivedBatch

_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 8.0
_RECONNECT_SECONDS = 1.0
_HEARTBEAT_SECONDS = 30
_CLOSE_SECONDS = 5.0

_NO_SERVER = "E0955"


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpSettings(ServerSettings):
    """The address that is read, and how.

    - `address`: a queue or a topic.
    - `subscription`: the name of a durable subscription, which receives a copy of each message of the topic;
      "": a queue.
    - `container_id`: the name of this client; a subscription belongs to it.
    - `credit`: messages that the server sends before the first of them is settled.
    """

    port: int = 5672
    address: str = ""
    subscription: str = ""
    container_id: str = ""
    credit: int = 1000


class AmqpReceiver(ServerReceiver[AmqpSettings]):
    """See `Receiver`. Only the thread of `run` calls proton."""

    def check(self) -> None:
        """Connect and attach; raises InputError. From now on the server keeps messages for a subscription."""
        self._run(None, threading.Event())

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set; reconnect after a lost connection."""
        while not stopped.is_set():
            try:
                self._run(intake, stopped)
            except InputError as error:
                if error.code != _NO_SERVER:
                    raise
                self.say(error.args[0])
                stopped.wait(_RECONNECT_SECONDS)

    def _run(self, intake: Intake | None, stopped: threading.Event) -> None:
        """Keep one connection; without an intake only until it is established."""
        from proton.reactor import ApplicationEvent, Container, EventInjector

        injector = EventInjector()
        held: HeldBatches[list[Any]] | None = None
        if intake is not None:
            held = HeldBatches(intake, lambda: injector.trigger(ApplicationEvent("written")))
        connection = _Connection(self, intake, held, stopped, injector)
        settings = self.settings
        container = Container(connection.handler())
        if settings.container_id:
            container.container_id = settings.container_id
        container.selectable(injector)
        try:
            container.run()
        finally:
            if intake is not None:
                intake.flush()  # after that nobody wakes the container
            for end in injector.pipe:
                os.close(end)
        if connection.error is not None:
            raise connection.error


class _Connection:
    """The handler of one connection."""

    def __init__(
        self,
        receiver: AmqpReceiver,
        intake: Intake | None,
        held: HeldBatches[list[Any]] | None,
        stopped: threading.Event,
        injector: Any,
    ) -> None:
        self.injector = injector
        self.settings = receiver.settings
        self.now_us = receiver.now_us
        self.intake = intake
        self.held = held
        self.stopped = stopped
        self.error: InputError | None = None
        self.pending: list[tuple[Any, Any]] = []
        self.connection: Any = None
        self.link: Any = None
        self.is_attached = self.is_ending = False
        self.deadline = time.monotonic() + _CONNECT_SECONDS

    def handler(self) -> Any:
        """Return what proton calls."""
        from proton.handlers import MessagingHandler

        me = self

        class Handler(MessagingHandler):
            def on_start(self, event: Any) -> None:
                me.start(event.container)

            def on_written(self, event: Any) -> None:
                me.settle()

            def on_link_opened(self, event: Any) -> None:
                me.attached()

            def on_message(self, event: Any) -> None:
                me.take(event.delivery, event.message)

            def on_transport_error(self, event: Any) -> None:
                me.failed(event.transport.condition)

            def on_connection_error(self, event: Any) -> None:
                me.failed(event.connection.remote_condition)

            def on_session_error(self, event: Any) -> None:
                me.failed(event.session.remote_condition)

            def on_link_error(self, event: Any) -> None:
                me.failed(event.link.remote_condition)

            def on_link_closed(self, event: Any) -> None:
                me.failed(None)

            def on_transport_closed(self, event: Any) -> None:
                me.failed(None)
                me.injector.close()  # the container has nothing left after it

        return Handler(prefetch=0, auto_accept=False, auto_settle=False)

    # ------------------------------------------------------------ the connection

    def start(self, container: Any) -> None:
        from proton import SSLDomain
        from proton.reactor import DurableSubscription, ReceiverOption

        class IsTopic(ReceiverOption):
            def apply(self, receiver: Any) -> None:
                from proton import symbol

                receiver.source.capabilities.put_object(symbol("topic"))

        settings = self.settings
        more: dict[str, Any] = {}
        if settings.user:
            more |= {"user": settings.user, "password": settings.password, "allow_insecure_mechs": True}
        if settings.tls:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            if settings.ca_file:
                domain.set_trusted_ca_db(settings.ca_file)
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            more["ssl_domain"] = domain
        scheme = "amqps" if settings.tls else "amqp"
        self.connection = container.connect(
            f"{scheme}://{settings.host}:{settings.port}",
            reconnect=False,
            heartbeat=_HEARTBEAT_SECONDS,
            **more,
        )
        options = [DurableSubscription(), IsTopic()] if settings.subscription else []
        self.link = container.create_receiver(
            self.connection, settings.address, name=settings.subscription or None, options=options
        )
        container.schedule(_POLL_SECONDS, _Timer(self))

    def tick(self, container: Any) -> None:
        if not self.is_attached and time.monotonic() > self.deadline:
            self._end(self._no_server("it says nothing"))
        if self.stopped.is_set():
            self._end(None)
        self.settle()
        if not self.is_ending:
            container.schedule(_POLL_SECONDS, _Timer(self))
        elif time.monotonic() > self.deadline + _CLOSE_SECONDS:  # a server that does not close the connection
            container.stop()

    def attached(self) -> None:
        if self.link.remote_source is None or self.link.remote_source.address is None:
            return  # refused: the end of the link gives the reason
        self.is_attached = True
        if self.intake is None:
            self._end(None)
        else:
            self.link.flow(self.settings.credit)

    def failed(self, condition: Any) -> None:
        """End the connection; an error is kept unless this spool ends the connection itself."""
        if self.is_ending:
            return
        settings = self.settings
        name = "" if condition is None else str(condition.name)
        why = "it ended the connection" if condition is None else str(condition.description or name)
        if name == "amqp:not-found":
            error = InputError(
                "E0956",
                f"there is no address `{settings.address}` at {settings.where}: {why}",
                "make the queue or the topic, or name another one: --address",
            )
        elif name in ("amqp:unauthorized-access", "amqp:not-allowed"):
            error = InputError(
                "E0956",
                f"{settings.where} refuses `{settings.user or 'a client without a name'}`: {why}",
                "--user NAME, and the variable that --password-env names",
            )
        else:
            error = self._no_server(why)
        self._end(error)

    def _no_server(self, why: str) -> InputError:
        return InputError(
            _NO_SERVER,
            f"no server of AMQP 1.0 answers at {self.settings.where}: {why}",
            "start it, or name its address: --host, --port",
        )

    def _end(self, error: InputError | None) -> None:
        if self.is_ending:
            return
        self.is_ending = True
        self.error = error
        if error is None:
            if self.intake is not None and self.held is not None:
                self.intake.flush()
                self.settle()
            for delivery, _ in self.pending:  # never offered: the server need not count them as delivered
                delivery.update(delivery.RELEASED)
                delivery.settle()
            # Closing a link ends its subscription; detaching it does not.
            self.link.detach()
        self.pending.clear()
        self.connection.close()

    # ------------------------------------------------------------ messages

    def take(self, delivery: Any, message: Any) -> None:
        self.pending.append((delivery, message))
        if self.held is not None and len(self.held) == 0:
            self._offer()  # what arrives during a write joins the next batch

    def settle(self) -> None:
        """Settle what is on disk, and offer what has arrived."""
        if self.held is None or self.intake is None:
            return
        n_settled = 0
        for deliveries, n, outcome in self.held.settled():
            for delivery in deliveries:
                delivery.update(delivery.ACCEPTED)
                delivery.settle()
            n_settled += n
            if outcome is Outcome.WRITTEN:
                self.intake.acknowledged(n)
        if n_settled and not self.is_ending:
            self.link.flow(n_settled)
        if self.pending and not self.held.is_full and not self.is_ending:
            self._offer()

    def _offer(self) -> None:
        assert self.held is not None
        taken, self.pending = self.pending, []
        messages = [message for _, message in taken]
        columns: dict[str, list[str | None]] = {
            "topic": [_text(message.address) for message in messages],
            "id": [_text(message.id) for message in messages],
            "key": [_text(message.group_id) for message in messages],
        }
        headers = [message.properties or {} for message in messages]
        for name in dict.fromkeys(name for each in headers for name in each):
            columns[f"header.{name}"] = [_text(each.get(name)) for each in headers]
        kept = {name: texts for name, texts in columns.items() if any(text is not None for text in texts)}
        received_us = np.full(len(taken), self.now_us(), np.int64)
        values = [_value(message.body) for message in messages]
        self.held.offer(ReceivedBatch(values, received_us, kept), [delivery for delivery, _ in taken])


class _Timer:
    """The handler that proton calls after a delay."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def on_timer_task(self, event: Any) -> None:
        self._connection.tick(event.container)


def _known(value: Any) -> Any:
    """Return a value of proton's own types as one of Python's."""
    match type(value).__name__:
        case "timestamp":
            return time_of_ms(value)
        case "decimal32":
            return decimal_of(int(value).to_bytes(4, "big"))
        case "decimal64":
            return decimal_of(int(value).to_bytes(8, "big"))
        case "decimal128":
            return decimal_of(value)
        case "Array":
            return value.elements
        case "Described":
            return _known(value.value)
        case _:
            return value


def _text(value: Any) -> str | None:
    return text_of(value, _known)


def _value(body: Any) -> bytes:
    return body_of(body, _known)
