"""Suppression, timeouts and the limit on runs: counts, memory, restarts. Their meaning is the page's."""

from __future__ import annotations

import csv
import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest

from cep.compiler import ir
from cep.counts import Counts
from cep.engine.kernels import layout
from cep.engine.matching.matcher import Matcher
from cep.engine.matching.warmed_rules import warmed
from cep.engine.state.suppression import Suppression
from cep.errors import StateError
from cep.output.files import write_table
from cep.output.rows import match_rows
from cep.output.summary import summary_lines
from cep.output.terminal import match_tables
from cep.rule_set import RuleSet
from tests.oracle.suppression import not_suppressed
from tests.unit.engine.events import SECOND, STREAM, prepared, program, spans

A = "a AS letter = 'a'"
AB = "a AS letter = 'a', b AS letter = 'b'"


def test_suppression_lives_on_without_runs_across_batches_and_restarts() -> None:
    compiled = program("a", "SUPPRESS FOR 5 SECONDS", define=A)
    matcher = Matcher(compiled)
    found = []
    for at in range(12):
        matcher.push(prepared(compiled, ("k", at, "a")))
        found += spans(matcher.advance(at * SECOND))
        matcher = Matcher.restore(compiled, matcher.snapshot())
    assert found == [("k", 0.0, 0.0), ("k", 5.0, 5.0), ("k", 10.0, 10.0)]
    assert matcher.counters.matches == {"r": 3}
    assert matcher.counters.suppressed == {"r": 9}
    assert matcher.n_open_runs == 0


def test_keys_are_forgotten_once_nothing_of_them_is_suppressed_any_more() -> None:
    compiled = program("a", "SUPPRESS FOR 5 SECONDS", define=A)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *((f"k{number}", 1, "a") for number in range(500))))
    matcher.advance(2 * SECOND)
    held = len(matcher.snapshot())
    matcher.advance(6 * SECOND)
    assert len(matcher.snapshot()) < held / 4


def test_a_limit_of_a_day_lives_on_without_runs_across_batches_and_restarts() -> None:
    compiled = program("a", "SUPPRESS AFTER 2 PER DAY", define=A)
    matcher = Matcher(compiled)
    found = []
    for at in (0, 1, 2, 86_399, 86_400, 86_401, 86_402, 86_403):
        matcher.push(prepared(compiled, ("k", at, "a")))
        found += spans(matcher.advance(at * SECOND))
        matcher = Matcher.restore(compiled, matcher.snapshot())
    assert [start for _, start, _ in found] == [0.0, 1.0, 86_400.0, 86_401.0]
    assert matcher.counters.suppressed == {"r": 4}
    held = len(matcher.snapshot())
    matcher.advance(3 * 86_400 * SECOND)
    assert len(matcher.snapshot()) < held  # the key is forgotten


def test_a_rule_that_begins_with_a_past_knows_how_many_alerts_the_day_had() -> None:
    compiled = program("a", "SUPPRESS AFTER 1 PER DAY", define=A)
    stored, past = Matcher(compiled), Matcher(compiled)
    stored.push(prepared(compiled, ("m", 1, "a"), ("k", 2, "a")))
    past.push(prepared(compiled, ("k", 2, "a")))
    for matcher in (stored, past):
        matcher.advance(5 * SECOND)
    both = Matcher.restore(compiled, warmed(compiled, stored.snapshot(), past.snapshot(), {"r"}))
    both.push(prepared(compiled, ("k", 6, "a"), ("m", 7, "a")))
    assert spans(both.advance(9 * SECOND)) == [("m", 7.0, 7.0)]


def test_limits_of_days_are_those_of_the_oracle_in_any_batches() -> None:
    for seed in range(300):
        drawn = random.Random(seed)
        n, most = drawn.randrange(1, 40), drawn.randrange(1, 5)
        ends = sorted(drawn.randrange(-(10**11), 4 * 10**11) for _ in range(n))
        if drawn.random() < 0.5:  # absences are found after their end
            drawn.shuffle(ends)
        matches = np.zeros((n, layout.MATCH_REGISTER), np.int64)
        matches[:, layout.MATCH_SLOT] = [drawn.randrange(3) for _ in range(n)]
        matches[:, layout.MATCH_END] = ends
        matches[:, layout.MATCH_TIMED_OUT] = [drawn.random() < 0.1 for _ in range(n)]
        suppression = Suppression(0, most)
        suppression.set_slots(3)
        cuts = [0, *sorted(drawn.randrange(n + 1) for _ in range(3)), n]
        found = [suppression.reported(matches[start:end]) for start, end in pairwise(cuts)]
        timed_out = matches[:, layout.MATCH_TIMED_OUT] != 0
        expected = np.flatnonzero(timed_out).tolist()
        for slot in range(3):
            rows = np.flatnonzero((matches[:, layout.MATCH_SLOT] == slot) & ~timed_out)
            numbers = not_suppressed(ir.Report(n_per_day=most), matches[rows, layout.MATCH_END].tolist())
            expected += rows[numbers].tolist()
        assert np.array_equal(np.concatenate(found), matches[sorted(expected)]), seed
        assert suppression.n_suppressed == n - len(expected)


def test_a_timeout_is_counted_neither_as_match_nor_as_suppressed() -> None:
    compiled = program("a -> b", "WITHIN 2 SECONDS ON TIMEOUT SUPPRESS FOR 1 HOUR", define=AB)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a"), ("k", 2, "b"), ("k", 5, "a"), ("k", 20, "a")))
    table = matcher.finish()
    assert table["outcome"].to_pylist() == ["match", "timeout", "timeout"]
    assert len(set(table["match_id"].to_pylist())) == 3
    counters = Matcher.restore(compiled, matcher.snapshot()).counters
    assert (counters.matches, counters.timeouts, counters.suppressed) == ({"r": 1}, {"r": 2}, {"r": 0})


def test_too_many_runs_under_fail_stop_with_rule_and_key() -> None:
    compiled = program("a -> b", "WITHIN 1 HOUR MAX RUNS 2 PER KEY ON OVERFLOW FAIL", define=AB)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *(("k", at, "a") for at in range(2)), ("m", 0, "a")))
    assert matcher.advance(2 * SECOND).num_rows == 0
    matcher.push(prepared(compiled, ("k", 3, "a")))
    with pytest.raises(StateError, match=r"E0707.*rule `r` has more than 2 open runs for the key k = 'k'"):
        matcher.advance(3 * SECOND)


def test_the_newest_runs_are_dropped_where_the_rule_says_so() -> None:
    clauses = "WITHIN 1 HOUR NO SKIP MAX RUNS 2 PER KEY ON OVERFLOW DROP NEWEST"
    compiled = program("a -> b", clauses, define=AB)
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *(("k", at, "a") for at in range(5)), ("k", 9, "b")))
    assert spans(matcher.finish()) == [("k", 0.0, 9.0), ("k", 1.0, 9.0)]
    assert matcher.counters.dropped_runs == {"r": 3}


@pytest.mark.parametrize("overflow", ["DROP OLDEST", "DROP NEWEST"])
def test_a_loop_that_doubles_with_each_event_stays_inside_its_limit(overflow: str) -> None:
    clauses = f"WITHIN 1 DAY MATCH ALL MAX RUNS 500 PER KEY ON OVERFLOW {overflow}"
    compiled = program("a->>+ -> b", clauses, define=AB)
    matcher = Matcher(compiled)
    Matcher(compiled).finish()
    matcher.push(prepared(compiled, *(("k", at, "a") for at in range(3000))))
    matcher.advance(3000 * SECOND)
    assert matcher.n_open_runs == 500
    assert matcher.counters.dropped_runs["r"] > 100_000


def test_counts_by_rule_are_shown() -> None:
    counts = Counts(
        matches={"r": 3, "s": 0},
        timeouts={"r": 4, "s": 0},
        suppressed={"r": 9, "s": 0},
        dropped_runs={"r": 0, "s": 2},
    )
    lines = summary_lines(counts, 1.0, {})
    assert "timeouts                 4  r 4" in lines
    assert "suppressed               9  r 9" in lines
    assert any(line.startswith("dropped runs             2") and line.endswith(": s 2") for line in lines)


def test_what_is_not_named_is_counted_in_the_singular_if_it_is_one() -> None:
    names = {f"k = {number}": 1 for number in range(4)}
    counts = Counts(dropped_runs={"r": 1}, dropped_keys=names, empty=names)
    lines = "\n".join(summary_lines(counts, 1.0, {}))
    assert "k = 2 (1), 1 other key\n" in lines
    assert "k = 2, 1 other file\n" in lines
    counts = Counts(dropped_runs={"r": 1}, dropped_keys=names | {"k = 5": 1})
    assert "k = 2 (1), 2 other keys\n" in "\n".join(summary_lines(counts, 1.0, {}))


def test_a_key_cannot_make_a_line_of_the_summary_nor_a_long_one() -> None:
    forged = "k = a\nmatches              999  r 999"
    counts = Counts(
        events=9,
        late_of={STREAM.name: 3},
        late_in={"f\nmatches 9": 1},
        late_keys={forged: 2, f"k = {'x' * 3000}": 1},
        dropped_runs={"r": 1},
        dropped_keys={forged: 1},
    )
    lines = "\n".join(summary_lines(counts, 1.0, {STREAM.name: STREAM})).split("\n")
    assert len([line for line in lines if line.startswith("matches")]) == 1
    assert r"of k = a\nmatches              999  r 999 (2), k = xxx" in "\n".join(lines)
    assert max(map(len, lines)) < 200


def test_events_are_kept_only_as_long_as_a_run_may_report_them() -> None:
    clauses = "WITHIN 4 SECONDS NO SKIP ALL ROWS PER MATCH"
    compiled = program("a -> b", clauses, define=AB, measures="ARRAY_AGG(a.x) AS xs")
    matcher = Matcher(compiled)
    sizes = []
    for at in range(60):
        matcher.push(prepared(compiled, ("k", at, "a", float(at)), ("k", at, "c")))
        matcher.advance(at * SECOND)
        matcher = Matcher.restore(compiled, matcher.snapshot())
        sizes.append(len(matcher.snapshot()))
    # Different times are compressed to sizes that differ by some bytes. Forty more events take a thousand.
    assert max(sizes[20:]) - min(sizes[20:]) < 16
    matcher.push(prepared(compiled, ("k", 60, "b")))
    table = matcher.finish()
    assert table["xs"].to_pylist() == [[at] for at in (56.0, 57.0, 58.0, 59.0) for _ in range(2)]
    assert table["event_variable"].to_pylist() == ["a", "b"] * 4
    assert [event["ts"].second for event in table["event"].to_pylist()] == [56, 0, 57, 0, 58, 0, 59, 0]


def test_what_runs_share_is_kept_once_however_many_there_are() -> None:
    clauses = "WITHIN 1 DAY MATCH ALL MAX RUNS 200 PER KEY"
    compiled = program("a->>+ -> b", clauses, define=AB, measures="ARRAY_AGG(a.n) AS ns")
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, *(("k", at, "a", None, at) for at in range(2000)), ("k", 2000, "b")))
    table = matcher.finish()
    assert table.num_rows == 100  # of 200 waits, half are for b
    for numbers in table["ns"].to_pylist():
        assert numbers == sorted(set(numbers))


def test_lists_and_events_are_written_as_json_text_to_csv(tmp_path: Path) -> None:
    compiled = program("a", "ALL ROWS PER MATCH", define=A, measures="ARRAY_AGG(a.x) AS xs")
    matcher = Matcher(compiled)
    matcher.push(prepared(compiled, ("k", 1, "a", 0.5)))
    table = matcher.finish()
    rows = list(match_rows(RuleSet((compiled,)), table))
    for ending in ("csv", "jsonl", "parquet"):
        write_table(tmp_path / f"matches.{ending}", table, rows)
    time = "1970-01-01T00:00:01.000000Z"
    event = {"k": "k", "ts": time, "id": 0, "letter": "a", "x": 0.5, "n": None, "s": None}
    (line,) = (tmp_path / "matches.jsonl").read_text().splitlines()
    assert json.loads(line)["event"] == event
    with (tmp_path / "matches.csv").open(newline="") as file:
        (cells,) = csv.DictReader(file)
    assert (json.loads(cells["event"]), json.loads(cells["xs"])) == (event, [0.5])
    assert pyarrow.parquet.read_table(tmp_path / "matches.parquet").equals(table)
    assert [shown.row_count for shown in match_tables(RuleSet((compiled,)), table)] == [1]
