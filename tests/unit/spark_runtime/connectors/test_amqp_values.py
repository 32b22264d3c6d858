"""The values and headers of RabbitMQ streams: AMQP 1.0 of any types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rstream import AMQPMessage

from spark_runtime.connectors.rabbitmq import amqp

SEQUENCE = bytes.fromhex("005376 c00502 a10161 5407".replace(" ", ""))
TIME_MS = 1_714_557_600_000
TYPED = {
    "t": b"\x83" + TIME_MS.to_bytes(8, "big"),
    "d": bytes.fromhex("3180000f").join((b"\x74", b"")),
    "c": b"\x73" + "ä".encode("utf-32-be"),
    "b": b"\x41",
    "u": b"\x98" + bytes(16),
}


def properties_of(values: dict[str, bytes]) -> bytes:
    """Return a message with application properties, and 7 as its value."""
    pairs = b"".join(b"\xa1" + bytes([len(name)]) + name.encode() + value for name, value in values.items())
    return b"\x00St\xc1" + bytes([len(pairs) + 1, 2 * len(values)]) + pairs + b"\x00Sw\x54\x07"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"x": 1}, {"x": 1}),
        ({"a": {"b": [b"c", 1.5, None, True]}}, {"a": {"b": ["c", 1.5, None, True]}}),
        ({1: "one"}, {"1": "one"}),
        (["a", 1], ["a", 1]),
        (7, 7),
    ],
)
def test_a_value_that_is_no_text_is_json(body: Any, value: Any) -> None:
    assert json.loads(amqp.value(bytes(AMQPMessage(value=body))) or b"") == value


def test_a_sequence_is_an_array_and_a_message_without_a_body_has_no_value() -> None:
    assert amqp.value(SEQUENCE) == b'["a", 7]'
    assert amqp.value(SEQUENCE * 2) == b'["a", 7, "a", 7]'
    assert amqp.value(b"\x00Sv\x54\x07") == b"[7]"
    assert amqp.value(b"\x00Sw\x40") is None


def test_headers_of_all_types_are_texts() -> None:
    message = properties_of(TYPED)
    assert amqp.headers(message) == {
        "t": "2024-05-01T10:00:00.000000Z",
        "d": "0.15",
        "c": "ä",
        "b": "true",
        "u": "00000000-0000-0000-0000-000000000000",
    }
    assert amqp.value(message) == b"7"
    assert amqp.headers(b"\x00St\x54\x07") == {}  # no map
