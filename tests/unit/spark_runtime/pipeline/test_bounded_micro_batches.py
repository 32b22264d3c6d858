"""Unread input bounds a micro-batch: what the watermark has passed afterwards is reported. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cep.rule_set import BY_EVENT
from spark_runtime.wire.plan import Plan
from tests.unit.spark_runtime.pipeline.test_end_waits import Live

MATCH = ("pair", 600, 630, BY_EVENT)
LATEST = 1800


def backlog(folder: Path, after_s: float | None = None) -> Live:
    """Return a pipeline that reads one file at a time; the first file has the latest events."""
    live = Live(folder, after_s=after_s, max_files=1)
    live.write((0, 1, 0), (600, 1, 1), (630, 1, 2), (LATEST, 1, 0), file_name="1.json")
    live.write((300, 1, 0), file_name="2.json")
    return live


def step(live: Live) -> Plan:
    """Compute one micro-batch; return its plan."""
    plan = live.run.next(live.number)
    assert plan is not None
    live.run.complete(live.number, live.played.micro_batch(live.sources, plan))
    live.number += 1
    return plan


def test_a_last_file_of_earlier_events_leaves_nothing_unreported(tmp_path: Path) -> None:
    live = backlog(tmp_path)
    assert (live.go(), live.watermark) == ([MATCH], LATEST - 10)
    live.played.require_told(live.run.done.watermark_us)
    n_done = live.number
    live.restart()
    assert (live.go(), live.number) == ([], n_done)  # nothing waits for a micro-batch


def test_a_stream_that_waits_for_nothing_has_no_micro_batch_more(tmp_path: Path) -> None:
    live = Live(tmp_path, after_s=None, max_files=1)
    for number in (1, 2, 3):
        live.write((100 * number, 1, 0), file_name=f"{number}.json")
    live.go()
    assert [bool(plan.shares) for plan in live.plans] == [True, True, True, False]
    live.restart()
    assert (live.go(), live.number) == ([], 4)


@pytest.mark.parametrize("n_before", [1, 2, 3])
def test_nor_does_a_restart_between_the_micro_batches(tmp_path: Path, n_before: int) -> None:
    live = backlog(tmp_path)
    for _ in range(n_before):
        step(live)
    live.restart()
    live.go()
    assert sum(table.num_rows for table in live.played.matches) == 1
    live.played.require_told(live.run.done.watermark_us)


def of_lower_bound(folder: Path) -> Live:
    """Return a pipeline whose last file ends with an event that is not its latest one."""
    live = Live(folder, after_s=None, max_files=1)
    live.write((0, 1, 0), (LATEST, 1, 0), file_name="1.json")
    live.write((300, 2, 0), (1900, 2, 1), (1910, 2, 2), (2000, 2, 0), (1995, 2, 0), file_name="2.json")
    return live


def test_a_last_file_whose_last_event_is_not_its_latest(tmp_path: Path) -> None:
    live = of_lower_bound(tmp_path)
    assert live.go() == [("pair", 1900, 1910, BY_EVENT)]
    live.played.require_told(live.run.done.watermark_us)


@pytest.mark.parametrize("made", [backlog, of_lower_bound])
def test_when_the_input_is_complete_nothing_remains_to_be_done(
    tmp_path: Path, made: Callable[[Path], Live]
) -> None:
    live = made(tmp_path)
    live.run = replace(live.run, interval_s=None, finishes=True)
    while not step(live).ends:
        pass
    assert sum(table.num_rows for table in live.played.matches) == 1
    n_done = live.number
    assert (live.go(), live.number) == ([], n_done)
    live.restart()
    live.run = replace(live.run, interval_s=None, finishes=True)
    assert (live.go(), live.number) == ([], n_done)


def test_a_file_that_was_removed_unread_holds_nothing_back(tmp_path: Path) -> None:
    live = backlog(tmp_path)
    step(live)
    (tmp_path / "s/2.json").unlink()
    assert live.go() == [MATCH]


def test_with_waits_that_the_clock_ends_it_is_the_same(tmp_path: Path) -> None:
    assert backlog(tmp_path, after_s=30).go() == [MATCH]


def test_events_of_a_new_partition_are_not_late_because_another_one_is_ahead(tmp_path: Path) -> None:
    live = Live(tmp_path, after_s=None, max_files=1, watermark_per="k")
    live.write(*((10 * n, 1, 0) for n in range(11)), file_name="1.json")
    live.write(*((50 + n, 2, 0) for n in range(11)), file_name="2.json")
    live.go()
    assert live.watermark == 50
    live.write(*((61 + n, 2, 0) for n in range(10)), file_name="3.json")
    live.go()
    assert (live.watermark, live.played.counts.late) == (60, 0)


def test_input_that_appears_before_a_repeated_micro_batch_does_not_take_back_what_it_passes(
    tmp_path: Path,
) -> None:
    live = Live(tmp_path, after_s=None, watermark_per="file")
    live.write((0, 1, 0), file_name="1.json")
    live.go()
    live.write((100, 1, 0), file_name="1.json")
    live.restart()
    assert live.run.next(live.number) is not None
    live.write((50, 1, 0), file_name="2.json")
    live.restart()
    live.played.require_not_ahead(step(live), live.run.done.watermark_us)
