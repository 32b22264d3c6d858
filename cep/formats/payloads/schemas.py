"""Schemas by number, and the bytes by which Confluent's clients mark the schema of a message.

A message starts with a zero byte and the number of its schema, four bytes in big-endian order.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cep.arrays import I64, Mask
from cep.formats.lines import Lines
from cep.formats.text.messages import EMPTY

FRAME_BYTES = 5
CONFLUENT, NONE = "confluent", "none"
FRAMINGS = (CONFLUENT, NONE)

NO_FRAME = "no schema's number: the first byte is not 0"
TOO_SHORT = f"no schema's number: the message has fewer than {FRAME_BYTES} bytes"


class SchemaSource(Protocol):
    """Returns schemas by their numbers. It is sent to the workers, so it holds no connection."""

    def check(self) -> None:
        """Raise InputError if it does not answer. On the driver, before anything runs."""

    def schema(self, number: int, form: str = "") -> str | None:
        """Return the text of a schema, None if there is none of this number.

        Raises InputError: it does not answer, or refuses access. Messages do not become dead letters for this
        reason.

        `form`: the form of the schema, if there are several: ``serialized``.
        """


def unknown_schema(number: int) -> str:
    """Return the reason for a message with an unknown schema."""
    return f"schema {number} is not in the registry"


def frameless(record: bytes) -> str:
    """Return the reason for a message without a frame."""
    if not record:
        return EMPTY
    return NO_FRAME if record[0] else TOO_SHORT


def unframed(records: Lines) -> tuple[Lines, I64, Mask]:
    """Return messages without frames, the numbers of their schemas (int64[n]), and which have no frame."""
    starts, ends = records.starts, records.ends
    is_short = ends - starts < FRAME_BYTES
    safe = np.where(is_short, 0, starts)
    data = records.data if len(records.data) >= FRAME_BYTES else np.zeros(FRAME_BYTES, np.uint8)
    numbers = np.zeros(len(starts), np.int64)
    for at in range(1, FRAME_BYTES):
        numbers = numbers << 8 | data[safe + at]
    bad = is_short | (data[safe] != 0)
    return Lines(records.data, np.where(bad, starts, starts + FRAME_BYTES), ends), numbers, bad
