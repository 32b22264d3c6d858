"""Order of events: key, time, tie breakers, arrival; and what makes two events the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from cep.engine.order.ordering import (
    key_values,
    numbered,
    order_by_time,
    order_events,
    places_in,
    text_hashes,
)
from cep.engine.warm import smallest_program


def table(*rows: tuple[str, int, str | None, int | None]) -> pa.Table:
    program = smallest_program()
    columns = dict(zip(("key", "_ts_us", "id", "n"), zip(*rows, strict=True), strict=True))
    columns["_bits0"] = [0] * len(rows)  # type: ignore[assignment]
    return pa.table({name: columns[name] for name in program.event_schema.names}, schema=program.event_schema)


def test_events_are_ordered_by_key_time_and_tie_breakers_with_null_first() -> None:
    ordered = order_events(
        smallest_program(),
        table(("k", 2, "b", 1), ("m", 1, "a", 1), ("k", 2, "a", 2), ("k", 1, "z", 9), ("k", 2, None, 5)),
    )
    assert ordered.rows.tolist() == [3, 4, 2, 0, 1]


def test_the_second_tie_breaker_decides_where_the_first_is_equal() -> None:
    ordered = order_events(smallest_program(), table(("k", 1, "a", 3), ("k", 1, "a", None), ("k", 1, "a", 2)))
    assert ordered.rows.tolist() == [1, 2, 0]


def test_equal_events_keep_their_arrival_and_differ_in_identity() -> None:
    ordered = order_events(smallest_program(), table(("k", 1, "a", 3), ("k", 1, "a", 3)))
    assert ordered.rows.tolist() == [0, 1]
    assert ordered.identity[0] != ordered.identity[1]


def test_identity_does_not_depend_on_the_batch() -> None:
    program = smallest_program()
    alone = order_events(program, table(("k", 1, "b", 3)))
    among = order_events(program, table(("k", 1, "a", 3), ("m", 0, "b", 3), ("k", 1, "b", 3)))
    assert among.identity[among.rows.tolist().index(2)] == alone.identity[0]


def test_keys_of_several_columns_differ_where_their_texts_would_run_together() -> None:
    columns = pa.table({"p": ["a", "ab", "a:1", None], "q": ["bc", "c", "x", "bc"]})
    values = key_values(columns, ("p", "q"))
    assert len(set(values.to_pylist())) == 4


@pytest.mark.parametrize("n_known", [0, 1, 3, 9])
def test_keys_are_found_whichever_side_is_longer(n_known: int) -> None:
    known = pa.array(["f", None, "c", "x", "y", "z", "a", "u", "v"][:n_known], pa.string())
    keys = pa.array(["a", "b", None, "f"])
    expected = [known.to_pylist().index(key) if key in known.to_pylist() else -1 for key in keys.to_pylist()]
    assert places_in(keys, known).tolist() == expected


def test_a_text_is_hashed_as_often_as_it_comes_in_the_same_way_wherever_it_lies() -> None:
    draw = np.random.default_rng(1)
    known = [
        "",
        "\0",
        "\0\0",
        "a",
        "a\0",
        "Straße",
        *("xy" * length + end for length in range(20) for end in "zß"),
    ]
    of = dict(zip(known, text_hashes(pa.array(known)).tolist(), strict=True))
    assert len(set(of.values())) == len(known)
    for n in (1, 2, 5, 300):
        texts = draw.choice(np.array(known, object), n).tolist()
        keys = pa.array(["before", *texts, "behind"]).slice(1, n)
        for column in (keys, pa.array(texts)):  # the last text ends where the buffer does
            codes, distinct, first_rows, hashes = numbered(column)
            assert distinct.take(pa.array(codes)).to_pylist() == texts
            assert distinct.to_pylist() == list(dict.fromkeys(texts))
            assert [texts[row] for row in first_rows] == distinct.to_pylist()
            assert hashes is not None
            assert hashes.tolist() == [of[text] for text in distinct.to_pylist()]


@pytest.mark.parametrize("n", [0, 1, 2, 1000, 5000])
@pytest.mark.parametrize(
    "n_bits", [0, 1, 10, 11, 12, 33, 40, 62]
)  # one digit and more; too far apart for 63 bits
def test_rows_are_in_order_of_time_and_equal_times_in_order_of_rows(n: int, n_bits: int) -> None:
    times = np.random.default_rng(n + n_bits).integers(-(1 << n_bits), 1 << n_bits, n)
    assert order_by_time(times).tolist() == np.argsort(times, kind="stable").tolist()
    times.sort()
    assert order_by_time(times).tolist() == list(range(n))
