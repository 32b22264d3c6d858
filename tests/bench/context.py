"""``python -m tests.bench.context``: what rules ask of the past, beside the other ways to ask it.

- A windowed value beside the pattern that says the same, in this process: how many events of a key there
  were in a time, and a value against the values of the key before it.
- The first of these and a join of two streams on Spark, beside Spark's own window functions and its own
  stream-stream join over the same Parquet files, in the same session. Both must find the same.

A figure is the processor time of all processes for an event, the least of some repeats; the first run is not
counted.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.schema.stream import Field, Stream
from spark_runtime import detect, session
from tests.bench.figures import Figure, Target, report
from tests.bench.processes import cpu_seconds

N_KEYS = 100
MEAN_US = 6_000
"""Between two events on average: a key has 100 in a minute."""

TIMES_FASTER = Target(20)
START_US = 1_714_521_600_000_000

HITS = Stream("hits", (Field("key", "bigint"), Field("ts", "timestamp"), Field("x", "double")), "ts")

AS_WINDOW = {
    "how many": """
RULE many FROM hits PARTITION BY key PATTERN last
DEFINE last AS x > 20 AND COUNT(*) FILTER (WHERE x > 20) OVER LAST 1 MINUTE >= 130
""",
    "what is usual": """
RULE peaks FROM hits PARTITION BY key PATTERN peak
DEFINE peak AS x > AVG(x) OVER PREVIOUS 200 EVENTS + 6 * STDDEV(x) OVER PREVIOUS 200 EVENTS
           AND COUNT(*) OVER PREVIOUS 200 EVENTS = 200
""",
}
AS_PATTERN = {
    "how many": """
RULE many FROM hits PARTITION BY key PATTERN hit->{130} WITHIN <= 1 MINUTE
DEFINE hit AS x > 20
AFTER MATCH NO SKIP
""",
    "what is usual": """
RULE peaks FROM hits PARTITION BY key PATTERN base{200} peak
DEFINE base AS TRUE, peak AS x > AVG(base.x) + 6 * STDDEV(base.x)
AFTER MATCH NO SKIP
""",
}

_SIDE = (Field("id", "bigint"), Field("card", "bigint"), Field("ts", "timestamp"))
SIDES = {name: Stream(name, _SIDE, "ts", lateness_us=10_000_000) for name in ("orders", "payments")}
JOIN = """
RULE paid FROM orders, payments PARTITION BY card
PATTERN o ->> p | p ->> o WITHIN <= 5 SECONDS
DEFINE o ON orders, p ON payments
MEASURES o.id AS order_id, p.id AS payment_id
MATCH ALL AFTER MATCH NO SKIP
"""


def hits(n: int) -> pa.Table:
    """Return random events of some keys; one in 2,000 is a peak."""
    draw = np.random.default_rng(3)
    x = np.round(draw.normal(50, 15, n), 2)
    x[draw.integers(0, n, n // 2000)] += 500
    return _table(draw, n, key=draw.integers(0, N_KEYS, n), x=x)


def side(n: int, seed: int) -> pa.Table:
    """Return random orders or payments of cards. The last one, an hour later, lets the others be known."""
    draw = np.random.default_rng(seed)
    found = _table(draw, n, id=np.arange(n), card=draw.integers(0, 1_000, n))
    last_us = START_US + n * MEAN_US + 3_600_000_000
    last = pa.table({"id": [n], "card": [-1 - seed], "ts": pa.array([last_us]).cast(found["ts"].type)})
    return pa.concat_tables([found, last])


def _table(draw: np.random.Generator, n: int, **columns: np.ndarray) -> pa.Table:
    time_us = START_US + np.sort(draw.integers(0, n * MEAN_US, n))
    return pa.table({**columns, "ts": pa.array(time_us).cast(pa.timestamp("us", tz="UTC"))})


def least_us(run: Callable[[], int], n: int, repeats: int) -> tuple[float, int]:
    """Return the least processor time of some runs in microseconds an event, and what the runs gave."""
    found = run()
    costs = []
    for _ in range(repeats):
        start = cpu_seconds()
        again = run()
        costs.append(cpu_seconds() - start)
        assert again == found, (again, found)
    return min(costs) / n * 1e6, found


def in_process(text: str, table: pa.Table) -> Callable[[], int]:
    """Return what counts the matches of a rule over the events, once they are prepared."""
    (program,) = compile_sources([Source("bench", text)], {HITS.name: HITS}).programs
    microseconds = table.set_column(table.column_names.index("ts"), "ts", table.column("ts").cast(pa.int64()))
    prepared = prepare(program, microseconds.select([field.name for field in HITS.fields]), HITS)

    def run() -> int:
        matcher = Matcher(program)
        matcher.push(prepared)
        return int(matcher.finish().num_rows)

    return run


def forms(n: int, repeats: int) -> list[Figure]:
    """Return the figures of a window beside a pattern."""
    table = hits(n)
    figures = []
    for case in AS_WINDOW:
        window, n_matches = least_us(in_process(AS_WINDOW[case], table), n, repeats)
        pattern, n_same = least_us(in_process(AS_PATTERN[case], table), n, 1)
        assert n_matches == n_same > 0, (n_matches, n_same)
        case = f"{case}, {n_matches:,} matches"
        figures.append(Figure("windowed value", case, window, "us/event"))
        figures.append(Figure("pattern", case, pattern, "us/event"))
        figures.append(Figure("pattern to window", case, pattern / window, "times", target=TIMES_FASTER))
    return figures


# ------------------------------------------------------------ on Spark


def write(table: pa.Table, folder: Path, n_files: int) -> str:
    """Write the events as files in the order of time; return the folder."""
    folder.mkdir()
    size = -(-table.num_rows // n_files)
    for number in range(n_files):
        pq.write_table(table.slice(number * size, size), folder / f"{number:03}.parquet")
    return str(folder)


def with_window_functions(spark: SparkSession, folder: str) -> Callable[[], int]:
    """Return what asks Spark's SQL how many there were."""
    spark.read.parquet(folder).createOrReplaceTempView("hits")
    query = """
        SELECT count(*) FROM (
          SELECT x, count(*) OVER (PARTITION BY key ORDER BY unix_micros(ts)
                                   RANGE BETWEEN 60000000 PRECEDING AND CURRENT ROW) AS n
          FROM hits WHERE x > 20)
        WHERE n >= 130"""
    return lambda: int(spark.sql(query).first()[0])  # type: ignore[index]


def as_batch(spark: SparkSession, folder: str) -> Callable[[], int]:
    """Return what counts the matches of the rule in a Spark batch."""
    return lambda: detect(spark.read.parquet(folder), AS_WINDOW["how many"], streams=HITS).count()


def streamed(frame: DataFrame, folder: Path) -> int:
    """Run a stream to its end; return the number of rows that it wrote."""
    shutil.rmtree(folder, ignore_errors=True)
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()
    return int(frame.sparkSession.read.parquet(str(folder / "rows")).count())


def read_stream(spark: SparkSession, folder: str, files: int) -> DataFrame:
    """Return a stream of the files, with the watermark of both ways."""
    reader = spark.readStream.schema("id bigint, card bigint, ts timestamp")
    return reader.option("maxFilesPerTrigger", files).parquet(folder).withWatermark("ts", "10 seconds")


def join_of_spark(spark: SparkSession, folders: dict[str, str], out: Path, files: int) -> Callable[[], int]:
    """Return what joins both streams by Spark's stream-stream join."""

    def run() -> int:
        orders = read_stream(spark, folders["orders"], files).alias("o")
        payments = read_stream(spark, folders["payments"], files).alias("p")
        near = "p.ts BETWEEN o.ts - INTERVAL 5 SECONDS AND o.ts + INTERVAL 5 SECONDS"
        joined = orders.join(payments, _condition(f"o.card = p.card AND {near}"))
        return streamed(joined.selectExpr("o.id AS order_id", "p.id AS payment_id"), out)

    return run


def _condition(text: str):  # type: ignore[no-untyped-def]
    from pyspark.sql.functions import expr

    return expr(text)


def join_by_rule(spark: SparkSession, folders: dict[str, str], out: Path, files: int) -> Callable[[], int]:
    """Return what joins both streams by a rule over two streams."""

    def run() -> int:
        frames = {name: read_stream(spark, folder, files) for name, folder in folders.items()}
        return streamed(detect(frames, JOIN, streams=SIDES), out)

    return run


def on_spark(n: int, repeats: int, folder: Path) -> list[Figure]:
    """Return the figures on Spark."""
    spark = session()
    place = write(hits(n), folder / "hits", 4)
    theirs, n_theirs = least_us(with_window_functions(spark, place), n, repeats)
    ours, n_ours = least_us(as_batch(spark, place), n, repeats)
    assert n_theirs == n_ours > 0, (n_theirs, n_ours)
    case = f"how many, batch, {n_ours:,} matches"
    figures = [
        Figure("Spark's window function", case, theirs, "us/event"),
        Figure("the rule", case, ours, "us/event"),
        Figure("Spark to the rule", case, theirs / ours, "times"),
    ]
    folders = {
        name: write(side(n // 2, seed), folder / name, 8) for seed, name in enumerate(("orders", "payments"))
    }
    theirs, n_theirs = least_us(join_of_spark(spark, folders, folder / "spark", 1), n, 1)
    ours, n_ours = least_us(join_by_rule(spark, folders, folder / "rule", 1), n, 1)
    assert n_theirs == n_ours > 0, (n_theirs, n_ours)
    case = f"two streams joined, {n_ours:,} pairs"
    figures += [
        Figure("Spark's stream-stream join", case, theirs, "us/event"),
        Figure("the rule", case, ours, "us/event"),
        Figure("Spark to the rule", case, theirs / ours, "times"),
    ]
    return figures


@click.command(help=__doc__)
@click.option("--quick", is_flag=True, help="a tenth of the events")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out/bench/context.json"))
def main(quick: bool, out: Path) -> None:
    """Run the benchmark."""
    n, repeats = (100_000, 1) if quick else (1_000_000, 3)
    folder = Path(tempfile.mkdtemp(prefix="cep-bench-"))
    started = time.perf_counter()
    try:
        figures = forms(n, repeats) + on_spark(n, repeats, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    seconds = round(time.perf_counter() - started)
    report("context", figures, {"events": n, "repeats": repeats, "seconds": seconds}, out)


if __name__ == "__main__":
    main()
