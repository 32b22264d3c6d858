"""One event: the runs of its key take it, ignore it, complete or end; then new runs start with it.

`step` does this in order: `walk_runs`, `begin_runs`, `finish_instant`. `offer_to_run` handles one run:
`make_takes`, then `may_ignore` (`conditions.py`).
"""

from __future__ import annotations

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, outlined
from cep.engine.kernels.conditions import (
    begin_run,
    can_take,
    is_excluded,
    is_forbidden,
    is_past_last_event,
    is_triggered,
    may_begin,
    may_ignore,
    next_take,
    record_met,
    set_clocks,
    set_deadline,
    state_after_releases,
)
from cep.engine.kernels.layout import Offered, Pool
from cep.engine.kernels.registers import extend_match_hash, extend_sets, update_registers
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, remove_after
from cep.engine.kernels.selection import complete, record_timeout, report_decided, report_timeouts
from cep.program.opcodes import Mode, OverflowCode

_ANY = int(Mode.ANY)
_DROP_OLDEST, _FAIL = int(OverflowCode.DROP_OLDEST), int(OverflowCode.FAIL)


# ------------------------------------------------------------ takes


@inlined
def record_take(pool: Pool, variable: int, run: int, position: int) -> None:
    """Add a node for the event that `run` has just taken; the caller has ensured that there is room."""
    register = at.REGISTER + pool.rule[at.NODE_REGISTER]
    nodes, node = pool.nodes, pool.meta[at.N_NODES]
    nodes[node, at.NODE_PARENT] = pool.runs[run, register] - 1
    nodes[node, at.NODE_EVENT] = position
    nodes[node, at.NODE_VARIABLE] = (variable - pool.rule[at.VARIABLES]) // at.VARIABLE_WIDTH
    pool.meta[at.N_NODES] = node + 1
    pool.runs[run, register] = node + 1


@inlined
def take_event(pool: Pool, event: Offered, take: int, run: int, timed: bool) -> None:
    """Make `run` take the event with `take`: registers, hash, node and clocks."""
    rule, runs = pool.rule, pool.runs
    variable = rule[take + at.TAKE_VARIABLE]
    runs[run, at.LAST_POS] = event.position
    update_registers(rule, event.fields, runs, variable, run, event.row, event.position)
    runs[run, at.RUN_HASH] = extend_match_hash(
        runs[run, at.RUN_HASH], rule[variable + at.VARIABLE_HASH], event.fields[at.IDENTITY, event.row]
    )
    if rule[at.NODE_REGISTER] != at.NONE:
        record_take(pool, variable, run, event.position)
    if rule[at.HAS_SETS] != 0:
        extend_sets(pool, event, variable, run)
    if timed:
        set_clocks(rule, runs, run, take, event.time_us, pool.keys[event.slot, at.N_EVENTS])


@inlined
def reach_limit(
    pool: Pool, event: Offered, previous: int, run: int, state: int, reported: int, prune_before: int
) -> tuple[int, int, int]:
    """End the wait of `run` in `state`, whose limit in events is reached: a match, a timeout, or nothing.
    Return the run before the next one, and the new `reported` and `prune_before`.

    The caller removes `run`.
    """
    if pool.rule[at.place_of(state) + at.STATE_CLOSES] != 0:
        return complete(pool, event.slot, previous, run, event.time_us, reported, prune_before)
    if pool.rule[at.TIMEOUTS] != 0:
        record_timeout(pool.runs, pool.meta, run, state, event.time_us)
    return previous, reported, prune_before


@inlined
def add_successors(
    pool: Pool,
    event: Offered,
    previous: int,
    run: int,
    take: int,
    reported: int,
    prune_before: int,
    timed: bool,
) -> tuple[int, int, int, bool]:
    """Insert the successors of a run that has just taken the event after `previous`, in order of preference.
    Return the new `previous`, `reported` and `prune_before`, and whether `run` itself became the last
    successor.

    Parameters
    ----------
    run : int
        The run after `previous`; NONE: the scratch run.
    """
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    slot = event.slot
    # NONE, not the row of the scratch run: it is a constant where runs start, so LLVM removes the other case.
    # Comparing rows instead took a tenth longer to compile and made rules like R1 slower.
    is_scratch = run == at.NONE
    if is_scratch:
        run = meta[at.SCRATCH_RUN]
    goes_on = False
    last = rule[take + at.TAKE_AFTERS + at.END] - 1
    for entry in range(rule[take + at.TAKE_AFTERS], last + 1):
        state = rule[entry]
        if state == at.NONE:  # ACCEPT
            previous, reported, prune_before = complete(
                pool, slot, previous, run, event.time_us, reported, prune_before
            )
            continue
        if timed:
            set_deadline(rule, runs, run, state)
            if is_past_last_event(pool, slot, run):  # the wait is over before it starts
                previous, reported, prune_before = reach_limit(
                    pool, event, previous, run, state, reported, prune_before
                )
                continue
            keys[slot, at.EARLIEST_US] = min(
                keys[slot, at.EARLIEST_US], runs[run, rule[at.CLOCK] + at.DEADLINE_US]
            )
        # The last successor is `run` itself. Copying it for each successor and then freeing it would be
        # simpler, but would cost a copy at each take (decision 11).
        successor = run
        if entry < last:
            successor = allocate(runs, meta)
            copy_run(runs, run, successor)
        elif is_scratch:
            meta[at.SCRATCH_RUN] = allocate(runs, meta)
        goes_on = entry == last
        if is_scratch or entry < last:
            insert_after(runs, keys, slot, previous, successor)
        runs[successor, at.STATE] = state
        keys[slot, at.TRIGGER_MASK] |= rule[at.place_of(state) + at.STATE_TRIGGER_MASK]
        previous = successor
    return previous, reported, prune_before, goes_on


@inlined
def make_takes(
    pool: Pool,
    event: Offered,
    previous: int,
    run: int,
    place: int,
    reported: int,
    prune_before: int,
    timed: bool,
) -> tuple[int, int, int, bool, bool]:
    """Make `run` take the event in every possible way, in order of preference. Return the new `previous`,
    `reported` and `prune_before`, whether `run` took the event, and whether it is in the list as one of its
    own successors.
    """
    rule = pool.rule
    took, goes_on = False, False
    # A take is made only when it is known whether another follows. The last take is made in the run itself,
    # which saves a copy (decision 11). ANY needs the copy, because the run may also ignore the event.
    made, last = at.NONE, rule[place + at.STATE_TAKES + at.END]
    take = rule[place + at.STATE_TAKES]
    while True:
        take = next_take(pool, event, take, last, run)
        if made != at.NONE:
            taker = taken = run
            if take < last or rule[place + at.STATE_MODE] == _ANY:
                taker, taken = pool.meta[at.SCRATCH_RUN], at.NONE
                copy_run(pool.runs, run, taker)
            take_event(pool, event, made, taker, timed)
            previous, reported, prune_before, goes_on = add_successors(
                pool, event, previous, taken, made, reported, prune_before, timed
            )
            took, goes_on = True, goes_on and taken == run
        if take == last:
            break
        made = take
        take += at.TAKE_WIDTH
    return previous, reported, prune_before, took, goes_on


# ------------------------------------------------------------ the event


@inlined
def ignore_event(
    pool: Pool,
    event: Offered,
    previous: int,
    run: int,
    place: int,
    reported: int,
    prune_before: int,
    timed: bool,
) -> tuple[int, int, int, bool]:
    """Make `run` ignore the event, which may complete or end the run. Return the new `previous`, `reported`
    and `prune_before`, and whether `run` keeps waiting.
    """
    rule, runs, keys, slot = pool.rule, pool.runs, pool.keys, event.slot
    if rule[place + at.STATE_AFTER_IGNORE] == at.NONE:  # a trailing "not next" is decided by one event
        previous, reported, prune_before = complete(
            pool, slot, previous, run, event.time_us, reported, prune_before
        )
        return previous, reported, prune_before, False
    state = rule[place + at.STATE_NEXT]
    if timed and is_past_last_event(pool, slot, run):
        previous, reported, prune_before = reach_limit(
            pool, event, previous, run, state, reported, prune_before
        )
        return previous, reported, prune_before, False
    runs[run, at.STATE] = state
    keys[slot, at.TRIGGER_MASK] |= rule[at.place_of(state) + at.STATE_TRIGGER_MASK]
    return run, reported, prune_before, True


@inlined
def offer_to_run(
    pool: Pool,
    event: Offered,
    previous: int,
    run: int,
    place: int,
    reported: int,
    prune_before: int,
    timed: bool,
) -> tuple[int, int, int]:
    """Offer the event to `run`, the run after `previous`, which takes it, ignores it, or ends. Return the run
    before the next one, and the new `reported` and `prune_before`.
    """
    rule, runs = pool.rule, pool.runs
    early = timed and event.time_us < runs[run, rule[at.CLOCK] + at.LAST_US] + rule[place + at.STATE_LOW]
    waits, goes_on = not is_forbidden(pool, event, place, run), False
    if waits:
        took = False
        if not early:
            previous, reported, prune_before, took, goes_on = make_takes(
                pool, event, previous, run, place, reported, prune_before, timed
            )
        waits = may_ignore(pool, event, run, place, took, early)
    if waits:
        previous, reported, prune_before, waits = ignore_event(
            pool, event, previous, run, place, reported, prune_before, timed
        )
    if not waits and not goes_on:
        remove_after(runs, pool.keys, pool.meta, event.slot, previous)
    return previous, reported, prune_before


@inlined
def walk_runs(pool: Pool, event: Offered, timed: bool) -> tuple[int, int, int]:
    """Offer the event to every run of its key, in order; return the last run of the list, and the new
    `reported` and `prune_before`.
    """
    rule, runs, keys, slot = pool.rule, pool.runs, pool.keys, event.slot
    reported, prune_before = at.NONE, at.NONE
    previous, run = at.NONE, keys[slot, at.HEAD]
    while run != at.NONE:
        following = runs[run, at.NEXT]
        state = runs[run, at.STATE]
        if state == at.PENDING:
            previous, run = run, following
            continue
        place = at.place_of(state)
        if not is_triggered(pool, event, run, place, timed):
            keys[slot, at.TRIGGER_MASK] |= rule[place + at.STATE_TRIGGER_MASK]
            previous, run = run, following
            continue
        if runs[run, at.START_POS] < prune_before:
            remove_after(runs, keys, pool.meta, slot, previous)
            run = following
            continue
        # Releases come first: an event that releases an exclusion may then be taken or ignored.
        if rule[at.HAS_EXCLUSIONS] != 0:
            runs[run, at.STATE] = state_after_releases(pool, event, state, run)
            place = at.place_of(runs[run, at.STATE])
            if is_excluded(
                pool,
                event,
                rule[place + at.STATE_EXCLUSIONS],
                rule[place + at.STATE_EXCLUSIONS + at.END],
                run,
            ):
                remove_after(runs, keys, pool.meta, slot, previous)
                run = following
                continue
        previous, reported, prune_before = offer_to_run(
            pool, event, previous, run, place, reported, prune_before, timed
        )
        run = following
    return previous, reported, prune_before


@inlined
def begin_runs(
    pool: Pool, event: Offered, previous: int, reported: int, prune_before: int, timed: bool
) -> int:
    """Start new runs with the event, after `previous`, the last run; return the new `prune_before`."""
    rule, keys, slot = pool.rule, pool.keys, event.slot
    take = rule[at.place_of(0) + at.STATE_TAKES]
    while take < rule[at.place_of(0) + at.STATE_TAKES + at.END]:
        if (not timed or may_begin(rule, keys, slot, take, event.time_us)) and can_take(
            pool, event, take, at.NONE
        ):
            scratch = pool.meta[at.SCRATCH_RUN]
            begin_run(rule, pool.runs, scratch, event)
            if timed:
                pool.runs[scratch, rule[at.CLOCK] + at.START_EVENT] = keys[slot, at.N_EVENTS]
            take_event(pool, event, take, scratch, timed)
            previous, reported, prune_before, _ = add_successors(
                pool, event, previous, at.NONE, take, reported, prune_before, timed
            )
        take += at.TAKE_WIDTH
    return prune_before


@inlined
def finish_instant(pool: Pool, slot: int, prune_before: int, timed: bool) -> None:
    """Prune runs, report decided matches and timeouts, and drop runs beyond the limit of the key."""
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    if prune_before > 0:
        prune(runs, keys, meta, slot, prune_before)
    prune_before = max(prune_before, report_decided(pool, slot))
    if timed and meta[at.PENDING_TIMEOUTS] != 0:
        report_timeouts(runs, keys, meta, pool.matches, slot, prune_before)
    if keys[slot, at.N_RUNS] > rule[at.MAX_RUNS]:
        drop_runs(rule, runs, keys, meta, slot)
        report_decided(pool, slot)  # matches that waited for dropped runs; restored state would report them


@inlined
def step(pool: Pool, events: I64, bits: I64, slot: int, row: int, position: int, timed: bool) -> None:
    """Offer event `row` to every run of its key, in order, then start new runs with it.

    `timed` is a constant in each caller, so a rule without clocks pays nothing for them.
    """
    keys, meta = pool.keys, pool.meta
    event = Offered(
        fields=events, word=bits[row], slot=slot, row=row, position=position, time_us=events[at.TIME_US, row]
    )
    if timed:
        keys[slot, at.N_EVENTS] += 1
    meta[at.INSTANT] += 1
    meta[at.INSTANT_OUT] = meta[at.N_OUT]
    reported, prune_before = at.NONE, at.NONE
    # The mask of the key is the union of the masks of its runs, so most events that no run takes cause no
    # walk over the list (decision 7). It may have more bits: the bits of a run that leaves the list remain
    # until the next walk, because removing them would need a count for each bit.
    if not timed and pool.rule[at.ALWAYS_WALKS] == 0 and event.word & keys[slot, at.TRIGGER_MASK] == 0:
        previous = keys[slot, at.TAIL]
    else:
        keys[slot, at.TRIGGER_MASK] = 0
        previous, reported, prune_before = walk_runs(pool, event, timed)
    if position >= prune_before:
        prune_before = begin_runs(pool, event, previous, reported, prune_before, timed)
    if timed:
        record_met(pool.rule, keys, slot, event.word, event.time_us)
    finish_instant(pool, slot, prune_before, timed)


@outlined
def drop_runs(rule: I64, runs: I64, keys: I64, meta: I64, slot: int) -> None:
    """Drop the excess runs of the key, according to ON OVERFLOW."""
    excess = keys[slot, at.N_RUNS] - rule[at.MAX_RUNS]
    meta[at.DROPPED] += excess
    if rule[at.OVERFLOW] == _FAIL:
        meta[at.OVERFLOWED] = slot + 1
    last = at.NONE
    if rule[at.OVERFLOW] != _DROP_OLDEST:
        last = keys[slot, at.HEAD]
        for _ in range(rule[at.MAX_RUNS] - 1):
            last = runs[last, at.NEXT]
    for _ in range(excess):
        remove_after(runs, keys, meta, slot, last)
