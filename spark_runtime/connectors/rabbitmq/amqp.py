"""Extracts the values of RabbitMQ messages from AMQP 1.0."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, cast

from cep.schema.foreign_values import body_of, decimal_of, text_of, time_of_ms

_SECTION, _SMALL, _LARGE = b"\x00S", 0xA0, 0xB0
_DATA = b"\x00Su"
_CHAR, _TIMESTAMP, _DECIMALS = 0x73, 0x83, {0x74: 4, 0x84: 8, 0x94: 16}


def value(message: bytes) -> bytes | None:
    """Return the body of a message; None if it has none. Bytes that are not AMQP 1.0 are the body itself."""
    if message[:3] == _DATA and len(message) > 4:
        if message[3] == _SMALL and message[4] == len(message) - 5:
            return message[5:]
        if message[3] == _LARGE and int.from_bytes(message[4:8], "big") == len(message) - 8:
            return message[8:]
    if message[:2] != _SECTION:
        return message
    found = decoded(message)
    if found is None:
        return message
    if isinstance(found.body, list):
        return b"".join(map(body_of, found.body)) if found.body else None
    if found.body is None and found.sequence:
        sections = (part if isinstance(part, list) else [part] for part in found.sequence)
        return body_of([item for section in sections for item in section])
    body = found.body if found.body is not None else found.value
    return None if body is None else body_of(body)


def decoded(message: bytes) -> Any:
    """Return a message with its sections; None if it is not AMQP 1.0."""
    if message[:2] != _SECTION:
        return None
    try:
        return _decoder()(message)
    except Exception:  # noqa: BLE001 - rstream's decoder raises whatever it runs into
        return None


def headers(message: bytes) -> dict[str, str | None]:
    """Return the application properties of a message as strings."""
    found = decoded(message)
    properties = None if found is None else found.application_properties
    if not isinstance(properties, dict):
        return {}
    return {text_of(name) or "": text_of(item) for name, item in properties.items()}


def message_id(message: bytes) -> str | None:
    """Return the `message_id` of a message."""
    found = decoded(message)
    properties = None if found is None else found.properties
    return None if properties is None else text_of(properties.message_id)


@cache
def _decoder() -> Callable[[bytes], Any]:
    """Return rstream's decoder with the types that it lacks; it returns times as numbers."""
    from rstream import amqp_decoder
    from rstream._pyamqp import _decode

    def of(n: int, read: Callable[[bytes], Any]) -> Callable[[memoryview], tuple[memoryview, Any]]:
        return lambda buffer: (buffer[n:], read(buffer[:n].tobytes()))

    vars(_decode)["_DECODE_BY_CONSTRUCTOR"][_CHAR] = of(4, lambda content: content.decode("utf-32-be"))
    for constructor, n in _DECIMALS.items():
        vars(_decode)["_DECODE_BY_CONSTRUCTOR"][constructor] = of(n, decimal_of)
    vars(_decode)["_DECODE_BY_CONSTRUCTOR"][_TIMESTAMP] = of(
        8, lambda content: time_of_ms(int.from_bytes(content, "big", signed=True))
    )
    return cast("Callable[[bytes], Any]", amqp_decoder)
