"""Numbers that count up in several partitions: a source. An offset says how far each partition is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cep.counts import Counts
from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, Piece, checked
from cep.schema.stream import Stream
from cep.settings import declared
from cep.settings.declared import Declared
from spark_runtime.sources.protocol import Range
from spark_runtime.sources.spec import SourceContext

from .records import KEY_VALUE

N_PER_BATCH = 4


@dataclass(frozen=True, slots=True)
class Counter:
    """So many events in so many partitions."""

    events: int = declared.integer(10)
    partitions: int = declared.integer(1, at_least=1)

    @property
    def place(self) -> str:
        """There is only one."""
        return ""

    def open(self, context: SourceContext) -> CounterSource:
        """Return the source."""
        return CounterSource(context.stream, self, context.keys, context.log)


@dataclass(frozen=True, slots=True)
class CounterSource:
    """Event 3 of partition 1 is ``id=103``; each seventh record is none."""

    stream: Stream
    spec: Counter
    keys: tuple[tuple[str, ...], ...] = ()
    log: str = ""

    def check(self) -> None:
        """Refuse a source without events."""
        if self.spec.events == 0:
            raise InputError("E0603", "there is nothing to count", "give `events`")

    def planner(self) -> CounterPlanner:
        """Return what plans micro-batches of a few events of each partition."""
        return CounterPlanner(self)

    def everything(self) -> Sequence[tuple[int, Range]]:
        """Return each partition."""
        return [(self.spec.events, (number, 0, self.spec.events)) for number in range(self.spec.partitions)]

    def partition(self, part: Range) -> str:
        """Return the number of the partition."""
        return str(part[0])

    def position_text(self, source: str, position: int) -> str:
        """Return the partition and the number in it."""
        return f"{source}@{position}"

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range as one chunk."""
        partition, start, end = part
        origin = f"counter[{partition}]"
        records = [
            f"id={100 * partition + number} ts=2024-05-01T00:{number // 60:02}:{number % 60:02}Z"
            if number % 7 != 6
            else f"number {number}"
            for number in range(start, end)
        ]
        reader = KEY_VALUE.reader(origin, self.stream)
        found = reader.decode([record.encode() for record in records], is_last=True)
        problems = [(index + start, reason) for index, reason in found.problems]
        piece = Piece(origin, found.events, found.indices + start, found.records, start, problems)
        yield checked(piece, self.stream, self.keys, ahead)


class CounterPlanner:
    """Plans a few events of each partition."""

    def __init__(self, source: CounterSource) -> None:
        self.source = source

    def start(self) -> list[int]:
        """Return the beginning of each partition."""
        return [0] * self.source.spec.partitions

    def latest(self, start: list[int]) -> list[int]:
        """Return a few events further."""
        return [min(at + N_PER_BATCH, self.source.spec.events) for at in start]

    def stop_at_now(self) -> None:
        """Do nothing: nothing comes later."""

    def ranges(self, start: list[int], end: list[int]) -> Sequence[tuple[int, Range]]:
        """Return what lies between, by partition."""
        bounds = enumerate(zip(start, end, strict=True))
        return [(last - first, (number, first, last)) for number, (first, last) in bounds if last > first]

    def commit(self, end: list[int]) -> None:
        """Write down what was committed, for a test to see."""
        if self.source.log:
            from pathlib import Path

            log = Path(self.source.log)
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as lines:
                lines.write(f"{end}\n")

    def close(self, counts: Counts) -> None:
        """Do nothing: there is no connection."""


COUNTER: Declared[Any] = Declared(Counter)
