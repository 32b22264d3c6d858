"""``python -m tests.bench.window_rules``: a tumbling and a hopping rule beside Spark's own aggregation.

The same Parquet files, in one session: the rule by `detect`, and `groupBy(key, window(...)).agg(...)`, which
is the no-op of the figure. Both are asked for the number of rows and the sum of counts, which must agree. A
figure is the median of runs after the first. "matcher" is the rule in one process, without reading.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from spark_runtime import detect, session
from tests.bench.figures import Figure, Target, report

STREAM = Stream("events", (Field("ts", "timestamp"), Field("k", "bigint"), Field("x", "double")), "ts")
WINDOWS = {
    "tumbling 1 minute": ("TUMBLING 1 MINUTE", ("1 minute", "1 minute")),
    "hopping 5 minutes every 1 minute": ("HOPPING 5 MINUTES EVERY 1 MINUTE", ("5 minutes", "1 minute")),
}
MEAN_US, N_KEYS = 10_000, 1_000
RATIO = Target(2.0, at_most=True)


def rule_of(window: str) -> RuleSet:
    """Return the rule of a window."""
    text = (
        f"RULE r FROM events PARTITION BY k WINDOW {window} "
        "MEASURES COUNT(*) AS n, SUM(x) AS total, MAX(x) AS most"
    )
    return compile_sources([Source("r.cep", text)], {"events": STREAM}).rule_set


def write(folder: Path, n: int, n_files: int) -> pa.Table:
    """Write events of random keys in order of time; return them as the engine has them."""
    draw = np.random.default_rng(7)
    table = pa.table(
        {
            "ts": np.sort(draw.integers(0, n * MEAN_US, n)) + 1_700_000_000_000_000,
            "k": draw.integers(0, N_KEYS, n),
            "x": np.round(draw.lognormal(3, 1, n), 2),
        }
    )
    times = table.set_column(0, "ts", table.column("ts").cast(pa.timestamp("us", tz="UTC")))
    for number in range(n_files):
        pq.write_table(times.slice(number * n // n_files, n // n_files), folder / f"{number}.parquet")
    return table


def seconds(run: Callable[[], object], repeats: int) -> float:
    """Return the median of some runs after the first."""
    run()
    found = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def in_matcher(rules: RuleSet, table: pa.Table) -> int:
    """Return the number of rows of one matcher that gets the events in ten parts."""
    (program,) = rules.programs
    matcher, n = Matcher(program), 0
    size = -(-table.num_rows // 10)
    for first in range(0, table.num_rows, size):
        part = table.slice(first, size)
        matcher.push(prepare(program, part))
        n += matcher.advance(int(part.column("ts")[-1].as_py()) - 1).num_rows
    return int(n + matcher.finish().num_rows)


def counted(rows: DataFrame) -> tuple[int, int]:
    """Return the number of rows and the sum of their counts."""
    (row,) = rows.agg(F.count("*"), F.sum("n")).collect()
    return row[0], row[1]


def of_spark(frame: DataFrame, length: str, every: str) -> DataFrame:
    """Return the same windows by Spark's own aggregation."""
    of_windows = frame.groupBy("k", F.window("ts", length, every))
    return of_windows.agg(F.count("*").alias("n"), F.sum("x").alias("total"), F.max("x").alias("most"))


def figures(spark: SparkSession, folder: Path, table: pa.Table, repeats: int) -> list[Figure]:
    """Return the figures of all windows."""
    n = table.num_rows
    frame = spark.read.parquet(str(folder))
    found = []
    for name, (window, spans) in WINDOWS.items():
        rules = rule_of(window)
        ours, theirs = detect(frame, rules), of_spark(frame, *spans)
        assert counted(ours) == counted(theirs), name
        no_op = n / seconds(lambda rows=theirs: counted(rows), repeats)  # type: ignore[misc]
        rate = n / seconds(lambda rows=ours: counted(rows), repeats)  # type: ignore[misc]
        found.append(Figure("Spark batch", name, rate, "events/s", no_op))
        found.append(Figure("Spark batch, times as long", name, no_op / rate, "times", target=RATIO))
        alone = seconds(lambda of=rules: in_matcher(of, table), repeats)  # type: ignore[misc]
        found.append(Figure("matcher", name, alone / n * 1e9, "ns/event"))
    return found


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/window_rules.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n, repeats = (200_000, 2) if quick else (2_000_000, 5)
    folder = Path(tempfile.mkdtemp())
    conf = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    spark = session(conf, name="window rules")
    try:
        table = write(folder, n, 4)
        report("window_rules", figures(spark, folder, table, repeats), {"events": n, "keys": N_KEYS}, out)
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
