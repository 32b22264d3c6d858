"""`messages`: DataFrames with a binary column, decoded by the reader of message sources."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cep.errors import InputError
from cep.local.match_file import match_file
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from spark_runtime import detect, detect_all, messages, split
from tests.spark.events import drain
from tests.unit.formats.test_avro import MICROS, record, written
from tests.unit.spark_runtime.sources.registry_server import running_registry

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
STREAM = Stream(
    "ticks", (Field("id", "bigint"), Field("k", "string"), Field("ts", "timestamp")), "ts", lateness_us=10**6
)
RULE = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""
SCHEMA = record(("id", "long"), ("k", "string"), ("ts", MICROS))
START_US = 1714521600000000
MESSAGES = "value binary, topic string, partition int, offset bigint, key binary"


def tick(number: int) -> dict[str, Any]:
    return {"id": number, "k": f"k{number % 3}", "ts": START_US + number * 1_000_000}


def as_json(event: dict[str, Any]) -> bytes:
    seconds = (event["ts"] - START_US) // 1_000_000
    at = f"2024-05-01T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"
    return json.dumps({**event, "ts": at}).encode()


def as_avro(event: dict[str, Any]) -> bytes:
    return written(SCHEMA, [event])[0]


def rows_of(values: list[bytes | None]) -> list[tuple[Any, ...]]:
    return [(value, "t", at % 2, 100 + at // 2, b"k0") for at, value in enumerate(values)]


def found(matches: DataFrame | list[Any]) -> list[tuple[str, int, int]]:
    rows = matches.collect() if isinstance(matches, DataFrame) else matches
    return sorted((row["match_id"], row["first"], row["second"]) for row in rows)


@pytest.fixture
def schema_file(tmp_path: Path) -> str:
    (tmp_path / "ticks.avsc").write_text(json.dumps(SCHEMA))
    return str(tmp_path / "ticks.avsc")


@pytest.fixture
def rules() -> RuleSet:
    from cep.compiler.compile import compile_sources
    from cep.errors import Source

    return compile_sources([Source("rules", RULE)], {"ticks": STREAM}).rule_set


def expected(rules: RuleSet, folder: Path, n: int) -> list[tuple[str, int, int]]:
    (folder / "events.json").write_bytes(b"\n".join(as_json(tick(at)) for at in range(n)))
    return found(match_file(rules, folder / "events.json").matches.to_pylist())


@pytest.mark.parametrize("value", ["json", "avro"])
def test_a_batch_of_messages_gives_the_local_matches_and_its_dead_letters(
    spark: SparkSession, tmp_path: Path, rules: RuleSet, schema_file: str, value: str
) -> None:
    write: Callable[[dict[str, Any]], bytes] = as_json if value == "json" else as_avro
    settings: dict[str, Any] = {"schema": schema_file} if value == "avro" else {}
    values = [write(tick(at)) for at in range(300)]
    wanted = expected(rules, tmp_path, 300)
    assert len(wanted) > 100
    frame = spark.createDataFrame(rows_of([*values, b"\x07no", None]), MESSAGES).repartition(3)
    read = messages(frame, STREAM, value, **settings)
    assert found(detect(read, RULE)) == wanted
    assert found(detect({"ticks": read}, rules)) == wanted
    parts = split(detect_all(read, RULE))
    assert found(parts.matches) == wanted
    (dead,) = parts.dead_letters.collect()
    reasons = {"json": "not a JSON object", "avro": "the message ends within field `k`"}
    raws = {"json": "\x07no", "avro": base64.b64encode(b"\x07no").decode()}
    assert (dead["stream"], dead["position"], dead["reason"], dead["raw"]) == (
        "t[0]", 250, reasons[value], raws[value],
    )  # fmt: skip
    told = messages(frame, STREAM, value, tombstones="dead_letter", **settings)
    dead_letters = split(detect_all(told, RULE)).dead_letters.collect()
    assert sorted((row["stream"], row["position"]) for row in dead_letters) == [("t[0]", 250), ("t[1]", 250)]


def test_messages_without_a_place_and_with_columns_besides_the_value(
    spark: SparkSession, tmp_path: Path, rules: RuleSet
) -> None:
    events = [tick(at) for at in range(60)]
    rows = [
        (json.dumps({"id": event["id"]}), event["k"], json.loads(as_json(event))["ts"]) for event in events
    ]
    frame = spark.createDataFrame([*rows, ("[]", "k", None)], "body string, key string, at string")
    frame = frame.selectExpr("body", "key", "cast(at as timestamp) as at")
    read = messages(frame, STREAM, column="body", columns={"key": "k", "at": "ts"})
    assert found(detect(read, rules)) == expected(rules, tmp_path, 60)
    (dead,) = split(detect_all(read, rules)).dead_letters.collect()
    assert dead.asDict() == {
        "stream": "ticks", "reason": "not a JSON object", "raw": "[]", "position": None,
    }  # fmt: skip


def test_a_stream_of_messages_gives_the_local_matches_and_late_events(
    spark: SparkSession, tmp_path: Path, rules: RuleSet
) -> None:
    wanted = expected(rules, tmp_path, 300)
    for number in range(3):
        values: list[bytes | None] = [as_json(tick(at)) for at in range(100 * number, 100 * number + 100)]
        if number == 2:
            values += [as_json({**tick(0), "id": 999}), b"no", as_json(tick(3600 * 20)), None]
        frame = spark.createDataFrame(rows_of(values), MESSAGES)
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    frame = spark.readStream.schema(MESSAGES).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    assert found(drain(detect(messages(frame, STREAM), rules), "messages", tmp_path / "one")) == wanted
    parts = split(_drained(spark, detect_all(messages(frame, STREAM), rules), tmp_path / "two"))
    assert found(parts.matches) == wanted
    assert [json.loads(row["event"])["id"] for row in parts.late.collect()] == [999]
    assert [(row["stream"], row["position"]) for row in parts.dead_letters.collect()] == [("t[1]", 150)]


def _drained(spark: SparkSession, stream: DataFrame, folder: Path) -> DataFrame:
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return spark.read.parquet(str(folder / "out"))


def test_messages_and_a_dataframe_together(spark: SparkSession) -> None:
    rule = """
    RULE both FROM ticks, orders PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
    DEFINE a ON ticks AS id >= 0, b ON orders AS amount > 1 MEASURES a.id AS first
    """
    orders = Stream(
        "orders", (Field("k", "string"), Field("ts", "timestamp"), Field("amount", "double")), "ts"
    )
    frame = spark.createDataFrame(rows_of([as_json(tick(at)) for at in range(3)]), MESSAGES)
    other = spark.createDataFrame([("k1", 2.0)], "k string, amount double").selectExpr(
        "k", "timestamp '2024-05-01T00:00:30Z' as ts", "amount"
    )
    streams = {"ticks": STREAM, "orders": orders}
    matches = detect({"ticks": messages(frame, STREAM), "orders": other}, rule, streams=streams)
    assert [row["first"] for row in matches.collect()] == [1]


def test_schemas_of_a_registry_reach_the_workers(spark: SparkSession, tmp_path: Path, rules: RuleSet) -> None:
    with running_registry() as registry:
        registry.schemas[5] = json.dumps(SCHEMA)
        values = [b"\0\0\0\0\5" + as_avro(tick(at)) for at in range(60)]
        frame = spark.createDataFrame(rows_of([*values]), MESSAGES)
        read = messages(frame, STREAM, "avro", registry=registry.url)
        assert found(detect(read, rules)) == expected(rules, tmp_path, 60)


def test_wrong_arguments_are_told_before_anything_runs(
    spark: SparkSession, rules: RuleSet, schema_file: str
) -> None:
    frame = spark.createDataFrame(rows_of([b""]), MESSAGES)

    def refused(*given: Any, **more: Any) -> tuple[str, str]:
        with pytest.raises(InputError) as caught:
            detect(messages(*given, **more), rules)
        return caught.value.code, str(caught.value.args[0]).replace(schema_file, "F")

    text = Stream("ticks", (Field("id", "string"), *STREAM.fields[1:]), "ts")
    assert refused("x", STREAM) == ("E0827", "frame is 'x'")
    assert refused(frame, "ticks")[0] == "E0827"
    assert refused(frame, STREAM, column="body") == ("E0604", "the messages have no column `body`")
    assert refused(frame, STREAM, column="offset")[0] == "E0605"
    assert refused(frame, STREAM, columns={"key": "no"})[0] == "E0841"
    assert refused(frame, STREAM, columns={"key": "k", "topic": "k"}) == (
        "E0827",
        "columns gives column `k` of stream `ticks` more than once",
    )
    assert refused(frame, STREAM, tombstones="no")[0] == "E0827"
    assert refused(frame, STREAM, "xml")[0] == "E0680"
    assert refused(frame, STREAM, schema="x")[0] == "E0828"
    assert refused(frame, STREAM, "avro", registry="r:1")[0] == "E0827"
    assert refused(frame, text, "avro", schema=schema_file) == (
        "E0891", "field `id` of the schema `F` is long, stream `ticks` declares string",
    )  # fmt: skip
    assert refused(frame, text)[0] == "E0828"


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_page_give_the_output_that_it_shows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    (tmp_path / "events.jsonl").write_text(blocks("README.md", "json")[0])
    shown = io.StringIO()
    with redirect_stdout(shown):
        exec(blocks("docs/connectors/payloads.md", "python")[number], {"spark": spark})
    assert shown.getvalue() == blocks("docs/connectors/payloads.md", "text")[number]


def test_the_example_of_messages_on_the_page_of_running(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "streams.yaml").write_text(blocks("README.md", "yaml")[0])
    (tmp_path / "card_testing.cep").write_text(blocks("README.md", "cep")[0])
    values = blocks("README.md", "json")[0].encode().splitlines()
    frame = spark.createDataFrame(rows_of([*values, b"not an event"]), MESSAGES)
    (code,) = (code for code in blocks("docs/operate/running.md", "python") if "messages(" in code)
    names: dict[str, Any] = {"topic": frame, "spark": spark}
    exec(code, names)
    assert [row["card_id"] for row in names["alerts"].collect()] == ["c1"]
    assert [row["position"] for row in names["found"].dead_letters.collect()] == [100 + len(values) // 2]
