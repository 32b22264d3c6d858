"""Gaps that are filled: what rules did not see is seen, what was missing is reported, and nothing twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cep.engine.chains.chain import Chain
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import Past, changed_state, decode_state, encode_state
from tests.spark.events import LATENESS_SECONDS, compiled, random_events, table
from tests.spark.test_backfill import (
    AFTER,
    BEFORE,
    NEW,
    OLD,
    POINTS,
    Folder,
    parts_of,
)
from tests.spark.test_pipeline import FINISH
from tests.spark.test_reload import Live, cep, has_read, ids, local_matches, run_until, until

LOGGED = "reload: on change\nlog: out/log"
ONCE = tuple(name for name in (*OLD, *NEW) if name != "whole")  # `whole` reports rows with one id


def shown(folder: Folder, *options: str) -> list[dict[str, Any]]:
    told = cep("gaps", str(folder.checkpoint), "--format", "json", *options)
    return [json.loads(line) for line in told.splitlines() if line.startswith("{")]


def spans(gaps: Sequence[dict[str, Any]], rule: str) -> list[tuple[datetime, datetime]]:
    far = "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z"
    return [
        (datetime.fromisoformat(gap["from"] or far[0]), datetime.fromisoformat(gap["to"] or far[1]))
        for gap in gaps
        if rule in gap["rules"]
    ]


def require_filled(folder: Folder, events: Sequence[dict[str, Any]], before: Counter[str]) -> None:
    """Check that what rules would have reported is reported once, if it belongs to a gap.

    `before` was reported before the last of the gaps were filled.
    """
    rows = {row["match_id"]: row for row in local_matches(AFTER, events) if row["rule"] in ONCE}
    reported = ids(folder.matches, *ONCE)
    assert set(reported.values()) == {1}
    gaps = shown(folder)
    assert all(gap["filled"] for gap in gaps)
    for match_id in rows.keys() - reported.keys():
        row = rows[match_id]
        assert not any(
            row["match_start"] <= last and row["match_end"] >= first
            for first, last in spans(gaps, row["rule"])
        )
    assert not reported.keys() - rows.keys() - before.keys()
    whole, of_whole = ids(folder.matches, "whole"), ids(local_matches(AFTER, events), "whole")
    assert {match_id: n for match_id, n in whole.items() if n != of_whole.get(match_id, n)} == {}
    assert max(whole.values()) > 1


@pytest.mark.parametrize(
    ("state", "is_killed"),
    [
        ("files", False),
        pytest.param("inline", True, marks=pytest.mark.deep),
        pytest.param("files", True, marks=pytest.mark.deep),
    ],
)
def test_what_late_events_and_a_late_start_kept_back_is_reported_once_wherever_runs_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, is_killed: bool
) -> None:
    parts = parts_of(1, 5, 700)
    folder = Folder(tmp_path, f"{LOGGED}\nstate: {state}")
    folder.run(BEFORE, *parts[:2])
    folder.run(AFTER, parts[2])
    assert {gap["kind"] for gap in shown(folder)} == {"late", "late start"}
    before = ids(folder.matches, *ONCE)
    told = folder.backfill("--gaps")
    assert f"read {sum(map(len, parts[:3])):,} events" in told
    assert "not filled" not in told
    assert ids(folder.matches, *ONCE) == before
    folder.add(parts[3])  # it comes between the backfill and the filling
    for place, moment, _ in POINTS if is_killed else ():
        run_until(folder.place / "pipeline.yaml", place, moment, monkeypatch)
    folder.run(AFTER)
    filled = [gap for gap in shown(folder) if gap["filled"]]
    assert {gap["kind"] for gap in filled} == {"late", "late start"}
    assert {rule for gap in filled for rule in gap["rules"]} == {*OLD, *NEW}
    whole = local_matches(AFTER, [event for part in parts[:4] for event in part])
    for rule in (*OLD, "crowd"):
        assert (ids(folder.matches, rule) - before) & ids(whole, rule), rule
    folder.run(AFTER, parts[4])
    before = ids(folder.matches, *ONCE)
    folder.backfill("--gaps")  # more events were late
    folder.run(AFTER, more=FINISH)
    require_filled(folder, [event for part in parts for event in part], before)
    assert not list((folder.checkpoint / "backfill").iterdir())


@pytest.mark.deep
def test_a_running_stream_fills_its_gaps_once_and_a_second_time_there_is_nothing_to_fill(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = parts_of(2, 4, 600)
    folder = Folder(tmp_path, 'trigger: "0 seconds"\nlog: out/log')
    file = folder.write(AFTER)
    folder.add(parts[0])
    said, reported = "", [Counter[str]()]

    def told() -> str:
        nonlocal said
        said += capfd.readouterr().err
        return said

    def beside() -> None:
        until(lambda: has_read(folder.checkpoint, parts[0]))
        folder.add(parts[1])
        until(lambda: has_read(folder.checkpoint, parts[1]))
        folder.add(parts[2])
        until(lambda: has_read(folder.checkpoint, parts[2]))
        reported[0] = ids(folder.matches, *ONCE)
        folder.backfill("--gaps")
        until(lambda: "gaps are filled from micro-batch" in told())
        until(lambda: not folder.checkpoint.joinpath("backfill/prepared").exists())
        n_filled = sum(gap["filled"] is not None for gap in shown(folder))
        assert folder.backfill("--gaps") == f"nothing to fill, {n_filled} are filled\n"

    Live(file, beside).run()
    folder.more = "log: out/log"
    folder.run(AFTER, parts[3])
    before = ids(folder.matches, *ONCE)
    assert before != reported[0]
    folder.backfill("--gaps")
    folder.run(AFTER, more=FINISH)
    require_filled(folder, [event for part in parts for event in part], before)


def after_all(rules: RuleSet, events: Sequence[dict[str, Any]]) -> tuple[Chain, int]:
    """Return rules that have seen some events, and the greatest event time."""
    chain, reached_us = Chain(rules), 0
    whole = table(events)
    if whole.num_rows:
        chain.push_events(rules.inputs["readings"], whole)
        reached_us = max(whole.column("ts").cast(pa.int64()).to_pylist())
    return chain, reached_us


@pytest.mark.parametrize("seed", range(6))
def test_rules_that_begin_again_with_all_of_the_past_continue_as_if_they_had_seen_it(seed: int) -> None:
    rules, draw = compiled(AFTER), random.Random(seed)
    events = random_events(seed, 500, shuffle=False)
    first, rest = events[:400], events[400:]
    seen = [event for event in first[draw.randrange(100) :] if draw.random() < 0.9]
    until_us = after_all(rules, first)[1] - LATENESS_SECONDS * 1_000_000
    data, found = [], []
    for events_of in (first, seen):
        chain, _ = after_all(rules, events_of)
        chain.advance(until_us, lambda matches: None)
        data.append(encode_state(chain.matchers, 1))
    names = frozenset(rule.name for rule in rules.rules)
    again = changed_state(data[1], rules, rules, 1, until_us, Past(data[0], names))
    for state in (data[0], again):
        chain = Chain(rules, decode_state(state, rules, 1))
        chain.push_events(rules.inputs["readings"], table(rest))
        rows: list[pa.Table] = []
        chain.finish(rows.append)
        found.append(Counter(json.dumps(row, default=str) for part in rows for row in part.to_pylist()))
    assert found[0] == found[1]
    assert found[0].total() > 20
