"""Turns shares of a plan into parcels, in the workers, for every source that we read without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from cep.counts import Counts
from cep.engine.prepare.device_clocks import DeviceClocks
from cep.formats.ahead import AheadGuard
from cep.formats.intake import count_lost, partition_name
from spark_runtime.sources.protocol import Source, SplitByEvents
from spark_runtime.wire.loaded import freeze_loaded
from spark_runtime.wire.packer import Packer
from spark_runtime.wire.parcels import arrival
from spark_runtime.wire.plan import Plan
from spark_runtime.wire.shared import SharedFolders

TICKS = 1024
"""Rows of the Spark source that gives each micro-batch of a stream its tasks. Share n belongs to tick n.

Spark's offsets in each checkpoint depend on it: it must not change.
"""


@dataclass(frozen=True)
class ShareReader:
    """Reads shares, by their numbers.

    `batch`: the plan of a batch; None in a stream, in which each micro-batch has one. `shared`: the
    folders that every worker must have.
    """

    sources: Mapping[str, Source]
    packer: Packer
    batch: Plan | None = None
    shared: SharedFolders = field(default_factory=SharedFolders)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of the shares with the numbers in some batches."""
        freeze_loaded()
        self.shared.require()
        plan = Plan.of_task() if self.batch is None else self.batch
        for batch in batches:
            for number in batch.column(0).to_pylist():
                tick = number % TICKS
                if tick < len(plan.shares):
                    parcels = self._share(plan, tick)
                    yield from self.packer.held_back(parcels, plan.told_us)
                if tick == 0 and plan.told_us is not None:
                    yield self.packer.time(plan.told_us)
                if tick == 0 and plan.asks:
                    yield self.packer.ask()
                if tick == 0 and plan.ends:
                    yield self.packer.end()

    def _share(self, plan: Plan, number: int) -> Iterator[pa.RecordBatch]:
        share, reached = plan.shares[number], plan.reached
        order = plan.order[number] if plan.order else [0] * len(share)
        guards: dict[tuple[str, str], AheadGuard] = {}
        counts = Counts()
        for place_of_range, (name, part) in zip(order, share, strict=True):
            source = self.sources[name]
            partition = source.partition(part)
            guard = guards.get((name, partition))
            if guard is None:
                guard = guards[name, partition] = reached.guard(source.stream, partition)
            of_range = Counts()
            for at, chunk in enumerate(source.read(part, guard, of_range)):
                place = source.position_text(chunk.source, chunk.latest)
                placed = replace(chunk, partition=partition, place=place)
                if isinstance(source, SplitByEvents) and source.splits_by_events:
                    counts.add(Counts(partitions=source.latest(chunk)))
                yield from self.packer.chunk(
                    placed, source.stream, reached.watermark_us, counts, arrived=arrival(place_of_range, at)
                )
            counts.add(of_range)
            counts.add(count_lost(of_range.lost, source.stream))
        clocks = {
            partition_name(self.sources[name].stream, partition): guard.clocks.to_text()
            for (name, partition), guard in guards.items()
            if isinstance(guard.clocks, DeviceClocks)
        }
        counts.add(Counts(clocks=clocks))
        yield from self.packer.counted(counts)
