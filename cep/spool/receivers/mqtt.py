"""Takes messages of MQTT topics: the session lasts, and a message is acknowledged when it is on disk.

A message of QoS 2 is taken with QoS 1. With QoS 2 a client confirms a message and then holds its only copy;
paho holds it in memory.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from cep.errors import InputError
from cep.spool.intake import Intake, Outcome
from cep.spool.receivers.held import HeldBatches
from cep.spool.receivers.protocol import ServerReceiver, ServerSettings
from cep.spool.segments import ReceivedBatch

_POLL_SECONDS = 0.1
_CONNECT_SECONDS = 8.0
_KEEP_ALIVE_SECONDS = 30
_GOOD_BYE_SECONDS = 5.0
_FOR_EVER = 0xFFFFFFFF
_REFUSED = 128
"""Reason codes from here on are refusals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings(ServerSettings):
    """Which topics are taken, and how.

    - `topics`: topic filters: ``sensors/+/temperature``; ``$share/GROUP/FILTER`` shares messages among
      spools.
    - `client_id`: the name of the session: the broker keeps messages for it while the spool is not running.
    - `qos`: 0: a message may be lost on the way; 1: it arrives at least once.
    - `in_flight`: messages that the broker sends before the first of them is acknowledged.
    """

    port: int = 1883
    topics: tuple[str, ...] = ()
    client_id: str = ""
    qos: int = 1
    in_flight: int = 1000


class MqttReceiver(ServerReceiver[MqttSettings]):
    """See `Receiver`. A thread of paho receives messages; that of `run` offers and acknowledges them."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._pending: list[Any] = []
        self._connection = 0  # the number of the connection
        self._error: InputError | None = None
        self._is_subscribed = False

    def check(self) -> None:
        """Connect and subscribe; raises InputError. From now on the broker keeps messages for the session."""
        client = self._client()
        try:
            self._connect(client)
            client.loop_start()
            self._changed.clear()
            deadline = threading.Event()
            timer = threading.Timer(_CONNECT_SECONDS, deadline.set)
            timer.start()
            while not (self._is_subscribed or self._error or deadline.is_set()):
                self._changed.wait(_POLL_SECONDS)
                self._changed.clear()
            timer.cancel()
            if self._error is not None:
                raise self._error
            if not self._is_subscribed:
                raise self._no_answer("it says nothing")
        finally:
            client.disconnect()
            client.loop_stop()
            self._is_subscribed = False
        with self._lock:
            self._pending.clear()  # the broker sends them again

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set; reconnect after a lost connection."""
        client = self._client()
        held: HeldBatches[tuple[int, list[tuple[int, int]]]] = HeldBatches(intake, self._changed.set)
        self._connect(client)
        client.loop_start()
        try:
            while not stopped.is_set() and self._error is None:
                self._changed.wait(_POLL_SECONDS)
                self._changed.clear()
                self._settle(client, held, intake)
                if not held.is_full:  # otherwise the broker stops at `in_flight`
                    self._offer(held)
            intake.flush()
            self._settle(client, held, intake)
            self._await_broker(client)
        finally:
            client.disconnect()
            client.loop_stop()
            intake.flush()
        if self._error is not None:
            raise self._error

    def _await_broker(self, client: Any) -> None:
        """Wait until the broker has read the acknowledgements; it answers in order.

        Otherwise the end of the connection could overtake them, and the messages would come again.
        """
        self._is_subscribed = False
        if self._error is None and client.is_connected():
            self._subscribe(client)
            for _ in range(int(_GOOD_BYE_SECONDS / _POLL_SECONDS)):
                if self._is_subscribed or self._error is not None:
                    break
                self._changed.wait(_POLL_SECONDS)
                self._changed.clear()

    def _offer(self, held: HeldBatches[tuple[int, list[tuple[int, int]]]]) -> None:
        """Offer everything that has arrived since the last call as one batch."""
        with self._lock:
            taken, self._pending = self._pending, []
            connection = self._connection
        if not taken:
            return
        columns: dict[str, list[str | None]] = {"topic": [message.topic for message in taken]}
        headers = [dict(getattr(message.properties, "UserProperty", ())) for message in taken]
        for name in dict.fromkeys(name for each in headers for name in each):
            columns[f"header.{name}"] = [each.get(name) for each in headers]
        received_us = np.full(len(taken), self.now_us(), np.int64)
        numbers = [(message.mid, message.qos) for message in taken]
        held.offer(
            ReceivedBatch([bytes(message.payload) for message in taken], received_us, columns),
            (connection, numbers),
        )

    def _settle(
        self, client: Any, held: HeldBatches[tuple[int, list[tuple[int, int]]]], intake: Intake
    ) -> None:
        """Acknowledge what is on disk, in order of arrival."""
        for (connection, numbers), n, outcome in held.settled():
            with self._lock:
                if connection != self._connection:
                    continue  # the broker sends it again, and its number may now mean another message
                for number, qos in numbers:
                    if qos:
                        client.ack(number, qos)
            if outcome is Outcome.WRITTEN and self.settings.qos:
                intake.acknowledged(n)

    # ------------------------------------------------------------ the connection

    def _client(self) -> Any:
        from paho.mqtt import client as paho

        settings = self.settings
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            client_id=settings.client_id,
            protocol=paho.MQTTv5,
            manual_ack=True,
        )
        if settings.user:
            client.username_pw_set(settings.user, settings.password or None)
        if settings.tls:
            client.tls_set(ca_certs=settings.ca_file or None)
        client.reconnect_delay_set(1, 10)
        client.on_connect = self._connected
        client.on_disconnect = self._disconnected
        client.on_message = self._take
        client.on_subscribe = self._subscribed
        self._is_subscribed, self._error = False, None
        return client

    def _connect(self, client: Any) -> None:
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties

        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = _FOR_EVER if self.settings.qos else 0
        properties.ReceiveMaximum = self.settings.in_flight
        client.connect_timeout = _CONNECT_SECONDS
        try:
            client.connect(
                self.settings.host,
                self.settings.port,
                _KEEP_ALIVE_SECONDS,
                clean_start=not self.settings.qos,
                properties=properties,
            )
        except (OSError, ValueError) as error:
            raise self._no_answer(str(error)) from error

    def _no_answer(self, why: str) -> InputError:
        return InputError(
            "E0955",
            f"no broker of MQTT answers at {self.settings.where}: {why}",
            "start it, or name its address: --host, --port",
        )

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.value >= _REFUSED:
            self._fail(
                "E0956",
                f"{self.settings.where} refuses the client `{self.settings.client_id}`: {reason}",
                "--user NAME, and the variable that --password-env names",
            )
            return
        self._subscribe(client)

    def _subscribe(self, client: Any) -> None:
        from paho.mqtt.subscribeoptions import SubscribeOptions

        # Retained messages are sent once, not at each connection.
        options = SubscribeOptions(
            qos=self.settings.qos, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        )
        try:
            client.subscribe([(topic, options) for topic in self.settings.topics])
        except ValueError as error:
            topics = ", ".join(self.settings.topics)
            self._fail(
                "E0957", f"topics cannot be {topics}: {error}", "write for example sensors/+/temperature"
            )

    def _subscribed(self, client: Any, data: Any, number: int, reasons: Any, properties: Any) -> None:
        for topic, reason in zip(self.settings.topics, reasons, strict=True):
            if reason.value >= _REFUSED:
                self._fail(
                    "E0956",
                    f"{self.settings.where} does not let the client read `{topic}`: {reason}",
                    "give the user the right to read it, or name another topic: --topic",
                )
                return
        self._is_subscribed = True
        self._changed.set()

    def _disconnected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        with self._lock:
            self._connection += 1
            self._pending.clear()
        if reason.value:
            self.say(f"the connection to {self.settings.where} is lost: {reason}")

    def _take(self, client: Any, data: Any, message: Any) -> None:
        with self._lock:
            self._pending.append(message)
        self._changed.set()

    def _fail(self, code: str, text: str, help_text: str) -> None:
        if self._error is None:
            self._error = InputError(code, text, help_text)
        self._changed.set()
