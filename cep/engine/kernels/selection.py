"""Which complete runs are reported, and what a match skips."""

from __future__ import annotations

from cep.engine.kernels.compiled import apart, part
from cep.engine.kernels.layout import (
    AT_INSTANT,
    CHAIN,
    END_US,
    HEAD,
    HELD,
    INSTANT,
    INSTANT_OUT,
    LAST_POS,
    MATCH_CHAIN,
    MATCH_END,
    MATCH_REGISTER,
    MATCH_SLOT,
    MATCH_START,
    MATCH_TIMED_OUT,
    MATCH_VALID,
    N_OUT,
    NEXT,
    NONE,
    NOTED,
    REGISTER,
    SELECTION,
    SKIP,
    SKIP_REGISTER,
    START_POS,
    START_US,
    STATE,
    TIMEOUTS,
    VALID,
)
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, release, remove_after
from cep.program import I64, SelectionCode, SkipCode

_ALL, _PREFERRED = int(SelectionCode.ALL), int(SelectionCode.PREFERRED)
_NO_SKIP, _PAST_LAST, _TO_NEXT = int(SkipCode.NO_SKIP), int(SkipCode.PAST_LAST), int(SkipCode.TO_NEXT)


@apart
def is_reported(runs: I64, meta: I64, matches: I64, slot: int, run: int) -> bool:
    """Say whether this instant already reported a match of the same events. (Of held ones, `hold` knows.)"""
    for other in range(meta[INSTANT_OUT], meta[N_OUT]):
        if (
            matches[other, MATCH_CHAIN] == runs[run, CHAIN]
            and matches[other, MATCH_START] == runs[run, START_US]
            and matches[other, MATCH_SLOT] == slot
        ):
            return True
    return False


@part
def emit(runs: I64, meta: I64, matches: I64, slot: int, run: int, end_us: int) -> None:
    """Write a match from the registers of `run`."""
    n_out = meta[N_OUT]
    matches[n_out, MATCH_SLOT] = slot
    matches[n_out, MATCH_START] = runs[run, START_US]
    matches[n_out, MATCH_END] = end_us
    matches[n_out, MATCH_CHAIN] = runs[run, CHAIN]
    matches[n_out, MATCH_VALID] = runs[run, VALID]
    matches[n_out, MATCH_TIMED_OUT] = 0
    for register in range(runs.shape[1] - REGISTER):
        matches[n_out, MATCH_REGISTER + register] = runs[run, REGISTER + register]
    meta[N_OUT] = n_out + 1


@part
def skip_target(rule: I64, runs: I64, run: int) -> int:
    """Return the position at which matching resumes after the match of `run`; NONE: nothing is skipped."""
    if rule[SKIP] == _NO_SKIP:
        return NONE
    if rule[SKIP] == _PAST_LAST:
        return runs[run, LAST_POS] + 1
    if rule[SKIP] == _TO_NEXT:
        return runs[run, START_POS] + 1
    if runs[run, VALID] >> rule[SKIP_REGISTER] & 1 == 0:
        return NONE if rule[SELECTION] == _ALL else runs[run, START_POS] + 1
    target = runs[run, REGISTER + rule[SKIP_REGISTER]]
    if rule[SELECTION] == _ALL:
        return target
    return max(target, runs[run, START_POS] + 1)


@apart
def hold(runs: I64, keys: I64, meta: I64, slot: int, previous: int, run: int, end_us: int) -> int:
    """Keep the match of `run` in the key's list until its turn; return where, or NONE if it is known."""
    other = keys[slot, HEAD]
    while other != NONE:
        if (
            runs[other, STATE] == HELD
            and runs[other, runs.shape[1] - AT_INSTANT] == meta[INSTANT]
            and runs[other, START_POS] == runs[run, START_POS]
            and runs[other, CHAIN] == runs[run, CHAIN]
        ):
            return NONE
        other = runs[other, NEXT]
    kept = allocate(runs, meta)
    copy_run(runs, run, kept)
    runs[kept, STATE] = HELD
    runs[kept, runs.shape[1] - END_US] = end_us
    runs[kept, runs.shape[1] - AT_INSTANT] = meta[INSTANT]
    insert_after(runs, keys, slot, previous, kept)
    return kept


@apart
def release_held(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> int:
    """Report held matches in order of start while no open run started earlier (Flink's order for skips).

    Return the position before which runs were pruned.
    """
    at_instant = runs.shape[1] - AT_INSTANT
    reached = NONE
    while keys[slot, HEAD] != NONE:
        start = runs[keys[slot, HEAD], START_POS]
        best, before_best = NONE, NONE
        previous, run = NONE, keys[slot, HEAD]
        while run != NONE and runs[run, START_POS] == start:
            if runs[run, STATE] == HELD and (best == NONE or runs[run, at_instant] < runs[best, at_instant]):
                best, before_best = run, previous
            previous, run = run, runs[run, NEXT]
        if best == NONE:
            break
        emit(runs, meta, matches, slot, best, runs[best, runs.shape[1] - END_US])
        floor = skip_target(rule, runs, best)
        remove_after(runs, keys, meta, slot, before_best)
        prune(runs, keys, meta, slot, floor)
        reached = max(reached, floor)
    return reached


@apart
def choose_preferred(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> None:
    """Report of each start the match that no open run can beat any more (MATCH PREFERRED).

    A start's runs are in order of preference, so its match is decided when a HELD one comes first; what comes
    after a HELD one is beaten and goes. A start behind an undecided one waits if that one's match could skip
    over it.
    """
    waits = rule[SKIP] != _NO_SKIP and rule[SKIP] != _TO_NEXT
    is_behind = False
    previous, run = NONE, keys[slot, HEAD]
    while run != NONE:
        start = runs[run, START_POS]
        has_match = runs[run, STATE] == HELD
        if has_match and not (waits and is_behind):
            emit(runs, meta, matches, slot, run, runs[run, runs.shape[1] - END_US])
            floor = skip_target(rule, runs, run)
            while run != NONE and (runs[run, START_POS] == start or runs[run, START_POS] < floor):
                following = runs[run, NEXT]
                remove_after(runs, keys, meta, slot, previous)
                run = following
            continue
        is_behind = True
        has_match = False
        while run != NONE and runs[run, START_POS] == start:
            following = runs[run, NEXT]
            if has_match:
                remove_after(runs, keys, meta, slot, previous)
            else:
                has_match = runs[run, STATE] == HELD
                previous = run
            run = following


@part
def settle(rule: I64, runs: I64, keys: I64, meta: I64, matches: I64, slot: int) -> int:
    """An instant is over: report what need not be held any longer.

    Return the position before which runs were pruned (of rules that can have timeouts).
    """
    if rule[SELECTION] == _PREFERRED:
        choose_preferred(rule, runs, keys, meta, matches, slot)
    elif rule[SELECTION] == _ALL and rule[SKIP] != _NO_SKIP:
        return release_held(rule, runs, keys, meta, matches, slot)
    return NONE


@apart
def note(runs: I64, meta: I64, run: int, state: int, end_us: int) -> None:
    """Remember until the instant is over: `run` is complete (`state` is HELD), or a limit ended it."""
    noted = allocate(runs, meta)
    copy_run(runs, run, noted)
    runs[noted, STATE] = state
    runs[noted, runs.shape[1] - END_US] = end_us
    runs[noted, NEXT] = meta[NOTED] - 1
    meta[NOTED] = noted + 1


@part
def took_the_same(runs: I64, run: int, other: int) -> bool:
    """Say whether two runs are waits of one assignment."""
    return runs[run, CHAIN] == runs[other, CHAIN] and runs[run, START_POS] == runs[other, START_POS]


@part
def times_out(runs: I64, keys: I64, slot: int, first: int, run: int) -> bool:
    """Say whether what the note `run` took waits no more, is not complete, and has no note before this one.

    Of several notes (from `first` on) the first gets the earliest end.
    """
    other = keys[slot, HEAD]
    while other != NONE and runs[other, START_POS] <= runs[run, START_POS]:
        if runs[other, STATE] != HELD and took_the_same(runs, run, other):
            return False
        other = runs[other, NEXT]
    is_before = True
    end_us = runs.shape[1] - END_US
    other = first
    while other != NONE:
        if other == run:
            is_before = False
        elif took_the_same(runs, run, other):
            if is_before or runs[other, STATE] == HELD:
                return False
            runs[run, end_us] = min(runs[run, end_us], runs[other, end_us])
        other = runs[other, NEXT]
    return True


@apart
def report_timeouts(runs: I64, keys: I64, meta: I64, matches: I64, slot: int, floor: int) -> None:
    """The instant is over: report what limits ended, each assignment once, and forget the notes."""
    first = meta[NOTED] - 1
    run = first
    while run != NONE:
        if (
            runs[run, STATE] != HELD
            and runs[run, START_POS] >= floor
            and times_out(runs, keys, slot, first, run)
        ):
            emit(runs, meta, matches, slot, run, runs[run, runs.shape[1] - END_US])
            matches[meta[N_OUT] - 1, MATCH_TIMED_OUT] = 1
        run = runs[run, NEXT]
    while first != NONE:
        run = first
        first = runs[run, NEXT]
        release(runs, meta, run)
    meta[NOTED] = 0


@part
def complete(
    rule: I64,
    runs: I64,
    keys: I64,
    meta: I64,
    matches: I64,
    slot: int,
    previous: int,
    run: int,
    end_us: int,
    reported: int,
    floor: int,
) -> tuple[int, int, int]:
    """`run` is a match. Return the new (previous, reported, floor).

    `reported` is the start of the last match of this instant: MATCH EARLIEST reports one per start. `floor`
    is the position before which no run may start any more.
    """
    if rule[TIMEOUTS] != 0:
        note(runs, meta, run, HELD, end_us)
    if rule[SELECTION] == _PREFERRED or (rule[SELECTION] == _ALL and rule[SKIP] != _NO_SKIP):
        kept = hold(runs, keys, meta, slot, previous, run, end_us)
        if kept != NONE:
            previous = kept
        return previous, reported, floor
    if rule[SELECTION] == _ALL:
        if not is_reported(runs, meta, matches, slot, run):
            emit(runs, meta, matches, slot, run, end_us)
        return previous, reported, floor
    start = runs[run, START_POS]
    if start != reported and start >= floor:
        emit(runs, meta, matches, slot, run, end_us)
        reported = start
        floor = max(floor, skip_target(rule, runs, run))
    return previous, reported, floor
