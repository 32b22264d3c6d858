"""How far event time has got when a micro-batch starts: the same in all of its tasks.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field

from cep.counts import Highest, highest_of_json
from cep.formats.ahead import AheadGuard
from cep.formats.intake import partition_name
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class Reached:
    """What the micro-batches before have reached.

    Parameters
    ----------
    watermark_us
        An event at or before it is late; None: there has been no event yet, or the input is complete.
    latest
        By partition (`cep.formats.intake.partition_name`), the latest event time and its place in the input.
    is_live
        Whether the stream waits for what comes, so that a wall clock can judge it.
    """

    watermark_us: int | None = None
    latest: Highest = field(default_factory=dict)
    is_live: bool = False

    def to_json(self) -> str:
        """Return it as JSON."""
        return json.dumps([self.watermark_us, self.latest, self.is_live])

    @classmethod
    def of_json(cls, text: str) -> Reached:
        """Return what `to_json` wrote."""
        watermark_us, latest, is_live = json.loads(text)
        return cls(watermark_us, highest_of_json(latest), is_live)

    def guard(self, stream: Stream, partition: str = "") -> AheadGuard:
        """Return what refuses events of a partition that are too far ahead of the others in it."""
        now_us = int(time.time() * 1e6) if self.is_live else None
        latest_us, _ = self.latest.get(partition_name(stream, partition), (None, ""))
        return AheadGuard(stream.max_ahead_us, latest_us, now_us)

    def after(self, latest: Highest, watermark_us: int | None) -> Reached:
        """Return what is reached with a micro-batch whose latest events are `latest`.

        The watermark goes forward only.
        """
        highest = dict(self.latest)
        for name, seen in latest.items():
            highest[name] = max(highest.get(name, seen), seen)
        reached = [us for us in (self.watermark_us, watermark_us) if us is not None]
        return Reached(max(reached, default=None), highest, self.is_live)
