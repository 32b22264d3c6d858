"""Open runs as structure of arrays: making, growing, compacting the pool that the kernels work in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cep.engine.kernels import N_META, NONE, Matches, Runs, Stack, link_runs, list_runs
from cep.program import I32, I64, RuleProgram

RUN_COLUMNS = (
    "state",
    "start_us",
    "start_pos",
    "last_pos",
    "chain",
    "valid",
    "end_us",
    "instant",
    "registers",
)
"""Arrays of `Runs` with one row per run: what a snapshot keeps of each."""

_DTYPES: dict[str, Any] = {"next": np.int32, "state": np.int32, "chain": np.uint64, "valid": np.uint64}


@dataclass(frozen=True, slots=True)
class RunColumns:
    """The open runs of one rule without the pool: key by key, each key's in order of its list."""

    n_runs: I32  # (n_slots,)
    columns: dict[str, npt.NDArray[Any]]  # RUN_COLUMNS, one row per run

    @property
    def total(self) -> int:
        """Number of runs of all keys."""
        return int(self.n_runs.sum())


def n_registers(rule: RuleProgram) -> int:
    """Return the width of the register rows; at least one, so that arrays are never empty."""
    return max(len(rule.registers), 1)


def new_pool(width: int, capacity: int, n_slots: int) -> Runs:
    """Return an empty pool of `capacity` runs with `width` registers for `n_slots` keys."""
    rows = capacity + 1
    registers = np.zeros((rows, width), np.int64)
    columns = {name: np.zeros(rows, _DTYPES.get(name, np.int64)) for name in ("next", *RUN_COLUMNS[:-1])}
    runs = Runs(
        **columns,
        registers=registers,
        registers_f=registers.view(np.float64),
        head=np.full(n_slots, NONE, np.int32),
        n_runs=np.zeros(n_slots, np.int32),
        meta=np.zeros(N_META, np.int64),
    )
    link_runs(runs, 0)
    return runs


def compact(runs: Runs) -> RunColumns:
    """Return the open runs, in order, as plain columns."""
    order: I64 = np.empty(int(runs.n_runs.sum()), np.int64)
    list_runs(runs, order)
    return RunColumns(runs.n_runs.copy(), {name: getattr(runs, name)[order] for name in RUN_COLUMNS})


def expand(columns: RunColumns, capacity: int, meta: I64) -> Runs:
    """Return a pool that holds `columns`; counters in `meta` are carried over."""
    total = columns.total
    assert capacity >= total
    pool = new_pool(columns.columns["registers"].shape[1], capacity, len(columns.n_runs))
    for name in RUN_COLUMNS:
        getattr(pool, name)[:total] = columns.columns[name]
    pool.n_runs[:] = columns.n_runs
    pool.meta[:] = meta
    link_runs(pool, total)
    return pool


def with_slots(runs: Runs, n_slots: int) -> Runs:
    """Return the same pool with room for `n_slots` keys."""
    added = n_slots - len(runs.head)
    if added <= 0:
        return runs
    return runs._replace(
        head=np.concatenate((runs.head, np.full(added, NONE, np.int32))),
        n_runs=np.concatenate((runs.n_runs, np.zeros(added, np.int32))),
    )


def keep_slots(columns: RunColumns, kept: npt.NDArray[np.bool_]) -> RunColumns:
    """Return the columns with the keys of `kept` only; the others have no runs."""
    return RunColumns(columns.n_runs[kept], columns.columns)


def new_matches(width: int, capacity: int) -> Matches:
    """Return room for `capacity` matches."""
    return Matches(
        slot=np.zeros(capacity, np.int32),
        start_us=np.zeros(capacity, np.int64),
        end_us=np.zeros(capacity, np.int64),
        chain=np.zeros(capacity, np.uint64),
        valid=np.zeros(capacity, np.uint64),
        registers=np.zeros((capacity, width), np.int64),
    )


def new_stack(rule: RuleProgram) -> Stack:
    """Return an operand stack as deep as the rule's longest code could need."""
    depth = int(np.diff(rule.tables.code_ptr).max(initial=0)) + 1
    cells = np.zeros(depth, np.int64)
    return Stack(cells, cells.view(np.float64), np.zeros(depth, np.uint8))


def fan_out(rule: RuleProgram) -> int:
    """Return the largest number of runs that one run can become at one event."""
    tables = rule.tables
    sizes = np.diff(tables.after_ptr)[tables.take_after]
    totals = [
        int(sizes[tables.take_ptr[state] : tables.take_ptr[state + 1]].sum())
        for state in range(len(tables.state_mode))
    ]
    return max(totals) + 1
