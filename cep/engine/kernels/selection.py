"""Which complete runs are reported as matches, and what a match skips."""

from __future__ import annotations

from cep.arrays import I64, U8
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, kernel, outlined
from cep.engine.kernels.layout import Pool
from cep.engine.kernels.run_lists import allocate, copy_run, insert_after, prune, release, remove_after
from cep.program.opcodes import SelectionCode, SkipCode

_ALL, _PREFERRED = int(SelectionCode.ALL), int(SelectionCode.PREFERRED)
_NO_SKIP, _PAST_LAST, _TO_NEXT = int(SkipCode.NO_SKIP), int(SkipCode.PAST_LAST), int(SkipCode.TO_NEXT)


@outlined
def is_reported(runs: I64, meta: I64, matches: I64, slot: int, run: int) -> bool:
    """Return whether this instant already reported a match of the same events.

    Pending matches are compared by `keep_pending`.
    """
    for other in range(meta[at.INSTANT_OUT], meta[at.N_OUT]):
        if (
            matches[other, at.MATCH_HASH] == runs[run, at.RUN_HASH]
            and matches[other, at.MATCH_START] == runs[run, at.START_US]
            and matches[other, at.MATCH_SLOT] == slot
        ):
            return True
    return False


@inlined
def emit(runs: I64, meta: I64, matches: I64, slot: int, run: int, end_us: int) -> None:
    """Write a match from the registers of `run`."""
    n_out = meta[at.N_OUT]
    matches[n_out, at.MATCH_SLOT] = slot
    matches[n_out, at.MATCH_START] = runs[run, at.START_US]
    matches[n_out, at.MATCH_END] = end_us
    matches[n_out, at.MATCH_HASH] = runs[run, at.RUN_HASH]
    matches[n_out, at.MATCH_VALID] = runs[run, at.VALID]
    matches[n_out, at.MATCH_TIMED_OUT] = 0
    for register in range(runs.shape[1] - at.REGISTER):
        matches[n_out, at.MATCH_REGISTER + register] = runs[run, at.REGISTER + register]
    meta[at.N_OUT] = n_out + 1


@inlined
def skip_target(rule: I64, runs: I64, run: int) -> int:
    """Return the position at which matching resumes after the match of `run`; NONE: nothing is skipped."""
    if rule[at.SKIP] == _NO_SKIP:
        return at.NONE
    if rule[at.SKIP] == _PAST_LAST:
        return runs[run, at.LAST_POS] + 1
    if rule[at.SKIP] == _TO_NEXT:
        return runs[run, at.START_POS] + 1
    if runs[run, at.VALID] >> rule[at.SKIP_REGISTER] & 1 == 0:
        return at.NONE if rule[at.SELECTION] == _ALL else runs[run, at.START_POS] + 1
    target = runs[run, at.REGISTER + rule[at.SKIP_REGISTER]]
    if rule[at.SELECTION] == _ALL:
        return target
    return max(target, runs[run, at.START_POS] + 1)


@outlined
def keep_pending(runs: I64, keys: I64, meta: I64, slot: int, previous: int, run: int, end_us: int) -> int:
    """Keep the match of `run` in the key's list until its turn. Return the new run, or NONE if this instant
    already has a match of the same events.
    """
    other = keys[slot, at.HEAD]
    while other != at.NONE:
        if (
            runs[other, at.STATE] == at.PENDING
            and runs[other, runs.shape[1] - at.AT_INSTANT] == meta[at.INSTANT]
            and runs[other, at.START_POS] == runs[run, at.START_POS]
            and runs[other, at.RUN_HASH] == runs[run, at.RUN_HASH]
        ):
            return at.NONE
        other = runs[other, at.NEXT]
    kept = allocate(runs, meta)
    copy_run(runs, run, kept)
    runs[kept, at.STATE] = at.PENDING
    runs[kept, runs.shape[1] - at.END_US] = end_us
    runs[kept, runs.shape[1] - at.AT_INSTANT] = meta[at.INSTANT]
    insert_after(runs, keys, slot, previous, kept)
    return kept


@outlined
def release_pending(pool: Pool, slot: int) -> int:
    """Report pending matches in order of start while no open run started earlier (Flink's order for skips).
    Return the position before which runs were pruned.
    """
    runs, keys, meta = pool.runs, pool.keys, pool.meta
    at_instant = runs.shape[1] - at.AT_INSTANT
    reached = at.NONE
    while keys[slot, at.HEAD] != at.NONE:
        start = runs[keys[slot, at.HEAD], at.START_POS]
        best, before_best = at.NONE, at.NONE
        previous, run = at.NONE, keys[slot, at.HEAD]
        while run != at.NONE and runs[run, at.START_POS] == start:
            if runs[run, at.STATE] == at.PENDING and (
                best == at.NONE or runs[run, at_instant] < runs[best, at_instant]
            ):
                best, before_best = run, previous
            previous, run = run, runs[run, at.NEXT]
        # An open run of the earliest start may still complete, and its match would skip the later ones.
        if best == at.NONE:
            break
        emit(runs, meta, pool.matches, slot, best, runs[best, runs.shape[1] - at.END_US])
        prune_before = skip_target(pool.rule, runs, best)
        remove_after(runs, keys, meta, slot, before_best)
        prune(runs, keys, meta, slot, prune_before)
        reached = max(reached, prune_before)
    return reached


@outlined
def choose_preferred(pool: Pool, slot: int) -> None:
    """For each start, report the match that no open run can beat any longer (MATCH PREFERRED).

    The runs of a start are in order of preference. Its match is decided when a PENDING run comes first. The
    runs after a PENDING run are beaten and removed. A start after an undecided start waits if a match of the
    undecided one could skip it.
    """
    rule, runs, keys, meta = pool.rule, pool.runs, pool.keys, pool.meta
    waits = rule[at.SKIP] != _NO_SKIP and rule[at.SKIP] != _TO_NEXT
    is_behind = False
    previous, run = at.NONE, keys[slot, at.HEAD]
    while run != at.NONE:
        start = runs[run, at.START_POS]
        has_match = runs[run, at.STATE] == at.PENDING
        if has_match and not (waits and is_behind):
            emit(runs, meta, pool.matches, slot, run, runs[run, runs.shape[1] - at.END_US])
            prune_before = skip_target(rule, runs, run)
            while run != at.NONE and (
                runs[run, at.START_POS] == start or runs[run, at.START_POS] < prune_before
            ):
                following = runs[run, at.NEXT]
                remove_after(runs, keys, meta, slot, previous)
                run = following
            continue
        is_behind = True
        has_match = False
        while run != at.NONE and runs[run, at.START_POS] == start:
            following = runs[run, at.NEXT]
            if has_match:
                remove_after(runs, keys, meta, slot, previous)
            else:
                has_match = runs[run, at.STATE] == at.PENDING
                previous = run
            run = following


@inlined
def report_decided(pool: Pool, slot: int) -> int:
    """Report the pending matches that nothing can change any longer: an instant is over. Return the position
    before which runs were pruned (MATCH ALL, which can have timeouts), else NONE.
    """
    if pool.rule[at.SELECTION] == _PREFERRED:
        choose_preferred(pool, slot)
    elif pool.rule[at.SELECTION] == _ALL and pool.rule[at.SKIP] != _NO_SKIP:
        return release_pending(pool, slot)
    return at.NONE


@outlined
def record_timeout(runs: I64, meta: I64, run: int, state: int, end_us: int) -> None:
    """Until the end of the instant, record that `run` is complete (`state` is PENDING) or ended by a limit.

    Only then is it known whether this is a timeout: another run with the same assignment may still be
    waiting.
    """
    record = allocate(runs, meta)
    copy_run(runs, run, record)
    runs[record, at.STATE] = state
    runs[record, runs.shape[1] - at.END_US] = end_us
    runs[record, at.NEXT] = meta[at.PENDING_TIMEOUTS] - 1
    meta[at.PENDING_TIMEOUTS] = record + 1


@inlined
def took_the_same(runs: I64, run: int, other: int) -> bool:
    """Return whether two runs have taken the same events as the same variables: one assignment.

    Parameters
    ----------
    other : int
        A row of `runs`.
    """
    return (
        runs[run, at.RUN_HASH] == runs[other, at.RUN_HASH]
        and runs[run, at.START_POS] == runs[other, at.START_POS]
    )


@inlined
def times_out(runs: I64, keys: I64, slot: int, first: int, run: int) -> bool:
    """Return whether the pending timeout `run` must be reported.

    It is not reported if a run with the same assignment is still waiting, if the assignment is complete, or
    if an earlier record of this instant has the same assignment. The first of several records gets the
    earliest end.

    Parameters
    ----------
    first : int
        The row of `runs` with the first record of this instant.
    """
    other = keys[slot, at.HEAD]
    while other != at.NONE and runs[other, at.START_POS] <= runs[run, at.START_POS]:
        if runs[other, at.STATE] != at.PENDING and took_the_same(runs, run, other):
            return False
        other = runs[other, at.NEXT]
    is_before = True
    end_us = runs.shape[1] - at.END_US
    other = first
    while other != at.NONE:
        if other == run:
            is_before = False
        elif took_the_same(runs, run, other):
            if is_before or runs[other, at.STATE] == at.PENDING:
                return False
            runs[run, end_us] = min(runs[run, end_us], runs[other, end_us])
        other = runs[other, at.NEXT]
    return True


@outlined
def report_timeouts(runs: I64, keys: I64, meta: I64, matches: I64, slot: int, prune_before: int) -> None:
    """Report the runs that limits ended in this instant, each assignment once, and free the records."""
    first = meta[at.PENDING_TIMEOUTS] - 1
    run = first
    while run != at.NONE:
        if (
            runs[run, at.STATE] != at.PENDING
            and runs[run, at.START_POS] >= prune_before
            and times_out(runs, keys, slot, first, run)
        ):
            emit(runs, meta, matches, slot, run, runs[run, runs.shape[1] - at.END_US])
            matches[meta[at.N_OUT] - 1, at.MATCH_TIMED_OUT] = 1
        run = runs[run, at.NEXT]
    while first != at.NONE:
        run = first
        first = runs[run, at.NEXT]
        release(runs, meta, run)
    meta[at.PENDING_TIMEOUTS] = 0


@inlined
def complete(
    pool: Pool, slot: int, previous: int, run: int, end_us: int, reported: int, prune_before: int
) -> tuple[int, int, int]:
    """Report `run` as a match, or keep it as a pending match, depending on the rule's selection. Return the
    new `previous`, `reported` and `prune_before`.
    """
    rule, runs, meta = pool.rule, pool.runs, pool.meta
    if rule[at.TIMEOUTS] != 0:
        record_timeout(runs, meta, run, at.PENDING, end_us)
    if rule[at.SELECTION] == _PREFERRED or (rule[at.SELECTION] == _ALL and rule[at.SKIP] != _NO_SKIP):
        kept = keep_pending(runs, pool.keys, meta, slot, previous, run, end_us)
        if kept != at.NONE:
            previous = kept
        return previous, reported, prune_before
    if rule[at.SELECTION] == _ALL:
        if not is_reported(runs, meta, pool.matches, slot, run):
            emit(runs, meta, pool.matches, slot, run, end_us)
        return previous, reported, prune_before
    # MATCH EARLIEST: the list is in order of start and preference, so the first run that completes is the
    # match of its start. Matches of its other runs are not reported.
    start = runs[run, at.START_POS]
    if start != reported and start >= prune_before:
        emit(runs, meta, pool.matches, slot, run, end_us)
        reported = start
        prune_before = max(prune_before, skip_target(rule, runs, run))
    return previous, reported, prune_before


@kernel
def mark_suppressed(matches: I64, until_us: I64, length_us: int, suppressed: U8) -> int:
    """Mark the matches that an earlier match of their key suppresses, never timeouts; return how many.

    Parameters
    ----------
    matches : (n, columns) int64
        The matches of each key in the order in which they were found.
    until_us : (slots,) int64
        The time before which each key's matches are suppressed; advanced.
    length_us : int
        How long a match suppresses others.
    suppressed : (n,) uint8
        1: suppressed; written.
    """
    count = 0
    for row in range(matches.shape[0]):
        slot = matches[row, at.MATCH_SLOT]
        if matches[row, at.MATCH_TIMED_OUT] != 0:
            continue
        if matches[row, at.MATCH_END] < until_us[slot]:
            suppressed[row] = 1
            count += 1
        else:
            until_us[slot] = matches[row, at.MATCH_END] + length_us
    return count
