"""The state of a key group: the snapshots of its programs, found by fingerprint."""

from __future__ import annotations

import random
import struct

import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source, StateError
from cep.program.program import Program
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import decode_state, encode_state
from tests.unit.engine.events import SECOND, STREAM, events

BY_KEY = (
    "RULE by_key FROM events PARTITION BY k PATTERN a -> b WITHIN 10 SECONDS DEFINE a AS x < 1, b AS x > 1"
)
BY_NUMBER = BY_KEY.replace("by_key", "by_number").replace("BY k", "BY n")
ALSO_BY_KEY = BY_KEY.replace("by_key", "also_by_key").replace("x > 1", "x > 2")


def rules(*texts: str) -> RuleSet:
    return compile_sources([Source("r", text) for text in texts], {"events": STREAM}).rule_set


def state_of(rule_set: RuleSet) -> bytes:
    matchers = [Matcher(program) for program in rule_set.programs]
    for matcher in matchers:
        matcher.push(prepare(matcher.program, events(("k", 1, "a", 0.0, 1), ("k", 9, "a", 0.0, 2))))
        matcher.advance(2 * SECOND)
    return encode_state(matchers, 4)


def refusal(data: bytes, rule_set: RuleSet) -> str:
    with pytest.raises(StateError) as caught:
        decode_state(data, rule_set, 4)
    return str(caught.value)


def test_programs_in_another_order_find_their_snapshots() -> None:
    data = state_of(rules(BY_KEY, BY_NUMBER, ALSO_BY_KEY))
    other = rules(BY_NUMBER, ALSO_BY_KEY, BY_KEY)
    matchers = decode_state(data, other, 4)
    programs = [of.program for of in matchers if isinstance(of.program, Program)]
    assert [program.key for program in programs] == [("n",), ("k",)]
    assert [sum(matcher.open_runs.values()) for matcher in matchers] == [1, 2]


def test_the_rule_that_differs_is_named() -> None:
    data = state_of(rules(BY_KEY, BY_NUMBER, ALSO_BY_KEY))
    changed = rules(BY_KEY, BY_NUMBER, ALSO_BY_KEY.replace("x > 2", "x > 3"))
    assert refusal(data, changed) == (
        "error[E0701]: the stored state was written by other rules: "
        "rule `also_by_key` has changed: its conditions\n"
        "help: restore the rules as they were, or start from a new checkpoint"
    )


@pytest.mark.parametrize(
    ("then", "now", "fact"),
    [
        ((BY_KEY,), (BY_KEY, BY_NUMBER), "rule `by_number` is new"),
        ((BY_KEY, BY_NUMBER), (BY_KEY,), "rule `by_number` is gone"),
        (
            (BY_KEY,),
            (BY_KEY.replace("BY k", "BY n"),),
            "rule `by_key` has changed: its key is `n` (bigint) instead of `k` (string)",
        ),
    ],
)
def test_a_program_more_or_less_is_told(then: tuple[str, ...], now: tuple[str, ...], fact: str) -> None:
    assert refusal(state_of(rules(*then)), rules(*now)) == (
        f"error[E0701]: the stored state was written by other rules: {fact}\n"
        "help: restore the rules as they were, or start from a new checkpoint"
    )


def test_state_of_the_format_before_is_refused_with_both_versions() -> None:
    data = state_of(rules(BY_KEY))
    assert refusal(data[:4] + struct.pack("<H", 2) + data[6:], rules(BY_KEY)) == (
        "error[E0703]: the stored state has format 2, this version reads 3\n"
        "help: continue with the version of spark-cep that wrote it, or start from a new checkpoint"
    )


@pytest.mark.parametrize("seed", range(4))
def test_damaged_state_is_refused(seed: int) -> None:
    rule_set = rules(BY_KEY, BY_NUMBER)
    data = state_of(rule_set)
    draw = random.Random(seed)
    for _ in range(200):
        damaged = bytearray(data)
        if draw.randrange(2):
            del damaged[draw.randrange(len(data)) :]
        else:
            at = draw.randrange(len(data))
            damaged[at] ^= 1 << draw.randrange(8)
        with pytest.raises(StateError) as caught:
            decode_state(bytes(damaged), rule_set, 4)
        assert caught.value.code in {"E0701", "E0702", "E0703", "E0704"}
