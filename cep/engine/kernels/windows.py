"""The loops over events and keys, and the close of windows, for rules without clocks."""

from __future__ import annotations

from cep.engine.kernels.compiled import kernel, part
from cep.engine.kernels.layout import (
    CLOSE_US,
    HEAD,
    HELD,
    INSTANT,
    INSTANT_OUT,
    INT64_MAX,
    N_FREE,
    N_NODES,
    N_OUT,
    N_RUNS,
    NEXT,
    NODE_REGISTER,
    NONE,
    SLOT,
    SPAN_US,
    START_POS,
    START_US,
    STATE,
    STATE_CLOSES,
    TIME_US,
    place_of,
)
from cep.engine.kernels.run_lists import prune, remove_after
from cep.engine.kernels.selection import complete, settle
from cep.engine.kernels.step import step
from cep.program import I64, U8


@part
def close(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int, bound_us: int) -> None:
    """End the runs of a key whose window closed at or before `bound_us`; some of them are matches then."""
    meta[INSTANT] += 1
    meta[INSTANT_OUT] = meta[N_OUT]
    reported, floor = NONE, NONE
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE and (runs[run, STATE] == HELD or runs[run, START_US] <= bound_us - rule[SPAN_US]):
        following = runs[run, NEXT]
        if runs[run, STATE] == HELD:
            previous, run = run, following
            continue
        if runs[run, START_POS] >= floor and rule[place_of(runs[run, STATE]) + STATE_CLOSES] != 0:
            previous, reported, floor = complete(
                rule, runs, keys, meta, matches, slot, previous, run,
                runs[run, START_US] + rule[CLOSE_US], reported, floor,
            )  # fmt: skip
        remove_after(runs, keys, meta, slot, previous)
        run = following
    prune(runs, keys, meta, slot, floor)
    settle(rule, runs, keys, meta, matches, slot)


@part
def room_needed(keys: I64, slot: int, fan_out: int) -> int:
    """Return how many runs one event of the key can make, and how often it can be taken, at most."""
    return (keys[slot, N_RUNS] + 1) * (fan_out + 1)


@part
def has_room(keys: I64, meta: I64, matches: I64, slot: int, fan_out: int) -> bool:
    """Say whether one event of the key can neither overflow the pool nor the matches."""
    needed = room_needed(keys, slot, fan_out)
    return meta[N_FREE] >= needed and matches.shape[0] - meta[N_OUT] >= needed + keys[slot, N_RUNS]


@kernel
def run_events(
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
    """Offer ``rows[first:]`` to the rule; return the index at which room is needed, or ``len(rows)``.

    `base` + row is an event's position: it only grows, over all calls. `fan_out` is the largest number of
    successors that one run can get from one event.
    """
    for index in range(first, rows.shape[0]):
        row = rows[index]
        slot = events[SLOT, row]
        if not has_room(keys, meta, matches, slot, fan_out):
            return index
        if rule[NODE_REGISTER] != NONE and nodes.shape[0] - meta[N_NODES] < room_needed(keys, slot, fan_out):
            return index
        head = keys[slot, HEAD]
        # A HELD head hides the ages behind it: look.
        if (
            rule[SPAN_US] >= 0
            and head != NONE
            and (runs[head, STATE] == HELD or runs[head, START_US] < events[TIME_US, row] - rule[SPAN_US])
        ):
            close(rule, runs, keys, meta, matches, slot, events[TIME_US, row] - 1)
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
            False,
        )
    return rows.shape[0]


@kernel
def close_all(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, first: int, bound_us: int) -> int:
    """Close windows up to `bound_us` from slot `first` on; return where room is needed, or the end."""
    for slot in range(first, keys.shape[0]):
        if keys[slot, HEAD] == NONE:
            continue
        if not has_room(keys, meta, matches, slot, 1):
            return slot
        close(rule, runs, keys, meta, matches, slot, bound_us)
    return keys.shape[0]


@kernel
def end_all(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, first: int) -> int:
    """Nothing follows any more: end the open runs from slot `first` on; return where room is needed."""
    for slot in range(first, keys.shape[0]):
        if not has_room(keys, meta, matches, slot, 0):
            return slot
        meta[INSTANT] += 1
        previous, run = NONE, keys[slot, HEAD]
        while run != NONE:
            following = runs[run, NEXT]
            if runs[run, STATE] == HELD:
                previous = run
            else:
                remove_after(runs, keys, meta, slot, previous)
            run = following
        settle(rule, runs, keys, meta, matches, slot)
    return keys.shape[0]


@kernel
def earliest_close(runs: I64, keys: I64, span_us: int) -> int:
    """Return the first time at which the window of an open run closes; the largest int64: never."""
    earliest = INT64_MAX
    for slot in range(keys.shape[0]):
        run = keys[slot, HEAD]
        while run != NONE and runs[run, STATE] == HELD:
            run = runs[run, NEXT]
        if run != NONE:
            earliest = min(earliest, runs[run, START_US] + span_us)
    return earliest
