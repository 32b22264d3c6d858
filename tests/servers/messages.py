"""What tests of sources of messages share: events as values, and what was read of a source."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cep.counts import Counts
from cep.errors import CepError
from cep.formats.ahead import AheadGuard
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.message_logs.planner import MessagePlanner
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
START = datetime(2024, 5, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000


def value(number: int, seconds: float | None = None) -> bytes:
    at = START + timedelta(seconds=number if seconds is None else seconds)
    return json.dumps({"id": number, "ts": at.isoformat()}).encode()


def values(*numbers: int) -> list[bytes]:
    return [value(number) for number in numbers]


class Seen:
    """What was read of a source."""

    def __init__(self, source: MessageSource) -> None:
        self.source = source
        self.rows: list[dict[str, Any]] = []
        self.dead: list[tuple[str, str]] = []
        self.counts = Counts()

    def read(self, parts: Sequence[tuple[int, Any]]) -> Seen:
        for _, part in parts:
            through_json = tuple(json.loads(json.dumps(part)))
            for chunk in self.source.read(
                through_json, AheadGuard(self.source.stream.max_ahead_us), self.counts
            ):
                self.rows += chunk.events.to_pylist()
                for row in chunk.dead_letters.to_pylist():
                    place = self.source.position_text(row["source"], row["position"])
                    self.dead.append((place, row["reason"]))
        return self

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows]


def seen(what: MessageReading) -> Seen:
    """Return all that a batch reads."""
    source = MessageSource(what)
    return Seen(source).read(source.everything())


def batches(planner: MessagePlanner, source: MessageSource) -> list[list[int]]:
    """Return the identifiers of each micro-batch of a run that reads what is there."""
    planner.stop_at_now()
    start, found = planner.start(), []
    while (end := planner.latest(start)) != start:
        found.append(Seen(source).read(planner.ranges(start, end)).ids)
        planner.commit(end)
        start = end
    planner.close(Counts())
    return found


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(CepError) as caught:
        call()
    return f"{caught.value.code} {caught.value.args[0]}"
