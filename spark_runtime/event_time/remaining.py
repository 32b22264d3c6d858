"""How the sources of a run are read, and what is left of their input: what decisions are made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spark_runtime.event_time.partitions import Partitions, Unread


@dataclass(frozen=True, slots=True)
class StreamKinds:
    """The streams of a run, by how their sources are read.

    Parameters
    ----------
    ours
        We read their sources.
    by_spark
        Only Spark reads their sources. Nobody knows here whether they have something.
    mixed
        Of ours: their partitions come together, and only the events tell them apart.
    selective
        Of ours: the input of one partition can be planned alone.
    timed
        Of ours: event times of the input are known before it is read.
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
    """What is left of the input after some offsets.

    Parameters
    ----------
    unread
        By partition what is known of it and not read.
    ended
        Partitions that get nothing more and are read to their end.
    completes
        None, or of a run at whose end the input is complete: the streams that have nothing more.
    """

    unread: Mapping[str, Unread]
    ended: frozenset[str]
    completes: frozenset[str] | None

    def complete(self, partitions: Partitions, timed: frozenset[str]) -> Iterator[str]:
        """Yield the partitions that hold nothing back: they, or all of the input, are complete.

        `timed` is that of `StreamKinds`.
        """
        yield from self.ended
        if self.completes is None:
            return
        for name, part in partitions.items():
            is_read = part.stream in timed and name not in self.unread and part.stream not in self.unread
            if is_read or part.stream in self.completes:
                yield name
