"""The pool of runs and the list of runs of each key."""

from __future__ import annotations

from cep.engine.kernels.compiled import kernel, part
from cep.engine.kernels.layout import (
    CHAIN,
    EVERY_BIT,
    FREE,
    HEAD,
    INTEREST,
    LAST_POS,
    N_FREE,
    N_RUNS,
    NEXT,
    NONE,
    REGISTER,
    SPARE,
    START_POS,
    START_US,
    TAIL,
    USED,
    VALID,
)
from cep.program import I64


@part
def allocate(runs: I64, meta: I64) -> int:
    """Take a run from the free list; the caller made sure there is one."""
    run = meta[FREE]
    meta[FREE] = runs[run, NEXT]
    meta[N_FREE] -= 1
    return run


@part
def release(runs: I64, meta: I64, run: int) -> None:
    """Give a run back to the free list."""
    runs[run, NEXT] = meta[FREE]
    meta[FREE] = run
    meta[N_FREE] += 1


@part
def copy_run(runs: I64, source: int, target: int) -> None:
    """Copy what a run holds, but not its place in a list nor its state."""
    runs[target, START_US] = runs[source, START_US]
    runs[target, START_POS] = runs[source, START_POS]
    runs[target, LAST_POS] = runs[source, LAST_POS]
    runs[target, CHAIN] = runs[source, CHAIN]
    runs[target, VALID] = runs[source, VALID]
    for register in range(runs.shape[1] - REGISTER):
        runs[target, REGISTER + register] = runs[source, REGISTER + register]


@part
def insert_after(runs: I64, keys: I64, slot: int, previous: int, run: int) -> None:
    """Put `run` behind `previous` in the key's list; NONE: at its head."""
    if previous == NONE:
        runs[run, NEXT] = keys[slot, HEAD]
        keys[slot, HEAD] = run
    else:
        runs[run, NEXT] = runs[previous, NEXT]
        runs[previous, NEXT] = run
    if runs[run, NEXT] == NONE:
        keys[slot, TAIL] = run
    keys[slot, N_RUNS] += 1


@part
def remove_after(runs: I64, keys: I64, meta: I64, slot: int, previous: int) -> None:
    """Take the run behind `previous` (NONE: the head) out of the list and free it."""
    if previous == NONE:
        run = keys[slot, HEAD]
        keys[slot, HEAD] = runs[run, NEXT]
    else:
        run = runs[previous, NEXT]
        runs[previous, NEXT] = runs[run, NEXT]
    if runs[run, NEXT] == NONE:
        keys[slot, TAIL] = previous
    keys[slot, N_RUNS] -= 1
    release(runs, meta, run)


@part
def prune(runs: I64, keys: I64, meta: I64, slot: int, floor: int) -> None:
    """Drop the runs of a key that start before position `floor`; lists are ordered by start."""
    while keys[slot, HEAD] != NONE and runs[keys[slot, HEAD], START_POS] < floor:
        remove_after(runs, keys, meta, slot, NONE)


@kernel
def list_runs(runs: I64, keys: I64, order: I64) -> int:
    """Write the runs of all keys to `order`, key by key, each in its order; return how many there are."""
    n = 0
    for slot in range(keys.shape[0]):
        run = keys[slot, HEAD]
        while run != NONE:
            order[n] = run
            n += 1
            run = runs[run, NEXT]
    return n


@kernel
def link_runs(runs: I64, keys: I64, meta: I64) -> None:
    """Make lists of the first rows by the lengths in `keys`; the next row is the spare, none is free."""
    row = 0
    for slot in range(keys.shape[0]):
        keys[slot, HEAD] = row if keys[slot, N_RUNS] > 0 else NONE
        keys[slot, INTEREST] = EVERY_BIT
        for left in range(keys[slot, N_RUNS], 0, -1):
            runs[row, NEXT] = row + 1 if left > 1 else NONE
            row += 1
        keys[slot, TAIL] = row - 1 if keys[slot, N_RUNS] > 0 else NONE
    meta[SPARE] = row
    meta[USED] = row + 1
    meta[FREE] = NONE
    meta[N_FREE] = 0


@kernel
def link_free(runs: I64, meta: I64, end: int) -> None:
    """Put the rows that were never used on the free list, as far as `end`."""
    for free in range(end - 1, meta[USED] - 1, -1):
        release(runs, meta, free)
    meta[USED] = max(meta[USED], end)
