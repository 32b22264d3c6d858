"""The progress after a micro-batch. The checkpoint stores it, and everything that follows depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_runtime.event_time.clock_waits import Waits
from spark_runtime.event_time.partitions import Partitions
from spark_runtime.event_time.reached import Reached, is_after
from spark_runtime.event_time.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Done:
    """The progress after a micro-batch.

    `batch`: its number; -1 if there was none. `waits`: none in a pipeline without `end_waits_after`.
    `reported`: how many matches were reported by rule and day, if a limit counts them
    (`spark_runtime.operator.daily`).
    """

    batch: int
    reached: Reached
    offsets: Mapping[str, Any]
    ended: bool
    partitions: Partitions = field(default_factory=dict)
    waiting: Waiting = field(default_factory=Waiting)
    waits: Waits | None = None
    reported: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def watermark_us(self) -> int | None:
        """The watermark that was reached."""
        return self.reached.watermark_us

    @property
    def is_ahead_by_clock(self) -> bool:
        """Whether the wall clock has moved the watermark further than events did."""
        waits = self.waits
        return waits is not None and is_after(self.watermark_us, waits.events_us)
