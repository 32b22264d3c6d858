"""The stream of a soak in this process: real plans, readers and operator, virtual time; Spark is played.

Here what a stream keeps can be counted, object by object. A soak sees it as memory, after hours.
"""

from __future__ import annotations

import gc
import random
import sys
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from cep.formats.files import Format, Reading
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.event_time.watermarks import WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.property.source_partitions import N_GROUPS, Played
from tests.soak.feed import STREAMS, Feed
from tests.soak.pipeline import TRIGGER, Rules

_BEGAN = 1_790_000_000.0


class Kept(NamedTuple):
    """What this process keeps: objects that Python tracks, their bytes without other objects, bytes of Arrow.

    A list of texts, for example, is one object, and has 8 bytes for each of them.
    """

    objects: int
    bytes: int
    arrow_bytes: int

    @classmethod
    def now(cls) -> Kept:
        """Return it, without garbage."""
        gc.unfreeze()  # what the operator hides from garbage collection
        before, found = None, cls._once()
        while found != before:  # looking at lazy objects may make them others
            before, found = found, cls._once()
        return found

    @classmethod
    def _once(cls) -> Kept:
        gc.collect()
        tracked = gc.get_objects()
        # Arrow counts its own. `isinstance` would ask a weak reference for the object, which may be gone.
        sizes = (sys.getsizeof(one) for one in tracked if not issubclass(type(one), pa.Array))
        return cls(len(tracked), sum(sizes), pa.total_allocated_bytes())


class InProcess:
    """The stream of a soak whose files are in `folder`; `rate`: events per second of virtual time."""

    def __init__(self, folder: Path, rate: int) -> None:
        self._feed = Feed(folder, rate, random.Random(7), began=_BEGAN)
        self._now = _BEGAN
        Rules(folder).write()
        rules = compile_rulebook(load_rulebook([folder / "rules.cep"])).rule_set
        checkpoint = Checkpoint(str(folder / "ck"), "run", N_GROUPS, LocalFiles(str(folder / "ck")))
        self._sources = {
            name: FolderSource(
                rules.inputs[name],
                str(folder / "events" / name),
                Format.JSON,
                Reading(rules.keys_of(rules.inputs[name])),
                checkpoint.file_log(name),
            )
            for name in STREAMS
        }
        self._played = Played(rules)
        self._batches = MicroBatches(
            checkpoint=checkpoint,
            sources=self._sources,
            n_tasks=2,
            rule=WatermarkRule(rules.lateness_us),
            done=last_done(checkpoint, is_live=True),
            interval_s=0.0,
            finishes=False,
            clock=lambda: self._now,
        )
        self.n_matches = 0

    def run(self, n: int) -> None:
        """Run `n` micro-batches."""
        for _ in range(n):
            self._now += TRIGGER
            self._feed.step(self._now)
            batch = self._batches.done.batch + 1
            plan = self._batches.next(batch)
            assert plan is not None
            counts = self._played.micro_batch(self._sources, plan)
            self._batches.complete(batch, counts)
            self.n_matches += counts.rows
            self._played.matches.clear()
