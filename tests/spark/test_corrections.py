"""Late events on Spark: what the rows come to is the matches of a batch, however files are shuffled."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.local.match_file import match_file
from cep.rule_set import KIND, RETRACT, REVISION
from cep.settings.schema_file import load_streams
from spark_runtime import detect, detect_all, split
from spark_runtime.pipeline.progress import Summary
from tests.spark.events import (
    EVENTS_RULE,
    ROOM_RULE,
    RULES,
    START,
    STRICT_RULE,
    _plain,
    compiled,
    far_future_event,
    local_matches,
    random_events,
    spark_rows,
    stream_of_files,
    write_files,
)
from tests.spark.test_pipeline import FINISH, keyed_events, quiet_run, read, write_json, write_pipeline
from tests.spark.test_reload import ids
from tests.spark.test_reload import local_matches as batch_matches
from tests.standing import Standing

OWN = RULES.replace("FIRST(low.kind) AS kind", "FIRST(low.kind) AS first_kind") + STRICT_RULE
"""`kind` is a column of corrections."""


AS_IT_CAME = f"{FINISH}\nwatermark: fastest"
"""Files are read in the order of their changes, and events of the later ones are late."""


def written(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows in an order in which they may have been written: each match's by revision."""
    return sorted(rows, key=lambda row: row[REVISION])


def comparable(value: Any) -> str:
    return repr(_plain(value))


@pytest.mark.deep(but="parquet")
@pytest.mark.parametrize("sink", ["parquet", "json"])
def test_a_pipeline_over_shuffled_files_ends_with_the_matches_of_a_batch(
    spark: SparkSession, tmp_path: Path, sink: str
) -> None:
    events = keyed_events(7, 900)
    write_json(tmp_path / "whole", events, 1)
    parts = [events[at : at + 60] for at in range(0, len(events), 60)]
    random.Random(7).shuffle(parts)
    write_json(tmp_path / "events", [event for part in parts for event in part], len(parts))
    source = "format: json, path: events, max_files_per_trigger: 1"
    sinks = f"[{{format: {sink}, path: out/matches}}]"
    file = write_pipeline(tmp_path, source, AS_IT_CAME, sinks, OWN)
    text = file.read_text()
    file.write_text(text.replace("path: out/late}", "path: out/late, correct_within: 1 day}"))
    summary = quiet_run(file)
    batch = match_file(compiled(OWN), tmp_path / "whole")
    standing = Standing(comparable)
    rows = read(tmp_path / "out/matches", sink)
    standing.read(written(rows))
    assert standing.n_retracted > 10
    assert summary.counts.matches == batch.counts.matches
    assert sum(summary.counts.retracted.values()) == standing.n_retracted
    assert (summary.counts.late, summary.counts.uncorrected) == (0, 0)
    if sink == "parquet":
        standing.check(batch.matches.to_pylist())
    else:
        ids = sorted(match_id for match_id, (_, kept) in standing.last.items() if kept)
        assert ids == sorted(batch.matches.column("match_id").to_pylist())


BEFORE = OWN + ROOM_RULE + EVENTS_RULE
AFTER = (
    OWN.replace("COUNT(low.*) AS lows", "COUNT(low.*) * 2 AS twice").replace(
        "RULE neighbours", "RULE neighbours TITLE 'beside'"
    )
    + ROOM_RULE.replace("5 SECONDS", "6 SECONDS")
    + ROOM_RULE.replace("RULE crowd", "RULE couple")
)


def standing_ids(rows: list[dict[str, Any]], *rules: str) -> list[str]:
    """Return the ids of the matches of some rules that are not withdrawn.

    If the measures of a rule have changed, a row that withdraws has those of now.
    """
    names = ("match_id", KIND, REVISION)
    standing = Standing(comparable)
    standing.read(written([{name: row[name] for name in names} for row in rows if row["rule"] in rules]))
    return sorted(match_id for match_id, (_, kept) in standing.last.items() if kept)


@pytest.mark.deep(but="inline")
@pytest.mark.parametrize("state", ["inline", "files"])
def test_rules_that_change_go_on_with_corrections(spark: SparkSession, tmp_path: Path, state: str) -> None:
    events, draw = keyed_events(31, 900), random.Random(31)
    late, second = events[4:450:5], events[450:]
    first = [event for at, event in enumerate(events[:450]) if at % 5 != 4]
    draw.shuffle(late)
    given = [first[at : at + 60] for at in range(0, len(first), 60)]
    draw.shuffle(given)
    more = f"watermark: fastest\nreload: on change\nstate: {state}"
    source, sinks = (
        "format: json, path: events, max_files_per_trigger: 1",
        "[{format: json, path: out/matches}]",
    )

    def ran(events: list[dict[str, Any]], n_files: int, name: str, settings: str, rules: str) -> Summary:
        write_json(tmp_path / name, events, n_files)
        (tmp_path / "events").mkdir(exist_ok=True)
        for part in sorted((tmp_path / name).iterdir()):
            part.rename(tmp_path / f"events/{name}-{part.name}")
        file = write_pipeline(tmp_path, source, settings, sinks, rules)
        file.write_text(file.read_text().replace("path: out/late}", "path: out/late, correct_within: 1 day}"))
        return quiet_run(file)

    ran([event for part in given for event in part], len(given), "first", more, BEFORE)
    before = read(tmp_path / "out/matches", "json")
    begins = max(event["ts"] for event in first)
    summary = ran([*late, *second], 6, "second", f"{more}\n{FINISH}", AFTER)
    rows = read(tmp_path / "out/matches", "json")
    assert summary.counts.late == 0
    for rule in ("rise", "silence", "neighbours"):
        assert standing_ids(rows, rule) == sorted(ids(batch_matches(AFTER, events), rule)), rule
    seen = [event for event in [*late, *second] if event["ts"] > begins]
    for rule in ("crowd", "couple"):
        anew = sorted(ids(batch_matches(AFTER, seen), rule))
        assert standing_ids(rows, rule) == sorted([*standing_ids(before, rule), *anew]), rule
        assert anew
    assert standing_ids(before, "crowd")
    assert standing_ids(rows, "whole") == standing_ids(before, "whole") != []
    # The late events of before the change withdraw matches of before it.
    reported = {row["match_id"] for row in before}
    withdrawn = {(row["match_id"], row[REVISION]) for row in before if row[KIND] == RETRACT}
    gone = {
        row["rule"]
        for row in rows
        if row[KIND] == RETRACT
        and row["match_id"] in reported
        and (row["match_id"], row[REVISION]) not in withdrawn
    }
    assert gone
    assert gone <= {"rise", "silence", "neighbours"}


def test_rules_in_another_order_go_on_with_corrections(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(31, 300)
    late, second = events[4:150:5], events[150:]
    first = [event for at, event in enumerate(events[:150]) if at % 5 != 4]
    rules = [f"RULE {text}" for text in BEFORE.split("RULE ")[1:]]
    (tmp_path / "events").mkdir()
    source, sinks = "format: json, path: events", "[{format: json, path: out/matches}]"
    for number, (given, texts) in enumerate([(first, rules), ([*late, *second], rules[::-1])]):
        write_json(tmp_path / "more", given, 1)
        (tmp_path / "more/part-000.json").rename(tmp_path / f"events/{number}.json")
        more = "reload: never" + number * f"\n{FINISH}"
        file = write_pipeline(tmp_path, source, more, sinks, "".join(texts))
        file.write_text(file.read_text().replace("path: out/late}", "path: out/late, correct_within: 1 day}"))
        assert quiet_run(file).counts.late == 0
    rows = read(tmp_path / "out/matches", "json")
    for rule in ("rise", "silence", "neighbours", "crowd"):
        assert standing_ids(rows, rule) == sorted(ids(batch_matches(BEFORE, events), rule)), rule
    assert len(standing_ids(rows, "neighbours")) > 4 < len(standing_ids(rows, "crowd"))
    assert RETRACT in {row[KIND] for row in rows}


def test_events_beyond_the_bound_leave_whole_and_the_others_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = keyed_events(8, 300)
    latest = max(event["ts"] for event in events)
    late = {**events[0], "id": 99_999, "ts": latest - timedelta(seconds=30 + 60)}
    counted = {**late, "id": 99_998, "ts": late["ts"] + timedelta(microseconds=1)}
    write_json(tmp_path / "events", [*events, *[{**late, "ts": latest}] * 300], 2)
    write_json(tmp_path / "events", events, 1)
    write_json(tmp_path / "more", [late, counted], 1)
    (tmp_path / "more/part-000.json").rename(tmp_path / "events/part-001.json")
    file = write_pipeline(
        tmp_path, "format: json, path: events, max_files_per_trigger: 1", AS_IT_CAME, rules=OWN
    )
    text = file.read_text()
    file.write_text(text.replace("path: out/late}", "path: out/late, correct_within: 1 minute}"))
    summary = quiet_run(file)
    assert summary.counts.late == 1
    assert [row["id"] for row in read(tmp_path / "out/late", "json")] == [99_999]


def test_a_bound_on_what_is_retained_is_told_in_the_summary(spark: SparkSession, tmp_path: Path) -> None:
    events = keyed_events(9, 600)
    parts = [events[at : at + 60] for at in range(0, len(events), 60)]
    write_json(tmp_path / "events", [event for part in reversed(parts) for event in part], len(parts))
    file = write_pipeline(
        tmp_path, "format: json, path: events, max_files_per_trigger: 1", AS_IT_CAME, rules=OWN
    )
    bound = "late: {correct_within: 1 day, max_retained: 20}"
    file.write_text(file.read_text().replace("late: {format: json, path: out/late}", bound))
    summary = quiet_run(file)
    assert summary.counts.uncorrected > 100
    assert summary.counts.corrected >= 0
    assert summary.counts.late == summary.counts.uncorrected


def collected(frame: DataFrame, folder: Path, name: str) -> list[list[dict[str, Any]]]:
    """Run a stream over what is there; return the rows of each micro-batch."""
    found: list[list[dict[str, Any]]] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: found.append(spark_rows(batch)))
        .queryName(name)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return found


@pytest.mark.deep(but="three")
@pytest.mark.parametrize("rules", [(OWN,), (OWN, EVENTS_RULE, ROOM_RULE)], ids=["one", "three"])
def test_detect_gives_what_corrects_matches(
    spark: SparkSession, tmp_path: Path, rules: tuple[str, ...]
) -> None:
    events = random_events(11, 900)
    random.Random(5).shuffle(events)
    shuffled = [*events, far_future_event()]
    programs = compiled(*rules)
    write_files(spark, tmp_path / "events", shuffled, 6)
    stream = stream_of_files(spark, tmp_path / "events")
    matches = detect(stream, programs, correct_within="1 day")
    standing = Standing(comparable)
    for rows in collected(matches, tmp_path / "checkpoint", f"corrected-{len(rules)}"):
        standing.read(written(rows))
    assert standing.n_retracted > 10
    expected = local_matches(programs, shuffled)
    assert sorted(map(repr, (+standing.sum).elements())) == sorted(
        repr(tuple((name, repr(value)) for name, value in row)) for row in expected
    )
    batch = detect(spark.read.parquet(str(tmp_path / "events")), programs, correct_within="1 day")
    assert {(row[KIND], row[REVISION]) for row in spark_rows(batch)} == {("match", 0)}
    standing.check(spark_rows(batch))


def test_detect_all_gives_only_what_is_late_for_good(spark: SparkSession, tmp_path: Path) -> None:
    events = random_events(12, 300)
    latest = max(event["ts"] for event in events)
    late = {**events[0], "id": 20_001, "sensor": "s1", "room": 3, "ts": latest - timedelta(days=1)}
    counted = {**late, "id": 20_002, "ts": latest - timedelta(minutes=2)}
    write_files(spark, tmp_path / "events", events, 1)
    write_files(spark, tmp_path / "more", [late, counted, {**far_future_event(), "ts": latest}], 1)
    stream = stream_of_files(spark, tmp_path / "events")
    found: list[dict[str, Any]] = []

    def deliver(batch: DataFrame, number: int) -> None:
        found.extend(spark_rows(split(batch).late))

    for _ in range(2):
        query = (
            detect_all(stream, compiled(OWN), correct_within="1 hour")
            .writeStream.foreachBatch(deliver)
            .queryName("late-for-good")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        for file in (tmp_path / "more").glob("*.parquet"):
            file.rename(tmp_path / "events/part-900.parquet")
    assert [row["event"].split(",")[0] for row in found] == ['{"id": 20001']
    assert late["ts"] > START - timedelta(days=2)


@pytest.mark.parametrize("given", ["soon", "0 seconds", 5])
def test_a_bound_that_is_no_duration_is_refused(spark: SparkSession, tmp_path: Path, given: Any) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(1, 5), 1)
    with pytest.raises(InputError) as error:
        detect(frame, compiled(OWN), correct_within=given)
    assert str(error.value) == (
        f"error[E0827]: correct_within is {given!r}\n"
        'help: give a duration above 0 and up to 36,500 days, such as "1 hour"'
    )


def test_a_measure_with_the_name_of_a_column_of_corrections_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = write_files(spark, tmp_path / "events", random_events(1, 5), 1)
    with pytest.raises(InputError) as error:
        detect(frame, compiled(RULES), correct_within="1 hour")
    assert str(error.value) == (
        "error[E0648]: rule `rise` has a measure `kind`, corrections have a column of this name\n"
        "help: rename the measure, or run the rule without corrections"
    )


TABLE_STREAMS = """
streams:
  spent: {event_time: ts, tie_break: [id], schema: {id: bigint, ts: timestamp, card: string, amount: double}}
tables:
  limits: {key: [card], event_time: ts, schema: {card: string, ts: timestamp, most: double}}
"""
TABLE_RULES = """
RULE seen
FROM spent JOIN limits ON card
PARTITION BY card
PATTERN one
LET lately = SUM(amount) OVER LAST 40 SECONDS
DEFINE one AS amount >= 0
MEASURES one.id AS id, one.lately AS lately, PREV(one.amount) AS before, one.limits.most AS most

RULE again
FROM MATCHES OF seen
PARTITION BY card
PATTERN first second
WITHIN 20 SECONDS
DEFINE second AS lately > first.lately
MEASURES second.id AS id, second.lately AS lately, second.most AS most
"""
TABLE_PIPELINE = """
streams: streams.yaml
rules: [rules.cep]
sources:
  - {stream: spent, format: json, path: spent, max_files_per_trigger: 1}
  - {table: limits, format: json, path: limits, max_files_per_trigger: 1}
sinks: [{format: parquet, path: out}]
late: correct within 1 day
watermark: fastest
checkpoint: checkpoint
trigger: available_now
at_end: finish
"""


def test_values_of_other_events_and_of_tables_are_those_of_a_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """None of them is in the id of a match."""
    rng = random.Random(21)

    def at(second: int) -> datetime:
        return START + timedelta(seconds=second)

    spent = [
        {
            "id": number,
            "ts": at(rng.randrange(300)),
            "card": rng.choice("ab"),
            "amount": rng.randrange(90) / 8,
        }
        for number in range(120)
    ]
    limits = [{"card": rng.choice("ab"), "ts": at(7 * number), "most": float(number)} for number in range(40)]
    rng.shuffle(limits)
    write_json(tmp_path / "spent", spent, 6)
    write_json(tmp_path / "limits", limits, 6)
    for name, text in (
        ("streams.yaml", TABLE_STREAMS),
        ("rules.cep", TABLE_RULES),
        ("pipeline.yaml", TABLE_PIPELINE),
    ):
        (tmp_path / name).write_text(text)
    summary = quiet_run(tmp_path / "pipeline.yaml")
    rows = read(tmp_path / "out", "parquet")
    standing = Standing(comparable)
    standing.read(written(rows))
    rules = compile_sources([Source("rules.cep", TABLE_RULES)], load_streams(tmp_path / "streams.yaml"))
    batch = match_file(rules.rule_set, {name: tmp_path / name for name in ("spent", "limits")})
    standing.check(batch.matches.to_pylist())
    assert (summary.counts.late, summary.to_json()["counts"]["corrected"]) == (0, summary.counts.corrected)
    assert summary.counts.corrected > 50
    changed = {
        (row["rule"], row["match_id"])
        for row in rows
        if row[KIND] == "match" and row[REVISION] > 0 and standing.last[row["match_id"]][1]
    }
    assert {rule for rule, _ in changed} == {"seen", "again"}
    assert len(changed) > 50
