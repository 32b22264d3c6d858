"""The loops of rules with clocks: runs have their own deadlines, and timed absences end.

The runs of a key are ordered by start; their deadlines have a different order. `EARLIEST_US` of the key says
when the next deadline may be, so an event before it causes no scan. Deadlines take effect before an event of
a later time is offered, the earliest first. Each such time is a separate instant.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, kernel
from cep.engine.kernels.conditions import set_deadline
from cep.engine.kernels.layout import Pool
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, remove_after
from cep.engine.kernels.selection import complete, record_timeout, report_decided, report_timeouts
from cep.engine.kernels.step import drop_runs, step
from cep.engine.kernels.windows import has_room, has_room_for_nodes
from cep.program.records import RuleTables


@inlined
def window_closes(rule: I64, runs: I64, run: int, state: int, now_us: int) -> bool:
    """Return whether `run` is complete in `state` because the rule's window closed at or before `now_us`."""
    return (
        rule[at.place_of(state) + at.STATE_CLOSES] != 0
        and rule[at.SPAN_US] >= 0
        and runs[run, at.START_US] + rule[at.SPAN_US] <= now_us
    )


@inlined
def limit_end(rule: I64, runs: I64, run: int, state: int) -> int:
    """Return the time of the limit that ended the wait of `run` in `state`, as written: 5 for `< 5`."""
    clock, place = rule[at.CLOCK], at.place_of(state)
    deadline_us, end_us = runs[run, clock + at.DEADLINE_US], at.NEVER
    if rule[at.SPAN_US] >= 0 and runs[run, at.START_US] + rule[at.SPAN_US] == deadline_us:
        end_us = runs[run, at.START_US] + rule[at.CLOSE_US]
    last_us, high_us = runs[run, clock + at.LAST_US], rule[place + at.STATE_HIGH]
    if high_us >= 0 and last_us + high_us == deadline_us:
        end_us = min(end_us, last_us + rule[place + at.STATE_LIMIT])
    for entry in range(rule[place + at.STATE_LIMITS], rule[place + at.STATE_LIMITS + at.END]):
        group = rule[at.GROUPS] + at.GROUP_WIDTH * rule[entry]
        opened, span_us = runs[run, clock + at.GROUP_CLOCK + rule[entry]], rule[group + at.GROUP_US]
        if span_us >= 0 and opened + span_us == deadline_us:
            end_us = min(end_us, opened + rule[group + at.GROUP_LIMIT])
    return end_us


@inlined
def end_timed_absence(
    pool: Pool, slot: int, previous: int, run: int, now_us: int, reported: int, prune_before: int
) -> tuple[int, int, int]:
    """Insert the successors of `run`, whose timed absence is over, after `previous` in order of preference.
    Return the new `previous`, `reported` and `prune_before`.
    """
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    scratch = meta[at.SCRATCH_RUN]
    clock = rule[at.CLOCK]
    place = at.place_of(runs[run, at.STATE])
    copy_run(runs, run, scratch)
    runs[scratch, clock + at.MOMENT_US] += rule[place + at.STATE_ABSENCE_LENGTH]
    end_us = runs[scratch, clock + at.MOMENT_US]
    for entry in range(rule[place + at.STATE_ABSENCE_AFTERS], rule[place + at.STATE_ABSENCE_AFTERS + at.END]):
        state = rule[entry]
        if state == at.NONE:  # ACCEPT
            previous, reported, prune_before = complete(
                pool, slot, previous, scratch, end_us, reported, prune_before
            )
            continue
        set_deadline(rule, runs, scratch, state)
        deadline_us = runs[scratch, clock + at.DEADLINE_US]
        # A successor that is due at this instant is not inserted into the list: the next instant would report
        # it after the others, and matches are reported in order of preference.
        if deadline_us <= now_us:
            if window_closes(rule, runs, scratch, state, now_us):
                previous, reported, prune_before = complete(
                    pool,
                    slot,
                    previous,
                    scratch,
                    runs[scratch, at.START_US] + rule[at.CLOSE_US],
                    reported,
                    prune_before,
                )
            elif rule[at.TIMEOUTS] != 0:
                record_timeout(runs, meta, scratch, state, max(limit_end(rule, runs, scratch, state), end_us))
            continue
        keys[slot, at.EARLIEST_US] = min(keys[slot, at.EARLIEST_US], deadline_us)
        successor = allocate(runs, meta)
        copy_run(runs, scratch, successor)
        runs[successor, at.STATE] = state
        insert_after(runs, keys, slot, previous, successor)
        previous = successor
    return previous, reported, prune_before


@inlined
def expire(pool: Pool, slot: int) -> None:
    """Process everything that is due at the key's `EARLIEST_US`; this is one instant."""
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    now_us = keys[slot, at.EARLIEST_US]
    keys[slot, at.EARLIEST_US] = at.NEVER
    clock = rule[at.CLOCK]
    meta[at.INSTANT] += 1
    meta[at.INSTANT_OUT] = meta[at.N_OUT]
    reported, prune_before = at.NONE, at.NONE
    previous, run = at.NONE, keys[slot, at.HEAD]
    while run != at.NONE:
        following = runs[run, at.NEXT]
        state = runs[run, at.STATE]
        if state == at.PENDING or runs[run, clock + at.DEADLINE_US] > now_us:
            if state != at.PENDING:
                keys[slot, at.EARLIEST_US] = min(
                    keys[slot, at.EARLIEST_US], runs[run, clock + at.DEADLINE_US]
                )
            previous, run = run, following
            continue
        # A pruned run can still time out: a limit in time takes effect before this instant's matches prune.
        if runs[run, at.START_POS] >= prune_before or rule[at.TIMEOUTS] != 0:
            absence_us = rule[at.place_of(state) + at.STATE_ABSENCE]
            if absence_us >= 0 and runs[run, clock + at.MOMENT_US] + absence_us <= now_us:
                previous, reported, prune_before = end_timed_absence(
                    pool, slot, previous, run, now_us, reported, prune_before
                )
            elif window_closes(rule, runs, run, state, now_us):
                end_us = runs[run, at.START_US] + rule[at.CLOSE_US]
                previous, reported, prune_before = complete(
                    pool, slot, previous, run, end_us, reported, prune_before
                )
            elif rule[at.TIMEOUTS] != 0:
                record_timeout(runs, meta, run, state, limit_end(rule, runs, run, state))
        remove_after(runs, keys, meta, slot, previous)
        run = following
    if meta[at.PENDING_TIMEOUTS] != 0:  # before this instant's matches prune anything
        report_timeouts(runs, keys, meta, pool.matches, slot, at.NONE)
    prune(runs, keys, meta, slot, prune_before)
    report_decided(pool, slot)
    if keys[slot, at.N_RUNS] > rule[at.MAX_RUNS]:
        drop_runs(rule, runs, keys, meta, slot)
    if keys[slot, at.HEAD] == at.NONE:
        keys[slot, at.EARLIEST_US] = at.NEVER


@kernel
def run_timed_events(
    pool: Pool, events: I64, bits: I64, rows: I64, first: int, base: int, fan_out: int
) -> int:
    """Offer ``rows[first:]`` to a rule with clocks, as `run_events` does to one without. Return the index at
    which room is needed, or ``len(rows)``.

    Parameters
    ----------
    rows : (n,) int64
        The events to offer, as columns of `events`, in order.
    first : int
        Index into `rows`.
    base : int
        Position of row 0.
    """
    keys = pool.keys
    for index in range(first, rows.shape[0]):
        row = rows[index]
        slot = events[at.SLOT, row]
        while keys[slot, at.EARLIEST_US] < events[at.TIME_US, row]:
            if not has_room(pool, slot, fan_out):
                return index
            expire(pool, slot)
        if not has_room(pool, slot, fan_out) or not has_room_for_nodes(pool, slot, fan_out):
            return index
        step(pool, events, bits, slot, row, base + row, True)
        if keys[slot, at.HEAD] == at.NONE:
            keys[slot, at.EARLIEST_US] = at.NEVER
    return rows.shape[0]


@kernel
def expire_all(pool: Pool, due: I64, first: int, bound_us: int, fan_out: int) -> int:
    """Process everything that is due up to `bound_us`, starting with slot `first`. Return the slot at which
    room is needed, or the number of slots.

    Parameters
    ----------
    due : (blocks,) int64
        A time for each block of keys before which no run has a deadline, as for `close_all`.
    first : int
        The first slot.
    """
    keys = pool.keys
    n_slots = keys.shape[0]
    for block in range(first // at.BLOCK, due.shape[0]):
        if due[block] > bound_us:
            continue
        start, end = block * at.BLOCK, min((block + 1) * at.BLOCK, n_slots)
        for slot in range(max(start, first), end):
            while keys[slot, at.EARLIEST_US] <= bound_us:
                if not has_room(pool, slot, fan_out):
                    return slot
                expire(pool, slot)
        due[block] = at.NEVER
        for slot in range(start, end):
            due[block] = min(due[block], keys[slot, at.EARLIEST_US])
    return n_slots


def note_deadlines(pool: Pool, due: I64, slots: I64) -> None:
    """Lower `due` to the current deadlines of the keys of `slots`; see `note_closes`."""
    np.minimum.at(due, slots // at.BLOCK, pool.keys[slots, at.EARLIEST_US])


def has_open_look_behinds(tables: RuleTables, keys: I64, watermark_us: int) -> npt.NDArray[np.bool_]:
    """Return which keys remember an event after which a run still must not start."""
    result = np.zeros(len(keys), np.bool_)
    for last, span_us, n_events in zip(
        tables.look_behind_last, tables.look_behind_us, tables.look_behind_events, strict=True
    ):
        column = at.LAST_MET + 2 * int(last)
        in_time = keys[:, column] + span_us > watermark_us
        result |= in_time & (keys[:, column + 1] + n_events > keys[:, at.N_EVENTS])
    return result
