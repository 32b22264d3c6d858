"""Computes the `TimeStatus` of a run, which is shown to users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest

from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Partitions, Unread
from spark_runtime.event_time.reporting import Reporting
from spark_runtime.event_time.run_watermark import RunWatermark
from spark_runtime.event_time.time_status import (
    MOST_SHOWN,
    ByClock,
    PartitionStatus,
    TimeStatus,
    furthest_behind_first,
)


def status_of(
    run: RunWatermark, done: Done, reporting: Reporting, unread: Mapping[str, Unread]
) -> TimeStatus:
    """Return the status of event time, with all partitions."""
    known = run.partitions(done)
    latest = {name: part.latest_us for name, part in known.items()}
    parts = furthest_behind_first(latest, _statuses(run, done, known, known, unread))
    return _status(run, done, reporting, parts, tuple(run.gave_up))


def held_line(run: RunWatermark, done: Done, reporting: Reporting) -> str:
    """Return what holds the watermark back, for the line of progress."""
    return _status(run, done, reporting, (), done.waiting.given_up).line()


def furthest_behind(run: RunWatermark, done: Done, unread: Mapping[str, Unread]) -> Iterator[str]:
    """Yield the status of the first partitions of `status_of`, without examining thousands of others."""
    known = run.partitions(done)
    if len(known) < 2:
        return
    lowest = min((p.latest_us for p in known.values() if p.latest_us is not None), default=0) - 1
    latest = {name: lowest if p.latest_us is None else p.latest_us for name, p in known.items()}
    names = nsmallest(MOST_SHOWN, known, key=lambda name: (latest[name], name))
    yield from (part.line() for part in _statuses(run, done, names, known, unread).values())
    if len(known) > MOST_SHOWN:
        yield f"{len(known) - MOST_SHOWN:,} other partitions are further on"


def _statuses(
    run: RunWatermark, done: Done, names: Iterable[str], known: Partitions, unread: Mapping[str, Unread]
) -> dict[str, PartitionStatus]:
    now_s = run.clock()
    fastest_us = max((p.latest_us for p in known.values() if p.latest_us is not None), default=0)
    found = {}
    for name in names:
        part = known[name]
        found[name] = PartitionStatus(
            name=name,
            latest_us=part.latest_us,
            behind_us=0 if part.latest_us is None else fastest_us - part.latest_us,
            silent_s=now_s - part.seen_s,
            is_idle=name not in unread and run.rule.is_idle(part, run.looked_s),
            has_unread=name in unread,
            is_paused=run.pauses.is_paused(part.stream, name),
            is_given_up=name in done.waiting.given_up,
        )
    return found


def _status(
    run: RunWatermark,
    done: Done,
    reporting: Reporting,
    parts: tuple[PartitionStatus, ...],
    given_up: tuple[str, ...],
) -> TimeStatus:
    is_ahead = done.is_ahead_by_clock
    return TimeStatus(
        watermark_us=done.watermark_us,
        holder="" if is_ahead else run.held.holder,
        held_s=run.clock() - run.moved_s,
        waiting=done.waiting.total,
        partitions=parts,
        given_up=given_up,
        is_paused=bool(run.pauses.only),
        by_clock=None if done.waits is None else ByClock(is_ahead, reporting.n_by_clock),
    )
