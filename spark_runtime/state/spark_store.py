"""Reads what Spark's state store contains from the files of a checkpoint, without Spark.

    query/state/0/<partition>/<version>.changelog   what a micro-batch changed
    query/state/0/<partition>/<version>.zip         the files of RocksDB, but for those in SSTs/
    query/state/0/<partition>/SSTs/<name>           immutable files of RocksDB

Version n is the state before micro-batch n. With format 2 of Spark's checkpoints, names contain an id of the
attempt, as in `<version>_<id>.zip`. The log of micro-batches contains the id of the last version; the
changelog of that version contains the ids of those before. Spark's store in Java's heap writes `.delta` and
`.snapshot` files with the same records.

A partition has one key group, and each call writes its whole value. So the value is in the last changelog
that has a record. The files of RocksDB are needed only for key groups that were not called for a long time.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from cep.errors import StateError
from spark_runtime.state import sorted_table
from spark_runtime.state.pointer import is_pointer
from spark_runtime.state.snapshots import is_state
from spark_runtime.storage.checkpoint_files import CheckpointFiles
from spark_runtime.storage.sealed import parsing

_STORES = "query/state/0"
_INT = struct.Struct(">i")
_BLOCK = struct.Struct("<8sBiii")  # magic, method, compressed length, length, checksum
_LZ4, _ZSTD = b"LZ4Block", b"\x28\xb5\x2f\xfd"
_AS_IT_IS = 0x10
_VERSION_1, _VERSION_3 = 1, 3  # of changelogs; 2 and 4 are for several columns of values

_WAY_OUT = (
    "restore the checkpoint as a whole; it is read as Spark 3.5 to 4.3 write it with the settings of "
    "`cep run`"
)

_DAMAGE = (
    *(
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
        MemoryError,
        OSError,
    ),
    *(struct.error, zipfile.BadZipFile, zlib.error),
)
"""What reading bytes that Spark did not write may raise."""

Entries = dict[bytes, bytes | None]
"""Values by key; None: the key was deleted."""


@dataclass(frozen=True, slots=True)
class SparkStore:
    """Spark's state store after a micro-batch.

    `version`: the number of the next micro-batch. `ids`: by partition, the id in the names of files of this
    version; empty with format 1.
    """

    files: CheckpointFiles
    version: int
    ids: Mapping[int, str]

    @classmethod
    def after(cls, files: CheckpointFiles, batch: int) -> SparkStore:
        """Return the store after a micro-batch that Spark has finished.

        Raises StateError (E0702): its record is damaged.
        """
        name = f"query/commits/{batch}"
        lines = (files.read(name) or "").splitlines()
        with parsing(StateError("E0702", f"`{name}` in the checkpoint is damaged", _WAY_OUT)):
            found = (json.loads(lines[1]).get("stateUniqueIds") if len(lines) > 1 else None) or {}
            ids = {number: of_stores[0] for number, of_stores in enumerate(found.get("0", ()))}
        return cls(files, batch + 1, ids)

    def values(self) -> Iterator[tuple[int, bytes]]:
        """Yield the label and the value of each key group that has state.

        Raises StateError (E0702): a file is missing or damaged, or its format is unknown.
        """
        for partition in sorted(int(name) for name in self.files.names(_STORES) if name.isdigit()):
            try:
                entries = self._entries(partition)
                found = [(_label(key), _state(value)) for key, value in entries.items() if value is not None]
            except _DAMAGE as error:
                raise StateError(
                    "E0702",
                    f"Spark's state in `{_STORES}/{partition}` is damaged, or has a form that is not read "
                    f"here: {error}",
                    _WAY_OUT,
                ) from error
            yield from found

    def _entries(self, partition: int) -> Entries:
        """Return the last entries of a partition."""
        folder = f"{_STORES}/{partition}"
        ids = {self.version: self.ids[partition]} if self.ids else {}
        for version in range(self.version, 0, -1):
            name = f"{folder}/{version}_{ids[version]}" if version in ids else f"{folder}/{version}"
            changes = self._first(f"{name}.changelog", f"{name}.delta")
            if changes is not None:
                earlier, found = _recorded(changes)
                if found:
                    return found
                ids = {**earlier, **ids}
            if (data := self._first(f"{name}.snapshot")) is not None:
                return _recorded(data)[1]
            if (data := self._first(f"{name}.zip")) is not None:
                return self._in_rocksdb(folder, data)
            if changes is None:
                raise ValueError(f"version {version} is missing")
        return {}

    def _first(self, *names: str) -> bytes | None:
        """Return the contents of the first of some files that exists."""
        return next((data for name in names if (data := self.files.read_bytes(name)) is not None), None)

    def _in_rocksdb(self, folder: str, archive: bytes) -> Entries:
        with zipfile.ZipFile(io.BytesIO(archive)) as found:
            told = json.loads(found.read("metadata").partition(b"\n")[2])
            log = [
                name for name in found.namelist() if name.endswith(".log") and found.getinfo(name).file_size
            ]
        if log or told.get("logFiles"):
            raise ValueError("RocksDB has a log of its own")
        tables = []
        for file in told["sstFiles"]:
            data = self.files.read_bytes(f"{folder}/SSTs/{file['dfsSstFileName']}")
            if data is None or len(data) != file["sizeBytes"]:
                raise ValueError(f"{file['dfsSstFileName']} is missing or cut off")
            tables.append(data)
        return sorted_table.last_entries(tables)


def _recorded(data: bytes) -> tuple[dict[int, str], Entries]:
    """Return the ids of earlier versions that a changelog names, and its entries."""
    plain = _decompressed(data)
    at, version, ids = 0, _VERSION_1, {}
    if plain[2:3] == b"v":
        text, at = _text(plain, 0)
        version = int(text[1:])
    if version not in (_VERSION_1, _VERSION_3):
        raise ValueError(f"version {version} of changelogs")
    if version == _VERSION_3:
        text, at = _text(plain, at)
        ids = {item["version"]: item["checkpointUniqueId"] for item in json.loads(text)}
    entries: Entries = {}
    while (length := _INT.unpack_from(plain, at)[0]) >= 0:
        start = at + _INT.size
        key, at = plain[start : start + length], start + length
        n_value = _INT.unpack_from(plain, at)[0]
        at += _INT.size
        entries[key] = None if n_value < 0 else plain[at : at + n_value]
        at += max(n_value, 0)
    return ids, entries


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return a text with its length before it, and the place after it."""
    end = at + 2 + int.from_bytes(data[at : at + 2])
    return data[at + 2 : end].decode(), end


def _decompressed(data: bytes) -> bytes:
    if data.startswith(_ZSTD):
        found: bytes = pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
        return found
    parts, at = [], 0
    while at < len(data):
        magic, method, n_compressed, length, _ = _BLOCK.unpack_from(data, at)
        if magic != _LZ4:
            raise ValueError("a file is compressed neither by lz4 nor by zstd")
        at += _BLOCK.size
        block = data[at : at + n_compressed]
        at += n_compressed
        is_plain = method & 0xF0 == _AS_IT_IS or not length
        parts.append(block if is_plain else pa.decompress(block, length, "lz4_raw", asbytes=True))
    return b"".join(parts)


# ---------------------------------------------------------------- Spark's rows

# A row has a word of bits for NULL, then a word for each column: the value, or the place and length of it. In
# RocksDB a byte is before it.
_WORD = 8


def _row(data: bytes) -> bytes:
    return data[len(data) % _WORD :]


def _label(key: bytes) -> int:
    """Return the label of a key group, the only column of a key."""
    label: int = struct.unpack_from("<i", _row(key), _WORD)[0]
    return label


def _state(value: bytes) -> bytes:
    """Return the state in a value: a row with the state of the group, which is a row with our bytes."""
    state = _first_column(_first_column(_row(value)))
    if not (is_pointer(state) or is_state(state)):
        raise ValueError("a value is not of spark-cep")
    return state


def _first_column(row: bytes) -> bytes:
    length, start = struct.unpack_from("<ii", row, _WORD)
    if row[0] & 1 or start + length > len(row):
        raise ValueError("a row is not of spark-cep")
    return row[start : start + length]
