"""The state of a key group: the snapshots of its programs, found by fingerprint."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source, StateError
from cep.program.match_stream import MatchStream
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pointer import Kept, Task
from spark_runtime.state.snapshots import decode_state, encode_state
from tests.unit.engine.events import SECOND, STREAM, events

BY_KEY = (
    "RULE by_key FROM events PARTITION BY k PATTERN a -> b WITHIN 10 SECONDS DEFINE a AS x < 1, b AS x > 1"
)
BY_NUMBER = BY_KEY.replace("by_key", "by_number").replace("BY k", "BY n")
ALSO_BY_KEY = BY_KEY.replace("by_key", "also_by_key").replace("x > 1", "x > 2")


def rules(*texts: str, stream: Stream = STREAM) -> RuleSet:
    return compile_sources([Source("r", text) for text in texts], {"events": stream}).rule_set


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


IN_ORDER = BY_KEY.replace("a -> b", "a b c").replace("x > 1", "x > 1, c AS c.x > a.x")
WHOLE = f"{IN_ORDER.replace('by_key', 'whole')} ALL ROWS PER MATCH"
WINDOWED = (
    "RULE windowed FROM events PARTITION BY k PATTERN a LET total = SUM(x) OVER LAST 9 SECONDS "
    "DEFINE a AS total > 3 MEASURES total AS total"
)
OVER = (
    "RULE over FROM MATCHES OF by_key PARTITION BY k PATTERN a -> b WITHIN 30 SECONDS "
    "MEASURES a.match_id AS first"
)


@pytest.mark.parametrize("texts", [(IN_ORDER,), (WHOLE, BY_NUMBER), (WINDOWED, BY_KEY), (IN_ORDER, OVER)])
@pytest.mark.parametrize("in_files", [False, True])
def test_streams_may_declare_their_columns_in_another_order(
    texts: tuple[str, ...], in_files: bool, tmp_path: Path
) -> None:
    """State, also events that wait and records, is read by the names of columns."""
    other_stream = replace(STREAM, fields=STREAM.fields[::-1])
    then, now = rules(*texts), rules(*texts, stream=other_stream)
    rows = [
        ("k", second, "a", x, 1) for second, x in enumerate([0.0, 2.0, 3.0, 0.5, 4.0, 5.0, 0.0, 1.5, 2.0])
    ]
    kept = Kept(str(tmp_path), "run", 2, inline_bytes=0)

    def run(chain: Chain, start: int, end: int) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for number, program in enumerate(chain.rules.programs):
            if isinstance(program.stream, MatchStream):
                continue
            given = events(*rows[start:end])
            chain.push(number, prepare(program, given))
        chain.advance((end - 2) * SECOND, lambda table: found.extend(table.to_pylist()))
        return found

    for rule_set in (then, now):
        chain = Chain(then)
        before = run(chain, 0, 4)
        data = encode_state(chain.matchers, 4)
        if in_files:
            files = StateFiles(kept, then, 4)
            pointer = files.stored(data, Task(1, 0, 0, 0)).pointer
            assert pointer is not None
            chain = files.read(pointer)
            before += run(chain, 4, 6)
            pointer = files.after(pointer, Task(2, 0, 0, 1), chain).pointer
            assert pointer is not None
            assert pointer.records
            chain = StateFiles(kept, rule_set, 4).read(pointer)
        else:
            before += run(chain, 4, 6)
            data = encode_state(chain.matchers, 4)
            chain = Chain(rule_set, decode_state(data, rule_set, 4))
        found = before + run(chain, 6, 11)
        if rule_set is then:
            expected = found
    assert found == expected
    assert len(expected) > len(before) > 0


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
