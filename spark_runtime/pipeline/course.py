"""The course of a stream: how far its sources were read when its watermark reached a time.

    <checkpoint>/course.log a line for each mark, with its checksum, the oldest first

With it, the past can be read again with the same lateness (`backfill`): between two marks no event was late,
or exactly those that the watermark in a line makes late. A mark is written for each micro-batch with late
events, and otherwise after `MARK_EVENTS` events. Checkpoints of earlier versions, and those restored from
their savepoints, have no earlier marks. A line that was not completely written, because the process died, is
ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from cep.counts import Counts
from cep.errors import StateError
from cep.write_errors import writing
from spark_runtime.event_time.done import Done
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.storage.sealed import parsing, sealed, unsealed
from spark_runtime.wire.plan import Plan

FILE = "course.log"

MARK_EVENTS = 100_000
"""A mark is added after this many events. Whoever reads the past again holds this many at a time."""

MOST_BYTES = 8 << 20
"""The older half of a longer file is dropped."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in the course of a stream, after a micro-batch.

    - `batch`: the micro-batch; -1: before the first one.
    - `offsets`: by stream the offset of its source.
    - `watermark_us`: the watermark that was reached; None: no event was read.
    - `read_until_us`: the latest event time that was read; None: no event was read.
    - `late_us`: the watermark by which events between the previous mark and this one were late; None: no
      event was late.
    """

    batch: int
    offsets: Mapping[str, Any]
    watermark_us: int | None
    read_until_us: int | None
    late_us: int | None = None

    @classmethod
    def of(cls, done: Done, late_us: int | None = None) -> Mark:
        """Return the mark after a micro-batch."""
        return cls(done.batch, dict(done.offsets), done.watermark_us, done.reached.read_until_us, late_us)


def read_course(checkpoint: str) -> list[Mark]:
    """Return the marks of the checkpoint at a local path, the oldest first; an empty list: it has none.

    Raises StateError: the file cannot be read, or a line is damaged (E0702).
    """
    data = LocalFiles(checkpoint).read_bytes(FILE) or b""
    return marks_of(data, str(Path(checkpoint) / FILE))


def marks_of(data: bytes, place: str) -> list[Mark]:
    """Return the marks in the contents of a file. Raises StateError: a line is damaged (E0702)."""
    error = StateError(
        "E0702",
        f"`{place}`, which says how far the stream had come, is damaged",
        "restore the checkpoint directory as a whole, or remove this file: the past is then judged anew",
    )
    with parsing(error):
        lines = data[: data.rfind(b"\n") + 1].splitlines()
        return [Mark(*json.loads(unsealed(line))) for line in lines]


def course_text(marks: Sequence[Mark]) -> str:
    """Return marks as the contents of a file."""
    texts = (json.dumps(astuple(mark), separators=(",", ":")) for mark in marks)
    return "".join(f"{sealed(text)}\n" for text in texts)


@dataclass
class CourseLog:
    """Writes the course of a run. `checkpoint`: a local path; empty: nothing is written."""

    checkpoint: str
    _n_events: int = 0  # since the last mark
    _last: Mapping[str, Any] | None = field(default=None)  # offsets of the last mark; None: none in this run

    def note(self, before: Done, plan: Plan, after: Done, counts: Counts) -> None:
        """Record a micro-batch if it needs a mark; called before its progress is recorded.

        A micro-batch that is repeated is recorded again, with the same offsets.
        """
        if not self.checkpoint or not plan.shares:
            return
        marks = []
        self._n_events += counts.events
        if self._last is None or (counts.late and self._last != before.offsets):
            marks.append(Mark.of(before))
        if self._last is None or counts.late or self._n_events >= MARK_EVENTS:
            marks.append(Mark.of(after, plan.reached.watermark_us if counts.late else None))
            self._n_events = 0
        if marks:
            self._append(marks)
            self._last = marks[-1].offsets

    def _append(self, marks: Sequence[Mark]) -> None:
        place = Path(self.checkpoint) / FILE
        with writing(place):
            if self._last is None or (place.exists() and place.stat().st_size > MOST_BYTES):
                self._mend(place)
            with place.open("ab") as file:
                file.write(course_text(marks).encode())

    def _mend(self, place: Path) -> None:
        """Remove an incomplete line, and the older half of a file that has become long."""
        data = place.read_bytes() if place.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) > MOST_BYTES:
            whole = whole[whole.find(b"\n", len(whole) // 2) + 1 :]
        if whole != data:
            unfinished = place.with_name(f".{place.name}.tmp")
            unfinished.write_bytes(whole)
            unfinished.replace(place)
