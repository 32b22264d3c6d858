"""`detect`: a stream, a batch and a local run give the same matches."""

from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cep.errors import InputError, RuleError, StateError
from spark_runtime import detect, detect_all, detection, split
from spark_runtime.compat.driver import pyspark_version
from spark_runtime.dataflow.relevant import may_matter
from spark_runtime.pipeline.failures import as_cep_error
from tests.spark.events import (
    BIG,
    EVENTS_RULE,
    ROOM_RULE,
    RULES,
    START,
    STREAM,
    STRICT_RULE,
    comparable,
    compiled,
    drain,
    far_future_event,
    local_matches,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)

RULE_SETS = {
    "one key": (RULES,),
    "two keys": (RULES, ROOM_RULE),
    "events of matches": (RULES, EVENTS_RULE),
    "every event": (RULES, STRICT_RULE, ROOM_RULE),
}


@pytest.mark.parametrize("name", RULE_SETS)
def test_a_batch_gives_the_local_matches(spark: SparkSession, tmp_path: Path, name: str) -> None:
    programs = compiled(*RULE_SETS[name])
    events = random_events(1, 2000)
    frame = write_files(spark, tmp_path / "events", events, 3)
    expected = local_matches(programs, events)
    assert len(expected) > 50
    assert comparable(spark_rows(detect(frame, programs))) == expected


PART_OF_ANOTHER = ("one key", "two keys")
"""Sets whose rules are all in `every event`."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.deep) if name in PART_OF_ANOTHER else name for name in RULE_SETS],
)
def test_a_stream_in_any_order_within_the_lateness_gives_the_local_matches(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    programs = compiled(*RULE_SETS[name])
    events = [*random_events(2, 2000), far_future_event()]
    write_files(spark, tmp_path / "events", events, 5)
    stream = stream_of_files(spark, tmp_path / "events")
    found = drain(detect(stream, programs), "order", tmp_path / "checkpoint")
    expected = local_matches(programs, events)
    assert len(expected) > 50
    assert comparable(found) == expected


def test_more_predicates_than_a_plan_can_hold_are_evaluated_in_the_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A thousand of them would keep Spark's planner busy for many minutes."""
    many = "".join(
        f"RULE above_{number} FROM readings PARTITION BY sensor PATTERN a -> b WITHIN 10 SECONDS "
        f"DEFINE a AS value > {number / 20}, b AS value < {number / 30} MEASURES a.id AS i, b.id AS j\n"
        for number in range(120)
    )
    programs = compiled(many)
    events = [*random_events(4, 1000), far_future_event()]
    frame = write_files(spark, tmp_path / "events", events, 3)
    assert may_matter(programs, STREAM) is None
    expected = local_matches(programs, events)
    assert len(expected) > 50
    assert comparable(spark_rows(detect(frame, programs))) == expected
    stream = stream_of_files(spark, tmp_path / "events")
    assert comparable(drain(detect(stream, programs), "many", tmp_path / "checkpoint")) == expected


def test_integers_beyond_2_to_53_and_nulls_reach_the_measures_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = random_events(3, 500)
    frame = write_files(spark, tmp_path / "events", [*events, far_future_event()], 1)
    stream = stream_of_files(spark, tmp_path / "events")
    for matches in (
        spark_rows(detect(frame, compiled(RULES))),
        drain(detect(stream, compiled(RULES)), "whole", tmp_path / "checkpoint"),
    ):
        serials = {row["serial"] for row in matches}
        assert None in serials
        assert any(serial is not None and serial > BIG for serial in serials)
        allowed = {event["serial"] for event in events}
        assert serials <= allowed


def test_rule_text_takes_its_stream_from_the_columns(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(4, 800)
    frame = write_files(spark, tmp_path / "events", events, 1)
    found = detect(frame, RULES, event_time="ts", tie_break=["id"], lateness="30 seconds")
    assert comparable(spark_rows(found)) == local_matches(compiled(RULES), events)


def test_rule_files_take_their_stream_from_the_streams_file_beside_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    columns = ", ".join(f"{field.name}: {field.ddl}" for field in STREAM.fields)
    (rules / "streams.yaml").write_text(
        "streams:\n"
        f"  readings: {{event_time: ts, tie_break: [id], lateness: 30 seconds, schema: {{{columns}}}}}\n"
    )
    (rules / "rise.cep").write_text(RULES)
    events = random_events(5, 800)
    frame = write_files(spark, tmp_path / "events", events, 1)
    assert comparable(spark_rows(detect(frame, rules))) == local_matches(compiled(RULES), events)


def test_times_without_a_zone_are_taken_in_the_zone_of_the_session(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = [*random_events(6, 300), far_future_event()]
    frame = write_files(spark, tmp_path / "events", events, 1)
    zoneless = frame.withColumn("ts", F.col("ts").cast("timestamp_ntz"))
    zoneless.write.parquet(str(tmp_path / "zoneless"))
    expected = local_matches(compiled(RULES), events)
    assert comparable(spark_rows(detect(zoneless, compiled(RULES)))) == expected
    stream = stream_of_files(spark, tmp_path / "zoneless")
    assert comparable(drain(detect(stream, compiled(RULES)), "zoneless", tmp_path / "checkpoint")) == expected


def test_events_without_time_or_key_or_out_of_valid_time_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = random_events(7, 300)
    broken = [
        {**events[0], "id": 10_001, "ts": START + timedelta(days=365 * 500)},
        {**events[1], "id": 10_002, "sensor": None},
    ]
    frame = write_files(spark, tmp_path / "events", [*broken, *events], 1)
    without_time = frame.limit(1).withColumn("ts", F.lit(None).cast("timestamp"))
    found = detect(frame.unionByName(without_time), compiled(RULES))
    assert comparable(spark_rows(found)) == local_matches(compiled(RULES), events)


def test_a_missing_column_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    with pytest.raises(InputError) as caught:
        detect(frame.drop("value", "ok"), compiled(RULES))
    assert str(caught.value) == (
        "error[E0604]: the events have no columns `value`, `ok`, which stream `readings` declares\n"
        "help: columns of the events: id, ts, sensor, room, kind, serial"
    )


def test_a_column_that_is_there_twice_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    message = (
        "error[E0604]: the events have column {} more than once\n"
        "help: drop or rename one of them first: events.drop(other[name])"
    )
    joined = frame.alias("a").join(frame.select("id", "value").alias("b"), F.expr("a.id = b.id"))
    with pytest.raises(InputError) as caught:
        detect(joined, compiled(RULES))
    assert str(caught.value) == message.format("`id`, `value`")
    with pytest.raises(InputError) as caught:
        detect(frame.withColumn("x", F.lit(1)).toDF(*frame.columns, "Value"), compiled(RULES))
    assert str(caught.value) == message.format("`value`")
    other = frame.select("*", F.lit(1).alias("x"), F.lit(2).alias("x"))  # not a column of the stream
    assert detect(other, compiled(RULES)).columns[0] == "rule"


def test_a_column_of_another_type_is_named(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    with pytest.raises(
        InputError, match=r"column `value` of the events is string, the stream declares double"
    ):
        detect(frame.withColumn("value", F.col("value").cast("string")), compiled(RULES))
    with pytest.raises(InputError, match=r"column `room` of the events is decimal\(20,0\)"):
        detect(frame.withColumn("room", F.col("room").cast("decimal(20,0)")), compiled(RULES))


def test_an_event_time_must_be_given_and_be_a_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    with pytest.raises(InputError, match="nothing says which column is the event time"):
        detect(frame, RULES)
    with pytest.raises(InputError, match="event time `id` is bigint, it must be a timestamp"):
        detect(frame, RULES, event_time="id")
    with pytest.raises(InputError, match="lateness `soon` is not a duration"):
        detect(frame, RULES, event_time="ts", lateness="soon")


def test_events_that_are_no_dataframe_are_refused_with_what_to_write(spark: SparkSession) -> None:
    frame = spark.range(3)
    pandas = "write spark.createDataFrame(events); without Spark: cep.find_matches"
    path = "read it first: spark.read.json(path), spark.read.parquet(path), spark.table(name)"
    dictionary = "give a DataFrame, or a dictionary of them: {'logins': logins, 'payments': payments}"
    for events, kind, instead in (
        (pd.DataFrame({"id": [1]}), f"{pd.DataFrame.__module__}.DataFrame", pandas),
        ("events.jsonl", "str", path),
        (Path("events.jsonl"), "pathlib.PosixPath", path),
        ([{"id": 1}], "list", "write spark.createDataFrame(events)"),
        (
            None,
            "NoneType",
            "show() and the methods of a writer return None; give the DataFrame itself",
        ),
        (
            frame.groupBy("id"),
            f"{type(frame.groupBy('id')).__module__}.GroupedData",
            "leave groupBy out: the rules say PARTITION BY, and detect groups by it",
        ),
        (
            spark.readStream,
            f"{type(spark.readStream).__module__}.DataStreamReader",
            "give the DataFrame that readStream returns after load()",
        ),
        (
            # Before 4.0 it is no DataFrame of Spark's other sessions.
            type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})(),
            "pyspark.sql.connect.dataframe.DataFrame",
            "Spark Connect needs PySpark 4.0 or later",
        ),
        (5, "int", dictionary),
    ):
        for given, of_stream in ((events, ""), ({"readings": events}, " of `readings`")):
            with pytest.raises(InputError) as caught:
                detect(given, compiled(RULES))  # type: ignore[arg-type]
            assert str(caught.value) == (
                f"error[E0823]: the events{of_stream} are of type {kind}, not a DataFrame of Spark\n"
                f"help: {instead}"
            )


def test_arguments_of_a_wrong_type_and_arguments_that_would_count_for_nothing_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    rules = "rule text, a .cep file, a directory of them, a RuleSet, or several of these in a list"
    many: list[object] = [RULES, 5]
    for given, arguments, expected in (
        (
            compiled(RULES),
            {"key_groups": 10**9},
            "error[E0827]: key_groups is 1000000000\nhelp: give a number of key groups from 1 to 10,000",
        ),
        (None, {}, f"error[E0827]: rules is None\nhelp: give {rules}"),
        ([], {}, f"error[E0827]: rules is []\nhelp: give {rules}"),
        (many, {}, f"error[E0827]: rules is 5\nhelp: give {rules}"),
        (
            frame,
            {},
            f"error[E0827]: rules is of type {type(frame).__module__}.DataFrame\nhelp: give {rules}",
        ),
        (
            RULES,
            {"streams": 5},
            "error[E0827]: streams is 5\nhelp: give the path of a streams file, or what load_streams returns",
        ),
        (
            compiled(RULES),
            {"key_groups": 0},
            "error[E0827]: key_groups is 0\nhelp: give a positive number of groups",
        ),
        (
            RULES,
            {"streams": {"readings": STREAM}, "event_time": "ts", "lateness": "1 minute"},
            "error[E0828]: event_time, lateness cannot be given here\n"
            "help: `streams` says it already; leave it out",
        ),
        (
            compiled(RULES),
            {"tie_break": "id", "deduplicate": True},
            "error[E0828]: tie_break, deduplicate cannot be given here\n"
            "help: a RuleSet has it in it; leave it out",
        ),
        (
            RULES,
            {"event_time": "ts", "lateness": 10},
            "error[E0821]: lateness `10` is not a duration\nhelp: write a number and a unit: 10 seconds",
        ),
    ):
        with pytest.raises(InputError) as caught:
            detect(frame, given, **arguments)  # type: ignore[arg-type]
        assert str(caught.value) == expected


@pytest.mark.skipif(pyspark_version() < (4, 1), reason="PySpark 4.0 has no Declarative Pipelines")
def test_where_spark_answers_no_questions_the_answers_are_asked_for(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declarative Pipelines raise this error; `tests/spark/declarative.py` runs one."""
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)

    def no_answer(_: DataFrame) -> bool:
        raise PySparkException("no analysis", "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION", {})

    monkeypatch.setattr(type(frame), "isStreaming", property(no_answer))
    fact = "error[E0837]: Spark answers no questions within a query function of a pipeline\n"
    with pytest.raises(InputError) as caught:
        detect(frame, compiled(RULES))
    assert str(caught.value) == (
        f"{fact}help: give events_schema and streaming=True or False, or call detect outside it"
    )
    detect(frame, compiled(RULES), events_schema=frame.schema, streaming=False)
    (tmp_path / "streams.yaml").write_text(
        "streams: {readings: {event_time: ts, schema: {ts: timestamp, room: bigint}}}\n"
        "tables: {rooms: {key: [room], static: true, schema: {room: bigint, id: bigint}}}\n"
    )
    rule = "RULE r FROM readings JOIN rooms ON room PARTITION BY room PATTERN a DEFINE a AS rooms.id > 0"
    tables = {"readings": frame, "rooms": frame}
    with pytest.raises(InputError) as caught:
        detect(tables, rule, streams=tmp_path / "streams.yaml", events_schema=frame.schema, streaming=False)
    assert str(caught.value) == (
        f"{fact}help: call detect outside it, as static tables and `messages` need it"
    )


DOTTED = "timestamp'2024-05-01 10:00:00'"


@pytest.mark.parametrize("name", ["k.k", "k`k"])
def test_names_of_columns_may_contain_dots_and_backticks(spark: SparkSession, name: str) -> None:
    """Those that rules read, and others; PySpark itself does not send them to the workers."""
    column = f"`{name.replace('`', '``')}`"
    frame = spark.sql(f"SELECT {DOTTED} AS `t.s`, 'a' AS {column}, 1D AS v, 2 AS `x.y`")
    key = column if "." in name else "`x.y`"
    rule = f"RULE r FROM t PARTITION BY {key} PATTERN a DEFINE a AS v > 0 MEASURES a.v AS av"
    for found in (
        detect(frame, rule, event_time="t.s"),
        split(detect_all(frame, rule, event_time="t.s")).matches,
    ):
        assert [row["av"] for row in spark_rows(found)] == [1.0]


def test_strings_that_are_no_text_are_no_events(spark: SparkSession) -> None:
    frame = spark.sql(f"SELECT {DOTTED} AS ts, cast(k AS string) AS k FROM VALUES (X'FF'), (X'61') AS t(k)")
    rule = "RULE r FROM t PARTITION BY k PATTERN a DEFINE a AS k <> ''"
    found = split(detect_all(frame, rule, event_time="ts"))
    assert [row["k"] for row in spark_rows(detect(frame, rule, event_time="ts"))] == ["a"]
    assert [row["k"] for row in spark_rows(found.matches)] == ["a"]
    assert [row["reason"] for row in spark_rows(found.dead_letters)] == ["not UTF-8 text"]


def test_events_of_a_session_that_was_stopped_are_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = spark.range(1)
    monkeypatch.setattr(detection, "is_stopped", lambda _: True)
    with pytest.raises(InputError, match=r"E0823.*session of the events was stopped"):
        detect(frame, compiled(RULES))


def test_schemas_of_events_are_schemas(spark: SparkSession) -> None:
    with pytest.raises(InputError) as caught:
        detect(spark.range(1), compiled(RULES), events_schema="id long")  # type: ignore[arg-type]
    assert str(caught.value) == (
        "error[E0827]: events_schema is 'id long'\nhelp: give a StructType, or one for each stream"
    )


def test_problems_of_the_rules_are_all_reported(spark: SparkSession, tmp_path: Path) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(8, 10), 1)
    with pytest.raises(RuleError) as caught:
        detect(frame, RULES.replace("value <", "valu <").replace("kind = 'c'", "knd = 'c'"), event_time="ts")
    assert [problem.code for problem in caught.value.diagnostics if problem.is_error] == ["E0203", "E0203"]


def test_too_many_runs_end_a_query_with_rule_and_key(spark: SparkSession, tmp_path: Path) -> None:
    programs = compiled(RULES.partition("RULE")[0] + EVENTS_RULE + "MAX RUNS 1 PER KEY ON OVERFLOW FAIL")
    frame = write_files(spark, tmp_path / "events", random_events(1, 200), 1)
    with pytest.raises(PySparkException) as caught:
        spark_rows(detect(frame, programs))
    error = as_cep_error(caught.value)
    assert isinstance(error, StateError)
    assert error.code == "E0707"
    assert "rule `whole` has more than 1 open runs for the key sensor = " in str(error)


def test_other_rules_end_a_stream_that_goes_on_from_the_checkpoint_of_some(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_files(spark, tmp_path / "events", random_events(1, 200), 1)
    stream = stream_of_files(spark, tmp_path / "events")
    drain(detect(stream, compiled(RULES)), "some", tmp_path / "checkpoint")
    write_files(spark, tmp_path / "more", random_events(2, 50), 1).write.mode("append").parquet(
        str(tmp_path / "events")
    )
    with pytest.raises(PySparkException) as caught:
        drain(detect(stream, compiled(STRICT_RULE)), "others", tmp_path / "checkpoint")
    error = as_cep_error(caught.value)
    assert (error.code, error.args[0]) == (
        "E0701",
        "the stored state was written by other rules: "
        "rule `neighbours` is new; rule `rise` is gone; rule `silence` is gone",
    )


def test_of_three_rules_the_changed_one_is_named_by_the_state(spark: SparkSession, tmp_path: Path) -> None:
    write_files(spark, tmp_path / "events", random_events(1, 200), 1)
    stream = stream_of_files(spark, tmp_path / "events")
    drain(detect(stream, compiled(RULES, ROOM_RULE)), "three", tmp_path / "checkpoint")
    write_files(spark, tmp_path / "more", random_events(2, 50), 1).write.mode("append").parquet(
        str(tmp_path / "events")
    )
    changed = compiled(RULES.replace("AVG(low.value) AS average, ", ""), ROOM_RULE)
    with pytest.raises(PySparkException) as caught:
        drain(detect(stream, changed), "one", tmp_path / "checkpoint")
    assert str(as_cep_error(caught.value)) == (
        "error[E0701]: the stored state was written by other rules: "
        "rule `rise` has changed: its measures\n"
        "help: restore the rules as they were, or start from a new checkpoint"
    )


def test_columns_may_come_in_another_order_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    events = [*random_events(9, 600, shuffle=False), far_future_event()]
    found = []
    for number, part in enumerate((events[:300], events[300:])):
        write_files(spark, tmp_path / f"part-{number}", part, 1).write.mode("append").parquet(
            str(tmp_path / "events")
        )
        stream = stream_of_files(spark, tmp_path / "events")
        names = stream.columns[:: 1 - 2 * number]
        matches = detect(stream.select(*names), RULES, event_time="ts", tie_break="id", lateness="30 seconds")
        found += drain(matches, f"order_{number}", tmp_path / "checkpoint")
    expected = local_matches(compiled(RULES), events)
    assert len(expected) > 10
    assert comparable(found) == expected


def test_rlike_is_searched_beside_everything_else_in_a_batch_and_in_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    rule = """
    RULE {name} FROM readings PARTITION BY {key} PATTERN a -> b WITHIN 40 SECONDS
    DEFINE a AS kind RLIKE '^(?i:A)$' AND value < 3 OR sensor RLIKE '[13]$',
           b AS kind NOT RLIKE '^[ac]' AND a.sensor RLIKE '\\d' AND UPPER(kind) RLIKE 'B|D'
    MEASURES a.kind RLIKE '.' AS known, b.serial AS serial
    """
    programs = compiled(rule.format(name="one", key="sensor"), rule.format(name="two", key="room"))
    events = [*random_events(8, 800), far_future_event()]
    frame = write_files(spark, tmp_path / "events", events, 2)
    expected = local_matches(programs, events)
    assert len(expected) > 20
    assert comparable(spark_rows(detect(frame, programs))) == expected
    stream = stream_of_files(spark, tmp_path / "events")
    assert comparable(drain(detect(stream, programs), "rlike", tmp_path / "checkpoint")) == expected


@pytest.mark.skipif(pyspark_version() < (4, 0), reason="PySpark 3.5 has no collations")
def test_rules_compare_the_strings_of_a_collated_column_byte_by_byte(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT id AS n, timestamp_seconds(id) AS ts, collate(if(id % 2 = 0, 'a', 'A'), 'UTF8_LCASE') AS k "
        "FROM range(4)"
    )
    pairs = "RULE pairs FROM s PARTITION BY k PATTERN a b MEASURES a.n AS x, b.n AS y"
    large = "RULE large FROM s PARTITION BY k PATTERN a DEFINE a AS k <> 'a' MEASURES a.n AS x, a.k AS y"
    for rule, expected in ((pairs, [(0, 2), (1, 3)]), (large, [(1, "A"), (3, "A")])):
        found = spark_rows(detect(frame, rule, event_time="ts"))
        assert sorted((row["x"], row["y"]) for row in found) == expected
