"""The pool of runs: free rows, and the list of runs of each key."""

from __future__ import annotations

from cep.arrays import I64
from cep.engine.kernels import layout as at
from cep.engine.kernels.compiled import inlined, kernel


@inlined
def allocate(runs: I64, meta: I64) -> int:
    """Return a run from the free list; the caller has ensured that one exists."""
    run = meta[at.FREE]
    meta[at.FREE] = runs[run, at.NEXT]
    meta[at.N_FREE] -= 1
    return run


@inlined
def release(runs: I64, meta: I64, run: int) -> None:
    """Return a run to the free list."""
    runs[run, at.NEXT] = meta[at.FREE]
    meta[at.FREE] = run
    meta[at.N_FREE] += 1


@inlined
def copy_run(runs: I64, source: int, target: int) -> None:
    """Copy the contents of a run, except its place in a list and its state.

    Parameters
    ----------
    source, target : int
        Rows of `runs`.
    """
    runs[target, at.START_US] = runs[source, at.START_US]
    runs[target, at.START_POS] = runs[source, at.START_POS]
    runs[target, at.LAST_POS] = runs[source, at.LAST_POS]
    runs[target, at.RUN_HASH] = runs[source, at.RUN_HASH]
    runs[target, at.VALID] = runs[source, at.VALID]
    for register in range(runs.shape[1] - at.REGISTER):
        runs[target, at.REGISTER + register] = runs[source, at.REGISTER + register]


@inlined
def insert_after(runs: I64, keys: I64, slot: int, previous: int, run: int) -> None:
    """Insert `run` after `previous` in the key's list, or at its head if `previous` is NONE."""
    if previous == at.NONE:
        runs[run, at.NEXT] = keys[slot, at.HEAD]
        keys[slot, at.HEAD] = run
    else:
        runs[run, at.NEXT] = runs[previous, at.NEXT]
        runs[previous, at.NEXT] = run
    if runs[run, at.NEXT] == at.NONE:
        keys[slot, at.TAIL] = run
    keys[slot, at.N_RUNS] += 1


@inlined
def remove_after(runs: I64, keys: I64, meta: I64, slot: int, previous: int) -> None:
    """Remove the run after `previous` from the list, or the head if `previous` is NONE, and free it."""
    if previous == at.NONE:
        run = keys[slot, at.HEAD]
        keys[slot, at.HEAD] = runs[run, at.NEXT]
    else:
        run = runs[previous, at.NEXT]
        runs[previous, at.NEXT] = runs[run, at.NEXT]
    if runs[run, at.NEXT] == at.NONE:
        keys[slot, at.TAIL] = previous
    keys[slot, at.N_RUNS] -= 1
    release(runs, meta, run)


@inlined
def prune(runs: I64, keys: I64, meta: I64, slot: int, prune_before: int) -> None:
    """Drop the runs of a key that start before position `prune_before`; lists are ordered by start."""
    while keys[slot, at.HEAD] != at.NONE and runs[keys[slot, at.HEAD], at.START_POS] < prune_before:
        remove_after(runs, keys, meta, slot, at.NONE)


@kernel
def list_runs(runs: I64, keys: I64, order: I64) -> int:
    """List the runs of all keys, key by key, in the order of each key's list; return their number.

    Parameters
    ----------
    order : (n,) int64
        Room for all runs; written.
    """
    n = 0
    for slot in range(keys.shape[0]):
        run = keys[slot, at.HEAD]
        while run != at.NONE:
            order[n] = run
            n += 1
            run = runs[run, at.NEXT]
    return n


@kernel
def link_runs(runs: I64, keys: I64, meta: I64) -> None:
    """Link the first rows into lists by the lengths in `keys`. The next row is the scratch run."""
    row = 0
    for slot in range(keys.shape[0]):
        keys[slot, at.HEAD] = row if keys[slot, at.N_RUNS] > 0 else at.NONE
        keys[slot, at.TRIGGER_MASK] = at.EVERY_BIT
        for left in range(keys[slot, at.N_RUNS], 0, -1):
            runs[row, at.NEXT] = row + 1 if left > 1 else at.NONE
            row += 1
        keys[slot, at.TAIL] = row - 1 if keys[slot, at.N_RUNS] > 0 else at.NONE
    meta[at.SCRATCH_RUN] = row
    meta[at.USED] = row + 1
    meta[at.FREE] = at.NONE
    meta[at.N_FREE] = 0


@kernel
def link_free(runs: I64, meta: I64, end: int) -> None:
    """Put the rows that were never used, up to `end`, on the free list.

    Parameters
    ----------
    end : int
        The row after the last one to free.
    """
    for free in range(end - 1, meta[at.USED] - 1, -1):
        release(runs, meta, free)
    meta[at.USED] = max(meta[at.USED], end)
