"""What is checked before an event moves a run: its clocks, and the predicates of its state."""

from __future__ import annotations

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, outlined
from cep.engine.kernels.layout import Offered, Pool
from cep.engine.kernels.registers import evaluate, update_registers
from cep.engine.kernels.run_lists import copy_run
from cep.program.opcodes import Mode

_STRICT, _NEXT, _ANY = int(Mode.STRICT), int(Mode.NEXT), int(Mode.ANY)


# ------------------------------------------------------------ clocks of a run


@inlined
def set_deadline(rule: I64, runs: I64, run: int, state: int) -> None:
    """Set how long `run` may wait in `state`: the time and the event number of its first limit."""
    clock, place = rule[at.CLOCK], at.place_of(state)
    deadline_us, deadline_event = at.NEVER, at.NEVER
    if rule[at.SPAN_US] >= 0:
        deadline_us = runs[run, at.START_US] + rule[at.SPAN_US]
    if rule[at.SPAN_EVENTS] >= 0:
        deadline_event = runs[run, clock + at.START_EVENT] + rule[at.SPAN_EVENTS]
    if rule[place + at.STATE_HIGH] >= 0:
        deadline_us = min(deadline_us, runs[run, clock + at.LAST_US] + rule[place + at.STATE_HIGH])
    if rule[place + at.STATE_ABSENCE] >= 0:
        deadline_us = min(deadline_us, runs[run, clock + at.MOMENT_US] + rule[place + at.STATE_ABSENCE])
    for entry in range(rule[place + at.STATE_LIMITS], rule[place + at.STATE_LIMITS + at.END]):
        group = rule[at.GROUPS] + at.GROUP_WIDTH * rule[entry]
        opened = runs[run, clock + at.GROUP_CLOCK + rule[entry]]
        if rule[group + at.GROUP_US] >= 0:
            deadline_us = min(deadline_us, opened + rule[group + at.GROUP_US])
        else:
            deadline_event = min(deadline_event, opened + rule[group + at.GROUP_EVENTS])
    runs[run, clock + at.DEADLINE_US] = deadline_us
    runs[run, clock + at.DEADLINE_EVENT] = deadline_event


@inlined
def set_clocks(rule: I64, runs: I64, run: int, take: int, time_us: int, event_number: int) -> None:
    """Set the clocks of `run` after it took an event with `take`.

    Parameters
    ----------
    event_number : int
        The number of events of the key so far, including this one.
    """
    clock = rule[at.CLOCK]
    runs[run, clock + at.LAST_US] = time_us
    runs[run, clock + at.MOMENT_US] = time_us
    for entry in range(rule[take + at.TAKE_OPENS], rule[take + at.TAKE_OPENS + at.END]):
        in_time = rule[rule[at.GROUPS] + at.GROUP_WIDTH * rule[entry] + at.GROUP_US] >= 0
        runs[run, clock + at.GROUP_CLOCK + rule[entry]] = time_us if in_time else event_number


@inlined
def is_past_last_event(pool: Pool, slot: int, run: int) -> bool:
    """Return whether the count of events that `run` may wait for is reached (rules with clocks)."""
    return pool.runs[run, pool.rule[at.CLOCK] + at.DEADLINE_EVENT] <= pool.keys[slot, at.N_EVENTS]


@inlined
def may_begin(rule: I64, keys: I64, slot: int, take: int, time_us: int) -> bool:
    """Return whether a run may start now: no look-behind of `take` forbids it because of a recent event."""
    look_behind = rule[take + at.TAKE_LOOK_BEHINDS]
    while look_behind < rule[take + at.TAKE_LOOK_BEHINDS + at.END]:
        last = at.LAST_MET + 2 * rule[look_behind + at.LOOK_BEHIND_LAST]
        if (
            keys[slot, last] + rule[look_behind + at.LOOK_BEHIND_US] >= time_us
            and keys[slot, last + 1] + rule[look_behind + at.LOOK_BEHIND_EVENTS] >= keys[slot, at.N_EVENTS]
        ):
            return False
        look_behind += at.LOOK_BEHIND_WIDTH
    return True


@inlined
def record_met(rule: I64, keys: I64, slot: int, word: int, time_us: int) -> None:
    """Record time and number of the event for each look-behind variable that it matches."""
    for last in range((keys.shape[1] - at.LAST_MET) // 2):
        mask = rule[rule[rule[at.LAST_VARIABLES] + last] + at.VARIABLE_MASK]
        if mask == 0 or word & mask != 0:
            keys[slot, at.LAST_MET + 2 * last] = time_us
            keys[slot, at.LAST_MET + 2 * last + 1] = keys[slot, at.N_EVENTS]


# ------------------------------------------------------------ conditions


@inlined
def begin_run(rule: I64, runs: I64, run: int, event: Offered) -> None:
    """Initialize `run` as a run that starts with the event and has not taken it yet."""
    runs[run, at.START_US] = event.time_us
    runs[run, at.START_POS] = event.position
    runs[run, at.RUN_HASH] = 0
    runs[run, at.VALID] = rule[at.ZERO_VALID]
    # The zero is read from the rule: LLVM turns a loop that stores a constant into a call of memset, which
    # costs more than the one or two registers of most rules.
    for register in range(runs.shape[1] - at.REGISTER):
        runs[run, at.REGISTER + register] = rule[at.ZERO]


@inlined
def correlated_holds(pool: Pool, event: Offered, variable: int, run: int) -> bool:
    """Return whether the correlated predicate of `variable`, if there is one, holds for `run` and the event.

    `run == NONE` means a run that would start here. The predicate is tried on the scratch row, so `run`
    stays unchanged.
    """
    rule, runs = pool.rule, pool.runs
    if rule[variable + at.VARIABLE_CODE] == rule[variable + at.VARIABLE_CODE + at.END]:
        return True
    scratch = pool.meta[at.SCRATCH_RUN]
    before = run
    if run == at.NONE:
        begin_run(rule, runs, scratch, event)
        before = scratch
    if rule[variable + at.VARIABLE_AFTER_TAKE] != 0:
        if run != at.NONE:
            copy_run(runs, run, scratch)
        update_registers(rule, event.fields, runs, variable, scratch, event.row, event.position)
        before = scratch
    return evaluate(pool, event.fields, variable, before, event.row)


@outlined
def correlated_holds_outlined(pool: Pool, event: Offered, variable: int, run: int) -> bool:
    """Return the result of `correlated_holds`; compiled out of line for rarely reached call sites."""
    return correlated_holds(pool, event, variable, run)


@inlined
def local_holds(rule: I64, variable: int, word: int) -> bool:
    """Return whether the local predicate of `variable`, if any, holds for an event with the bits `word`."""
    mask = rule[variable + at.VARIABLE_MASK]
    return mask == 0 or word & mask != 0


@inlined
def holds(pool: Pool, event: Offered, variable: int, run: int) -> bool:
    """Return whether `run` (NONE: a new one) satisfies the whole predicate of `variable` with the event."""
    return local_holds(pool.rule, variable, event.word) and correlated_holds(pool, event, variable, run)


@inlined
def holds_any(pool: Pool, event: Offered, first: int, last: int, run: int) -> bool:
    """Return whether the event matches one of the variables listed at ``first:last``.

    Parameters
    ----------
    first, last : int
        Addresses in `rule`: of the first word of the list, and after its last word.
    """
    # The evaluator of correlated predicates is outlined here: the loop over runs calls this in three places,
    # and few of these lists contain any. If inlined, it would occur three times in the loop.
    for entry in range(first, last):
        variable = pool.rule[entry]
        if local_holds(pool.rule, variable, event.word) and (
            pool.rule[variable + at.VARIABLE_CODE] == pool.rule[variable + at.VARIABLE_CODE + at.END]
            or correlated_holds_outlined(pool, event, variable, run)
        ):
            return True
    return False


@outlined
def is_excluded(pool: Pool, event: Offered, first: int, last: int, run: int) -> bool:
    """Return whether one of the exclusions at ``first:last`` forbids `run` to take the event.

    Parameters
    ----------
    first, last : int
        Addresses in `rule`: of the first exclusion, and after the last one.
    """
    exclusion = first
    while exclusion < last:
        until = pool.rule[exclusion + at.EXCLUSION_RELEASED_BY]
        if holds(pool, event, pool.rule[exclusion + at.EXCLUSION_VARIABLE], run) and not (
            until != at.NONE and holds(pool, event, until, run)
        ):
            return True
        exclusion += at.EXCLUSION_WIDTH
    return False


@outlined
def state_after_releases(pool: Pool, event: Offered, state: int, run: int) -> int:
    """Return the state of `run` after the event has released its exclusions."""
    rule = pool.rule
    release = rule[at.place_of(state) + at.STATE_RELEASES]
    while release < rule[at.place_of(state) + at.STATE_RELEASES + at.END]:
        if holds(pool, event, rule[release + at.RELEASE_VARIABLE], run):
            # Each release leads to a state with fewer exclusions, so this ends.
            state = rule[release + at.RELEASE_STATE]
            release = rule[at.place_of(state) + at.STATE_RELEASES]
        else:
            release += at.RELEASE_WIDTH
    return state


@inlined
def can_take(pool: Pool, event: Offered, take: int, run: int) -> bool:
    """Return whether `run` (NONE: a new one) can take the event with `take`."""
    rule = pool.rule
    return not (
        rule[at.HAS_EXCLUSIONS] != 0
        and is_excluded(
            pool, event, rule[take + at.TAKE_EXCLUSIONS], rule[take + at.TAKE_EXCLUSIONS + at.END], run
        )
    ) and holds(pool, event, rule[take + at.TAKE_VARIABLE], run)


@inlined
def next_take(pool: Pool, event: Offered, first: int, last: int, run: int) -> int:
    """Return the first of the takes ``first:last`` with which `run` can take the event, or `last`.

    Parameters
    ----------
    first, last : int
        Addresses in `rule`: of the first take, and after the last one.
    """
    take = first
    while take < last and not can_take(pool, event, take, run):
        take += at.TAKE_WIDTH
    return take


@inlined
def is_triggered(pool: Pool, event: Offered, run: int, place: int, timed: bool) -> bool:
    """Return whether the event can move `run`; most events cannot, and cost one test of bits."""
    return (
        pool.rule[place + at.STATE_ALWAYS] != 0
        or event.word & pool.rule[place + at.STATE_TRIGGER_MASK] != 0
        or (timed and is_past_last_event(pool, event.slot, run))
    )


@inlined
def is_forbidden(pool: Pool, event: Offered, place: int, run: int) -> bool:
    """Return whether `run` ends because the event matches a "not next" of its state."""
    rule = pool.rule
    return holds_any(
        pool, event, rule[place + at.STATE_NOT_NEXT], rule[place + at.STATE_NOT_NEXT + at.END], run
    )


@inlined
def may_ignore(pool: Pool, event: Offered, run: int, place: int, took: bool, early: bool) -> bool:
    """Return whether `run` may ignore the event: wait unchanged without taking it (IGNORE of SASE+).

    STRICT (`a b`) ignores nothing. NEXT (`a -> b`) ignores events that match no variable which may come next:
    neither one of its takes nor one of its `begins`. ANY (`a ->> b`) also ignores an event that a copy of the
    run took. None of them ignores an event that matches one of its `not_followed_by`.

    Parameters
    ----------
    took : bool
        Whether `run` has taken the event.
    early : bool
        Whether the event comes before the shortest time that the run must wait. Such an event starts nothing.
    """
    rule, mode = pool.rule, pool.rule[place + at.STATE_MODE]
    if mode == _STRICT or (took and mode != _ANY):
        return False
    if mode == _NEXT and not early and holds_any(
        pool, event, rule[place + at.STATE_BEGINS], rule[place + at.STATE_BEGINS + at.END], run
    ):  # fmt: skip
        return False
    return not holds_any(
        pool,
        event,
        rule[place + at.STATE_NOT_FOLLOWED_BY],
        rule[place + at.STATE_NOT_FOLLOWED_BY + at.END],
        run,
    )
