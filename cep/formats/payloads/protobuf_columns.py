"""Messages of Protocol Buffers -> columns: one field of all messages at a time, never one message at a time.

Each message has a cursor: `int64[n]` places in one block of bytes. In each step the messages that are at the
lowest tag read the field after it, by a few numpy operations. Messages that one program wrote have their
fields in the same order, so a step serves most of them.

Everything else is left to protobuf's own parser, message by message: possibly invalid messages, groups,
packed fields, two members of a oneof, text that is not UTF-8, numbers that no column can hold. So that parser
would give the same result for everything that is read here, and only that parser refuses messages.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cep.arrays import I64, U64, Mask
from cep.formats.lines import Lines
from cep.formats.payloads.block import Block, signed
from cep.formats.payloads.protobuf_types import (
    SCALARS,
    UNSIGNED_64,
    Descriptor,
    FieldDescriptor,
    is_repeated,
    is_required,
)
from cep.schema.arrow_values import is_utf8

Path = tuple[str, ...]

FEWEST = 64
"""Messages below which numpy is no faster than the parser."""

_DONE = np.uint64(0xFFFFFFFFFFFFFFFF)
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_GROUP_TYPE, _MESSAGE_TYPE = 10, 11
_TAG_BYTES = 5
_MOST_LENGTH = np.uint64(1 << 40)
_MOST_DEPTH = 16
_STEPS = 64  # in addition to some for each field: of repeated fields, or in another order


@dataclass(frozen=True, slots=True)
class WantedField:
    """A scalar field of all messages.

    - `has`: bool[n]: which messages have it. For others `values` is the default of its type.
    - `values`: [n]: its numbers; None: it is bytes or a text.
    - `starts`, `lengths`: int64[n]: where its bytes are, if it is bytes or a text.
    """

    part: FieldDescriptor
    has: Mask
    values: npt.NDArray[Any] | None
    starts: I64
    lengths: I64


@dataclass(frozen=True, slots=True)
class _Inside:
    """The messages of one type during reading.

    - `path`: the place of the messages; None: nothing in them is wanted.
    - `rows`: int64[m]: the indices of these messages, or of those that contain them.
    - `tags`: uint64[m]: the tag before each cursor.
    - `at`, `ends`: int64[m]: the cursors, and where the messages end.
    - `depth`: the number of messages around them.
    """

    kind: Descriptor
    path: Path | None
    rows: I64
    tags: U64
    at: I64
    ends: I64
    depth: int


@dataclass(frozen=True, slots=True)
class _Value:
    """The values after a tag: the start and end of each, which are invalid, and integers."""

    begins: I64
    after: I64
    is_bad: Mask | None
    numbers: U64 | None = None

    def only(self, good: Mask) -> _Value:
        numbers = None if self.numbers is None else self.numbers[good]
        return _Value(self.begins[good], self.after[good], None, numbers)


class Columns:
    """The wanted fields of some messages.

    Attributes
    ----------
    scalars
        By place. No message has a field that does not exist.
    messages
        By place of a message on the way, bool[n]: which messages have it.
    left
        bool[n]: the messages that the parser must read. Their values in the columns do not count.
    """

    def __init__(self, kind: Descriptor, records: Lines, wanted: Collection[Path]) -> None:
        self.n = len(records)
        self.block = Block(records.data)
        self.starts = records.starts
        self.wanted = frozenset(wanted)
        self.scalars: dict[Path, WantedField] = {}
        self.messages: dict[Path, Mask] = {}
        self.left = np.zeros(self.n, bool)
        self._oneofs: dict[tuple[Path | None, str], I64] = {}
        self._texts: list[tuple[I64, I64, I64]] = []  # rows, starts and ends of texts
        tags = np.full(self.n, _DONE)
        self._read(_Inside(kind, (), np.arange(self.n), tags, records.starts.copy(), records.ends, 0))
        self._check_texts()

    # ------------------------------------------------------------ steps

    def _read(self, inside: _Inside) -> None:
        """Read a message of each of some rows."""
        kind = inside.kind
        is_odd = kind.is_extendable or any(is_required(part) for part in kind.fields)
        if inside.depth > _MOST_DEPTH or is_odd:
            self.left[inside.rows] = True
            return
        self._next_tags(inside, slice(None))
        for _ in range(4 * len(kind.fields) + _STEPS):
            lowest = inside.tags.min(initial=_DONE)
            if lowest == _DONE:
                return
            chosen = np.flatnonzero(inside.tags == lowest)
            if 2 * len(chosen) < FEWEST < self.n and int((inside.tags != _DONE).sum()) < FEWEST:
                break  # the parser is faster
            self._field(inside, int(lowest), chosen)
            self._next_tags(inside, chosen)
        self.left[inside.rows[inside.tags != _DONE]] = True

    def _next_tags(self, inside: _Inside, chosen: I64 | slice) -> None:
        """Read the tags of the chosen messages, and advance past them."""
        here, end = inside.at[chosen], inside.ends[chosen]
        found, n_bytes, too_long = self.block.varints(here)
        after = here + n_bytes
        is_bad = (found < 8) | (after > end)
        if too_long is not None:
            is_bad |= too_long
        if not isinstance(n_bytes, int):
            is_bad |= n_bytes > _TAG_BYTES
        is_over = here >= end
        is_bad &= ~is_over
        if is_bad.any():
            self.left[inside.rows[chosen][is_bad]] = True
        inside.tags[chosen] = np.where(is_bad | is_over, _DONE, found)
        inside.at[chosen] = after

    def _field(self, inside: _Inside, tag: int, chosen: I64) -> None:
        """Read the field after a tag, and advance past it. What cannot be read is left to the parser."""
        wire, part = tag & 7, inside.kind.fields_by_number.get(tag >> 3)
        here, end, rows = inside.at[chosen], inside.ends[chosen], inside.rows[chosen]
        found = self._value(wire, here)
        if found is None:
            self.left[rows] = True
            inside.at[chosen] = end
            return
        is_bad = found.after > end if found.is_bad is None else found.is_bad | (found.after > end)
        inside.at[chosen] = found.after
        if is_bad.any():
            self.left[rows[is_bad]] = True
            inside.at[chosen[is_bad]] = end[is_bad]
            rows, found = rows[~is_bad], found.only(~is_bad)
        if part is None or len(rows) == 0:
            return
        if part.type == _GROUP_TYPE:
            self.left[rows] = True
        elif part.type == _MESSAGE_TYPE:
            if wire == _BYTES:
                self._message(part, inside, rows, found)
        elif SCALARS[part.type].wire == wire:
            self._scalar(part, inside.path, rows, found)
        elif is_repeated(part) and wire == _BYTES:  # packed
            self.left[rows] = True

    def _value(self, wire: int, here: I64) -> _Value | None:
        """Return the values of a wire type at some places; None: it is not read here."""
        if wire == _VARINT:
            numbers, n_bytes, too_long = self.block.varints(here)
            return _Value(here, here + n_bytes, too_long, numbers)
        if wire == _EIGHT:
            return _Value(here, here + 8, None)
        if wire == _FOUR:
            return _Value(here, here + 4, None)
        if wire != _BYTES:
            return None
        lengths, n_bytes, too_long = self.block.varints(here)
        begins = here + n_bytes
        return _Value(begins, begins + np.minimum(lengths, _MOST_LENGTH).astype(np.int64), too_long)

    def _message(self, part: FieldDescriptor, inside: _Inside, rows: I64, found: _Value) -> None:
        path = None if inside.path is None or is_repeated(part) else (*inside.path, part.name)
        if path is not None:
            self._note_oneof(part, inside.path, rows)
            self.messages.setdefault(path, np.zeros(self.n, bool))[rows] = True
        # A field that nobody wants may be invalid, too.
        tags = np.full(len(rows), _DONE)
        at = found.begins.copy()
        self._read(_Inside(part.message_type, path, rows, tags, at, found.after, inside.depth + 1))

    def _scalar(self, part: FieldDescriptor, path: Path | None, rows: I64, found: _Value) -> None:
        word = SCALARS[part.type].word
        if word == "string":
            self._texts.append((rows, found.begins, found.after))
        if path is None or is_repeated(part):
            return
        self._note_oneof(part, path, rows)
        place = (*path, part.name)
        if place not in self.wanted:
            return
        if word in ("string", "bytes"):
            column = self._column(place, part, None)
            column.starts[rows], column.lengths[rows] = found.begins, found.after - found.begins
        else:
            values = self._numbers(word, found)
            if word in UNSIGNED_64:
                self.left[rows[values < 0]] = True
            if part.enum_type is not None and part.enum_type.is_closed:
                known = np.fromiter(part.enum_type.values_by_number, np.int64)
                self.left[rows[~np.isin(values, known)]] = True
            column = self._column(place, part, values)
            assert column.values is not None
            column.values[rows] = values
        column.has[rows] = True

    def _numbers(self, word: str, found: _Value) -> npt.NDArray[Any]:
        numbers = found.numbers
        if numbers is None:
            kinds = {"double": "<f8", "float": "<f4", "fixed32": "<u4", "sfixed32": "<i4"}
            return self.block.numbers(found.begins, kinds.get(word, "<i8"))
        match word:
            case "bool":
                return np.not_equal(numbers, 0)
            case "int32" | "enum":
                return numbers.astype(np.uint32).view(np.int32)
            case "uint32":
                return numbers.astype(np.uint32)
            case "sint32":
                return signed(numbers & np.uint64(0xFFFFFFFF)).astype(np.int32)
            case "sint64":
                return signed(numbers)
            case _:
                return numbers.view(np.int64)

    def _column(self, place: Path, part: FieldDescriptor, values: npt.NDArray[Any] | None) -> WantedField:
        if place not in self.scalars:
            of_numbers = None if values is None else np.zeros(self.n, values.dtype)
            is_text = values is None
            starts = self.starts.copy() if is_text else self.starts
            lengths = np.zeros(self.n if is_text else 0, np.int64)
            self.scalars[place] = WantedField(part, np.zeros(self.n, bool), of_numbers, starts, lengths)
        return self.scalars[place]

    def _note_oneof(self, part: FieldDescriptor, path: Path | None, rows: I64) -> None:
        """Pass messages with a second member of a oneof to the parser: this member replaces the first."""
        oneof = part.containing_oneof
        if oneof is None or len(oneof.fields) == 1:
            return
        seen = self._oneofs.setdefault((path, oneof.name), np.zeros(self.n, np.int64))
        other = (seen[rows] != 0) & (seen[rows] != part.number)
        self.left[rows[other]] = True
        seen[rows] = part.number

    # ------------------------------------------------------------ texts

    def _check_texts(self) -> None:
        """Pass messages with strings that are not UTF-8 to the parser."""
        if not self._texts:
            return
        n_high = np.zeros(len(self.block.data) + 1, np.int32)
        np.cumsum(self.block.data >= 0x80, out=n_high[1:], dtype=np.int32)
        for rows, starts, ends in self._texts:
            other = n_high[ends] != n_high[starts]
            if not other.any():
                continue
            starts, ends = starts[other], ends[other]
            texts = self.block.bytes_column(starts, ends - starts, np.ones(len(starts), bool))
            try:
                texts.cast(pa.string())
            except pa.ArrowInvalid:
                is_text = [is_utf8(value) for value in texts.to_pylist()]
                self.left[rows[other][~np.array(is_text)]] = True
