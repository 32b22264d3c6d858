"""Typed values of other protocols, such as headers of AMQP, as text and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from cep.schema.opaque_values import iso_text
from cep.schema.text_values import word_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DECIMALS = {4: (8, 7), 8: (10, 16), 16: (14, 34)}
"""Bytes of a decimal of IEEE 754 -> the bits of its exponent, and its digits."""


def _same(value: Any) -> Any:
    return value


def text_of(value: Any, known: Callable[[Any], Any] = _same) -> str | None:
    """Return a value as text; None stays None.

    Times are ISO 8601 in UTC, tables and arrays JSON. Bytes that are not UTF-8 stay recognizable, so that the
    message is refused. `known` converts the protocol's own types.
    """
    value = known(value)
    if value is None:
        return None
    text = _plain_text(value)
    return json_of(value, known) if text is None else text


def json_of(value: Any, known: Callable[[Any], Any] = _same) -> str:
    """Return any value as JSON. Keys become strings; what JSON lacks is a string as in `text_of`."""
    try:
        return _json_of(value, known)
    except RecursionError:
        return _quoted("nested too deeply")


def body_of(value: Any, known: Callable[[Any], Any] = _same) -> bytes:
    """Return the body of a message: bytes and text as they are, nothing as b"", any other value as JSON."""
    value = known(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if value is None:
        return b""
    text = value if isinstance(value, str) else json_of(value, known)
    return text.encode(errors="surrogatepass")


def time_of_ms(ms: int) -> datetime | int:
    """Return a time in milliseconds since 1970; one outside the years 1 to 9999 stays a number."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return ms


def decimal_of(content: bytes) -> Decimal:
    """Return a decimal of IEEE 754 in the binary encoding, of 4, 8 or 16 bytes in big-endian order."""
    (n_exponent, n_digits), n_bits = _DECIMALS[len(content)], 8 * len(content)
    bits = int.from_bytes(content, "big")
    is_negative, n_rest = bits >> (n_bits - 1), n_bits - 1 - n_exponent
    special = bits >> (n_bits - 6) & 0b11111
    if special >= 0b11110:
        return Decimal("NaN" if special & 1 else "-Infinity" if is_negative else "Infinity")
    lead = 0
    if bits >> (n_bits - 3) & 0b11 == 0b11:  # a large coefficient: its first bits are 100
        n_rest -= 2
        lead = 0b100 << n_rest
    coefficient = lead | bits & ((1 << n_rest) - 1)
    exponent = (bits >> n_rest & ((1 << n_exponent) - 1)) - 3 * 2 ** (n_exponent - 3) - n_digits + 2
    digits = tuple(map(int, str(coefficient if coefficient < 10**n_digits else 0)))
    return Decimal((is_negative, digits, exponent))


def _json_of(value: Any, known: Callable[[Any], Any]) -> str:
    value = known(value)
    match value:
        case bool() | int() | Decimal() if _is_finite(value):
            return _plain_text(value) or ""
        case float() if _is_finite(value):
            return repr(float(value))
        case None:
            return "null"
        case Mapping():
            members = ((text_of(name, known), _json_of(one, known)) for name, one in value.items())
            return "{" + ", ".join(f"{_quoted(str(name))}: {text}" for name, text in members) + "}"
        case list() | tuple():
            return f"[{', '.join(_json_of(one, known) for one in value)}]"
        case _:
            return _quoted(_plain_text(value) or "")


def _plain_text(value: Any) -> str | None:
    """Return a value as text, or None if only JSON can write it."""
    match value:
        case bytes() | bytearray() | memoryview():
            return bytes(value).decode(errors="surrogateescape")
        case str():
            return str(value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value))
        case float():
            return repr(float(value)) if _is_finite(value) else word_of(value)
        case datetime():
            return iso_text(value if value.tzinfo else value.replace(tzinfo=UTC))
        case Mapping() | list() | tuple():
            return None
        case _:
            return str(value)


def _is_finite(value: Any) -> bool:
    return value.is_finite() if isinstance(value, Decimal) else isinstance(value, int) or math.isfinite(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
