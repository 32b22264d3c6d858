"""Files of state below the checkpoint: an attempt of a task writes one, and pointers name pieces of them.

    <checkpoint>/state/<key group>/<micro-batch>-<run>-<attempt>          what one attempt of a task wrote
    <checkpoint>/state/<key group>/<micro-batch>-<run>-<attempt>-ahead    a snapshot of the state after it

A piece counts only if Spark's state store has a pointer that names it, so exactly-once is Spark's own. Each
attempt writes its own file. So attempts that run at the same time, or were lost, do not affect each other.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from cep.errors import StateError
from cep.write_errors import writing
from spark_runtime.state.far import FarStorage, is_far, reason

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "state"

_READERS = 16
"""How many files are read side by side where each answer takes long."""


class Piece(NamedTuple):
    """A part of a file: its first byte, its length in bytes, its CRC-32."""

    file: str
    start: int
    length: int
    checksum: int


class Given(NamedTuple):
    """The beginning of a record, which a worker wrote to the file of its task: its first byte, its bytes."""

    start: int
    data: pa.Buffer

    def covers(self, parts: Sequence[bytes | pa.Buffer]) -> int:
        """Return how many of the first parts of a record are this beginning; 0: the record does not begin
        with it.
        """
        at = 0
        for number, part in enumerate(parts):
            if at == len(self.data):
                return number
            if isinstance(part, bytes):
                is_same = bool(self.data.slice(at, len(part)) == part)
            else:
                is_same = part.address == self.data.address + at
            if not is_same or at + len(part) > len(self.data):
                return 0
            at += len(part)
        return len(parts) if at == len(self.data) else 0


class Storage(Protocol):
    """The files of a folder."""

    def write(self, file: str, parts: Iterable[bytes | pa.Buffer]) -> int:
        """Write bytes to a file of this attempt; return the place of the first."""

    def read(self, file: str, start: int, length: int) -> bytes:
        """Return a part of a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""

    def remove(self, files: Sequence[str]) -> None:
        """Remove files, except those that cannot be removed."""


class LocalStorage:
    """The files of a folder on a disk."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def write(self, file: str, parts: Iterable[bytes | pa.Buffer]) -> int:
        """Append bytes to a file; return the place of the first.

        The folder is created, but not the one that contains it: a worker that lives a moment longer than its
        driver must not create part of a checkpoint that was removed.
        """
        place = self._folder / file
        for folder in (self._folder, place.parent):
            folder.mkdir(exist_ok=True)
        with open(place, "ab", opener=_private) as stream:
            start = stream.tell()
            stream.writelines(parts)
        return start

    def read(self, file: str, start: int, length: int) -> bytes:
        """Return a part of a file."""
        with (self._folder / file).open("rb") as stream:
            stream.seek(start)
            return stream.read(length)

    @cached_property
    def can_map(self) -> bool:
        """Whether a file can be extended, and mapped into memory. Not all file systems in user space can."""
        try:
            self._folder.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".try-") as first:
                first.write(b"first")
                first.flush()
                with open(first.name, "ab") as second:
                    second.write(b"second")
                found: bytes = self.mapped(first.name).to_pybytes()
        except OSError:
            return False
        return found == b"firstsecond"

    def mapped(self, file: str) -> pa.Buffer:
        """Return the bytes of a file, which are read when they are needed."""
        import pyarrow as pa

        with pa.memory_map(str(self._folder / file)) as opened:
            return opened.read_buffer()

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""
        try:
            return os.listdir(self._folder / folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, files: Sequence[str]) -> None:
        """Remove files, except those that cannot be removed."""
        for file in files:
            with suppress(OSError):
                (self._folder / file).unlink()


class Pieces:
    """The files of state in a folder that the driver and all executors see.

    `folder`: the path or address of the folder. `options`: of a folder on S3, as `far.options_of` returns
    them.
    """

    def __init__(self, folder: str, options: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._storage: Storage = FarStorage(folder, options or {}) if is_far(folder) else LocalStorage(folder)

    @property
    def can_map(self) -> bool:
        """Whether files can be mapped into memory."""
        return isinstance(self._storage, LocalStorage) and self._storage.can_map

    def give(self, file: str, parts: Sequence[bytes | pa.Buffer]) -> int:
        """Write the beginning of a record for the owner of a key group; return the place of its first byte.

        Raises InputError: it cannot be written, as on a full disk (E0616).
        """
        with writing(self._place(file)):
            return self._storage.write(file, parts)

    def given(self, file: str, start: int, length: int) -> Given:
        """Return what `give` wrote to a file on a disk."""
        assert isinstance(self._storage, LocalStorage)
        return Given(start, self._storage.mapped(file).slice(start, length))

    def write(
        self, file: str, *pieces: Sequence[bytes | pa.Buffer], given: Given | None = None
    ) -> list[Piece]:
        """Write the file of this attempt at once, and return the pieces that it consists of.

        `given`: what was written before, as the beginning of the first piece. If it is not, it has no use.
        Raises InputError: the file cannot be written, as on a full disk (E0616).
        """
        n_given = 0 if given is None else given.covers(pieces[0])
        with writing(self._place(file)):
            left = islice((part for parts in pieces for part in parts), n_given, None)
            at = self._storage.write(file, left)
        if given is not None and n_given:
            assert at == given.start + len(given.data), "another attempt has written to this file"
            at = given.start
        found = []
        for parts in pieces:
            checksum = 0
            for part in parts:
                checksum = zlib.crc32(part, checksum)
            found.append(Piece(file, at, sum(map(len, parts)), checksum))
            at += found[-1].length
        return found

    def read(self, piece: Piece) -> bytes:
        """Return the bytes of a piece.

        Raises
        ------
        StateError
            The file is missing, or does not contain what was written (E0702).
        """
        place = self._place(piece.file)
        try:
            data = self._storage.read(piece.file, piece.start, piece.length)
        except FileNotFoundError as error:
            raise _damaged(place, "is missing", _OTHER_FOLDER) from error
        except OSError as error:
            raise _damaged(place, f"cannot be read: {reason(error)}") from error
        if len(data) != piece.length or zlib.crc32(data) != piece.checksum:
            raise _damaged(place, "does not contain what was written")
        return data

    def read_all(self, pieces: Sequence[Piece]) -> Iterator[bytes]:
        """Yield the bytes of several pieces. Raises StateError as `read` does."""
        if isinstance(self._storage, LocalStorage):
            yield from map(self.read, pieces)
            return
        with ThreadPoolExecutor(_READERS) as readers:  # an answer takes long, whatever it contains
            yield from readers.map(self.read, pieces)

    def remove_before(self, group: int, batch: int) -> None:
        """Remove the files of a key group that micro-batches before `batch` wrote."""
        with suppress(OSError):  # the next snapshot removes what could not be removed now
            names = filter(_is_of_batch, self._storage.names(str(group)))
            self._storage.remove([f"{group}/{name}" for name in names if batch_of(name) < batch])

    def remove_left(self, group: int, batch: int) -> None:
        """Remove the files of a key group if micro-batches before `batch` wrote all of them."""
        with suppress(OSError):
            names = list(filter(_is_of_batch, self._storage.names(str(group))))
            if all(batch_of(name) < batch for name in names):
                self._storage.remove([f"{group}/{name}" for name in names])

    def batches(self) -> set[int]:
        """Return the micro-batches in which the files of all key groups were written.

        Raises OSError: a folder cannot be read.
        """
        groups = [name for name in self._storage.names("") if name.isdigit()]
        return {batch_of(name) for of in groups for name in self._storage.names(of) if _is_of_batch(name)}

    def _place(self, file: str) -> str:
        return f"{self.folder}/{file}"


def batch_of(file: str) -> int:
    """Return the number of the micro-batch in which a file was written."""
    return int(file.rpartition("/")[2].partition("-")[0])


def _is_of_batch(name: str) -> bool:
    return name.partition("-")[0].isdigit()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


_RESTORE = "restore the checkpoint directory as a whole, or start with an empty one"
_OTHER_FOLDER = f"{_RESTORE}; detect needs the `state_folder` of its earlier runs"


def _damaged(place: str, fact: str, way_out: str = _RESTORE) -> StateError:
    return StateError("E0702", f"the file of state `{place}` {fact}", way_out)
