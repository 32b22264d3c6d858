"""Files of state below the checkpoint: they only grow, and a pointer in Spark's state names pieces of them.

    <checkpoint>/state/<key group>/<micro-batch>-<run>-<attempt>    what one attempt of a task wrote

A piece counts only if Spark has committed a pointer that names it, so exactly-once is Spark's own. Each
attempt writes a file of its own: attempts that run side by side, or were lost, do not disturb each other.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cep.errors import StateError
from cep.write_errors import writing

FOLDER = "state"


class Piece(NamedTuple):
    """A part of a file: its first byte, its length in bytes, its CRC-32."""

    file: str
    start: int
    length: int
    checksum: int


class Pieces:
    """The files of state in a folder that the driver and all executors see.

    Parameters
    ----------
    folder
        The path of the folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def append(self, file: str, parts: Sequence[bytes]) -> Piece:
        """Append bytes to a file, creating it if missing, and return the piece that they are."""
        place = self.folder / file
        checksum = 0
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            with open(place, "ab", opener=_private) as stream:
                start = stream.tell()
                stream.writelines(parts)
        return Piece(file, start, sum(map(len, parts)), checksum)

    def read(self, piece: Piece) -> bytes:
        """Return the bytes of a piece.

        Raises
        ------
        StateError
            The file is missing, or does not contain what was written (E0702).
        """
        place = self.folder / piece.file
        try:
            with place.open("rb") as stream:
                stream.seek(piece.start)
                data = stream.read(piece.length)
        except OSError as error:
            raise _damaged(place, f"cannot be read: {error.strerror}") from error
        if len(data) != piece.length or zlib.crc32(data) != piece.checksum:
            raise _damaged(place, "does not contain what was written")
        return data

    def remove_before(self, group: int, batch: int) -> None:
        """Remove the files of a key group that micro-batches before `batch` wrote."""
        folder = self.folder / str(group)
        with suppress(OSError):  # the next snapshot removes what could not be removed now
            for name in os.listdir(folder):
                if _is_of_batch(name) and batch_of(name) < batch:
                    (folder / name).unlink()

    def batches(self) -> set[int]:
        """Return the micro-batches in which the files of all key groups were written.

        Raises OSError: a folder cannot be read.
        """
        groups = [place for place in self.folder.iterdir() if place.is_dir()] if self.folder.is_dir() else []
        return {batch_of(name) for group in groups for name in os.listdir(group) if _is_of_batch(name)}


def batch_of(file: str) -> int:
    """Return the number of the micro-batch in which a file was written."""
    return int(file.rpartition("/")[2].partition("-")[0])


def _is_of_batch(name: str) -> bool:
    return name.partition("-")[0].isdigit()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _damaged(place: Path, fact: str) -> StateError:
    return StateError(
        "E0702",
        f"the file of state `{place}` {fact}",
        "restore the checkpoint directory as a whole, or start with an empty one",
    )
