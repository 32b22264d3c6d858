"""How the sources of a run are read, and their remaining input: the basis of decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_runtime.event_time.partitions import Partitions, Unread


@dataclass(frozen=True, slots=True)
class StreamKinds:
    """The streams of a run, by the way in which their sources are read.

    - `ours`: streams whose sources we read.
    - `by_spark`: streams whose sources only Spark can read. Only Spark knows whether they have input.
    - `mixed`: those of `ours` whose partitions arrive mixed; only the events show to which partition they
      belong.
    - `selective`: those of `ours` for which the input of one partition can be planned alone.
    - `timed`: those of `ours` for which event times of the input are known before it is read.
    """

    ours: tuple[str, ...]
    by_spark: tuple[str, ...] = ()
    mixed: frozenset[str] = frozenset()
    selective: frozenset[str] = frozenset()
    timed: frozenset[str] = frozenset()

    @property
    def all(self) -> tuple[str, ...]:
        """All streams."""
        return (*self.ours, *self.by_spark)


@dataclass(frozen=True, slots=True)
class Remaining:
    """The input that remains after some offsets.

    `unread`: by partition, its known but unread input. `ended`: partitions that get no further input and are
    read to their end. `completes`: in a run at whose end the input is complete: the streams without further
    input. Otherwise None.
    """

    unread: Mapping[str, Unread]
    ended: frozenset[str]
    completes: frozenset[str] | None

    def complete(self, partitions: Partitions, timed: frozenset[str]) -> Iterator[str]:
        """Yield the partitions that hold nothing back, because they or the whole input are complete.

        `timed` is that of `StreamKinds`.
        """
        yield from self.ended
        if self.completes is None:
            return
        for name, part in partitions.items():
            is_read = part.stream in timed and name not in self.unread and part.stream not in self.unread
            if is_read or part.stream in self.completes:
                yield name
