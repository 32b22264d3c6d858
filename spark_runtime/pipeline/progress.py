"""The progress of a running pipeline: totals for the summary, and one line on the terminal."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.text import Text

from cep.counts import Counts, absent_name
from spark_runtime.event_time.time_status import TimeStatus
from spark_runtime.pipeline.hot_keys import HotKey, hot_keys

MOST_TIMES = 10_000
"""Micro-batches whose durations are kept."""

_FOR_THE_NEXT = ("deadlines", "clocks")
"""Counts that serve the next micro-batch, and mean nothing to a user."""

_FOR_METRICS = ("events_of", "delays", "delay_us", "open_runs", "open_steps", "newest", "busy")
"""Counts in the form of the metrics and of the live page of a running pipeline."""

_FOR_GAPS = ("unseen",)
"""Counts in the form of the ledger of gaps."""

_OF_ABSENT = ("records", "absent", "looked_at", "instead")
"""Counts that are reported as `absent_fields`."""


@dataclass(slots=True)
class Summary:
    """The results of a run, as counts and times."""

    counts: Counts
    n_batches: int
    seconds: float
    batch_seconds: tuple[float, ...]  # of the last micro-batches (`MOST_TIMES`), in order
    processing_seconds: float  # of all of them
    was_stopped: bool = False
    time: TimeStatus | None = None  # of a stream
    hot_keys: tuple[HotKey, ...] = ()  # of a stream: of each kind of things the largest share
    sources: tuple[str, ...] = ()  # their messages, such as how far the run lags
    read_columns: frozenset[tuple[str, str]] = frozenset()  # streams and their columns that rules read

    @property
    def lacks_fields(self) -> bool:
        """Whether every event lacked the field of a column that rules read."""
        return not self.read_columns.isdisjoint(self.counts.absent_columns)

    @property
    def absent_fields(self) -> list[dict[str, Any]]:
        """Columns whose field no examined event has."""
        return [
            {
                "stream": stream,
                "column": column,
                "events": self.counts.records[stream],
                "instead": self.counts.instead[absent_name(stream, column)],
                "is_read": (stream, column) in self.read_columns,
            }
            for stream, column in self.counts.absent_columns
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON values: `Counts` with zeros, and the status of event time."""
        hidden = (*_FOR_THE_NEXT, *_FOR_METRICS, *_FOR_GAPS, *_OF_ABSENT)
        counts = {name: n for name, n in asdict(self.counts).items() if name not in hidden}
        return {
            "counts": counts | {"late": self.counts.late, "malformed": self.counts.malformed},
            "absent_fields": self.absent_fields,
            "micro_batches": self.n_batches,
            "seconds": round(self.seconds, 3),
            "events_per_second": round(self.events_per_second),
            "was_stopped": self.was_stopped,
            "time": None if self.time is None else self.time.to_json(),
            "sources": list(self.sources),
            "hot_keys": [asdict(hot) for hot in self.hot_keys],
        }

    @property
    def reasons(self) -> dict[str, int]:
        """Number of malformed records, by reason."""
        return self.counts.reasons

    @property
    def events_per_second(self) -> float:
        """Events per second of Spark's processing, late and malformed ones included."""
        return self.counts.read / self.processing_seconds if self.processing_seconds else 0.0


@dataclass(slots=True)
class Times:
    """How long micro-batches took: all of them together, and each of the last ones.

    A stream may run for years, so not every duration is kept.
    """

    n: int = 0
    seconds: float = 0.0
    last: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))

    def append(self, seconds: float) -> None:
        """Add the duration of the next micro-batch."""
        self.n += 1
        self.seconds += seconds
        self.last.append(seconds)

    def since(self, n: int) -> list[float]:
        """Return the durations after the first `n`, as far as they are kept."""
        found = list(self.last)  # a copy: another thread adds to it
        return found[max(len(found) - max(self.n - n, 0), 0) :]


@dataclass(slots=True)
class Totals:
    """Counts of a run of these rules."""

    rules: tuple[str, ...]
    counts: Counts = field(init=False)
    n_batches: int = 0
    times: Times = field(default_factory=Times)
    hot: dict[str, HotKey] = field(default_factory=dict)  # of each kind of things the largest share
    hot_now: tuple[HotKey, ...] = ()  # of the last micro-batch
    _last_batch: int = -1

    def __post_init__(self) -> None:
        self.counts = Counts()
        self.add_rules(self.rules)

    def add_rules(self, rules: Iterable[str]) -> None:
        """Add these rules to the counts, even those that count nothing."""
        for rule in rules:
            for counts in (
                self.counts.matches,
                self.counts.timeouts,
                self.counts.suppressed,
                self.counts.dropped_runs,
            ):
                counts.setdefault(rule, 0)

    def add(self, batch: int, counts: Iterable[Counts]) -> Counts:
        """Add what the operator counted in one batch; return the counts of this batch."""
        of_batch = Counts()
        for part in counts:
            of_batch.add(part)
        self.n_batches += batch > self._last_batch  # Spark repeats one that failed
        self._last_batch = max(batch, self._last_batch)
        self.counts.add(of_batch)
        return of_batch

    def note_hot(self, batch: int, counts: Counts, percent: int) -> None:
        """Record the hot keys of a micro-batch, after its counts were added."""
        self.hot_now = tuple(hot_keys(batch, counts, self.counts.open_runs_of, percent))
        for hot in self.hot_now:
            known = self.hot.get(hot.of)
            self.hot[hot.of] = hot if known is None or hot.share > known.share else known

    def summary(self, seconds: float, *, was_stopped: bool) -> Summary:
        """Return the totals as a summary."""
        return Summary(
            self.counts,
            self.n_batches,
            seconds,
            tuple(self.times.last),
            self.times.seconds,
            was_stopped,
            hot_keys=tuple(self.hot.values()),
        )

    def line(self, seconds: float) -> Text:
        """Return what to show while the pipeline runs."""
        now = self.summary(seconds, was_stopped=False)
        counts = now.counts
        return Text(
            f"batch {now.n_batches}   {counts.events:,} events   {now.events_per_second:,.0f} events/s   "
            f"{sum(counts.matches.values()):,} matches   {counts.late:,} late   "
            f"{counts.malformed:,} malformed   {seconds:.0f} s"
        )
