"""The past of a checkpoint that was restored, or does not say how far its stream had come. Without Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark_runtime.pipeline.course import FILE, Mark, read_course
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.saving import save
from tests.unit.spark_runtime.pipeline.test_filling import BEFORE, LATER, Life, events_of, whole

MONDAY, TUESDAY = events_of(21, 300), events_of(22, 300, start_s=3600)


def restored(life: Life, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    """Let a pipeline continue from a savepoint."""
    monkeypatch.setattr("spark_runtime.pipeline.saving.stored_values", lambda *given: ())
    save(str(life.checkpoint), str(life.folder / f"saved{n}"))
    life.checkpoint = life.folder / f"restored{n}"
    restore(str(life.folder / f"saved{n}"), str(life.checkpoint))
    life.run(BEFORE)  # the first micro-batch reads nothing


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """Return a pipeline that has read Tuesday before Monday, both in one micro-batch."""
    made = Life(tmp_path, of_source="")
    for day, events in enumerate((MONDAY, TUESDAY)):
        made.add(events)
        os.utime(tmp_path / f"in/00{day}.json", (10 - day, 10 - day))
    made.run(BEFORE)
    return made


def found(said: str) -> int:
    (line,) = (line for line in said.splitlines() if line.startswith("  later: "))
    return int(line.split()[1])


def n_due() -> int:
    """Return how many matches the watermark has passed."""
    return whole(LATER, [*MONDAY, *TUESDAY]).total() - _after_watermark()


def _after_watermark() -> int:
    last_us = TUESDAY[-1]["ts"] - 10_000_000
    before = [event for event in TUESDAY if event["ts"] <= last_us]
    return whole(LATER, TUESDAY).total() - whole(LATER, before).total()


def test_a_restored_checkpoint_knows_which_events_were_late(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.write(BEFORE + LATER)
    assert found(life.backfill()) == n_due()
    for n in (1, 2):  # also a savepoint of a restored checkpoint
        restored(life, monkeypatch, n)
        life.write(BEFORE + LATER)
        said = life.backfill()
        assert found(said) == n_due()
        assert "late" not in said.replace("later", "")


def test_late_events_of_a_restored_checkpoint_are_late_and_counted(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = [{**event, "x": 0} for event in MONDAY[:7]]
    life.run(BEFORE, late)
    life.write(BEFORE + LATER)
    said = life.backfill()
    assert "  t: 7 events were late, so the rules do not see them\n" in said
    restored(life, monkeypatch, 1)
    life.write(BEFORE + LATER)
    again = life.backfill()
    assert [line for line in again.splitlines() if "up to" not in line] == [
        line for line in said.splitlines() if "up to" not in line
    ]


def test_without_a_course_no_event_is_late_and_the_command_says_so(life: Life) -> None:
    (life.checkpoint / FILE).unlink()
    life.write(BEFORE + LATER)
    said = life.backfill()
    assert found(said) == n_due()
    assert "warning: which of the first 600 events were late is not known, so none of them" in said


def test_marks_after_the_savepoint_are_not_in_it(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    place = life.checkpoint / FILE
    known = read_course(str(life.checkpoint))
    with place.open("a") as file:
        file.write('[7,{"t":9},5,5,null]\n')
    restored(life, monkeypatch, 1)
    n_batches = known[-1].batch + 2  # the rest is a micro-batch without input
    assert [mark.offsets for mark in read_course(str(life.checkpoint))] == [mark.offsets for mark in known]
    assert read_course(str(life.checkpoint))[0] == Mark(-1 - n_batches, {}, None, None)
