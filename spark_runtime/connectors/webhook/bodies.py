"""Creates the body of a request from messages, and reads what the response says about each message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256

from spark_runtime.connectors.webhook.endpoint import Answer
from spark_runtime.connectors.webhook.template import Template
from spark_runtime.sinks.messages import Message

IDEMPOTENCY_KEY = "Idempotency-Key"


class Verdict(Enum):
    """What to do with a message after a response."""

    TAKEN = auto()
    AGAIN = auto()  # send it again later
    REFUSED = auto()  # permanently
    STOP = auto()  # nothing can be sent to this address as it is


_AGAIN = (408, 425, 429)
_STOP = (401, 402, 403, 404, 405, 407, 410, 421, 426)
"""Statuses that concern the address or the credentials, not a message."""


def verdict_of(status: int) -> Verdict:
    """Return the verdict of a status."""
    if 200 <= status < 300:
        return Verdict.TAKEN
    if status >= 500 or status in _AGAIN:
        return Verdict.AGAIN
    return Verdict.REFUSED if 400 <= status < 500 and status not in _STOP else Verdict.STOP


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A JSON object, or, with `is_array`, an array of objects.

    `template`: the body for a row; None: the row itself. `withdrawing`: the body for a row that withdraws
    another one; None: `template`.
    """

    is_array: bool
    template: Template | None = field(default=None, repr=False)
    withdrawing: Template | None = field(default=None, repr=False)

    def headers(self, messages: Sequence[Message]) -> Mapping[str, str]:
        """Return the headers of a request."""
        keys = [message.key for message in messages]
        key = keys[0] if len(keys) == 1 else sha256(" ".join(keys).encode()).hexdigest()[:32]
        return {"Content-Type": "application/json", IDEMPOTENCY_KEY: key}

    def text(self, messages: Sequence[Message]) -> str:
        """Return the body of a request."""
        texts = [self._text(message) for message in messages]
        return f"[{','.join(texts)}]" if self.is_array else texts[0]

    def _text(self, message: Message) -> str:
        template = self.withdrawing if message.is_withdrawn and self.withdrawing else self.template
        return message.text if template is None else template.filled(message.text)

    def verdicts(self, messages: Sequence[Message], answer: Answer) -> list[tuple[Verdict, str]]:
        """Return what becomes of each message, and why."""
        return [(verdict_of(answer.status), answer.reason)] * len(messages)


@dataclass(frozen=True, slots=True)
class BulkBody:
    """The body of OpenSearch's ``_bulk``: a document for each row, under its key.

    A row that is withdrawn removes its document.
    """

    def headers(self, messages: Sequence[Message]) -> Mapping[str, str]:
        """Return the headers of a request."""
        return {"Content-Type": "application/x-ndjson"}

    def text(self, messages: Sequence[Message]) -> str:
        """Return the body of a request."""
        return "".join(map(self._action, messages))

    def _action(self, message: Message) -> str:
        place = {"_id": message.document}
        if message.is_withdrawn:
            return f"{json.dumps({'delete': place})}\n"
        return f"{json.dumps({'index': place})}\n{message.text}\n"

    def verdicts(self, messages: Sequence[Message], answer: Answer) -> list[tuple[Verdict, str]]:
        """Return what becomes of each message, and why: the answer has a status for each."""
        if not answer.is_good:
            return [(verdict_of(answer.status), answer.reason)] * len(messages)
        if answer.is_cut:
            return [(Verdict.AGAIN, "the connection ended before the answer")] * len(messages)
        try:
            items = [next(iter(item.values())) for item in json.loads(answer.body)["items"]]
            found = [(int(item["status"]), json.dumps(item.get("error", ""))) for item in items]
        except (ValueError, TypeError, KeyError, AttributeError, StopIteration):
            found = []
        if len(found) != len(messages):
            return [(Verdict.STOP, "the answer is not that of _bulk")] * len(messages)
        verdicts = []
        for message, (status, why) in zip(messages, found, strict=True):
            is_gone = status == 404 and message.is_withdrawn  # it was removed before
            verdict = Verdict.TAKEN if is_gone else verdict_of(status)
            verdicts.append((verdict, f"{status}: {why}"))
        return verdicts


Body = JsonBody | BulkBody
