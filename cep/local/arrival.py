"""Events of several inputs, as if they arrived one by one: how late each of them is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.engine.event_time.watermark import is_late, late_by_us
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class Arrived:
    """More events of `stream`, how late each is, and the latest event time of all streams so far.

    `late_us` is int64[n]: how many microseconds the watermark was past the time of the event; below 0: the
    watermark had not reached it.
    """

    stream: Stream
    events: pa.Table
    late_us: I64
    latest_us: int


class _Input:
    """What was read from one input and has not arrived yet, with the latest time up to each event."""

    def __init__(self, stream: Stream, tables: Iterator[pa.Table], start_us: int) -> None:
        self.stream = stream
        self.tables = tables
        self.last_us = start_us
        self.is_exhausted = False
        self.events: pa.Table | None = None
        self.times: I64 = np.zeros(0, np.int64)
        self.reached: I64 = np.zeros(0, np.int64)

    def read_more(self) -> None:
        table = next(self.tables, None)
        if table is None:
            self.is_exhausted = True
            return
        times = table.column(self.stream.event_time).to_numpy()
        reached = np.maximum.accumulate(np.concatenate(([self.last_us], times)))[1:]
        self.last_us = int(reached[-1]) if len(reached) else self.last_us
        self.events = table if self.events is None else pa.concat_tables([self.events, table])
        self.times = np.concatenate((self.times, times))
        self.reached = np.concatenate((self.reached, reached))

    def take(self, n: int) -> tuple[pa.Table | None, I64, I64]:
        """Remove and return the first `n` events, with their times and the latest time up to each."""
        events, times, reached = self.events, self.times[:n], self.reached[:n]
        if events is None or n == 0:
            return None, times, reached
        self.events = events.slice(n) if n < len(events) else None
        self.times, self.reached = self.times[n:], self.reached[n:]
        return events.slice(0, n), times, reached


def arrive(
    inputs: Mapping[Stream, Iterable[pa.Table]], lateness_us: int, start_us: int, *, cuts: bool = False
) -> Iterator[list[Arrived]]:
    """Yield the events of all inputs, some at a time, as they arrive.

    With `cuts`, only the first of the events yielded together may be late. Then rules with corrections give
    the same result for these events together and one by one.

    Each input keeps its order and advances together with the others: the next event comes from the input that
    has reached the earliest event time; if there are several, from the stream that is declared first. An
    event that is `lateness_us` or more before the latest earlier event of any input is late.
    """
    waiting = [_Input(stream, iter(tables), start_us) for stream, tables in inputs.items()]
    latest_us = start_us
    while True:
        open_inputs = [item for item in waiting if not item.is_exhausted]
        if open_inputs:
            bound_us = min(item.last_us for item in open_inputs)
            counts = [int(np.searchsorted(item.reached, bound_us)) for item in waiting]
            if len(waiting) == 1:
                counts = [len(waiting[0].times)]
            if not any(counts):
                min(open_inputs, key=lambda item: item.last_us).read_more()
                continue
        else:
            counts = [len(item.times) for item in waiting]
            if not any(counts):
                return
        taken = [item.take(count) for item, count in zip(waiting, counts, strict=True)]
        number = np.repeat(np.arange(len(waiting)), counts)
        order = np.lexsort((number, np.concatenate([reached for _, _, reached in taken])))
        times = np.concatenate([times for _, times, _ in taken])[order]
        before = np.maximum.accumulate(np.concatenate(([latest_us], times)))
        late_us = late_by_us(times, before[:-1] - lateness_us)
        latest_us = int(before[-1])
        stops = [*(np.flatnonzero(is_late(late_us)) if cuts else ()), len(times)]
        begun = [0] * len(waiting)
        for first, stop in pairwise([0, *stops]):
            if first == stop:
                continue
            arrived = []
            for at, (item, (events, _, _)) in enumerate(zip(waiting, taken, strict=True)):
                own = late_us[first:stop][number[order[first:stop]] == at]
                if events is not None and len(own):
                    part = events.slice(begun[at], len(own))
                    arrived.append(Arrived(item.stream, part, own, int(before[stop])))
                begun[at] += len(own)
            yield arrived
