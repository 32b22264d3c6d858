"""Messages are told to be written when they are on disk, many with one fsync; limits are kept and counted."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cep.spool.folder import durable, segments
from cep.spool.intake import AtLimit, Intake, Outcome, Room
from cep.spool.segments import ReceivedBatch
from cep.spool.writer import Limits, writer_at


class Clock:
    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> float:
        return self.seconds


def batch(*values: bytes) -> ReceivedBatch:
    return ReceivedBatch(list(values), np.zeros(len(values), np.int64))


@contextmanager
def intake(
    folder: Path, room: Room | None = None, limits: Limits | None = None, clock: Clock | None = None
) -> Iterator[Intake]:
    writer = writer_at(folder, limits or Limits(), Clock())
    found = Intake(writer, room or Room(), clock or Clock())
    try:
        yield found
    finally:
        found.close()
        writer.close()


class Gate:
    """An fsync that waits until it may go on; counts how often it was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()
        sync = os.fdatasync

        def gated(descriptor: int) -> None:
            self.n += 1
            self.has_begun.set()
            assert self.may_go_on.wait(30)
            sync(descriptor)

        monkeypatch.setattr(os, "fdatasync", gated)


def test_what_comes_during_an_fsync_shares_the_next_one_and_nothing_is_told_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, Outcome]] = []
    gate = Gate(monkeypatch)

    def tell(number: int) -> Callable[[Outcome], None]:
        return lambda outcome: told.append((number, outcome))

    with intake(tmp_path) as spool:
        assert spool.offer(batch(b"0"), tell(0)) is None
        assert gate.has_begun.wait(30)
        for number in range(1, 50):
            spool.offer(batch(b"x", b"y"), tell(number))
        assert told == []
        gate.may_go_on.set()
        spool.flush()
        assert told == [(number, Outcome.WRITTEN) for number in range(50)]
        assert gate.n == 2
        assert (spool.counts.taken, spool.counts.written) == (99, 99)
    end = durable(tmp_path)
    assert end is not None
    assert end.number == 99


def test_what_does_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    with intake(tmp_path, Room(max_waiting_bytes=1000)) as spool:
        assert spool.offer(batch(b"x" * 5000)) is None  # alone, anything is taken
        assert gate.has_begun.wait(30)
        assert spool.offer(batch(b"y")) is Outcome.REFUSED
        assert spool.is_full() == "memory"
        gate.may_go_on.set()
        spool.flush()
        assert spool.is_full() == ""
        assert spool.offer(batch(b"y")) is None
        spool.flush()
        assert (spool.counts.taken, spool.counts.written, spool.counts.refused) == (3, 2, 1)


@pytest.mark.parametrize(
    ("at_limit", "outcome"), [(AtLimit.REFUSE, Outcome.REFUSED), (AtLimit.DROP, Outcome.DROPPED)]
)
def test_beyond_the_limit_on_disk_messages_are_refused_or_dropped_and_counted(
    tmp_path: Path, at_limit: AtLimit, outcome: Outcome
) -> None:
    with intake(tmp_path, Room(max_bytes=2000, at_limit=at_limit)) as spool:
        found = []
        for _ in range(10):
            found.append(spool.offer(batch(b"x" * 500)))
            spool.flush()
        assert found == [None] * 3 + [outcome] * 7
        assert spool.counts.written == 3
        assert spool.counts.refused + spool.counts.dropped == 7
        assert spool.line().endswith("7 refused" if at_limit is AtLimit.REFUSE else "7 dropped")
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["taken"], status["written"], status["is_running"]) == (10, 3, False)
    assert status["bytes"] <= 2000


def test_with_remove_oldest_the_newest_messages_stay_and_the_removed_ones_are_counted(tmp_path: Path) -> None:
    room = Room(max_bytes=4000, at_limit=AtLimit.REMOVE_OLDEST)
    with intake(tmp_path, room, Limits(segment_bytes=500)) as spool:
        for _ in range(20):
            assert spool.offer(batch(b"x" * 500)) is None
            spool.flush()
        spool.line()
        first = segments(tmp_path)[0]
        assert (spool.counts.written, spool.counts.removed_unread) == (20, first)
        assert 10 < first < 20


@pytest.mark.parametrize(
    ("at_limit", "outcome"), [(AtLimit.REFUSE, Outcome.REFUSED), (AtLimit.DROP, Outcome.DROPPED)]
)
def test_a_full_disk_is_tried_again_after_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_limit: AtLimit, outcome: Outcome
) -> None:
    write, is_full = os.write, True

    def full(descriptor: int, data: Any) -> int:
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    told: list[Outcome] = []
    clock = Clock()
    with intake(tmp_path, Room(at_limit=at_limit), clock=clock) as spool:
        monkeypatch.setattr(os, "write", full)
        assert spool.offer(batch(b"a"), told.append) is None
        spool.flush()
        assert told == [outcome]
        assert spool.offer(batch(b"b")) is outcome
        assert spool.is_full() == "disk full"
        assert spool.line().endswith("; no room: disk full")
        is_full = False
        clock.seconds += 1
        assert spool.offer(batch(b"c"), told.append) is None
        spool.flush()
        assert told == [outcome, Outcome.WRITTEN]
        assert spool.error is None
        assert "no room" not in spool.line()
    end = durable(tmp_path)
    assert end is not None
    assert end.number == 1


def test_a_disk_that_fails_ends_the_spool_and_nothing_is_told_to_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    told: list[Outcome] = []
    stopped = threading.Event()
    writer = writer_at(tmp_path, Limits(), Clock())
    spool = Intake(writer, Room(), Clock(), stop=stopped.set)
    monkeypatch.setattr(os, "fdatasync", failing)
    assert spool.offer(batch(b"a"), told.append) is None
    spool.flush()
    assert told == [Outcome.FAILED]
    assert stopped.is_set()
    assert spool.error is not None
    assert spool.error.code == "E0958"
    assert spool.offer(batch(b"b")) is Outcome.FAILED
    spool.close()
    writer.close()


def test_what_waits_at_the_end_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    told: list[Outcome] = []
    with intake(tmp_path) as spool:
        spool.offer(batch(b"a"), told.append)
        assert gate.has_begun.wait(30)
        spool.offer(batch(b"b"), told.append)
        gate.may_go_on.set()
    assert told == [Outcome.WRITTEN] * 2
    assert spool.offer(batch(b"c")) is Outcome.FAILED


def test_the_status_tells_of_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, is_full = os.write, threading.Event()

    def full(descriptor: int, data: Any) -> int:
        if is_full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    def no_file(self: Path, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def status() -> tuple[int, str]:
        found = json.loads((tmp_path / "status.json").read_text())
        return found["refused"], found["limit_reached"]

    monkeypatch.setattr(os, "write", full)
    clock = Clock()
    with intake(tmp_path, clock=clock) as spool:
        spool.offer(batch(b"a"))
        spool.flush()
        spool._tell_status()
        assert status() == (0, "")
        with monkeypatch.context() as disk:
            disk.setattr(Path, "touch", no_file)
            is_full.set()
            spool.offer(batch(b"b"))
            spool.flush()
            spool._tell_status()
            assert status() == (1, "disk full")
            is_full.clear()
        clock.seconds += 1
        spool.offer(batch(b"c"))
        spool.flush()
        spool._tell_status()
        assert status() == (1, "")
