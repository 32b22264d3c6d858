"""Streams of Amazon Kinesis as a source, without Spark: what is planned and what is read."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.formats.intake import count_chunk
from cep.schema.stream import Field
from spark_runtime.connectors.kinesis import connection
from spark_runtime.connectors.kinesis import log as kinesis_log
from spark_runtime.connectors.kinesis.connection import Calls, KinesisConnection
from spark_runtime.connectors.kinesis.log import BEGINNING, KinesisLog
from spark_runtime.connectors.message_logs.planner import MessagePlanner
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.event_time.watermarks import WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.servers.kafka_broker import free_ports
from tests.servers.kinesis_server import KinesisServer
from tests.servers.messages import START_US, STREAM, Seen, batches, code_of, seen, value, values


def reading(server: KinesisServer, *streams: str, **more: Any) -> MessageReading:
    goes_on = more.get("goes_on_without", False)
    log = KinesisLog(KinesisConnection(endpoint_url=server.address), streams, goes_on)
    return MessageReading(STREAM, log, **more)


def step(source: MessageSource, planner: MessagePlanner, start: Any) -> tuple[list[int], Any]:
    """Return what the next micro-batch reads, and where it ends."""
    end = planner.latest(start)
    found = Seen(source).read(planner.ranges(start, end)).ids
    planner.commit(end)
    return found, end


def test_events_and_dead_letters_are_read_by_shard_and_time_of_arrival(kinesis_server: KinesisServer) -> None:
    stream = kinesis_server.stream(2)
    before_ms = time.time_ns() // 1_000_000
    kinesis_server.send(stream, [value(1), b"no", value(2)])
    kinesis_server.send(stream, values(3), shard=1)
    found = seen(reading(kinesis_server, stream))
    assert sorted(found.ids) == [1, 2, 3]
    ((place, reason),) = found.dead
    origin, _, position = place.partition("@")
    assert (origin, reason) == (f"{stream}[shardId-000000000000]", "not a JSON object")
    assert before_ms <= int(position) <= time.time_ns() // 1_000_000
    assert found.counts == Counts()


def test_a_stream_begins_where_it_is_told(kinesis_server: KinesisServer, tmp_path: Path) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(0, 1))
    time.sleep(0.01)  # the service's clock stamps what it stores
    between_us = time.time_ns() // 1000
    kinesis_server.send(stream, values(2, 3))

    def ids(begin: Any) -> list[int]:
        return seen(reading(kinesis_server, stream, begin=begin)).ids

    assert ids("earliest") == [0, 1, 2, 3]
    assert ids(between_us) == [2, 3]
    assert ids(between_us + 3_600_000_000) == []
    assert ids(START_US) == [0, 1, 2, 3]
    time.sleep(1.1)  # `latest` is a second of the service's clock
    late = reading(kinesis_server, stream, begin="latest", start_file=str(tmp_path / "log"))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == []
    kinesis_server.send(stream, values(4))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == [[4]]  # the first start counts


def test_what_lies_behind_is_read_by_the_next_run(kinesis_server: KinesisServer) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(*range(10)))
    source = MessageSource(reading(kinesis_server, stream, max_events=4))
    planner = source.planner()
    first, end = step(source, planner, planner.start())
    planner.close(Counts())
    planner = source.planner()  # it knows nothing of what was read ahead
    second, end = step(source, planner, end)
    third, end = step(source, planner, end)
    assert (first, second, third) == ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9])
    assert planner.latest(end) == end
    kinesis_server.send(stream, values(10))
    fourth, end = step(source, planner, end)
    assert fourth == [10]
    planner.close(Counts())


def test_much_is_read_ahead_in_portions(
    kinesis_server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(*range(250)))
    monkeypatch.setattr(kinesis_log, "AHEAD_MESSAGES", 100)
    monkeypatch.setattr(kinesis_log, "PAGE", 30)
    source = MessageSource(reading(kinesis_server, stream))
    found = batches(source.planner(), source)
    assert [*chain(*found)] == [*range(250)]
    assert [len(ids) for ids in found] == [120, 120, 10]
    assert seen(source.reading).ids == [*range(250)]
    monkeypatch.setattr(kinesis_log, "AHEAD_BYTES", 100)
    found = batches(source.planner(), source)
    assert ([*chain(*found)], len(found)) == ([*range(250)], 9)


def test_the_shards_that_a_split_makes_are_read_after_the_one_that_was_split(
    kinesis_server: KinesisServer,
) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(0, 1, 2))
    kinesis_server.split(stream, 0)
    kinesis_server.send(stream, values(3), shard=1)
    kinesis_server.split(stream, 2)
    kinesis_server.send(stream, values(4, 5), shard=3)
    source = MessageSource(reading(kinesis_server, stream, max_events=2))
    planner, ahead = source.planner(), AheadGuard(STREAM.max_ahead_us)
    start = planner.start()
    first, end = step(source, planner, start)
    assert first == [0, 1]
    assert set(planner.unread_after(end, ahead)) == {f"s[{stream}[shardId-000000000000]]"}
    assert planner.ended(end) == set()
    second, end = step(source, planner, end)
    assert second == [2]
    assert planner.ended(end) == set()  # what came of it is not known yet: it holds the watermark
    third, end = step(source, planner, end)
    # Now it ended. What is not read of the others is known, so it holds the watermark in its place.
    assert f"s[{stream}[shardId-000000000000]]" in planner.ended(end)
    fourth, end = step(source, planner, end)
    assert sorted(third + fourth) == [3, 4, 5]
    assert planner.latest(end) == end
    planner.close(Counts())
    assert sorted(chain(*batches(source.planner(), source))) == [0, 1, 2, 3, 4, 5]

    kinesis_server.drop_shard(stream, 0)  # a day later
    planner = source.planner()
    assert planner.latest(end) == end
    assert f"s[{stream}[shardId-000000000000]]" in planner.ended(end)
    kinesis_server.send(stream, values(6), shard=0)
    assert step(source, planner, end)[0] == [6]
    planner.close(Counts())


def test_a_shard_that_was_split_holds_the_watermark_until_what_came_of_it_does(
    kinesis_server: KinesisServer, tmp_path: Path
) -> None:
    stream = kinesis_server.stream(2)
    kinesis_server.send(stream, [value(0, 0), value(1, 10)])
    kinesis_server.send(stream, [value(2, 500)], shard=1)
    kinesis_server.split(stream, 0)
    kinesis_server.send(stream, [value(3, 100), value(4, 200)], shard=2)
    kinesis_server.send(stream, [value(5, 300)], shard=3)
    source = MessageSource(reading(kinesis_server, stream))
    root = str(tmp_path)
    run = MicroBatches(
        checkpoint=Checkpoint(root, "run", 2, LocalFiles(root)),
        sources={"s": source},
        n_tasks=2,
        rule=WatermarkRule(0),
        done=Done(-1, Reached(), {}, ended=False),
        interval_s=None,
        finishes=False,
    )
    seconds, number = [], 0
    while (plan := run.next(number)) is not None:
        counts = Counts()
        for name, part in chain(*plan.shares):
            guard = plan.reached.guard(STREAM, source.partition(part))
            for chunk in source.read(part, guard, counts):
                placed = replace(chunk, partition=source.partition(part), place=f"in {name}")
                counts.add(count_chunk(placed, STREAM))
        run.complete(number, counts)
        reached_us = run.done.reached.watermark_us
        seconds.append(None if reached_us is None else (reached_us - START_US) / 1e6)
        number += 1
    run.close(Counts())
    # First the old shard holds it at 10, then the events of the new ones at 100; at last the slower of these.
    assert seconds[0] == 10
    assert seconds[-1] == 200


def test_a_run_that_reads_what_is_there_reads_shards_of_a_split_too(kinesis_server: KinesisServer) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(0, 1))
    kinesis_server.split(stream, 0)
    kinesis_server.send(stream, values(2), shard=1)
    kinesis_server.send(stream, values(3), shard=2)
    assert sorted(seen(reading(kinesis_server, stream)).ids) == [0, 1, 2, 3]
    source = MessageSource(reading(kinesis_server, stream))
    found = batches(source.planner(), source)
    assert [sorted(ids) for ids in found] == [[0, 1], [2, 3]]


def test_messages_that_retention_has_removed_fail_the_run_or_are_counted(
    kinesis_server: KinesisServer,
) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(*range(6)))
    what = reading(kinesis_server, stream)
    source = MessageSource(what)
    goes_on = MessageSource(reading(kinesis_server, stream, goes_on_without=True))
    planner = source.planner()
    planner.stop_at_now()
    end = planner.latest(planner.start())
    planned = planner.ranges(planner.start(), end)
    planner.close(Counts())
    kinesis_server.forget(stream, 0, 5)

    origin = f"{stream}[shardId-000000000000]"
    assert code_of(lambda: Seen(source).read(planned)) == (
        f"E0884 `{origin}` begins later now: messages were removed unread"
    )
    found = Seen(goes_on).read(planned)
    assert (found.ids, found.counts) == ([4, 5], Counts(lost={origin: 1}))
    assert seen(what).ids == [4, 5]  # who begins here has lost nothing

    start = {stream: {"shardId-000000000000": [BEGINNING, 2]}}
    planner = source.planner()
    assert code_of(lambda: planner.latest(start)) == (
        f"E0884 `{origin}` has removed the last message that was read, and perhaps others behind it "
        "that were not"
    )
    planner.close(Counts())
    planner, counts = goes_on.planner(), Counts()
    assert step(goes_on, planner, start)[0] == [4, 5]
    planner.close(counts)
    assert counts == Counts(lost={origin: 1})


def test_columns_come_from_what_is_around_the_value(kinesis_server: KinesisServer) -> None:
    stream = kinesis_server.stream()
    before_us = time.time_ns() // 1000
    kinesis_server.send(stream, values(1), key="card-7")
    names = {"k": "string", "p": "string", "o": "decimal(38, 0)", "sent": "timestamp"}
    wide = replace(STREAM, fields=(*STREAM.fields, *(Field(name, ddl) for name, ddl in names.items())))
    columns = {"k": "key", "p": "shard", "o": "sequence", "sent": "timestamp"}
    what = replace(reading(kinesis_server, stream, columns=columns), stream=wide)
    (row,) = seen(what).rows
    assert before_us <= row.pop("sent") <= time.time_ns() // 1000
    assert (row["k"], row["p"], row["o"]) == ("card-7", "shardId-000000000000", 1)


def test_aggregated_records_are_refused(kinesis_server: KinesisServer) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, [value(1), b"\xf3\x89\x9a\xc2many of them"])
    assert code_of(lambda: seen(reading(kinesis_server, stream))) == (
        f"E0886 record 2 of `{stream}[shardId-000000000000]` holds several messages that the Kinesis "
        "Producer Library has aggregated; these are not read"
    )


# ---------------------------------------------------------------- a service that is busy, and errors


def test_a_call_that_is_throttled_is_made_again_after_a_pause(
    kinesis_server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kinesis_server.stream()
    kinesis_server.send(stream, values(1))
    pauses: list[float] = []
    calls = Calls(KinesisConnection(endpoint_url=kinesis_server.address), pauses.append)
    iterator = calls(
        "get_shard_iterator",
        "it",
        StreamName=stream,
        ShardId="shardId-000000000000",
        ShardIteratorType="TRIM_HORIZON",
    )["ShardIterator"]
    kinesis_server.throttle(7)
    try:
        assert len(calls("get_records", "it", ShardIterator=iterator)["Records"]) == 1
        assert pauses == [0.2, 0.4, 0.8]  # boto3 tries each call twice
        monkeypatch.setattr(connection, "PATIENCE_SECONDS", 2)
        kinesis_server.throttle(1_000)
        said = code_of(lambda: calls("get_records", "it", ShardIterator=iterator))
    finally:
        kinesis_server.throttle(0)
        calls.close()
    assert said.startswith(f"E0885 `{kinesis_server.address}` failed at it: ")
    assert "Rate exceeded" in said
    assert pauses[3:] == [0.2, 0.4, 0.8, 1.6]


def test_what_is_wrong_is_told_before_anything_runs(
    kinesis_server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(connection: KinesisConnection, stream: str = "nowhere") -> str:
        begun = time.monotonic()
        text = code_of(MessageSource(MessageReading(STREAM, KinesisLog(connection, (stream,)))).check)
        assert time.monotonic() - begun < 10
        return text

    where = kinesis_server.address
    assert said(KinesisConnection(endpoint_url=where)) == f"E0881 there is no stream `nowhere` at `{where}`"
    (port,) = free_ports(1)
    nobody = f"http://127.0.0.1:{port}"
    assert said(KinesisConnection(endpoint_url=nobody)).startswith(f"E0880 nothing answers at `{nobody}`: ")
    assert said(KinesisConnection(endpoint_url="no address")).startswith("E0883 boto3 refuses its settings: ")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    assert said(KinesisConnection(endpoint_url=where)).startswith(
        f"E0882 `{where}` refuses access to stream `nowhere`: Unable to locate credentials"
    )
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert said(KinesisConnection()).startswith("E0883 boto3 refuses its settings: You must specify a region")
