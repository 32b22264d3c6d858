"""Avro records -> columns: one value of all messages at a time, never one message at a time.

All messages of a call have one schema, so their values come in one order, and each has its own cursor:
`int64[n]` places in one block of bytes. Reading a field takes a few numpy operations over all cursors. A
union splits the cursors by its branch. Only arrays, maps and whole records that a column wants go through
fastavro, message by message.

A cursor never leaves its message. If the bytes would make it do so, the message is refused, and later values
of the message do not count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.formats.lines import Lines
from cep.formats.payloads.avro_schema import Collection, Node, Record, Union, Value
from cep.formats.payloads.block import Block, signed
from cep.schema.masks import where_true

Path = tuple[str, ...]

_INT_MIN, _INT_END = -(1 << 31), 1 << 31

ENDS = "the message ends within field `{}`"
NO_INTEGER = "field `{}` is no integer of Avro"
NO_BOOLEAN = "field `{}` is no boolean of Avro"
NO_LENGTH = "field `{}` has a length that no value has"
NO_BRANCH = "field `{}` is none of the types of its union"
NO_SYMBOL = "field `{}` is none of the symbols of its enum"
NO_VALUE = "field `{}` cannot be read as Avro"
BEHIND = "bytes after the end of the record"

Rows = I64 | slice
"""Which messages: their indices, or all."""

_ALL = slice(None)


@dataclass(frozen=True, slots=True)
class WantedField:
    """The values that were read for one type at one place.

    `values`: a value for each message, of the type of `node`; NULL where a message has a different type, or
    none. Arrays, maps and whole records are Python values.
    """

    node: Node
    values: pa.Array | list[Any]


def read_columns(
    schema: Record, records: Lines, wanted: Mapping[Path, bool]
) -> tuple[dict[Path, list[WantedField]], dict[int, str]]:
    """Return the columns at the wanted places, and the messages that are not records of the schema.

    Parameters
    ----------
    wanted
        The places of the fields that are wanted. True: an array, a map or a record is wanted as a whole.

    Returns
    -------
    dict of list of Column
        By place; none: no message has a value there.
    dict
        By the index of a message, the reason why it is refused.
    """
    cursors = _Cursors(records, wanted)
    cursors.read(schema, (), _ALL)
    return cursors.found(), cursors.refused()


class _Cursors:
    """The cursor of each message, and what was read from it."""

    def __init__(self, records: Lines, wanted: Mapping[Path, bool]) -> None:
        self.n = len(records)
        self.wanted = wanted
        self.inner = {place[:length] for place in wanted for length in range(len(place))}
        self.block = Block(records.data)
        self.starts, self.ends = records.starts, records.ends
        self.at = self.starts.copy()
        self.is_bad = np.zeros(self.n, bool)
        self.reasons: dict[int, str] = {}
        self.texts: dict[tuple[Path, Value], tuple[I64, I64, Mask]] = {}
        self.numbers: dict[tuple[Path, Value], tuple[npt.NDArray[Any], Mask]] = {}
        self.objects: dict[tuple[Path, Node], list[Any]] = {}

    # ------------------------------------------------------------ the end

    def refused(self) -> dict[int, str]:
        """Return the reasons why messages are refused."""
        self.refuse(_ALL, self.at != self.ends, BEHIND)
        return self.reasons

    def refuse(self, rows: Rows, bad: Mask, reason: str, path: Path = ()) -> None:
        """Record which of `rows` are not records; the first reason counts."""
        if not bad.any():
            return
        chosen = np.flatnonzero(bad) if isinstance(rows, slice) else rows[bad]
        text = reason.format(".".join(path))
        for row in chosen[~self.is_bad[chosen]].tolist():
            self.reasons[row] = text
        self.is_bad[chosen] = True

    def found(self) -> dict[Path, list[WantedField]]:
        """Return all columns."""
        columns: dict[Path, list[WantedField]] = {}
        for (path, kind), (starts, lengths, valid) in self.texts.items():
            columns.setdefault(path, []).append(
                WantedField(kind, self._of_bytes(path, kind, starts, lengths, valid))
            )
        for (path, kind), (values, valid) in self.numbers.items():
            columns.setdefault(path, []).append(WantedField(kind, _of_numbers(kind, values, valid)))
        for (path, node), objects in self.objects.items():
            columns.setdefault(path, []).append(WantedField(node, objects))
        return columns

    def _of_bytes(self, path: Path, kind: Value, starts: I64, lengths: I64, valid: Mask) -> pa.Array:
        """Return values that are bytes of the block; without reading them, except for decimals."""
        values = self.block.bytes_column(starts, lengths, valid)
        if pa.types.is_decimal(kind.arrow):
            decimals = pa.array([_decimal(value, kind.arrow) for value in values.to_pylist()], kind.arrow)
            self.refuse(_ALL, valid & where_true(pc.is_null(decimals)), NO_VALUE, path)
            return decimals
        if kind.kind == "fixed" and pa.types.is_string(kind.arrow):
            ids = [None if value is None else _uuid(value) for value in values.to_pylist()]
            return pa.array(ids, pa.string())
        return values.view(pa.string()) if kind.kind == "string" else values

    # ------------------------------------------------------------ types

    def read(self, node: Node, path: Path, rows: Rows) -> None:
        """Read a value of each of `rows`."""
        match node:
            case Record() if self.wanted.get(path):
                self._read_object(node, node.schema, path, rows)
            case Record():
                for name, part in zip(node.names, node.parts, strict=True):
                    self.read(part, (*path, name), rows)
            case Collection():
                self._read_object(node, node.schema, path, rows)
            case Union():
                self._read_union(node, path, rows)
            case Value():
                self._read_value(node, path, rows)

    def _read_union(self, node: Union, path: Path, rows: Rows) -> None:
        branch = self._long(path, rows)
        is_none = (branch < 0) | (branch >= len(node.branches))
        self.refuse(rows, is_none, NO_BRANCH, path)
        for number, part in enumerate(node.branches):
            chosen = branch == number
            if chosen.all():
                self.read(part, path, rows)
            elif chosen.any():
                self.read(part, path, np.flatnonzero(chosen) if isinstance(rows, slice) else rows[chosen])

    def _read_value(self, node: Value, path: Path, rows: Rows) -> None:
        match node.kind:
            case "null":
                pass
            case "boolean":
                bits = self._fixed_number(path, rows, "u1")
                self.refuse(rows, bits > 1, NO_BOOLEAN, path)
                self._note_numbers(node, path, rows, bits.astype(bool))
            case "int":
                values = self._long(path, rows)
                self.refuse(rows, (values < _INT_MIN) | (values >= _INT_END), NO_INTEGER, path)
                self._note_numbers(node, path, rows, values.astype(np.int32))
            case "long":
                self._note_numbers(node, path, rows, self._long(path, rows))
            case "float":
                self._note_numbers(node, path, rows, self._fixed_number(path, rows, "<f4"))
            case "double":
                self._note_numbers(node, path, rows, self._fixed_number(path, rows, "<f8"))
            case "enum":
                values = self._long(path, rows)
                outside = (values < 0) | (values >= len(node.symbols))
                self.refuse(rows, outside, NO_SYMBOL, path)
                self._note_numbers(node, path, rows, np.where(outside, 0, values).astype(np.int32))
            case _:
                self._read_bytes(node, path, rows)

    def _read_bytes(self, node: Value, path: Path, rows: Rows) -> None:
        lengths: I64
        if node.kind == "fixed":
            lengths = np.full(len(self.at[rows]), node.size, np.int64)
        else:
            lengths = self._long(path, rows)
            self.refuse(rows, lengths < 0, NO_LENGTH, path)
        starts = self.at[rows].copy()  # of all rows it would be a view
        left = self.ends[rows] - starts
        self.refuse(rows, lengths > left, ENDS, path)
        lengths = np.clip(lengths, 0, left)
        self.at[rows] = starts + lengths
        if path not in self.wanted:
            return
        if (path, node) not in self.texts:
            nothing = np.zeros(self.n, np.int64)
            self.texts[path, node] = self.starts.copy(), nothing, np.zeros(self.n, bool)
        all_starts, all_lengths, valid = self.texts[path, node]
        all_starts[rows], all_lengths[rows], valid[rows] = starts, lengths, True

    def _read_object(self, node: Record | Collection, schema: str, path: Path, rows: Rows) -> None:
        """Read whole values by fastavro, a message at a time."""
        parsed = _parsed(schema)
        chosen = np.arange(self.n)[rows]
        bad = np.zeros(len(chosen), bool)
        is_wanted = bool(self.wanted.get(path))
        values: list[Any] = self.objects.setdefault((path, node), [None] * self.n) if is_wanted else []
        places = zip(chosen.tolist(), self.at[rows].tolist(), self.ends[rows].tolist(), strict=True)
        for number, (row, start, end) in enumerate(places):
            content = BytesIO(self.block.data[start:end].tobytes())
            try:
                value = fastavro.schemaless_reader(content, parsed, None)
            except (EOFError, IndexError, ValueError, ArithmeticError, MemoryError, TypeError):
                bad[number] = True
                continue
            self.at[row] = start + content.tell()
            if is_wanted:
                values[row] = value
        self.refuse(rows, bad, NO_VALUE, path)

    def _note_numbers(self, node: Value, path: Path, rows: Rows, values: npt.NDArray[Any]) -> None:
        if path not in self.wanted:
            return
        if (path, node) not in self.numbers:
            self.numbers[path, node] = np.zeros(self.n, values.dtype), np.zeros(self.n, bool)
        all_values, valid = self.numbers[path, node]
        all_values[rows], valid[rows] = values, True

    # ------------------------------------------------------------ numbers

    def _advance(self, path: Path, rows: Rows, at: I64, n_bytes: I64 | int) -> None:
        """Advance cursors from `at`, at most to the ends of their messages."""
        after = at + n_bytes
        ends = self.ends[rows]
        over = after > ends
        if over.any():
            self.refuse(rows, over, ENDS, path)
            after = np.minimum(after, ends)
        self.at[rows] = after

    def _fixed_number(self, path: Path, rows: Rows, kind: str) -> npt.NDArray[Any]:
        at = self.at[rows]
        values = self.block.numbers(at, kind)
        self._advance(path, rows, at, values.dtype.itemsize)
        return values

    def _long(self, path: Path, rows: Rows) -> I64:
        """Read integers of variable length: seven bits a byte, the lowest first; the sign is the lowest."""
        at = self.at[rows]
        values, n_bytes, too_long = self.block.varints(at)
        if too_long is not None:
            self.refuse(rows, too_long, NO_INTEGER, path)
        self._advance(path, rows, at, n_bytes)
        return signed(values)


@lru_cache(maxsize=64)
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))


def _of_numbers(kind: Value, values: npt.NDArray[Any], valid: Mask) -> pa.Array:
    mask = None if valid.all() else ~valid
    if kind.kind == "enum":
        symbols = pa.array(kind.symbols, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(values, mask=mask), symbols)
    found = pa.array(values, mask=mask)
    return found if found.type == kind.arrow else found.view(kind.arrow)


def _decimal(value: bytes | None, kind: pa.Decimal128Type) -> Decimal | None:
    """Return the value of bytes; NULL for one with more digits than its type has."""
    if value is None:
        return None
    number = int.from_bytes(value, "big", signed=True)
    return None if abs(number) >= 10**kind.precision else Decimal(f"{number}E{-kind.scale}")


def _uuid(value: bytes) -> str:
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
