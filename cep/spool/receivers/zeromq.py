"""Takes messages of a ZeroMQ SUB or PULL socket. Messages are never sent again; gaps can be counted."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cep.errors import InputError
from cep.spool.intake import Intake
from cep.spool.receivers.held import HeldBatches
from cep.spool.receivers.sequence import Sequences, json_number, number_of
from cep.spool.segments import MAX_MESSAGE_BYTES, ReceivedBatch

_POLL_MS = 100
_POLL_SECONDS = 0.1
_MOST_MESSAGES, _MOST_BYTES = 5_000, 4 << 20


@dataclass(frozen=True, slots=True)
class ZmqSettings:
    """Where messages come from.

    - `connect`, `bind`: addresses: ``tcp://host:5556``.
    - `kind`: ``sub`` or ``pull``.
    - `subscribe`: prefixes of the messages that a SUB socket takes; (): all messages.
    - `sequence`: the name of a number in JSON messages by which gaps are counted; "": none.
    - `sequence_part`: the index of the part of a message that is such a number; None: no part is.
    - `most`: the maximum number of messages that the socket keeps until they are taken (its high-water mark).
    """

    connect: tuple[str, ...] = ()
    bind: tuple[str, ...] = ()
    kind: str = "sub"
    subscribe: tuple[str, ...] = ()
    sequence: str = ""
    sequence_part: int | None = None
    most: int = 10_000


class ZmqReceiver:
    """See `Receiver`. The last part of a message is its value; the first of several is its topic.

    `now_us`: the wall clock: microseconds since 1970.
    """

    def __init__(
        self, settings: ZmqSettings, now_us: Callable[[], int], ready: Callable[[], None] = lambda: None
    ) -> None:
        self.settings = settings
        self.now_us = now_us
        self.ready = ready
        self._number: re.Pattern[bytes] | None = json_number(settings.sequence) if settings.sequence else None
        self._sequences = Sequences()

    def check(self) -> None:
        """Raise InputError if there is no address."""
        if not (self.settings.connect or self.settings.bind):
            raise InputError("E0957", "there is no address", "name one: --connect tcp://HOST:PORT, or --bind")

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take messages until `stopped` is set."""
        import zmq

        held: HeldBatches[None] = HeldBatches(intake)
        with zmq.Context() as context, self._socket(context) as found:
            self.ready()
            while not stopped.is_set():
                for _ in held.settled():
                    pass
                if held.is_full:  # the socket keeps `most` messages; then a PUSH waits, and a PUB drops
                    stopped.wait(_POLL_SECONDS)
                elif found.poll(_POLL_MS):
                    self._offer(self._take(found), held, intake)
            while (found.poll(0)) and not held.is_full:  # nobody sends these again
                self._offer(self._take(found), held, intake)
                for _ in held.settled():
                    pass
        intake.flush()
        for _ in held.settled():
            pass
        intake.missed(dropped=held.n_messages)

    def _socket(self, context: Any) -> Any:
        import zmq

        settings = self.settings
        found = context.socket(zmq.SUB if settings.kind == "sub" else zmq.PULL)
        found.setsockopt(zmq.RCVHWM, settings.most)
        found.setsockopt(zmq.LINGER, 0)
        found.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)  # of each part; a sender of more is disconnected
        if settings.kind == "sub":
            for prefix in settings.subscribe or ("",):
                found.subscribe(prefix)
        addresses = [(found.connect, each) for each in settings.connect]
        addresses += [(found.bind, each) for each in settings.bind]
        for use, address in addresses:
            try:
                use(address)
            except zmq.ZMQError as error:
                found.close()
                raise InputError(
                    "E0954",
                    f"the address {address} cannot be used: {error.strerror}",
                    "write for example tcp://127.0.0.1:5556",
                ) from error
        return found

    def _take(self, found: Any) -> list[list[bytes]]:
        import zmq

        taken: list[list[bytes]] = []
        n_bytes = 0
        try:
            while len(taken) < _MOST_MESSAGES and n_bytes < _MOST_BYTES:
                taken.append(found.recv_multipart(zmq.NOBLOCK))
                n_bytes += sum(map(len, taken[-1]))
        except zmq.Again:
            pass
        return taken

    def _offer(self, taken: list[list[bytes]], held: HeldBatches[None], intake: Intake) -> None:
        if not taken:
            return
        topics: list[str | None] = [
            parts[0].decode(errors="surrogateescape") if len(parts) > 1 else None for parts in taken
        ]
        gaps = sum(self._missing(parts, topic or "") for parts, topic in zip(taken, topics, strict=True))
        if gaps:
            intake.missed(gaps=gaps)
        received_us = np.full(len(taken), self.now_us(), np.int64)
        held.offer(ReceivedBatch([parts[-1] for parts in taken], received_us, {"topic": topics}), None)

    def _missing(self, parts: list[bytes], topic: str) -> int:
        """Return how many messages of a topic are missing before this one."""
        number: int | None = None
        if self._number is not None:
            found = self._number.search(parts[-1])
            number = None if found is None else int(found[1])
        elif self.settings.sequence_part is not None and self.settings.sequence_part < len(parts):
            number = number_of(parts[self.settings.sequence_part])
        return 0 if number is None else self._sequences.missing(topic, number)
