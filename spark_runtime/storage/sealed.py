"""Checksums of the small files of a checkpoint, which show that a file does not contain what was written.

After the text of a file, 32 spaces and tabs are the bits of its CRC-32. JSON ignores them. So earlier
versions read such a file, and what they write again has no old checksum. A file of earlier versions has none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from cep.errors import StateError
from spark_runtime.storage.checkpoint_files import CheckpointFiles, LocalFiles

_SPACES = str.maketrans("01", " \t")

_T = TypeVar("_T")


def sealed(text: str) -> str:
    """Return a text of JSON with its checksum."""
    return text + _seal(text.encode())


def unsealed(data: bytes) -> str:
    """Return the text of `sealed`, or of earlier versions; raise ValueError if the checksum is of another
    text.
    """
    text = data.rstrip(b" \t")
    if len(text) < len(data) and data[len(text) :] != _seal(text).encode():
        raise ValueError("the checksum is of another text")
    return text.decode()


def _seal(text: bytes) -> str:
    return f"{zlib.crc32(text):032b}".translate(_SPACES)


@contextmanager
def parsing(error: StateError) -> Iterator[None]:
    """Raise `error` in place of the exceptions with which the parsing of a damaged text ends."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as cause:
        raise error from cause


def read_sealed(
    files: CheckpointFiles, name: str, parse: Callable[[str], _T], error: StateError
) -> _T | None:
    """Return what `parse` makes of the text of a file; None if the file is missing.

    Raises StateError: `error`, if the file does not contain what was written; or it cannot be read (E0702).
    """
    data = files.read_bytes(name)
    if data is None:
        return None
    with parsing(error):
        return parse(unsealed(data))


def read_sealed_path(path: Path, parse: Callable[[str], _T], error: StateError) -> _T:
    """Return what `parse` makes of the text of a file on a disk, as `read_sealed` does.

    Raises StateError: as `read_sealed`, and if the file is missing.
    """
    found = read_sealed(LocalFiles(str(path.parent)), path.name, parse, error)
    if found is None:
        raise error
    return found


def write_sealed(files: CheckpointFiles, name: str, text: str) -> None:
    """Write a file of JSON in one step, with its checksum."""
    files.write(name, sealed(text))
