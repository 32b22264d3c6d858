"""Limits in time and in events on Spark: timers fire without events, what they need is kept."""

from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_runtime import detect
from tests.spark.events import (
    START,
    STREAM,
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

BY_SENSOR = {
    "gap": ("ab", "a ->[<= 12 SECONDS] b WITHIN 1 MINUTE"),
    "gap_from_to": ("ab", "a ->[5 SECONDS, 20 SECONDS] b"),
    "gap_in_loop": ("a", "a->[<= 15 SECONDS]{3}"),
    "silence": ("cd", "c -> !d FOR 15 SECONDS"),
    "then_more": ("bcd", "c -> !d FOR < 10 SECONDS ->[<= 30 SECONDS] b"),
    "in_group": ("abc", "(a -> b WITHIN 10 SECONDS) -> c WITHIN 1 MINUTE"),
    "before": ("cd", "!d -> c WITHIN 20 SECONDS"),
    "before_for": ("bcd", "!d FOR 15 SECONDS -> c -> b"),
}
"""Variables and pattern of rules for which events that no variable can be are dropped before the shuffle."""

BY_ROOM = {
    "in_group_events": ("ab", "(a -> b WITHIN 3 EVENTS)->{2} WITHIN 2 MINUTES"),
    "events": ("ab", "a -> b WITHIN 4 EVENTS"),
    "events_absence": ("cd", "c -> !d WITHIN 4 EVENTS"),
    "right_before": ("cd", "!d c WITHIN 20 SECONDS"),
    "last_events": ("abc", "!(a | b) -> c WITHIN 3 EVENTS"),
}
"""The same of rules that need every event of their key."""


def rule(name: str, key: str, variables: str, pattern: str) -> str:
    define = ", ".join(f"{variable} AS kind = '{variable}'" for variable in variables)
    clauses = f"PARTITION BY {key} PATTERN {pattern} DEFINE {define} MEASURES COUNT(*) AS n"
    return f"RULE {name} FROM readings {clauses}\n"


RULES = "".join(
    rule(name, key, *parts)
    for key, rules in (("sensor", BY_SENSOR), ("room", BY_ROOM))
    for name, parts in rules.items()
)


@pytest.fixture(scope="module")
def events() -> list[dict[str, object]]:
    return [*random_events(21, 1500), far_future_event()]


def test_a_batch_gives_the_local_matches(
    spark: SparkSession, tmp_path: Path, events: list[dict[str, object]]
) -> None:
    programs = compiled(RULES)
    frame = write_files(spark, tmp_path / "events", events, 3)
    expected = local_matches(programs, events)
    assert {dict(row)["rule"] for row in expected} == {*BY_SENSOR, *BY_ROOM}
    assert comparable(spark_rows(detect(frame, programs))) == expected


def test_a_stream_that_is_stopped_and_goes_on_gives_the_local_matches(
    spark: SparkSession, tmp_path: Path, events: list[dict[str, object]]
) -> None:
    programs = compiled(RULES)
    folder = tmp_path / "events"
    found = []
    write_files(spark, folder, events[:900], 3)
    found += drain(detect(stream_of_files(spark, folder), programs), "first", tmp_path / "checkpoint")
    write_files(spark, tmp_path / "more", events[900:], 1).write.mode("append").parquet(str(folder))
    found += drain(detect(stream_of_files(spark, folder), programs), "second", tmp_path / "checkpoint")
    assert comparable(found) == local_matches(programs, events)


def test_a_key_that_is_never_heard_of_again_completes_when_the_watermark_passes(
    spark: SparkSession, tmp_path: Path
) -> None:
    quiet = dict.fromkeys((field.name for field in STREAM.fields), None)

    def event(number: int, seconds: float, sensor: str, kind: str) -> dict[str, object]:
        return {
            **quiet,
            "id": number,
            "ts": START + timedelta(seconds=seconds),
            "sensor": sensor,
            "kind": kind,
        }

    programs = compiled(rule("lost", "sensor", "cd", "c -> !d FOR 5 MINUTES"))
    # Others go on, in all key groups: not far enough for the watermark (300 s + lateness), then far enough.
    others = [event(10 + k, 320, f"s{k}", "b") for k in range(2, 12)]
    later = [event(30 + k, 331, f"s{k}", "b") for k in range(2, 12)]
    folder = tmp_path / "events"
    write_files(spark, folder, [event(1, 0, "s1", "c")], 1)
    write_files(spark, tmp_path / "others", others, 1).write.mode("append").parquet(str(folder))
    too_early = drain(detect(stream_of_files(spark, folder), programs), "early", tmp_path / "checkpoint")
    assert too_early == []
    write_files(spark, tmp_path / "later", later, 1).write.mode("append").parquet(str(folder))
    (match,) = drain(detect(stream_of_files(spark, folder), programs), "due", tmp_path / "checkpoint")
    assert (match["sensor"], match["match_end"]) == ("s1", START + timedelta(minutes=5))
