"""Tables that rules join: a stream, a batch and a pipeline give the matches of a local run."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from cep.compiler.compile import compile_sources
from cep.errors import CepError, InputError, Source, StateError
from cep.local.match_file import Result, match_file
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.settings.schema_file import load_streams
from spark_runtime import detect, detect_all, run_pipeline
from spark_runtime.operator.findings import split
from spark_runtime.pipeline.progress import Summary
from tests.spark.events import comparable, drain, spark_rows

STREAMS = """
streams:
  payments:
    event_time: ts
    tie_break: [id]
    lateness: 10 seconds
    schema: {id: bigint, ts: timestamp, card: string, land: string, unit: string, amount: double}
tables:
  customers:
    key: [card]
    event_time: at
    tie_break: [n]
    op: op
    lateness: 10 seconds
    schema: {n: bigint, card: string, at: timestamp, op: string, cap: double, segment: string}
  rates:
    key: [unit]
    replicated: true
    max_rows: 20
    event_time: at
    tie_break: [n]
    lateness: 10 seconds
    schema: {n: bigint, unit: string, at: timestamp, rate: double}
  lands:
    key: [iso]
    static: true
    schema: {iso: string, risk: bigint}
"""
RULES = """
RULE above
FROM payments
JOIN customers ON card
JOIN rates ON unit
JOIN lands ON land = lands.iso
PARTITION BY card
PATTERN one -> big
WITHIN 40 SECONDS
DEFINE
  one AS lands.risk > 1,
  big AS amount * rates.rate > customers.cap
MEASURES
  one.lands.risk AS risk, big.customers.segment AS segment, big.rates.rate AS rate, big.id AS id
AFTER MATCH SKIP TO NEXT EVENT

RULE spent
FROM payments
JOIN customers ON card
JOIN rates ON unit
JOIN lands ON land = lands.iso
PARTITION BY card
WINDOW TUMBLING 20 SECONDS
WHERE lands.risk > 0
HAVING SUM(amount * rates.rate) FILTER (WHERE customers.segment = 'x') > 3
MEASURES LAST_VALUE(customers.segment) AS segment, MAX(rates.rate) AS rate, COUNT(*) AS id
"""
LANDS = "iso,risk\nDE,1\nFR,2\nNG,3\n"
START = datetime(2024, 5, 1, tzinfo=UTC)
TIMES = {"payments": "ts", "customers": "at", "rates": "at"}

Rows = dict[str, list[dict[str, Any]]]


def compiled(folder: Path) -> tuple[RuleSet, dict[str, Stream]]:
    (folder / "streams.yaml").write_text(STREAMS)
    streams = load_streams(folder / "streams.yaml")
    return compile_sources([Source("rules", RULES)], streams).rule_set, streams


def drawn(seed: int, n: int) -> Rows:
    """Events and versions in order of arrival: out of order by less than the lateness."""
    rng = random.Random(seed)
    span = float(n)

    def at(second: float) -> datetime:
        return START + timedelta(seconds=round(second, 6))

    def arriving(rows: list[dict[str, Any]], time: str) -> list[dict[str, Any]]:
        delays = {id(row): timedelta(seconds=rng.uniform(0, 9)) for row in rows}
        return sorted(rows, key=lambda row: row[time] + delays[id(row)])

    payments = [
        {
            "id": number,
            "ts": at(rng.uniform(0, span)),
            "card": f"c{rng.randrange(9)}",
            "land": rng.choice(["DE", "FR", "NG", "XX", None]),
            "unit": rng.choice(["EUR", "USD", "ZZZ", None]),
            "amount": rng.choice([1.0, 5.0, 20.0, None]),
        }
        for number in range(n)
    ]
    customers = [
        {
            "n": number,
            "card": f"c{rng.randrange(9)}",
            "at": at(rng.uniform(-span / 4, span)),
            "op": rng.choice(["c", "u", "u", "r", "d"]),
            "cap": rng.choice([0.0, 4.0, 30.0, None]),
            "segment": rng.choice(["x", "y", None]),
        }
        for number in range(n // 4)
    ]
    for row in customers:
        if row["op"] == "d":  # as a log of a database has it: the key only
            row |= {"cap": None, "segment": None}
    rates = [
        {
            "n": number,
            "unit": rng.choice(["EUR", "USD"]),
            "at": at(rng.uniform(-span / 4, span)),
            "rate": rng.choice([0.5, 1.0, 3.0]),
        }
        for number in range(n // 10)
    ]
    rows: dict[str, list[dict[str, Any]]] = {"payments": payments, "customers": customers, "rates": rates}
    return {name: arriving(found, TIMES[name]) for name, found in rows.items()}


def in_json(row: Mapping[str, Any]) -> str:
    found = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}
    return json.dumps(found)


def write(folder: Path, rows: Rows, n_files: int = 1) -> dict[str, Path]:
    """Write each input as files in order of arrival; return where they are."""
    for name, found in rows.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        size = max(1, -(-len(found) // n_files))
        for number in range(n_files):
            file = folder / name / f"part-{number:03}.json"
            part = found[number * size : (number + 1) * size]
            file.write_text("".join(in_json(row) + "\n" for row in part))
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    (folder / "lands.csv").write_text(LANDS)
    os.utime(folder / "lands.csv", (1_700_000_000, 1_700_000_000))
    return {name: folder / name for name in rows} | {"lands": folder / "lands.csv"}


def local(folder: Path, rules: RuleSet, paths: Mapping[str, Path]) -> Result:
    return match_file(rules, {name: str(path) for name, path in paths.items()})


def frames(
    spark: SparkSession, paths: Mapping[str, Path], streams: Mapping[str, Stream]
) -> dict[str, DataFrame]:
    found = {}
    for name, path in paths.items():
        schema = ", ".join(f"{field.name} {field.ddl}" for field in streams[name].fields)
        reader = spark.read.schema(schema)
        is_csv = path.suffix == ".csv"
        found[name] = reader.option("header", True).csv(str(path)) if is_csv else reader.json(str(path))
    return found


PIPELINE = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {stream: payments, format: json, path: payments, max_files_per_trigger: 1}
  - {table: customers, format: json, path: customers, max_files_per_trigger: 1}
  - {table: rates, format: json, path: rates}
  - {table: lands, format: csv, path: lands.csv}
sinks: [{format: parquet, path: out/matches}]
late: {format: json, path: out/late}
dead_letter: {format: json, path: out/dead}
checkpoint: out/checkpoint
"""
FINISH = "at_end: finish\n"


def write_pipeline(folder: Path, more: str = "") -> Path:
    (folder / "rules.cep").write_text(RULES)
    (folder / "streams.yaml").write_text(STREAMS)
    (folder / "pipeline.yaml").write_text(PIPELINE + more)
    return folder / "pipeline.yaml"


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def read(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.dataset

    rows: list[dict[str, Any]] = pyarrow.dataset.dataset(folder, partitioning=None).to_table().to_pylist()
    return rows


def lines(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.rglob("part-*"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_a_batch_of_dataframes_joins_as_a_local_run(spark: SparkSession, tmp_path: Path) -> None:
    rules, streams = compiled(tmp_path)
    paths = write(tmp_path, drawn(1, 500))
    expected = comparable(local(tmp_path, rules, paths).matches.to_pylist())
    assert len(expected) > 20
    given = frames(spark, paths, streams)
    found = detect({name: frame.repartition(3) for name, frame in given.items()}, RULES, streams=streams)
    assert comparable(spark_rows(found)) == expected
    parts = split(detect_all(given, rules))
    assert comparable(spark_rows(parts.matches)) == expected


def test_a_stream_of_dataframes_joins_as_a_local_run(spark: SparkSession, tmp_path: Path) -> None:
    rules, streams = compiled(tmp_path)
    rows = drawn(2, 300)
    end = START + timedelta(days=1)
    last = {
        "payments": {"id": -1, "ts": end, "card": "none"},
        "customers": {"n": -1, "at": end, "card": "none", "op": "d"},
        "rates": {"n": -1, "at": end, "unit": "none"},
    }
    for name, row in last.items():
        rows[name].append({**dict.fromkeys(rows[name][0]), **row})
    paths = write(tmp_path, rows, 3)
    expected = comparable(local(tmp_path, rules, paths).matches.to_pylist())
    assert len(expected) > 10
    given = frames(spark, paths, streams)
    as_stream = {
        name: frame
        if name == "lands"
        else spark.readStream.schema(frame.schema).option("maxFilesPerTrigger", 1).json(str(paths[name]))
        for name, frame in given.items()
    }
    policy = "spark.sql.streaming.multipleWatermarkPolicy"
    before = spark.conf.get(policy)
    assert before is not None
    spark.conf.set(policy, "min")  # else the versions of a table that is behind are late
    try:
        found = drain(detect(as_stream, rules), "joined", tmp_path / "checkpoint")
    finally:
        spark.conf.set(policy, before)
    assert comparable(found) == expected


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_pipeline_joins_as_a_local_run_and_tells_what_was_refused(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    rules, _ = compiled(tmp_path)
    rows = drawn(3, 400)
    paths = write(tmp_path, rows, 3)
    with (tmp_path / "customers/part-001.json").open("a") as file:
        file.write('{"n": 1, "at": "2024-05-01T00:01:00Z", "op": "c", "card": null}\n')
        file.write('{"n": 2, "at": "2024-05-01T00:01:00Z", "op": "x", "card": "c1"}\n')
    found = local(tmp_path, rules, paths)
    summary = quiet_run(write_pipeline(tmp_path, FINISH if mode == "stream" else "mode: batch\n"))
    expected = comparable(found.matches.to_pylist())
    assert len(expected) > 10
    assert comparable(read(tmp_path / "out/matches")) == expected
    assert comparable(lines(tmp_path / "out/dead")) == comparable(found.dead_letters.to_pylist())
    assert summary.counts.malformed == 2
    assert summary.counts.events == found.counts.events
    assert summary.counts.late == 0


def test_late_versions_leave_by_their_own_door_and_change_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules, _ = compiled(tmp_path)
    rows = drawn(4, 200)
    paths = write(tmp_path, rows)
    expected = comparable(local(tmp_path, rules, paths).matches.to_pylist())
    quiet_run(write_pipeline(tmp_path))
    late = {
        "customers": {"n": 900, "card": "c1", "at": START, "op": "u", "cap": 0.0, "segment": "late"},
        "rates": {"n": 900, "unit": "EUR", "at": START, "rate": 99.0},
    }
    for name, row in late.items():
        (tmp_path / name / "part-100.json").write_text(in_json(row) + "\n")
    summary = quiet_run(write_pipeline(tmp_path, FINISH))
    assert summary.counts.late_of == {"customers": 1, "rates": 1}
    folders = {name: lines(tmp_path / "out/late" / f"stream={name}") for name in late}
    assert {name: [row["n"] for row in found] for name, found in folders.items()} == {
        "customers": [900],
        "rates": [900],
    }
    assert comparable(read(tmp_path / "out/matches")) == expected


def test_a_static_table_that_changes_counts_from_the_next_micro_batch_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = write(tmp_path, drawn(5, 300), 1)
    rules, _ = compiled(tmp_path)
    both = local(tmp_path, rules, paths).matches.to_pylist()
    quiet_run(write_pipeline(tmp_path))
    early = read(tmp_path / "out/matches")
    paths["lands"].write_text("iso,risk\nDE,7\nFR,0\nNG,0\n")
    os.utime(paths["lands"], (1_700_000_100, 1_700_000_100))
    end = START + timedelta(days=1)
    more = [
        {
            "id": 5_000 + k,
            "ts": end + timedelta(seconds=k),
            "card": "c1",
            "land": land,
            "unit": "EUR",
            "amount": 1e9,
        }
        for k, land in enumerate(["DE", "FR"])
    ]
    (paths["payments"] / "part-100.json").write_text("".join(in_json(row) + "\n" for row in more))
    cap = {"n": 9_000, "card": "c1", "at": end, "op": "u", "cap": 1.0, "segment": "new"}
    (paths["customers"] / "part-100.json").write_text(in_json(cap) + "\n")
    rate = {"n": 9_000, "unit": "EUR", "at": end, "rate": 1.0}
    (paths["rates"] / "part-100.json").write_text(in_json(rate) + "\n")
    quiet_run(write_pipeline(tmp_path, FINISH))
    found = read(tmp_path / "out/matches")
    assert set(comparable(early)) <= set(comparable(both))
    assert [row["risk"] for row in found if row["id"] == 5_001] == [7]


def test_a_table_larger_than_its_limit_is_an_error_that_names_it(spark: SparkSession, tmp_path: Path) -> None:
    rows = drawn(6, 100)
    rows["rates"] = [
        {"n": n, "unit": f"U{n}", "at": START + timedelta(seconds=n), "rate": 1.0} for n in range(30)
    ]
    write(tmp_path, rows)
    with pytest.raises(CepError) as caught:
        quiet_run(write_pipeline(tmp_path, "mode: batch\n"))
    assert caught.value.code == "E0619"
    assert "`rates`" in str(caught.value)
    assert "20" in str(caught.value)


def test_a_damaged_static_table_stops_a_run_before_it_begins(spark: SparkSession, tmp_path: Path) -> None:
    paths = write(tmp_path, drawn(7, 20))
    paths["lands"].write_text("iso,risk\nDE,much\n")
    with pytest.raises(InputError) as caught:
        quiet_run(write_pipeline(tmp_path))
    assert caught.value.code == "E0712"
    assert not (tmp_path / "out/matches").exists()


def test_a_join_that_is_added_needs_a_checkpoint_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, drawn(8, 60))
    file = write_pipeline(tmp_path)
    quiet_run(file)
    changed = RULES.replace("JOIN rates ON unit\n", "").replace("* rates.rate", "")
    changed = changed.replace("big.rates.rate AS rate, ", "").replace("MAX(rates.rate) AS rate, ", "")
    (tmp_path / "rules.cep").write_text(changed)
    file.write_text(PIPELINE.replace("  - {table: rates, format: json, path: rates}\n", ""))
    with pytest.raises(StateError) as caught:
        quiet_run(file)
    assert caught.value.code == "E0701"


@pytest.mark.deep
def test_a_micro_batch_that_is_killed_is_repeated_with_the_static_table_that_it_had(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules, _ = compiled(tmp_path)
    rows = drawn(9, 400)
    paths = write(tmp_path, rows)
    expected = comparable(local(tmp_path, rules, paths).matches.to_pylist())
    file = write_pipeline(tmp_path)
    command = [sys.executable, "-m", "cep", "run", str(file)]
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=null, stderr=null, start_new_session=True)
    deadline = time.monotonic() + 120
    # The first micro-batch reads, the second one lets matches out.
    while not (tmp_path / "out/checkpoint/plan/1.json").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    paths["lands"].write_text("iso,risk\n")  # no match would be found with it
    quiet_run(file)
    found = comparable(read(tmp_path / "out/matches"))
    assert len(found) > 10  # those up to the watermark; the input is not complete
    assert set(found) <= set(expected)
