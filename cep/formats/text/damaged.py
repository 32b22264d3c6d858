"""Reads a compressed file that Arrow cannot read to its end, byte by byte up to the damage."""

from __future__ import annotations

import io
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pyarrow as pa

from cep.errors import InputError

_PACKED: dict[str, tuple[str, tuple[bytes, ...]]] = {
    ".gz": ("gzip", (b"\x1f\x8b",)),
    ".bz2": ("bz2", (b"BZh",)),
    ".zst": ("zstd", (b"\x28\xb5\x2f\xfd", b"*M\x18")),
    ".lz4": ("lz4", (b"\x04\x22\x4d\x18", b"*M\x18")),
}
"""Ending of a file -> Arrow's name of the form, and what a part of such a file begins with.

A part that is passed over (``*M\\x18``) has another byte before.
"""

COMPRESSED = tuple(_PACKED)
"""File name endings of text that is unpacked as it is read."""

BYTES_BEHIND = "E0624"
"""The code of an error that loses nothing: it ends no run."""

_PIECE = 4096
_READ = 1 << 16
_SIGNS = 16
"""This many bytes after the end of a part may be needed to see that they are not another part."""


def bytes_behind_end(name: str, n_bytes: int, form: str) -> InputError:
    """Return the error for a file that was read completely but has extra bytes after its end."""
    word = "byte" if n_bytes == 1 else "bytes"
    return InputError(
        BYTES_BEHIND,
        f"`{name}` has {n_bytes:,} {word} after its end that are not {form}",
        "all that is before them was read; check what wrote the file",
    )


def rest_of(name: str, n_known: int, block_bytes: int) -> Generator[bytes, None, InputError | None]:
    """Yield the content after its first `n_known` bytes, up to the damage.

    `block_bytes`: the approximate number of bytes at a time. Returns None if there is no damage, and at most
    zeros after the end; an error with the code E0624 if other bytes follow it.

    Raises OSError or pa.ArrowException: the content ends before its end.
    """
    parts = _rest_of(name, n_known)
    block = bytearray()
    while True:
        try:
            block += next(parts)
        except StopIteration as end:
            yield bytes(block)
            found: InputError | None = end.value
            return found
        except (OSError, pa.ArrowException):
            yield bytes(block)
            raise
        if len(block) >= block_bytes:
            yield bytes(block)
            block.clear()


def _rest_of(name: str, n_known: int) -> Generator[bytes, None, InputError | None]:
    form, beginnings = _PACKED[Path(name).suffix.lower()]
    n_found, slow_from = n_known, 0
    with Path(name).open("rb") as file:
        raw = _Raw(file)
        try:
            for data in _content(raw, form, n_known):
                yield data
                n_found += len(data)
        except (OSError, pa.ArrowException):
            slow_from = max(0, raw.last_start - _SIGNS)
    with Path(name).open("rb") as file:
        raw = _Raw(file, slow_from)
        error = yield from _byte_by_byte(raw, form, n_found)
        if raw.end == 0:
            raise error
        file.seek(raw.end)
        if _begins_a_part(file.read(_SIGNS), *beginnings):
            raise error
        file.seek(raw.end)
        n_behind, is_padding = 0, True
        while data := file.read(_READ):
            n_behind += len(data)
            is_padding &= not data.strip(b"\0")
    return None if is_padding else bytes_behind_end(name, n_behind, form)


def _begins_a_part(found: bytes, first: bytes, passed_over: bytes = b"") -> bool:
    """Return whether bytes start like a part of a compressed file, or are too few to tell."""
    if first.startswith(found) or found.startswith(first):
        return True
    return bool(passed_over) and found[1 : 1 + len(passed_over)] == passed_over


class _Raw(io.RawIOBase):
    """The bytes of a file, from `slow_from` on one at a time.

    Attributes
    ----------
    probes
        Whether it reports an end between two bytes: a decompressor accepts this at the end of a part.
    is_probe
        Whether its last answer was such an end.
    end
        The end of the last part that nothing followed.
    """

    def __init__(self, file: Any, slow_from: int | None = None) -> None:
        self._file = file
        self._slow_from = slow_from
        self.at = self.last_start = self.end = 0
        self.probes = self.is_probe = False

    def read(self, size: int = -1) -> bytes:
        """Return some bytes."""
        is_slow = self._slow_from is not None and self.at >= self._slow_from
        if is_slow and self.probes and not self.is_probe:
            self.is_probe = True
            return b""
        self.is_probe = False
        most = _PIECE if self._slow_from is None else max(1, min(_PIECE, self._slow_from - self.at))
        data: bytes = self._file.read(1 if is_slow else most)
        self.last_start = self.at
        self.at += len(data)
        return data

    def readable(self) -> bool:
        """Return True."""
        return True


def _opened(raw: _Raw, form: str) -> Any:
    return pa.CompressedInputStream(pa.PythonFile(raw, "r"), form)


def _content(raw: _Raw, form: str, start: int) -> Generator[bytes, None, None]:
    """Yield the content from byte `start` on."""
    unpacked = _opened(raw, form)
    _skip(unpacked, start)
    while data := unpacked.read(_READ):
        yield data


def _skip(unpacked: Any, n_bytes: int) -> None:
    while n_bytes:
        n_bytes -= len(unpacked.read(min(n_bytes, _READ)))


def _byte_by_byte(raw: _Raw, form: str, start: int) -> Generator[bytes, None, Exception]:
    """Yield the content from byte `start` on, note the end of the last part; return the error after it."""
    unpacked = _opened(raw, form)
    _skip(unpacked, start)
    raw.probes = True
    found = bytearray()
    error: Exception | None = None
    while error is None:
        try:
            byte = unpacked.read(1)
        except (OSError, pa.ArrowException) as failed:
            # At a probe: the end of the part has not come yet.
            error = None if raw.is_probe else failed
            continue
        if byte:
            found += byte
            raw.end = 0
        elif raw.is_probe:
            raw.end = raw.at
        else:
            error = EOFError()
        if len(found) >= _READ:
            yield bytes(found)
            found.clear()
    yield bytes(found)
    return error
