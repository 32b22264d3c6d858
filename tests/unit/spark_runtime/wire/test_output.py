"""Matches on their way out of the operator: any number of them, in bounded memory."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_runtime.wire import output
from spark_runtime.wire.output import Matches

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])


def table(first: int, n: int) -> pa.Table:
    numbers = list(range(first, first + n))
    return pa.table([numbers, [f"t{number}" for number in numbers]], schema=SCHEMA)


def numbers(matches: Matches) -> list[int]:
    return [number for part in matches for number in part.column("n").to_pylist()]


def test_matches_beyond_the_limit_wait_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "MAX_WAITING", 10)
    monkeypatch.setattr(output, "MAX_MATCHES", 3)
    matches = Matches(SCHEMA)
    most = 0
    for first in range(0, 100, 4):
        matches.append(table(first, 4))
        most = max(most, matches.n_waiting)
    assert most <= 10
    assert matches
    for _ in range(2):  # for several sinks
        assert numbers(matches) == list(range(100))
        assert max(part.num_rows for part in matches) == 3
    matches.close()


def test_few_matches_stay_in_memory() -> None:
    matches = Matches(SCHEMA)
    assert not matches
    matches.append(table(0, 5))
    assert (numbers(matches), matches.n_waiting) == (list(range(5)), 5)
