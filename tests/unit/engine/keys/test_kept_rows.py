"""Rows by their keys: any text or number, equal hashes, rows that go and come back, beside a plain dict."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from cep.engine.keys import kept_rows
from cep.engine.keys.kept_rows import KeptRows
from cep.expression import Type

TYPES = {"n": Type.BIGINT, "d": Type.DOUBLE, "b": Type.BOOLEAN, "s": Type.STRING}
TEXTS = ["", "a", "b", "ab", "Straße", "x" * 15, "x" * 16, "x" * 17, "x" * 16 + "y", "y" * 40, "a\0", "\0a"]
NUMBERS = [0, 1, -1, 2**62, -(2**63), 2**63 - 1, 1 << 32, 7]

Row = tuple[Any, ...]


def drawn(random: np.random.Generator) -> Row:
    def one(*values: Any) -> Any:
        return values[random.integers(len(values))]

    return (
        one(0, -5, 2**60, None),
        one(0.5, float("inf"), None),
        one(True, False, None),
        one("", "p", "Straße" * 9, None),
    )


def columns(rows: list[Row]) -> dict[str, pa.Array]:
    kinds = (pa.int64(), pa.float64(), pa.bool_(), pa.string())
    return {
        name: pa.array([row[at] for row in rows], kind)
        for at, (name, kind) in enumerate(zip(TYPES, kinds, strict=True))
    }


def read(rows: KeptRows, keys: pa.Array) -> list[Row]:
    places = rows.that_are_there(rows.find(keys))
    return list(zip(*(rows.values(name, places).to_pylist() for name in TYPES), strict=True))


@pytest.mark.parametrize("few", [0, 64])
@pytest.mark.parametrize("bits", [0, 1, 64])
@pytest.mark.parametrize(("known", "kind"), [(TEXTS, pa.string()), (NUMBERS, pa.int64())])
def test_rows_are_those_of_a_dict(known: list[Any], kind: pa.DataType, bits: int, few: int) -> None:
    hashes = kept_rows.key_hashes
    mask = np.int64(-1 if bits == 64 else (1 << bits) - 1)
    random = np.random.default_rng(bits)
    plain: dict[Any, Row] = {}
    rows = KeptRows(TYPES)
    with (
        mock.patch.object(kept_rows, "key_hashes", lambda keys: hashes(keys) & mask),
        mock.patch("cep.engine.keys.kept_rows._FEW", few),
    ):
        for _ in range(60):
            chosen = [known[at] for at in random.permutation(len(known))[: random.integers(len(known))]]
            values = [drawn(random) for _ in chosen]
            is_deleted = random.random(len(chosen)) < 0.4
            places = rows.add(pa.array(chosen, kind))
            rows.change(places, is_deleted, columns(values), np.arange(len(chosen)))
            for key, row, is_gone in zip(chosen, values, is_deleted, strict=True):
                plain.pop(key, None)
                if not is_gone:
                    plain[key] = row
            asked = pa.array([*known, None], kind)
            assert read(rows, asked) == [plain.get(key, (None,) * 4) for key in [*known, None]]
            assert rows.n_rows == len(plain)
            assert set(rows.keys().to_pylist()) == plain.keys()
        other = KeptRows(TYPES)
        other.keep(rows.keys(), {name: rows.values(name, rows.places()) for name in TYPES})
        assert read(other, asked) == read(rows, asked)


def test_many_keys_of_one_batch_are_added_once_each() -> None:
    rows = KeptRows({"n": Type.BIGINT})
    keys = pa.array([f"a long name of key {number % 500}" for number in range(3000)])
    places = rows.add(keys)
    assert (np.unique(places) == np.arange(500)).all()
    assert (places[:500] == places[2500:]).all()
    assert (rows.find(keys) == places).all()


def test_a_key_that_is_stored_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        KeptRows({}).keep(pa.array(["a", "b", "a"]), {})


def test_tables_do_not_share_their_first_letter() -> None:
    tables = [KeptRows({"s": Type.STRING}) for _ in range(2)]
    for table, text in zip(tables, "pq", strict=True):
        places = table.add(pa.array([1]))
        table.change(places, np.zeros(1, np.bool_), {"s": pa.array([text])}, np.zeros(1, np.int64))
    assert [table.values("s", table.places()).to_pylist() for table in tables] == [["p"], ["q"]]
