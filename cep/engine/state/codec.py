"""State in sections <-> bytes.

Layout, little endian: magic ``SCEP``, format version (u16), program fingerprint (16 bytes), CRC-32 of the
rest (u32), then the shared section and a section for each rule. A section is its length (u64) and its blocks;
a block is its length (u64) and its bytes:

- shared: fingerprint, what it means (`SharedIdentity`, compressed JSON), numbers, waiting events, keys and
  strings (Arrow IPC), positions and columns of the events that runs report; for each group of windows what it
  means, then blocks of packed columns, each preceded by its length;
- of a rule: name, fingerprint, what it means (`RuleIdentity`), counters and, if it has not begun, the time
  after which it does, then as packed columns (`packing`) its keys, its open runs, until when its matches are
  suppressed, and the nodes that lead to events;
- of joined tables, if rows of any are kept: an empty block, then for each table what it means, and its rows
  (Arrow IPC).

Empty parts have no bytes. A snapshot contains no code, and nothing is read before the header is checked.

Runs are written and read once in each call of a key group, so their bytes are copied as rarely as possible:
blocks are parts that are joined at the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from cep.arrays import I64
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.state.event_lists import KeptEvents
from cep.engine.state.packing import packed, packed_in
from cep.engine.state.sections import (
    N_COUNTERS,
    RuleSection,
    SharedSection,
    StateSections,
    TableSection,
    WindowSection,
    damaged,
)
from cep.errors import StateError
from cep.program.identity import FINGERPRINT_BYTES

MAGIC = b"SCEP"
VERSION = 5
_HEADER = struct.Struct(f"<4sH{FINGERPRINT_BYTES}sI")
_LENGTH = struct.Struct("<Q")

Part: TypeAlias = bytes | memoryview | pa.Buffer
_Block: TypeAlias = Sequence[Part]


_SMALL_BYTES = 1024
"""Smaller tables are not compressed: that would save some bytes, and take four times as long."""


class Header(NamedTuple):
    """The header before the sections."""

    magic: bytes
    version: int
    fingerprint: bytes  # of the program that wrote the sections
    checksum: int


def encode(sections: StateSections, fingerprint: bytes) -> bytes:
    """Return `sections` of the program with this `fingerprint` as bytes."""
    parts: list[Part] = []
    shared = [*_shared_blocks(sections.shared), *_window_blocks(sections.windows)]
    tables = [_table_blocks(sections.tables)] if sections.tables else []
    for blocks in (shared, *map(_rule_blocks, sections.rules), *tables):
        lengths = [sum(memoryview(part).nbytes for part in block) for block in blocks]
        parts.append(_LENGTH.pack(sum(lengths) + _LENGTH.size * len(lengths)))
        for length, block in zip(lengths, blocks, strict=True):
            parts += (_LENGTH.pack(length), *block)
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return b"".join([_HEADER.pack(MAGIC, VERSION, fingerprint, checksum), *parts])


def _shared_blocks(shared: SharedSection) -> list[_Block]:
    kept = shared.kept
    strings = None if shared.strings is None else pa.table({"strings": shared.strings})
    return [
        [shared.fingerprint],
        [shared.about],
        [_numbers((shared.watermark_us, shared.position, *shared.counters))],
        _table_bytes(shared.waiting),
        _table_bytes(shared.keys),
        _table_bytes(strings),
        [] if kept is None else packed(kept.positions.reshape(-1, 1)).parts(),
        _table_bytes(None if kept is None else kept.columns),
    ]


def _window_blocks(windows: Sequence[WindowSection]) -> Iterator[_Block]:
    for window in windows:
        yield [window.meaning]
        parts: list[Part] = []
        for packed_part in window.parts:
            block = packed_part.parts()
            parts += (_LENGTH.pack(sum(memoryview(part).nbytes for part in block)), *block)
        yield parts


def _rule_blocks(rule: RuleSection) -> list[_Block]:
    begins_us = () if rule.begins_us == START_OF_TIME_US else (rule.begins_us,)
    return [
        [rule.name.encode()],
        [rule.fingerprint],
        [rule.about],
        [_numbers((*rule.counters, *begins_us))],
        *(part.parts() for part in (rule.keys, rule.rows, rule.suppressed_until, rule.nodes)),
    ]


def header(data: bytes | memoryview) -> Header:
    """Return the header of a snapshot.

    Raises StateError: not a snapshot (E0702), or of an unknown format (E0703).
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise StateError("E0702", "this is not a snapshot of spark-cep")
    found = Header(*_HEADER.unpack_from(data))
    if found.version != VERSION:
        raise other_format(found.version, VERSION)
    return found


def other_format(found: int, known: int) -> StateError:
    """Return the error for stored bytes in a format that this version does not read."""
    return StateError(
        "E0703",
        f"the stored state has format {found}, this version reads {known}",
        "continue with the version of spark-cep that wrote it, or start from a new checkpoint",
    )


def decode(data: bytes | memoryview) -> StateSections:
    """Return the sections in `data`, whichever rules wrote them.

    Raises StateError: not a snapshot or a damaged one (E0702), or of an unknown format (E0703).
    """
    checksum = header(data).checksum
    body = memoryview(data)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise damaged("its checksum does not fit")
    try:
        shared, *rules = [_split(section) for section in _split(body)]
        has_tables = bool(rules) and len(rules[-1][0]) == 0  # every rule has a name
        tables = rules.pop()[1:] if has_tables else []
        return StateSections(
            _shared_section(*shared[:_SHARED_BLOCKS]),
            tuple(_rule_section(*blocks) for blocks in rules),
            tuple(_window_sections(shared[_SHARED_BLOCKS:])),
            tuple(_table_sections(tables)),
        )
    except (
        ValueError,
        IndexError,
        TypeError,
        struct.error,
        pa.ArrowException,
        OSError,
        OverflowError,
        MemoryError,
    ) as error:
        raise damaged("its sections cannot be read") from error


_SHARED_BLOCKS = 8
"""Blocks of the shared section before those of windows."""


def _window_sections(blocks: Sequence[memoryview]) -> Iterator[WindowSection]:
    for meaning, parts in zip(blocks[::2], blocks[1::2], strict=True):
        yield WindowSection(bytes(meaning), tuple(map(packed_in, _split(parts))))


def _table_blocks(tables: Sequence[TableSection]) -> list[_Block]:
    return [[], *(block for table in tables for block in ([table.meaning], _table_bytes(table.rows)))]


def _table_sections(blocks: Sequence[memoryview]) -> Iterator[TableSection]:
    for meaning, data in zip(blocks[::2], blocks[1::2], strict=True):
        rows = _table(data)
        if rows is None:
            raise ValueError("a table without rows is not stored")
        yield TableSection(bytes(meaning), rows)


def _shared_section(
    fingerprint: memoryview,
    about: memoryview,
    numbers: memoryview,
    waiting: memoryview,
    keys: memoryview,
    strings: memoryview,
    positions: memoryview,
    kept: memoryview,
) -> SharedSection:
    watermark_us, position, *counters = _numbers_in(numbers)
    found = _table(strings)
    columns = _table(kept)
    return SharedSection(
        fingerprint=bytes(fingerprint),
        about=bytes(about),
        watermark_us=watermark_us,
        position=position,
        counters=tuple(counters),
        waiting=_table(waiting),
        keys=_table(keys),
        strings=None if found is None else found.column(0).combine_chunks(),
        kept=None if columns is None else KeptEvents(_positions_in(positions), columns),
    )


def _rule_section(
    name: memoryview,
    fingerprint: memoryview,
    about: memoryview,
    counters: memoryview,
    keys: memoryview,
    rows: memoryview,
    suppressed_until: memoryview,
    nodes: memoryview,
) -> RuleSection:
    numbers = _numbers_in(counters)
    (begins_us,) = numbers[N_COUNTERS:] or [START_OF_TIME_US]
    return RuleSection(
        name=bytes(name).decode(),
        fingerprint=bytes(fingerprint),
        about=bytes(about),
        counters=tuple(numbers[:N_COUNTERS]),
        keys=packed_in(keys),
        rows=packed_in(rows),
        suppressed_until=packed_in(suppressed_until),
        nodes=packed_in(nodes),
        begins_us=begins_us,
    )


def _split(data: memoryview) -> list[memoryview]:
    """Return the bytes that follow each length in `data`."""
    parts, at = [], 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if length > len(data) - at:
            raise ValueError("cut off")
        parts.append(data[at : at + length])
        at += length
    return parts


def _numbers(numbers: Sequence[int]) -> bytes:
    return np.array(numbers, "<i8").tobytes()


def _numbers_in(block: memoryview) -> list[int]:
    numbers: list[int] = np.frombuffer(block, "<i8").tolist()
    return numbers


def _positions_in(block: memoryview) -> I64:
    positions: I64 = packed_in(block).matrix()[:, 0]
    return positions


def _table_bytes(table: pa.Table | None) -> _Block:
    if table is None:
        return []
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if table.nbytes > _SMALL_BYTES else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return [sink.getvalue()]


def _table(block: memoryview) -> pa.Table | None:
    return pa.ipc.open_stream(pa.py_buffer(block)).read_all() if len(block) else None
