"""Snapshot <-> bytes.

Layout, little endian: magic ``SCEP``, format version (u16), program fingerprint (16 bytes), CRC-32 of the
rest (u32), then sections, each with its length (u64): numbers, waiting events, keys, strings (Arrow IPC), the
events that runs report (positions, Arrow IPC), and three per rule: its keys and open runs as plain columns,
until when its matches are suppressed, the nodes that lead to events. Nothing in it is code, and nothing is
read before the header fits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from cep.engine.event_lists import KeptEvents
from cep.engine.kernels.layout import NODE_WIDTH
from cep.engine.runs import StoredRuns
from cep.errors import StateError
from cep.program import I64

MAGIC = b"SCEP"
VERSION = 3
_HEADER = struct.Struct("<4sH16sI")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All live state of a `Matcher`, compact."""

    fingerprint: bytes
    watermark_us: int
    position: int
    counters: tuple[int, ...]
    pending: pa.Table
    keys: pa.Table
    strings: pa.Array
    runs: tuple[StoredRuns, ...]
    suppressed_until: tuple[I64, ...]  # by key; empty: the rule has no SUPPRESS FOR
    nodes: tuple[I64, ...]  # (n, NODE_WIDTH)
    kept: KeptEvents


def encode(snapshot: Snapshot) -> bytes:
    """Return `snapshot` as bytes."""
    numbers = np.array([snapshot.watermark_us, snapshot.position, *snapshot.counters], "<i8")
    sections = [
        numbers.tobytes(),
        _table_bytes(snapshot.pending),
        _table_bytes(snapshot.keys),
        _table_bytes(pa.table({"strings": snapshot.strings})),
        _bytes(snapshot.kept.positions),
        _table_bytes(snapshot.kept.columns),
    ]
    for runs, until_us, nodes in zip(snapshot.runs, snapshot.suppressed_until, snapshot.nodes, strict=True):
        sections += [_runs_bytes(runs), _bytes(until_us), _bytes(nodes)]
    body = b"".join(_LENGTH.pack(len(section)) + section for section in sections)
    return _HEADER.pack(MAGIC, VERSION, snapshot.fingerprint, zlib.crc32(body)) + body


def decode(data: bytes, widths: Sequence[tuple[int, int]], fingerprint: bytes) -> Snapshot:
    """Return the snapshot in `data`; `widths` are the fields per key and per run of each rule.

    Raises
    ------
    StateError
        Not a snapshot (E0702), of an unknown format (E0703), or of other rules (E0701).
    """
    if len(data) < _HEADER.size or data[:4] != MAGIC:
        raise StateError("E0702", "this is not a snapshot of spark-cep")
    _, version, written_by, checksum = _HEADER.unpack_from(data)
    if version != VERSION:
        raise StateError(
            "E0703",
            f"the snapshot has format {version}, this version reads {VERSION}",
            "go on with the version of spark-cep that wrote it, or start from a new checkpoint",
        )
    if written_by != fingerprint:
        raise StateError(
            "E0701",
            "the stored state was written by other rules than those that run now",
            "restore the rules as they were, or start from a new checkpoint",
        )
    body = memoryview(data)[_HEADER.size :]
    if zlib.crc32(body) != checksum:
        raise StateError("E0702", "the snapshot is damaged: its checksum does not fit")
    sections = _sections(body)
    numbers = _numbers(sections[0])
    of_rules = sections[6:]
    return Snapshot(
        fingerprint=fingerprint,
        watermark_us=int(numbers[0]),
        position=int(numbers[1]),
        counters=tuple(int(number) for number in numbers[2:]),
        pending=_table(sections[1]),
        keys=_table(sections[2]),
        strings=_table(sections[3]).column("strings").combine_chunks(),
        runs=tuple(_runs(section, *width) for section, width in zip(of_rules[::3], widths, strict=True)),
        suppressed_until=tuple(_numbers(section) for section in of_rules[1::3]),
        nodes=tuple(_numbers(section).reshape(-1, NODE_WIDTH) for section in of_rules[2::3]),
        kept=KeptEvents(_numbers(sections[4]), _table(sections[5])),
    )


def _sections(body: memoryview) -> list[memoryview]:
    sections, at = [], 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        sections.append(body[at : at + length])
        at += length
    return sections


def _table_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _table(section: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(section)).read_all()


def _bytes(numbers: I64) -> bytes:
    return np.ascontiguousarray(numbers, "<i8").tobytes()


def _numbers(section: memoryview) -> I64:
    return np.frombuffer(section, "<i8").astype(np.int64)


def _runs_bytes(runs: StoredRuns) -> bytes:
    """The number of keys, the fields of the keys column by column, those of the runs likewise."""
    parts = [np.array([len(runs.keys)]), runs.keys.T, runs.rows.T]
    return b"".join(np.ascontiguousarray(part, "<i8").tobytes() for part in parts)


def _runs(section: memoryview, key_width: int, width: int) -> StoredRuns:
    cells = _numbers(section)
    n_slots = int(cells[0])
    size = n_slots * key_width
    keys, runs = cells[1 : 1 + size], cells[1 + size :]
    return StoredRuns(keys.reshape(key_width, n_slots).T, runs.reshape(width, -1).T)
