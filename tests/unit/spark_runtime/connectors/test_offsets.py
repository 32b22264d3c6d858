"""Offsets of sources of messages: those of checkpoints that are there must go on being read."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import StateError
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.log import KafkaLog
from spark_runtime.connectors.message_logs.log import MessageRange
from spark_runtime.connectors.message_logs.offsets import of_json, read_start, to_json, write_start
from spark_runtime.connectors.message_logs.reading import MessageReading
from spark_runtime.connectors.message_logs.source import MessageSource
from tests.servers.messages import STREAM

BY_KAFKA = {"orders": {"0": [0, 981], "10": [5, 7]}}
"""As the first version of the source `kafka` wrote it."""


def test_an_offset_of_kafka_is_read_as_it_was_written_and_written_the_same() -> None:
    assert of_json(BY_KAFKA) == {("orders", 0): (0, 981), ("orders", 10): (5, 7)}
    assert to_json(of_json(BY_KAFKA)) == BY_KAFKA


def test_ranges_of_kafka_are_those_that_stand_in_plans_without_a_broker() -> None:
    planner = MessageSource(MessageReading(STREAM, KafkaLog(Connection("nobody:1"), ("orders",)))).planner()
    parts = planner.ranges(BY_KAFKA, {"orders": {"0": [0, 985], "2": [3, 4], "10": [5, 7]}})
    assert [list(part) for _, part in parts] == [["orders", 0, 981, 985], ["orders", 2, 3, 4]]
    assert MessageRange("orders", 2, 3, 4).place == ("orders", 2)


def test_names_that_are_no_numbers_stay_texts() -> None:
    offset = {
        "orders": {"shardId-000000000001": [-5, 49590338271490256608559692538361571095921575989136588898]}
    }
    assert to_json(of_json(offset)) == offset


def test_where_a_stream_began_is_read_again_and_a_damaged_file_is_told(tmp_path: Path) -> None:
    file = tmp_path / "log" / "s.log"
    write_start(file, BY_KAFKA)
    assert read_start(file) == BY_KAFKA
    file.write_text('{"orders": 7}')
    with pytest.raises(StateError) as caught:
        read_start(file)
    assert caught.value.code == "E0702"
