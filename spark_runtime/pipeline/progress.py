"""The progress of a running pipeline: totals for the summary, and one line on the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.text import Text

from cep.counts import Counts, absent_name
from spark_runtime.event_time.time_status import TimeStatus

_FOR_THE_NEXT = ("deadlines", "clocks")
"""Counts that serve the next micro-batch, and mean nothing to a user."""

_FOR_METRICS = ("events_of", "delays", "delay_us", "open_runs", "open_steps", "newest")
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
    batch_seconds: tuple[float, ...]  # of each micro-batch, in order
    was_stopped: bool = False
    time: TimeStatus | None = None  # of a stream
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
        }

    @property
    def reasons(self) -> dict[str, int]:
        """Number of malformed records, by reason."""
        return self.counts.reasons

    @property
    def processing_seconds(self) -> float:
        """Seconds during which Spark processed batches."""
        return sum(self.batch_seconds)

    @property
    def events_per_second(self) -> float:
        """Events per second of Spark's processing, late and malformed ones included."""
        return self.counts.read / self.processing_seconds if self.processing_seconds else 0.0


@dataclass(slots=True)
class Totals:
    """Counts of a run of these rules."""

    rules: tuple[str, ...]
    counts: Counts = field(init=False)
    batches: set[int] = field(default_factory=set)
    batch_seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counts = Counts()
        self.add_rules(self.rules)

    def add_rules(self, rules: Iterable[str]) -> None:
        """Let the counts have these rules, too, also those that count nothing."""
        for rule in rules:
            for counts in (
                self.counts.matches,
                self.counts.timeouts,
                self.counts.suppressed,
                self.counts.dropped_runs,
            ):
                counts.setdefault(rule, 0)

    def add(self, batch: int, counts: Iterable[Counts]) -> Counts:
        """Add what the operator counted in one batch, and return it."""
        of_batch = Counts()
        for part in counts:
            of_batch.add(part)
        self.batches.add(batch)
        self.counts.add(of_batch)
        return of_batch

    def summary(self, seconds: float, *, was_stopped: bool) -> Summary:
        """Return the totals as a summary."""
        return Summary(self.counts, len(self.batches), seconds, tuple(self.batch_seconds), was_stopped)

    def line(self, seconds: float) -> Text:
        """Return what to show while the pipeline runs."""
        now = self.summary(seconds, was_stopped=False)
        counts = now.counts
        return Text(
            f"batch {now.n_batches}   {counts.events:,} events   {now.events_per_second:,.0f} events/s   "
            f"{sum(counts.matches.values()):,} matches   {counts.late:,} late   "
            f"{counts.malformed:,} malformed   {seconds:.0f} s"
        )
