"""The loops of rules with clocks: waits that end at times of their own, and timers.

The runs of a key are ordered by start; here that is not the order in which their waits end. `EARLIEST_US` of
the key says when the next one may, so an event that comes before it scans nothing. What is due happens before
an event of a later time is offered, the earliest first, each time an instant of its own.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cep.engine.kernels.compiled import kernel, part
from cep.engine.kernels.layout import (
    CLOCK,
    CLOSE_US,
    EARLIEST_US,
    END,
    GROUP_CLOCK,
    GROUP_LIMIT,
    GROUP_US,
    GROUP_WIDTH,
    GROUPS,
    HEAD,
    HELD,
    INSTANT,
    INSTANT_OUT,
    LAST_US,
    MAX_RUNS,
    MEMORY,
    MOMENT_US,
    N_EVENTS,
    N_NODES,
    N_OUT,
    N_RUNS,
    NEVER,
    NEXT,
    NODE_REGISTER,
    NONE,
    NOTED,
    SLOT,
    SPAN_US,
    SPARE,
    START_POS,
    START_US,
    STATE,
    STATE_CLOSES,
    STATE_HIGH,
    STATE_LIMIT,
    STATE_LIMITS,
    STATE_TIMER,
    STATE_TIMER_AFTERS,
    STATE_TIMER_LENGTH,
    TIME_US,
    TIMEOUTS,
    WAIT_US,
    place_of,
)
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, remove_after
from cep.engine.kernels.selection import complete, note, report_timeouts, settle
from cep.engine.kernels.step import drop_runs, set_waits, step
from cep.engine.kernels.windows import has_room, room_needed
from cep.program import I64, U8, RuleTables


@part
def window_closes(rule: I64, runs: I64, run: int, state: int, now_us: int) -> bool:
    """Say whether `run` is complete in `state` because the rule's window closed at or before `now_us`."""
    return (
        rule[place_of(state) + STATE_CLOSES] != 0
        and rule[SPAN_US] >= 0
        and runs[run, START_US] + rule[SPAN_US] <= now_us
    )


@part
def end_of_wait(rule: I64, runs: I64, run: int, state: int) -> int:
    """Return the time of the limit that ended `run`'s wait in `state`, as it is written: 5 of `< 5`."""
    clock, place = rule[CLOCK], place_of(state)
    wait_us, end_us = runs[run, clock + WAIT_US], NEVER
    if rule[SPAN_US] >= 0 and runs[run, START_US] + rule[SPAN_US] == wait_us:
        end_us = runs[run, START_US] + rule[CLOSE_US]
    last_us, high_us = runs[run, clock + LAST_US], rule[place + STATE_HIGH]
    if high_us >= 0 and last_us + high_us == wait_us:
        end_us = min(end_us, last_us + rule[place + STATE_LIMIT])
    for at in range(rule[place + STATE_LIMITS], rule[place + STATE_LIMITS + END]):
        group = rule[GROUPS] + GROUP_WIDTH * rule[at]
        opened, span_us = runs[run, clock + GROUP_CLOCK + rule[at]], rule[group + GROUP_US]
        if span_us >= 0 and opened + span_us == wait_us:
            end_us = min(end_us, opened + rule[group + GROUP_LIMIT])
    return end_us


@part
def fire(
    rule: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    slot: int,
    previous: int,
    run: int,
    now_us: int,
    reported: int,
    floor: int,
) -> tuple[int, int, int]:
    """The time of `run`'s timed absence is over: give it its successors, behind `previous`.

    A successor whose wait is over at this instant too is dealt with at once, so that what is complete comes
    in order of preference.
    """
    spare = meta[SPARE]
    clock = rule[CLOCK]
    place = place_of(runs[run, STATE])
    copy_run(runs, run, spare)
    runs[spare, clock + MOMENT_US] += rule[place + STATE_TIMER_LENGTH]
    end_us = runs[spare, clock + MOMENT_US]
    for at in range(rule[place + STATE_TIMER_AFTERS], rule[place + STATE_TIMER_AFTERS + END]):
        state = rule[at]
        if state == NONE:  # ACCEPT
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, spare, end_us, reported, floor
            )
            continue
        set_waits(rule, runs, spare, state)
        wait_us = runs[spare, clock + WAIT_US]
        if wait_us <= now_us:
            if window_closes(rule, runs, spare, state, now_us):
                previous, reported, floor = complete(
                    rule, runs, keys, meta, matches, slot, previous, spare,
                    runs[spare, START_US] + rule[CLOSE_US], reported, floor,
                )  # fmt: skip
            elif rule[TIMEOUTS] != 0:
                note(runs, meta, spare, state, max(end_of_wait(rule, runs, spare, state), end_us))
            continue
        keys[slot, EARLIEST_US] = min(keys[slot, EARLIEST_US], wait_us)
        successor = allocate(runs, meta)
        copy_run(runs, spare, successor)
        runs[successor, STATE] = state
        insert_after(runs, keys, slot, previous, successor)
        previous = successor
    return previous, reported, floor


@part
def expire(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> None:
    """Let happen what is due at the key's `EARLIEST_US`: one instant."""
    now_us = keys[slot, EARLIEST_US]
    keys[slot, EARLIEST_US] = NEVER
    clock = rule[CLOCK]
    meta[INSTANT] += 1
    meta[INSTANT_OUT] = meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE:
        following = runs[run, NEXT]
        state = runs[run, STATE]
        if state == HELD or runs[run, clock + WAIT_US] > now_us:
            if state != HELD:
                keys[slot, EARLIEST_US] = min(keys[slot, EARLIEST_US], runs[run, clock + WAIT_US])
            previous, run = run, following
            continue
        if runs[run, START_POS] >= floor or rule[TIMEOUTS] != 0:
            timer = rule[place_of(state) + STATE_TIMER]
            if timer >= 0 and runs[run, clock + MOMENT_US] + timer <= now_us:
                previous, reported, floor = fire(
                    rule, runs, keys, meta, matches, slot, previous, run, now_us, reported, floor
                )
            elif window_closes(rule, runs, run, state, now_us):
                previous, reported, floor = complete(
                    rule, runs, keys, meta, matches, slot, previous, run,
                    runs[run, START_US] + rule[CLOSE_US], reported, floor,
                )  # fmt: skip
            elif rule[TIMEOUTS] != 0:
                note(runs, meta, run, state, end_of_wait(rule, runs, run, state))
            # else: here a limit in time ends a run
        remove_after(runs, keys, meta, slot, previous)
        run = following
    if meta[NOTED] != 0:  # before this instant's matches prune anything
        report_timeouts(runs, keys, meta, matches, slot, NONE)
    prune(runs, keys, meta, slot, floor)
    settle(rule, runs, keys, meta, matches, slot)
    if keys[slot, N_RUNS] > rule[MAX_RUNS]:
        drop_runs(rule, runs, keys, meta, slot)
    if keys[slot, HEAD] == NONE:
        keys[slot, EARLIEST_US] = NEVER


@kernel
def run_timed_events(
    rule: I64,
    events: I64,
    bits: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    nodes: I64,
    stack: I64,
    null: U8,
    rows: I64,
    first: int,
    base: int,
    fan_out: int,
) -> int:
    """Do what `run_events` does, for a rule with clocks."""
    for index in range(first, rows.shape[0]):
        row = rows[index]
        slot = events[SLOT, row]
        while keys[slot, EARLIEST_US] < events[TIME_US, row]:
            if not has_room(keys, meta, matches, slot, fan_out):
                return index
            expire(rule, runs, keys, meta, matches, slot)
        if not has_room(keys, meta, matches, slot, fan_out):
            return index
        if rule[NODE_REGISTER] != NONE and nodes.shape[0] - meta[N_NODES] < room_needed(keys, slot, fan_out):
            return index
        step(
            rule,
            events,
            bits,
            runs,
            keys,
            meta,
            matches,
            nodes,
            stack,
            null,
            slot,
            row,
            base + row,
            True,
        )
        if keys[slot, HEAD] == NONE:
            keys[slot, EARLIEST_US] = NEVER
    return rows.shape[0]


@kernel
def expire_all(
    rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, first: int, bound_us: int, fan_out: int
) -> int:
    """Let happen what is due up to `bound_us`, from slot `first` on; return where room is needed."""
    for slot in range(first, keys.shape[0]):
        while keys[slot, EARLIEST_US] <= bound_us:
            if not has_room(keys, meta, matches, slot, fan_out):
                return slot
            expire(rule, runs, keys, meta, matches, slot)
    return keys.shape[0]


def earliest_due(keys: I64) -> int:
    """Return a time before which no wait of any key ends; the largest int64: none ever does."""
    return int(keys[:, EARLIEST_US].min(initial=NEVER))


def remembers(tables: RuleTables, keys: I64, watermark_us: int) -> npt.NDArray[np.bool_]:
    """Return which keys remember an event that a run may still not begin after."""
    result = np.zeros(len(keys), np.bool_)
    for memory, span_us, n_events in zip(tables.look_memory, tables.look_us, tables.look_events, strict=True):
        column = MEMORY + 2 * int(memory)
        in_time = keys[:, column] + span_us > watermark_us
        result |= in_time & (keys[:, column + 1] + n_events > keys[:, N_EVENTS])
    return result
