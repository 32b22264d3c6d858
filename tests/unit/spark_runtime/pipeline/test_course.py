"""The course of a stream: which micro-batches have a mark, and what a kill leaves."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.counts import Counts
from cep.errors import StateError
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline import course
from spark_runtime.pipeline.course import FILE, CourseLog, Mark, read_course
from spark_runtime.wire.plan import Plan


def done(batch: int) -> Done:
    reached = Reached(10 * batch, {"readings": (10 * batch + 5, "")}) if batch >= 0 else Reached()
    return Done(batch, reached, {"readings": batch + 1} if batch >= 0 else {}, ended=False)


def plan(batch: int) -> Plan:
    return Plan([[("readings", ("file", batch))]], {"readings": batch + 1}, done(batch - 1).reached)


def mark(batch: int, late_us: int | None = None) -> Mark:
    return Mark.of(done(batch), late_us)


def note(log: CourseLog, batch: int, events: int = 1, late: int = 0) -> None:
    counts = Counts(events=events, late_of={"readings": late} if late else {})
    log.note(done(batch - 1), plan(batch), done(batch), counts)


def test_a_run_marks_its_beginning_late_events_and_many_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(course, "MARK_EVENTS", 10)
    log = CourseLog(str(tmp_path))
    for batch in range(3):
        note(log, batch)
    note(log, 3, late=1)
    note(log, 4, late=1)
    note(log, 5, events=9)
    note(log, 6)
    note(log, 7)
    expected = [mark(-1), mark(0), mark(2), mark(3, 20), mark(4, 30), mark(6)]
    assert read_course(str(tmp_path)) == expected
    note(CourseLog(str(tmp_path)), 8)
    assert read_course(str(tmp_path)) == [*expected, mark(7), mark(8)]


def test_a_line_that_was_not_completely_written_is_ignored_and_replaced(tmp_path: Path) -> None:
    note(CourseLog(str(tmp_path)), 0)
    place = tmp_path / FILE
    place.write_bytes(place.read_bytes() + b'[1,{"readings"')
    assert read_course(str(tmp_path)) == [mark(-1), mark(0)]
    note(CourseLog(str(tmp_path)), 1)
    assert read_course(str(tmp_path)) == [mark(-1), mark(0), mark(0), mark(1)]


def test_of_a_long_file_the_newer_half_remains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "MOST_BYTES", 2000)
    log = CourseLog(str(tmp_path))
    for batch in range(500):
        note(log, batch, late=1)
        assert (tmp_path / FILE).stat().st_size < 2200
    found = read_course(str(tmp_path))
    assert [of.batch for of in found] == list(range(500 - len(found), 500))
    assert len(found) > 20


def test_a_micro_batch_that_reads_nothing_has_no_mark(tmp_path: Path) -> None:
    log = CourseLog(str(tmp_path))
    log.note(done(4), Plan((), {}, done(4).reached), done(4), Counts())
    assert read_course(str(tmp_path)) == []


def test_a_damaged_line_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("[1, 2]\n{}\n")
    with pytest.raises(StateError, match=r"E0702.*course\.log.*is damaged"):
        read_course(str(tmp_path))
