"""New rules that begin with the past of a log of messages, and gaps that are filled from it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

from cep.commands.cli import main
from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.errors import Source
from cep.local.match_file import match_file
from cep.schema.stream import Field, Stream
from spark_runtime import run_pipeline
from spark_runtime.connectors.kinesis.connection import KinesisConnection
from spark_runtime.connectors.kinesis.log import KinesisLog
from spark_runtime.connectors.message_logs.offsets import of_json
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.pipeline.course import Mark
from spark_runtime.pipeline.past import Past, Position, first_matchers
from tests.servers.kinesis_server import KinesisServer
from tests.servers.logs import MadeLog, in_kinesis
from tests.servers.messages import START_US, Seen, code_of
from tests.servers.test_kafka_pipeline import RULES, START, STREAMS, in_files, tick
from tests.servers.test_log_contract import ALL

TICKS = Stream("ticks", (Field("id", "bigint"), Field("k", "string"), Field("ts", "timestamp")), "ts")
EACH = compile_sources(
    [Source("r", "RULE each FROM ticks PARTITION BY k PATTERN a DEFINE a AS TRUE MEASURES a.id AS id")],
    {"ticks": TICKS},
).rule_set
END_US = START_US + 10**12
NO_LONGER = ", so the past can no longer be read from there"


@pytest.fixture(params=ALL)
def made(request: pytest.FixtureRequest) -> MadeLog:
    """Return a new log of each kind."""
    server, make = ALL[request.param]
    found = make(request.getfixturevalue(server))
    assert isinstance(found, MadeLog)
    return found


def send(made: MadeLog, first: int, n: int) -> list[bytes]:
    """Store events in both partitions; return them."""
    events = [tick(number, number, f"k{number // 2 % 5}") for number in range(first, first + n)]
    for partition in (0, 1):
        made.send(partition, events[partition::2])
    return events


def going_on(made: MadeLog) -> MadeLog:
    """Return a log whose reader counts what is lost."""
    log = made.log
    return replace(made, log=replace(log, goes_on_without=True)) if isinstance(log, KinesisLog) else made


class Live:
    """What a pipeline has read of a log: the offset after each micro-batch, and the events up to there."""

    def __init__(self, made: MadeLog, **more: Any) -> None:
        self.ends: list[Any] = []
        self.ids: list[list[int]] = []
        source = MessageSource(MessageReading(TICKS, made.log, max_events=7, **more))
        planner = source.planner()
        at, ids = planner.start(), list[int]()
        while (end := planner.latest(at)) != at:
            ids = sorted([*ids, *Seen(source).read(planner.ranges(at, end)).ids])
            planner.commit(end)
            at = json.loads(json.dumps(end))
            self.ends.append(at)
            self.ids.append(ids)
        planner.close(Counts())


def read_again(made: MadeLog, start: Any, end: Any, **more: Any) -> tuple[list[int], Counts]:
    """Return the events that a new rule sees between two offsets of a run; None: from the beginning."""
    source = MessageSource(MessageReading(TICKS, made.log, **more))
    position = Position() if start is None else Position(0, {"ticks": start})
    past, found = Past(EACH, {"ticks": source}, {}, first_matchers(EACH, None, {}), position), list[int]()
    until = Mark(9, {"ticks": end}, END_US, END_US)
    try:
        past.read([], until, lambda matches: found.extend(matches.column("id").to_pylist()))
    finally:
        past.close()
    return sorted(found), past.counts


def test_a_new_rule_sees_what_a_run_has_read_from_a_micro_batch_to_a_later_one(made: MadeLog) -> None:
    send(made, 0, 40)
    live = Live(made)
    assert len(live.ends) >= 6
    send(made, 40, 4)  # nobody has read these
    n = len(live.ends)
    for first, last in ((0, 0), (0, n - 1), (1, n - 2), (n // 2, n // 2), (n - 1, n - 1)):
        start, before = (live.ends[first - 1], live.ids[first - 1]) if first else (None, [])
        seen, counts = read_again(made, start, live.ends[last])
        assert seen == sorted(set(live.ids[last]) - set(before))
        assert counts.lost == {}


@pytest.mark.parametrize("is_begun", [False, True])
def test_what_retention_has_removed_since_is_refused_or_counted(made: MadeLog, is_begun: bool) -> None:
    send(made, 0, 40)
    live = Live(made)
    words = made.log.words
    start = live.ends[0] if is_begun else None
    first = made.log.origin(sorted(of_json(live.ends[-1]))[0])
    made.forget(10)
    said = code_of(lambda: read_again(made, start, live.ends[-1]))
    assert re.fullmatch(rf"{words.lost} `{re.escape(first)}` .+{NO_LONGER}", said)
    made = going_on(made)
    seen, counts = read_again(made, start, live.ends[-1], goes_on_without=True)
    assert counts.lost[first] >= 1
    then = set(live.ids[-1]) - set(live.ids[0] if is_begun else ())
    assert set(seen) < then
    if len(counts.lost) == 1:  # NATS counts what is gone for both subjects
        assert set(seen) >= {number for number in then if number % 2}


def test_a_log_of_which_retention_has_left_nothing_that_was_read_is_refused_or_counted(
    made: MadeLog,
) -> None:
    send(made, 0, 12)
    live = Live(made)
    send(made, 12, 20)
    made.forget(7)
    assert code_of(lambda: read_again(made, None, live.ends[-1])).startswith(f"{made.log.words.lost} `")
    made = going_on(made)
    seen, counts = read_again(made, None, live.ends[-1], goes_on_without=True)
    assert not [number for number in seen if number % 2 == 0]
    assert counts.lost


def test_the_past_of_a_log_that_was_made_again_is_refused_or_counted(made: MadeLog) -> None:
    send(made, 0, 40)
    live = Live(made)
    made.remake()
    send(made, 100, 60)
    words = made.log.words
    for start in (None, live.ends[0]):
        said = code_of(partial(read_again, made, start, live.ends[-1]))
        assert re.fullmatch(
            rf"{words.lost} {words.noun} `[^`]+` is not the {words.noun} that it was{NO_LONGER}", said
        )
        of = going_on(made)
        seen, counts = read_again(of, start, live.ends[-1], goes_on_without=True)
        assert seen == []
        assert counts.lost.keys() == {made.log.origin(place) for place in of_json(live.ends[-1])}


def test_a_new_rule_sees_the_messages_of_a_shard_that_was_split_while_the_shard_exists(
    kinesis_server: KinesisServer,
) -> None:
    stream = kinesis_server.stream()
    log = KinesisLog(KinesisConnection(endpoint_url=kinesis_server.address), (stream,))
    made = replace(in_kinesis(kinesis_server), log=log)
    kinesis_server.send(stream, [tick(number, number) for number in range(10)])
    kinesis_server.split(stream, 0)
    for shard in (1, 2):
        kinesis_server.send(stream, [tick(10 * shard + number, 20 + number) for number in range(10)], shard)
    live = Live(made)
    for first, start in enumerate([None, *live.ends[:-1]]):
        before = set(live.ids[first - 1]) if first else set[int]()
        assert read_again(made, start, live.ends[-1])[0] == sorted(set(live.ids[-1]) - before)
    kinesis_server.drop_shard(stream, 0)
    gone = f"{stream}[shardId-000000000000]"
    assert code_of(lambda: read_again(made, None, live.ends[-1])).startswith(f"E0884 `{gone}` ")
    seen, counts = read_again(going_on(made), None, live.ends[-1], goes_on_without=True)
    assert (seen, counts.lost) == ([*range(10, 30)], {gone: 1})


# ---------------------------------------------------------------- in a pipeline

MORE_RULES = """
RULE triple FROM ticks PARTITION BY k PATTERN a -> b -> c WITHIN 2 HOURS
DEFINE a AS id >= 0, b AS id > a.id, c AS id > b.id MEASURES c.id AS third
"""
OF_A_BATCH = 60


class Pipeline:
    """A pipeline that reads a log in micro-batches of 60 events."""

    def __init__(self, folder: Path, made: MadeLog, more: str = "") -> None:
        self.folder, self.file = folder, folder / "pipeline.yaml"
        (folder / "streams.yaml").write_text(STREAMS)
        source = f"{{stream: ticks, {made.settings}, max_events_per_trigger: {OF_A_BATCH}}}"
        sinks = "sinks: [{format: json, path: out}]"
        self._text = f"rules: [rules.cep]\nsource: {source}\n{sinks}\ncheckpoint: checkpoint\n{more}\n"

    def write(self, rules: str, more: str = "") -> None:
        (self.folder / "rules.cep").write_text(rules)
        self.file.write_text(f"{self._text}reload: on change\n{more}\n")

    def run(self, rules: str, more: str = "") -> Counts:
        self.write(rules, more)
        return run_pipeline(self.file, console=Console(file=StringIO()), quiet=True).counts

    def cep(self, verb: str, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(main, [verb, str(self.file), *words])
        assert result.exit_code == code, result.output
        return result.output

    @property
    def reported(self) -> list[str]:
        return in_files(self.folder / "out")


def local_ids(folder: Path, rules: str, events: Sequence[bytes], rule: str = "") -> list[str]:
    """Return the ids of the matches of a local run, perhaps only those of one rule."""
    (folder / "local.cep").write_text(rules)
    (folder / "local.json").write_bytes(b"\n".join(events))
    rows = match_file(folder / "local.cep", folder / "local.json").matches.to_pylist()
    return sorted(row["match_id"] for row in rows if rule in ("", row["rule"]))


@pytest.mark.deep(but="kinesis")
@pytest.mark.spark
@pytest.mark.parametrize("name", ALL)
def test_a_new_rule_begins_with_what_the_log_still_has_and_goes_on_with_the_stream(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    server, make = ALL[name]
    made = make(request.getfixturevalue(server))
    events = [event for first in range(0, 150, 10) for event in send(made, first, 10)]
    pipeline = Pipeline(tmp_path, made)
    pipeline.run(RULES)
    events += send(made, 150, 50)
    pipeline.write(RULES + MORE_RULES)
    begins = (START + timedelta(seconds=80)).isoformat()
    said = pipeline.cep("backfill", "--from", begins, "--matches", "apart", "--into", str(tmp_path / "apart"))
    n_read = re.search(r"read (\d+) events up to micro-batch", said)
    assert n_read is not None
    assert 70 <= int(n_read[1]) < 150  # it does not read micro-batches before that time
    past = [json.loads(line) for line in (tmp_path / "apart/past.jsonl").read_text().splitlines()]
    assert sorted(row["match_id"] for row in past) == local_ids(
        tmp_path,
        MORE_RULES,
        events[80:148],  # the watermark is a second behind the slower partition
    )
    said = pipeline.cep("backfill", "--matches", "alert")
    assert "read 150 events up to micro-batch" in said
    pipeline.run(RULES + MORE_RULES, "at_end: finish")
    assert pipeline.reported == local_ids(tmp_path, RULES + MORE_RULES, events)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("name", ["kafka", "nats", "kinesis"])  # RabbitMQ would remove what is not yet read
def test_rules_for_which_the_log_does_not_reach_back_may_begin_later_or_with_what_is_left(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    server, make = ALL[name]
    made = make(request.getfixturevalue(server))
    pipeline = Pipeline(tmp_path, made, "log: log")
    send(made, 0, 100)
    pipeline.run(RULES)
    later = send(made, 100, 60)
    made.send(1, [tick(999, 20, "k1")])
    assert pipeline.run(RULES).late == 1
    made.forget(20)
    pipeline.write(RULES + MORE_RULES)
    for words in ([], ["--gaps"]):
        said = pipeline.cep("backfill", *words, code=1)
        assert re.search(rf"error\[{made.log.words.lost}\]: `.+{NO_LONGER}\n", said)
    begins = (START + timedelta(seconds=110)).isoformat()
    said = pipeline.cep("backfill", "--from", begins)
    assert "read 61 events" in said
    assert f"triple: {len(local_ids(tmp_path, MORE_RULES, later[10:58]))} matches" in said
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("stream: ticks,", "stream: ticks, on_lost: go_on,"))
    said = pipeline.cep("backfill", code=3)
    assert re.search("warning: [0-9]+ messages of `.+` that were read then are gone\n", said)
    assert re.search("read 1[0-9]{2} events", said)


@pytest.mark.deep
@pytest.mark.spark
@pytest.mark.parametrize("name", ALL)
def test_gaps_are_filled_from_what_the_log_still_has(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, name: str
) -> None:
    server, make = ALL[name]
    made = make(request.getfixturevalue(server))
    events = send(made, 0, 120)
    pipeline = Pipeline(tmp_path, made, "log: log")
    pipeline.run(RULES)
    late = [tick(number, number - 1_000.5, f"k{number // 2 % 5}") for number in range(1_000, 1_040)]
    made.send(0, late)
    assert pipeline.run(RULES).late == 40
    before = pipeline.reported
    said = pipeline.cep("backfill", "--gaps")
    assert "read 160 events" in said
    events += [*late, *send(made, 120, 60)]
    pipeline.run(RULES, "at_end: finish")
    assert len(set(pipeline.reported)) == len(pipeline.reported)
    missing = set(local_ids(tmp_path, RULES, events)) - set(before)
    assert missing
    assert missing <= set(pipeline.reported)
