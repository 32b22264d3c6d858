"""Streams of NATS JetStream as a source, without Spark: what is planned and what is read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.schema.stream import Field
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.connectors.nats.log import NatsLog
from tests.servers.kafka_broker import free_ports
from tests.servers.messages import START_US, STREAM, Seen, batches, code_of, seen, value, values
from tests.servers.nats_server import ALLOWED, PASSWORD, USER, NatsServer, running_nats


def reading(
    server: NatsServer,
    *streams: str,
    subjects: Sequence[str] = (),
    options: Options | None = None,
    **more: Any,
) -> MessageReading:
    log = NatsLog((server.address,), streams, tuple(subjects), options or Options())
    return MessageReading(STREAM, log, **more)


def test_events_and_dead_letters_are_read_by_sequence_number(nats_server: NatsServer) -> None:
    stream = nats_server.stream()
    nats_server.send(stream, [value(1), b"no", value(2), b""])
    found = seen(reading(nats_server, stream))
    assert found.ids == [1, 2]
    assert sorted(found.dead) == [(f"{stream}@2", "not a JSON object"), (f"{stream}@4", "an empty message")]
    assert found.counts == Counts()
    assert nats_server.consumers(stream) == 0  # nothing stays behind


def test_a_stream_begins_where_it_is_told(nats_server: NatsServer, tmp_path: Path) -> None:
    stream = nats_server.stream()
    nats_server.send(stream, values(0, 1))
    time.sleep(0.01)  # the server's clock stamps what it stores
    between_us = time.time_ns() // 1000
    nats_server.send(stream, values(2, 3))

    def ids(begin: Any) -> list[int]:
        return seen(reading(nats_server, stream, begin=begin)).ids

    assert ids("earliest") == [0, 1, 2, 3]
    assert ids("latest") == []
    assert ids(between_us) == [2, 3]
    assert ids(between_us + 3_600_000_000) == []
    assert ids(START_US) == [0, 1, 2, 3]
    assert ids({stream: 4}) == [3]
    assert (
        code_of(lambda: ids({"other": 4}))
        == f"E0881 there is no partition `other` at `{nats_server.address}`"
    )

    late = reading(nats_server, stream, begin="latest", start_file=str(tmp_path / "log"))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == []
    nats_server.send(stream, values(4))
    assert batches(MessageSource(late).planner(), MessageSource(late)) == [[4]]  # the first start counts


def test_each_subject_is_a_partition_with_its_own_watermark(nats_server: NatsServer) -> None:
    stream = nats_server.stream()
    for number in range(4):
        nats_server.send(stream, values(number), f"eu.{number}")
        nats_server.send(stream, [value(100 + number)], "us")
        nats_server.send(stream, [b"of another subject"], "other")
    subjects = (f"{stream}.eu.*", f"{stream}.us")
    what = reading(nats_server, stream, subjects=subjects, max_events=6)
    source = MessageSource(what)
    found = seen(what)
    assert (sorted(found.ids), found.dead) == ([0, 1, 2, 3, 100, 101, 102, 103], [])
    parts = source.everything()
    assert {source.partition(part) for _, part in parts} == {f"{stream}[{subject}]" for subject in subjects}
    planner = source.planner()
    planner.stop_at_now()
    start, ahead = planner.start(), AheadGuard(STREAM.max_ahead_us)
    end = planner.latest(start)
    assert set(planner.unread_after(start, ahead)) == {f"s[{stream}[{subject}]]" for subject in subjects}
    assert planner.unread_after(start, ahead)[f"s[{stream}[{stream}.us]]"].first_us == START_US + 100_000_000
    # The one that is behind is read first.
    assert Seen(source).read(planner.ranges(start, end)).ids[:2] == [0, 1]
    planner.close(Counts())
    assert sorted(chain(*batches(source.planner(), source))) == sorted(found.ids)


def test_many_messages_are_read_in_portions_and_ranges(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = nats_server.stream()
    nats_server.send(stream, values(*range(250)))
    monkeypatch.setattr("spark_runtime.connectors.message_logs.planner.RANGE_MESSAGES", 100)
    monkeypatch.setattr("spark_runtime.connectors.nats.log.MOST_MESSAGES", 40)
    source = MessageSource(reading(nats_server, stream))
    parts = source.everything()
    assert [(part.start, part.end) for _, part in parts] == [(1, 101), (101, 201), (201, 251)]
    assert Seen(source).read(parts[::-1]).ids == [*range(200, 250), *range(100, 200), *range(100)]
    monkeypatch.setattr("spark_runtime.connectors.nats.log.MOST_BYTES", 1_000)
    assert Seen(source).read(parts).ids == [*range(250)]
    monkeypatch.setattr("spark_runtime.connectors.nats.log.MOST_BYTES", 10)  # less than a message
    assert Seen(source).read(parts[2:]).ids == [*range(200, 250)]


def test_messages_that_retention_has_removed_fail_the_run_or_are_counted(nats_server: NatsServer) -> None:
    stream = nats_server.stream()
    nats_server.send(stream, values(*range(6)))
    what = reading(nats_server, stream)
    source, goes_on = MessageSource(what), MessageSource(replace(what, goes_on_without=True))
    planner = source.planner()
    planner.stop_at_now()
    planned = planner.ranges(planner.start(), planner.latest(planner.start()))
    planner.close(Counts())
    nats_server.forget(stream, 5)

    fact = f"E0884 `{stream}` begins at offset 5 now: 4 messages were removed unread"
    assert code_of(lambda: Seen(source).read(planned)) == fact  # between plan and reading
    start = {stream: {">": [1, 2]}}
    planner = source.planner()
    assert code_of(lambda: planner.latest(start)) == fact.replace(": 4", ": 3")
    planner.close(Counts())
    found = Seen(goes_on).read(planned)
    assert (found.ids, found.counts) == ([4, 5], Counts(lost={stream: 4}))
    assert seen(what).ids == [4, 5]  # who begins here has lost nothing


@pytest.mark.parametrize(
    ("sequences", "at", "first", "kept"),
    [
        ([1, 2, 3], 1, 3, None),  # removed after they had come
        ([1, 5, 6], 1, 5, [1]),
        ([5, 6], 1, 5, []),
        ([1, 2], 1, 5, [1, 2]),
        ([], 1, 5, []),
        ([4, 5], 4, 4, None),
    ],
)
def test_a_gap_that_opens_while_it_is_read_is_found(
    sequences: list[int], at: int, first: int, kept: list[int] | None
) -> None:
    from spark_runtime.connectors.nats.log import _Message, _unbroken

    found = _unbroken([_Message(s, i, "", b"", None, 0, 0) for i, s in enumerate(sequences)], at, first)
    assert (None if found is None else [message.sequence for message in found]) == kept


def test_a_stream_that_is_another_one_now_is_refused(nats_server: NatsServer) -> None:
    stream = nats_server.stream()
    nats_server.send(stream, values(1))
    planner = MessageSource(reading(nats_server, stream)).planner()
    said = code_of(lambda: planner.latest({stream: {">": [1, 7]}}))
    assert (
        said == f"E0884 `{stream}` ends at offset 2, and was read up to 7: it is not the stream that it was"
    )
    planner.close(Counts())


def test_columns_come_from_what_is_around_the_value(nats_server: NatsServer) -> None:
    stream = nats_server.stream()
    before_us = time.time_ns() // 1000
    nats_server.send(stream, values(1), "a", {"trace": "t1", "n": "5"})
    nats_server.send(stream, values(2), "b")
    names = {"h": "string", "t": "string", "o": "bigint", "sent": "timestamp", "n": "int"}
    wide = replace(STREAM, fields=(*STREAM.fields, *(Field(name, ddl) for name, ddl in names.items())))
    columns = {"h": "headers", "t": "subject", "o": "sequence", "sent": "timestamp", "n": "header.n"}
    what = replace(reading(nats_server, stream, columns=columns), stream=wide)
    first, second = seen(what).rows
    assert before_us <= first.pop("sent") <= second.pop("sent") <= time.time_ns() // 1000
    assert {name: first[name] for name in ("h", "t", "o", "n")} == {
        "h": '{"trace": "t1", "n": "5"}',
        "t": f"{stream}.a",
        "o": 1,
        "n": 5,
    }
    assert (second["h"], second["t"], second["o"], second["n"]) == (None, f"{stream}.b", 2, None)


# ---------------------------------------------------------------- errors before anything runs


def test_what_is_wrong_is_told_before_anything_runs(nats_server: NatsServer, tmp_path: Path) -> None:
    def said(log: NatsLog) -> str:
        begun = time.monotonic()
        text = code_of(MessageSource(MessageReading(STREAM, log)).check)
        assert time.monotonic() - begun < 10
        return text

    (port,) = free_ports(1)
    text = said(NatsLog((f"127.0.0.1:{port}",), ("s",)))
    assert text.startswith(f"E0880 no server of NATS answers at `127.0.0.1:{port}`: ")
    where = nats_server.address
    assert said(NatsLog((where,), ("nowhere",))) == f"E0881 there is no stream `nowhere` at `{where}`"
    stream = nats_server.stream()
    text = said(NatsLog((where,), (stream,), ("elsewhere.>",)))
    assert text == f"E0881 stream `{stream}` at `{where}` stores no subject `elsewhere.>`"
    ca = Options((("tls_ca", str(tmp_path / "ca.pem")),))
    assert said(NatsLog((where,), (stream,), (), ca)).startswith("E0883 the files of TLS cannot be read: ")
    with running_nats(tmp_path, has_jetstream=False) as without:
        text = said(NatsLog((without.address,), ("s",)))
    assert text == f"E0886 `{without.address}` has no JetStream, so it stores no messages"


def test_access_is_asked_for_with_secrets_of_the_environment(
    nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options((("user", USER), ("password", "${CEP_TEST_PASSWORD}")))
    allowed, closed = nats_server.stream(ALLOWED), nats_server.stream("closed")
    nats_server.send(allowed, values(1))

    def what(stream: str) -> MessageReading:
        return reading(nats_server, stream, options=options)

    monkeypatch.delenv("CEP_TEST_PASSWORD", raising=False)
    assert code_of(MessageSource(what(allowed)).check) == (
        "E0853 `password` needs the variable `CEP_TEST_PASSWORD`, which the environment does not have"
    )
    monkeypatch.setenv("CEP_TEST_PASSWORD", "a-wrong-password")
    said = code_of(MessageSource(what(allowed)).check)
    assert said.startswith(f"E0882 `{nats_server.address}` refuses access to stream `{allowed}`: ")
    assert "a-wrong-password" not in said
    monkeypatch.setenv("CEP_TEST_PASSWORD", PASSWORD)
    MessageSource(what(allowed)).check()
    assert seen(what(allowed)).ids == [1]
    said = code_of(MessageSource(what(closed)).check)
    assert said.startswith(f"E0882 `{nats_server.address}` refuses access to stream `{closed}`: ")
    assert PASSWORD not in repr(what(allowed))
