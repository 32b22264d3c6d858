"""Reads RocksDB's files of sorted entries (block-based tables, formats 2 to 5) as Spark writes them.

    data blocks, index block, ..., footer: checksum kind, places of two blocks, version, magic
    block: entries (shared key bytes, other key bytes, value bytes; numbers of varying length), places, their
           number; then the kind of compression and a checksum

The index contains the place of each data block. A key ends with the number and the kind of its entry; the
higher number is the later entry. https://github.com/facebook/rocksdb/wiki/Rocksdb-BlockBasedTable-Format
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa

_FOOTER, _TRAILER = 53, 5
_MAGIC = 0x88E241B785F4CFF7
_FORMATS = range(2, 6)
_DELTAS_SINCE = 4
"""From this format on, the index has no lengths of its values."""

_CODECS = {1: "snappy", 4: "lz4_raw", 5: "lz4_raw", 7: "zstd"}
_DELETED, _PUT, _DELETED_ONCE = 0, 1, 7


def last_entries(tables: Sequence[bytes]) -> dict[bytes, bytes | None]:
    """Return the last value of each key in several tables; None: it was deleted.

    Raises ValueError, IndexError or struct.error: a table is damaged, or has another format.
    """
    found: dict[bytes, tuple[int, bytes | None]] = {}
    for table in tables:
        for key, value in _entries(table):
            number = int.from_bytes(key[-8:], "little")
            kind = number & 0xFF
            if kind not in (_DELETED, _PUT, _DELETED_ONCE):
                raise ValueError(f"an entry of kind {kind}")
            last = (number >> 8, value if kind == _PUT else None)
            found[key[:-8]] = max(found.get(key[:-8], last), last, key=lambda entry: entry[0])
    return {key: value for key, (_, value) in found.items()}


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys with their numbers, and the values."""
    version, magic = struct.unpack("<IQ", table[-12:])
    if magic != _MAGIC or version not in _FORMATS:
        raise ValueError(f"a table of format {version}")
    _, at = _place(table, len(table) - _FOOTER + 1)  # of a block that names others
    index, _ = _place(table, at)
    for place in _places(_block(table, *index), has_lengths=version < _DELTAS_SINCE):
        yield from _in_block(_block(table, *place))


def _place(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """Return the start and the length of a block, and the place after them."""
    start, at = _number(data, at)
    length, at = _number(data, at)
    return (start, length), at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and the place after it."""
    number, shift = 0, 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return number | data[at] << shift, at + 1


def _block(table: bytes, start: int, length: int) -> bytes:
    """Return the entries of a block."""
    data, codec = table[start : start + length], table[start + length]
    if codec:
        if codec not in _CODECS:
            raise ValueError(f"a block compressed in way {codec}")
        n_bytes, at = _number(data, 0)
        at = 0 if _CODECS[codec] == "snappy" else at  # which begins with the length itself
        data = pa.decompress(data[at:], n_bytes, _CODECS[codec], asbytes=True)
    n_places = int.from_bytes(data[-4:], "little")
    if n_places >> 31:
        raise ValueError("a block with a hash table")
    return data[: len(data) - 4 * (n_places + 1)]


def _in_block(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    at, key = 0, b""
    while at < len(block):
        n_shared, at = _number(block, at)
        n_other, at = _number(block, at)
        n_value, at = _number(block, at)
        key = key[:n_shared] + block[at : at + n_other]
        at += n_other + n_value
        yield key, block[at - n_value : at]


def _places(index: bytes, *, has_lengths: bool) -> Iterator[tuple[int, int]]:
    """Yield the places of the data blocks."""
    at, start, length = 0, 0, 0
    while at < len(index):
        n_shared, at = _number(index, at)
        n_other, at = _number(index, at)
        if has_lengths:
            _, at = _number(index, at)
        at += n_other
        if n_shared and not has_lengths:  # only how much longer the next block is
            start += length + _TRAILER
            change, at = _number(index, at)
            length += change >> 1 ^ -(change & 1)
        else:
            (start, length), at = _place(index, at)
        yield start, length
