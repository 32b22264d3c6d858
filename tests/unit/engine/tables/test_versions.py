"""Versions of tables: which one is valid, what is kept of them, and keys whose numbers are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import prepared_versions
from cep.engine.tables import versions as module
from cep.engine.tables.tables import GivenTable
from cep.engine.tables.versions import SameNumberError, Sought, Versions, key_numbers
from cep.errors import InputError, Source, StateError
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.schema.stream import Field, Stream, TableKind, TableSettings


def versions(rows: Sequence[tuple[str, int, int | None]], seed: int = 0) -> Versions:
    """Return versions of (key, time, value); a value of None is a deletion."""
    keys, times, values = zip(*rows, strict=True) if rows else ((), (), ())
    return Versions.of(
        pa.array(keys, pa.string()),
        np.array(times, np.int64),
        np.array([value is None for value in values], np.bool_),
        pa.table({"x": pa.array(values, pa.int64())}),
        (),
        seed,
    )


def found(of: Versions, asked: Sequence[tuple[str | None, int]], seed: int = 0) -> list[int | None]:
    keys = pa.array([key for key, _ in asked], pa.string())
    rows = of.rows_at(Sought.of(keys, seed), np.array([time for _, time in asked], np.int64))
    values = of.values.column("x").to_pylist()
    return [None if row < 0 else values[row] for row in rows.tolist()]


def test_the_latest_version_at_or_before_a_time_is_found() -> None:
    of = versions([("b", 5, 50), ("a", 3, 30), ("a", 1, 10), ("a", 3, 31), ("b", 9, None)])
    asked = [
        ("a", 0),
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("a", 9),
        ("b", 4),
        ("b", 5),
        ("b", 9),
        ("c", 9),
        (None, 9),
    ]
    assert found(of, asked) == [None, 10, 10, 31, 31, None, 50, None, None, None]


@pytest.mark.parametrize("n_keys", [1, 3, 50])
@pytest.mark.parametrize("n_versions", [0, 1, 4, 300])
def test_all_are_found_as_a_plain_search_finds_them(n_keys: int, n_versions: int) -> None:
    random = np.random.default_rng(n_keys + n_versions)
    rows = [
        (f"k{random.integers(n_keys)}", int(random.integers(20)), int(random.integers(99)))
        for _ in range(n_versions)
    ]
    asked = [(f"k{random.integers(n_keys + 2)}", int(random.integers(22))) for _ in range(60)]
    plain: list[int | None] = []
    for key, time in asked:
        valid = [row for row in rows if row[0] == key and row[1] <= time]
        last = max((row[1] for row in valid), default=None)
        plain.append(next((value for _, at, value in reversed(valid) if at == last), None))
    assert found(versions(rows), asked) == plain


@pytest.fixture
def weak_numbers() -> Iterator[None]:
    """Let all texts have one of two numbers, until the third seed tells them apart."""

    def weak(keys: pa.Array, seed: int) -> np.ndarray:
        numbers = key_numbers(keys, seed)
        return numbers & 1 if pa.types.is_string(keys.type) and seed < 2 else numbers

    with mock.patch.object(module, "key_numbers", weak):
        yield


def test_two_keys_of_one_number_are_never_mixed_up(weak_numbers: None) -> None:
    rows = [(f"k{number}", 1, number) for number in range(9)]
    with pytest.raises(SameNumberError):
        versions(rows)
    one = versions([("k0", 1, 7)])
    assert found(one, [(f"k{number}", 2) for number in range(9)]) == [7, *[None] * 8]


EVENTS = Stream("events", (Field("key", "string"), Field("ts", "timestamp")), "ts")


def table(kind: TableKind, max_rows: int | None = None) -> Stream:
    fields = (Field("key", "string"), Field("at", "timestamp"), Field("op", "string"), Field("x", "bigint"))
    is_static = kind is TableKind.STATIC
    settings = TableSettings(("key",), kind, None if is_static else "op", max_rows)
    return Stream("rows", fields, "" if is_static else "at", table=settings)


RULE = (
    "RULE r FROM events JOIN rows ON key PARTITION BY key PATTERN a DEFINE a AS TRUE MEASURES a.rows.x AS x"
)


def matches_in_steps(of: Stream, n_keys: int, *, restores: bool = True) -> list[int | None]:
    """Return x of events while versions of `n_keys` keys come and go, restored after each step."""
    (program,) = compile_sources([Source("r.cep", RULE)], {"events": EVENTS, "rows": of}).programs
    matcher = Matcher(program)
    values: list[int | None] = []
    for step in range(1, 8):
        time = 10 * step
        changes = [
            {"key": f"k{key}", "at": time, "op": "d" if (key + step) % 5 == 0 else "u", "x": key * step}
            for key in range(0, n_keys, step)
        ]
        for rows in prepared_versions(program, of, event_table(of, changes)):
            assert matcher.push(rows).num_rows == 0
        events = [{"key": f"k{key}", "ts": time + 1} for key in range(n_keys)]
        matcher.push(prepare(program, event_table(EVENTS, events)))
        values += matcher.advance(time + 5).sort_by("key").column("x").to_pylist()
        if restores:
            matcher = Matcher.restore(program, matcher.snapshot())
    return values


def test_keys_of_one_number_do_not_change_what_rules_find(weak_numbers: None) -> None:
    with_weak = matches_in_steps(table(TableKind.CHANGELOG), 12)
    with mock.patch.object(module, "key_numbers", key_numbers):
        assert matches_in_steps(table(TableKind.CHANGELOG), 12) == with_weak
    assert len(set(with_weak)) > 10


@pytest.mark.parametrize("few", [0, 64])
def test_rows_that_are_moved_together_say_what_they_said_before(few: int) -> None:
    of = table(TableKind.CHANGELOG)
    with mock.patch("cep.engine.keys.kept_rows._FEW", few):
        assert matches_in_steps(of, 12, restores=False) == matches_in_steps(of, 12)


def test_rows_are_counted_exactly_when_they_come_and_go() -> None:
    of = table(TableKind.REPLICATED, max_rows=2)
    rows: list[dict[str, Any]] = [
        {"key": "a", "at": 1, "op": "c", "x": 1},
        {"key": "b", "at": 2, "op": "c", "x": 1},
        {"key": "a", "at": 3, "op": "d", "x": None},
        {"key": "c", "at": 4, "op": "c", "x": 1},
        {"key": "a", "at": 5, "op": "c", "x": 1},
    ]
    (program,) = compile_sources([Source("r.cep", RULE)], {"events": EVENTS, "rows": of}).programs
    matcher = Matcher(program)
    for row in rows[:-1]:
        for prepared in prepared_versions(program, of, event_table(of, [row])):
            matcher.push(prepared)
        matcher.advance(row["at"])
    for prepared in prepared_versions(program, of, event_table(of, rows[-1:])):
        matcher.push(prepared)
    with pytest.raises(InputError, match="has 3 rows, it may have 2") as error:
        matcher.advance(9)
    assert error.value.code == "E0619"


def test_a_static_table_must_be_given() -> None:
    of = table(TableKind.STATIC)
    streams = {"events": EVENTS, "rows": of}
    (program,) = compile_sources([Source("r.cep", RULE)], streams).programs
    with pytest.raises(InputError) as error:
        Matcher(program)
    assert error.value.code == "E0620"
    rows = [{"key": "a", "x": 1}, {"key": "a", "x": 2}]
    matcher = Matcher(program, {"rows": GivenTable(of, event_table(of, rows))})
    matcher.push(prepare(program, event_table(EVENTS, [{"key": "a", "ts": 1}])))
    assert matcher.finish().column("x").to_pylist() == [2]
    found_here = find_matches(RULE, streams, {"events": [{"key": "a", "ts": 1}], "rows": rows})
    assert [match["x"] for match in found_here] == [2]


def test_a_version_behind_the_watermark_is_late_and_no_event() -> None:
    of = table(TableKind.CHANGELOG)
    (program,) = compile_sources([Source("r.cep", RULE)], {"events": EVENTS, "rows": of}).programs
    matcher = Matcher(program)
    matcher.advance(10)
    rows = [{"key": "a", "at": at, "op": "c", "x": at} for at in (9, 10, 11)]
    (prepared,) = prepared_versions(program, of, event_table(of, rows))
    assert matcher.push(prepared).num_rows == 2
    assert (matcher.counters.events, matcher.counters.late) == (0, 0)


def test_a_damaged_section_of_a_table_is_refused() -> None:
    of = table(TableKind.CHANGELOG)
    (program,) = compile_sources([Source("r.cep", RULE)], {"events": EVENTS, "rows": of}).programs
    matcher = Matcher(program)
    rows = [{"key": "a", "at": 1, "op": "c", "x": 1}]
    for prepared in prepared_versions(program, of, event_table(of, rows)):
        matcher.push(prepared)
    matcher.advance(5)
    context = matcher._context
    assert context is not None
    (section,) = context.table_sections()
    other = type(section)(section.meaning, section.rows.rename_columns(["#key", "y"]))
    with pytest.raises(StateError, match="do not fit its rules"):
        context.restore((), 0, (other,))
