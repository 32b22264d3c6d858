"""``python -m tests.bench.engine``: the engine alone on the four rules of `tests.bench.peer_rules`.

Every figure is nanoseconds per event of the input, on one core, the median of some repeats in a warm process:

- *kernel*: the compiled loop over ordered events;
- *ordered*: events of any order, prepared, to a table of matches: ordering, kernel, building of matches;
- *whole*: columns to matches, predicates included.

Beside each stands a no-op on the same path in the same run: a compiled loop that only reads the events, the
same matcher with a rule to which no event is of interest, the reading of every column.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import click
import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from cep.compiler.compile import compile_sources
from cep.engine.kernels.layout import TIME_US
from cep.engine.matcher import Matcher
from cep.engine.ordering import order_events
from cep.engine.predicates import prepare
from cep.errors import Source
from cep.program import I64, Program, bits_column
from tests.bench.peer_rules import DENSE_KEYS, EXPECTED, N_EXPECTED, RULES, SPARSE_KEYS, STREAM, events, found


@dataclass(frozen=True, slots=True)
class Figure:
    """One way of running one rule: nanoseconds per event, ours and of the no-op beside it."""

    what: str
    rules: str
    keys: int
    events: int
    path: str
    ns: float
    no_op_ns: float
    matches: int

    @property
    def ratio(self) -> float:
        """Times the no-op."""
        return self.ns / self.no_op_ns


def compiled(*texts: str) -> Program:
    """Return the one program of rules over the stream."""
    (program,) = compile_sources([Source("bench", text) for text in texts], {STREAM.name: STREAM}).programs
    return program


def median_ns(n: int, repeats: int, run: Callable[[], object]) -> float:
    """Return the median time of `run` in nanoseconds per event of `n`, after one run to warm up."""
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) / n * 1e9


@numba.njit(cache=True)
def read_events(rows: I64, cells: I64, bits: I64) -> int:
    """Read what every rule must look at: time and predicate bits of each event."""
    total = 0
    for row in rows:
        total += cells[row, TIME_US] ^ bits[row]
    return total


def never(program: Program) -> Program:
    """Return `program` with rules to which no event is of interest."""
    rules = tuple(replace(rule, event_mask=0, needs_every_event=False) for rule in program.rules)
    return replace(program, rules=rules)


def kernel_run(program: Program, prepared: pa.Table) -> tuple[Callable[[], int], Callable[[], int]]:
    """Return the run of the first rule over events ordered beforehand, and its no-op."""
    order = order_events(program, prepared)
    rule = program.rules[0]
    bits = np.asarray(prepared.column(bits_column(rule.word)))[order.rows]
    rows = np.arange(len(order.rows))
    if not rule.needs_every_event:
        rows = np.flatnonzero(bits.view(np.uint64) & np.uint64(rule.event_mask))

    def run() -> int:
        matcher = Matcher(program)
        cells = matcher._events(prepared, order)
        state = matcher._rules[0]
        state.pool = state.pool.with_slots(matcher._n_slots)
        found: list[I64] = []
        start = time.perf_counter()
        state.run(cells, bits, rows, 0, found)
        run.seconds = time.perf_counter() - start  # type: ignore[attr-defined]
        run.cells = cells  # type: ignore[attr-defined]
        return sum(map(len, found))

    run()
    cells = run.cells  # type: ignore[attr-defined]
    return run, lambda: read_events(rows, cells, bits)


def measure(
    what: str, texts: Sequence[str], n: int, n_keys: int, repeats: int, *, shuffled: bool = False
) -> list[Figure]:
    """Return the figures of the three paths for rules over `n` events of `n_keys` keys."""
    program = compiled(*texts)
    table = events(n, n_keys)
    if shuffled:
        table = table.take(pa.array(np.random.default_rng(7).permutation(n)))
    prepared = prepare(program, table)

    def match(program: Program, prepared: pa.Table) -> pa.Table:
        matcher = Matcher(program)
        matcher.push(prepared)
        return matcher.finish()

    matches = match(program, prepared)
    name = "+".join(rule.name for rule in program.rules) if len(program.rules) < 4 else f"{len(texts)} rules"
    if n == N_EXPECTED and (name, n_keys) in EXPECTED:
        assert found(matches) == EXPECTED[name, n_keys], f"{name} at {n_keys} keys is wrong"
    figures = []

    def add(path: str, ns: float, no_op_ns: float) -> None:
        figures.append(Figure(what, name, n_keys, n, path, round(ns, 2), round(no_op_ns, 2), len(matches)))

    if len(program.rules) == 1:
        run, read = kernel_run(program, prepared)
        seconds = []
        for _ in range(repeats + 1):
            run()
            seconds.append(run.seconds)  # type: ignore[attr-defined]
        add("kernel", statistics.median(seconds[1:]) / n * 1e9, median_ns(n, repeats, read))
    idle = never(program)
    add(
        "ordered",
        median_ns(n, repeats, lambda: match(program, prepared)),
        median_ns(n, repeats, lambda: match(idle, prepared)),
    )
    add(
        "whole",
        median_ns(n, repeats, lambda: match(program, prepare(program, table))),
        median_ns(
            n,
            repeats,
            lambda: [pc.sum(table.column(name).cast(pa.int64(), safe=False)) for name in table.column_names],
        ),
    )
    return figures


def many(n_rules: int) -> list[str]:
    """Return rules like R1 that differ in their constants."""
    return [
        f"RULE M{i} FROM e PARTITION BY key PATTERN a -> b WITHIN < {5 + i % 20} SECONDS\n"
        f"DEFINE a AS type = {i % 10}, b AS type = {(i + 1) % 10} AND amount > {90 + i % 97 / 10}\n"
        "MEASURES b.ts AS last_ts"
        for i in range(n_rules)
    ]


def with_window(text: str, factor: int) -> str:
    """Return a rule with its window so many times longer."""
    head, _, rest = text.partition("WITHIN < ")
    seconds, _, tail = rest.partition(" ")
    return f"{head}WITHIN < {int(seconds) * factor} {tail}"


def all_figures(quick: bool, repeats: int) -> list[Figure]:
    """Return every figure: the four rules, then one thing grown at a time."""
    n = 200_000 if quick else N_EXPECTED
    figures: list[Figure] = []
    for text in RULES.values():
        for n_keys in (SPARSE_KEYS, DENSE_KEYS):
            figures += measure("rules", [text], n, n_keys, repeats)
    for name in ("R1", "R3"):
        figures += measure("any order", [RULES[name]], n, SPARSE_KEYS, repeats, shuffled=True)
    for size in (n // 2, 5 * n):
        figures += measure("events", [RULES["R1"]], size, SPARSE_KEYS, repeats)
    for n_keys in (100, 10_000, 1_000_000):
        figures += measure("keys", [RULES["R1"]], n, n_keys, repeats)
    for factor in (1, 10, 100):
        figures += measure("window", [with_window(RULES["R1"], factor)], n, SPARSE_KEYS, repeats)
    for n_rules in (1, 10, 100, 1000):
        figures += measure("rules at once", many(n_rules), n // 10, SPARSE_KEYS, repeats)
    return figures


def figure_table(figures: Sequence[Figure]) -> Table:
    """Return the figures as a table for the terminal."""
    table = Table(title="The engine alone, one core, nanoseconds per event")
    for heading in ("what", "rules"):
        table.add_column(heading)
    for heading in ("keys", "events", "path", "ns", "no-op ns", "ours / no-op", "M events/s", "matches"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(
            figure.what,
            figure.rules,
            f"{figure.keys:,}",
            f"{figure.events:,}",
            figure.path,
            f"{figure.ns:.1f}",
            f"{figure.no_op_ns:.1f}",
            f"{figure.ratio:.1f}",
            f"{1000 / figure.ns:.1f}",
            f"{figure.matches:,}",
        )
    return table


@click.command(help="Measure the engine alone on four rules, and how it scales.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/bench/engine.json"), show_default=True
)
def main(repeats: int, quick: bool, out: Path) -> None:
    """Measure and show."""
    figures = all_figures(quick, repeats)
    console = Console()
    console.width = max(console.width, 110)
    console.print(figure_table(figures))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps([{**asdict(f), "ratio": round(f.ratio, 2)} for f in figures], indent=1) + "\n")


if __name__ == "__main__":
    main()
