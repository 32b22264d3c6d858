"""The folder of a spool, for the spool that writes and the pipelines that read.

Its files::

    spool.json                      the version and identity of the spool
    00000000000000000000.segment    messages; the name is the number of the first
    durable                         up to where the newest segment is on disk; nobody reads beyond it
    readers/NAME.json               how far a pipeline has read
    status.json                     counts of the running spool
    lock                            held by the running spool
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cep.errors import InputError, StateError
from cep.write_errors import replacing, writing

VERSION = 1

_SEGMENT = re.compile(r"(\d{20})\.segment")
_DURABLE = struct.Struct("<QQQ")
_DURABLE_BYTES = _DURABLE.size + 4
_TRIES = 100


class Place(NamedTuple):
    """A position in a spool.

    `segment`: the segment: the number of its first message. `n_bytes`: the position in the segment; a block
    ends there. `number`: the number of the next message. Messages are numbered from 0 across all segments.
    """

    segment: int
    n_bytes: int
    number: int


def segment_path(folder: Path, segment: int) -> Path:
    """Return the file of a segment."""
    return folder / f"{segment:020d}.segment"


def segments(folder: Path) -> list[int]:
    """Return the segments in order."""
    found = (_SEGMENT.fullmatch(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def identity(folder: Path) -> str:
    """Return the identity of the spool in a folder. Raises InputError: the folder contains no spool."""
    try:
        about = json.loads((folder / "spool.json").read_bytes())
        version, name = about["version"], about["id"]
    except PermissionError as error:
        raise InputError(
            "E0950",
            f"`{folder}` may not be read by this user",
            "run as the user of the spool, or start the spool with --file-mode 0660",
        ) from error
    except (OSError, ValueError, TypeError, KeyError) as error:
        reason = "is a file" if folder.is_file() else "is no folder of a spool"
        raise InputError(
            "E0950",
            f"`{folder}` {reason}",
            f"start the spool first: cep spool http --into {folder}",
        ) from error
    if version != VERSION:
        raise InputError(
            "E0952",
            f"`{folder}` is a spool of version {version}; this spark-cep knows version {VERSION}",
            "read it with the spark-cep that wrote it",
        )
    return str(name)


# ------------------------------------------------------------ how far it is on disk


def durable_bytes(place: Place) -> bytes:
    """Return a position as the content of the file `durable`."""
    packed = _DURABLE.pack(*place)
    return packed + zlib.crc32(packed).to_bytes(4, "little")


def durable(folder: Path) -> Place | None:
    """Return the position up to which messages are on disk; None: the file is missing or damaged."""
    for _ in range(_TRIES):  # it may be being written
        try:
            data = (folder / "durable").read_bytes()
        except FileNotFoundError:
            return None
        packed = data[: _DURABLE.size]
        if len(data) == _DURABLE_BYTES and zlib.crc32(packed).to_bytes(4, "little") == data[_DURABLE.size :]:
            return Place(*_DURABLE.unpack(packed))
    return None


# ------------------------------------------------------------ who reads


@contextmanager
def readers_locked(folder: Path) -> Iterator[None]:
    """Hold the lock under which readers are registered and segments are removed.

    Raises InputError: this user may not write to the folder.
    """
    place = folder / "readers"
    with writing(place):
        place.mkdir(exist_ok=True)
        descriptor = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def note_reader(folder: Path, name: str, place: Place, about: Mapping[str, Any]) -> None:
    """Record how far a reader has read; raises InputError."""
    with writing(folder):
        (folder / "readers").mkdir(exist_ok=True)
    write_whole(folder / "readers" / f"{name}.json", json.dumps({"place": list(place), **about}))


def readers(folder: Path) -> dict[str, Place]:
    """Return how far each reader has read, by its name.

    Raises StateError: a file is damaged, so it is unknown what its reader still needs.
    """
    found = {}
    for file in sorted((folder / "readers").glob("[!.]*.json")):
        try:
            found[file.stem] = Place(*map(int, json.loads(file.read_bytes())["place"]))
        except (ValueError, TypeError, KeyError) as error:
            raise StateError(
                "E0952",
                f"`{file}`, how far a pipeline has read, is damaged",
                "remove it if its pipeline is gone; else start the pipeline once, which writes it again",
            ) from error
    return found


def write_whole(file: Path, text: str, *, is_durable: bool = False) -> None:
    """Write a file atomically, through a link; if `is_durable`, it is then on disk.

    Raises InputError: it cannot be written. Then it remains as it was.
    """
    with replacing(file) as unfinished, unfinished.open("w", encoding="utf-8") as output:
        output.write(text)
        if is_durable:
            output.flush()
            os.fsync(output.fileno())
    if is_durable:
        with writing(file):
            sync_folder(Path(os.path.realpath(file)).parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
