"""Windows without events (FOR EACH) on Spark: batch, stream and pipeline have the rows of a local run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.settings.schema_file import load_streams
from spark_runtime import detect
from tests.spark.events import comparable, drain, spark_rows
from tests.spark.test_tables import START, STREAMS, Rows, drawn, frames, local, quiet_run, read, write

RULES = """
RULE quiet
FROM payments
PARTITION BY card
WINDOW TUMBLING 20 SECONDS FOR EACH customers
WHERE amount > 1
HAVING COUNT(*) < 2
MEASURES COUNT(*) AS n, MAX(amount) AS most

RULE nothing_lately
FROM payments
PARTITION BY card
WINDOW HOPPING 40 SECONDS EVERY 20 SECONDS FOR EACH customers
HAVING COUNT(*) = 0
MEASURES COUNT(*) AS n
SUPPRESS FOR 1 MINUTE
"""
PIPELINE = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {stream: payments, format: json, path: payments, max_files_per_trigger: 1}
  - {table: customers, format: json, path: customers, max_files_per_trigger: 1}
sinks: [{format: parquet, path: out/matches}]
checkpoint: out/checkpoint
at_end: finish
"""


def _compiled(folder: Path) -> tuple[RuleSet, dict[str, Stream]]:
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "rules.cep").write_text(RULES)
    streams = load_streams(folder / "streams.yaml")
    return compile_sources([Source("rules", RULES)], streams).rule_set, streams


def _sparse(seed: int) -> Rows:
    """Payments with pauses; cards c7 and c8 never pay."""
    rows = drawn(seed, 200)
    rows = {name: rows[name] for name in ("payments", "customers")}
    rows["payments"] = [row for row in rows["payments"] if row["card"] < "c7"][::3]
    return rows


def test_a_batch_and_a_pipeline_report_silent_keys_as_a_local_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules, streams = _compiled(tmp_path)
    rows = _sparse(1)
    written = write(tmp_path, rows, 3)
    paths = {name: written[name] for name in rows}
    expected = comparable(local(tmp_path, rules, paths).matches.to_pylist())
    assert {"c7", "c8"} <= {dict(row)["card"] for row in expected}
    given = frames(spark, paths, streams)
    found = detect({name: frame.repartition(3) for name, frame in given.items()}, rules)
    assert comparable(spark_rows(found)) == expected
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    quiet_run(tmp_path / "pipeline.yaml")
    assert comparable(read(tmp_path / "out/matches")) == expected


def test_silent_keys_wake_up_by_a_timer_in_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    rules, streams = _compiled(tmp_path)
    rows = _sparse(2)
    end = START + timedelta(seconds=319)  # no window ends in the 10 seconds before it
    last = {
        "payments": {"id": -1, "ts": end, "card": "none"},
        "customers": {"n": -1, "at": end, "card": "none", "op": "d"},
    }
    for name, row in last.items():
        rows[name].append({**dict.fromkeys(rows[name][0]), **row})
    written = write(tmp_path, rows, 2)
    paths = {name: written[name] for name in rows}
    matches = local(tmp_path, rules, paths).matches
    silent = (row for row in comparable(matches.to_pylist()) if dict(row)["rule"] == "nothing_lately")
    expected = comparable(matches.to_pylist())
    assert len(list(silent)) > 10
    as_stream = {
        name: spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).json(str(paths[name]))
        for name, frame in frames(spark, paths, streams).items()
    }
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    before = spark.conf.get(policy)
    assert before is not None
    spark.conf.set(policy, "min")  # else the versions of a table that is behind are late
    try:
        found = drain(detect(as_stream, rules), "silent", tmp_path / "checkpoint")
    finally:
        spark.conf.set(policy, before)
    assert comparable(found) == expected
