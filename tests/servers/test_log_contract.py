"""What each source promises (`tests/unit/spark_runtime/sources/test_source_contract.py`), of each log of
messages; and what pipelines make of them, killed and started again."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from spark_runtime.sources.messages.reading import MessageReading
from spark_runtime.sources.messages.source import MessageSource
from spark_runtime.sources.protocol import Source, TimedPlanner
from tests.kills.points import OF_SOURCES, OF_THE_RUN
from tests.kills.runs import Kill, killed
from tests.servers.logs import MadeLog, in_kinesis, in_nats, in_rabbitmq
from tests.servers.messages import START, STREAM, value
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
