"""Snapshots: sections by rule, what is refused, and that nothing of another program is ever read."""

from __future__ import annotations

import dataclasses
import random
import struct
import zlib
from collections.abc import Sequence

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.state.codec import VERSION, decode, encode
from cep.errors import Source, StateError
from cep.program.program import Program
from tests.unit.engine.events import SECOND, STREAM, events, prepared, program

DEFINE = "a AS letter = 'a', b AS letter = 'b'"

RULES = {
    "pairs": """RULE pairs FROM events PARTITION BY k PATTERN a -> b WITHIN 10 SECONDS
        DEFINE a AS letter = 'a', b AS letter = 'b' AND LOWER(s) <> a.s
        MEASURES a.x AS x, b.s AS word""",
    "sums": """RULE sums FROM events PARTITION BY k PATTERN c->+ -> d WITHIN 20 SECONDS
        DEFINE c AS letter = 'c', d AS letter = 'd' AND x * 2 > SUM(c.x)
        MEASURES SUM(c.x) AS total, ARRAY_AGG(UPPER(c.s)) AS names SUPPRESS FOR 1 SECOND""",
    "absences": """RULE absences FROM events PARTITION BY k PATTERN a -> !b -> c WITHIN 5 SECONDS
        DEFINE a AS letter = 'a', b AS letter = 'b', c AS letter = 'c'
        MEASURES c.n AS n ON TIMEOUT""",
}

STEPS = [
    [("k1", 1, "a", 1.0, 1, "u"), ("k1", 2, "c", 2.0, 2, "v"), ("k2", 2, "c", 3.0, 3, "w")],
    [("k1", 3, "c", 1.0, 4, "v"), ("k2", 4, "a", 2.0, 5, "u"), ("k1", 5, "b", 7.0, 6, "w")],
    [("k1", 6, "d", 9.0, 7, "v"), ("k2", 7, "d", 8.0, 8, "u"), ("k2", 8, "b", 5.0, 9, "w")],
    [("k1", 9, "a", 1.0, 10, "u"), ("k2", 30, "c", 2.0, 11, "v"), ("k1", 31, "d", 3.0, 12, "w")],
]
"""Events of which those of a step wait while the watermark is behind them."""


def compiled_rules(*names: str) -> Program:
    text = "\n".join(RULES[name] for name in names)
    (compiled,) = compile_sources([Source("test.cep", text)], {"events": STREAM}).programs
    return compiled


def snapshot(compiled: Program) -> bytes:
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a"), ("k", 9, "a")))
    matcher.advance(2 * SECOND)
    return matcher.snapshot()


def resealed(data: bytes) -> bytes:
    """Return damaged bytes with the checksum that fits them."""
    return data[:22] + struct.pack("<I", zlib.crc32(data[26:])) + data[26:]


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


def test_sections_are_read_without_the_program_that_wrote_them() -> None:
    compiled = compiled_rules("pairs", "sums")
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a", 1.0), ("k", 2, "c", 2.0)))
    matcher.advance(2 * SECOND)
    found = decode(matcher.snapshot())
    assert [section.name for section in found.rules] == ["pairs", "sums"]
    assert [section.rows.n_rows for section in found.rules] == [1, 2]
    assert found.identity() == compiled.identity
    pairs, sums = found.identity().rules
    assert [(item.name, item.type) for item in pairs.registers] == [
        ("LAST(a.s, 0)", "string"),
        ("LAST(a.x, 0)", "double"),
        ("LAST(b.s, 0)", "string"),
    ]
    assert pairs.states == ("a", "b")
    assert sums.states == ("c", "c (2)", "d")


# ---------------------------------------------------------------- the same rules in another order


@pytest.mark.parametrize("restored_after", [1, 2, 3])
def test_rules_in_another_order_go_on_where_they_were(restored_after: int) -> None:
    orders = (("pairs", "sums", "absences"), ("sums", "absences", "pairs"))
    one, other = (compiled_rules(*order) for order in orders)
    assert one.predicates != other.predicates
    assert one.fingerprint == other.fingerprint

    def matches(first: Program, then: Program) -> list[dict[str, object]]:
        matcher = Matcher(first)
        found: list[dict[str, object]] = []
        for number, rows in enumerate(STEPS):
            if number == restored_after:
                matcher = Matcher.restore(then, matcher.snapshot())
            matcher.push(prepare(matcher.program, numbered(rows, 10 * number)))
            found += matcher.advance(int(float(str(rows[1][1])) * SECOND)).to_pylist()
        found += matcher.finish().to_pylist()
        assert sum(matcher.counters.matches.values()) == sum(row["outcome"] == "match" for row in found)
        return sorted(found, key=lambda row: str((row["match_id"], row["outcome"])))

    expected = matches(one, one)
    assert {row["rule"] for row in expected} == set(orders[0])
    assert matches(one, other) == expected
    assert matches(other, one) == expected


def numbered(rows: Sequence[tuple[object, ...]], first: int) -> pa.Table:
    """Return events with ids from `first` on."""
    table = events(*rows)
    ids = pa.array(range(first, first + len(rows)), pa.int64())
    return table.set_column(table.schema.get_field_index("id"), "id", ids)


# ---------------------------------------------------------------- other rules


def refusal(then: Program, now: Program) -> str:
    with pytest.raises(StateError) as caught:
        Matcher.restore(now, snapshot(then))
    return str(caught.value)


FACT = "error[E0701]: the stored state was written by other rules: "
HELP = "\nhelp: restore the rules as they were, or start from a new checkpoint"


@pytest.mark.parametrize(
    ("before", "after", "fact"),
    [
        ("10 SECONDS", "11 SECONDS", "rule `pairs` has changed: its window or limits"),
        ("letter = 'a'", "letter = 'e'", "rule `pairs` has changed: its conditions"),
        ("a -> b", "a ->> b", "rule `pairs` has changed: its pattern"),
        ("a.x AS x", "a.x AS y", "rule `pairs` has changed: its measures"),
        (
            "a.x AS x",
            "MAX(a.x) AS x",
            "rule `pairs` has changed: its measures, it needs `MAX(a.x)`, it no longer needs `a.x`",
        ),
        (
            "a.x AS x, b.s AS word",
            "b.s AS word, a.x AS x",
            "rule `pairs` has changed: the order of its registers, its measures",
        ),
        (
            "a -> b",
            "a->{2} -> b",
            "rule `pairs` has changed: it has 3 states instead of 2",
        ),
        (
            "BY k",
            "BY s",
            "rule `pairs` has changed: its key is `s` (string) instead of `k` (string)",
        ),
        ("RULE pairs", "RULE couples", "rule `pairs` is called `couples` now"),
    ],
)
def test_what_differs_is_told_with_the_rule(before: str, after: str, fact: str) -> None:
    (changed,) = compile_sources(
        [Source("test.cep", RULES["pairs"].replace(before, after))], {"events": STREAM}
    ).programs
    assert refusal(compiled_rules("pairs"), changed) == f"{FACT}{fact}{HELP}"


def test_rules_that_are_new_or_gone_are_named() -> None:
    both, one = compiled_rules("pairs", "sums"), compiled_rules("sums")
    assert refusal(both, one) == f"{FACT}rule `pairs` is gone{HELP}"
    assert refusal(one, both) == f"{FACT}rule `pairs` is new{HELP}"


def test_another_order_of_events_of_equal_time_is_told() -> None:
    stream = dataclasses.replace(STREAM, deduplicate=True)
    (changed,) = compile_sources([Source("test.cep", RULES["sums"])], {"events": stream}).programs
    assert refusal(compiled_rules("sums"), changed) == (
        f"{FACT}rule `sums` has changed: the event time, the tie breakers or `deduplicate` of `events`{HELP}"
    )


def test_another_type_of_a_column_is_told() -> None:
    fields = tuple(dataclasses.replace(f, ddl="float") if f.name == "x" else f for f in STREAM.fields)
    stream = dataclasses.replace(STREAM, fields=fields)
    (changed,) = compile_sources([Source("test.cep", RULES["sums"])], {"events": stream}).programs
    assert refusal(compiled_rules("sums"), changed) == (
        f"{FACT}rule `sums` has changed: the columns that it reads{HELP}"
    )


# ---------------------------------------------------------------- bytes that cannot be read


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


def test_a_snapshot_of_the_format_before_is_refused_with_both_versions() -> None:
    compiled = program("a -> b", define=DEFINE)
    data = snapshot(compiled)
    with pytest.raises(StateError) as caught:
        Matcher.restore(compiled, data[:4] + b"\x04\x00" + data[6:])
    assert VERSION == 5
    assert str(caught.value) == (
        "error[E0703]: the stored state has format 4, this version reads 5\n"
        "help: continue with the version of spark-cep that wrote it, or start from a new checkpoint"
    )


@pytest.mark.parametrize("seed", range(8))
def test_damaged_sections_with_a_sound_checksum_are_refused_or_read(seed: int) -> None:
    compiled = compiled_rules("pairs", "sums", "absences")
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *(row for step in STEPS for row in step)))
    matcher.advance(5 * SECOND)
    data = matcher.snapshot()
    draw = random.Random(seed)
    n_refused = 0
    for _ in range(250):
        damaged = bytearray(data)
        match draw.randrange(4):
            case 0:
                del damaged[draw.randrange(26, len(data)) :]
            case 1:
                at = draw.randrange(26, len(data))
                del damaged[at : at + draw.randrange(1, 40)]
            case 2:
                at = draw.randrange(26, len(data) - 8)
                damaged[at : at + 8] = draw.randbytes(8)
            case _:
                damaged[draw.randrange(26, len(data))] ^= 1 << draw.randrange(8)
        try:
            decode(resealed(bytes(damaged))).identity()
        except StateError as error:
            n_refused += 1
            assert error.code == "E0702"  # noqa: PT017 - not every damage is seen
    assert n_refused > 100


@pytest.mark.parametrize("rules", [("pairs",), ("sums",), ("absences",)])
def test_runs_of_another_shape_than_the_rule_has_are_refused(rules: tuple[str, ...]) -> None:
    compiled = compiled_rules(*rules)
    found = decode(snapshot(compiled))
    (section,) = found.rules
    cut = dataclasses.replace(section, rows=section.nodes)
    data = encode(dataclasses.replace(found, rules=(cut,)), compiled.fingerprint)
    with pytest.raises(StateError, match=f"E0702.*the runs of rule `{rules[0]}` do not fit it"):
        Matcher.restore(compiled, data)


def test_an_open_run_takes_at_most_64_bytes() -> None:
    compiled = program("a -> b->{2,}", "WITHIN 2 HOURS", define=DEFINE)
    n = 5_000
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *((f"key {i % 500}", i, "a") for i in range(1, n + 1))))
    matcher.advance(n * SECOND)
    assert matcher.n_open_runs > 4_000
    assert len(matcher.snapshot()) < 64 * matcher.n_open_runs
