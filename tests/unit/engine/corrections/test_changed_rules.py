"""Rules that change while late events correct matches. Any rules: `tests.property.changed_corrections`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cep.engine.chains.chain import Chain
from cep.errors import Source, StateError
from cep.rule_set import Corrections, RuleSet
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.state.contents import programs_in
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pointer import Kept, Task
from spark_runtime.state.snapshots import (
    Past,
    changed_state,
    decode_state,
    divided_state,
    encode_state,
    joined_state,
)
from spark_runtime.wire.packer import groups_of
from tests.unit.engine.events import SECOND, STREAM, events
from tests.unit.engine.test_changed_rules import rule, rule_set

Rows = list[tuple[str, str, int, float, float]]

AB = rule("ab", "a -> !x -> b", "abx", "MEASURES a.n AS n, b.x AS x")
CD = rule("cd", "c -> !y -> d", "cdy")


class Stream:
    """Rules over events in any order."""

    def __init__(self, *texts: str) -> None:
        self.rules = self._compiled(texts)
        self.chain = Chain(self.rules)

    def _compiled(self, texts: tuple[str, ...]) -> RuleSet:
        return rule_set(*texts).with_corrections(Corrections(60 * SECOND))

    def rows(self, at_second: float, *given: tuple[object, ...]) -> list[dict[str, Any]]:
        """Take in events, let event time go on, and return the rows."""
        self.chain.push_events(STREAM, events(*given))
        found: list[pa.Table] = []
        self.chain.advance(int(at_second * SECOND), found.append)
        return [row for table in found for row in table.to_pylist()]

    def step(self, at_second: float, *given: tuple[object, ...]) -> Rows:
        """Return kind, rule, revision, start and end of the rows."""
        return [
            (
                row["kind"],
                row["rule"],
                row["revision"],
                *(row[f"match_{of}"].timestamp() for of in ("start", "end")),
            )
            for row in self.rows(at_second, *given)
        ]

    def change(self, *texts: str, begins: float = 0, past: Past | None = None) -> None:
        """Let other rules follow."""
        data, now = encode_state(self.chain.matchers, 4), self._compiled(texts)
        data = changed_state(data, self.rules, now, 4, int(begins * SECOND), past)
        self.rules, self.chain = now, Chain(now, decode_state(data, now, 4))


def test_a_rule_that_goes_on_withdraws_and_adds_matches_as_if_nothing_had_happened() -> None:
    stream = Stream(AB)
    assert stream.step(20, ("k", 1, "a"), ("k", 4, "b"), ("k", 12, "a"))[0][:3] == ("match", "ab", 0)
    stream.change(CD, AB.replace("RULE ab", "RULE ab TITLE 'other'"), begins=20)
    assert stream.step(20, ("k", 2, "x")) == [("retract", "ab", 1, 1, 4)]
    assert stream.step(20, ("k", 3, "a")) == [("match", "ab", 0, 3, 4)]
    assert stream.step(22, ("k", 21, "b")) == [("match", "ab", 0, 12, 21)]


def test_rules_in_another_order_go_on_as_if_nothing_had_happened() -> None:
    given = (("k", 1, "a"), ("k", 4, "b"), ("k", 5, "c"), ("k", 8, "d"), ("k", 12, "a"), ("k", 13, "c"))
    late = (("k", 2, "x"), ("k", 6, "y"), ("k", 3, "a"), ("k", 7, "c"), ("k", 16, "b"), ("k", 17, "d"))
    found = []
    for texts in ((AB, CD), (CD, AB)):
        stream = Stream(AB, CD)
        stream.step(15, *given)
        stream.change(*texts, begins=13)
        found.append((sorted(stream.step(15, *late[:4])), sorted(stream.step(20, *late[4:]))))
    assert found[0] == found[1]
    assert [[row[:2] for row in rows] for rows in found[0]] == [
        [("match", "ab"), ("match", "cd"), ("retract", "ab"), ("retract", "cd")],
        [("match", "ab"), ("match", "cd")],
    ]


def test_matches_of_a_rule_that_has_changed_or_is_gone_are_final() -> None:
    stream = Stream(AB, CD)
    given = (("k", 1, "a"), ("k", 4, "b"), ("k", 5, "c"), ("k", 8, "d"))
    assert [row[:2] for row in stream.step(20, *given)] == [("match", "ab"), ("match", "cd")]
    stream.change(AB.replace("10 SECONDS", "9 SECONDS"), begins=20)
    assert stream.step(20, ("k", 2, "x"), ("k", 6, "y"), ("k", 3, "a")) == []
    assert stream.step(30, ("k", 21, "a"), ("k", 25, "b")) == [("match", "ab", 0, 21, 25)]
    assert stream.step(30, ("k", 22, "x")) == [("retract", "ab", 1, 21, 25)]


def test_a_new_rule_finds_nothing_in_the_events_that_are_retained_or_come_late() -> None:
    stream = Stream(AB)
    stream.step(20, ("k", 1, "a"), ("k", 2, "b"), ("k", 19, "a"))
    again = AB.replace("RULE ab", "RULE again")
    stream.change(AB, again, begins=20)
    assert stream.step(21, ("k", 5, "a"), ("k", 6, "b")) == [("match", "ab", 0, 5, 6)]
    assert stream.step(30, ("k", 22, "b"), ("k", 24, "a")) == [("match", "ab", 0, 19, 22)]
    assert stream.step(30, ("k", 25, "b")) == [("match", name, 0, 24, 25) for name in ("ab", "again")]


def test_a_match_is_withdrawn_with_the_measures_that_its_rule_has_now() -> None:
    stream = Stream(AB)
    stream.rows(20, ("k", 1, "a", 0, 7), ("k", 4, "b", 1.5), ("k", 6, "a", 0, 8), ("k", 7, "b", 0.5))
    stream.change(AB.replace("a.n AS n, b.x AS x", "b.x AS x, a.n * 2 AS m"), begins=20)
    (row,) = stream.rows(20, ("k", 2, "x"))
    assert (row["kind"], row["revision"], row["x"], row["m"], "n" in row) == ("retract", 1, 1.5, 14, False)


COUNTS = rule("counts", "a", "a", "MEASURES a.n AS n, a.seen AS seen").replace(
    "DEFINE", "LET seen = COUNT(*) FILTER (WHERE letter = 'a') OVER LAST 5 SECONDS DEFINE"
)


def test_other_measures_alone_correct_no_match() -> None:
    stream = Stream(COUNTS)
    stream.rows(20, ("k", 1, "a", 0, 7), ("k", 4, "a", 0, 8), ("l", 12, "a", 0, 9))
    stream.change(COUNTS.replace("a.n AS n", "a.n + 1 AS n"), begins=20)
    rows = stream.rows(20, ("k", 3, "a", 0, 5))
    found = [(row["kind"], row["revision"], row["match_end"].second, row["n"], row["seen"]) for row in rows]
    assert sorted(found) == [("match", 0, 3, 6, 2), ("match", 2, 4, 9, 3), ("retract", 1, 4, 9, 2)]
    rows = stream.rows(20, ("k", 5, "a", 0, 5))  # what was added has the new measures, too
    assert [(row["kind"], row["match_end"].second) for row in rows] == [("match", 5)]


BUSY = (
    "RULE busy FROM events PARTITION BY k WINDOW TUMBLING 10 SECONDS "
    "HAVING COUNT(*) >= 2 MEASURES COUNT(*) AS n"
)


def test_a_window_rule_with_another_having_leaves_the_windows_that_have_ended_as_they_are() -> None:
    stream = Stream(BUSY)
    assert stream.step(25, ("k", 1, "a"), ("k", 2, "a"), ("k", 11, "a"), ("k", 21, "a"), ("k", 22, "a")) == [
        ("match", "busy", 0, 0, 10)
    ]
    stream.change(BUSY.replace(">= 2", ">= 3"), begins=25)
    assert stream.step(26, ("k", 3, "a"), ("k", 4, "a"), ("k", 12, "a"), ("k", 13, "a"), ("k", 14, "a")) == []
    stream.change(BUSY.replace(">= 2", ">= 3"), CD, begins=26)  # remembers that they are final
    assert stream.step(35, ("k", 27, "a"), ("k", 5, "a")) == [("match", "busy", 0, 20, 30)]
    assert [row[:3] for row in stream.step(36, ("k", 23, "a"))] == [
        ("retract", "busy", 1),
        ("match", "busy", 2),
    ]


def test_a_new_window_rule_reports_no_window_that_had_ended() -> None:
    stream = Stream(BUSY)
    stream.step(25, ("k", 1, "a"), ("k", 2, "a"), ("k", 21, "a"), ("k", 22, "a"))
    new = BUSY.replace("RULE busy", "RULE new") + " SUPPRESS FOR 1 MINUTE"
    stream.change(BUSY, new, begins=25)
    rows = stream.step(26, ("k", 3, "a"))
    assert [row[:3] for row in rows] == [("retract", "busy", 1), ("match", "busy", 2)]
    assert {row[1] for row in stream.step(35, ("k", 31, "a"))} == {"busy", "new"}


OVER = "RULE over FROM MATCHES OF ab PARTITION BY k PATTERN p -> q WITHIN 1 MINUTE DEFINE p AS n IS NOT NULL"


def test_rules_over_rules_come_and_go_and_are_corrected_together() -> None:
    stream = Stream(AB)
    stream.step(20, ("k", 1, "a", 0, 1), ("k", 2, "b"))
    stream.change(OVER, AB, begins=20)
    given = [("k", second + at, "ab"[at], 0, 1) for second in (21, 23, 25) for at in (0, 1)]
    assert ("match", "over", 0, 22, 24) in stream.step(30, *given)
    found = stream.step(30, ("k", 23.5, "x"), ("k", 1.5, "x"))
    assert sorted(found) == [
        ("match", "over", 0, 22, 26),
        *(("retract", "ab", 1, 1, 2), ("retract", "ab", 1, 23, 24), ("retract", "over", 1, 22, 24)),
    ]
    stream.change(AB, CD, begins=30)
    assert stream.step(30, ("k", 25.5, "x")) == [("retract", "ab", 1, 25, 26)]


def test_a_column_that_has_another_type_now_is_still_that_of_the_match() -> None:
    stream = Stream(AB)
    stream.rows(20, ("k", 1, "a", 0, 7), ("k", 4, "b", 1.5))
    wide = CD + " MEASURES c.x AS n ON TIMEOUT"
    stream.change(AB, wide, begins=20)
    (row,) = stream.rows(20, ("k", 2, "x"))
    assert (row["kind"], row["n"], row["outcome"]) == ("retract", 7.0, "match")
    assert isinstance(row["n"], float)


def test_a_key_group_without_state_begins_with_the_others() -> None:
    rules = rule_set(AB).with_corrections(Corrections(60 * SECOND))
    stream = Stream(AB)
    stream.chain = Chain(
        rules, decode_state(changed_state(None, rule_set(CD), rules, 4, 9 * SECOND), rules, 4)
    )
    assert stream.step(20, ("k", 8, "a"), ("k", 10, "b"), ("k", 11, "a"), ("k", 12, "b")) == [
        ("match", "ab", 0, 11, 12)
    ]


@pytest.mark.parametrize("has_corrections", [True, False])
def test_state_with_corrections_is_not_continued_without_them_nor_the_other_way_round(
    has_corrections: bool,
) -> None:
    with_them = Corrections(SECOND)
    before, now = (
        rule_set(*of).with_corrections(with_them if has_corrections else None) for of in ((AB,), (AB, CD))
    )
    data = encode_state(Chain(before).matchers, 4)
    other = now.with_corrections(None if has_corrections else with_them)
    with pytest.raises(StateError, match=r"E0649.*with(out)? corrections"):
        changed_state(data, before, other, 4, 0)


def test_open_runs_are_seen_in_state_with_corrections() -> None:
    stream = Stream(AB, OVER)
    stream.step(20, ("k", 1, "a", 0, 1), ("k", 2, "b"), ("k", 19, "a"))
    parts = list(programs_in(encode_state(stream.chain.matchers, 4), stream.rules))
    found = [(rule.name, rule.rows.n_rows) for part in parts if part.sections for rule in part.sections.rules]
    assert found == [("ab", 1), ("over", 1)]
    assert sum(part.n_bytes for part in parts) == len(stream.chain.matchers[0].snapshot())


AGAIN = AB.replace("RULE ab", "RULE again")


def past_of(*given: tuple[object, ...], texts: tuple[str, ...] = (AB, AGAIN)) -> Past:
    """Return what `again` knows of events up to second 20."""
    chain = Chain(rule_set(*texts))
    chain.push_events(STREAM, events(*given))
    chain.advance(20 * SECOND, lambda matches: None)
    return Past(encode_state(chain.matchers, 4), frozenset(["again"]))


@pytest.mark.parametrize("texts", [(AB, AGAIN), (CD, AGAIN), (OVER, AGAIN, AB)])
@pytest.mark.parametrize("late", [(), (("k", 5, "a"), ("k", 6, "b"))])
def test_a_rule_that_begins_with_a_past_keeps_it_whatever_comes_late(
    texts: tuple[str, ...], late: tuple[tuple[object, ...], ...]
) -> None:
    given = (("k", 1, "a"), ("k", 2, "b"), ("k", 18, "a", 0, 1), ("k", 21, "b"), ("k", 22, "a", 0, 2))
    stream = Stream(*(text for text in texts if text != AGAIN))
    stream.step(20, *given)
    stream.change(*texts, begins=22, past=past_of(*given, texts=texts))
    assert "again" not in {row[1] for row in stream.step(20, *late)}
    assert ("match", "again", 0, 18, 21) in stream.step(21)
    assert ("match", "again", 0, 22, 23) in stream.step(24, ("k", 23, "b"))
    assert ("retract", "again", 1, 18, 21) in stream.step(24, ("k", 20.5, "x"), ("k", 4, "x"))
    data = encode_state(stream.chain.matchers, 2)
    parts = divided_state(data, stream.rules, groups_of(stream.rules, 2), 2)
    matchers = [decode_state(part.data, stream.rules, 2) for part in parts]
    stream.chain = Chain(stream.rules, decode_state(joined_state(matchers, 2), stream.rules, 2))
    assert ("retract", "again", 1, 22, 23) in stream.step(24, ("k", 22.5, "x"))


def test_a_rule_with_a_past_continues_after_another_change() -> None:
    stream = Stream(AB)
    given = (("k", 1, "a"), ("k", 2, "b"), ("k", 18, "a"))
    stream.step(20, *given)
    stream.change(AB, AGAIN, begins=20, past=past_of(*given))
    stream.change(AGAIN, CD, begins=20)
    assert stream.step(20, ("k", 19, "x")) == []
    assert stream.step(22, ("k", 21, "b")) == [("match", "again", 0, 18, 21)]


def test_a_key_group_without_state_begins_with_the_past() -> None:
    rules = rule_set(AB, AGAIN).with_corrections(Corrections(60 * SECOND))
    stream = Stream(AB, AGAIN)
    data = changed_state(None, rule_set(AB), rules, 4, 20 * SECOND, past_of(("k", 18, "a")))
    stream.chain = Chain(rules, decode_state(data, rules, 4))
    assert stream.step(21, ("k", 19, "x")) == []
    assert stream.step(22, ("k", 21, "b")) == [("match", "again", 0, 18, 21)]


def test_state_in_files_is_read_by_the_rules_that_a_checkpoint_has(tmp_path: Path) -> None:
    stream = Stream(AB)
    stream.step(20, ("k", 1, "a", 0, 1), ("k", 2, "b"), ("k", 19, "a"))
    data = encode_state(stream.chain.matchers, 1)
    kept = Kept(str(tmp_path), "run", 2, inline_bytes=0)
    stored = StateFiles(kept, stream.rules, 1).stored(data, Task(1, 0, 0, 0))
    assert stored.pointer is not None
    texts = (Source("ab.cep", AB),)
    rules = StoredRules.of_json(json.loads(StoredRules.of(texts, stream.rules).to_json())).rule_set()
    chain = StateFiles(kept, rules, 1).read(stored.pointer)
    assert encode_state(chain.matchers, 1) == data
