"""The event time of a run: each source partition, what holds the watermark back, and what waits for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cep.counts import amount
from cep.output.summary import long_duration
from cep.schema.time_literals import time_for_people

MOST_SHOWN = 5
"""Number of partitions that the summary names, starting with those that lag most."""


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """The status of one source partition.

    - `name`: the stream, or ``stream[value]``.
    - `latest_us`: its latest event time, microseconds since 1970; None: no event has arrived.
    - `behind_us`: how far it lags behind the fastest partition, in microseconds.
    - `silent_s`: seconds of the wall clock since its last event arrived.
    - `is_idle`: whether it is considered silent and holds nothing back.
    - `has_unread`: whether it has input that is known but not read.
    - `is_paused`: whether it is not read until others have caught up.
    - `is_given_up`: whether it holds nothing back until it has caught up, because too many events waited for
      it.
    """

    name: str
    latest_us: int | None
    behind_us: int
    silent_s: float
    is_idle: bool = False
    has_unread: bool = False
    is_paused: bool = False
    is_given_up: bool = False

    def line(self) -> str:
        """Return the status in one line."""
        return f"{self.name}: {'; '.join(_about(self))}"


@dataclass(frozen=True, slots=True)
class ByClock:
    """The effect of the wall clock on the watermark of a pipeline with `end_waits_after`.

    `is_ahead`: whether it has moved the watermark further than events did. `n_steps`: how often it has moved
    it in this run.
    """

    is_ahead: bool
    n_steps: int


@dataclass(frozen=True, slots=True)
class TimeStatus:
    """The status of event time in a run.

    - `watermark_us`: microseconds since 1970; None: not known yet.
    - `holder`: the partition that holds it back; "" if it follows the only one, or the fastest.
    - `held_s`: seconds of the wall clock since the watermark last moved.
    - `waiting`: prepared events that wait in the state while a partition holds the watermark back; else 0.
    - `partitions`: all known partitions, those that lag most first.
    - `given_up`: partitions without which the watermark advanced, because too many events waited for them.
    - `is_paused`: whether only the partition that holds the watermark back is read.
    - `by_clock`: the effect of the wall clock; None in a pipeline without `end_waits_after`.
    """

    watermark_us: int | None
    holder: str
    held_s: float
    waiting: int
    partitions: tuple[PartitionStatus, ...] = ()
    given_up: tuple[str, ...] = ()
    is_paused: bool = False
    by_clock: ByClock | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values, with times as ISO 8601."""
        return {
            "watermark": _time(self.watermark_us),
            "held_by": self.holder or None,
            "held_seconds": round(self.held_s, 3),
            "waiting_events": self.waiting,
            "paused": self.is_paused,
            "given_up": list(self.given_up),
            **({} if self.by_clock is None else {"by_clock": asdict(self.by_clock)}),
            "partitions": [
                {
                    **{name: value for name, value in asdict(part).items() if not name.endswith("_us")},
                    "latest": _time(part.latest_us),
                    "behind_seconds": part.behind_us / 1e6,
                }
                for part in self.partitions
            ],
        }

    def line(self) -> str:
        """Return the status in one line; "" if there is nothing to report."""
        time = _time(self.watermark_us) or "not known yet"
        if self.by_clock is not None and self.by_clock.is_ahead:
            return f"watermark {time}, moved by the wall clock: no source gives events"
        if not self.holder and not self.given_up:
            return ""
        parts = [f"watermark {time}"]
        if self.holder:
            parts.append(f"held by {self.holder} for {self.held_s:.0f} s")
            if self.waiting:
                parts.append(amount(self.waiting, "event waits", "events wait"))
        if self.is_paused:
            parts.append("all others are paused")
        if self.given_up:
            parts.append(f"without {self._given_up_names()}")
        return ", ".join(parts)

    def _given_up_names(self) -> str:
        """Return the partitions that were given up, up to the number that the summary shows."""
        more = len(self.given_up) - MOST_SHOWN
        names = ", ".join(self.given_up[:MOST_SHOWN])
        return f"{names} and {more:,} more" if more > 0 else names

    def summary_lines(self) -> Iterator[tuple[str, str]]:
        """Yield the summary's lines (a word, a text) if several partitions or the wall clock decide."""
        if self.given_up:
            yield "given up", f"{self._given_up_names()}: too many events waited"
        n_steps = 0 if self.by_clock is None else self.by_clock.n_steps
        is_ahead = self.by_clock is not None and self.by_clock.is_ahead
        if len(self.partitions) < 2 and not n_steps and not is_ahead:
            return
        held = f", held back by {self.holder}" if self.holder else ""
        held = ", moved by the wall clock" if is_ahead else held
        yield "watermark", f"{_time(self.watermark_us) or 'not known yet'}{held}"
        if n_steps:
            times = "once" if n_steps == 1 else f"{n_steps:,} times"
            yield "", f"the wall clock moved it {times} in this run (end_waits_after)"
        if self.waiting:
            yield "", f"{amount(self.waiting, 'event waits', 'events wait')} for it in the state"
        for part in self.partitions[:MOST_SHOWN]:
            yield "", part.line()
        if len(self.partitions) > MOST_SHOWN:
            yield "", f"{len(self.partitions) - MOST_SHOWN:,} other partitions are further on"


def _about(part: PartitionStatus) -> Iterator[str]:
    yield _time(part.latest_us) or "no event yet"
    if part.behind_us:
        yield f"{long_duration(part.behind_us)} behind"
    if part.is_idle:
        yield "idle"
    if part.is_given_up:
        yield "given up until it has caught up"
    if part.has_unread:
        yield "more of it is unread"
    if part.is_paused:
        yield "paused until the others have caught up"


def _time(us: int | None) -> str | None:
    return None if us is None else time_for_people(us) or "complete"


def furthest_behind_first(
    latest_us: Mapping[str, int | None], parts: Mapping[str, PartitionStatus]
) -> tuple[PartitionStatus, ...]:
    """Return `parts` in the order of `latest_us`, starting with those without an event."""
    known = [us for us in latest_us.values() if us is not None]
    lowest = min(known, default=0) - 1
    return tuple(sorted(parts.values(), key=lambda part: (latest_us[part.name] or lowest, part.name)))
