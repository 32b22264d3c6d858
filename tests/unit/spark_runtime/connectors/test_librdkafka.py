"""Messages of librdkafka as columns, without a broker."""

from __future__ import annotations

import ctypes
from random import Random

import numpy as np
import pytest

from cep.formats.lines import Lines
from spark_runtime.connectors.kafka.connection import Connection, Noted
from spark_runtime.connectors.kafka.librdkafka import (
    NOTHING,
    SWITCH,
    Columns,
    _copied,
    column_taker,
    together,
)
from spark_runtime.connectors.message_logs.log import MessageRange

pytest.importorskip("confluent_kafka")


def test_values_are_copied_in_their_order_wherever_they_lie() -> None:
    random = Random(3)
    for _ in range(100):
        memory = [ctypes.create_string_buffer(random.randbytes(2_000), 2_000) for _ in range(3)]
        addresses, lengths, expected = [], [], []
        for content in random.sample(memory, 3):
            at = random.randrange(300)
            while at < 1_000 and random.random() < 0.9:
                size = random.choice((0, 1, 7, 300))
                is_none = random.random() < 0.2
                addresses.append(0 if is_none else ctypes.addressof(content) + at)
                lengths.append(0 if is_none else size)
                expected.append(b"" if is_none else content.raw[at : at + size])
                at += size + random.choice((0, 20, 255, 256, 400))
        if not expected:
            continue
        places = np.array(addresses)
        lines = _copied(places, np.array(lengths), places == 0)
        assert list(map(lines.__getitem__, range(len(lines)))) == expected == list(lines)
        assert (lines.starts[1:] >= lines.ends[:-1]).all()
        assert lines.data[-1] == ord("\n")


def test_columns_that_follow_each_other_are_one() -> None:
    def columns(*values: bytes, first: int) -> Columns:
        data = b"".join(values) + b"\n"
        ends = np.cumsum([len(value) for value in values])
        starts = ends - [len(value) for value in values]
        offsets = np.arange(first, first + len(values))
        lines = Lines(np.frombuffer(data, np.uint8), starts, ends)
        return Columns(offsets, lines, np.zeros(len(values), bool), [str(o).encode() for o in offsets])

    whole = together([columns(b"a", b"", first=3), columns(b"bc", b"d", first=5).before(6), NOTHING])
    assert list(whole.values) == [b"a", b"", b"bc"]
    assert (whole.offsets.tolist(), whole.keys, whole.last) == ([3, 4, 5], [b"3", b"4", b"5"], 5)


def test_a_setting_that_librdkafka_does_not_know_lets_messages_come_as_objects() -> None:
    connection = Connection("127.0.0.1:1")
    known = {"group.id": "cep", "enable.partition.eof": True}
    taker = column_taker(connection, known, Noted(), 10)
    assert taker is not None
    taker.close()
    assert column_taker(connection, {**known, "no.such.setting": "1"}, Noted(), 10) is None


def test_the_switch_lets_messages_come_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SWITCH == "CEP_KAFKA_COLUMNS"
    monkeypatch.setenv(SWITCH, "off")
    assert column_taker(Connection("127.0.0.1:1"), {"group.id": "cep"}, Noted(), 10) is None


def test_a_consumer_learns_of_a_topic_once_before_it_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    taker = column_taker(Connection("127.0.0.1:1"), {"group.id": "cep"}, Noted(), 10)
    assert taker is not None
    done = []
    monkeypatch.setattr(taker._library, "query_offsets", lambda _, topic, *rest: done.append(topic))
    monkeypatch.setattr(taker._library, "assign", lambda *_: done.append(b"fetch"))
    for topic in ("t", "t", "u"):
        taker.begin(MessageRange(topic, 0, 5, 9))
    monkeypatch.undo()
    taker.close()
    assert done == [b"t", b"fetch", b"fetch", b"u", b"fetch"]
