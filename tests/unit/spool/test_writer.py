"""What `append` returned from is there after any crash, and no half of anything else."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cep.errors import CepError, InputError, StateError
from cep.spool.folder import Place, durable, identity, note_reader, readers, segment_path, segments
from cep.spool.segments import HEADER_BYTES, ReceivedBatch, batch_of, blocks, is_sound
from cep.spool.writer import DiskFailedError, Limits, SegmentWriter, writer_at


class Clock:
    def __init__(self) -> None:
        self.seconds = 1e9

    def __call__(self) -> float:
        return self.seconds


def batch(*values: str) -> ReceivedBatch:
    return ReceivedBatch([value.encode() for value in values], np.zeros(len(values), np.int64))


def there(folder: Path) -> list[tuple[int, str]]:
    """Return the messages that a reader may see, with their numbers."""
    end = durable(folder)
    assert end is not None
    found = []
    for segment in segments(folder):
        data = segment_path(folder, segment).read_bytes()
        stop = end.n_bytes if segment == end.segment else len(data)
        if segment <= end.segment:
            for block in blocks(data, HEADER_BYTES, stop):
                assert is_sound(data, block, segment)
                values = batch_of(data, block).values
                found += [(block.first + i, value.decode()) for i, value in enumerate(values)]
    return found


@contextmanager
def opened(folder: Path, limits: Limits | None = None, clock: Clock | None = None) -> Iterator[SegmentWriter]:
    with closing(writer_at(folder, limits or Limits(), clock or Clock())) as found:
        yield found


def test_messages_are_numbered_across_segments_and_starts(tmp_path: Path) -> None:
    with opened(tmp_path / "s") as writer:
        writer.append([batch("a"), batch("b", "c")])
        writer.roll()
        writer.append([batch("d")])
    with opened(tmp_path / "s") as writer:
        writer.append([batch("e")])
        assert writer.next_number == 5
    assert there(tmp_path / "s") == list(enumerate("abcde"))
    assert segments(tmp_path / "s") == [0, 3, 4]


def test_a_start_without_messages_leaves_no_empty_segments(tmp_path: Path) -> None:
    for _ in range(3):
        with opened(tmp_path):
            pass
    assert segments(tmp_path) == [0]
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
    for _ in range(3):
        with opened(tmp_path):
            pass
    assert segments(tmp_path) == [0, 1]
    assert there(tmp_path) == [(0, "a")]


def test_a_tail_that_was_not_written_to_its_end_is_cut_off_wherever_it_ends(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
        before, told = durable(tmp_path), (tmp_path / "durable").read_bytes()
        writer.append([batch("b", "c")])
    assert before is not None
    file = segment_path(tmp_path, 0)
    whole = file.read_bytes()
    for size in range(before.n_bytes, len(whole) + 1):
        for segment in segments(tmp_path):
            segment_path(tmp_path, segment).unlink()
        file.write_bytes(whole[:size])
        (tmp_path / "durable").write_bytes(told)
        assert there(tmp_path) == [(0, "a")]  # nobody sees what nobody said to be on disk
        with opened(tmp_path) as writer:
            writer.append([batch("next")])
        is_whole = size == len(whole)
        expected = ["a", "b", "c", "next"] if is_whole else ["a", "next"]
        assert there(tmp_path) == list(enumerate(expected))


def test_what_was_acknowledged_and_is_damaged_is_told_not_cut_off(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
        writer.append([batch("b")])
    file = segment_path(tmp_path, 0)
    data = bytearray(file.read_bytes())
    data[HEADER_BYTES + 30] ^= 1
    file.write_bytes(data)
    with pytest.raises(
        StateError, match=r"damaged at byte 24; messages after it were acknowledged"
    ) as raised:
        writer_at(tmp_path, Limits(), Clock())
    assert raised.value.code == "E0952"
    assert file.read_bytes() == bytes(data)


def test_without_the_file_durable_the_sound_blocks_count(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
    for content in (None, b"", b"x" * 28):
        (tmp_path / "durable").unlink()
        if content is not None:
            (tmp_path / "durable").write_bytes(content)
        assert durable(tmp_path) is None
        with opened(tmp_path):
            pass
        assert there(tmp_path) == [(0, "a")]


def test_a_segment_whose_header_was_not_written_is_made_again(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
    for content in (b"", b"CEPSP", bytes(HEADER_BYTES), bytes(100)):
        segment_path(tmp_path, 1).write_bytes(content)
        with opened(tmp_path):
            pass
        assert there(tmp_path) == [(0, "a")]
        segment_path(tmp_path, 1).unlink()
        with opened(tmp_path):
            pass


def test_a_number_is_not_given_again_when_segments_were_removed(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a", "b")])
    for segment in segments(tmp_path):
        segment_path(tmp_path, segment).unlink()
    with opened(tmp_path) as writer:
        writer.append([batch("c")])
    assert there(tmp_path) == [(2, "c")]


def test_two_spools_on_one_folder_are_refused(tmp_path: Path) -> None:
    with opened(tmp_path):
        with pytest.raises(
            StateError, match=f"another spool writes into .*: process {os.getpid()} on "
        ) as raised:
            writer_at(tmp_path, Limits(), Clock())
        assert raised.value.code == "E0951"
    with opened(tmp_path):
        pass


def test_a_folder_that_is_no_spool_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        writer_at(tmp_path / "file", Limits(), Clock())
    with pytest.raises(InputError, match="is no folder of a spool"):
        identity(tmp_path)
    segment_path(tmp_path, 0).write_bytes(b"")
    with pytest.raises(StateError, match=r"has segments and no `spool\.json`"):
        writer_at(tmp_path, Limits(), Clock())


class FullDisk:
    """A disk on which only so many bytes have room."""

    def __init__(self, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = room
        self.write = os.write
        monkeypatch.setattr(os, "write", self)

    def __call__(self, descriptor: int, data: Any) -> int:
        if self.room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        n = self.write(descriptor, data[: self.room])
        self.room -= n
        return n


@pytest.mark.parametrize("room", [0, 1, 40])
def test_what_has_no_room_leaves_nothing_and_the_next_message_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
        end = durable(tmp_path)
        disk = FullDisk(room, monkeypatch)
        with pytest.raises(OSError, match="No space left"):
            writer.append([batch("b" * 100)])
        assert durable(tmp_path) == end
        assert end is not None
        assert segment_path(tmp_path, 0).stat().st_size == end.n_bytes
        disk.room = 10_000
        writer.append([batch("c")])
    assert there(tmp_path) == [(0, "a"), (1, "c")]


def test_a_disk_that_is_full_when_a_segment_is_over_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path, Limits(segment_bytes=1)) as writer:
        writer.append([batch("a")])
        disk = FullDisk(3, monkeypatch)
        with pytest.raises(OSError, match="No space left"):
            writer.append([batch("b")])
        assert segments(tmp_path) == [0]
        disk.room = 10_000
        writer.append([batch("c")])
    assert there(tmp_path) == [(0, "a"), (1, "c")]


def test_a_spool_opens_on_a_full_disk_and_begins_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
    disk = FullDisk(0, monkeypatch)
    with opened(tmp_path) as writer:
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                writer.append([batch("b")])
        writer.tend()
        assert segments(tmp_path) == [0]
        disk.room = 10_000
        writer.append([batch("c")])
    assert there(tmp_path) == [(0, "a"), (1, "c")]


def test_on_a_full_disk_the_last_segment_can_be_removed_before_another_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a", "b")])
    disk = FullDisk(0, monkeypatch)
    with opened(tmp_path) as writer:
        assert writer.remove_oldest()
        assert (writer.n_removed_unread, segments(tmp_path)) == (2, [])
        assert not writer.remove_oldest()
        disk.room = 10_000
        writer.append([batch("c")])
    assert there(tmp_path) == [(2, "c")]


def test_a_sync_that_fails_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with opened(tmp_path) as writer:
        writer.append([batch("a")])
        monkeypatch.setattr(os, "fdatasync", failing)
        with pytest.raises(DiskFailedError, match="Input/output error"):
            writer.append([batch("b")])
    monkeypatch.undo()
    assert there(tmp_path) == [(0, "a")]
    with opened(tmp_path):
        pass
    assert there(tmp_path) == [(0, "a")]


# ------------------------------------------------------------ removing


def three_segments(writer: SegmentWriter) -> None:
    for name in "abc":
        writer.append([batch(name, name)])
        writer.roll()


def read_to(folder: Path, name: str, number: int) -> None:
    note_reader(folder, name, Place(0, 0, number), {})


def test_a_segment_goes_when_every_reader_has_read_it_and_not_before(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, Limits(keep_seconds=60), clock) as writer:
        three_segments(writer)
        writer.tend()
        clock.seconds += 1000
        writer.tend()
        assert segments(tmp_path) == [0, 2, 4, 6]  # nobody reads: all of it stays
        read_to(tmp_path, "one", 6)
        read_to(tmp_path, "two", 3)
        writer.tend()
        clock.seconds += 59
        writer.tend()
        assert segments(tmp_path) == [0, 2, 4, 6]
        clock.seconds += 1
        writer.tend()
        assert segments(tmp_path) == [2, 4, 6]  # of the second one a message is still unread
        read_to(tmp_path, "two", 6)
        writer.tend()
        clock.seconds += 60
        writer.tend()
        assert segments(tmp_path) == [6]
        assert writer.n_removed_unread == 0
        assert writer.total_bytes == HEADER_BYTES


def test_a_reader_that_is_waited_for_keeps_everything_until_it_registers(tmp_path: Path) -> None:
    with opened(tmp_path, Limits(keep_seconds=0, wanted=("later",))) as writer:
        three_segments(writer)
        read_to(tmp_path, "one", 6)
        writer.tend()
        assert segments(tmp_path) == [0, 2, 4, 6]
        read_to(tmp_path, "later", 2)
        writer.tend()
        assert segments(tmp_path) == [2, 4, 6]


def test_an_old_segment_is_closed_and_with_remove_after_removed_unread_and_counted(tmp_path: Path) -> None:
    clock = Clock()
    with opened(
        tmp_path, Limits(segment_seconds=10, remove_after_seconds=100, keep_seconds=0), clock
    ) as writer:
        writer.append([batch("a", "b")])
        read_to(tmp_path, "one", 1)
        clock.seconds += 9
        writer.tend()
        assert segments(tmp_path) == [0]
        clock.seconds += 1
        writer.tend()
        assert segments(tmp_path) == [0, 2]
        clock.seconds += 99
        writer.tend()
        assert segments(tmp_path) == [0, 2]
        clock.seconds += 1
        writer.tend()
        assert segments(tmp_path) == [2]
        assert writer.n_removed_unread == 1


def test_the_oldest_segment_can_be_removed_but_not_the_open_one(tmp_path: Path) -> None:
    with opened(tmp_path) as writer:
        writer.append([batch("a")])
        assert not writer.remove_oldest()
        writer.roll()
        assert writer.remove_oldest()
        assert (segments(tmp_path), writer.n_removed_unread) == ([1], 1)


def test_a_registration_that_is_damaged_removes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, Limits(keep_seconds=0)) as writer:
        three_segments(writer)
        read_to(tmp_path, "one", 6)
        (tmp_path / "readers" / "two.json").write_text("{")
        with pytest.raises(CepError, match=r"two\.json`, how far a pipeline has read, is damaged"):
            writer.tend()
        assert segments(tmp_path) == [0, 2, 4, 6]
    (tmp_path / "readers" / "two.json").unlink()
    assert readers(tmp_path) == {"one": Place(0, 0, 6)}
