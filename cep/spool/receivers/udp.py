"""Takes datagrams. Datagrams are never sent again; those that the system drops first are counted."""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from cep.errors import InputError
from cep.spool.intake import Intake
from cep.spool.receivers.forms import FORMS
from cep.spool.receivers.held import HeldBatches
from cep.spool.receivers.sequence import Sequences, json_number
from cep.spool.segments import ReceivedBatch

_POLL_SECONDS = 0.1
_MOST_DATAGRAMS, _MOST_BYTES = 5_000, 4 << 20
"""Datagrams that are offered together, at most, and their bytes, about."""

_DATAGRAM_BYTES = 65_535
_COUNT = struct.Struct("=I")
_RXQ_OVFL = 40
"""Linux: with each datagram the system says how many it has dropped before."""


@dataclass(frozen=True, slots=True)
class UdpSettings:
    """Where datagrams arrive, and what a message is.

    - `form`: the form in which a message is stored (`FORMS`).
    - `has_lines`: whether each line of a datagram is a message.
    - `sequence`: the name of a number in JSON messages by which gaps are counted; "": none.
    - `buffer_bytes`: the bytes that the system may keep until they are taken; it may allow less.
    """

    host: str = "127.0.0.1"
    port: int = 8514
    form: str = "message"
    has_lines: bool = False
    sequence: str = ""
    buffer_bytes: int = 8 << 20


class UdpReceiver:
    """See `Receiver`.

    `now_us`: the wall clock: microseconds since 1970. `ready`: receives the port once datagrams can arrive.
    """

    def __init__(
        self,
        settings: UdpSettings,
        now_us: Callable[[], int],
        ready: Callable[[int], None] = lambda port: None,
    ) -> None:
        self.settings = settings
        self.now_us = now_us
        self.ready = ready
        self._form = FORMS[settings.form]
        self._number: re.Pattern[bytes] | None = json_number(settings.sequence) if settings.sequence else None
        self._sequences = Sequences()
        self._overflow = 0

    def check(self) -> None:
        """Do nothing: `run` reports at once if it cannot listen."""

    def run(self, intake: Intake, stopped: threading.Event) -> None:
        """Take datagrams until `stopped` is set."""
        held: HeldBatches[None] = HeldBatches(intake)
        with self._socket() as found:
            self.ready(found.getsockname()[1])
            while not stopped.is_set():
                for _ in held.settled():
                    pass
                if held.is_full:  # the system keeps what arrives, then drops and counts it
                    stopped.wait(_POLL_SECONDS)
                    continue
                taken = self._take(found, intake)
                if taken:
                    self._offer(taken, held, intake)
        intake.flush()
        for _ in held.settled():
            pass
        intake.missed(dropped=held.n_messages)

    def _socket(self) -> socket.socket:
        settings = self.settings
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        found = socket.socket(family, socket.SOCK_DGRAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.buffer_bytes)
        with suppress(OSError):  # only Linux has this
            found.setsockopt(socket.SOL_SOCKET, _RXQ_OVFL, 1)
        try:
            found.bind((settings.host, settings.port))
        except OSError as error:
            found.close()
            raise InputError(
                "E0954",
                f"nothing can listen at {settings.host}:{settings.port}: {error.strerror or error}",
                "name another address: --host, --port",
            ) from error
        return found

    def _take(self, found: socket.socket, intake: Intake) -> list[tuple[bytes, str]]:
        """Return the datagrams that have arrived, each with its sender; waits briefly for the first one."""
        taken: list[tuple[bytes, str]] = []
        n_bytes = 0
        found.settimeout(_POLL_SECONDS)
        try:
            while len(taken) < _MOST_DATAGRAMS and n_bytes < _MOST_BYTES:
                data, about, _, sender = found.recvmsg(_DATAGRAM_BYTES, socket.CMSG_SPACE(_COUNT.size))
                n_bytes += len(data)
                taken.append((data, f"{sender[0]}:{sender[1]}"))
                if about:
                    self._count_overflow(about, intake)
                found.settimeout(0)
        except (BlockingIOError, TimeoutError):
            pass
        return taken

    def _count_overflow(self, about: list[Any], intake: Intake) -> None:
        for level, kind, data in about:
            if level == socket.SOL_SOCKET and kind == _RXQ_OVFL and len(data) == _COUNT.size:
                (n,) = _COUNT.unpack(data)
                if n != self._overflow:
                    intake.missed(dropped=(n - self._overflow) % (1 << 32))
                    self._overflow = n

    def _offer(self, taken: list[tuple[bytes, str]], held: HeldBatches[None], intake: Intake) -> None:
        values: list[bytes] = []
        senders: list[str | None] = []
        for data, sender in taken:
            lines = [line for line in data.splitlines() if line] if self.settings.has_lines else [data]
            for line in lines:
                if self._number is not None:
                    self._count_gaps(line, sender, intake)
                events = self._form(line)
                values += events
                senders += [sender] * len(events)
        if values:
            received_us = np.full(len(values), self.now_us(), np.int64)
            held.offer(ReceivedBatch(values, received_us, {"sender": senders}), None)

    def _count_gaps(self, line: bytes, sender: str, intake: Intake) -> None:
        assert self._number is not None
        if found := self._number.search(line):
            missing = self._sequences.missing(sender, int(found[1]))
            if missing:
                intake.missed(gaps=missing)
