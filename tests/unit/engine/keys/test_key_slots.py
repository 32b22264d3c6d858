"""Slots of keys beside a plain list, with the index of known keys and without, while keys are forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from cep.engine.keys.key_slots import KeySlots
from cep.engine.order.ordering import key_values, numbered

KINDS: dict[str, tuple[list[pa.DataType], Callable[[int], tuple[Any, ...]]]] = {
    "text": ([pa.string()], lambda number: (f"{'a long name of a ' * (number % 2)}key {number}",)),
    "number": ([pa.int64()], lambda number: (number * 10**12 if number % 2 else -number,)),
    "time": ([pa.timestamp("us")], lambda number: (number,)),
    "text and number": ([pa.string(), pa.int64()], lambda number: ("k" * (number % 7), number // 7)),
}


@pytest.mark.parametrize("many", [0, 30, 10**9])
@pytest.mark.parametrize("kind", KINDS)
def test_slots_are_those_of_a_plain_list(kind: str, many: int) -> None:
    types, key_of = KINDS[kind]
    names = ("p", "q")[: len(types)]
    draw = np.random.default_rng(len(kind))
    keys = KeySlots(names, [pa.array([], of_column) for of_column in types])
    plain: list[tuple[Any, ...]] = []
    had_index = 0
    with mock.patch("cep.engine.keys.key_slots._MANY", many):
        for turn in range(60):
            n = int(draw.integers(1, 10 if turn % 4 else 60))
            rows = [key_of(int(number)) for number in draw.integers(0, 150, n)]
            columns = zip(names, types, zip(*rows, strict=True), strict=True)
            table = pa.table({name: pa.array(values, of_column) for name, of_column, values in columns})
            _, of_batch, first_rows, hashes = numbered(key_values(table, names))
            slots = keys.place(table, of_batch, first_rows, hashes if turn % 2 else None)
            plain += [key for key in dict.fromkeys(rows) if key not in plain]
            assert slots.dtype == np.int32
            assert slots.tolist() == [plain.index(key) for key in dict.fromkeys(rows)]
            had_index += keys._index is not None
            if draw.random() < 0.1:
                live = draw.random(len(keys)) < 0.7
                keys.keep(live)
                plain = [key for key, is_live in zip(plain, live, strict=True) if is_live]
            known = [pa.array(values, of) for of, values in zip(types, zip(*plain, strict=True), strict=True)]
            assert len(keys) == len(plain)
            assert all(column.equals(other) for column, other in zip(keys.columns, known, strict=True))
    assert bool(had_index) == (many < 10**9 and kind != "time")
