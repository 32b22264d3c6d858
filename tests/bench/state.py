"""``python -m tests.bench.state``: what open runs cost in memory and bytes, and a micro-batch over them.

One process makes the open runs and their snapshot. A new one does what a call of the Spark operator does:
restore, push, advance, snapshot; so its peak of memory is that of a call. Every event of the micro-batch is
of interest; half of them end runs, the others begin some. Beside the times stands the copying of the stored
bytes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.formats.files import read_events
from cep.program.program import TIME_COLUMN, Program
from cep.rulebook import compile_rulebook, load_rulebook
from scenarios.fraud.generate import Options, generate
from tests.bench.figures import Figure, Target, median_seconds, peak_bytes, report, resident_bytes
from tests.bench.peer_rules import STREAM, events

ROOT = Path(__file__).resolve().parents[2]
SECONDS_LONG = 1_000_000
CHUNK = 1_000_000
MIB = 1 << 20

BYTES_PER_RUN = Target(64, at_most=True)
MEMORY_MIB = Target(4096, at_most=True)
SECONDS = Target(5, at_most=True)
N_TARGET = 10_000_000

RULES = {
    "R1": """
RULE R1 FROM e PARTITION BY key PATTERN a -> b WITHIN < {seconds} SECONDS
DEFINE a AS type = 0, b AS type = 1 AND amount > 90
MEASURES b.ts AS last_ts
MAX RUNS 1000000 PER KEY ON OVERFLOW DROP OLDEST
""",
    "R2": """
RULE R2 FROM e PARTITION BY key PATTERN s->{{3,}} -> l WITHIN < {seconds} SECONDS
DEFINE s AS type = 0, l AS type = 1 AND amount > 80
MEASURES l.ts AS last_ts
MAX RUNS 1000000 PER KEY ON OVERFLOW DROP OLDEST
""",
    "R3": """
RULE R3 FROM e PARTITION BY key PATTERN a -> b->+ -> c WITHIN < {seconds} SECONDS
DEFINE a AS type = 0, b AS type = 2 AND amount > COALESCE(LAST(b.amount, 1), a.amount),
c AS type = 1 AND amount < b.amount
MEASURES c.ts AS last_ts
MAX RUNS 1000000 PER KEY ON OVERFLOW DROP OLDEST
""",
    "R4": """
RULE R4 FROM e PARTITION BY key PATTERN a -> !b WITHIN < {seconds} SECONDS
DEFINE a AS type = 0, b AS type = 1
MEASURES a.ts AS last_ts
AFTER MATCH NO SKIP
MAX RUNS 1000000 PER KEY ON OVERFLOW DROP OLDEST
""",
}
"""The rules of `peer_rules` with windows in which all runs stay open, and R3 relaxed, for strict runs end."""


@dataclass(frozen=True, slots=True)
class Call:
    """What one call over the open runs took. Sizes are bytes."""

    runs: int
    keys: int
    restore_s: float
    advance_s: float
    snapshot_s: float
    copy_s: float  # of the bytes read and those written
    stored: int
    size_of_runs: int  # of the matcher in memory
    peak: int

    @property
    def whole_s(self) -> float:
        """Seconds of the call."""
        return self.restore_s + self.advance_s + self.snapshot_s


def compiled(name: str) -> Program:
    """Return the program of one of `RULES`."""
    text = RULES[name].format(seconds=SECONDS_LONG)
    (program,) = compile_sources([Source("bench", text)], {STREAM.name: STREAM}).programs
    return program


def columns(first: int, n: int, n_keys: int, n_types: int) -> pa.Table:
    """Return events that are all of interest, of `n_types` types, one a millisecond."""
    index = np.arange(first, first + n)
    kind = index % n_types
    keys = events(n, 1 << 20, first).column("key")  # 20 bits of a hash: as many keys as there may be
    return pa.table(
        {
            "key": (np.asarray(keys) << 4 | index & 15) % n_keys,
            "ts": index * 1000,
            "type": kind,
            "amount": np.where(kind == 0, 90.0, 95.0),
        }
    )


def batch(program: Program, first: int, n: int, n_keys: int, n_types: int) -> pa.Table:
    """Return `columns`, prepared."""
    return prepare(program, columns(first, n, n_keys, n_types))


def fill(program: Program, n_runs: int, n_keys: int) -> Matcher:
    """Return a matcher with so many open runs: one for each event."""
    matcher = Matcher(program)
    for first in range(0, n_runs, CHUNK):
        n = min(CHUNK, n_runs - first)
        matcher.push(batch(program, first, n, n_keys, 1))
        matcher.advance((first + n - 1) * 1000)
    return matcher


def micro_batch(matcher: Matcher, prepared: pa.Table) -> None:
    """Push and advance as far as the events go."""
    matcher.push(prepared)
    matcher.advance(int(np.asarray(prepared.column(TIME_COLUMN)).max()))


def measured_call(program: Program, data: bytes, prepared: pa.Table) -> Call:
    """Do what a call of the Spark operator does, in a process that has done nothing else."""
    small = fill(program, 1000, 100)
    micro_batch(small, prepared.slice(0, 100))
    Matcher.restore(program, small.snapshot()).next_deadline_us()  # the kernels are loaded
    before = resident_bytes()
    marks = [time.perf_counter()]
    matcher = Matcher.restore(program, data)
    marks.append(time.perf_counter())
    pa.default_memory_pool().release_unused()
    size_of_runs = resident_bytes() - before
    runs, keys = matcher.n_open_runs, matcher.n_keys
    marks.append(time.perf_counter())
    micro_batch(matcher, prepared)
    marks.append(time.perf_counter())
    written = matcher.snapshot()
    matcher.next_deadline_us()
    marks.append(time.perf_counter())
    peak = peak_bytes()
    copy_s = median_seconds(lambda: (bytearray(data), bytearray(written)), 3)
    restore_s, _, advance_s, snapshot_s = np.diff(marks).tolist()
    return Call(runs, keys, restore_s, advance_s, snapshot_s, copy_s, len(data), size_of_runs, peak)


def in_new_process(rule: str, data: Path, first: int, n: int, n_keys: int) -> Call:
    """Return what `measured_call` returns in a process of its own."""
    order = json.dumps({"rule": rule, "data": str(data), "first": first, "n": n, "n_keys": n_keys})
    command = [sys.executable, "-m", "tests.bench.state", "--call", order]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Call(**json.loads(done.stdout))


def obey(order: str) -> None:
    """Measure what `in_new_process` asked for and print it."""
    asked = json.loads(order)
    program = compiled(asked["rule"])
    prepared = batch(program, asked["first"], asked["n"], asked["n_keys"], 2)
    call = measured_call(program, Path(asked["data"]).read_bytes(), prepared)
    print(json.dumps(asdict(call)))


def measure(rule: str, n_runs: int, n_keys: int, n_events: int, repeats: int) -> list[Figure]:
    """Return the figures of one rule with so many open runs over so many keys."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot"
        path.write_bytes(fill(compiled(rule), n_runs, n_keys).snapshot())
        calls = [in_new_process(rule, path, n_runs, n_events, n_keys) for _ in range(repeats)]
    call = sorted(calls, key=lambda call: call.whole_s)[repeats // 2]
    case = f"{rule}, {call.runs:,} runs, {call.keys:,} keys"
    is_full = n_runs >= N_TARGET
    return [
        Figure("stored", case, call.stored / call.runs, "bytes/run", target=BYTES_PER_RUN),
        Figure("in memory", case, call.size_of_runs / call.runs, "bytes/run"),
        Figure("peak of a call", case, call.peak / MIB, "MiB", target=MEMORY_MIB if is_full else None),
        Figure("restore", case, call.restore_s, "s", call.copy_s / 2),
        Figure(f"{n_events:,} events", case, call.advance_s, "s"),
        Figure("snapshot", case, call.snapshot_s, "s", call.copy_s / 2),
        Figure("the whole call", case, call.whole_s, "s", call.copy_s, SECONDS if is_full else None),
    ]


def fraud(n_events: int) -> list[Figure]:
    """Return what the open runs of the fraud rules take in a snapshot, after so many events."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Options(n_events, file_format="parquet", files=1), Path(folder))
        # The rows of tables are no runs.
        files = [file for file in (ROOT / "rules" / "fraud").glob("*.cep") if "JOIN" not in file.read_text()]
        rules = load_rulebook(sorted(files))
        rule_set = compile_rulebook(rules).rule_set
        stream = rule_set.only_stream()
        chunks = read_events(Path(folder) / "events", stream, keys=rule_set.keys_of(stream))
        table = pa.concat_tables([chunk.events for chunk in chunks])
    figures = []
    for program in rule_set.programs:
        matcher = Matcher(program)
        micro_batch(matcher, prepare(program, table))
        names = ", ".join(rule.name for rule in program.rules)
        case = f"{names}: {matcher.n_open_runs:,} runs, {matcher.n_keys:,} keys"
        size = len(matcher.snapshot()) / matcher.n_open_runs
        figures.append(Figure("stored", case, size, "bytes/run", target=BYTES_PER_RUN))
    return figures


@click.command(help="Measure state: bytes per open run, memory, and a micro-batch over all of them.")
@click.option("--runs", type=click.IntRange(min=1), default=N_TARGET, show_default=True)
@click.option("--events", "n_events", type=click.IntRange(min=1), default=100_000, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="processes")
@click.option("--quick", is_flag=True, help="a tenth of the runs")
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/bench/state.json"), show_default=True
)
@click.option("--call", "order", hidden=True)
def main(runs: int, n_events: int, repeats: int, quick: bool, out: Path, order: str | None) -> None:
    """Measure and show."""
    if order is not None:
        obey(order)
        return
    n = runs // 10 if quick else runs
    figures = []
    for n_keys in (n // 10, n):
        figures += measure("R1", n, n_keys, n_events, repeats)
    for rule in RULES:
        figures += measure(rule, n // 10, n // 100, n_events, repeats)
    figures += fraud(n // 10)
    report("Open runs and a micro-batch over them, one core", figures, {"runs": n, "events": n_events}, out)


if __name__ == "__main__":
    main()
