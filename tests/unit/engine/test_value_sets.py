"""Sets of values that runs take: many values, snapshots with strings, and what a fingerprint says of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import Source
from cep.local.given_events import event_table
from cep.program.program import Program
from cep.schema.stream import Field, Stream

STREAM = Stream(
    "s",
    (Field("k", "string"), Field("ts", "timestamp"), Field("n", "bigint"), Field("s", "string")),
    "ts",
    ("n",),
)
RULE = """RULE r FROM s PARTITION BY k PATTERN a->+ -> b WITHIN 1 HOUR
DEFINE a AS n >= 0, b AS n < 0 AND s IN (a.s) AND COUNT(DISTINCT a.s) = {wanted}
MEASURES COUNT(DISTINCT a.s) AS different, COUNT(a.*) AS events
MAX RUNS {runs} PER KEY"""


def compiled(text: str) -> Program:
    (program,) = compile_sources([Source("r.cep", text)], {"s": STREAM}).programs
    return program


def row(number: int, text: str, *, n: int | None = None, key: str = "k") -> dict[str, Any]:
    return {"k": key, "ts": number * 1000, "n": number if n is None else n, "s": text}


def test_a_run_may_take_thousands_of_different_values() -> None:
    rows = [row(number, f"v{number % 2000}") for number in range(2500)]
    rows.append(row(2500, "none of them", n=-1))
    rows.append(row(2501, "v77", n=-1))
    program = compiled(RULE.format(wanted=2000, runs=9999).replace("PATTERN", "PATTERN ^"))
    matcher = Matcher(program)
    matcher.push(prepare(program, event_table(STREAM, rows)))
    (match,) = matcher.finish().to_pylist()
    assert (match["different"], match["events"]) == (2000, 2500)


@pytest.mark.parametrize("restores", [False, True])
def test_sets_of_strings_survive_that_other_strings_are_forgotten(restores: bool) -> None:
    program = compiled(RULE.format(wanted=3, runs=99))
    matcher = Matcher(program)
    found: list[pa.Table] = []
    number = 0
    for text in ("p", "q", "p", "r"):
        for _ in range(2500):  # events of keys that come once fill the pool of strings
            number += 1
            rows = [row(number, f"other {number}", key=f"key {number}", n=-1)]
            if number % 2500 == 0:
                rows.append(row(number, text))
                matcher.push(prepare(program, event_table(STREAM, rows)))
        others = [row(number, f"{text} {i}", key=f"key {i}", n=-1) for i in range(5000)]
        number += 1
        matcher.push(prepare(program, event_table(STREAM, others)))
        found.append(matcher.advance(number * 1000))
        if restores:
            matcher = Matcher.restore(program, matcher.snapshot())
    matcher.push(prepare(program, event_table(STREAM, [row(number + 1, "q", n=-1)])))
    found.append(matcher.finish())
    (match,) = pa.concat_tables(found).to_pylist()
    assert (match["different"], match["events"]) == (3, 4)


def test_a_snapshot_has_the_same_bytes_after_it_was_restored() -> None:
    program = compiled(RULE.format(wanted=3, runs=99))
    matcher = Matcher(program)
    rows = [row(number, text) for number, text in enumerate("pqpqrs")]
    matcher.push(prepare(program, event_table(STREAM, rows)))
    matcher.advance(3_500)
    data = matcher.snapshot()
    assert Matcher.restore(program, data).snapshot() == data


def test_rules_that_ask_for_different_sets_have_different_fingerprints() -> None:
    text = RULE.format(wanted=3, runs=99)
    others = [
        text.replace("IN (a.s)", "NOT IN (a.s)"),
        text.replace("COUNT(DISTINCT a.s) =", "COUNT(a.s) ="),
        text.replace("COUNT(DISTINCT a.s) AS", "COUNT(a.s) AS"),
        text.replace("a->+", "a->+ DISTINCT BY s"),
        text.replace("a->+", "a->+ DISTINCT BY n"),
    ]
    prints = [compiled(one).fingerprint for one in (text, *others)]
    assert len(set(prints)) == len(prints)


def test_of_two_sets_it_counts_which_one_is_asked() -> None:
    form = """RULE r FROM s PARTITION BY k PATTERN a->+ -> b WITHIN 1 HOUR
DEFINE
  a AS COUNT(DISTINCT a.n + 1) > 0 AND COUNT(DISTINCT a.n * 2) > 0,
  b AS COUNT(DISTINCT a.n {sign}) = 2"""
    assert compiled(form.format(sign="+ 1")).fingerprint != compiled(form.format(sign="* 2")).fingerprint


def test_a_loop_over_two_streams_has_the_value_of_each_of_them() -> None:
    fields = (Field("k", "string"), Field("ts", "timestamp"), Field("x", "bigint"))
    streams = {name: Stream(name, fields, "ts", ("x",)) for name in ("left", "right")}
    text = """RULE r FROM left, right PARTITION BY left.k = right.k
PATTERN (a | b)->{3} DISTINCT BY x WITHIN 1 HOUR
DEFINE a ON left, b ON right MEASURES COUNT(*) AS events"""
    (program,) = compile_sources([Source("r.cep", text)], streams).programs
    matcher = Matcher(program)
    values = {"left": (1, None, 3), "right": (1, 2, None)}
    for name, found in values.items():
        rows = [{"k": "k", "ts": 1000 * place, "x": value} for place, value in enumerate(found)]
        matcher.push(prepare(program, event_table(streams[name], rows), streams[name]))
    (match,) = matcher.finish().to_pylist()
    assert (match["events"], match["match_end"].microsecond) == (3, 2000)
