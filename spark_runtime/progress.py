"""What a running pipeline has done so far: totals for the summary, and one line on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from cep.local import Counts
from spark_runtime.output import DROPPED_RUNS, MALFORMED, MATCHES, READ, SUPPRESSED, TIMEOUTS


@dataclass(slots=True)
class Summary:
    """What happened in a run."""

    counts: Counts
    reasons: dict[str, int]
    n_batches: int
    seconds: float
    batch_seconds: tuple[float, ...]  # of each micro-batch that had something to do, in order
    was_stopped: bool = False

    @property
    def processing_seconds(self) -> float:
        """The time in which Spark processed batches."""
        return sum(self.batch_seconds)

    @property
    def events_per_second(self) -> float:
        """Events, late and malformed ones included, by seconds in which Spark processed batches."""
        read = self.counts.events + self.counts.malformed
        return read / self.processing_seconds if self.processing_seconds else 0.0


@dataclass(slots=True)
class Totals:
    """Counters of a run. A batch that Spark repeats in the same run is counted once.

    `column_sources` are the numbers of the sources that are not text.
    """

    rules: tuple[str, ...]
    column_sources: tuple[int, ...]
    by_batch: dict[int, Counter[str]] = field(default_factory=dict)
    processing_ms: dict[int, int] = field(default_factory=dict)
    input_rows: dict[int, int] = field(default_factory=dict)

    def add(self, batch: int, counts: Iterable[Counter[str]]) -> Counter[str]:
        """Note and return what the operator counted in one batch."""
        total: Counter[str] = Counter()
        for part in counts:
            total += part
        self.by_batch[batch] = total
        return total

    def note(self, progress: Any) -> None:
        """Note Spark's report of one batch."""
        batch = int(progress["batchId"])
        if "addBatch" in progress["durationMs"]:
            self.processing_ms[batch] = int(progress["durationMs"]["triggerExecution"])
            rows = [int(source["numInputRows"]) for source in progress["sources"]]
            self.input_rows[batch] = sum(rows[number] for number in self.column_sources)

    @property
    def counts(self) -> Counter[str]:
        """All counts so far."""
        total: Counter[str] = Counter()
        for part in list(self.by_batch.values()):
            total += part
        return total

    def summary(self, seconds: float, *, was_stopped: bool) -> Summary:
        """Return the totals as a summary."""
        found = self.counts
        reasons = {name.removeprefix(MALFORMED): n for name, n in found.items() if name.startswith(MALFORMED)}
        reasons = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
        malformed = sum(reasons.values())
        counts = Counts(
            # A source of columns does not count by itself: Spark does.
            events=max(found[READ] + sum(self.input_rows.values()) - malformed, 0),
            malformed=malformed,
            late=found["late"],
            duplicates=found["duplicates"],
            matches={rule: found[MATCHES + rule] for rule in self.rules},
            timeouts={rule: found[TIMEOUTS + rule] for rule in self.rules},
            suppressed={rule: found[SUPPRESSED + rule] for rule in self.rules},
            dropped_runs={rule: found[DROPPED_RUNS + rule] for rule in self.rules},
        )
        batch_seconds = tuple(ms / 1000 for _, ms in sorted(self.processing_ms.items()))
        return Summary(counts, reasons, len(self.by_batch), seconds, batch_seconds, was_stopped)

    def line(self, seconds: float) -> Text:
        """Return what to show while the pipeline runs."""
        now = self.summary(seconds, was_stopped=False)
        counts = now.counts
        return Text(
            f"batch {now.n_batches}   {counts.events:,} events   {now.events_per_second:,.0f} events/s   "
            f"{sum(counts.matches.values()):,} matches   {counts.late:,} late   "
            f"{counts.malformed:,} malformed   {seconds:.0f} s"
        )
