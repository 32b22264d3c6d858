"""Rows of a window rule: all windows of each key, each computed anew from all events ("Window rules")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cep.compiler import ir
from cep.expression import Expression, Frame, Window, Windowed, walk
from tests.oracle.expressions import Event, evaluate
from tests.oracle.partitions import STREAM, TIME
from tests.oracle.suppression import not_suppressed
from tests.oracle.windows import column_of, start_of, value_over

Row = tuple[int, int, dict[str, Any]]
"""Start and end of a window, and its measures."""


@dataclass(frozen=True, slots=True)
class Silence:
    """What a rule with FOR EACH has to know of windows without events.

    Parameters
    ----------
    first_us
        The first event of the rule's streams.
    latest_us
        The latest event or version.
    is_there
        Whether the key was in the table from one time until before another one.
    """

    first_us: int
    latest_us: int
    is_there: Callable[[int, int], bool]


def rows_of_key(rule: ir.Rule, events: Sequence[Event], silence: Silence | None = None) -> list[Row]:
    """Return the rows of a key whose events are `events`, in order."""
    windowing = rule.windowing
    assert windowing is not None
    counted = [event for event in events if _is_true(windowing.where, event)]
    times = [event[TIME] for event in counted]
    rows: list[Row] = []
    windows = list(_windows(windowing.window, times))
    if silence is not None:
        known = {start_us for start_us, _, _ in windows}
        windows += [
            (start_us, end_us, ())
            for start_us, end_us in _windows_ending(windowing.window, silence.first_us, silence.latest_us)
            if start_us not in known and silence.is_there(start_us, end_us)
        ]
    for start_us, end_us, numbers in sorted(windows):
        inside = [counted[number] for number in numbers]
        values = _values(rule, inside)
        if not _is_true(windowing.having, values):
            continue
        measures = {measure.name: evaluate(measure.expression, values, {}) for measure in rule.measures}
        rows.append((start_us, end_us, measures))
    return [rows[number] for number in not_suppressed(rule.report, [end_us for _, end_us, _ in rows])]


def _is_true(condition: Expression | None, event: Event) -> bool:
    return condition is None or evaluate(condition, event, {}) is True


def _windows(window: Window, times: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield start, end and the numbers of the events of each window that has one."""
    match window.frame:
        case Frame.TUMBLING:
            for start_us in {start_of(window, time_us) for time_us in times}:
                inside = [at for at, time_us in enumerate(times) if start_of(window, time_us) == start_us]
                yield start_us, end_of(window, start_us), tuple(inside)
        case Frame.HOPPING:
            first = min(times, default=0) - window.length
            start_us = first - (first - window.offset_us) % window.every_us
            while start_us <= max(times, default=0):
                end_us = start_us + window.length
                inside = [at for at, time_us in enumerate(times) if start_us <= time_us < end_us]
                if inside:
                    yield start_us, end_us, tuple(inside)
                start_us += window.every_us
        case _:
            yield from _sessions(window, times)


def _windows_ending(window: Window, after_us: int, until_us: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each window that ends after a time, and not after another one."""
    if window.frame is Frame.TUMBLING:
        start_us = start_of(window, after_us)
        while (end_us := end_of(window, start_us)) <= until_us:
            yield start_us, end_us
            start_us = end_us
        return
    start_us = after_us - (after_us - window.offset_us) % window.every_us - window.length
    start_us -= (start_us - window.offset_us) % window.every_us
    while start_us + window.length <= until_us:
        if start_us + window.length > after_us:
            yield start_us, start_us + window.length
        start_us += window.every_us


def _sessions(window: Window, times: Sequence[int]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    at = 0
    while at < len(times):
        start_us, behind = times[at], at + 1
        while (
            behind < len(times)
            and times[behind] <= times[behind - 1] + window.length
            and not (window.most_us and times[behind] >= start_us + window.most_us)
        ):
            behind += 1
        end_us = times[behind - 1] + window.length
        if window.most_us:
            end_us = min(end_us, start_us + window.most_us)
        yield start_us, end_us, tuple(range(at, behind))
        at = behind


_STEP_US = 15 * 60 * 1_000_000


def end_of(window: Window, start_us: int) -> int:
    """Return the first time whose tumbling window begins later."""
    if not window.zone:
        return start_us + window.length
    low, high = start_us, start_us + _STEP_US
    while start_of(window, high) == start_us:
        low, high = high, high + _STEP_US
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if start_of(window, middle) == start_us else (low, middle)
    return high


def _values(rule: ir.Rule, inside: Sequence[Event]) -> dict[str, Any]:
    """Return the values over a window's events, by the column that stands for each."""
    windowing = rule.windowing
    assert windowing is not None
    expressions = [measure.expression for measure in rule.measures]
    expressions += [] if windowing.having is None else [windowing.having]
    found = {node for each in expressions for node in walk(each) if isinstance(node, Windowed)}
    return {column_of(windowed): _value(windowed, inside) for windowed in found}


def _value(windowed: Windowed, inside: Sequence[Event]) -> Any:
    of_stream = [event for event in inside if not windowed.stream or event[STREAM] == windowed.stream]
    return value_over(windowed, of_stream, lambda part, event: evaluate(part, event, {}))
