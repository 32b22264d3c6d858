"""How many key groups there may be. `tests/spark/test_key_groups.py` compares their labels with Spark."""

from __future__ import annotations

import pytest

from cep.commands.savepoint import MOST_KEY_GROUPS
from cep.errors import InputError
from spark_runtime.wire.key_groups import MOST, require_few


def test_too_many_key_groups_are_refused_before_anything_is_made_for_each() -> None:
    assert require_few(MOST, "key_groups") == MOST == MOST_KEY_GROUPS
    for number in (0, MOST + 1, 10**9):
        with pytest.raises(InputError, match=f"key_groups is {number}\nhelp: .* from 1 to 10,000"):
            require_few(number, "key_groups")
