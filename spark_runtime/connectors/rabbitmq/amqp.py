"""Extracts the values of RabbitMQ messages from AMQP 1.0."""

from __future__ import annotations

import json
from typing import Any

_SECTION, _SMALL, _LARGE = b"\x00S", 0xA0, 0xB0
_DATA = b"\x00Su"


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
    if found.body is not None and not isinstance(found.body, bytes | bytearray):
        parts = list(found.body) if isinstance(found.body, list) else [found.body]
        return b"".join(map(_bytes, parts)) if parts else None
    body = found.body if found.body is not None else found.value
    return None if body is None else _bytes(body)


def decoded(message: bytes) -> Any:
    """Return a message with its sections; None if it is not AMQP 1.0."""
    from rstream import amqp_decoder

    if message[:2] != _SECTION:
        return None
    try:
        return amqp_decoder(message)
    except Exception:  # noqa: BLE001 - rstream's decoder raises whatever it runs into
        return None


def headers(message: bytes) -> dict[str, str | None]:
    """Return the application properties of a message as strings."""
    found = decoded(message)
    properties = {} if found is None else found.application_properties or {}
    return {_text(name) or "": _text(item) for name, item in properties.items()}


def message_id(message: bytes) -> str | None:
    """Return the `message_id` of a message."""
    found = decoded(message)
    properties = None if found is None else found.properties
    return None if properties is None else _text(properties.message_id)


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    if isinstance(body, str):
        return body.encode()
    return json.dumps(body, default=str).encode()


def _text(item: Any) -> str | None:
    if item is None:
        return None
    # Bytes that are not UTF-8 stay recognizable, so that the message is refused.
    return item.decode(errors="surrogateescape") if isinstance(item, bytes) else str(item)
