"""Values of AMQP 1.0 in a spool: any type becomes text."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from cep.spool.receivers.amqp import _text, _value


class Timestamp(int):
    """As proton's class of this name."""


class Decimal32(int):
    """As proton's class of this name."""


class Described:
    """As proton's class of this name."""

    def __init__(self, value: Any) -> None:
        self.value = value


Timestamp.__name__, Decimal32.__name__ = "timestamp", "decimal32"


@pytest.mark.parametrize("key", [uuid.UUID(int=1), b"binary", 1, None, True])
def test_a_map_with_keys_of_any_type_is_json(key: Any) -> None:
    ((name, value),) = json.loads(_value({key: [1]})).items()
    assert (name, value) == (str(_text(key)), [1])


def test_headers_of_protons_types_are_texts() -> None:
    values = Timestamp(1_714_557_600_000), Decimal32(0x3180000F), True, Described({"a": Timestamp(0)})
    assert [*map(_text, values)] == [
        "2024-05-01T10:00:00.000000Z",
        "0.15",
        "true",
        '{"a": "1970-01-01T00:00:00.000000Z"}',
    ]
