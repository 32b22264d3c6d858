"""What each source promises (`tests/unit/spark_runtime/sources/test_source_contract.py`), of each log of
messages; and what pipelines make of them, killed and started again."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.counts import Counts
from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime import run_pipeline
from spark_runtime.connectors.kinesis.log import KinesisLog
from spark_runtime.connectors.message_logs import planner
from spark_runtime.connectors.message_logs.offsets import identities, of_json, to_json
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.pipeline.progress import Summary
from spark_runtime.sources.protocol import Source, TimedPlanner
from tests.kills.points import OF_SOURCES, OF_THE_RUN
from tests.kills.runs import Kill, killed
from tests.servers.logs import MadeLog, in_kafka, in_kinesis, in_nats, in_rabbitmq
from tests.servers.messages import START, STREAM, Seen, code_of, value
from tests.unit.spark_runtime.sources import test_source_contract as contract

PLANNED = Kill(OF_THE_RUN["after the plan"], 3)
WRITTEN = Kill(OF_SOURCES["kinesis"]["before the commit of the source"], 2)

LOGS: dict[str, tuple[str, Callable[..., MadeLog], Kill]] = {
    "nats": ("nats_server", in_nats, PLANNED),
    "rabbitmq_stream": ("rabbit", in_rabbitmq, PLANNED),
    "kinesis": ("kinesis_server", in_kinesis, WRITTEN),
}
"""By name: the fixture of its server, what makes a log there, and where a run is killed: when the third
micro-batch is planned and not computed, or when the output of the first two is written and not committed."""


@pytest.fixture(params=LOGS)
def made(request: pytest.FixtureRequest) -> MadeLog:
    """Return a new log of each kind."""
    server, make, _ = LOGS[request.param]
    return make(request.getfixturevalue(server))


def source_of(made: MadeLog) -> Callable[[Path], Source]:
    """Return what gives a source of ten events and a message that is none."""
    made.send(0, [value(number) for number in range(5)])
    made.send(1, [value(10 + number) for number in range(5)] + [b"no event"])

    def source(place: Path) -> Source:
        start_file = str(place / "log" / "s.log")
        return MessageSource(MessageReading(STREAM, made.log, max_events=4, start_file=start_file))

    return source


def test_micro_batches_cover_everything_once(made: MadeLog, tmp_path: Path) -> None:
    contract.test_micro_batches_cover_everything_once(source_of(made), tmp_path)


def test_offsets_are_json_and_a_range_is_planned_and_read_again_as_it_was(
    made: MadeLog, tmp_path: Path
) -> None:
    contract.test_offsets_are_json_and_a_range_is_planned_and_read_again_as_it_was(source_of(made), tmp_path)


def test_a_range_lies_in_one_partition_and_has_its_size(made: MadeLog, tmp_path: Path) -> None:
    source = source_of(made)
    contract.test_a_range_lies_in_one_partition_and_has_its_size(source, tmp_path)
    planner = source(tmp_path).planner()
    assert isinstance(planner, TimedPlanner)
    assert {source(tmp_path).partition(part) for _, part in source(tmp_path).everything()} == {
        made.log.origin(place) for place in made.log.open().places()
    }


# ---------------------------------------------------------------- deleted and made again

ALL: dict[str, tuple[str, Callable[..., MadeLog]]] = {
    "kafka": ("broker", in_kafka),
    **{name: (server, make) for name, (server, make, _) in LOGS.items()},
}


@pytest.fixture(params=ALL)
def of_each(request: pytest.FixtureRequest) -> MadeLog:
    """Return a new log of each kind."""
    server, make = ALL[request.param]
    return make(request.getfixturevalue(server))


class Run:
    """A run that reads a log until it has nothing more, and perhaps goes on later."""

    def __init__(self, made: MadeLog, start: Any = None, **more: Any) -> None:
        self.source = MessageSource(MessageReading(STREAM, made.log, **more))
        self.planner = self.source.planner()
        if start is not None:
            self.planner.commit(start)
        self.at = self.planner.start() if start is None else start

    def read(self) -> list[int]:
        """Return the identifiers of the messages that are new."""
        found: list[int] = []
        while (end := self.planner.latest(self.at)) != self.at:
            found += Seen(self.source).read(self.planner.ranges(self.at, end)).ids
            self.planner.commit(end)
            self.at = json.loads(json.dumps(end))
        return sorted(found)

    def close(self) -> Counts:
        counts = Counts()
        self.planner.close(counts)
        return counts


def send(made: MadeLog, *numbers: int) -> None:
    for partition in (0, 1):
        made.send(partition, [value(number) for number in numbers if number % 2 == partition])


def test_a_log_that_was_made_again_between_two_runs_is_refused_though_it_is_longer(of_each: MadeLog) -> None:
    send(of_each, *range(6))
    run = Run(of_each)
    assert run.read() == [*range(6)]
    run.close()
    send(of_each, 6, 7)
    run = Run(of_each, run.at)  # the same log
    assert run.read() == [6, 7]
    run.close()
    of_each.remake()
    send(of_each, *range(100, 130))
    words = of_each.log.words
    said = f"{words.lost} {words.noun} `"
    assert code_of(lambda: Run(of_each, run.at)).startswith(said)
    message = code_of(lambda: MessageSource(MessageReading(STREAM, of_each.log)).planner().latest(run.at))
    assert re.fullmatch(f"{said}.*` is not the {words.noun} that it was: it is .+, and was .+", message)


def test_a_log_that_is_made_again_while_a_run_reads_it_is_refused(
    of_each: MadeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "NEW_PARTITIONS_SECONDS", 0.0)
    send(of_each, *range(6))
    run = Run(of_each)
    assert run.read() == [*range(6)]
    of_each.remake()
    send(of_each, *range(100, 130))
    assert code_of(run.read).startswith(f"{of_each.log.words.lost} {of_each.log.words.noun} `")
    run.close()


def test_with_go_on_a_log_that_was_made_again_is_read_from_its_beginning(of_each: MadeLog) -> None:
    log = of_each.log
    if isinstance(log, KinesisLog):  # its clients have to know it, too
        log = replace(log, goes_on_without=True)
    made = replace(of_each, log=log)
    send(made, *range(6))
    run = Run(made, goes_on_without=True)
    assert run.read() == [*range(6)]
    run.close()
    made.remake()
    send(made, *range(100, 130))
    run = Run(made, run.at, goes_on_without=True)
    assert run.read() == [*range(100, 130)]
    assert run.close().lost == {log.origin(place): 1 for place in of_json(run.at)}
    run = Run(made, run.at, goes_on_without=True)
    send(made, 130, 131)
    assert run.read() == [130, 131]
    assert run.close().lost == {}


def test_the_checkpoint_of_an_earlier_version_takes_the_log_over(of_each: MadeLog) -> None:
    send(of_each, *range(6))
    run = Run(of_each)
    run.read()
    run.close()
    earlier = to_json(of_json(run.at))
    assert identities(earlier) != identities(run.at)
    run = Run(of_each, earlier)
    assert run.read() == []
    assert identities(run.at).keys() == {place[0] for place in of_json(run.at)}
    assert all(text for text, _ in identities(run.at).values())
    run.close()
    of_each.remake()
    send(of_each, *range(100, 130))
    assert code_of(lambda: Run(of_each, run.at)).startswith(f"{of_each.log.words.lost} ")


# ---------------------------------------------------------------- in a pipeline

STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 1 second,
          schema: {id: bigint, k: string, ts: timestamp}}
"""
RULES = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""


def tick(number: int, seconds: float, k: str) -> bytes:
    ts = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"id": number, "k": k, "ts": ts}).encode()


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def in_files(folder: Path) -> list[str]:
    lines = [line for file in folder.rglob("part-*") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["match_id"] for line in lines)


@pytest.mark.deep(but="nats")
@pytest.mark.spark
def test_a_run_that_is_killed_loses_nothing_and_partitions_of_unlike_density_make_nothing_late(
    made: MadeLog, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dense = [tick(i, i, f"k{i % 3}") for i in range(1_200)]
    thin = [tick(10_000 + i, i * 50 + 0.5, f"k{i % 3}") for i in range(24)]
    for number, message in enumerate(thin):
        made.send(0, dense[number * 50 : (number + 1) * 50])
        made.send(1, [message])
    (tmp_path / "rules.cep").write_text(RULES)
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "events.json").write_bytes(b"".join(line + b"\n" for line in dense + thin))
    rules = compile_rulebook(load_rulebook([tmp_path / "rules.cep"])).rule_set
    expected = sorted(match_file(rules, tmp_path / "events.json").matches.column("match_id").to_pylist())
    assert len(expected) > 500
    file = tmp_path / "pipeline.yaml"
    source = f"source: {{stream: ticks, max_events_per_trigger: 500, {made.settings}}}"
    sink = "sinks: [{format: json, path: out}]"
    file.write_text(f"rules: [rules.cep]\n{source}\n{sink}\ncheckpoint: checkpoint\nat_end: finish\n")
    assert killed(file, LOGS[request.node.callspec.params["made"]][2])
    assert 0 < len(in_files(tmp_path / "out")) < len(expected)
    counts = quiet_run(file).counts
    assert in_files(tmp_path / "out") == expected
    assert (counts.late, counts.lost) == (0, {})
