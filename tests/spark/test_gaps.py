"""The ledger of gaps of a running pipeline: its sums are those of the summary, however runs end."""

from __future__ import annotations

import json
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from cep.commands.cli import main
from cep.errors import StateError
from spark_runtime.pipeline.checkpoint import write_done
from spark_runtime.pipeline.gaps import Ledger
from tests.spark.events import RULES
from tests.spark.test_pipeline import keyed_events, quiet_run, text_of, write_json, write_pipeline
from tests.spark.test_reload import Live, has_read, until

SOURCE = "format: json, path: events, max_files_per_trigger: 1"
CROWDED = """
RULE crowded FROM readings PARTITION BY sensor PATTERN one -> other WITHIN 1 HOUR
DEFINE one AS kind = 'e', other AS kind = 'none' MEASURES one.id AS id
MAX RUNS 1 PER KEY ON OVERFLOW DROP NEWEST
"""
EVENTS = keyed_events(8, 200)


def shown(folder: Path, *options: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["gaps", str(folder), "--format", "json", *options])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def sums(gaps: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for gap in gaps:
        found[gap["kind"]] += gap["count"] or 0
    return found


def add(folder: Path, number: int, n_late: int, n_bad: int) -> None:
    """Add a file of events that are late, because the watermark has passed all events, and of bad lines."""
    late = [json.dumps(text_of({**EVENTS[at], "id": 1000 * number + at})) for at in range(n_late)]
    (folder / f"events/more-{number}.json").write_text("\n".join([*late, *["no event"] * n_bad]) + "\n")


@pytest.mark.deep(but="local")
# The remote place: as if only Spark could read the files.
@pytest.mark.parametrize("place", ["", "file://{folder}/"], ids=["local", "remote"])
def test_the_sum_of_the_ledger_is_what_the_summaries_say(
    spark: SparkSession, tmp_path: Path, place: str
) -> None:
    write_json(tmp_path / "events", EVENTS, 2)
    source = SOURCE.replace("path: ", f"path: {place.format(folder=tmp_path)}")
    file = write_pipeline(tmp_path, source, rules=RULES + CROWDED)
    counted: Counter[str] = Counter()
    for number in range(3):
        counts = quiet_run(file).counts
        counted["late"] += counts.late
        counted["dead letters"] += counts.malformed
        counted["dropped runs"] += sum(counts.dropped_runs.values())
        add(tmp_path, number, 2 * number + 1, number)
    gaps = shown(file)
    assert sums(gaps) == +counted
    assert set(counted) == {"late", "dead letters", "dropped runs"}
    assert all(counted.values())
    assert gaps == shown(tmp_path / "out/checkpoint")
    late = [gap for gap in gaps if gap["kind"] == "late"]
    times = [EVENTS[at]["ts"] for at in range(3)]
    ends = [time for gap in late for time in (gap["from"], gap["to"])]
    assert min(map(datetime.fromisoformat, ends)) == min(times)
    assert max(map(datetime.fromisoformat, ends)) == max(times)
    assert {frozenset(gap["rules"]) for gap in late} == {frozenset(("rise", "silence", "crowded"))}
    (dropped,) = (gap for gap in gaps if gap["kind"] == "dropped runs")
    assert (dropped["rules"], dropped["streams"]) == (["crowded"], ["readings"])
    assert dropped in shown(file, "--rule", "crowded")
    assert dropped not in shown(file, "--rule", "rise")


@pytest.mark.parametrize("at", ["before the ledger", "after the ledger", "after the progress"])
def test_a_run_that_ends_around_the_ledger_counts_each_loss_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    write_json(tmp_path / "events", EVENTS, 1)
    file = write_pipeline(tmp_path, SOURCE)
    quiet_run(file)
    record, progress = Ledger.record, "spark_runtime.pipeline.micro_batches.write_done"

    def ending(*arguments: Any) -> None:
        if at == "after the progress":
            write_done(*arguments)
        raise StateError("E0702", "the run ends here")

    for number in range(3):
        add(tmp_path, number, number + 1, 2)
        if at == "before the ledger":
            monkeypatch.setattr(Ledger, "record", ending)
        else:
            monkeypatch.setattr(progress, ending)
        with pytest.raises(StateError, match="the run ends here"):
            quiet_run(file)
        monkeypatch.setattr(Ledger, "record", record)
        monkeypatch.setattr(progress, write_done)
        if number:
            quiet_run(file)
    assert sums(shown(file)) == Counter({"late": 6, "dead letters": 6})


def test_a_rule_that_joined_a_stream_saw_nothing_before(spark: SparkSession, tmp_path: Path) -> None:
    write_json(tmp_path / "events", EVENTS, 1)
    quiet_run(write_pipeline(tmp_path, SOURCE, "reload: on change"))
    add(tmp_path, 1, 2, 0)
    file = write_pipeline(tmp_path, SOURCE, "reload: on change", rules=RULES + CROWDED)
    quiet_run(file)
    latest = max(event["ts"] for event in EVENTS)
    (start,) = (gap for gap in shown(file, "--rule", "crowded") if gap["kind"] == "late start")
    assert (start["from"], datetime.fromisoformat(start["to"]), start["count"]) == (None, latest, None)
    (late,) = (gap for gap in shown(file) if gap["kind"] == "late")
    assert late["count"] == 2
    assert set(late["rules"]) == {"rise", "silence", "crowded"}
    table = CliRunner().invoke(main, ["gaps", str(file), "--rule", "rise"]).output.splitlines()
    assert table[0].split() == ["rule", "kind", "streams", "from", "to", "count", "filled"]
    assert table[1].split()[:3] == ["rise", "late", "readings"]
    refused = CliRunner().invoke(main, ["gaps", str(file), "--rule", "raise"])
    assert refused.exit_code == 2
    assert "no rule `raise` ran on it, but crowded, rise, silence" in refused.output


def test_a_continuous_stream_that_was_down_says_so_and_has_a_gap(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write_pipeline(tmp_path, SOURCE, 'trigger: "0 seconds"\ndown_after: 1 minute')
    checkpoint = tmp_path / "out/checkpoint"
    for number, seconds_before in enumerate((None, 30.0, 3600.0)):
        write_json(tmp_path / "more", EVENTS[60 * number : 60 * (number + 1)], 1)
        (tmp_path / "events").mkdir(exist_ok=True)
        (tmp_path / "more/part-000.json").rename(tmp_path / f"events/part-{number}.json")
        if seconds_before is not None:
            (checkpoint / "alive").write_text(str(time.time() - seconds_before))
        read = EVENTS[: 60 * (number + 1)]
        Live(file, lambda read=read: until(lambda: has_read(checkpoint, read))).run()  # type: ignore[misc]
    said = capfd.readouterr().err
    assert said.count("warning: the pipeline was down since") == 1
    assert f": cep gaps {checkpoint}" in said
    (gap,) = shown(file)
    start, end = map(datetime.fromisoformat, (gap["from"], gap["to"]))
    assert (gap["kind"], gap["streams"], gap["count"]) == ("down", ["readings"], None)
    assert 3600 <= (end - start).total_seconds() < 3700
