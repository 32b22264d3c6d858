"""Compile the kernels ahead of the first event, all or those that some rules need.

Running a few events shows which kernels are needed: kernels that are not compiled then run as Python and are
recorded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from cep.engine.kernels import functions
from cep.engine.kernels.columns.device_clocks import WIDTH, estimate_times
from cep.engine.kernels.columns.lookahead import N_USES, mark_used
from cep.engine.kernels.columns.order import clear_bit, number_keys, pack_bits
from cep.engine.matching.matcher import Matcher
from cep.engine.order.ordering import OrderedEvents
from cep.engine.state.packing import packed
from cep.expression import Literal, Type
from cep.formats.text.json.columns import compile_kernel
from cep.jit.arguments import Key
from cep.jit.compiled import KERNELS, Kernel, is_compiled, recording
from cep.jit.foreign import call_each
from cep.jit.side_by_side import compile_all
from cep.program.opcodes import Code, SelectionCode, SkipCode
from cep.program.program import TIME_COLUMN, Program, Register, RuleProgram, bits_column
from cep.program.records import ACCEPT, RuleTables
from cep.program.windows import Frame, Function, Window, WindowColumn
from cep.schema.stream import Field, Role, Stream

_LARGEST = ("run_events", "run_timed_events", "pane_windows", "read_lines", "sum_windows")
"""The kernels that take longest to compile, the longest first."""


def smallest_program(with_clocks: bool = True, without: bool = True) -> Program:
    """Return a program of rules that match every event, with all kinds of columns that kernels read.

    Rules `without` clocks: one reports preferred matches, one looks ahead. Each kind has its own kernels.
    """
    fields = (Field("key", "string"), Field("ts", "timestamp"), Field("id", "string"), Field("n", "bigint"))
    sizes: dict[str, list[int]] = {name: [] for name in RuleTables._fields}
    sizes |= {name: [0] for name in sizes if name.startswith("state_")}
    sizes |= {name: [0, 0] for name in sizes if name.endswith("_ptr")}
    sizes |= {"take_ptr": [0, 1], "take_variable": [0], "take_after": [0], "after_ptr": [0, 1]}
    sizes |= {"after_state": [ACCEPT], "variable_mask": [0], "variable_hash": [1]}
    sizes |= {"variable_after_take": [0]}
    dtypes: dict[str, Any] = {"code_arg": np.int64}
    dtypes |= dict.fromkeys(("state_trigger_mask", "variable_mask", "variable_hash"), np.uint64)
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
    predicates = ((Literal(value=True, type=Type.BOOLEAN),),)
    rules = (*((rule,) if without else ()), *((timed,) if with_clocks else ()))
    rules += (preferred, looked_ahead) if without else ()
    return Program((stream,), ("key",), roles, predicates, (), (), rules, listed=("n",))


def warm_up(
    progress: Callable[[int, int], None] | None = None,
    programs: Sequence[Program] | None = None,
    n_processes: int = 1,
) -> None:
    """Compile all kernels, or those that programs need, and load them.

    `progress`: receives the numbers of compiled kernels and of all kernels whenever one has been compiled.
    `programs`: none: all kernels. Any other kernel that a program needs is compiled at its first call.
    `n_processes`: how many kernels are compiled at the same time.
    """
    work = missing(programs)
    done: set[Kernel] = set()

    def told(kernel: Kernel) -> None:
        done.add(kernel)
        if progress is not None:
            progress(len(done), len(work))

    compile_all(work, n_processes, told)
    for kernel, key in work:
        kernel.code_for(key)


def missing(programs: Sequence[Program] | None = None) -> list[tuple[Kernel, Key]]:
    """Return the kernels that `warm_up` compiles, the largest first, with the types of their arguments.

    Those on disk are loaded.
    """
    with recording() as found:
        _run_kernels(programs)
    last = len(_LARGEST)
    rank = {name: number for number, name in enumerate(_LARGEST)}
    return sorted(found, key=lambda item: rank.get(item[0].py_func.__name__, last))


def needed() -> list[tuple[Kernel, Key]]:
    """Return all kernels, compiled or not, the largest of those that are not compiled first."""
    work = missing()
    loaded = [(kernel, key) for kernel in KERNELS.values() for key in kernel.keys]
    return [*work, *(item for item in loaded if item not in work)]


def _run_kernels(programs: Sequence[Program] | None) -> None:
    compile_kernel()
    rules = [rule for program in programs or () for rule in program.rules]
    with_clocks = programs is None or any(rule.is_timed for rule in rules)
    program = smallest_program(with_clocks, programs is None or not all(rule.is_timed for rule in rules))
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
    pack_bits(np.zeros((1, 1), np.uint8), 1, cells.copy())
    clear_bit(np.zeros(1, np.uint8), 0, cells.copy())
    call_each(0, cells[:0])
    clocks = np.zeros((1, WIDTH), np.int64)
    estimate_times(np.zeros(1, np.int32), cells, cells, cells, clocks, cells.copy())
    matcher = Matcher(program)
    matcher.push(pa.table(columns, schema=program.event_schema))
    matcher.advance(2)
    matcher.next_deadline_us()
    Matcher.restore(program, matcher.snapshot()).finish()
    packed(np.array([[0], [3], [1 << 40]]))
    strict = any(rule.needs_every_event for rule in rules)
    if strict or programs is None or any(program.windows or program.joins.tables for program in programs):
        keys, codes = np.zeros((1, 1), np.int64), np.zeros(1, np.int32)
        mark_used(cells, cells, codes, codes, keys, np.zeros(N_USES, np.int64), np.zeros(1, np.uint8))
    if programs is None:
        _run_window_kernels(_every_window())
        _run_table_kernels()
        return
    windows = [window for program in programs for window in program.windows]
    if windows:
        _run_window_kernels(_like(windows))
    if any(program.joins.tables or program.has_views for program in programs):
        _run_table_kernels()


def _every_window() -> list[WindowColumn]:
    columns = [
        WindowColumn(
            name=function.name,
            type=Type.DOUBLE,
            function=function,
            argument="x",
            argument_type=Type.DOUBLE,
            window=Window(Frame.TUMBLING, 1_000_000),
            within=(0, 0),
        )
        for function in Function
    ]
    sliding = Window(Frame.TIME, 1)
    columns.append(dataclasses.replace(columns[0], name="sliding", window=sliding))
    columns.append(dataclasses.replace(columns[1], name="sum", window=sliding, argument="y"))
    spread = dataclasses.replace(columns[1], name="spread", function=Function.STDDEV)
    columns.append(dataclasses.replace(spread, window=sliding, argument="y"))
    stepping = Window(Frame.TIME, 2, step_us=1)
    columns.append(dataclasses.replace(columns[1], name="panes", window=stepping))
    return columns


def _like(windows: Sequence[WindowColumn]) -> list[WindowColumn]:
    """Return columns of the same functions and frames over an event's number."""
    kinds = {(window.function, window.window) for window in windows}
    known = {column.function: column for column in _every_window()}
    return [
        dataclasses.replace(known[function], name=f"{number}", window=frame)
        for number, (function, frame) in enumerate(kinds)
    ]


def _run_window_kernels(columns: Sequence[WindowColumn]) -> None:
    """Compute windows once."""
    from cep.engine.windows.windows import Windows

    one = np.zeros(2, np.int64)
    order = OrderedEvents(
        rows=np.array([1, 0]),
        codes=np.zeros(2, np.int32),
        time_us=one,
        identity=one.view(np.uint64),
        keys=pa.array([0]),
        first_rows=one[:1],
        n_duplicates=(0,),
    )
    slots, known = np.zeros(1, np.int32), np.array([True, False])
    windows = Windows(columns)
    windows.compute(order, slots, 1, 2, lambda name: (one, known), lambda place: known, begins_us=one)
    windows.expire(9)
    Windows(columns).compute(order, None, 0, 2, lambda name: (one, known), lambda place: known, begins_us=one)
    Windows(columns).restore(windows.stored(), 1)


def _run_table_kernels() -> None:
    """Change a row of a table, and look it up."""
    from cep.engine.tables.tables import warm_up_tables

    warm_up_tables()


def is_warm(with_windows: bool = True) -> bool:
    """Return whether all kernels are compiled for this processor, so no run waits for a compiler.

    `with_windows`: whether those of windows count. Loading them takes as long as the start of a small run.
    """
    if with_windows:
        import cep.engine.windows.context_columns  # noqa: F401 - adds its kernels to `KERNELS`

    return all(map(is_compiled, KERNELS.values()))


def compiled_kernels() -> dict[str, int]:
    """Return how many times each kernel was specialized in this process; more than once is wasteful."""
    return {name: len(kernel.keys) for name, kernel in KERNELS.items()}
