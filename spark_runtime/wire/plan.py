"""The plan of a micro-batch: what each task reads, and the event time reached before.

The driver writes it into the checkpoint before the micro-batch is computed. A micro-batch that is
repeated after a crash has the same plan, so it reads the same bytes, and the same events are late.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_runtime.event_time.reached import Reached
from spark_runtime.sources.protocol import Offset, Range, Source
from spark_runtime.storage.sealed import unsealed
from spark_runtime.wire.shared import not_shared

if TYPE_CHECKING:
    from pyspark import TaskContext

PROPERTY = "cep.plan"
"""The task property that contains the plan of its micro-batch, or the name of the file that does."""

CAP_PROPERTY = "cep.cap"
"""The task property that contains `Plan.cap_us`; empty or missing: None."""

CLOCK_PROPERTY = "cep.clock"
"""The task property that contains `Plan.clock_us`; empty or missing: None."""

MAX_INLINE = 1 << 14
"""Most characters of a plan that is passed as text; longer ones are passed as a file."""

IDENTITY_DIGITS = 15
"""Hexadecimal digits of `Plan.identity`: some sinks store it as a signed 64-bit integer."""

Share = list[tuple[str, Range]]
"""The input of one task: ranges, each with the name of its stream."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a micro-batch.

    - `shares`: at most one for each task.
    - `offsets`: by stream, the offset of its source after the shares are read.
    - `ends`: whether the input is complete after the micro-batch.
    - `cap_us`: the exact watermark after the micro-batch; None: key groups derive it from their latest
      events.
    - `clock_us`: the watermark after the micro-batch if the wall clock moves it past `cap_us`, which is then
      the watermark by events and never None. None: only events move it.
    - `asks`: whether every key group is called, even without events, so that it reports its deadline.
    - `tables`: by static table, the digest of its content in this micro-batch.
    - `order`: for each share, the places of its ranges in the order in which their records arrived. Empty in
      plans of earlier versions.
    - `lost`: by stream, the number of records that were removed before any plan contained them. The plan
      ensures that they count once.
    - `identity`: a hash of this plan and all plans before it. So it distinguishes micro-batches with the same
      number, which may exist if a checkpoint was copied. Empty in plans of earlier versions.
    """

    shares: Sequence[Share]
    offsets: Mapping[str, Offset] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached)
    ends: bool = False
    cap_us: int | None = None
    clock_us: int | None = None
    asks: bool = False
    tables: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    identity: str = ""
    order: Sequence[Sequence[int]] = field(default_factory=list)

    def following(self, identity: str) -> Plan:
        """Return the plan with its identity, given the identity of the plan before it."""
        text = f"{identity}{dataclasses.replace(self, identity='').to_json()}"
        return dataclasses.replace(self, identity=sha256(text.encode()).hexdigest()[:IDENTITY_DIGITS])

    @property
    def told_us(self) -> int | None:
        """The watermark that Spark gets; None: it follows the events that are read."""
        return self.cap_us if self.clock_us is None else self.clock_us

    def to_json(self) -> str:
        """Return the plan as JSON."""
        reached = self.reached.to_json()
        rare = ("tables", "lost", "order")
        members = [f.name for f in dataclasses.fields(self) if f.name not in ("reached", *rare)]
        members += [name for name in rare if getattr(self, name)]
        return json.dumps({**{name: getattr(self, name) for name in members}, "reached": reached})

    @classmethod
    def of_json(cls, text: str) -> Plan:
        """Return the plan that `to_json` wrote."""
        found = json.loads(text)
        shares: list[Share] = [[(stream, tuple(part)) for stream, part in share] for share in found["shares"]]
        reached = Reached.of_json(found["reached"])
        # Plans of earlier versions have only these fields.
        more = (
            found.get("clock_us"),
            found.get("asks", False),
            found.get("tables", {}),
            found.get("lost", {}),
            found.get("identity", ""),
            found.get("order", []),
        )
        return cls(shares, found["offsets"], reached, found["ends"], found["cap_us"], *more)

    @classmethod
    def of_task(cls) -> Plan:
        """Return the plan of the running task's micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(PROPERTY)
        if told is None:
            return cls(())
        if told.startswith("{"):
            return cls.of_json(told)
        try:
            return cls.of_json(unsealed(Path(told).read_bytes()))
        except FileNotFoundError:
            raise not_shared(told) from None


def batch_of_task(context: TaskContext) -> int:
    """Return the number of the micro-batch that a task belongs to."""
    told = context.getLocalProperty("streaming.sql.batchId")
    assert told is not None  # in the folder of another micro-batch rows would be lost
    return int(told)


def time_of_task(name: str) -> int | None:
    """Return `Plan.cap_us` or `Plan.clock_us` of the micro-batch that the running task belongs to.

    `name`: `CAP_PROPERTY` or `CLOCK_PROPERTY`.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(name)
    return int(told) if told else None


def shares(
    ranges: Sequence[tuple[str, int, Range]], n_tasks: int, sources: Mapping[str, Source]
) -> tuple[list[Share], list[list[int]]]:
    """Return ranges (stream, size in bytes, range) as at most `n_tasks` shares of about equal size.

    The ranges are given in the order in which their records arrived; also return their places in this order
    (`Plan.order`). If devices have their own clocks, the ranges of a source partition stay together.
    """
    together: dict[Any, tuple[int, list[int]]] = {}
    for number, (stream, n_bytes, part) in enumerate(ranges):
        source = sources[stream]
        is_ordered = source.stream.device_clock is not None
        key = (stream, source.partition(part)) if is_ordered else number
        size, places = together.setdefault(key, (0, []))
        places.append(number)
        together[key] = size + n_bytes, places
    order: list[list[int]] = [[] for _ in range(min(n_tasks, len(together)))]
    sizes = [0] * len(order)
    for n_bytes, places in sorted(together.values(), key=lambda item: -item[0]):
        smallest = sizes.index(min(sizes))
        order[smallest] += places
        sizes[smallest] += n_bytes
    order = [sorted(places) for places in order]
    return [[(ranges[n][0], ranges[n][2]) for n in places] for places in order], order
