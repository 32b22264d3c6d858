"""Protocol Buffers as a format of messages: by a set of descriptors, or by those of a registry.

Fields that are scalars, `Timestamp`s or wrappers are read as columns (`protobuf_columns`). The parser of
protobuf itself reads the messages that are not plain, and all messages if a column is a list, a map or a
whole message: each of these takes Python code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from cep.arrays import I64
from cep.errors import InputError
from cep.expression import Type
from cep.formats.lines import Lines, lines_of_objects
from cep.formats.payloads.columns import Base64Records, FieldValues, events_of, misfit, missing
from cep.formats.payloads.protobuf_columns import FEWEST, Columns
from cep.formats.payloads.protobuf_types import (
    TIMESTAMP,
    UNSIGNED_64,
    Descriptor,
    FieldDescriptor,
    ProtoField,
    field_at,
    file_of_registry,
    index_path,
    is_map,
    is_repeated,
    message_at,
    message_class,
    message_of,
    pool_of,
    wrapped,
)
from cep.formats.payloads.registry import PayloadType, read_file
from cep.formats.payloads.schemas import (
    CONFLUENT,
    FRAMINGS,
    NONE,
    SchemaSource,
    frameless,
    unframed,
    unknown_schema,
)
from cep.formats.protocol import Decoded, RecordFormat, Unquoted
from cep.formats.registry import in_words
from cep.formats.text.messages import EMPTY
from cep.schema.arrow_columns import fits, python_element
from cep.schema.opaque_values import opaque_text
from cep.schema.stream import Field, Stream

NO_INDEX = "no index of a message behind the number of its schema"
_MOST_INDICES = 16
_FIRST_SECOND, _END_SECOND = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
_FORM = "serialized"


class _ProtobufType:
    """See `PayloadType`."""

    settings = ("descriptor", "message", "framing")
    files = ("descriptor",)

    def open(self, settings: Mapping[str, str], registry: SchemaSource | None) -> RecordFormat:
        """Return the format; raises InputError."""
        file, name = settings.get("descriptor", ""), settings.get("message", "")
        framing = settings.get("framing", CONFLUENT if registry is not None else NONE)
        if framing not in FRAMINGS:
            raise InputError("E0841", f"`framing` cannot be `{framing}`", f"write {in_words(FRAMINGS)}")
        if not file and registry is None:
            raise InputError(
                "E0890",
                "nothing says the type of Protobuf messages",
                "give `descriptor: file.desc` and `message: package.Name`, or `registry: http://...`",
            )
        if registry is not None and (file or framing == NONE):
            raise InputError(
                "E0890",
                "`registry` together with " + ("`descriptor`" if file else "`framing: none`"),
                "remove one; with a descriptor `framing: confluent` passes over the number of the schema",
            )
        what = f"the descriptor `{file}`"
        content = read_file(file, "the descriptor") if file else b""
        if file:
            message_of(content, name, what)
        return ProtobufFormat(content, name, what, framing == CONFLUENT, registry)


PROTOBUF: PayloadType = _ProtobufType()


@dataclass(frozen=True, slots=True)
class ProtobufFormat(Unquoted):
    """Protocol Buffers messages; see `RecordFormat`.

    - `descriptor`: a FileDescriptorSet; empty with a registry.
    - `message`: the type of the messages, with its package. Empty: the only one of the set, or that of each
      frame.
    - `what`: the descriptor, for errors.
    - `is_framed`: whether the number of a schema and the index of a type precede each message.
    - `registry`: returns schemas by their numbers.
    """

    descriptor: bytes = field(repr=False)
    message: str
    what: str
    is_framed: bool
    registry: SchemaSource | None

    name = "protobuf"
    suffixes: tuple[str, ...] = ()

    def reader(self, origin: str, stream: Stream) -> ProtobufReader:
        """Return what reads the messages of `origin`."""
        return ProtobufReader(self, stream)

    def check(self, stream: Stream) -> None:
        """Raise InputError if no message can be of the stream, or the registry does not answer."""
        if self.registry is not None:
            self.registry.check()
            return
        fields_of(message_of(self.descriptor, self.message, self.what), stream, self.what)


def fields_of(kind: Descriptor, stream: Stream, what: str) -> dict[Field, ProtoField]:
    """Return the places of the columns of a stream; raises InputError (E0891) if some are impossible."""
    found = {column: field_at(kind, column.place, column.element) for column in stream.fields}
    lacking = [column for column, place in found.items() if place is None]
    if lacking:
        raise missing(stream, lacking, what, [part.name for part in kind.fields])
    known = {column: place for column, place in found.items() if place is not None}
    for column, place in known.items():
        if not _fits(place, column):
            raise misfit(stream, column, place.word, what)
    return known


def _fits(place: ProtoField, column: Field) -> bool:
    if place.word == "enum" and column.type is Type.BIGINT:
        return fits(pa.int32(), column)
    return place.arrow is not None and fits(place.arrow, column)


@dataclass(frozen=True, slots=True)
class ProtobufReader:
    """Reads the messages of one stream; it remembers nothing from one call to the next."""

    protobuf: ProtobufFormat
    stream: Stream

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """Return 0: a message has no header."""
        return 0

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """See `RecordReader.decode`. Raises InputError if the registry does not answer."""
        form = self.protobuf
        refused: dict[int, str] = {}
        found: dict[str, Sequence[FieldValues]] = {}
        if not form.is_framed:
            kind = message_of(form.descriptor, form.message, form.what)
            fields = fields_of(kind, self.stream, form.what)
            block = records if isinstance(records, Lines) else lines_of_objects(records)
            found = _columns(kind, fields, block, refused, range(len(records)))
            is_empty = block.ends == block.starts
            # A message whose fields all have their defaults has no bytes; it is hardly intended as an event.
            refused |= dict.fromkeys(np.flatnonzero(is_empty).tolist(), EMPTY)
            return events_of(self.stream, found, refused, records)
        parts = []
        for kind, fields, rows, bodies in self._groups(records, refused):
            parts.append((rows, _columns(kind, fields, bodies, refused, rows)))
        found = _together(parts, self.stream, len(records))
        decoded = events_of(self.stream, found, refused, records)
        return Decoded(
            decoded.events, decoded.indices, decoded.problems, Base64Records(records), len(records)
        )

    def _groups(
        self, records: Sequence[bytes], refused: dict[int, str]
    ) -> Iterator[tuple[Descriptor, dict[Field, ProtoField], list[int], Lines]]:
        """Yield for each type of messages: the type, its fields, the indices, the messages."""
        block = records if isinstance(records, Lines) else lines_of_objects(records)
        bodies, numbers, bad = unframed(block)
        for row in np.flatnonzero(bad).tolist():
            refused[row] = frameless(block[row])
        starts = bodies.starts.copy()
        # Most often the first message of its file: one byte.
        is_first = ~bad & (starts < bodies.ends)
        is_first &= bodies.data[np.where(is_first, starts, 0)] == 0
        starts[is_first] += 1
        if self.protobuf.registry is None:
            numbers = np.zeros_like(numbers)
        groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        for number in np.unique(numbers[is_first]).tolist():
            groups[number, (0,)] = np.flatnonzero(is_first & (numbers == number)).tolist()
        for row in np.flatnonzero(~bad & ~is_first).tolist():
            path, length = _index_path(bodies[row])
            if not path:
                refused[row] = NO_INDEX
                continue
            starts[row] += length
            groups.setdefault((int(numbers[row]), path), []).append(row)
        for (number, path), rows in groups.items():
            known = self._type_of(number, path)
            if isinstance(known, str):
                refused.update(dict.fromkeys(rows, known))
            else:
                rows.sort()
                yield *known, rows, Lines(bodies.data, starts[rows], bodies.ends[rows])

    def _type_of(
        self, number: int, path: tuple[int, ...]
    ) -> tuple[Descriptor, dict[Field, ProtoField]] | str:
        """Return a type of messages and its fields, or the reason why such messages are not events."""
        form = self.protobuf
        if form.registry is None:
            kind = message_of(form.descriptor, form.message, form.what)
            if index_path(kind) != path:
                given = message_at(kind.file, path)
                name = f"message {'.'.join(map(str, path))}" if given is None else given.full_name
                return f"a {name} where {kind.full_name} is declared"
            return kind, fields_of(kind, self.stream, form.what)
        text = form.registry.schema(number, _FORM)
        if text is None:
            return unknown_schema(number)
        try:
            file = file_of_registry(text)
            kind = message_at(pool_of([file]).FindFileByName(file.name), path)
        except (ValueError, TypeError) as error:
            return f"schema {number} cannot be used: {error}"
        if kind is None or (form.message and kind.full_name != form.message):
            name = f"message {'.'.join(map(str, path))}" if kind is None else kind.full_name
            return f"a {name} where {form.message or 'another message'} is declared"
        try:
            return kind, fields_of(kind, self.stream, f"schema {number}")
        except InputError as error:
            return str(error.args[0])


def _index_path(body: bytes) -> tuple[tuple[int, ...], int]:
    """Return the index path of a message type in its file, and its number of bytes; empty if invalid."""
    at, numbers = 0, list[int]()
    while not numbers or len(numbers) <= numbers[0]:
        value, shift = 0, 0
        while True:
            if at >= len(body) or shift > 28:
                return (), 0
            value |= (body[at] & 0x7F) << shift
            shift += 7
            at += 1
            if body[at - 1] < 0x80:
                break
        numbers.append(value >> 1 if value % 2 == 0 else -1)
        if min(numbers) < 0 or numbers[0] > _MOST_INDICES:
            return (), 0
    return tuple(numbers[1:]) or (0,), at


# ---------------------------------------------------------------- columns


def _columns(
    kind: Descriptor,
    fields: Mapping[Field, ProtoField],
    records: Lines,
    refused: dict[int, str],
    rows: Sequence[int],
) -> dict[str, Sequence[FieldValues]]:
    """Return the columns of messages of one type; adds invalid ones to `refused`, by `rows`."""
    if len(records) < FEWEST or not all(place.is_plain for place in fields.values()):
        return _parsed(kind, fields, records.objects(), refused, rows)
    parts = {column: _leaves(kind, place) for column, place in fields.items()}
    columns = Columns(kind, records, [path for leaves in parts.values() for path, _ in leaves])
    found: dict[str, Sequence[FieldValues]] = {
        column.name: [of_columns(columns, parts[column], fields[column], column)] for column in fields
    }
    left = np.flatnonzero(columns.left).tolist()
    if not left:
        return found
    others = _parsed(kind, fields, [records[row] for row in left], refused, [rows[row] for row in left])
    at = np.full(len(records), -1, np.int64)
    at[left] = np.arange(len(left))
    taken = pa.array(at, mask=at < 0)
    for name, (item,) in others.items():
        bad = {left[row]: shown for row, shown in item.bad.items()}
        found[name] = [*found[name], replace(item, values=item.values.take(taken), bad=bad)]
    return found


def _leaves(kind: Descriptor, place: ProtoField) -> list[tuple[tuple[str, ...], FieldDescriptor]]:
    """Return the scalars of a column: one, or those of a `Timestamp`."""
    for name in place.place[:-1]:
        kind = kind.fields_by_name[name].message_type
    part = kind.fields_by_name[place.place[-1]]
    if part.message_type is None:
        return [(place.place, part)]
    return [((*place.place, inner.name), inner) for inner in part.message_type.fields]


def of_columns(
    columns: Columns,
    leaves: Sequence[tuple[tuple[str, ...], FieldDescriptor]],
    place: ProtoField,
    column: Field,
) -> FieldValues:
    """Return what was found for a column of the stream; NULL for messages that the parser reads."""
    path, part = leaves[0]
    there = ~columns.left
    for length in range(1, len(path)):
        there &= columns.messages.get(path[:length], False)
    scalar = columns.scalars.get(path)
    if part.has_presence:
        there &= False if scalar is None else scalar.has
    mask = None if there.all() else ~there
    bad: dict[int, str] = {}
    if len(leaves) > 1:
        known = np.flatnonzero(there)
        seconds, nanos = (_numbers(columns, path)[known] for path, _ in leaves)
        return FieldValues(_times(known, seconds, nanos, columns.n, bad), bad=bad)
    if (pa.types.is_string(place.arrow) and part.enum_type is None) or pa.types.is_binary(place.arrow):
        if scalar is None:
            starts, lengths = columns.starts, np.zeros(columns.n, np.int64)
        else:
            starts, lengths = scalar.starts, scalar.lengths
        values = columns.block.bytes_column(starts, lengths, there)
        return FieldValues(values.view(pa.string()) if pa.types.is_string(place.arrow) else values)
    numbers_of = _numbers(columns, path)
    if part.enum_type is None or column.type is Type.BIGINT:
        kind = pa.int32() if part.enum_type is not None else place.arrow
        return FieldValues(pa.array(numbers_of, kind, mask=mask))
    numbers_found, which = np.unique(numbers_of, return_inverse=True)
    names = [_symbol(part, number) for number in numbers_found.tolist()]
    return FieldValues(pa.array(names, pa.string()).take(pa.array(which, mask=mask)))


def _numbers(columns: Columns, path: tuple[str, ...]) -> Any:
    """Return the numbers at a place, or the default if there is none."""
    scalar = columns.scalars.get(path)
    return np.zeros(columns.n, np.int32) if scalar is None else scalar.values


def _symbol(part: FieldDescriptor, number: int) -> str:
    """Return the name of a number; a number without a name comes from a newer version."""
    known = part.enum_type.values_by_number.get(number)
    return str(number) if known is None else str(known.name)


def _parsed(
    kind: Descriptor,
    fields: Mapping[Field, ProtoField],
    values: Sequence[bytes],
    refused: dict[int, str],
    rows: Sequence[int],
) -> dict[str, Sequence[FieldValues]]:
    """Return what `_columns` returns, by protobuf's own parser."""
    parse: Callable[[bytes], Any] = message_class(kind).FromString
    try:
        messages = list(map(parse, values))
    except (DecodeError, RecursionError):
        messages = []
        for row, value in zip(rows, values, strict=True):
            try:
                messages.append(parse(value))
            except (DecodeError, RecursionError):
                messages.append(message_class(kind)())
                refused[row] = f"not a message of {kind.full_name}"
    return {column.name: [_found(messages, place, column)] for column, place in fields.items()}


def _found(messages: Sequence[Any], place: ProtoField, column: Field) -> FieldValues:
    inside: Sequence[Any] = messages
    for name in place.place[:-1]:
        inside = [m.__getattribute__(name) if m is not None and m.HasField(name) else None for m in inside]
    name = place.place[-1]
    kind = next((message.DESCRIPTOR for message in inside if message is not None), None)
    if kind is None:
        return FieldValues(pa.nulls(len(inside), place.arrow))
    part: FieldDescriptor = kind.fields_by_name[name]
    if column.element:
        return _element(inside, part, place, column)
    if not place.is_plain:
        return _whole(inside, part, column)
    bad: dict[int, str] = {}
    values = _values(inside, part)
    inner = wrapped(part)
    if inner is not None:
        values = [None if value is None else value.value for value in values]
        part = inner
    return FieldValues(_array(values, part, place, column, bad), bad=bad)


def _values(messages: Sequence[Any], part: FieldDescriptor) -> list[Any]:
    """Return the values of a field in messages; None if they have none."""
    name = part.name
    if part.has_presence:
        return [getattr(m, name) if m is not None and m.HasField(name) else None for m in messages]
    if any(m is None for m in messages):
        return [None if m is None else getattr(m, name) for m in messages]
    return list(map(attrgetter(name), messages))


def _array(
    values: list[Any], part: FieldDescriptor, place: ProtoField, column: Field, bad: dict[int, str]
) -> pa.Array:
    if part.enum_type is not None:
        if column.type is Type.BIGINT:
            return pa.array(values, pa.int32())
        return pa.array([None if v is None else _symbol(part, v) for v in values], pa.string())
    if part.message_type is not None and part.message_type.full_name == TIMESTAMP:
        there = [(row, value) for row, value in enumerate(values) if value is not None]
        rows = np.fromiter((row for row, _ in there), np.int64, len(there))
        seconds = np.fromiter((value.seconds for _, value in there), np.int64, len(there))
        nanos = np.fromiter((value.nanos for _, value in there), np.int64, len(there))
        return _times(rows, seconds, nanos, len(values), bad)
    if place.word in UNSIGNED_64:
        for row, value in enumerate(values):
            if value is not None and value >= 1 << 63:
                values[row], bad[row] = None, str(value)
    try:
        return pa.array(values, place.arrow)
    except pa.ArrowInvalid:  # in the second version of the language a string may be any bytes
        for row, value in enumerate(values):
            if isinstance(value, bytes):
                values[row], bad[row] = None, "bytes that are not UTF-8 text"
        return pa.array(values, place.arrow)


def _times(rows: I64, seconds: I64, nanos: I64, n: int, bad: dict[int, str]) -> pa.Array:
    """Return the times of `rows` among `n` messages; adds invalid ones to `bad`."""
    outside = (seconds < _FIRST_SECOND) | (seconds >= _END_SECOND) | (nanos < 0) | (nanos >= 1_000_000_000)
    for at in np.flatnonzero(outside).tolist():
        bad[int(rows[at])] = f"{seconds[at]} seconds and {nanos[at]} nanoseconds since 1970"
    times: I64 = np.zeros(n, np.int64)
    is_null = np.ones(n, bool)
    times[rows] = np.where(outside, 0, seconds).astype(np.int64) * 1_000_000 + nanos // 1000
    is_null[rows] = outside
    return pa.array(times, mask=is_null).view(pa.timestamp("us", "UTC"))


def _element(messages: Sequence[Any], part: FieldDescriptor, place: ProtoField, column: Field) -> FieldValues:
    """Return a value inside each list."""
    bad: dict[int, str] = {}
    values: list[Any] = [None] * len(messages)
    for row, message in enumerate(messages):
        try:
            whole = None if message is None else _plain_field(message, part)
            values[row] = python_element(whole, column.element)
            if column.type is Type.OPAQUE and values[row] is not None:
                values[row] = opaque_text(values[row], column.column_type)
            else:
                pa.scalar(values[row], place.arrow)
        except (ValueError, OverflowError, pa.ArrowException) as error:
            values[row], bad[row] = None, str(error)
    is_text = column.type is Type.OPAQUE
    return FieldValues(pa.array(values, pa.string() if is_text else place.arrow), is_typed=is_text, bad=bad)


def _whole(messages: Sequence[Any], part: FieldDescriptor, column: Field) -> FieldValues:
    """Return repeated fields, maps and messages as JSON text."""
    texts: list[str | None] = [None] * len(messages)
    bad: dict[int, str] = {}
    for row, message in enumerate(messages):
        if message is None or (part.has_presence and not message.HasField(part.name)):
            continue
        try:
            texts[row] = opaque_text(_plain_field(message, part), column.column_type)
        except (ValueError, OverflowError):
            bad[row] = " ".join(str(getattr(message, part.name)).split())
    return FieldValues(pa.array(texts, pa.string()), is_typed=True, bad=bad)


def _plain_field(message: Any, part: FieldDescriptor) -> Any:
    """Return a field as Python values; raises ValueError for what Python cannot represent."""
    value = getattr(message, part.name)
    if is_map(part):
        inner = part.message_type.fields_by_name["value"]
        return {key: _plain(item, inner) for key, item in value.items()}
    return [_plain(item, part) for item in value] if is_repeated(part) else _plain(value, part)


def _plain(value: Any, part: FieldDescriptor) -> Any:
    kind = part.message_type
    if part.enum_type is not None:
        known = part.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if kind is None:
        return value
    if kind.full_name == TIMESTAMP:
        return value.ToDatetime(UTC)
    if wrapped(part) is not None:
        return value.value
    return {
        inner.name: None
        if inner.has_presence and not value.HasField(inner.name)
        else _plain_field(value, inner)
        for inner in kind.fields
    }


def _together(
    parts: Sequence[tuple[Sequence[int], Mapping[str, Sequence[FieldValues]]]], stream: Stream, n: int
) -> dict[str, Sequence[FieldValues]]:
    """Return the columns of all messages from those of each type."""
    found: dict[str, Sequence[FieldValues]] = {}
    for column in stream.fields:
        placed = []
        for rows, columns in parts:
            for item in columns.get(column.name, ()):
                at = np.full(n, -1, np.int64)
                at[list(rows)] = np.arange(len(rows))
                bad = {rows[row]: shown for row, shown in item.bad.items()}
                values = item.values.take(pa.array(at, mask=at < 0))
                placed.append(FieldValues(values, item.fits, item.is_typed, bad))
        found[column.name] = placed
    return found
