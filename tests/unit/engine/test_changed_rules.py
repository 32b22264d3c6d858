"""Stored state under other rules: what continues, what begins, and what of the events that wait is seen."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.chains.chain import Chain
from cep.engine.matching.changed_rules import read_until_us
from cep.engine.matching.matcher import Matcher
from cep.engine.matching.regrouping import divided, joined
from cep.engine.state.codec import decode
from cep.engine.tables.tables import GivenTable
from cep.errors import Source, StateError
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.pipeline.past import first_matchers
from spark_runtime.state.snapshots import changed_state, decode_state, encode_state
from tests.unit.engine.events import SECOND, STREAM, events, prepared, spans

LETTERS = {letter: f"{letter} AS letter = '{letter}'" for letter in "abcdxy"}


def rule(name: str, pattern: str, letters: str, *clauses: str, key: str = "k") -> str:
    define = ", ".join(LETTERS[letter] for letter in letters)
    return (
        f"RULE {name} FROM events PARTITION BY {key} PATTERN {pattern} WITHIN 10 SECONDS DEFINE {define} "
        + (" ".join(clauses))
    )


def rule_set(*texts: str) -> RuleSet:
    return compile_sources([Source("test.cep", "\n".join(texts))], {"events": STREAM}).rule_set


XY = rule("xy", "x -> y", "xy", "MATCH ALL MEASURES x.s AS first, y.s AS last")
ABSENT = rule("absent", "a -> !b -> c", "abc")


def matcher_of(rules: RuleSet, *rows: tuple[object, ...], time: float | None = None) -> Matcher:
    (program,) = rules.programs
    matcher = Matcher(program)
    matcher.push(prepared(program, *rows))
    if time is not None:
        matcher.advance(int(time * SECOND))
    return matcher


def changed(matcher: Matcher, before: RuleSet, now: RuleSet, begins_us: int = 0) -> Matcher:
    """Return the matcher as it continues with the rules `now`."""
    data = changed_state(encode_state([matcher], 4), before, now, 4, begins_us)
    (found,) = decode_state(data, now, 4)
    assert isinstance(found, Matcher)
    return found


def matches(matcher: Matcher, *rows: tuple[object, ...]) -> list[tuple[str, float, float]]:
    """Push events, and return the matches up to the end of the input."""
    matcher.push(prepared(matcher.program, *rows))
    return spans(matcher.finish())


def test_a_new_rule_sees_no_event_up_to_those_that_were_not_prepared_for_it() -> None:
    before, now = rule_set(XY), rule_set(XY, ABSENT)
    # The old rules do not need `b`, so nothing waits of it; `a` is delayed. The absence would seem to hold.
    matcher = matcher_of(before, ("k", 1, "x"), ("k", 5, "b"), ("l", 6, "x"), time=2)
    matcher = changed(matcher, before, now, 6 * SECOND)
    assert matches(matcher, ("k", 4, "a"), ("k", 7, "c"), ("k", 8, "y")) == [("k", 1, 8)]


def test_it_begins_later_than_every_event_that_was_read() -> None:
    before, now = rule_set(XY), rule_set(XY, ABSENT)
    matcher = changed(matcher_of(before, ("k", 1, "x"), ("k", 8, "b"), time=2), before, now, 8 * SECOND)
    assert matches(matcher, ("k", 7, "a"), ("k", 9, "c"), ("k", 10, "a"), ("k", 11, "c")) == [("k", 10, 11)]


def test_when_a_rule_begins_is_stored_until_the_watermark_has_passed_it() -> None:
    before, now = rule_set(XY), rule_set(XY, ABSENT)
    matcher = changed(matcher_of(before, ("k", 1, "x"), ("k", 6, "x"), time=2), before, now)
    for time, expected in ((3, True), (5.9, True), (6, False)):
        matcher.advance(int(time * SECOND))
        sections = decode(matcher.snapshot()).rules
        assert [section.begins_us == 6 * SECOND for section in sections] == [False, expected]
        matcher = Matcher.restore(matcher.program, matcher.snapshot())
    always = matcher_of(now, ("k", 1, "x"), ("k", 6, "x"), time=6)
    assert len(matcher.snapshot()) == len(always.snapshot())


COUNTS = """RULE counts FROM events PARTITION BY k PATTERN a
LET seen = COUNT(*) FILTER (WHERE letter = 'a') OVER LAST 1 HOUR
DEFINE a AS letter = 'a' MEASURES a.seen AS seen"""


def test_windowed_values_of_a_new_rule_contain_the_events_that_it_sees() -> None:
    before, now = rule_set(XY), rule_set(XY, COUNTS)
    matcher = matcher_of(before, ("k", 3, "a"), ("k", 6, "x"), time=2)
    matcher = changed(matcher, before, now, 6 * SECOND)
    matcher.push(prepared(matcher.program, ("k", 5, "a"), ("k", 7, "a")))
    matcher.advance(5 * SECOND)
    matcher = Matcher.restore(matcher.program, matcher.snapshot())
    matcher.push(prepared(matcher.program, ("k", 8, "a")))
    assert matcher.finish().column("seen").to_pylist() == [1, 2]


def test_windowed_values_that_a_rule_continues_with_contain_the_past() -> None:
    more = COUNTS.replace("RULE counts", "RULE more")
    before, now = rule_set(COUNTS), rule_set(COUNTS, more)
    matcher = matcher_of(before, ("k", 1, "a"), ("k", 3, "a"), time=2)
    matcher = changed(matcher, before, now, 3 * SECOND)
    matcher.push(prepared(matcher.program, ("k", 4, "a")))
    found = matcher.finish()
    assert list(zip(found["rule"].to_pylist(), found["seen"].to_pylist(), strict=True)) == [
        ("counts", 2), ("counts", 3), ("more", 3),
    ]  # fmt: skip


def test_state_that_moves_to_other_key_groups_keeps_when_its_rules_begin() -> None:
    before, now = rule_set(XY), rule_set(XY, ABSENT)
    matcher = changed(matcher_of(before, ("k", 1, "x"), ("l", 6, "x"), time=2), before, now)
    parts = divided(matcher.program, matcher.snapshot(), lambda rows: np.zeros(rows.num_rows, np.int64), 1)
    whole = decode(joined(matcher.program, [part.data for part in parts]))
    assert [section.begins_us for section in whole.rules][1] == 6 * SECOND


def test_open_runs_go_on_with_other_measures_and_their_texts() -> None:
    before = rule_set(XY, ABSENT)
    now = rule_set(XY.replace("MEASURES x.s AS first, y.s AS last", "MEASURES UPPER(x.s) AS upper"))
    rows = (("k", 1, "a", 0, 0, "t"), ("k", 2, "x", 0, 0, "u"), ("k", 3, "x", 0, 0, "v"))
    matcher = changed(matcher_of(before, *rows, time=3), before, now)
    assert matcher.n_open_runs == 2
    matcher.push(prepared(matcher.program, ("k", 4, "y", 0, 0, "w")))
    assert matcher.finish().column("upper").to_pylist() == ["U", "V"]


def test_a_rule_that_changed_begins_anew_and_forgets_its_runs() -> None:
    before, now = rule_set(XY, ABSENT), rule_set(XY.replace("10", "20"), ABSENT)
    matcher = changed(matcher_of(before, ("k", 1, "x"), ("k", 1, "a"), time=2), before, now)
    assert matcher.n_open_runs == 1
    assert matches(matcher, ("k", 3, "y"), ("k", 4, "c")) == [("k", 1, 4)]


def test_a_program_over_another_key_begins_empty() -> None:
    before, now = rule_set(XY), rule_set(XY, rule("other", "a -> b", "ab", key="s"))
    data = changed_state(encode_state([matcher_of(before, ("k", 3, "x"))], 4), before, now, 4, 3 * SECOND)
    first, other = decode_state(data, now, 4)
    assert isinstance(first, Matcher)
    assert isinstance(other, Matcher)
    other.push(prepared(other.program, ("k", 2, "a", 0, 0, "s"), ("k", 4, "b", 0, 0, "s")))
    assert other.finish().num_rows == 0
    back = changed_state(data, now, before, 4, 0)
    assert len(decode_state(back, before, 4)) == 1


def test_a_key_group_without_state_begins_with_the_others() -> None:
    rules = rule_set(ABSENT)
    (matcher,) = decode_state(changed_state(None, rule_set(XY), rules, 4, 5 * SECOND), rules, 4)
    assert isinstance(matcher, Matcher)
    assert matches(matcher, ("k", 5, "a"), ("k", 6, "c"), ("k", 7, "a"), ("k", 8, "c")) == [("k", 7, 8)]


def test_what_a_matcher_has_read_is_the_latest_event_that_waits_or_the_watermark() -> None:
    rules = rule_set(XY)
    assert read_until_us(decode(matcher_of(rules, ("k", 3, "x"), time=1).snapshot())) == 3 * SECOND
    assert read_until_us(decode(matcher_of(rules, ("k", 3, "x"), time=9).snapshot())) == 9 * SECOND


def test_state_that_cannot_go_on_is_refused_with_the_way_out() -> None:
    before, now = rule_set(XY), rule_set(XY, ABSENT)
    data = encode_state([matcher_of(before, ("k", 3, "x"))], 4)
    with pytest.raises(StateError, match="E0704"):
        changed_state(data, before, now, 5, 0)
    with pytest.raises(StateError, match=r"E0701.*rule `absent` is new"):
        changed_state(data, now, before, 4, 0)


OVER = (
    "RULE over FROM MATCHES OF xy PARTITION BY k PATTERN p -> q WITHIN 1 MINUTE DEFINE p AS first IS NOT NULL"
)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ((XY,), (XY, OVER), [(5, 8)]),  # the match that ended before the rule began is not seen
        ((XY, OVER), (ABSENT, XY, OVER), [(2, 5)]),  # the first match was taken before
        ((XY, OVER), (XY.replace("MATCH ALL ", ""), OVER), [(5, 8)]),  # what it reads has changed
    ],
)
def test_rules_over_rules_continue_with_the_rules_that_they_read(
    before: tuple[str, ...], now: tuple[str, ...], expected: list[tuple[float, float]]
) -> None:
    then, later = rule_set(*before), rule_set(*now)
    found: list[pa.Table] = []
    chain = Chain(then)
    chain.push_events(STREAM, events(("k", 1, "x", 0, 0, "u"), ("k", 2, "y")))
    chain.advance(2 * SECOND, found.append)
    data = changed_state(encode_state(chain.matchers, 4), then, later, 4, 2 * SECOND)
    chain = Chain(later, decode_state(data, later, 4))
    rows = [(second, letter) for start in (4, 7) for second, letter in ((start, "x"), (start + 1, "y"))]
    chain.push_events(STREAM, events(*(("k", second, letter, 0, 0, "u") for second, letter in rows)))
    chain.finish(found.append)
    spans_of = [spans(table.filter(pc.equal(table["rule"], "over"))) for table in found]
    assert [(start, end) for of in spans_of for _, start, end in of] == expected


NAMES = Stream(
    "names",
    (Field("k", "string"), Field("at", "timestamp"), Field("name", "string"), Field("size", "bigint")),
    "at",
    table=TableSettings(("k",), TableKind.CHANGELOG),
)
JOINED = """RULE joined FROM events JOIN names ON k PARTITION BY k PATTERN a -> b WITHIN 10 SECONDS
DEFINE a AS letter = 'a' AND names.name = 'u', b AS letter = 'b' MEASURES a.x AS x, b.names.name AS name"""


def names(*rows: tuple[str, int, str]) -> pa.Table:
    """Return versions of (key, seconds, name)."""
    found = [{"k": key, "at": at * SECOND, "name": name, "size": 1} for key, at, name in rows]
    schema = [("k", pa.string()), ("at", pa.int64()), ("name", pa.string()), ("size", pa.int64())]
    return pa.Table.from_pylist(found, pa.schema(schema))


def test_rows_of_tables_and_those_that_wait_continue() -> None:
    inputs = {"events": STREAM, "names": NAMES}
    other = JOINED.replace("RULE joined", "RULE other").replace("'u'", "'w'")
    before = compile_sources([Source("old.cep", JOINED)], inputs).rule_set
    text = f"{other}\n{JOINED.replace('a.x AS x, ', '')}"
    now = compile_sources([Source("new.cep", text)], inputs).rule_set
    chain = Chain(before)
    chain.push_events(NAMES, names(("k", 1, "u"), ("l", 1, "w"), ("k", 5, "v")))
    chain.push_events(STREAM, events(("k", 2, "a"), ("k", 4, "a"), ("l", 4, "a")))
    chain.advance(3 * SECOND, lambda table: None)
    data = changed_state(encode_state(chain.matchers, 4), before, now, 4, 5 * SECOND)
    chain = Chain(now, decode_state(data, now, 4))
    found: list[pa.Table] = []
    chain.push_events(STREAM, events(("l", 6, "a"), ("k", 7, "b"), ("l", 8, "b")))
    chain.finish(found.append)
    rows = [(row["rule"], row["k"], row["match_start"].second, row["name"])
            for table in found for row in table.to_pylist()]  # fmt: skip
    assert rows == [("joined", "k", 2, "v"), ("other", "l", 6, "w")]


def test_a_table_of_which_rules_need_another_column_is_refused() -> None:
    inputs = {"events": STREAM, "names": NAMES}
    before = compile_sources([Source("old.cep", JOINED)], inputs).rule_set
    more = JOINED.replace("b.names.name AS name", "b.names.size AS size")
    now = compile_sources([Source("new.cep", more)], inputs).rule_set
    with pytest.raises(StateError, match=r"E0701.*without the rows of table `names`"):
        changed_state(encode_state([Matcher(before.programs[0])], 4), before, now, 4, 0)


def test_a_rule_that_begins_again_has_the_rows_of_its_tables() -> None:
    inputs = {"events": STREAM, "names": NAMES}
    before = compile_sources([Source("old.cep", JOINED)], inputs).rule_set
    now = compile_sources([Source("new.cep", JOINED.replace("10 SECONDS", "20 SECONDS"))], inputs).rule_set
    chain = Chain(before)
    chain.push_events(NAMES, names(("k", 1, "u"), ("k", 4, "u")))
    chain.push_events(STREAM, events(("k", 2, "a"), ("k", 4, "a")))
    chain.advance(3 * SECOND, lambda table: None)
    data = changed_state(encode_state(chain.matchers, 4), before, now, 4, 4 * SECOND)
    chain = Chain(now, decode_state(data, now, 4))
    found: list[pa.Table] = []
    chain.push_events(STREAM, events(("k", 6, "a"), ("k", 7, "b")))
    chain.finish(found.append)
    assert [row for table in found for row in spans(table)] == [("k", 6, 7)]


RISKS = Stream(
    "risks",
    (Field("letter", "string"), Field("risk", "string")),
    "",
    table=TableSettings(("letter",), TableKind.STATIC, None),
)
OF_STATIC = "RULE risky FROM events JOIN risks ON letter = risks.letter PARTITION BY k "
RISKY = (
    OF_STATIC
    + """PATTERN a -> b WITHIN 10 SECONDS
DEFINE a AS risks.risk = 'high', b AS letter = 'b' MEASURES a.risks.risk AS risk"""
)
RISKY_WINDOWS = OF_STATIC + "WINDOW TUMBLING 10 SECONDS MEASURES LAST_VALUE(risks.risk) AS risk"
COUNTED = (
    OF_STATIC
    + """PATTERN b LET seen = COUNT(*) FILTER (WHERE risks.risk = 'high') OVER LAST 1 HOUR
DEFINE b AS letter = 'b' AND seen > 0 MEASURES b.risks.risk AS risk"""
)
OVER = "RULE over FROM MATCHES OF risky PARTITION BY k PATTERN m DEFINE m AS true MEASURES m.risk AS risk"


def longer(text: str) -> str:
    return text.replace("10 SECONDS", "20 SECONDS").replace("1 HOUR", "2 HOURS")


@pytest.mark.parametrize("corrections", [None, Corrections(60 * SECOND)])
@pytest.mark.parametrize("has_state", [True, False])
@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (RISKY, longer(RISKY), ["high"]),
        (XY, f"{XY}\n{RISKY}", ["high"]),
        (XY, RISKY, ["high"]),
        (f"{RISKY}\n{OVER}", f"{longer(RISKY)}\n{OVER}", ["high", "high"]),
        (RISKY_WINDOWS, longer(RISKY_WINDOWS), ["low"]),
        (COUNTED, longer(COUNTED), ["low"]),
    ],
    ids=["changed", "added", "other", "chain", "windows", "windowed values"],
)
def test_rules_over_a_static_table_begin(
    before: str, now: str, expected: list[str], corrections: Corrections | None, has_state: bool
) -> None:
    tables = {"risks": GivenTable(RISKS, pa.table({"letter": ["a", "b"], "risk": ["high", "low"]}))}
    then, later = (
        compile_sources([Source("test.cep", text)], {"events": STREAM, "risks": RISKS})
        .rule_set.with_corrections(corrections)
        for text in (before, now)
    )  # fmt: skip
    chain = Chain(then, tables=tables)
    chain.push_events(STREAM, events(("k", 1, "a"), ("k", 3, "a")))
    chain.advance(2 * SECOND, lambda table: None)
    data = encode_state(chain.matchers, 4) if has_state else None
    data = changed_state(data, then, later, 4, 4 * SECOND)
    chain = Chain(later, decode_state(data, later, 4, tables), tables=tables)
    found: list[pa.Table] = []
    chain.push_events(STREAM, events(("k", 6, "a"), ("k", 7, "b")))
    chain.finish(found.append)
    assert [row["risk"] for table in found for row in table.to_pylist()] == expected


def test_the_past_of_rules_over_a_static_table_begins() -> None:
    tables = {"risks": GivenTable(RISKS, pa.table({"letter": ["a", "b"], "risk": ["high", "low"]}))}
    rules = compile_sources([Source("test.cep", RISKY)], {"events": STREAM, "risks": RISKS}).rule_set
    for data in (
        first_matchers(rules, 5 * SECOND, tables),
        first_matchers(rules, None, tables, {"risky": 4 * SECOND}),
    ):
        chain = Chain(rules, decode_state(data, rules, 1, tables), tables=tables)
        found: list[pa.Table] = []
        chain.push_events(STREAM, events(("k", 3, "a"), ("k", 4, "b"), ("k", 6, "a"), ("k", 7, "b")))
        chain.finish(found.append)
        assert [row for table in found for row in spans(table)] == [("k", 6, 7)]
