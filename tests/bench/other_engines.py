"""``python -m tests.bench.other_engines``: questions about a file, beside DuckDB and Polars.

Each question is asked by a process of its own, `cep match`, DuckDB or Polars, which reads Parquet files and
writes the answer to one. The figure is the processor time of the whole process, its start included: the
median of some runs in turns. The no-op is that of the other engine. All must give the same number of rows.

- *window*: events whose key had many events and a large sum within the 30 days before;
- *tumbling*: days of a key with a large sum;
- *as-of*: events beyond the limit that was valid for their key at their time;
- *ten events*: the first question over ten events, which is the start of the process.

DuckDB and Polars have as many threads as the case says. `cep match` computes in one, and reads in as many.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.figures import Figure, Target, report

START_US, LENGTH_US = 1_700_000_000_000_000, 100 * 86_400_000_000
MEAN = 33.0
RATIO, START = Target(1.0, at_most=True), Target(0.65, at_most=True)

STREAMS = """\
streams:
  events:
    event_time: ts
    schema: {k: bigint, ts: timestamp, x: double}
tables:
  limits:
    key: [k]
    event_time: ts
    schema: {k: bigint, ts: timestamp, most: double}
"""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as a rule, in SQL for DuckDB, and as an expression of Polars."""

    rule: str
    inputs: tuple[str, ...]
    duckdb: str
    polars: str


QUESTIONS = {
    "window": Question(
        rule="""
            RULE r FROM events PARTITION BY k PATTERN a
            LET n = COUNT(*) OVER LAST 30 DAYS, total = SUM(x) OVER LAST 30 DAYS
            DEFINE a AS n > {n} AND total > {total}
            MEASURES a.n AS n, a.total AS total
        """,
        inputs=("events",),
        duckdb="""
            SELECT k, ts, COUNT(*) OVER w AS n, SUM(x) OVER w AS total FROM 'events.parquet'
            WINDOW w AS (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL 30 DAYS PRECEDING AND CURRENT ROW)
            QUALIFY n > {n} AND total > {total}
        """,
        polars="""
            pl.scan_parquet("events.parquet").sort("k", "ts")
            .rolling("ts", period="30d", group_by="k").agg(n=pl.len(), total=pl.col("x").sum())
            .filter((pl.col("n") > {n}) & (pl.col("total") > {total}))
        """,
    ),
    "tumbling": Question(
        rule="""
            RULE r FROM events PARTITION BY k WINDOW TUMBLING 1 DAY
            HAVING SUM(x) > {day}
            MEASURES COUNT(*) AS n, SUM(x) AS total
        """,
        inputs=("events",),
        duckdb="""
            SELECT k, time_bucket(INTERVAL 1 DAY, ts) AS day, COUNT(*) AS n, SUM(x) AS total
            FROM 'events.parquet' GROUP BY ALL HAVING total > {day}
        """,
        polars="""
            pl.scan_parquet("events.parquet").group_by("k", pl.col("ts").dt.truncate("1d"))
            .agg(n=pl.len(), total=pl.col("x").sum()).filter(pl.col("total") > {day})
        """,
    ),
    "as-of": Question(
        rule="""
            RULE r FROM events JOIN limits ON k PARTITION BY k PATTERN a
            DEFINE a AS x > limits.most
            MEASURES a.x AS x, a.limits.most AS most
        """,
        inputs=("events", "limits"),
        duckdb="""
            SELECT k, e.ts, x, most FROM 'events.parquet' e ASOF JOIN 'limits.parquet' l USING (k, ts)
            WHERE x > most
        """,
        polars="""
            pl.scan_parquet("events.parquet").sort("ts")
            .join_asof(pl.scan_parquet("limits.parquet").sort("ts"), on="ts", by="k")
            .filter(pl.col("x") > pl.col("most"))
        """,
    ),
}


def write(folder: Path, n: int, n_keys: int) -> None:
    """Write events of random keys over 100 days in order of time, and half as many versions of limits."""
    draw = np.random.default_rng(7)
    for name, column, rows, scale in (("events", "x", n, 3.0), ("limits", "most", n // 2, 6.0)):
        times = np.sort(draw.integers(0, LENGTH_US, rows)) + START_US
        table = pa.table(
            {
                "k": draw.integers(0, n_keys, rows),
                "ts": pa.array(times).cast(pa.timestamp("us", tz="UTC")),
                column: np.round(draw.lognormal(scale, 1, rows), 2),
            }
        )
        pq.write_table(table, folder / f"{name}.parquet")
    (folder / "streams.yaml").write_text(STREAMS)


def bounds(n: int, n_keys: int) -> dict[str, float]:
    """Return the numbers in the questions: so large that one row in a hundred or fewer is found."""
    in_window, in_day = n / n_keys * 0.3, n / n_keys / 100
    return {
        "n": round(in_window + 2 * in_window**0.5),
        "total": round(MEAN * (in_window + 2 * in_window**0.5)),
        "day": round(MEAN * (in_day + 8 * in_day**0.5)),
    }


def commands(
    question: Question, folder: Path, values: Mapping[str, float], threads: int
) -> dict[str, list[str]]:
    """Return what each engine runs in the folder."""
    (folder / "r.cep").write_text(question.rule.format(**values))
    named = "{0}={0}.parquet" if len(question.inputs) > 1 else "{}.parquet"
    given = [part for name in question.inputs for part in ("-i", named.format(name))]
    cep = "import sys; from cep.__main__ import start; start()"
    duckdb = f"""
import duckdb
duckdb.sql("SET threads = {threads}; SET TimeZone = 'UTC'")
duckdb.sql('''COPY ({question.duckdb.format(**values)}) TO 'DuckDB.parquet' ''')"""
    polars = f"""
import polars as pl
found = ({question.polars.format(**values)})
found.collect().write_parquet("Polars.parquet")"""
    return {
        "cep match": [sys.executable, "-c", cep, "match", "r.cep", *given, "-o", "cep match.parquet", "-q"],
        "DuckDB": [sys.executable, "-c", duckdb],
        "Polars": [sys.executable, "-c", polars],
    }


def cpu_seconds(command: list[str], folder: Path, threads: int) -> float:
    """Run a process to its end, and return the processor time that it took.

    Raises
    ------
    RuntimeError
        If it failed; with what it wrote.
    """
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has compiled modules
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=said, stderr=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read())
    return used.ru_utime + used.ru_stime


def asked(
    question: Question, folder: Path, values: Mapping[str, float], threads: int, repeats: int
) -> dict[str, float]:
    """Return the median processor time of each engine, in turns, after one run each."""
    found: dict[str, list[float]] = {}
    given = commands(question, folder, values, threads)
    for turn in range(repeats + 1):
        for name, command in given.items():
            seconds = cpu_seconds(command, folder, threads)
            if turn:
                found.setdefault(name, []).append(seconds)
    rows = {name: pq.read_metadata(folder / f"{name}.parquet").num_rows for name in given}
    # Rounding decides about sums that are the bound: cep's are exact.
    assert max(rows.values()) - min(rows.values()) <= 1 + max(rows.values()) // 100_000, rows
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def figures(root: Path, n: int, repeats: int, threads: int) -> list[Figure]:
    """Return the figures of all questions with some number of threads."""
    cases = (
        ("window, 10,000 keys", "window", n, n // 200),
        ("window, 1,000,000 keys", "window", n, n // 2),
        ("tumbling, 10,000 keys", "tumbling", n, n // 200),
        ("as-of, 100,000 keys", "as-of", n, n // 20),
        ("ten events", "window", 10, 1),
    )
    found = []
    for title, name, rows, n_keys in cases:
        folder = root / f"{rows}-{n_keys}"
        if not folder.exists():
            folder.mkdir()
            write(folder, rows, n_keys)
        seconds = asked(QUESTIONS[name], folder, bounds(rows, n_keys), threads, repeats)
        ours, case = seconds.pop("cep match"), f"{title}, threads: {threads}"
        for other, theirs in seconds.items():
            found.append(Figure(f"beside {other}", case, ours, "s", theirs, START if rows == 10 else None))
            if rows != 10:
                found.append(Figure(f"times {other}", case, ours / theirs, "times", target=RATIO))
    return found


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events, and keys")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/other_engines.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n, repeats = (200_000, 2) if quick else (2_000_000, 5)
    with tempfile.TemporaryDirectory() as folder:
        found = [figure for threads in (1, 2) for figure in figures(Path(folder), n, repeats, threads)]
    report("other_engines", found, {"events": n}, out)


if __name__ == "__main__":
    main()
