"""Compile the kernels ahead of the first event, or load them from disk: ``python -m cep.engine.warm``."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa

from cep.engine.kernels import functions
from cep.engine.kernels.clocks import run_timed_events
from cep.engine.kernels.compiled import KERNELS
from cep.engine.kernels.order import number_keys
from cep.engine.kernels.windows import run_events
from cep.engine.matcher import Matcher
from cep.expression import Type
from cep.program import (
    ACCEPT,
    TIME_COLUMN,
    Code,
    Program,
    Register,
    RuleProgram,
    RuleTables,
    SelectionCode,
    SkipCode,
    bits_column,
)
from cep.schema import Field, Role, Stream


def smallest_program() -> Program:
    """Return a program of rules that match every event, with all kinds of columns that kernels meet.

    One has clocks, one reports what is preferred, one is offered what a last event follows: each kind has
    kernels of its own.
    """
    fields = (Field("key", "string"), Field("ts", "timestamp"), Field("id", "string"), Field("n", "bigint"))
    sizes: dict[str, list[int]] = {name: [] for name in RuleTables._fields}
    sizes |= {name: [0] for name in sizes if name.startswith("state_")}
    sizes |= {name: [0, 0] for name in sizes if name.endswith("_ptr")}
    sizes |= {"take_ptr": [0, 1], "take_variable": [0], "take_after": [0], "after_ptr": [0, 1]}
    sizes |= {"after_state": [ACCEPT], "variable_mask": [0], "variable_hash": [1]}
    sizes |= {"variable_after_take": [0]}
    dtypes: dict[str, Any] = {"code_arg": np.int64}
    dtypes |= dict.fromkeys(("state_interest", "variable_mask", "variable_hash"), np.uint64)
    tables = RuleTables(**{name: np.array(rows, dtypes.get(name, np.int32)) for name, rows in sizes.items()})
    rule = RuleProgram(
        name="warm",
        title="",
        severity="info",
        tags=(),
        word=0,
        event_mask=0,
        needs_every_event=True,
        tables=tables,
        registers=(Register(Type.BIGINT, "unused"),),
        measures=(),
        is_timed=False,
        span_us=1,
        span_events=-1,
        close_us=1,
        has_closing=False,
        selection=SelectionCode.EARLIEST,
        skip=SkipCode.PAST_LAST,
        skip_register=-1,
        max_runs=1,
        variables=("v",),
        node_register=0,
        suppress_us=1,
    )
    stream = Stream("warm", fields, "ts", tie_break=("id", "n"))
    timed = dataclasses.replace(rule, name="timed", is_timed=True, timeouts=True)
    preferred = dataclasses.replace(
        rule, name="preferred", selection=SelectionCode.PREFERRED, needs_every_event=False
    )
    masked = tables._replace(variable_mask=np.ones(1, np.uint64))
    looked_ahead = dataclasses.replace(
        rule, name="looked ahead", tables=masked, event_mask=1, needs_every_event=False, max_runs=99
    )
    roles = (Role("warm", ("key",)),)
    return Program(
        (stream,), ("key",), roles, ((),), (), (), (rule, timed, preferred, looked_ahead), listed=("n",)
    )


def warm_up() -> None:
    """Run a few events through a matcher, so that every kernel is compiled and on disk."""
    program = smallest_program()
    columns = {
        TIME_COLUMN: [2, 1, 1],
        bits_column(0): [0, 0, 0],
        "key": ["k", "k", "k"],
        "id": ["a", "b", "b"],
        "n": [1, 2, 2],
    }
    cells = np.zeros(1, np.int64)
    functions.compute_rows(int(Code.SIGN_F), 0, cells, np.zeros(1, np.uint8))
    number_keys(cells, 0, np.zeros(1, np.int32), cells.copy(), np.full(1, -1, np.int32))
    matcher = Matcher(program)
    matcher.push(pa.table(columns, schema=program.event_schema))
    matcher.advance(2)
    matcher.next_deadline_us()
    Matcher.restore(program, matcher.snapshot()).finish()


def is_warm() -> bool:
    """Say whether the largest kernels are on disk as they are now, so that no run waits for a compiler."""
    loops: tuple[Any, ...] = (run_events, run_timed_events)
    # Without the compiler they are plain functions. numba has no public way to ask.
    return all(loop._cache._cache_file._load_index() for loop in loops if hasattr(loop, "_cache"))


def compiled_kernels() -> dict[str, int]:
    """Return how many times each kernel was specialised in this process; more than once is a waste."""
    kernels = {**KERNELS, "compute_rows": functions.compute_rows}
    return {name: len(kernel.signatures) for name, kernel in kernels.items() if hasattr(kernel, "signatures")}


if __name__ == "__main__":
    warm_up()
