"""A savepoint of a pipeline that runs, restored with another number of key groups, loses nothing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from io import StringIO
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

from cep.commands.cli import main
from cep.counts import Counts, amount
from cep.errors import StateError
from cep.local.match_file import match_file
from cep.rule_set import RuleSet
from spark_runtime import run_pipeline
from spark_runtime.operator.daily import Days
from spark_runtime.pipeline import saving
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.savepoint import opened
from spark_runtime.pipeline.saving import save
from spark_runtime.pipeline.stored_state import StoredValue, stored_values
from tests.spark import stored_savepoint
from tests.spark.events import EVENTS_RULE, ROOM_RULE, RULES
from tests.spark.stored_savepoint import CARDS
from tests.spark.test_pipeline import FINISH, keyed_events, read, write_json, write_pipeline

N_FILES, SAVED_IN = 4, 2
BAD = ['{"id": 1, "ts": "2024-05-01T00:00:00Z"', '{"id": 4, "ts": "2024-05-01T00:00:00Z", "sensor": null}']
SINKS = "[{format: json, path: out/matches}]"


def written(folder: Path, more: str) -> Path:
    """Write a pipeline over files, some of whose events are late."""
    events = keyed_events(3, 700)
    late = events[:400:20]
    events = [event for event in events if event not in late] + late
    write_json(folder / "events", events, N_FILES, BAD)
    source = "format: json, path: events, max_files_per_trigger: 1"
    return write_pipeline(folder, source, more, SINKS, RULES + ROOM_RULE + EVENTS_RULE)


def run(pipeline: Path, *, accepts: bool = False) -> None:
    console = Console(file=StringIO())
    run_pipeline(pipeline, console=console, quiet=True, accept_older_checkpoint=accepts)


def output(folder: Path) -> dict[str, Counter[str]]:
    """Return the rows of each output. Messages name the folder, so it is left out."""
    found: dict[str, Counter[str]] = {}
    for name in ("matches", "late", "dead"):
        rows: list[dict[str, Any]] = read(folder / "out" / name, "json")
        texts = (json.dumps(row, sort_keys=True).replace(str(folder), "") for row in rows)
        found[name] = Counter(texts)
    return found


@pytest.fixture(autouse=True)
def _runs_leave_the_settings_of_the_session(spark: SparkSession) -> Iterator[None]:
    yield
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counter[str]]:
    folder = tmp_path_factory.mktemp("whole")
    run(written(folder, FINISH))
    found = output(folder)
    assert all(rows.total() >= 8 for rows in found.values()), found
    return found


@pytest.mark.deep(but="files-1")
@pytest.mark.parametrize(("state", "n_groups"), [("inline", 3), ("files", 1)])
def test_a_restored_savepoint_of_a_running_pipeline_gives_what_an_uninterrupted_run_gives(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    expected: dict[str, Counter[str]],
    state: str,
    n_groups: int,
) -> None:
    usual = MicroBatches.complete

    def saving(batches: MicroBatches, batch: int, counts: Counts, reported: Days | None) -> None:
        if batch == SAVED_IN:
            save(str(tmp_path / "out/checkpoint"), str(tmp_path / "saved"))
        usual(batches, batch, counts, reported)

    monkeypatch.setattr(MicroBatches, "complete", saving)
    more = f"state: {state}"
    pipeline = written(tmp_path, more)
    run(pipeline)
    monkeypatch.undo()
    manifest = opened(str(tmp_path / "saved")).manifest
    assert (manifest.micro_batch, manifest.key_groups) == (SAVED_IN - 1, 2)
    files = [file for file in (tmp_path / "saved").rglob("*") if file.is_file()]
    assert all(str(tmp_path).encode() not in file.read_bytes() for file in files)
    checkpoint = tmp_path / "out/other"
    assert restore(str(tmp_path / "saved"), str(checkpoint), n_groups).n_groups == n_groups
    text = pipeline.read_text().replace("checkpoint: out/checkpoint", "checkpoint: out/other")
    pipeline.write_text(f"{text}\n{FINISH}\n")
    with pytest.raises(
        StateError, match=r"E0849.*is not the latest state of its stream: it is of micro-batch 1"
    ):
        run(pipeline)
    if state == "inline":  # a run that ends in the first micro-batch, before it is recorded

        def ending(batches: MicroBatches, batch: int, counts: Counts, reported: Days | None) -> None:
            raise StateError("E0702", "the run ends here")

        monkeypatch.setattr(MicroBatches, "complete", ending)
        with pytest.raises(StateError, match="the run ends here"):
            run(pipeline, accepts=True)
        monkeypatch.undo()
    run(pipeline, accepts=True)
    assert output(tmp_path) == expected
    assert not (checkpoint / "restored").exists()
    groups = f", {amount(n_groups, 'key group')}, "
    for code, told in ((0, groups), (1, "E0716")):  # the second time it is not empty
        again = CliRunner().invoke(main, ["savepoint", str(checkpoint), str(tmp_path / "again")])
        assert again.exit_code == code, again.output
        assert told in again.output
    compared = [
        CliRunner().invoke(main, ["diff", str(pipeline), "--checkpoint", str(place), "--format", "json"])
        for place in (checkpoint, tmp_path / "again")
    ]
    assert [one.exit_code for one in compared] == [0, 0], compared[0].output
    assert compared[0].stdout == compared[1].stdout
    assert '"open_runs": ' in compared[0].stdout
    assert re.search(r'"key_groups": (\d+)', (checkpoint / "pipeline.json").read_text())[1] == str(n_groups)  # type: ignore[index]


def test_a_savepoint_whose_first_restored_checkpoint_has_run_is_refused_the_second_time(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = written(tmp_path, "")
    held = tmp_path / "events/part-003.json"
    last = held.rename(tmp_path / "last.json")
    run(pipeline)
    save(str(tmp_path / "out/checkpoint"), str(tmp_path / "saved"))
    for name in ("second", "third"):
        restore(str(tmp_path / "saved"), str(tmp_path / "out" / name), 3)
    last.rename(held)
    text = pipeline.read_text()
    pipeline.write_text(text.replace("out/checkpoint", "out/second"))
    unfinished = (tmp_path / "out/second").rename(tmp_path / "out/.second.unfinished")
    with pytest.raises(StateError, match=r"E0705.*`cep restore` began to write: it has not finished"):
        run(pipeline)
    unfinished.rename(tmp_path / "out/second")

    def ending(batches: MicroBatches, batch: int, counts: Counts, reported: Days | None) -> None:
        raise StateError("E0702", "the run ends here")

    monkeypatch.setattr(MicroBatches, "complete", ending)
    with pytest.raises(StateError, match="the run ends here"):
        run(pipeline)
    monkeypatch.undo()
    before = output(tmp_path)
    run(pipeline)  # which is not refused, although it has begun
    found = output(tmp_path)
    assert found["matches"].total() > before["matches"].total()
    pipeline.write_text(text.replace("out/checkpoint", "out/third"))
    with pytest.raises(StateError, match=r"E0849.*has what another run wrote that continued an older copy"):
        run(pipeline)
    run(pipeline, accepts=True)
    assert output(tmp_path) == found


@pytest.mark.parametrize(("n_overtaken", "is_saved"), [(2, True), (3, False)])
def test_a_savepoint_is_begun_again_if_the_run_removes_what_is_being_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_overtaken: int, is_saved: bool
) -> None:
    run(written(tmp_path, ""))
    n_left, last = n_overtaken, N_FILES - 1

    def values(checkpoint: Checkpoint, rules: RuleSet, batch: int | None = None) -> Iterator[StoredValue]:
        nonlocal n_left
        n_left -= 1
        if n_left >= 0:
            raise StateError("E0702", "a file is missing", "")
        return stored_values(checkpoint, rules, batch)

    monkeypatch.setattr(saving, "stored_values", values)
    given = [str(tmp_path / "out/checkpoint"), str(tmp_path / "saved")]
    with pytest.raises(StateError, match="a file is missing"):  # and the run has not gone on
        save(*given)
    n_left, told = n_overtaken, cycle([last, last + 100])
    monkeypatch.setattr(saving, "last_committed", lambda checkpoint: next(told))
    with nullcontext() if is_saved else pytest.raises(StateError, match="removed state of micro-batch 3"):
        assert save(*given).micro_batch == last
    assert (tmp_path / "saved").exists() == is_saved


def test_the_stored_savepoint_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = stored_savepoint.write(tmp_path, both=True)
    usual = pipeline.read_text()
    restore(str(stored_savepoint.STORED), str(tmp_path / "other"))
    by_spark = usual.replace("path: payments", f"path: 'file://{tmp_path}/payments'")
    pipeline.write_text(by_spark.replace("checkpoint: checkpoint", "checkpoint: other"))
    with pytest.raises(StateError, match=r"E0715.*no position of a source that only Spark reads"):
        run(pipeline)
    pipeline.write_text(usual)
    restore(str(stored_savepoint.STORED), str(tmp_path / "checkpoint"))
    run(pipeline)
    found = [row["match_id"] for row in read(tmp_path / "matches", "json")]
    folders = {name: tmp_path / name for name in ("payments", "cards")}
    local = match_file(tmp_path / "rules.cep", folders)
    assert sorted(found) == sorted(local.matches.column("match_id").to_pylist())
    assert len(found) > 10


LARGE = """
RULE large FROM payments PARTITION BY card PATTERN a DEFINE a AS amount > 0 MEASURES a.amount AS amount
"""


def test_a_savepoint_continues_with_rules_that_have_changed(spark: SparkSession, tmp_path: Path) -> None:
    """A rule with other measures finds what began before; a new one, and a changed one, begin after it."""
    pipeline = stored_savepoint.write(tmp_path, both=True)
    rules = tmp_path / "rules.cep"
    text = rules.read_text().replace("large.amount AS amount ALL", "large.amount + 1 AS more ALL")
    rules.write_text(text.replace("seen >= 3", "seen >= 2") + LARGE)
    given = [
        "restore",
        str(stored_savepoint.STORED),
        str(tmp_path / "checkpoint"),
        "--pipeline",
        str(pipeline),
    ]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    told = [line.split(",")[0] for line in result.output.splitlines()]
    assert told[:3] == ["rule testing: measures", "rule often: changed", "rule large: new"], result.output
    run(pipeline)

    def by_rule(rows: list[dict[str, Any]], rule: str) -> list[tuple[Any, ...]]:
        kept = [row for row in rows if row["rule"] == rule]
        return sorted((row["match_id"], row.get("more"), row.get("amount")) for row in kept)

    found = read(tmp_path / "matches", "json")
    local = match_file(rules, {name: tmp_path / name for name in ("payments", "cards")}).matches.to_pylist()
    for rule in ("testing", "hourly"):
        assert by_rule(found, rule) == by_rule(local, rule)
        assert by_rule(found, rule)
    later = [row for row in local if row["match_start"].minute >= 5]
    assert by_rule(found, "large") == by_rule(later, "large")
    assert len(by_rule(later, "large")) == len(CARDS)
    often = [row["match_start"] for row in found if row["rule"] == "often"]
    assert all(start >= "2026-11-01T12:05" for start in often)
