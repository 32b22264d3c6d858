"""The event time reached when a micro-batch starts, which is the same in all of its tasks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from cep.counts import Highest, highest_of_json
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.prepare.device_clocks import DeviceClocks
from cep.formats.ahead import AheadGuard
from cep.formats.intake import partition_name
from cep.schema.stream import Stream


@dataclass(frozen=True, slots=True)
class Reached:
    """The event time that the earlier micro-batches have reached.

    - `watermark_us`: an event at or before it is late; None: no event has arrived yet, or the input is
      complete.
    - `latest`: by partition (`cep.formats.intake.partition_name`), the latest event time and its place in the
      input.
    - `is_live`: whether the stream waits for new input, so that the wall clock applies to it.
    - `clocks`: by partition, the state of the device clocks (`DeviceClocks.to_text`), if the stream declares
      them.
    """

    watermark_us: int | None = None
    latest: Highest = field(default_factory=dict)
    is_live: bool = False
    clocks: Mapping[str, str] = field(default_factory=dict)

    @property
    def read_until_us(self) -> int | None:
        """The latest event time that was read; None: no event was read."""
        times_us = [us for us, _ in self.latest.values()]
        if self.watermark_us is not None and self.watermark_us < END_OF_TIME_US:
            times_us.append(self.watermark_us)
        return max(times_us, default=None)

    def to_json(self) -> str:
        """Return the object as JSON."""
        return json.dumps([self.watermark_us, self.latest, self.is_live, dict(self.clocks)])

    @classmethod
    def of_json(cls, text: str) -> Reached:
        """Return the object that `to_json` wrote.

        Raises ValueError, TypeError or AttributeError: it is another text.
        """
        watermark_us, latest, is_live, clocks = json.loads(text)
        watermark_us = None if watermark_us is None else int(watermark_us)
        return cls(watermark_us, highest_of_json(latest), bool(is_live), dict(clocks))

    def guard(self, stream: Stream, partition: str = "") -> AheadGuard:
        """Return the check that refuses events of a partition that are too far ahead of its other events."""
        now_us = int(time.time() * 1e6) if self.is_live else None
        name = partition_name(stream, partition)
        latest_us, _ = self.latest.get(name, (None, ""))
        clocks = None
        if stream.device_clock is not None:
            known = self.clocks.get(name)
            clocks = DeviceClocks(stream) if known is None else DeviceClocks.of_text(stream, known)
        return AheadGuard(stream.max_ahead_us, latest_us, now_us, clocks)

    def after(
        self, latest: Highest, watermark_us: int | None, clocks: Mapping[str, str] | None = None
    ) -> Reached:
        """Return the event time reached after a micro-batch whose latest events are `latest`.

        `clocks` replaces the state of the same partitions. The watermark only advances.
        """
        highest = dict(self.latest)
        for name, seen in latest.items():
            highest[name] = max(highest.get(name, seen), seen)
        watermark_us = latest_time(self.watermark_us, watermark_us)
        return Reached(watermark_us, highest, self.is_live, {**self.clocks, **(clocks or {})})


def latest_time(*times_us: int | None) -> int | None:
    """Return the latest of some times; None if none is known."""
    return max((us for us in times_us if us is not None), default=None)


def is_after(us: int | None, other_us: int | None) -> bool:
    """Return whether a time is known and is after another one, if that one is known."""
    return us is not None and (other_us is None or us > other_us)
