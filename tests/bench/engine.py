"""``python -m tests.bench.engine``: the engine alone on the four rules of `tests.bench.peer_rules`.

Paths, each on one core, warm, the median of some repeats, in events of the input:

- *kernel*: the compiled loop over ordered events;
- *ordering included*: prepared events to a table of matches, as they came or shuffled;
- *columns to matches*: predicates included;
- *Parquet to matches*: what `cep match` does with a file.

Then one thing grows at a time: events, keys, the window, rules, cores. Beside each figure stands a no-op on
the same path in the same run: a compiled loop that only reads time and predicate bits, a rule to which no
event is of interest, the sum of every column, the reading of the file.
"""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import click
import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cep.arrays import I64
from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.order.column_cells import ColumnCells
from cep.engine.order.event_blocks import event_blocks
from cep.engine.order.ordering import order_events
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.formats.files import read_events
from cep.local.match_file import match_file
from cep.program.program import Program, bits_column
from cep.rule_set import RuleSet
from tests.bench.figures import Figure, Target, median_seconds, peak_bytes, report, reset_peak
from tests.bench.peer_rules import DENSE_KEYS, EXPECTED, N_EXPECTED, RULES, SPARSE_KEYS, STREAM, events, found

MIB = 1 << 20
KERNEL = {"R1": Target(100), "R2": Target(100), "R3": Target(20), "R4": Target(100)}
CORRELATED = Target(20)
UNORDERED = Target(15)
WINDOW_TIMES = Target(1.2, at_most=True)
KEYS_TIMES = Target(2, at_most=True)
RULES_TIMES = Target(10, at_most=True)

DEPENDENT_RULES = {
    "correlated": """
RULE C1 FROM e PARTITION BY key PATTERN a -> b WITHIN < 10 SECONDS
DEFINE a AS type = 0, b AS type = 1 AND amount > a.amount + 50
MEASURES b.ts AS last_ts
""",
    "aggregates": """
RULE A1 FROM e PARTITION BY key PATTERN s->{3,} -> l WITHIN < 60 SECONDS
DEFINE s AS type = 2 AND amount < 5, l AS amount > 80 AND amount > 30 * AVG(s.amount)
MEASURES l.ts AS last_ts, SUM(s.amount) AS total
""",
}


def compiled(*texts: str) -> Program:
    """Return the one program of rules over the stream."""
    (program,) = compile_sources([Source("bench", text) for text in texts], {STREAM.name: STREAM}).programs
    return program


def never(program: Program) -> Program:
    """Return `program` with rules to which no event is of interest."""
    rules = tuple(replace(rule, event_mask=0, needs_every_event=False) for rule in program.rules)
    return replace(program, rules=rules)


def match(program: Program, prepared: pa.Table) -> pa.Table:
    """Return the matches of prepared events."""
    matcher = Matcher(program)
    matcher.push(prepared)
    return matcher.finish()


def read_columns(table: pa.Table) -> list[pa.Scalar]:
    """Look at every value."""
    return [pc.sum(table.column(name).cast(pa.int64(), safe=False)) for name in table.column_names]


@numba.njit(cache=True)
def read_ordered(rows: I64, time_us: I64, bits: I64) -> int:
    """Read what every rule must look at."""
    total = 0
    for row in rows:
        total += time_us[row] ^ bits[row]
    return total


# ------------------------------------------------------------ paths


def rate(path: str, case: str, n: int, seconds: float, no_op: float, target: Target | None = None) -> Figure:
    """Return a figure in millions of events per second."""
    return Figure(path, case, n / seconds / 1e6, "M events/s", n / no_op / 1e6, target)


def kernel(case: str, program: Program, prepared: pa.Table, n: int, repeats: int, target: Target) -> Figure:
    """Return the figure of the compiled loop over the first rule's events."""
    order = order_events(program, prepared)
    rule = program.rules[0]
    bits = np.asarray(prepared.column(bits_column(rule.word)))[order.rows]
    rows = np.arange(len(order.rows))
    if not rule.needs_every_event:
        rows = np.flatnonzero(bits.view(np.uint64) & np.uint64(rule.event_mask))

    def seconds() -> float:
        matcher = Matcher(program)
        columns = ColumnCells(program, matcher._strings)
        slots = matcher._keys.place(prepared, order.keys, order.first_rows, order.hashes)
        blocks = event_blocks(program, prepared, order, slots, columns)
        ((_, cells),) = blocks.blocks(len(order.rows))
        state = matcher._rules[0]
        state.set_slots(matcher.n_keys)
        found: list[I64] = []
        start = time.perf_counter()
        state.run(cells, bits, rows, 0, found)
        return time.perf_counter() - start

    seconds()
    no_op = median_seconds(lambda: read_ordered(rows, order.time_us, bits), repeats)
    return rate("kernel", case, n, statistics.median(seconds() for _ in range(repeats)), no_op, target)


def paths(name: str, text: str, n: int, n_keys: int, repeats: int, target: Target) -> list[Figure]:
    """Return the figures of all paths for one rule; a wrong count is an error."""
    program = compiled(text)
    case = f"{name}, {n_keys:,} keys"
    table = events(n, n_keys)
    prepared = prepare(program, table)
    if n == N_EXPECTED and (name, n_keys) in EXPECTED:
        assert found(match(program, prepared)) == EXPECTED[name, n_keys], f"{case}: wrong matches"
    shuffled = prepared.take(pa.array(np.random.default_rng(7).permutation(len(prepared))))
    idle = never(program)
    figures = [kernel(case, program, prepared, n, repeats, target)]
    for path, rows in (("ordering included", prepared), ("ordering, shuffled", shuffled)):
        seconds = median_seconds(lambda rows=rows: match(program, rows), repeats)  # type: ignore[misc]
        no_op = median_seconds(lambda rows=rows: match(idle, rows), repeats)  # type: ignore[misc]
        figures.append(rate(path, case, n, seconds, no_op, UNORDERED))
    seconds = median_seconds(lambda: match(program, prepare(program, table)), repeats)
    no_op = median_seconds(lambda: read_columns(table), repeats)
    figures.append(rate("columns to matches", case, n, seconds, no_op))
    keys = RuleSet((program,)).keys_of(STREAM)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "events.parquet"
        times = table.column("ts").cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(table.set_column(table.column_names.index("ts"), "ts", times), file)
        reset_peak()
        seconds = median_seconds(lambda: match_file(RuleSet((program,)), file), repeats)
        peak = peak_bytes()
        no_op = median_seconds(
            lambda: [len(chunk.events) for chunk in read_events(file, STREAM, keys=keys)], repeats
        )
        figures.append(rate("Parquet to matches", case, n, seconds, no_op))
        figures.append(Figure("its peak of memory", case, peak / MIB, "MiB"))
    return figures


# ------------------------------------------------------------ growth


@dataclass(frozen=True, slots=True)
class Size:
    """Rules over some events; `bound` is what an event may cost in costs of the case before, or the first."""

    case: str
    texts: Sequence[str]
    n: int
    n_keys: int = SPARSE_KEYS
    bound: Target | None = None
    to_first: bool = False


def growth(sizes: Sequence[Size], repeats: int) -> list[Figure]:
    """Return what an event costs from columns to matches, when one thing grows."""
    figures: list[Figure] = []
    costs: list[float] = []
    for size in sizes:
        program = compiled(*size.texts)
        table = events(size.n, size.n_keys)
        to_ns = 1e9 / size.n
        no_op = median_seconds(lambda table=table: read_columns(table), repeats) * to_ns  # type: ignore[misc]
        reset_peak()
        cost = median_seconds(lambda p=program, t=table: match(p, prepare(p, t)), 2 * repeats) * to_ns  # type: ignore[misc]
        figures.append(Figure("columns to matches", size.case, cost, "ns/event", no_op))
        figures.append(Figure("peak of memory", size.case, peak_bytes() / MIB, "MiB"))
        if costs:
            times = cost / costs[0 if size.to_first else -1]
            figures.append(Figure("cost to the smaller one's", size.case, times, "times", target=size.bound))
        costs.append(cost)
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


def all_growth(n: int, repeats: int) -> list[Figure]:
    """Return the figures of everything that grows; `n` events where it is not the events that grow."""
    r1 = [RULES["R1"]]
    figures = growth([Size(f"R1, {size:,} events", r1, size) for size in (n // 2, 5 * n)], repeats)
    for name in ("R1", "R3"):
        sizes = [
            Size(f"{name} over {n_keys:,} keys", [RULES[name]], n, n_keys, bound)
            for n_keys, bound in ((100, None), (10_000, None), (1_000_000, KEYS_TIMES))
        ]
        figures += growth(sizes, repeats)
    for name in ("R1", "R2", "R4"):
        for n_keys in (SPARSE_KEYS, DENSE_KEYS):
            sizes = [
                Size(
                    f"{name}, {n_keys:,} keys, window x{factor}",
                    [with_window(RULES[name], factor)],
                    n,
                    n_keys,
                    WINDOW_TIMES,
                )
                for factor in (1, 10, 100)
            ]
            figures += growth(sizes, repeats)
    some = n // 2  # so many that what a call costs does not show
    sizes = [
        Size(
            f"{n_rules} rules like R1",
            many(n_rules),
            some,
            SPARSE_KEYS,
            RULES_TIMES if n_rules == 1000 else None,
            True,
        )
        for n_rules in (1, 10, 100, 1000)
    ]
    return figures + growth(sizes, repeats)


# ------------------------------------------------------------ cores


def share(
    number: int, n_cores: int, name: str, n: int, repeats: int, start: Barrier, seconds: Queue[float]
) -> None:
    """Match the keys of one core, as often as the others, each time at once; hand back each time."""
    pa.set_cpu_count(1)
    program = compiled(RULES[name])
    table = events(n, SPARSE_KEYS)
    mine = table.filter(pa.array(np.asarray(table.column("key")) % n_cores == number))
    match(program, prepare(program, mine))
    for _ in range(repeats):
        start.wait()
        began = time.perf_counter()
        match(program, prepare(program, mine))
        seconds.put(time.perf_counter() - began)


def cores(name: str, n: int, repeats: int) -> list[Figure]:
    """Return the rates of one process and of two with half of the keys each."""
    context = multiprocessing.get_context("spawn")
    figures: list[Figure] = []
    for n_cores in (1, 2):
        start, seconds = context.Barrier(n_cores), context.Queue()
        processes = [
            context.Process(target=share, args=(number, n_cores, name, n, repeats, start, seconds))
            for number in range(n_cores)
        ]
        for process in processes:
            process.start()
        slowest = statistics.median(max(seconds.get() for _ in range(n_cores)) for _ in range(repeats))
        for process in processes:
            process.join()
        figures.append(
            Figure("columns to matches", f"{name}, {n_cores} core(s)", n / slowest / 1e6, "M events/s")
        )
    gain = figures[1].value / figures[0].value
    return [*figures, Figure("two cores to one", name, gain, "times")]


@click.command(help="Measure the engine alone on four rules, and how its cost grows.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--quick", is_flag=True, help="a tenth of the events; expected counts are not checked")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/bench/engine.json"), show_default=True
)
def main(repeats: int, quick: bool, out: Path) -> None:
    """Measure and show."""
    pa.set_cpu_count(1)
    n = N_EXPECTED // 10 if quick else N_EXPECTED
    figures: list[Figure] = []
    for name, text in RULES.items():
        for n_keys in (SPARSE_KEYS, DENSE_KEYS):
            figures += paths(name, text, n, n_keys, repeats, KERNEL[name])
    for name, text in DEPENDENT_RULES.items():
        figures += paths(name, text, n, SPARSE_KEYS, repeats, CORRELATED)
    figures += all_growth(n, repeats)
    for name in ("R1", "R3"):
        figures += cores(name, n, repeats)
    report("The engine alone", figures, {"events": n, "repeats": repeats}, out)


if __name__ == "__main__":
    main()
