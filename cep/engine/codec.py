"""Snapshot <-> bytes.

Layout, little endian: magic ``SCEP``, format version (u16), program fingerprint (16 bytes), CRC-32 of the
rest (u32), then sections, each with its length (u64): numbers, waiting events, keys, strings (Arrow IPC), the
events that runs report (positions, Arrow IPC), and four per rule: its keys, its open runs, until when its
matches are suppressed, the nodes that lead to events, each as packed columns (`cep.engine.packing`). Nothing
in it is code, and nothing is read before the header fits.

Runs are written and read once per call of a key group, so none of their bytes is copied more often than it
must: sections are parts that are joined at the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from cep.engine.event_lists import KeptEvents
from cep.engine.packing import Packed, packed, packed_in
from cep.engine.runs import StoredRuns
from cep.errors import StateError

MAGIC = b"SCEP"
VERSION = 4
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
    suppressed_until: tuple[Packed, ...]  # by key; empty: the rule has no SUPPRESS FOR
    nodes: tuple[Packed, ...]  # (n, NODE_WIDTH)
    kept: KeptEvents


Part: TypeAlias = bytes | memoryview | pa.Buffer


def encode(snapshot: Snapshot) -> bytes:
    """Return `snapshot` as bytes."""
    numbers = np.array([snapshot.watermark_us, snapshot.position, *snapshot.counters], "<i8")
    sections: list[Sequence[Part]] = [
        [numbers.tobytes()],
        [_table_bytes(snapshot.pending)],
        [_table_bytes(snapshot.keys)],
        [_table_bytes(pa.table({"strings": snapshot.strings}))],
        packed(snapshot.kept.positions.reshape(-1, 1)).parts(),
        [_table_bytes(snapshot.kept.columns)],
    ]
    for runs, until_us, nodes in zip(snapshot.runs, snapshot.suppressed_until, snapshot.nodes, strict=True):
        sections += [part.parts() for part in (runs.keys, runs.rows, until_us, nodes)]
    body: list[Part] = []
    checksum = 0
    for section in sections:
        length = sum(memoryview(part).nbytes for part in section)
        for part in (_LENGTH.pack(length), *section):
            checksum = zlib.crc32(part, checksum)
            body.append(part)
    return b"".join([_HEADER.pack(MAGIC, VERSION, snapshot.fingerprint, checksum), *body])


def decode(data: bytes | memoryview, fingerprint: bytes) -> Snapshot:
    """Return the snapshot in `data`.

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
    numbers = np.frombuffer(sections[0], "<i8").astype(np.int64)
    per_rule = [packed_in(section) for section in sections[6:]]
    return Snapshot(
        fingerprint=fingerprint,
        watermark_us=int(numbers[0]),
        position=int(numbers[1]),
        counters=tuple(int(number) for number in numbers[2:]),
        pending=_table(sections[1]),
        keys=_table(sections[2]),
        strings=_table(sections[3]).column("strings").combine_chunks(),
        runs=tuple(map(StoredRuns, per_rule[::4], per_rule[1::4])),
        suppressed_until=tuple(per_rule[2::4]),
        nodes=tuple(per_rule[3::4]),
        kept=KeptEvents(packed_in(sections[4]).matrix()[:, 0], _table(sections[5])),
    )


def _sections(body: memoryview) -> list[memoryview]:
    sections, at = [], 0
    while at < len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        at += _LENGTH.size
        sections.append(body[at : at + length])
        at += length
    return sections


def _table_bytes(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _table(section: memoryview) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(section)).read_all()
