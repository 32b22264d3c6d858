"""The loops over events and keys, and the close of windows, for rules without clocks."""

from __future__ import annotations

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, kernel
from cep.engine.kernels.layout import Pool
from cep.engine.kernels.run_lists import prune, remove_after
from cep.engine.kernels.selection import complete, report_decided
from cep.engine.kernels.step import step


@inlined
def close(pool: Pool, slot: int, bound_us: int) -> None:
    """End the runs of a key whose window closed at or before `bound_us`; some of them become matches."""
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    meta[at.INSTANT] += 1
    meta[at.INSTANT_OUT] = meta[at.N_OUT]
    reported, prune_before = at.NONE, at.NONE
    previous, run = at.NONE, keys[slot, at.HEAD]
    while run != at.NONE and (
        runs[run, at.STATE] == at.PENDING or runs[run, at.START_US] <= bound_us - rule[at.SPAN_US]
    ):
        following = runs[run, at.NEXT]
        if runs[run, at.STATE] == at.PENDING:
            previous, run = run, following
            continue
        if (
            runs[run, at.START_POS] >= prune_before
            and rule[at.place_of(runs[run, at.STATE]) + at.STATE_CLOSES] != 0
        ):
            end_us = runs[run, at.START_US] + rule[at.CLOSE_US]
            previous, reported, prune_before = complete(
                pool, slot, previous, run, end_us, reported, prune_before
            )
        remove_after(runs, keys, meta, slot, previous)
        run = following
    prune(runs, keys, meta, slot, prune_before)
    report_decided(pool, slot)


@inlined
def room_needed(keys: I64, slot: int, fan_out: int) -> int:
    """Return upper bounds of the number of runs that one event of the key creates, and of its takes."""
    return (keys[slot, at.N_RUNS] + 1) * (fan_out + 1)


@inlined
def has_room(pool: Pool, slot: int, fan_out: int) -> bool:
    """Return whether one event of the key can neither overflow the pool of runs nor the matches."""
    needed = room_needed(pool.keys, slot, fan_out)
    return (
        pool.meta[at.N_FREE] >= needed
        and pool.matches.shape[0] - pool.meta[at.N_OUT] >= needed + pool.keys[slot, at.N_RUNS]
    )


@inlined
def has_room_for_nodes(pool: Pool, slot: int, fan_out: int) -> bool:
    """Return whether one event of the key cannot overflow the nodes of a rule that lists events or values."""
    room, per_take = pool.nodes.shape[0] - pool.meta[at.N_NODES], pool.rule[at.NODES_PER_TAKE]
    return per_take == 0 or room >= per_take * room_needed(pool.keys, slot, fan_out)


@kernel
def run_events(pool: Pool, events: I64, bits: I64, rows: I64, first: int, base: int, fan_out: int) -> int:
    """Offer ``rows[first:]`` to the rule; return the index at which room is needed, or ``len(rows)``.

    Parameters
    ----------
    rows : (n,) int64
        The events to offer, as columns of `events`, in order.
    first : int
        Index into `rows`.
    base : int
        Position of row 0: ``base + row`` is the position of an event. It only grows, over all calls.
    """
    rule, runs, keys = pool.rule, pool.runs, pool.keys
    for index in range(first, rows.shape[0]):
        row = rows[index]
        slot = events[at.SLOT, row]
        if not has_room(pool, slot, fan_out) or not has_room_for_nodes(pool, slot, fan_out):
            return index
        head = keys[slot, at.HEAD]
        # The list is in order of start, so checking its head shows whether a window closed. A PENDING head
        # hides the ages of the later runs, so then the list is walked.
        if (
            rule[at.SPAN_US] >= 0
            and head != at.NONE
            and (
                runs[head, at.STATE] == at.PENDING
                or runs[head, at.START_US] < events[at.TIME_US, row] - rule[at.SPAN_US]
            )
        ):
            close(pool, slot, events[at.TIME_US, row] - 1)
        step(pool, events, bits, slot, row, base + row, False)
    return rows.shape[0]


@inlined
def next_close(pool: Pool, slot: int) -> int:
    """Return the first time at which the window of an open run of a key closes; `NEVER`: none is open."""
    run = pool.keys[slot, at.HEAD]
    while run != at.NONE and pool.runs[run, at.STATE] == at.PENDING:
        run = pool.runs[run, at.NEXT]
    return at.NEVER if run == at.NONE else pool.runs[run, at.START_US] + pool.rule[at.SPAN_US]


@kernel
def close_all(pool: Pool, due: I64, first: int, bound_us: int) -> int:
    """Close windows up to `bound_us`, from slot `first` on. Return the slot at which room is needed, or the
    number of slots.

    Parameters
    ----------
    due : (blocks,) int64
        A time for each block of keys before which no window closes. Later blocks are not read; the times of
        the others become exact.
    first : int
        The first slot.
    """
    n_slots = pool.keys.shape[0]
    for block in range(first // at.BLOCK, due.shape[0]):
        if due[block] > bound_us:
            continue
        start, end = block * at.BLOCK, min((block + 1) * at.BLOCK, n_slots)
        for slot in range(max(start, first), end):
            if pool.keys[slot, at.HEAD] == at.NONE:
                continue
            if not has_room(pool, slot, 1):
                return slot
            close(pool, slot, bound_us)
        due[block] = at.NEVER
        for slot in range(start, end):
            due[block] = min(due[block], next_close(pool, slot))
    return n_slots


@kernel
def note_closes(pool: Pool, due: I64, slots: I64) -> None:
    """Lower `due` to the current deadlines of the keys of `slots`.

    Parameters
    ----------
    due : (blocks,) int64
        As for `close_all`.
    slots : (n,) int64
        Slots, any of them several times.
    """
    for slot in slots:
        due[slot // at.BLOCK] = min(due[slot // at.BLOCK], next_close(pool, slot))


@kernel
def end_all(pool: Pool, first: int) -> int:
    """End the open runs from slot `first` on, because nothing follows. Return the slot at which room is
    needed, or the number of slots.

    Parameters
    ----------
    first : int
        The first slot.
    """
    runs, keys, meta = pool.runs, pool.keys, pool.meta
    for slot in range(first, keys.shape[0]):
        if not has_room(pool, slot, 0):
            return slot
        meta[at.INSTANT] += 1
        previous, run = at.NONE, keys[slot, at.HEAD]
        while run != at.NONE:
            following = runs[run, at.NEXT]
            if runs[run, at.STATE] == at.PENDING:
                previous = run
            else:
                remove_after(runs, keys, meta, slot, previous)
            run = following
        report_decided(pool, slot)
    return keys.shape[0]
