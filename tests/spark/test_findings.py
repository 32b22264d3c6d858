"""`detect_all`: late events, dead letters and counts beside the matches, as a local run has them."""

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.local.match_file import match_file
from cep.schema.stream import Field, Stream
from spark_runtime import detect_all, split
from tests.spark.events import (
    EVENTS_RULE,
    ROOM_RULE,
    RULES,
    START,
    comparable,
    compiled,
    far_future_event,
    observations,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)

PAYMENT = {"id": "bigint", "card": "string", "shop": "string", "ts": "timestamp"}

BROKEN: list[dict[str, Any]] = [
    {"id": 10_001, "ts": START + timedelta(days=365 * 500)},
    {"id": 10_002, "sensor": None, "room": None},
    {"id": 10_003, "sensor": None, "room": None, "ts": START - timedelta(days=365 * 100)},
]


def with_broken(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*({**events[n], **broken} for n, broken in enumerate(BROKEN)), *events]


def letters(rows: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    return sorted((row["reason"], json.loads(row["raw"])["id"]) for row in rows)


def total(rows: list[dict[str, Any]]) -> Counter[tuple[str, str | None]]:
    counts: Counter[tuple[str, str | None]] = Counter()
    for row in rows:
        counts[row["name"], row["of"]] += row["n"]
    return counts


@pytest.mark.parametrize("rules", [(RULES, ROOM_RULE), (RULES, EVENTS_RULE)])
def test_a_batch_tells_what_a_local_run_does(
    spark: SparkSession, tmp_path: Path, rules: tuple[str, ...]
) -> None:
    programs = compiled(*rules)
    frame = write_files(spark, tmp_path / "events", with_broken(random_events(41, 1500)), 2)
    expected = match_file(programs, tmp_path / "events")
    found = split(detect_all(frame, programs))
    matches = comparable(expected.matches.to_pylist())
    assert len(matches) > 50
    assert comparable(spark_rows(found.matches)) == matches
    assert letters(spark_rows(found.dead_letters)) == letters(expected.dead_letters.to_pylist())
    assert {row["stream"] for row in spark_rows(found.dead_letters)} == {"readings"}
    assert spark_rows(found.late) == []
    counts = expected.counts
    assert counts.malformed >= len(BROKEN)
    reasons = Counter(
        reason.partition(": ")[0] for reason in expected.dead_letters.column("reason").to_pylist()
    )
    wanted: dict[tuple[str, str | None], int] = {("events", None): counts.events}
    wanted |= {("dead_letters", reason): n for reason, n in reasons.items()}
    for name in ("matches", "timeouts", "suppressed", "dropped_runs"):
        wanted |= {(name, rule): n for rule, n in getattr(counts, name).items() if n}
    assert total(spark_rows(found.counts)) == wanted


def test_every_row_has_a_value_in_the_column_that_its_kind_names(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", with_broken(random_events(42, 300)), 1)
    rows = spark_rows(detect_all(frame, compiled(RULES)))
    kinds = Counter(row["kind"] for row in rows)
    assert kinds.keys() == {"match", "dead_letter", "count"}
    for row in rows:
        assert [name for name, value in row.items() if value is not None] == ["kind", row["kind"]]


def test_a_stream_gives_late_events_and_counts_in_each_micro_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two micro-batches: all events, then one that comes too late, one without a key and the end of time."""
    programs = compiled(RULES, ROOM_RULE)
    events = random_events(43, 800)
    late = {
        **events[0],
        "id": 20_001,
        "serial": 5,
        "ok": True,
        "sensor": "s1",
        "room": 3,
        "kind": "a",
        "value": 1.0,
        "ts": START,
    }
    without_key = {**late, "id": 20_002, "sensor": None, "room": None, "ts": START + timedelta(days=1)}
    folder = tmp_path / "events"
    write_files(spark, folder, [*events, {**far_future_event(), "ts": START + timedelta(days=1)}], 1)
    expected = match_file(programs, folder)
    more = write_files(spark, tmp_path / "more", [late, without_key, far_future_event()], 1)
    stream = stream_of_files(spark, folder)
    observed = detect_all(stream, programs).observe(
        "spark-cep", F.sum(F.when(F.col("count.name") == "late", F.col("count.n"))).alias("late")
    )
    rows: dict[str, list[dict[str, Any]]] = {"matches": [], "late": [], "dead_letters": [], "counts": []}
    batches = []

    def deliver(batch: DataFrame, number: int) -> None:
        batch.persist()
        parts = split(batch)
        for name, kept in rows.items():
            kept += spark_rows(getattr(parts, name))
        batches.append(number)
        batch.unpersist()

    metrics = []
    for step in ("first", "second"):
        query = (
            observed.writeStream.foreachBatch(deliver)
            .queryName(f"findings-{step}")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        metrics += [counts["spark-cep"]["late"] for counts in observations(query) if counts]
        if step == "first":
            more.write.mode("append").parquet(str(folder))
    assert comparable(rows["matches"]) == comparable(expected.matches.to_pylist())
    (found,) = rows["late"]
    event = json.loads(found["event"])
    whole = {**late, "ts": "2024-05-01T00:00:00.000000Z", "_late_seconds": 86_400.0 - 30}
    assert event == {name: value for name, value in whole.items() if value is not None}
    assert found["stream"] == "readings"
    assert letters(rows["dead_letters"])[-1][1] == 20_002
    counts = total(rows["counts"])
    assert counts["late", "readings"] == 1
    assert counts["events", None] + len(rows["dead_letters"]) == len(events) + 4
    assert counts["dead_letters", "key is NULL"] == len(rows["dead_letters"])
    assert [n for n in metrics if n] == [1]


def test_rules_of_two_keys_count_second_deliveries_as_a_local_run_does(
    spark: SparkSession, tmp_path: Path
) -> None:
    fields = tuple(Field(name, kind) for name, kind in PAYMENT.items())
    stream = Stream("payments", fields, "ts", ("id",), deduplicate=True)
    text = "".join(
        f"RULE by_{key} FROM payments PARTITION BY {key} PATTERN a -> b"
        f" DEFINE a AS id % {n} = 0, b AS id > 40\n"
        for key, n in (("card", 2), ("shop", 3))
    )
    rules = compile_sources([Source("rules.cep", text)], {"payments": stream}).rule_set
    events = [
        {"id": n, "card": f"c{n % 7}", "shop": f"s{n % 5}", "ts": (START + timedelta(seconds=n)).isoformat()}
        for n in (*range(60), *range(30, 50))
    ]
    (tmp_path / "in.json").write_text("\n".join(map(json.dumps, events)))
    local = match_file(rules, tmp_path / "in.json").counts
    assert local.duplicates_of == {"payments: by_card": 15, "payments: by_shop": 13}
    assert local.duplicates == 15
    frame = spark.createDataFrame(events, "id bigint, card string, shop string, ts string").withColumn(
        "ts", F.col("ts").cast("timestamp")
    )
    counts = total(spark_rows(split(detect_all(frame.repartition(3), rules)).counts))
    assert {of: n for (name, of), n in counts.items() if name == "duplicates"} == local.duplicates_of
