"""The limits of a pipeline over all keys: what remains, what is said, and what the ledger has."""

from __future__ import annotations

from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep.errors import StateError
from spark_runtime.event_time.done import Done
from spark_runtime.pipeline.checkpoint import Checkpoint, write_done
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


PER_DAY = 25
SINKS = "[{format: parquet, path: out/matches}, {format: json, path: out/json}, {format: console}]"


def test_alerts_of_a_day_are_the_first_ones_of_all_keys_in_every_sink_also_after_a_micro_batch_is_repeated(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = f"limits: {{alerts_per_day: {{at_most: {PER_DAY}, then: drop_newest}}}}"
    files = []
    for name, more in (("free", ""), ("limited", f"{limit}\nlog: out/log")):
        write_json(tmp_path / name / "events", EVENTS, 2)
        files.append(write_pipeline(tmp_path / name, SOURCE, more, SINKS, RULES))
    free, limited = files
    quiet_run(free)
    n_done: list[int] = []

    def ending(checkpoint: Checkpoint, done: Done) -> None:
        if done.batch == 1:
            raise StateError("E0702", "the run ends here")
        n_done.append(done.batch)
        write_done(checkpoint, done)

    with monkeypatch.context() as patch:
        patch.setattr("spark_runtime.pipeline.micro_batches.write_done", ending)
        with pytest.raises(StateError, match="the run ends here"):
            quiet_run(limited)
    assert n_done == [0]
    counts = quiet_run(limited).counts
    n_of_day: Counter[tuple[str, date]] = Counter()
    n_matches, expected = 0, []
    for folder in sorted((tmp_path / "free/out/matches").glob("*-*"), key=lambda path: path.name[-1]):
        for row in sorted(read(folder), key=lambda row: (row["match_end"], row["match_id"])):
            of_day = row["rule"], row["match_end"].date()
            n_of_day[of_day] += 1
            n_matches += 1
            expected += [row["match_id"]] if n_of_day[of_day] <= PER_DAY else []
    for rows in (
        read(tmp_path / "limited/out/matches"),
        read(tmp_path / "limited/out/json", "json"),
        read(tmp_path / "limited/out/log"),
    ):
        assert sorted(row["match_id"] for row in rows) == sorted(expected)
    n_dropped = n_matches - len(expected)
    assert n_dropped > 20 < len(expected)
    assert sums(shown(limited)) == Counter({"dropped matches": n_dropped})
    assert counts.rows == sum(counts.matches.values()) - sum(counts.dropped_matches.values())
    assert "beyond `limits: alerts_per_day`" in capsys.readouterr().err
