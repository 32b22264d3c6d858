"""When the windows of window rules end: for each key, the windows with an event that counts.

    found, state = steps_of(window)(window, timeline, state, before_us, watermark_us)

Everything is computed from events in order and from two numbers that a key keeps while a window is open: the
start of its window, and its last event. The instant of an end is the last one whose events can be in the
window. The values of the window are those after all events of that instant.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cep.arrays import I64, Mask
from cep.engine.windows.kernels.layout import NEVER
from cep.engine.windows.tumbling import window_begins, window_ends
from cep.program.windows import Frame, Window

BEGIN, LAST = 0, 1
"""Columns of what a key keeps: when its open window began (of HOPPING: as LAST), and when its last event was.
NEVER: no window is open."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """n events of some keys, key by key and in order."""

    codes: I64  # (n,) numbers of the keys, in ascending order
    time_us: I64  # (n,)
    counting: I64  # places of the events that count

    @property
    def keys(self) -> I64:
        """The keys of the events that count."""
        return self.codes[self.counting]

    @property
    def times(self) -> I64:
        """Their times."""
        return self.time_us[self.counting]


@dataclass(frozen=True, slots=True)
class Ends:
    """m windows that have ended, key by key, in order of their ends."""

    codes: I64  # (m,) numbers of the keys
    at_us: I64  # (m,) the last instant whose events can be in the window
    start_us: I64  # (m,)
    end_us: I64  # (m,)
    begins_us: I64  # (n,) the start of the window of each event of the timeline; empty for HOPPING
    first: I64 | None = None
    """(m,) the place of the first event of each window. None: windows overlap or are open before or after"""


Step: TypeAlias = Callable[[Window, Timeline, I64, int, int], tuple[Ends, I64]]
"""Takes a window, events of times up to a watermark, what (keys, 2) keys keep, the watermark before, and the
watermark. Returns the windows that end up to the watermark and did not end before, and what keys keep now."""


def steps_of(window: Window) -> Step:
    """Return a function that finds the ends of a window of this kind."""
    return {
        Frame.TUMBLING: _tumbling,
        Frame.HOPPING: _hopping,
        Frame.SESSION: _sessions,
    }[window.frame]


def next_end_us(window: Window, state: I64, watermark_us: int) -> int | None:
    """Return when the next open window of any key ends; None: no window is open."""
    is_open = state[:, LAST] != NEVER
    if not is_open.any():
        return None
    begins, last = state[is_open, BEGIN], state[is_open, LAST]
    match window.frame:
        case Frame.TUMBLING:
            return int(window_ends(window, begins).min())
        case Frame.HOPPING:
            first = _hops(window, np.array([watermark_us - window.length]))[0] + 1
            return int(first * window.every_us + window.offset_us + window.length)
        case _:
            return int(_session_ends(window, begins, last)[0].min())


def _first_of_key(codes: I64) -> Mask:
    first = np.ones(len(codes), np.bool_)
    first[1:] = codes[1:] != codes[:-1]
    return first


def _before(values: I64, codes: I64, of_keys: I64) -> I64:
    """Return for each event the value of the previous event; for the first of a key that of `of_keys`."""
    before = np.empty_like(values)
    before[1:] = values[:-1]
    first = _first_of_key(codes)
    before[first] = of_keys[codes[first]]
    return before


def _tumbling(
    window: Window, timeline: Timeline, state: I64, before_us: int, watermark_us: int
) -> tuple[Ends, I64]:
    all_begins = window_begins(window, timeline.time_us)
    begins, codes = all_begins[timeline.counting], timeline.keys
    is_new = begins != _before(begins, codes, state[:, BEGIN])
    of_state = np.flatnonzero(state[:, LAST] != NEVER)
    codes = np.concatenate((of_state, codes[is_new]))
    order = np.argsort(codes, kind="stable")
    codes, begins = codes[order], np.concatenate((state[of_state, BEGIN], begins[is_new]))[order]
    ends = window_ends(window, begins)
    due = ends <= watermark_us
    kept = np.full_like(state, NEVER)
    kept[codes[~due]] = begins[~due, np.newaxis]
    first = timeline.counting[is_new] if due.all() and not len(of_state) else None
    return Ends(codes[due], ends[due] - 1, begins[due], ends[due], all_begins, first), kept


def _hops(window: Window, time_us: I64) -> I64:
    """Return the number of the last window that starts at or before each time."""
    hops: I64 = (time_us - window.offset_us) // window.every_us
    return hops


def _hopping(
    window: Window, timeline: Timeline, state: I64, before_us: int, watermark_us: int
) -> tuple[Ends, I64]:
    times, codes = timeline.times, timeline.keys
    # The windows of an event start after its time minus their length, at or before its time.
    low = np.maximum(times - window.length, _before(times, codes, state[:, LAST]))
    of_state = np.flatnonzero(state[:, LAST] != NEVER)
    codes = np.concatenate((of_state, codes))
    order = np.argsort(codes, kind="stable")
    low = np.concatenate((np.full(len(of_state), before_us - window.length), low))[order]
    codes, last = codes[order], np.concatenate((state[of_state, LAST], times))[order]
    first_hop = _hops(window, low) + 1
    last_hop = _hops(window, np.minimum(last, watermark_us - window.length))
    n = np.maximum(last_hop - first_hop + 1, 0)
    hops = np.arange(int(n.sum())) + np.repeat(first_hop - (np.cumsum(n) - n), n)
    start_us = hops * window.every_us + window.offset_us
    kept = np.full_like(state, NEVER)
    kept[codes] = last[:, np.newaxis]  # the last one of each key remains
    is_over = _hops(window, kept[:, LAST]) <= _hops(window, np.array([watermark_us - window.length]))
    kept[is_over] = NEVER
    end_us = start_us + window.length
    return Ends(np.repeat(codes, n), end_us - 1, start_us, end_us, np.zeros(0, np.int64)), kept


def _session_ends(window: Window, begins: I64, last: I64) -> tuple[I64, I64]:
    """Return when sessions end, and the last instant whose events can be in them."""
    end_us = at_us = last + window.length
    if window.most_us:
        end_us = np.minimum(end_us, begins + window.most_us)
        at_us = np.minimum(at_us, begins + window.most_us - 1)
    return end_us, at_us


def _sessions(
    window: Window, timeline: Timeline, state: I64, before_us: int, watermark_us: int
) -> tuple[Ends, I64]:
    # An open session is like an event at its start, with the session's last time.
    of_state = np.flatnonzero(state[:, LAST] != NEVER)
    codes = np.concatenate((of_state, timeline.keys))
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    times = np.concatenate((state[of_state, BEGIN], timeline.times))[order]
    last = np.concatenate((state[of_state, LAST], timeline.times))[order]
    is_head = times - _before(last, codes, np.full(len(state), NEVER)) > window.length
    if window.most_us:
        is_head |= _cut(times, is_head, window.most_us)
    heads = np.flatnonzero(is_head)
    behind = np.concatenate((heads[1:], [len(codes)]))[: len(heads)]
    begins, ends_last = times[heads], last[behind - 1]
    end_us, at_us = _session_ends(window, begins, ends_last)
    due = end_us <= watermark_us
    kept = np.full_like(state, NEVER)
    kept[codes[heads[~due]]] = np.stack((begins, ends_last), axis=1)[~due]
    of_events = np.empty(len(codes), np.int64)
    of_events[order] = np.repeat(begins, behind - heads)
    begins_us = _filled(timeline, of_events[len(of_state) :], state)
    first = timeline.counting[heads] if due.all() and not len(of_state) else None
    return Ends(codes[heads[due]], at_us[due], begins[due], end_us[due], begins_us, first), kept


def _cut(times: I64, is_head: Mask, most_us: int) -> Mask:
    """Return the events at which sessions are cut: they start at heads and must be shorter than a length.

    The next cut after an event is the first event of its session at that distance. The cuts are the events
    that the heads reach in this way; each round doubles the number of steps.
    """
    n = len(times)
    session = np.cumsum(is_head)
    behind = np.searchsorted(session, session, side="right")
    following = places_behind(times, np.arange(n), behind, times + (most_us - 1))
    jump = np.append(np.where(following < behind, following, n), n)
    reached = np.append(is_head, False)
    while (jump[:n] < n).any():
        reached[jump[np.flatnonzero(reached)]] = True
        jump = jump[jump]
    cuts: Mask = reached[:n] & ~is_head
    return cuts


def _filled(timeline: Timeline, begins: I64, state: I64) -> I64:
    """Return the start of each event's session; events that do not count have that of the previous event."""
    n = len(timeline.time_us)
    if len(timeline.counting) == n:
        return begins
    places = np.full(n, -1)
    places[timeline.counting] = np.arange(len(begins))
    places = np.maximum.accumulate(places)
    found = begins[places] if len(begins) else np.full(n, NEVER)
    is_other = np.ones(n, np.bool_) if not len(begins) else places < 0
    if len(begins):
        is_other |= timeline.keys[places] != timeline.codes
    found[is_other] = state[timeline.codes[is_other], BEGIN]
    return found


def places_behind(values: I64, low: I64, high: I64, at: I64) -> I64:
    """Return the first place from `low` whose value is greater than `at`, or `high` if there is none.

    Parameters
    ----------
    values : (n,) int64
        In ascending order from `low` to `high`.
    low, high, at : (m,) int64
    """
    low, high = low.copy(), high.copy()
    while True:
        is_open = low < high
        if not is_open.any():
            return low
        middle = (low + high) >> 1
        goes_up = np.zeros(len(low), np.bool_)
        goes_up[is_open] = values[middle[is_open]] <= at[is_open]
        low = np.where(goes_up, middle + 1, low)
        high = np.where(is_open & ~goes_up, middle, high)
