"""A spool as a source of events: blocks of its segments, read in the workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cep.counts import Counts, Highest
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.schema.stream import Stream
from cep.spool.folder import identity, readers_locked
from spark_runtime.connectors.spool.planner import SpoolPlanner
from spark_runtime.connectors.spool.reading import SpoolRange, SpoolReading, removed
from spark_runtime.event_time.partitions import PER_SOURCE, latest_by_value
from spark_runtime.sources.protocol import Range


@dataclass(frozen=True, slots=True)
class SpoolSource:
    """The messages of a spool as events; see `Source`."""

    reading: SpoolReading

    @property
    def stream(self) -> Stream:
        """The stream of its events."""
        return self.reading.stream

    @property
    def shared_folder(self) -> str:
        """The folder of the spool."""
        return self.reading.folder

    def check(self) -> None:
        """Check that the spool exists and that the stream can register there; raise InputError if not."""
        identity(self.reading.path)
        if self.reading.log:
            with readers_locked(self.reading.path):
                pass

    def planner(self) -> SpoolPlanner:
        """Return the planner of micro-batches."""
        return SpoolPlanner(self.reading)

    def everything(self) -> list[tuple[int, SpoolRange]]:
        """Return ranges of all messages that exist now."""
        return self.planner().everything()

    def partition(self, part: Range) -> str:
        """Return "": all messages have one order."""
        return ""

    @property
    def splits_by_events(self) -> bool:
        """Whether a column of the events names their partition."""
        return self.reading.watermark_per != PER_SOURCE

    def latest(self, chunk: Chunk) -> Highest:
        """Return the latest event time of a chunk by value of the column."""
        return latest_by_value(chunk, self.stream, self.reading.watermark_per)

    def position_text(self, source: str, position: int) -> str:
        """Return the segment and the number: ``inbox/00000000000000000000.segment@17``."""
        return f"{source}@{position}"

    def read(self, part: Range, ahead: AheadGuard, counts: Counts) -> Iterator[Chunk]:
        """Yield the events of a range."""
        found = SpoolRange(*part)
        reader = self.reading.message_reader()
        try:
            for messages in self.reading.portions(found):
                yield reader.chunk(messages, ahead)
        except FileNotFoundError:  # raised before anything is yielded
            if not self.reading.goes_on_without:
                raise removed(self.reading, found.first, found.stop) from None
            origin = self.reading.origin(found.segment)
            counts.lost[origin] = counts.lost.get(origin, 0) + found.stop - found.first
