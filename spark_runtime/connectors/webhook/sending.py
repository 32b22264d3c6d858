"""Sends messages in requests, each until it is accepted or permanently refused.

One connection sends all rows of a document, one after another. So a row that withdraws another one is never
sent before it.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import islice
from zlib import crc32

from cep.errors import CepError, InputError
from spark_runtime.connectors.webhook.bodies import Body, BulkBody, Verdict
from spark_runtime.connectors.webhook.endpoint import Answer, Client, Endpoint
from spark_runtime.sinks.messages import Message

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Refused:
    """A message that was permanently refused, and the reason."""

    message: Message
    reason: str


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock, and a function that waits.

    `now_s`: returns the seconds since a fixed moment. `wait`: waits a number of seconds, or until an event is
    set.
    """

    now_s: Callable[[], float] = time.monotonic
    wait: Callable[[threading.Event, float], object] = threading.Event.wait


@dataclass(slots=True)
class Sending:
    """Sends messages to an address.

    `retry_s`: seconds for which a request is repeated before the run ends.
    """

    endpoint: Endpoint
    body: Body
    n_together: int = 1
    n_parallel: int = 4
    retry_s: float = 300.0
    clock: Clock = field(default_factory=Clock)
    _clients: list[Client] = field(default_factory=list)

    def send(self, messages: Sequence[Message]) -> list[Refused]:
        """Send messages; return those that were permanently refused.

        Raises InputError: the server does not accept them (E0874), or refuses everything (E0875).
        """
        shares: list[list[Message]] = [[] for _ in range(self.n_parallel)]
        for message in messages:
            shares[crc32(message.document.encode()) % self.n_parallel].append(message)
        while len(self._clients) < self.n_parallel:
            self._clients.append(Client(self.endpoint))
        job = _Job(self)
        # Daemon threads end with the process, whatever they wait for.
        threads = [
            threading.Thread(target=job.run, args=(client, share), daemon=True)
            for client, share in zip(self._clients, shares, strict=True)
            if share
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if job.errors:
            self.close()
            raise job.errors[0]
        return job.refused

    def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            client.close()
        self._clients = []


class _Job:
    """The messages of one micro-batch while they are sent."""

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.ends = threading.Event()  # after an error: send nothing more
        self.errors: list[BaseException] = []
        self.refused: list[Refused] = []

    def run(self, client: Client, messages: list[Message]) -> None:
        """Send some messages over one connection."""
        try:
            for some in _chunks(messages, self.sending.n_together):
                if self.ends.is_set():
                    return
                self._send(client, some)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for this one
            self.errors.append(error)
            self.ends.set()

    def _send(self, client: Client, messages: list[Message]) -> None:
        clock, pause_s = self.sending.clock, FIRST_PAUSE_S
        deadline_s: float | None = None
        while messages and not self.ends.is_set():
            failure, wanted_s, rest = self._try(client, messages)
            if failure is None:
                return
            now_s = clock.now_s()
            if deadline_s is None or len(rest) < len(messages):
                deadline_s = now_s + self.sending.retry_s
            if now_s >= deadline_s:
                raise failure
            messages = rest
            # At random, so that not all requests reach a recovering server at once.
            pause = wanted_s if wanted_s is not None else pause_s * random.uniform(0.5, 1.0)  # noqa: S311
            clock.wait(self.ends, max(0.0, min(pause, deadline_s - now_s)))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _try(
        self, client: Client, messages: list[Message]
    ) -> tuple[CepError | None, float | None, list[Message]]:
        """Send a request; return the reason, the delay and the messages that must be sent again."""
        sending = self.sending
        try:
            text, headers = sending.body.text(messages), sending.body.headers(messages)
            answer = client.post(text.encode(), headers, len(messages))
        except (OSError, http.client.HTTPException) as error:
            return sending.endpoint.unreachable(error), None, messages
        verdicts = sending.body.verdicts(messages, answer)
        told = next((why for verdict, why in verdicts if verdict is Verdict.STOP), None)
        if told is not None:
            raise InputError(
                "E0875",
                f"the webhook `{sending.endpoint.shown}` refuses everything: {sending.endpoint.told(told)}",
                "check `url` and `headers`; the next run continues with this micro-batch",
            )
        is_one = isinstance(sending.body, BulkBody) or len(messages) == 1
        if not is_one and verdicts[0][0] is Verdict.REFUSED:
            # Perhaps only one of them is refused.
            for message in messages:
                self._send(client, [message])
            return None, None, []
        again = []
        for message, (verdict, why) in zip(messages, verdicts, strict=True):
            if verdict is Verdict.REFUSED:
                self.refused.append(Refused(message, sending.endpoint.told(why)))
            elif verdict is Verdict.AGAIN:
                again.append((message, why))
        if not again:
            return None, None, []
        failure = InputError(
            "E0874",
            f"the webhook `{sending.endpoint.shown}` takes nothing: {sending.endpoint.told(again[0][1])}",
            "the next run continues with this micro-batch",
        )
        return failure, _retry_after(answer), [message for message, _ in again]


def _retry_after(answer: Answer) -> float | None:
    """Return the delay that a server requests, in seconds, or None if it requests none."""
    text = answer.headers.get("retry-after", "").strip()
    try:
        is_number = text.isascii() and text.isdecimal()
        time = None if is_number else parsedate_to_datetime(text)
        seconds = float(text) if time is None else (time - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return seconds if seconds > 0 else None


def _chunks(messages: list[Message], n: int) -> Iterator[list[Message]]:
    rest = iter(messages)
    while some := list(islice(rest, n)):
        yield some
