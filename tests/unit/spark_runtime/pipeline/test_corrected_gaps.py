"""Gaps of rules with corrections, without Spark: the net result is that of a batch over all events."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep import find_matches, load_rules
from cep.engine.chains.chain import Chain
from cep.engine.corrections.filled_gaps import Written
from cep.errors import StateError
from cep.rule_set import Corrections
from spark_runtime.pipeline.corrected_gaps import Differences
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.state.snapshots import Past, changed_state, decode_state, encode_state
from spark_runtime.wire.output import carried_schema
from tests.unit.spark_runtime.pipeline.test_filling import BEFORE, POINTS, STREAM, Life, plant

SETTINGS = "late: correct within 60 seconds\nlog: log"
CALM = (
    "RULE calm FROM t PARTITION BY k PATTERN a -> !b FOR 12 SECONDS WITHIN 1 MINUTE "
    "DEFINE a AS x < 3, b AS x > 6 MEASURES a.x AS low\n"
)
DEFINE = "DEFINE a AS x < 3, b AS x > 6"
KINDS = (
    "RULE pair FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE DEFINE a AS x < 3, b AS x > 7 "
    "MEASURES b.x AS x\n"
    "RULE twice FROM MATCHES OF pair PARTITION BY k PATTERN a -> b WITHIN 3 MINUTES DEFINE b AS x >= a.x\n"
    f"RULE summed FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE {DEFINE} "
    "MEASURES SUM(x) OVER LAST 1 MINUTE AS s, PREV(x) AS p\n"
    f"RULE calmed FROM t PARTITION BY k PATTERN a -> !b FOR 12 SECONDS {DEFINE} SUPPRESS FOR 50 SECONDS\n"
    "RULE ever FROM t PARTITION BY k PATTERN a -> b -> !c FOR 5 SECONDS AFTER MATCH SKIP PAST LAST EVENT "
    "DEFINE a AS x < 2, b AS x > 7, c AS x = 5 MEASURES b.x AS bx\n"
    f"RULE timely FROM t PARTITION BY k PATTERN a -> b WITHIN 20 SECONDS {DEFINE} ON TIMEOUT\n"
    "RULE tumble FROM t PARTITION BY k WINDOW TUMBLING 20 SECONDS HAVING COUNT(*) > 2 MEASURES SUM(x) AS s\n"
    "RULE visit FROM t PARTITION BY k WINDOW SESSION GAP 5 SECONDS HAVING COUNT(*) > 1 MEASURES MAX(x) AS m\n"
)
NAMES = ("pair", "twice", "summed", "calmed", "ever", "timely", "tumble", "visit")
END = [{"k": "z", "ts": 100_000_000_000, "x": 5}]


class Corrected(Life):
    """A pipeline in which late events correct matches for a minute."""

    def __init__(self, folder: Path, settings: str = SETTINGS) -> None:
        super().__init__(folder, settings)

    def runs(self, rules: str, parts: Sequence[Sequence[dict[str, Any]]]) -> None:
        """Run once for each part: input that is known before it is read makes no event late."""
        for part in parts:
            self.run(rules, part)

    def rows(self) -> list[dict[str, Any]]:
        files = sorted(self.folder.glob("out/batch=*/part-*"))
        return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]

    def net(self, *rules: str) -> list[dict[str, Any]]:
        """Return the rows that are valid, after checking that both ways to read the rows agree."""
        rows = self.rows()
        written = Counter((row["match_id"], row["revision"]) for row in rows)
        assert set(written.values()) <= {1}
        last = {row["match_id"]: row for row in sorted(rows, key=lambda row: row["revision"])}
        n = Counter(row["match_id"] for row in rows if row["kind"] == "match")
        n.subtract(row["match_id"] for row in rows if row["kind"] == "retract")
        found = [row for row in last.values() if row["kind"] == "match"]
        assert {match_id: count for match_id, count in n.items() if count} == {
            row["match_id"]: 1 for row in found
        }
        return [row for row in found if not rules or row["rule"] in rules]


def values(rows: Sequence[dict[str, Any]]) -> Counter[str]:
    """Count rows by all their values, without revision and kind."""
    dropped = {"revision", "kind", "outcome"} if any("revision" in row for row in rows) else {"outcome"}
    return Counter(
        repr(
            sorted((name, value) for name, value in row.items() if name not in dropped and value is not None)
        )
        for row in rows
    )


def named(rows: Sequence[dict[str, Any]]) -> set[tuple[str, int, str]]:
    return {(row["match_id"], row["revision"], row["kind"]) for row in rows}


def events_of(seed: int, n: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    times = sorted(draw.sample(range(n * 2), n))
    return [{"k": draw.choice("abc"), "ts": 1_000_000 * at, "x": draw.randrange(10)} for at in times]


def delivered(seed: int, events: Sequence[dict[str, Any]], n: int) -> list[list[dict[str, Any]]]:
    """Return events in `n` parts: some come late, and some of these are too late for a correction."""
    draw = random.Random(seed)
    found: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    for at, event in enumerate(events):
        share = draw.random()
        late = 2 if share < 0.04 and event["x"] > 6 else 1 if share < 0.12 else 0
        found[min(at * n // len(events) + late, n - 1)].append(event)
    for part in found:
        draw.shuffle(part)
    return found


def batch(rules: str, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return find_matches(load_rules(rules, STREAM), None, [*events, *END])


@pytest.mark.parametrize("seed", range(3))
def test_after_gaps_are_filled_the_net_result_is_that_of_a_batch_over_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    life, events = Corrected(tmp_path), events_of(seed, 300)
    parts = delivered(seed, events, 8)
    life.runs(KINDS, parts[:5])
    before = life.rows()
    told = life.backfill("--gaps")
    assert "  late, pair, summed, calmed, 5 more, " in told
    assert "not filled" not in told
    with monkeypatch.context() as patched:  # events come between the backfill and the filling
        patched.setattr("spark_runtime.pipeline.reloading.waiting_fill", lambda *given: None)
        life.run(KINDS, parts[5])
    life.runs(KINDS, parts[6:])
    assert any(f"{len(parts[5])} events since `cep backfill`" in said for said in life.said)
    life.backfill("--gaps")
    life.run(KINDS, END)
    assert values(life.net()) == values(batch(KINDS, events))
    assert all(gap["filled"] for gap in life.gaps())
    assert {kind for *_, kind in named(life.rows()) - named(before)} == {"match", "retract"}
    assert life.backfill("--gaps").startswith("nothing to fill")


@pytest.mark.parametrize("seed", range(2))
def test_a_late_start_is_filled_and_a_rule_that_has_changed_is_filled_from_then_on(
    tmp_path: Path, seed: int
) -> None:
    changed = BEFORE.replace("RULE pair", "RULE other")
    rules = BEFORE + CALM + changed.replace("1 MINUTE", "50 SECONDS")
    life, events = Corrected(tmp_path), events_of(seed, 300)
    parts = delivered(seed, events, 8)
    life.runs(BEFORE + changed, parts[:3])
    begins_us = max(event["ts"] for part in parts[:3] for event in part)
    life.runs(rules, parts[3:6])
    told = life.backfill("--gaps")
    assert "  late start, calm, - to " in told
    assert "not filled: the rule had another form before, and late events correct its matches" in told
    life.runs(rules, parts[6:])
    life.backfill("--gaps")
    life.run(rules, END)
    for rule in ("pair", "calm"):
        expected = [row for row in batch(rules, events) if row["rule"] == rule]
        assert values(life.net(rule)) == values(expected), rule
    since = [event for event in events if event["ts"] > begins_us]
    found = [row for row in life.net("other") if row["match_start"].timestamp() * 1e6 > begins_us]
    assert values(found) == values([row for row in batch(rules, since) if row["rule"] == "other"])
    assert [gap["kind"] for gap in life.gaps() if not gap["filled"]].count("late start") == 1


def test_a_run_that_ends_at_any_point_of_a_filling_with_corrections_writes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, life, events = BEFORE + CALM, Corrected(tmp_path), events_of(1, 300)
    parts = delivered(1, events, 8)
    life.runs(rules, parts[:5])
    for place in (
        "spark_runtime.pipeline.backfill.write_matches",
        "spark_runtime.pipeline.filling.differences",
    ):
        with monkeypatch.context() as patched:
            plant(patched, place, "after")
            life.backfill("--gaps", code=70)
        assert not any(gap["filled"] for gap in life.gaps())
    life.backfill("--gaps")
    life.add(parts[5])
    for place, moment in POINTS:
        with monkeypatch.context() as patched:
            plant(patched, place, moment)
            with pytest.raises(RuntimeError, match="it ends here"):
                life.run(rules)
    life.runs(rules, parts[6:])
    life.backfill("--gaps")
    life.run(rules, END)
    assert values(life.net()) == values(batch(rules, events))
    assert not list((life.checkpoint / "backfill").iterdir())


def test_entries_that_the_log_drops_before_gaps_are_filled_are_known_so_nothing_is_written_twice(
    tmp_path: Path,
) -> None:
    rules, life, events = BEFORE + CALM, Corrected(tmp_path), events_of(1, 300)
    parts = delivered(1, events, 8)
    life.runs(rules, parts[:7])
    life.backfill("--gaps")
    log = MatchLog(str(tmp_path / "log"))
    log.open()
    log.retain(None, 1)
    assert log.first_offset() > 5
    life.runs(rules, [parts[7], END])
    filled = [gap for gap in life.gaps() if gap["filled"]]
    assert filled
    events = [event for event in events if event["ts"] < max(event["ts"] for event in parts[5])]
    expected = values([row for row in batch(rules, events) if row["match_end"].timestamp() < 300])
    assert values([row for row in life.net() if row["match_end"].timestamp() < 300]) == expected


def test_what_would_be_written_is_first_shown_and_changes_nothing(tmp_path: Path) -> None:
    rules, life, events = BEFORE + CALM, Corrected(tmp_path), events_of(1, 300)
    parts = delivered(1, events, 8)
    life.runs(rules, parts[:5])
    before = life.rows()
    told = life.backfill("--gaps", "--matches", "apart", "--into", str(tmp_path / "apart"))
    apart = [json.loads(line) for line in (tmp_path / "apart/missing.jsonl").read_text().splitlines()]
    n = Counter(row["kind"] for row in apart)
    assert n["match"] > 0
    assert n["retract"] == 1
    assert "  1 reported match is wrong, and is withdrawn\n" in told
    life.run(rules)
    assert life.rows() == before
    assert (
        life.backfill("--gaps") == told + "the pipeline fills the gaps while it runs, or at its next start\n"
    )
    life.run(rules)
    assert named(life.rows()) - named(before) == named(apart)
    ids = {kind: {row["match_id"] for row in apart if row["kind"] == kind} for kind in n}
    missing = ids["match"] - ids["retract"]
    (said,) = (text for text in life.said if "gaps are filled" in text)
    counts = re.search(r"(\d+) missing match(?:es are| is) reported, (?:(\d+) more beside the gaps, )?", said)
    assert counts is not None
    in_gaps, beside = int(counts[1]), int(counts[2] or 0)
    assert in_gaps + beside == len(missing)
    assert ("  beside the gaps: " in told) == bool(beside)
    if beside:
        assert f"  beside the gaps: {beside} missing match" in told
    assert f", {len(ids['retract'] - ids['match'])} withdrawn" in said


def test_what_cannot_be_filled_with_corrections_is_named_with_the_reason(tmp_path: Path) -> None:
    limited = "MAX RUNS 1 PER KEY ON OVERFLOW DROP NEWEST\n"
    rules = BEFORE + "RULE many FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE "
    rules += "DEFINE a AS x < 8, b AS x > 8 " + limited
    ever = "RULE ever FROM t PARTITION BY k PATTERN a -> b DEFINE a AS x < 1, b AS x > 8\n"
    life, events = Corrected(tmp_path, SETTINGS.replace("\nlog: log", "")), events_of(1, 300)
    parts = delivered(1, events, 8)
    life.runs(rules + ever, parts[:4])
    assert "the pipeline has no log of matches" in life.backfill("--gaps")
    life.settings = SETTINGS
    life.runs(rules + ever, parts[4:5])
    told = life.backfill("--gaps")
    assert "dropped runs, many" in told
    assert "not filled: a late event decides again which runs are dropped" in told
    assert "not filled: the log of matches begins later, and without WITHIN no match from before" in told
    assert "not filled: matches from before the log begins can change until the watermark has passed" in told
    life.runs(rules + ever, parts[5:])
    told = life.backfill("--gaps")
    assert "  late, pair, many, " in told
    life.run(rules + ever, END)
    begins = [row for row in batch(rules, events) if row["rule"] == "pair"]
    found = {row["match_id"] for row in life.net("pair")}
    late = [row for row in begins if row["match_end"].timestamp() > 400]
    assert {row["match_id"] for row in late} <= found


def test_a_late_event_reports_a_match_whose_run_was_dropped_so_no_fill_may_report_it() -> None:
    text = "RULE many FROM t PARTITION BY k PATTERN a -> !c -> b WITHIN 1 MINUTE "
    text += "DEFINE a AS x = 1, b AS x = 2, c AS x = 3 MAX RUNS 1 PER KEY ON OVERFLOW DROP NEWEST"
    chain = Chain(load_rules(text, STREAM).with_corrections(Corrections(60_000_000)))
    found: list[dict[str, Any]] = []
    for given, reached_s in ((((1, 1), (3, 1), (5, 2)), 10), (((2, 3),), 11)):
        columns = {
            "k": ["a"] * len(given),
            "ts": pa.array([at * 1_000_000 for at, _ in given], pa.timestamp("us", "UTC")),
            "x": pa.array([x for _, x in given], pa.int64()),
        }
        chain.push_events(STREAM, pa.table(columns))
        chain.advance(reached_s * 1_000_000, lambda matches: found.extend(matches.to_pylist()))
    rows = [(row["kind"], row["revision"], row["match_start"].second) for row in found]
    assert rows == [("match", 0, 1), ("retract", 1, 1), ("match", 0, 3)]


def test_rules_that_depend_on_each_other_are_filled_together_or_not_at_all(tmp_path: Path) -> None:
    life = Corrected(tmp_path)
    life.runs(KINDS, delivered(1, events_of(1, 300), 8)[:5])
    told = life.backfill("--gaps", "--rules", "twice", "--matches", "none")
    assert "not filled: the gaps of `pair`, on which it depends, are not filled" in told
    of_pair = [name for name in NAMES if name not in ("tumble", "visit")]
    told = life.backfill("--gaps", *(word for name in of_pair for word in ("--rules", name)))
    assert "not filled" not in told


def test_a_rule_with_a_past_that_lacks_the_gap_keeps_those_from_being_filled_that_share_its_values(
    tmp_path: Path,
) -> None:
    life, parts = Corrected(tmp_path), delivered(1, events_of(1, 300), 8)
    later = KINDS.replace("RULE summed", "RULE later").splitlines(keepends=True)[2]
    life.runs(KINDS, parts[:5])
    life.write(KINDS + later)
    life.backfill("--matches", "alert")
    known_us = max(event["ts"] for part in parts[:5] for event in part)
    life.run(KINDS + later, [event for event in parts[5] if event["ts"] > known_us])
    told = life.backfill("--gaps")
    assert "not filled: `later`, with which it is evaluated, has begun since with a past that " in told
    assert "  late, tumble, visit, " in told


SUMS = KINDS.splitlines(keepends=True)[0] + (
    "RULE sums FROM t PARTITION BY k WINDOW TUMBLING 20 SECONDS HAVING COUNT(*) > 2 MEASURES SUM(x) AS x\n"
)


def matches_of(*rows: tuple[str, str, int, str, int]) -> pa.Table:
    """Return carried rows: rule, id, revision, kind, and the value of the measure `x`; each ends at 50."""
    schema = carried_schema(load_rules(SUMS, STREAM).with_corrections(Corrections(1)).match_schema)
    found = [
        {"rule": of, "match_id": match_id, "revision": revision, "kind": kind, "match_end": 50, "x": x}
        for of, match_id, revision, kind, x in rows
    ]
    return pa.Table.from_pylist([{**row, "match_start": 40} for row in found], schema=schema)


def test_rows_differ_by_match_by_number_and_where_the_rule_needs_it_by_value() -> None:
    logged = matches_of(
        *(("pair", name, 2, "match", 1) for name in ("same", "gone", "fewer", "fewer")),
        ("pair", "back", 5, "retract", 1),
        ("pair", "out", 1, "retract", 1),
        ("pair", "other", 0, "match", 1),
        ("sums", "other values", 0, "match", 1),
    )
    found = matches_of(
        *(("pair", name, 0, "match", 2) for name in ("same", "fewer", "new", "back", "other")),
        ("sums", "other values", 0, "match", 2),
    )
    rules = load_rules(SUMS, STREAM).with_corrections(Corrections(1))
    differ = Differences(rules, logged, found, found.slice(3), {"pair": 50, "sums": 0})
    rows = [(row["match_id"], row["revision"], row["kind"]) for row in differ.withdrawn.to_pylist()]
    assert rows == [("gone", 3, "retract"), *[("fewer", 3, "retract")] * 2, ("other values", 1, "retract")]
    rows = [(row["match_id"], row["revision"], row["kind"]) for row in differ.added.to_pylist()]
    assert rows == [
        ("fewer", 4, "match"),
        ("new", 0, "match"),
        ("back", 6, "match"),
        ("other values", 2, "match"),
    ]
    assert differ.missing.column("match_id").to_pylist() == ["new", "back"]
    assert differ.wrong.column("match_id").to_pylist() == ["gone"]
    known = {row["match_id"]: row["revision"] for row in differ.written.to_pylist()}
    assert known == {"gone": 3, "back": 5, "other values": 1}
    final = Differences(rules, logged, found.slice(0, 3), found.slice(0, 0), {"pair": 51})
    assert not final.added.num_rows
    assert not final.withdrawn.num_rows


def test_a_past_that_ends_elsewhere_than_the_state_is_refused() -> None:
    rules = load_rules(BEFORE, STREAM)
    corrected = rules.with_corrections(Corrections(60_000_000))
    given = pa.table(
        {
            "k": ["a"],
            "ts": pa.array([69_000_000], pa.timestamp("us", "UTC")),
            "x": pa.array([1], pa.int64()),
        }
    )
    live, past = Chain(corrected), Chain(rules)
    for chain in (live, past):
        chain.push_events(STREAM, given)
        chain.advance(70_000_000 if chain is live else 10_000_000, lambda matches: None)
    written = matches_of().select(["rule", "match_id", "match_start", "match_end", "revision"])
    data = encode_state(live.matchers, 1)
    for reached_us, is_refused in ((70_000_000, False), (69_000_000, True), (71_000_000, True)):
        of = Past(encode_state(past.matchers, 1), frozenset(["pair"]), Written(reached_us, written))
        if is_refused:
            with pytest.raises(StateError, match=r"E0718.*does not end where the state does"):
                changed_state(data, corrected, corrected, 1, 0, of)
        else:
            now = changed_state(data, corrected, corrected, 1, 0, of)
            (matcher,) = decode_state(now, corrected, 1)
            assert matcher.watermark_us == reached_us
