"""Pipelines with several sinks: one is killed, down or slow, and nobody loses a row or gets one twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import InputError
from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from scenarios.servers.web import Reply, Request, WebServer, running_web_server
from spark_runtime import run_pipeline
from spark_runtime.connectors.postgres.sink import PostgresSink
from spark_runtime.pipeline.progress import Summary
from spark_runtime.sinks.protocol import MicroBatch
from tests.kills.points import OF_SINKS
from tests.kills.runs import Kill, killed
from tests.servers.gate import gate_to
from tests.servers.postgres_server import PostgresServer
from tests.servers.rabbitmq_server import Rabbit

pytestmark = pytest.mark.spark

STREAMS = """
streams:
  ticks: {event_time: ts, tie_break: [id], lateness: 0 seconds,
          schema: {id: bigint, k: string, ts: timestamp}}
"""
RULES = """
RULE pair FROM ticks PARTITION BY k PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS id >= 0, b AS id >= 0 MEASURES a.id AS first, b.id AS second
"""
START = datetime(2024, 5, 1, tzinfo=UTC)
N_IN_FILE = 40


def tick(number: int, seconds: float) -> str:
    ts = (START + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"id": number, "k": f"k{number % 3}", "ts": ts}) + "\n"


class Place:
    """A pipeline over files, a file in each micro-batch, and its sinks."""

    def __init__(self, folder: Path, n_files: int) -> None:
        self.folder = folder
        self.expected: list[str] = []
        (folder / "in").mkdir()
        (folder / "rules.cep").write_text(RULES)
        (folder / "streams.yaml").write_text(STREAMS)
        every = []
        for file in range(n_files):
            lines = [tick(i, i) for i in range(file * N_IN_FILE, (file + 1) * N_IN_FILE)]
            (folder / "in" / f"{file}.json").write_text("".join(lines))
            every += lines
        whole = folder / "whole.json"
        whole.write_text("".join(every))
        rules = compile_rulebook(load_rulebook([folder / "rules.cep"])).rule_set
        self.expected = sorted(match_file(rules, whole).matches.column("match_id").to_pylist())

    def pipeline(self, sinks: list[str], *more: str) -> Path:
        source = "{stream: ticks, format: json, path: in, max_files_per_trigger: 1}"
        lines = ["rules: [rules.cep]", f"source: {source}", "checkpoint: checkpoint", "sinks:"]
        lines += [f"  - {sink}" for sink in sinks]
        file = self.folder / "pipeline.yaml"
        file.write_text("\n".join([*lines, *(more or ["at_end: finish"])]) + "\n")
        return file

    @property
    def in_files(self) -> list[str]:
        files = [file for file in (self.folder / "out").rglob("part-*") if "/." not in str(file)]
        return sorted(json.loads(line)["match_id"] for f in files for line in f.read_text().splitlines())

    @property
    def in_delta(self) -> list[str]:
        found: list[str] = DeltaTable(self.folder / "delta").to_pyarrow_table().column("match_id").to_pylist()
        return sorted(found)


def quiet_run(file: Path) -> Summary:
    return run_pipeline(file, console=Console(file=StringIO()), quiet=True)


def in_table(postgres: PostgresServer, database: str) -> list[str]:
    return [text for (text,) in postgres.run(database, "SELECT match_id FROM found ORDER BY 1")]


def in_queue(rabbit: Rabbit, queue: str) -> list[str]:
    found: list[str] = []
    connection = rabbit.connection()
    channel = connection.channel()
    while True:
        method, properties, _ = channel.basic_get(queue, auto_ack=True)
        if method is None:
            connection.close()
            return sorted(found)
        found.append(properties.message_id)


@pytest.fixture
def web() -> Iterator[WebServer]:
    with running_web_server() as server:
        yield server


def posted(web: WebServer) -> list[str]:
    return sorted(request.headers["idempotency-key"] for request in web.requests)


MOMENTS = [
    ("webhook", "after the write of webhook"),
    ("rabbitmq", "after the write of rabbitmq"),
    ("postgres", "before the commit of postgres"),
]
MORE = [  # each kill takes up to twenty seconds
    *MOMENTS,
    ("delta", "after the commit of delta"),
    ("postgres", "after the commit of postgres"),
    ("delta", "before the commit of delta"),
]


@pytest.mark.parametrize(
    "moments", [MOMENTS, pytest.param(MORE, marks=pytest.mark.deep)], ids=["three", "six"]
)
def test_a_run_that_is_killed_around_the_writes_of_its_sinks_loses_nothing(
    spark: SparkSession,
    postgres: PostgresServer,
    rabbit: Rabbit,
    web: WebServer,
    tmp_path: Path,
    moments: list[tuple[str, str]],
) -> None:
    place = Place(tmp_path, len(moments) + 3)
    database, queue = postgres.database(), rabbit.queue()
    file = place.pipeline(
        [
            f"{{format: webhook, url: '{web.url}'}}",
            f"{{format: rabbitmq, host: 127.0.0.1, port: {rabbit.port}, queue: {queue}}}",
            f"{{format: postgres, {postgres.yaml(database)}, table: found}}",
            "{format: delta, path: delta}",
            "{format: json, path: out}",
        ]
    )
    # In their order: the first two cannot tell that they have a micro-batch.
    for sink, point in moments:
        # In the second micro-batch: the first one repeats what was interrupted before.
        assert killed(file, Kill(OF_SINKS[sink][point], 2)), point
    n_posted = len(web.requests)
    quiet_run(file)
    assert len(web.requests) > n_posted
    assert in_table(postgres, database) == place.expected
    assert place.in_delta == place.expected
    assert place.in_files == place.expected
    # Only what was written and not noted comes twice, under the same key.
    for found in (posted(web), in_queue(rabbit, queue)):
        times = Counter(found)
        assert sorted(times) == place.expected
        assert set(times.values()) == {1, 2}
        assert list(times.values()).count(2) <= N_IN_FILE


def test_a_database_that_goes_down_in_the_middle_of_a_run_gives_the_others_nothing_twice(
    spark: SparkSession, postgres: PostgresServer, rabbit: Rabbit, web: WebServer, tmp_path: Path
) -> None:
    place = Place(tmp_path, 4)
    database, queue = postgres.database(), rabbit.queue()
    with gate_to(postgres.port) as gate:
        behind = replace(postgres, port=gate.port)
        file = place.pipeline(
            [
                f"{{format: webhook, url: '{web.url}'}}",
                f"{{format: rabbitmq, host: 127.0.0.1, port: {rabbit.port}, queue: {queue}}}",
                f"{{format: postgres, {behind.yaml(database)}, table: found}}",
                "{format: delta, path: delta}",
                "{format: json, path: out}",
            ]
        )

        def answer(request: Request) -> Reply:
            if request.rows[0]["first"] == N_IN_FILE + 2:  # not in the first micro-batch, nor in the last one
                gate.shut()
            return 200, {}, ""

        web.answering = answer
        for _ in range(2):
            with pytest.raises(InputError) as caught:
                quiet_run(file)
            assert caught.value.code == "E0860"
        assert 0 < len(in_table(postgres, database)) < len(posted(web)) < len(place.expected)
        gate.open()
        quiet_run(file)
    assert posted(web) == in_queue(rabbit, queue) == place.expected
    assert in_table(postgres, database) == place.in_delta == place.in_files == place.expected


def test_a_webhook_that_is_slow_and_then_down_gives_the_others_nothing_twice(
    spark: SparkSession,
    postgres: PostgresServer,
    rabbit: Rabbit,
    web: WebServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(tmp_path, 4)
    database, queue = postgres.database(), rabbit.queue()
    commit = PostgresSink.commit
    with gate_to(web.port) as gate:
        file = place.pipeline(
            [
                f"{{format: rabbitmq, host: 127.0.0.1, port: {rabbit.port}, queue: {queue}}}",
                f"{{format: postgres, {postgres.yaml(database)}, table: found}}",
                f"{{format: webhook, url: 'http://127.0.0.1:{gate.port}/', retry_for: 1 second}}",
                "{format: delta, path: delta}",
            ]
        )

        def shutting(self: PostgresSink, batch: MicroBatch) -> None:
            commit(self, batch)
            if batch.number == 2:
                gate.shut()

        monkeypatch.setattr(PostgresSink, "commit", shutting)
        with pytest.raises(InputError) as caught:
            quiet_run(file)
        assert caught.value.code == "E0874"
        monkeypatch.setattr(PostgresSink, "commit", commit)
        gate.open()
        quiet_run(file)
    assert posted(web) == in_queue(rabbit, queue) == place.expected
    assert in_table(postgres, database) == place.in_delta == place.expected


def test_late_events_and_dead_letters_go_to_tables_and_what_is_refused_is_counted(
    spark: SparkSession, postgres: PostgresServer, web: WebServer, tmp_path: Path
) -> None:
    place = Place(tmp_path, 1)
    database = postgres.database()
    web.answering = lambda request: (422 if request.rows[0]["first"] < 3 else 200, {}, "no")
    to = f"format: postgres, {postgres.yaml(database)}"
    file = place.pipeline(
        [f"{{format: webhook, url: '{web.url}', refused: refused}}"],
        f"late: {{{to}, table: late}}",
        f"dead_letter: {{{to}, table: dead}}",
    )
    before = quiet_run(file).counts
    (tmp_path / "in" / "1.json").write_text("no event\n" + tick(1000, 1) + tick(1001, 10_000))
    counts = quiet_run(file).counts
    assert (counts.late, counts.malformed) == (1, 1)
    before.add(counts)
    assert before.refused_rows == {f"http://127.0.0.1:{web.port}": 3}
    refused = [
        json.loads(line) for f in (tmp_path / "refused").iterdir() for line in f.read_text().splitlines()
    ]
    assert sorted(item["row"]["first"] for item in refused) == [0, 1, 2]
    late = postgres.run(database, "SELECT id, k, extract(epoch FROM ts), _late_seconds FROM late")
    assert late == [(1000, "k1", (START + timedelta(seconds=1)).timestamp(), 38.0)]
    dead = postgres.run(database, "SELECT reason, position, raw FROM dead")
    assert dead == [("not a JSON object", 1, "no event")]
