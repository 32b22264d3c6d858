"""The limits of a pipeline over all keys: what remains, what is said, and what the ledger has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep.errors import StateError
from tests.spark.test_gaps import shown, sums
from tests.spark.test_pipeline import keyed_events, quiet_run, read, write_json, write_pipeline

SOURCE = "format: json, path: events, max_files_per_trigger: 1"
RULES = """
RULE pairs SEVERITY low FROM readings PARTITION BY sensor PATTERN one -> other WITHIN 1 HOUR
AFTER MATCH NO SKIP DEFINE one AS kind = 'a', other AS kind = 'b' MEASURES one.id AS id
RULE open SEVERITY high FROM readings PARTITION BY room PATTERN one -> other WITHIN 1 HOUR
AFTER MATCH NO SKIP DEFINE one AS kind = 'b', other AS kind = 'none' MEASURES one.id AS id
"""
EVENTS = keyed_events(8, 300)


def test_what_limits_drop_is_in_the_summary_in_the_ledger_and_in_no_sink(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for name, at_most in (("free", 0), ("wide", 1_000_000), ("tight", 16)):
        folder = tmp_path / name
        write_json(folder / "events", EVENTS, 3)
        limit = f"{{at_most: {at_most}, then: drop_least_severe}}"
        limits = f"limits: {{open_runs: {limit}, matches: {limit}}}" if at_most else ""
        file = write_pipeline(folder, SOURCE, limits, rules=RULES)
        counts = quiet_run(file).counts
        ids = sorted(row["match_id"] for row in read(folder / "out/matches"))
        found[name] = counts, ids, sums(shown(file)), capsys.readouterr().err
    free, wide, tight = found.values()
    assert free[1] == wide[1]
    assert free[0] == wide[0]
    assert "E0722" not in free[3] + wide[3]
    counts, ids, gaps, said = tight
    n_runs, n_matches = sum(counts.dropped_runs.values()), sum(counts.dropped_matches.values())
    assert n_runs > 20 < sum(free[0].open_runs_of.values())
    assert sum(counts.open_runs_of.values()) <= 16
    assert len(set(ids)) == len(ids) == sum(counts.matches.values()) - n_matches
    assert counts.beyond == {"open_runs": n_runs, "matches": n_matches}
    assert Counter({"dropped runs": n_runs, "dropped matches": n_matches}) == gaps
    assert said.count("warning[E0722]") == 2
    assert f"dropped runs {n_runs:>13}  more runs were open than `MAX RUNS` or `limits` allow: " in said
    assert f"unreported   {n_matches:>13}  matches beyond `limits`: pairs {n_matches}; most of " in said


def test_a_pipeline_that_is_to_fail_beyond_its_limit_writes_nothing_of_the_micro_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_json(tmp_path / "events", EVENTS, 1)
    file = write_pipeline(tmp_path, SOURCE, "limits: {open_runs: {at_most: 16}}", rules=RULES)
    with pytest.raises(
        StateError, match=r"E0722.*of rule `(pairs|open)`.*its share of `limits: open_runs` is"
    ):
        quiet_run(file)
    found = [file.relative_to(tmp_path).parts for file in (tmp_path / "out").rglob("part-*")]
    assert [parts for parts in found if not any(part.startswith((".", "_")) for part in parts)] == []
