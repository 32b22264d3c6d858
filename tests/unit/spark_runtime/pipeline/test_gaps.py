"""The ledger of gaps: each loss counts once, and years of running stay small."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.compiler.compile import compile_sources
from cep.counts import Counts, Loss, amount
from cep.errors import Source, StateError
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.intake import count_chunk, count_late
from cep.formats.late_events import late_events
from cep.program.changes import RuleChange, Verdict
from cep.schema.text_values import event_table_schema
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.checkpoint import KEPT_BATCHES
from spark_runtime.pipeline.gaps import (
    ALIVE_SECONDS,
    MOST,
    Entry,
    Fill,
    Gap,
    Ledger,
    all_gaps,
    compacted,
    losses_of,
    streams_of_rules,
)
from spark_runtime.pipeline.generations import Cause, Filled, Generation, write_generation
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.plan import Plan
from tests.unit.spark_runtime.pipeline.test_checkpoint import STREAM, rule, stored
from tests.unit.spark_runtime.pipeline.test_state_setting import pipeline

ONE = Generation(0, stored(rule("one")))


def ledger(folder: Path) -> Ledger:
    files = LocalFiles(str(folder))
    write_generation(files, ONE)
    return Ledger(files)


def late(n: int, first_us: int, last_us: int, batch: int) -> Entry:
    return Entry(Loss.LATE, "payments", 0, n, first_us, last_us, batch)


def found(folder: Path) -> list[Gap]:
    return all_gaps(LocalFiles(str(folder)), str(folder))


def n_of(gaps: list[Gap], loss: Loss = Loss.LATE) -> int:
    return sum(gap.n or 0 for gap in gaps if gap.loss == loss)


def test_a_micro_batch_that_is_repeated_counts_once_in_the_same_run_and_in_the_next(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    kept.record(0, [late(2, 5, 9, 0)])
    kept.record(1, [late(3, 20, 30, 1)])
    kept.record(1, [late(3, 20, 30, 1)])
    assert [(gap.n, gap.first_us, gap.last_us) for gap in found(tmp_path)] == [(2, 5, 9), (3, 20, 30)]
    again = ledger(tmp_path)  # the run was killed before Spark committed micro-batch 1
    again.record(1, [late(3, 20, 30, 1)])
    again.record(2, [])
    assert n_of(found(tmp_path)) == 5


def test_a_micro_batch_that_is_repeated_without_its_loss_takes_it_back(tmp_path: Path) -> None:
    ledger(tmp_path).record(4, [Entry(Loss.GONE, "payments", 0, 1, None, None, 4)])
    assert n_of(found(tmp_path), Loss.GONE) == 1
    ledger(tmp_path).record(4, [])
    assert found(tmp_path) == []


@pytest.mark.parametrize("seed", range(20))
def test_whenever_runs_are_killed_the_sum_of_the_ledger_is_what_was_counted(
    tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    kept, total, batch = ledger(tmp_path), 0, 0
    while batch < 60:
        n = drawn.choice([0, 0, 1, 7])
        start_us = 1000 * batch
        losses = [late(n, start_us, start_us + drawn.choice([0, 500, 3000]), batch)] if n else []
        kept.record(batch, losses)
        while drawn.random() < 0.3:  # killed before the commit: the next run computes it again
            kept = ledger(tmp_path)
            kept.record(batch, losses)
        total += n
        batch += 1
        if drawn.random() < 0.2:
            kept = ledger(tmp_path)
    assert total > 0
    assert n_of(found(tmp_path)) == total


def test_years_of_late_events_stay_small_and_keep_their_sum(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    drawn = random.Random(1)
    n_batches, at_us = 1_000, 0
    for batch in range(n_batches):
        at_us += drawn.choice([1_000, 10_000, 1_000_000])
        kept.record(batch, [late(2, at_us, at_us + 10, batch)])
    gaps = found(tmp_path)
    assert n_of(gaps) == 2 * n_batches
    assert len(gaps) <= MOST
    assert (gaps[0].first_us, gaps[-1].last_us) == (
        min(gap.first_us or 0 for gap in gaps),
        at_us + 10,
    )
    assert (tmp_path / "gaps.json").stat().st_size < 100 * (MOST + KEPT_BATCHES)


def test_gaps_that_overlap_are_one_and_others_remain(tmp_path: Path) -> None:
    entries = [late(1, 50, 60, 3), late(1, 0, 10, 0), late(4, 10, 12, 1)]
    other = replace(entries[0], generation=1)
    assert compacted([*entries, other]) == [late(5, 0, 12, 1), late(1, 50, 60, 3), other]
    unknown = Entry(Loss.DEAD, "payments", 0, 2, None, None, 0)
    assert compacted([unknown, replace(unknown, batch=5)]) == [replace(unknown, n=4, batch=5)]


def test_a_micro_batch_without_losses_writes_nothing(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    for batch in range(10):
        kept.record(batch, [])
    assert not (tmp_path / "gaps.json").exists()
    kept.record(10, [late(1, 0, 0, 10)])
    before = (tmp_path / "gaps.json").stat().st_mtime_ns
    for batch in range(11, 20):
        kept.record(batch, [])
    assert (tmp_path / "gaps.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"format": 2}', '{"format": 1, "gaps": [["why", "s", 0, 1, 0, 0, 0]], "recent": {}}'],
)
def test_a_damaged_ledger_is_named_and_not_counted_as_empty(tmp_path: Path, text: str) -> None:
    ledger(tmp_path)
    (tmp_path / "gaps.json").write_text(text)
    with pytest.raises(StateError, match=r"E0702.*`gaps\.json`"):
        found(tmp_path)
    with pytest.raises(StateError, match=r"E0702.*`gaps\.json`"):
        Ledger(LocalFiles(str(tmp_path)))


# ---------------------------------------------------------------- what a micro-batch counts


def events(*times_us: int) -> pa.Table:
    rows = [{"card": "c", "ts": us, "x": 1.0} for us in times_us]
    return pa.Table.from_pylist(rows, schema=event_table_schema(STREAM))


def letters(n: int) -> pa.Table:
    row = {"reason": "not a JSON object", "source": "/in/a", "position": 1, "raw": "x"}
    return pa.Table.from_pylist([row] * n, schema=DEAD_LETTER_SCHEMA)


def entries_of(
    counts: Counts, plan: Plan | None = None, before: Reached | None = None, after: Reached | None = None
) -> tuple[Entry, ...]:
    done = Done(7, after or Reached(), {}, ended=False)
    return losses_of(counts, plan or Plan(()), before or Reached(), done, 0)


def test_late_events_have_their_own_times_and_dead_letters_those_around_them() -> None:
    counts = count_chunk(Chunk(events(40, 30), letters(3), "/in/a"), STREAM)
    gone_by = late_events(events(10, 5, 7), pa.array([1, 2, 3]).to_numpy(), STREAM)
    counts.add(count_late(gone_by, STREAM, [("card",)], "/in/a"))
    counts = Counts.of_json(counts.to_json())  # as it comes from a worker
    assert entries_of(counts) == (
        Entry(Loss.DEAD, "payments", 0, 3, 30, 40, 7),
        Entry(Loss.LATE, "payments", 0, 3, 5, 10, 7),
    )
    assert (counts.malformed, counts.late) == (3, 3)


def test_what_has_no_event_time_lies_between_what_was_read_before_and_with_it() -> None:
    counts = count_chunk(Chunk(events(), letters(2), "/in/a"), STREAM)
    counts.gone["/in/b"] = 1
    before = Reached(latest={"payments[0]": (100, ""), "payments[1]": (80, ""), "other": (999, "")})
    after = Reached(latest={"payments[0]": (100, ""), "payments[1]": (130, ""), "other": (999, "")})
    plan = Plan(([("payments", ("/in/b", 0, 9))],), lost={"payments": 4})
    assert entries_of(counts, plan, before, after) == (
        Entry(Loss.DEAD, "payments", 0, 2, 100, 130, 7),
        Entry(Loss.LOST, "payments", 0, 4, 100, 130, 7),
        Entry(Loss.GONE, "payments", 0, 1, 100, 130, 7),
    )


def test_what_planning_found_removed_is_in_the_plan_and_counts_once() -> None:
    plan = Plan((), lost={"payments": 4})
    assert Plan.of_json(plan.to_json()) == replace(plan, shares=[])
    assert "lost" not in json.loads(Plan(()).to_json())  # the identities of plans depend on it


def test_dropped_runs_and_matches_lie_between_the_watermark_before_and_the_latest_event() -> None:
    counts = Counts(dropped_runs={"one": 3, "two": 0}, dropped_matches={"two": 4})
    entries = entries_of(counts, None, Reached(50), Reached(60, {"payments": (75, "")}))
    assert entries == (
        Entry(Loss.DROPPED, "one", 0, 3, 50, 75, 7),
        Entry(Loss.DROPPED_MATCHES, "two", 0, 4, 50, 75, 7),
    )
    only = Counts(dropped_runs={"one": 0}, dropped_matches={"two": 4})
    assert entries_of(only, None, Reached(50), Reached(60, {"payments": (75, "")})) == entries[1:]


# ---------------------------------------------------------------- rules


CHAIN = """
RULE pair FROM payments PARTITION BY card PATTERN a -> b WITHIN 5 MINUTES DEFINE a AS x < 1, b AS x > 2
MEASURES b.x AS high

RULE pairs FROM MATCHES OF pair PARTITION BY card PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS high > 1, b AS high > 2 MEASURES b.high AS high
"""


def test_a_rule_over_rules_misses_what_the_rules_before_miss(tmp_path: Path) -> None:
    sources = (Source("chain.cep", CHAIN),)
    rules = StoredRules.of(sources, compile_sources(sources, {STREAM.name: STREAM}).rule_set)
    assert streams_of_rules(rules) == dict.fromkeys(("pair", "pairs"), frozenset(("payments",)))
    files = LocalFiles(str(tmp_path))
    write_generation(files, Generation(0, rules))
    Ledger(files).record(0, [late(1, 5, 5, 0)])
    (gap,) = all_gaps(files, str(tmp_path))
    assert gap == Gap(Loss.LATE, ("pair", "pairs"), ("payments",), 1, 5, 5)


def test_a_rule_saw_nothing_before_it_began_and_its_late_events_are_those_of_its_time(tmp_path: Path) -> None:
    files = LocalFiles(str(tmp_path))
    write_generation(files, ONE)
    changes = (
        RuleChange("one", Verdict.WORDS),
        RuleChange("two", Verdict.NEW),
    )
    write_generation(files, Generation(1, stored(rule("one"), rule("two")), 5, 1000, changes))
    kept = Ledger(files)
    kept.record(4, [late(1, 10, 10, 4)])
    kept.record(5, [replace(late(2, 20, 20, 5), generation=1)])
    assert all_gaps(files, str(tmp_path)) == [
        Gap(Loss.LATE, ("one",), ("payments",), 1, 10, 10),
        Gap(Loss.LATE, ("one", "two"), ("payments",), 2, 20, 20),
        Gap(Loss.LATE_START, ("two",), ("payments",), None, None, 1000),
    ]


@pytest.mark.parametrize("has_past", [False, True])
def test_matches_that_wait_when_a_rule_changes_or_is_removed_are_a_gap(
    tmp_path: Path, has_past: bool
) -> None:
    files = LocalFiles(str(tmp_path))
    write_generation(files, Generation(0, stored(rule("one"), rule("two"), rule("kept"))))
    changes = (RuleChange("one", Verdict.CHANGED), RuleChange("two", Verdict.GONE))
    now = Generation(1, stored(rule("one"), rule("kept")), 5, 1000, changes, reached_us=400)
    write_generation(files, replace(now, warm=("one",)) if has_past else now)
    hole = ("payments",), None, 401, 1000
    assert all_gaps(files, str(tmp_path)) == [
        *([] if has_past else [Gap(Loss.RULE_CHANGE, ("one",), *hole)]),
        Gap(Loss.RULE_CHANGE, ("two",), *hole),
        *([] if has_past else [Gap(Loss.LATE_START, ("one",), ("payments",), None, None, 1000)]),
    ]


@pytest.mark.parametrize("reached_us", [None, 1000])
def test_without_matches_that_wait_a_change_leaves_no_gap(tmp_path: Path, reached_us: int | None) -> None:
    files = LocalFiles(str(tmp_path))
    write_generation(files, Generation(0, stored(rule("one"), rule("two"))))
    changes = (RuleChange("two", Verdict.GONE),)
    write_generation(files, Generation(1, stored(rule("one")), 5, 1000, changes, reached_us=reached_us))
    assert all_gaps(files, str(tmp_path)) == []


# ---------------------------------------------------------------- filled


def fill(folder: Path, number: int, entry: Entry, *rules: str, matches: int = 0) -> None:
    filled = (Filled(tuple(entry.to_list()), rules, matches=matches),)
    cause = Cause(f"2026-11-0{number}")
    generation = Generation(number, stored(rule("one"), rule("two")), 10 * number, cause=cause, filled=filled)
    write_generation(LocalFiles(str(folder)), generation)


def test_a_gap_is_filled_for_the_rules_that_have_seen_it(tmp_path: Path) -> None:
    write_generation(LocalFiles(str(tmp_path)), Generation(0, stored(rule("one"), rule("two"))))
    kept = Ledger(LocalFiles(str(tmp_path)))
    kept.record(4, [late(3, 10, 20, 4)])
    fill(tmp_path, 1, late(3, 10, 20, 4), "two", matches=7)
    gap = Gap(Loss.LATE, ("one",), ("payments",), 3, 10, 20)
    assert found(tmp_path) == [gap, replace(gap, rules=("two",), filled=Fill("2026-11-01", 7))]
    fill(tmp_path, 2, late(3, 10, 20, 4), "one")
    assert {gap.rules: gap.filled for gap in found(tmp_path)} == {
        ("one",): Fill("2026-11-02", 0),
        ("two",): Fill("2026-11-01", 7),
    }


def test_what_is_lost_after_a_filling_is_not_filled_and_no_count_changes(tmp_path: Path) -> None:
    write_generation(LocalFiles(str(tmp_path)), Generation(0, stored(rule("one"), rule("two"))))
    kept = Ledger(LocalFiles(str(tmp_path)))
    kept.record(4, [late(3, 10, 20, 4)])
    # While `cep backfill` reads, a late event comes that the ledger merges with those before.
    kept.record(9, [late(2, 15, 30, 9)])
    fill(tmp_path, 1, late(3, 10, 20, 4), "one", "two", matches=1)
    kept.record(12, [replace(late(4, 12, 13, 12), generation=1)])
    kept.record(20, [])
    assert n_of(found(tmp_path)) == 9
    assert [(gap.n, gap.filled is not None) for gap in found(tmp_path)] == [(3, True), (2, False), (4, False)]


# ---------------------------------------------------------------- down


def test_a_continuous_stream_that_was_down_for_longer_than_declared_has_a_gap(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    assert kept.began(1000.0, 300.0, 0, -1) is None  # the first start
    kept.alive(1000.0 + ALIVE_SECONDS / 2)  # so soon nothing is written
    kept.alive(1100.0)
    assert ledger(tmp_path).began(1399.0, 300.0, 0, 5) is None
    assert found(tmp_path) == []
    down = ledger(tmp_path).began(2000.0, 300.0, 0, 5)
    assert down == Entry(Loss.DOWN, "", 0, None, 1_399_000_000, 2_000_000_000, 5)
    gap = Gap(Loss.DOWN, ("one",), ("payments",), None, 1_399_000_000, 2_000_000_000)
    assert found(tmp_path) == [gap]


def test_a_run_that_is_killed_before_it_says_that_it_is_alive_has_one_gap(tmp_path: Path) -> None:
    ledger(tmp_path).began(1000.0, 300.0, 0, -1)
    alive = (tmp_path / "alive").read_text()
    ledger(tmp_path).began(2000.0, 300.0, 0, 5)
    (tmp_path / "alive").write_text(alive)
    ledger(tmp_path).began(3000.0, 300.0, 0, 5)
    (gap,) = found(tmp_path)
    assert (gap.first_us, gap.last_us) == (1_000_000_000, 3_000_000_000)


def test_storage_that_is_gone_for_a_moment_ends_no_run(tmp_path: Path) -> None:
    kept = ledger(tmp_path)
    (tmp_path / "alive").mkdir()
    kept.alive(1000.0)
    assert (tmp_path / "alive").is_dir()


def test_a_batch_has_no_ledger(tmp_path: Path) -> None:
    pipeline(tmp_path, "mode: batch")
    for words in ((), ("--format", "json"), ("--rule", "r")):
        result = CliRunner().invoke(main, ["gaps", str(tmp_path / "p.yaml"), *words])
        said = f"`{tmp_path}/p.yaml` has no ledger of gaps: it is a batch, which reads all events\n"
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", said)


def test_amounts_have_their_nouns() -> None:
    found = [amount(n, "match", "matches") for n in (0, 1, 2, 1000)]
    assert found == ["0 matches", "1 match", "2 matches", "1,000 matches"]
    assert [amount(n, "row") for n in (1, 2)] == ["1 row", "2 rows"]
