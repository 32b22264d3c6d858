"""What a change of rules does to stored state, rule by rule."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import Source
from cep.program.changes import Changes, RuleChange, Verdict, changes_of
from cep.rule_set import RuleSet
from cep.schema.stream import DeviceClock, Field, Stream, TableKind, TableSettings

STREAM = Stream(
    "s",
    (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double"), Field("y", "bigint")),
    "ts",
    ("x",),
)
TABLE = Stream(
    "names",
    (Field("k", "string"), Field("at", "timestamp"), Field("name", "string")),
    "at",
    table=TableSettings(("k",), TableKind.CHANGELOG),
)
RULE = """RULE r TITLE 'title' FROM s PARTITION BY k PATTERN a -> b+ -> c WITHIN 5 MINUTES
DEFINE a AS x < 1, b AS x > a.x, c AS y = 1 MEASURES a.x AS first, SUM(b.y) AS total, c.y AS last
"""
OTHER = "RULE o FROM s PARTITION BY k PATTERN p -> q WITHIN 1 HOUR DEFINE p AS y = 2, q AS y = 3\n"
WINDOWED = """RULE w FROM s PARTITION BY k PATTERN p -> q WITHIN 1 HOUR
DEFINE p AS y = 2, q AS x > AVG(x) OVER LAST 1 HOUR
"""
JOINED = """RULE j FROM s JOIN names ON names.k = s.k PARTITION BY k PATTERN p -> q WITHIN 1 HOUR
DEFINE p AS names.name = 'a', q AS y = 3
"""


def rule_set(*texts: str, stream: Stream = STREAM, table: Stream = TABLE) -> RuleSet:
    """Return compiled rules."""
    inputs = {"s": stream, "names": table}
    return compile_sources([Source("rules", "\n".join(texts))], inputs).rule_set


def changes(before: RuleSet, now: RuleSet) -> Changes:
    return changes_of(before.programs, now.programs)


def verdict(before: str, now: str) -> tuple[str, str]:
    """Return the verdict about rule `r`, and the reasons."""
    found = changes(rule_set(before, OTHER), rule_set(OTHER, now))
    assert found.verdicts["o"] is Verdict.SAME
    assert not found.refusals
    (change,) = (change for change in found.rules if change.rule == "r")
    return change.verdict, ", ".join(change.reasons)


@pytest.mark.parametrize(
    ("right", "other", "expected"),
    [
        ("FROM", "FROM", ("same", "")),
        ("'title'", "'another'", ("words", "its title")),
        ("'title'", "'another' SEVERITY high TAGS a", ("words", "its title, its severity, its tags")),
        ("a.x AS first, ", "", ("measures", "its measures")),  # the register is needed by a condition
        (", c.y AS last", "", ("measures", "its measures, it no longer needs `c.y`")),
        ("a.x AS first", "a.x * 2 AS first", ("measures", "its measures")),
        (
            "SUM(b.y) AS total",
            "MAX(b.y) AS total",
            ("changed", "it needs `MAX(b.y)`, which its open runs do not hold, its measures, "
             "it no longer needs `SUM(b.y)`"),
        ),
        (
            "c.y AS last",
            "c.x AS last",
            ("changed", "it needs `c.x`, which its open runs do not hold, its measures, "
             "it no longer needs `c.y`"),
        ),
        (
            "c.y AS last",
            "FIRST(b.y) AS y",
            ("changed", "it needs `COUNT(b.*)`, which its open runs do not hold, it needs `FIRST(b.y)`, "
             "which its open runs do not hold, its measures, it no longer needs `c.y`"),
        ),
        ("5 MINUTES", "6 MINUTES", ("changed", "its window or limits")),
        ("x < 1", "x < 2", ("changed", "its conditions")),
        ("a -> b+ -> c", "a b+ -> c", ("changed", "its pattern, it has 3 states instead of 4")),
        ("AS last", "AS last SUPPRESS FOR 1 HOUR", ("changed", "its window or limits")),
        ("AS last", "AS last ALL ROWS PER MATCH", ("changed", "")),
        ("c.y AS last", "ARRAY_AGG(b.y) AS ys", ("changed", "")),
    ],
)  # fmt: skip
def test_a_rule_keeps_its_state_if_only_what_it_reports_changes(
    right: str, other: str, expected: tuple[str, str]
) -> None:
    kind, reasons = verdict(RULE, RULE.replace(right, other))
    assert kind == expected[0]
    assert reasons == expected[1] or not expected[1]


def test_a_list_goes_on_only_if_its_column_was_kept() -> None:
    one = RULE.replace("c.y AS last", "ARRAY_AGG(b.y) AS ys")
    assert verdict(one, one.replace("SUM(b.y) AS total, ", "")) == (
        "measures", "its measures, it no longer needs `SUM(b.y)`",
    )  # fmt: skip
    assert verdict(one, one.replace("ARRAY_AGG(b.y)", "ARRAY_AGG(c.y)"))[0] == "measures"
    assert verdict(one, one.replace("ARRAY_AGG(b.y)", "ARRAY_AGG(b.x)")) == (
        "changed", "the columns of its lists, its measures",
    )  # fmt: skip


def test_sets_of_values_of_two_expressions_are_not_the_same_set() -> None:
    rule = """RULE r FROM s PARTITION BY k PATTERN a+ -> b WITHIN 5 MINUTES
    DEFINE a AS x < 1, b AS y IN (a.y)
    MEASURES COUNT(DISTINCT a.y + 1) AS one, COUNT(DISTINCT a.y + 2) AS two"""
    assert verdict(rule, rule.replace("COUNT(DISTINCT a.y + 1) AS one, ", ""))[0] == "measures"
    swapped = rule.replace("+ 1", "+ 0").replace("+ 2", "+ 1").replace("+ 0", "+ 2")
    assert verdict(rule, swapped)[0] == "measures"
    assert verdict(rule, rule.replace("+ 1", "+ 3"))[0] == "changed"


def test_rules_that_come_and_go_are_new_and_gone() -> None:
    found = changes(rule_set(RULE, OTHER), rule_set(OTHER.replace("RULE o", "RULE n"), RULE))
    assert found.rules == (
        RuleChange("n", Verdict.NEW, ("it was called `o`, and match ids contain the name",)),
        RuleChange("r", Verdict.SAME),
        RuleChange("o", Verdict.GONE, ("it is called `n` now",)),
    )
    assert not found.keeps_all


def test_a_rule_by_another_key_begins_anew() -> None:
    found = changes(rule_set(RULE, OTHER), rule_set(OTHER, RULE.replace("BY k", "BY y")))
    assert found.verdicts == {"o": "same", "r": "changed"}
    assert found.taken_from == (0, None)
    (change,) = (change for change in found.rules if change.rule == "r")
    assert change.reasons == ("its key is `y` (bigint) instead of `k` (string)",)


@pytest.mark.parametrize(
    ("stream", "fact"),
    [
        ({"event_time": "at"}, "`event_time`"),
        ({"tie_break": ("y",)}, "`tie_break`"),
        ({"deduplicate": True}, "`deduplicate`"),
        (
            {"fields": (*STREAM.fields[:3], Field("y", "double"))},
            "column `y` is double instead of bigint",
        ),
        (
            {"fields": (STREAM.fields[0], Field("ts", "bigint", unit="seconds"), *STREAM.fields[2:])},
            "column `ts` is bigint (unit: seconds) instead of timestamp",
        ),
    ],
)
def test_a_stream_that_is_declared_otherwise_is_refused(stream: dict[str, object], fact: str) -> None:
    fields = (*STREAM.fields, Field("at", "timestamp"))
    other = dataclasses.replace(STREAM, **{"fields": fields, **stream})  # type: ignore[arg-type]
    (refusal, *_) = changes(rule_set(RULE), rule_set(RULE.replace("y = 1", "y > 1"), stream=other)).refusals
    assert refusal.fact == f"stream `s` has changed: {fact}"
    assert refusal.help == "restore its declaration, or start from a new checkpoint"


READ_OTHERWISE: dict[str, tuple[dict[str, Any], str]] = {
    "field": ({"path": ("inner", "y")}, "(field: inner.y)"),
    "element": ({"path": ("ys",), "element": (0, "y")}, "(field: ys[0].y)"),
    "unit": ({"unit": "seconds"}, "(unit: seconds)"),
    "format": ({"format": "yyyy-MM-dd"}, "(format: yyyy-MM-dd)"),
    "zone": ({"zone": "Europe/Zurich"}, "(zone: Europe/Zurich)"),
}
"""For each setting of a column: other values, and how messages then describe the column."""


def read_otherwise(rule: str, column: str, **settings: Any) -> Changes:
    """Return what becomes of rules if a column of their stream is read in another way."""
    fields = (*STREAM.fields, Field("at", "timestamp"))
    then = dataclasses.replace(STREAM, fields=fields)
    others = [dataclasses.replace(of, **settings) if of.name == column else of for of in fields]
    now = dataclasses.replace(then, fields=tuple(others))
    return changes(rule_set(rule, OTHER, stream=then), rule_set(rule, OTHER, stream=now))


@pytest.mark.parametrize("setting", READ_OTHERWISE)
def test_a_rule_begins_again_if_a_column_of_its_conditions_is_read_otherwise(setting: str) -> None:
    settings, told = READ_OTHERWISE[setting]
    rule = "RULE r FROM s PARTITION BY k PATTERN p -> q WITHIN 1 HOUR DEFINE p AS at IS NOT NULL, q AS x = 1"
    (change, other) = read_otherwise(rule, "at", **settings).rules
    assert (change.verdict, other.verdict) == (Verdict.CHANGED, Verdict.SAME)
    assert change.reasons[0] == f"column `at` is timestamp {told} instead of timestamp"


@pytest.mark.parametrize("setting", READ_OTHERWISE)
def test_open_runs_continue_if_a_column_is_only_reported(setting: str) -> None:
    rule = "RULE r FROM s PARTITION BY k PATTERN p -> q WITHIN 1 HOUR DEFINE q AS x = 1 MEASURES p.at AS at"
    found = read_otherwise(rule, "at", **READ_OTHERWISE[setting][0])
    assert found.rules[0] == RuleChange("r", Verdict.MEASURES, ("the columns that it reads",))
    assert found.keeps_all


@pytest.mark.parametrize(
    "rule",
    [
        "DEFINE q AS q.at = 1",
        "DEFINE q AS q.at > p.y",
        "DEFINE q AS y > p.at",
        "DEFINE q AS y > AVG(p.at)",
        "DEFINE q AS y > STDDEV(p.at)",
        "DEFINE q AS y > PREV(at, 2)",
        "DEFINE q AS y > COUNT(DISTINCT p.at)",
        "DEFINE q AS x IN (p.at)",
        "DEFINE q AS y > FIRST(p.at, 1)",
        "DEFINE q AS y > SUM(at) OVER LAST 1 HOUR",
        "DEFINE q AS y > COUNT(*) FILTER (WHERE at > 1) OVER LAST 1 HOUR",
        "DEFINE q AS y > 1 MEASURES q.total AS total",
    ],
)
def test_every_way_in_which_a_rule_does_not_only_report_a_column(rule: str) -> None:
    let = "LET total = SUM(at) OVER LAST 1 HOUR"
    text = f"RULE r FROM s PARTITION BY k {let} PATTERN p+ -> q WITHIN 1 HOUR {rule}"
    then = dataclasses.replace(STREAM, fields=(*STREAM.fields, Field("at", "double")))
    now = dataclasses.replace(then, fields=(*STREAM.fields, Field("at", "double", path=("v",))))
    (change,) = changes(rule_set(text, stream=then), rule_set(text, stream=now)).rules
    assert change.verdict is Verdict.CHANGED
    assert change.reasons[0] == "column `at` is double (field: v) instead of double"


@pytest.mark.parametrize("setting", READ_OTHERWISE)
@pytest.mark.parametrize("use", ["event_time", "tie_break"])
def test_event_time_and_tie_breakers_that_are_read_otherwise_are_refused(setting: str, use: str) -> None:
    settings, told = READ_OTHERWISE[setting]
    fields = (*STREAM.fields, Field("at", "timestamp"))
    of_use: dict[str, Any] = {"event_time": "at"} if use == "event_time" else {"tie_break": ("at",)}
    then = dataclasses.replace(STREAM, fields=fields, **of_use)
    now = dataclasses.replace(then, fields=(*fields[:-1], dataclasses.replace(fields[-1], **settings)))
    (refusal,) = changes(rule_set(RULE, stream=then), rule_set(RULE, stream=now)).refusals
    assert refusal.fact == f"stream `s` has changed: column `at` is timestamp {told} instead of timestamp"


def test_the_columns_of_a_device_clock_that_are_read_otherwise_are_refused() -> None:
    names = ("device", "event", "sent", "received")
    fields = (*STREAM.fields, *(Field(name, "timestamp") for name in names))
    clock = DeviceClock(*names)
    then = dataclasses.replace(STREAM, fields=fields, device_clock=clock)
    for number, name in enumerate(names, len(STREAM.fields)):
        other = dataclasses.replace(fields[number], path=("v",))
        now = dataclasses.replace(then, fields=(*fields[:number], other, *fields[number + 1 :]))
        (refusal,) = changes(rule_set(RULE, stream=then), rule_set(RULE, stream=now)).refusals
        assert f"column `{name}` is timestamp (field: v) instead of timestamp" in refusal.fact
    now = dataclasses.replace(then, device_clock=DeviceClock("device", "event", "received", "sent"))
    (refusal,) = changes(rule_set(RULE, stream=then), rule_set(RULE, stream=now)).refusals
    assert refusal.fact == "stream `s` has changed: `device_clock`"
    longer = dataclasses.replace(then, device_clock=dataclasses.replace(clock, max_behind_us=1))
    assert changes(rule_set(RULE, stream=then), rule_set(RULE, stream=longer)).keeps_all


@pytest.mark.parametrize("setting", READ_OTHERWISE)
def test_a_key_that_is_read_otherwise_begins_again(setting: str) -> None:
    rule = "RULE r FROM s PARTITION BY at PATTERN p -> q WITHIN 1 HOUR DEFINE q AS x = 1"
    found = read_otherwise(rule, "at", **READ_OTHERWISE[setting][0])
    assert found.verdicts == {"r": "changed", "o": "same"}


@pytest.mark.parametrize("setting", READ_OTHERWISE)
@pytest.mark.parametrize(
    "read",
    [
        "WINDOW TUMBLING 1 HOUR HAVING COUNT(at) > 3",
        "WINDOW TUMBLING 1 HOUR MEASURES MAX(at) AS latest",
        "WHERE at IS NOT NULL WINDOW TUMBLING 1 HOUR MEASURES COUNT(*) AS n",
    ],
)
def test_windows_of_columns_that_are_read_otherwise_begin_again(setting: str, read: str) -> None:
    settings, told = READ_OTHERWISE[setting]
    rule = f"RULE r FROM s PARTITION BY k {read}"
    found = read_otherwise(rule, "at", **settings)
    assert (found.verdicts, found.refusals) == ({"r": "changed", "o": "same"}, ())
    assert found.rules[0].reasons[0] == f"column `at` is timestamp {told} instead of timestamp"
    beside = "RULE v FROM s PARTITION BY k WINDOW TUMBLING 1 HOUR MEASURES COUNT(*) AS n\n"
    (refusal,) = read_otherwise(f"{beside}{rule}", "at", **settings).refusals
    assert refusal.fact == "the state does not have the windowed values of the rules `v`, `r`"


@pytest.mark.parametrize("setting", READ_OTHERWISE)
def test_a_table_keeps_rows_so_its_columns_cannot_be_read_otherwise(setting: str) -> None:
    settings, told = READ_OTHERWISE[setting]
    rule = JOINED.replace("names.name = 'a'", "names.since IS NOT NULL")
    table = dataclasses.replace(TABLE, fields=(*TABLE.fields, Field("since", "timestamp")))
    other = dataclasses.replace(table.fields[-1], **settings)
    now = dataclasses.replace(table, fields=(*TABLE.fields, other))
    facts = [of.fact for of in changes(rule_set(rule, table=table), rule_set(rule, table=now)).refusals]
    assert facts == [f"table `names` has changed: column `since` is timestamp {told} instead of timestamp"]


def test_columns_may_be_declared_in_another_order() -> None:
    stream = dataclasses.replace(STREAM, fields=STREAM.fields[::-1])
    found = changes(rule_set(RULE, OTHER), rule_set(RULE, OTHER, stream=stream))
    assert found.verdicts == {"r": "same", "o": "same"}
    assert found.taken_from == (0,)


def test_a_table_that_is_declared_otherwise_is_refused() -> None:
    other = dataclasses.replace(TABLE, table=TableSettings(("k",), TableKind.REPLICATED))
    facts = [refusal.fact for refusal in changes(rule_set(JOINED), rule_set(JOINED, table=other)).refusals]
    assert facts[0] == "table `names` has changed: `kind`"


def test_inputs_come_and_go_with_the_rules_that_read_them() -> None:
    found = changes(rule_set(RULE), rule_set(RULE, JOINED))
    assert [(item.name, item.verdict) for item in found.inputs] == [("names", "new")]
    assert (found.verdicts, found.refusals) == ({"r": "same", "j": "new"}, ())
    back = changes(rule_set(RULE, JOINED), rule_set(RULE))
    assert [(item.name, item.verdict) for item in back.inputs] == [("names", "gone")]
    assert (back.verdicts, back.refusals) == ({"r": "same", "j": "gone"}, ())


def test_a_rule_that_joins_a_table_that_others_read_cannot_begin_without_its_rows() -> None:
    table = dataclasses.replace(TABLE, table=TableSettings(("k",), TableKind.REPLICATED))
    now = rule_set(JOINED.replace("BY k", "BY y"), table=table)
    (refusal,) = changes(rule_set(JOINED, table=table), now).refusals
    assert refusal.fact == "`j` would begin without the rows of table `names` so far"


def test_windowed_values_come_and_go_with_their_rules() -> None:
    assert changes(rule_set(WINDOWED, OTHER), rule_set(OTHER)).verdicts == {"o": "same", "w": "gone"}
    added = changes(rule_set(OTHER), rule_set(WINDOWED, OTHER))
    assert (added.verdicts, added.refusals) == ({"w": "new", "o": "same"}, ())
    alone = changes(rule_set(WINDOWED), rule_set(WINDOWED, OTHER))
    assert (alone.verdicts, alone.refusals) == ({"w": "same", "o": "new"}, ())
    longer = changes(rule_set(WINDOWED, OTHER), rule_set(WINDOWED.replace("LAST 1", "LAST 2"), OTHER))
    assert (longer.verdicts, longer.refusals) == ({"w": "changed", "o": "same"}, ())


def test_a_rule_begins_again_if_its_windows_then_hold_what_another_rule_needs() -> None:
    other = WINDOWED.replace("RULE w", "RULE v").replace("AVG(x)", "MAX(x)")
    found = changes(rule_set(WINDOWED, OTHER), rule_set(WINDOWED, other, OTHER))
    assert found.rules[0] == RuleChange(
        "w", Verdict.CHANGED, ("the windows that it shares with other rules",)
    )
    assert found.verdicts == {"w": "changed", "v": "new", "o": "same"}


def test_a_rule_over_the_matches_of_a_rule_that_begins_again_begins_again() -> None:
    other = WINDOWED.replace("RULE w", "RULE v").replace("AVG(x)", "MAX(x)")
    over = "RULE over FROM MATCHES OF w PARTITION BY k WINDOW TUMBLING 1 DAY MEASURES COUNT(*) AS n\n"
    above = "RULE above FROM MATCHES OF over PARTITION BY k PATTERN a -> b WITHIN 9 DAYS DEFINE a AS n > 1\n"
    found = changes(rule_set(WINDOWED, over, above), rule_set(WINDOWED, other, over, above))
    assert found.verdicts == {"w": "changed", "v": "new", "over": "changed", "above": "changed"}
    assert {change.reasons for change in found.rules if change.rule in ("over", "above")} == {
        ("`w`, whose matches it reads, begins again",),
        ("`over`, whose matches it reads, begins again",),
    }


def test_having_is_evaluated_at_the_end_of_a_window() -> None:
    rule = "RULE h FROM s PARTITION BY k WINDOW TUMBLING 1 HOUR HAVING COUNT(*) > 3 MEASURES COUNT(*) AS n"
    found = changes(rule_set(rule), rule_set(rule.replace("> 3", "> 4")))
    assert found.rules == (RuleChange("h", Verdict.MEASURES, ("its conditions",)),)
    longer = rule.replace("1 HOUR", "2 HOURS").replace("RULE h", "RULE i")
    (refusal,) = changes(rule_set(rule), rule_set(rule, longer)).refusals
    assert refusal.fact == "the state does not have the windowed values of the rules `h`, `i`"


def test_a_rule_over_the_matches_of_a_rule_that_changed_has_changed() -> None:
    over = "RULE v FROM MATCHES OF r PARTITION BY k PATTERN a -> b WITHIN 1 DAY DEFINE a AS total > 1"
    found = changes(rule_set(RULE, over), rule_set(RULE.replace("x < 1", "x < 2"), OTHER, over))
    assert found.verdicts == {"r": "changed", "o": "new", "v": "changed"}
    same = changes(rule_set(RULE, over), rule_set(RULE, OTHER, over))
    assert same.verdicts == {"r": "same", "o": "new", "v": "same"}


def test_with_corrections_a_verdict_says_whose_matches_are_final() -> None:
    window = "RULE h FROM s PARTITION BY k WINDOW TUMBLING 1 HOUR HAVING COUNT(*) > 3 MEASURES COUNT(*) AS n"
    before = rule_set(RULE, OTHER, window)
    now = rule_set(RULE.replace("a.x AS first, ", ""), window.replace("> 3", "> 4"))
    assert not changes(before, now).final
    final = changes_of(before.programs, now.programs, has_corrections=True).final
    assert final == {"h": "rows of windows that have ended are final", "o": "its matches are final"}
    other = rule_set(RULE.replace("x < 1", "x < 2"), OTHER, window)
    found = changes_of(before.programs, other.programs, has_corrections=True)
    assert (found.final, found.refusals) == ({"r": "its matches are final"}, ())
