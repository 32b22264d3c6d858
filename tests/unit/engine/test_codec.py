"""Snapshots: what is refused, and that nothing of another program is ever read."""

from __future__ import annotations

import pytest

from cep.engine.matcher import Matcher
from cep.errors import StateError
from cep.program import Program
from tests.unit.engine.events import SECOND, prepared, program

DEFINE = "a AS letter = 'a', b AS letter = 'b'"


def snapshot(compiled: Program) -> bytes:
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a"), ("k", 9, "a")))
    matcher.advance(2 * SECOND)
    return matcher.snapshot()


def test_counters_and_watermark_survive() -> None:
    compiled = program("a -> b", define=DEFINE)
    restored = Matcher.restore(compiled, snapshot(compiled))
    assert restored.watermark_us == 2 * SECOND
    assert restored.counters.events == 2
    assert restored.n_open_runs == 1
    assert restored.next_deadline_us() == 9 * SECOND


def test_a_restored_matcher_writes_the_same_again() -> None:
    compiled = program("a -> b", define=DEFINE)
    second = Matcher.restore(compiled, snapshot(compiled)).snapshot()
    assert Matcher.restore(compiled, second).snapshot() == second


def test_state_of_other_rules_is_refused_with_the_way_out() -> None:
    data = snapshot(program("a -> b", define=DEFINE))
    other = program("a ->> b", define=DEFINE)
    with pytest.raises(StateError, match="written by other rules") as caught:
        Matcher.restore(other, data)
    assert caught.value.code == "E0701"
    assert "new checkpoint" in caught.value.help


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda data: b"", "E0702"),
        (lambda data: b"XXXX" + data[4:], "E0702"),
        (lambda data: data[:4] + b"\x09\x00" + data[6:], "E0703"),
        (lambda data: data[:-1], "E0702"),
        (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "E0702"),
    ],
)
def test_damaged_bytes_are_refused(damage: object, code: str) -> None:
    assert callable(damage)
    compiled = program("a -> b", define=DEFINE)
    with pytest.raises(StateError) as caught:
        Matcher.restore(compiled, damage(snapshot(compiled)))
    assert caught.value.code == code


def test_an_open_run_takes_at_most_64_bytes() -> None:
    compiled = program("a -> b->{2,}", "WITHIN 2 HOURS", define=DEFINE)
    n = 5_000
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *((f"key {i % 500}", i, "a") for i in range(1, n + 1))))
    matcher.advance(n * SECOND)
    assert matcher.n_open_runs > 4_000
    assert len(matcher.snapshot()) < 64 * matcher.n_open_runs
