"""Debezium's envelopes as a format of messages: a change of a row as JSON.

An envelope contains the rows after and before the change, the operation, and its origin::

    {"before": null, "after": {"id": 1}, "op": "c", "ts_ms": 1714557600123, "source": {"ts_ms": ..., ...}}

Kafka Connect may wrap it: ``{"schema": {...}, "payload": {...}}``. The schema then gives the meaning of
numbers. The reader of JSON lines (`cep.formats.text.json_lines`) reads all of this: a column of the stream is
a place in the envelope.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.expression import Type
from cep.formats import dead_letter
from cep.formats.payloads.registry import PayloadType
from cep.formats.payloads.schemas import SchemaSource
from cep.formats.protocol import Decoded, Indices, Problem, RecordFormat, Unquoted
from cep.formats.text import json_lines
from cep.formats.text.absent_fields import absent_fields
from cep.schema.decimals import rounded
from cep.schema.masks import where_true
from cep.schema.opaque_values import opaque_text
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema
from cep.schema.time_values import times_of_numbers

BEFORE = "before."
WORDS = ("op", "commit_time", "lsn", "table", "transaction")
"""What may be a column in addition to those of the row, as may `BEFORE` and the name of a column."""

NO_ENVELOPE = "not an envelope of Debezium: it has no `op`"
EMPTIED = "TRUNCATE has removed all rows, and the log does not name them"
NO_ROW = "a message of Debezium that is no change of a row"
UNCHANGED = "column `{}` is large and unchanged, so not in the log: say ALTER TABLE ... REPLICA IDENTITY FULL"

_UNCHANGED = "__debezium_unavailable_value"
_UNCHANGED_BYTES = _UNCHANGED.encode()
_UNCHANGED_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"  # version 3, of these bytes
_UNCHANGED_CODES = [str(code) for code in _UNCHANGED_BYTES]
_UNCHANGED_TEXTS = frozenset(
    (
        _UNCHANGED,
        base64.b64encode(_UNCHANGED_BYTES).decode(),
        _UNCHANGED_BYTES.hex(),
        json.dumps({_UNCHANGED: _UNCHANGED}, separators=(",", ":")),
        _UNCHANGED_UUID,
    )
)
"""How Debezium writes, by the type of the column, that the log does not contain a value."""

_UNCHANGED_SIGNS = tuple(
    sign.encode()
    for sign in (
        *(text for text in _UNCHANGED_TEXTS if text[0] != "{"),
        *(separator.join(_UNCHANGED_CODES) for separator in (",", ", ")),
    )
)
"""A message without any of these has all values."""

_DAY_SECONDS = 86_400
_UNITS = {
    "io.debezium.time.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
}
_DAYS = ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date")
_DECIMAL, _JSON = "org.apache.kafka.connect.data.Decimal", "io.debezium.data.Json"
_SCALED = "io.debezium.data.VariableScaleDecimal"

_MOST_PLACES = 1 << 17
"""More digits than a `numeric` of PostgreSQL has before or after the point."""

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)

Kind = tuple[str, int]
"""What a schema says of a column: the name of its meaning, the digits behind the point of a decimal."""

Kinds = Mapping[str, Kind]
"""By the name of the column in the table."""


class _DebeziumType:
    """See `PayloadType`."""

    settings: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def open(self, settings: Mapping[str, str], registry: SchemaSource | None) -> RecordFormat:
        """Return the format."""
        return DebeziumFormat()


DEBEZIUM: PayloadType = _DebeziumType()


@dataclass(frozen=True, slots=True)
class DebeziumFormat(Unquoted):
    """Envelopes; see `RecordFormat` and `FormatWithColumns`.

    `columns`: columns of the stream that are not in the row, and their meaning (`WORDS`).
    """

    columns: tuple[tuple[str, str], ...] = ()

    name = "debezium"
    suffixes: tuple[str, ...] = ()
    words = (*WORDS, f"{BEFORE}COLUMN")

    def has_word(self, what: str) -> bool:
        """Return whether it provides a value with this name."""
        return what in WORDS or what.startswith(BEFORE)

    def with_columns(self, columns: Mapping[str, str]) -> DebeziumFormat:
        """Return the format with columns of the stream that are not in the row."""
        return DebeziumFormat(tuple(columns.items()))

    def reader(self, origin: str, stream: Stream) -> DebeziumReader:
        """Return what reads the messages of `origin`."""
        return DebeziumReader(stream, dict(self.columns))


class DebeziumReader:
    """Reads envelopes; see `RecordReader`. It remembers the schemas that it has read."""

    def __init__(self, stream: Stream, columns: Mapping[str, str]) -> None:
        self.stream, self.columns = stream, columns
        self._schemas: dict[bytes, Kinds] = {}

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """Return 0: messages have no header."""
        return 0

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """See `RecordReader.decode`."""
        groups: dict[tuple[tuple[str, Kind], ...] | None, list[int]] = {}
        completed: dict[int, bytes] = {}
        tables, kept, problems = [], [], []
        may_lack = _may_lack_values(b"\n".join(records))
        for index, record in enumerate(records):
            if may_lack and _may_lack_values(record):
                found = self._with_old_values(record)
                if isinstance(found, str):
                    problems.append((index, found))
                    continue
                completed[index] = found
            groups.setdefault(self._kinds(record), []).append(index)
        for kinds, rows in groups.items():
            chosen = np.array(rows, np.int64)
            is_all = len(rows) == len(records) and not completed
            given = records if is_all else [completed.get(row) or records[row] for row in rows]
            events, indices, bad = self._read(given, kinds)
            tables.append(events)
            kept.append(chosen[indices])
            problems += [(int(chosen[row]), reason) for row, reason in bad]
        if not tables:
            nothing = event_table_schema(self.stream).empty_table()
            return Decoded(nothing, np.zeros(0, np.int64), problems, records, len(records))
        events, indices = pa.concat_tables(tables).combine_chunks(), np.concatenate(kept)
        if len(tables) > 1:
            order = np.argsort(indices, kind="stable")
            events, indices = events.take(pa.array(order)), indices[order]
        of_rows = Stream("row", tuple(f for f in self.stream.fields if f.name not in self.columns), "")
        absent = absent_fields(records, events, of_rows, _ROWS)
        return Decoded(events, indices, sorted(problems), records, len(records), absent)

    # ------------------------------------------------------------ the schema around it

    def _kinds(self, record: bytes) -> tuple[tuple[str, Kind], ...] | None:
        """Return what the schema of a wrapped message says about columns; None: it is not wrapped."""
        if not record.startswith(_SCHEMA):
            return _kinds_of(record) if b'"payload"' in record else None
        for known, kinds in self._schemas.items():
            if record.startswith(known):
                return tuple(kinds.items())
        found = _kinds_of(record)
        if found is not None and len(self._schemas) < _MOST_SCHEMAS:
            text = record.decode()
            if text[len(_SCHEMA)] == "{":
                _, end = json.JSONDecoder().raw_decode(text, len(_SCHEMA))
                if text.startswith(_PAYLOAD, end):
                    self._schemas[(text[:end] + _PAYLOAD).encode()] = dict(found)
        return found

    # ------------------------------------------------------------ the envelope

    def _with_old_values(self, record: bytes) -> bytes | str:
        """Return an envelope with the old row's value for each value that the log does not contain.

        Return a reason if the old row does not have the value either.
        """
        try:
            message = json_lines.verbatim(record.decode())
            inside = message.get("payload") if isinstance(message, dict) else None
            envelope = inside if isinstance(inside, dict) else message
            before, after = envelope["before"], envelope["after"]
            if envelope["op"] == "d":
                after = before
            for field in self.stream.fields:
                what = self.columns.get(field.name, "")
                if what and not what.startswith(BEFORE):
                    continue
                row = before if what else after
                name = what.removeprefix(BEFORE).split(".")[0] if what else field.place[0]
                if not isinstance(row, dict) or not _is_unchanged(row.get(name)):
                    continue
                old = before.get(name) if isinstance(before, dict) else None
                if old is None or _is_unchanged(old):
                    return UNCHANGED.format(name)
                row[name] = old
            # Half of a character, which text cannot hold, is escaped as JSON does it.
            return json_lines.as_written(message).encode(errors="backslashreplace")
        except (ValueError, LookupError, TypeError, RecursionError):
            return record  # no envelope: the reader says why

    def _read(
        self, records: Sequence[bytes], kinds: tuple[tuple[str, Kind], ...] | None
    ) -> tuple[pa.Table, Indices, list[Problem]]:
        """Return the events of envelopes of one form, with their indices, and the problems."""
        top = () if kinds is None else ("payload",)
        known = dict(kinds or ())
        wanted = _Wanted(top, known)
        for field in self.stream.fields:
            what = self.columns.get(field.name)
            if what is None:
                wanted.row("after", field, field.place)
                wanted.row("before", field, field.place)
            elif what.startswith(BEFORE):
                wanted.row("before", field, tuple(what.removeprefix(BEFORE).split(".")))
            else:
                wanted.word(what, field)
        fields = {**wanted.fields, "op": Field("op", "string", path=(*top, "op"))}
        inside = Stream("envelope", tuple(fields.values()), "op")
        found, indices, problems = json_lines.parse(records, inside)
        ops = found.column("op").combine_chunks()
        problem_of: dict[int, str] = {}
        _note(problem_of, where_true(pc.is_null(ops)), NO_ENVELOPE)
        _note(problem_of, where_true(pc.equal(ops, "t")), EMPTIED)
        is_other = where_true(pc.is_valid(ops)) & ~where_true(
            pc.is_in(ops, pa.array(["c", "u", "d", "r", "t"]))
        )
        _note(problem_of, is_other, NO_ROW)
        is_deleted = pc.equal(ops, "d")
        columns = []
        for field in self.stream.fields:
            what = self.columns.get(field.name, "")
            if not what:
                after = wanted.value(found, "after", field, field.place, problem_of)
                before = wanted.value(found, "before", field, field.place, problem_of)
                columns.append(pc.if_else(pc.fill_null(is_deleted, fill_value=False), before, after))
            elif what.startswith(BEFORE):
                place = tuple(what.removeprefix(BEFORE).split("."))
                columns.append(wanted.value(found, "before", field, place, problem_of))
            else:
                columns.append(wanted.said(found, what, field))
        events = pa.Table.from_arrays(columns, schema=event_table_schema(self.stream))
        if problem_of:
            is_event = np.ones(len(events), bool)
            is_event[list(problem_of)] = False
            problems += [(int(indices[row]), reason) for row, reason in problem_of.items()]
            events, indices = events.filter(pa.array(is_event)), indices[is_event]
        return events, indices, problems


_SCHEMA, _PAYLOAD = b'{"schema":', ',"payload":{'
"""How Kafka Connect writes a wrapped message."""

_ROWS = tuple((*top, side) for top in ((), ("payload",)) for side in ("after", "before"))
"""Where an envelope has the columns of a row."""

_MOST_SCHEMAS = 16
"""Schemas that are known by their text: a table that was changed has several."""


class _Wanted:
    """Places in envelopes, as columns of JSON lines."""

    def __init__(self, top: tuple[str, ...], kinds: Kinds) -> None:
        self.top, self.kinds = top, kinds
        self.fields: dict[str, Field] = {}

    def row(self, side: str, field: Field, place: tuple[str, ...]) -> None:
        """Request a column of the row after or before a change."""
        kind = self._kind(field, place)
        plain = Field("", field.ddl, field.unit, field.format, field.zone, element=field.element)
        if kind in _UNITS and field.type is Type.TIMESTAMP:
            plain = Field("", field.ddl, _UNITS[kind])
        elif kind in _DAYS:
            plain = Field("", "int")
        elif kind in (_DECIMAL, _JSON):
            plain = Field("", "string")
        elif kind == _SCALED:
            plain = Field("", "struct<scale:int,value:binary>")
        name = _name(side, field, place)
        self.fields[name] = replace(plain, name=name, path=(*self.top, side, *place))

    def word(self, what: str, field: Field) -> None:
        """Request something that an envelope says about a change."""
        for name, ddl, unit, place in _PLACES[what]:
            kind = field.ddl if what == "transaction" else ddl
            self.fields[name] = Field(name, kind, unit, path=(*self.top, *place))

    def value(
        self, found: pa.Table, side: str, field: Field, place: tuple[str, ...], problem_of: dict[int, str]
    ) -> pa.Array:
        """Return a column of the row after or before a change."""
        values = found.column(_name(side, field, place)).combine_chunks()
        kind = self._kind(field, place)
        if kind in _DAYS:
            times, bad = times_of_numbers(pc.multiply(values, _DAY_SECONDS), "seconds")
            for row in np.flatnonzero(bad).tolist():
                problem_of.setdefault(row, f"{dead_letter.not_of_type(field)}: {values[row]}")
            return times
        convert: dict[str, Callable[[str], Any]] = {
            _DECIMAL: partial(_decimal, digits=self.kinds.get(place[0], ("", 0))[1], field=field),
            _SCALED: partial(_scaled, field=field),
            _JSON: partial(_json, field=field),
        }
        return _converted(values, convert[kind], field, problem_of) if kind in convert else values

    def said(self, found: pa.Table, what: str, field: Field) -> pa.Array:
        """Return what envelopes say about changes."""
        columns = [found.column(name).combine_chunks() for name, *_ in _PLACES[what]]
        match what:
            case "commit_time":
                return pc.coalesce(*columns)
            case "table":
                schema, database, table = columns
                return pc.binary_join_element_wise(pc.coalesce(schema, database), table, ".")
            case "lsn" if field.type is Type.STRING:
                texts = [
                    None if n is None else f"{n >> 32:X}/{n & 0xFFFFFFFF:X}" for n in columns[0].to_pylist()
                ]
                return pa.array(texts, pa.string())
            case _:
                return columns[0]

    def _kind(self, field: Field, place: tuple[str, ...]) -> str:
        """Return what the schema says about a column, if it matters for the type of the stream's column."""
        is_column = len(place) == 1 and not field.element
        kind = self.kinds.get(place[0], ("", 0))[0] if is_column else ""
        matters = {
            Type.TIMESTAMP: kind in _UNITS or kind in _DAYS,
            Type.DOUBLE: kind in (_DECIMAL, _SCALED),
            Type.STRING: kind in (_DECIMAL, _SCALED),
            Type.OPAQUE: kind == _JSON and field.column_type.name != "binary",
        }
        return kind if matters.get(field.type, False) else ""


_PLACES: dict[str, tuple[tuple[str, str, str, tuple[str, ...]], ...]] = {
    "op": (("op", "string", "", ("op",)),),
    "commit_time": (
        ("source.ts_us", "timestamp", "microseconds", ("source", "ts_us")),
        ("source.ts_ms", "timestamp", "milliseconds", ("source", "ts_ms")),
    ),
    "lsn": (("source.lsn", "bigint", "", ("source", "lsn")),),
    "table": (
        ("source.schema", "string", "", ("source", "schema")),
        ("source.db", "string", "", ("source", "db")),
        ("source.table", "string", "", ("source", "table")),
    ),
    "transaction": (("source.txId", "bigint", "", ("source", "txId")),),
}
"""Where an envelope says something: name, type, unit, place."""


def _name(side: str, field: Field, place: tuple[str, ...]) -> str:
    """Return the name of a column of a row: two columns of the stream may read the same one."""
    column = ".".join(place)
    return f"{side}.{column}" if column == field.column else f"{side}.{column} as {field.name}"


def _may_lack_values(text: bytes) -> bool:
    return any(sign in text for sign in _UNCHANGED_SIGNS)


def _is_unchanged(value: object) -> bool:
    """Return whether a value that `json_lines.verbatim` has read stands for one that is not in the log."""
    match value:
        case [only]:
            return isinstance(only, str) and only in _UNCHANGED_TEXTS
        case list():
            return value == _UNCHANGED_CODES
        case dict():  # of hstore; of a decimal with a scale
            return value == {_UNCHANGED: _UNCHANGED} or _is_unchanged(value.get("value"))
        case _:
            return isinstance(value, str) and value in _UNCHANGED_TEXTS


def _note(problem_of: dict[int, str], bad: Mask, reason: str) -> None:
    for row in np.flatnonzero(bad).tolist():
        problem_of.setdefault(row, reason)


def _converted(
    values: pa.Array, convert: Callable[[str], Any], field: Field, problem_of: dict[int, str]
) -> pa.Array:
    """Return strings as other values; those that cannot be converted are problems."""
    found = []
    for row, text in enumerate(values.to_pylist()):
        value = None
        if text is not None:
            try:
                value = convert(text)
            except (ValueError, RecursionError, OverflowError):
                problem_of.setdefault(row, dead_letter.wrong_type(field, text))
        found.append(value)
    return pa.array(found, pa.float64() if field.type is Type.DOUBLE else pa.string())


def _decimal(text: str, digits: int, field: Field) -> float | str:
    """Return a base64 whole number, some digits of which are after the point, as the column has it.

    A column of strings has all digits, as PostgreSQL writes them; any other has the nearest DOUBLE.
    """
    unscaled = int.from_bytes(base64.b64decode(text, validate=True), "big", signed=True)
    if abs(digits) > _MOST_PLACES:
        raise ValueError(digits)
    number = Decimal(unscaled).scaleb(-digits, _EXACT)
    if field.is_decimal and rounded(number, field.digits) is None:
        raise ValueError(number)
    return format(number, "f") if field.type is Type.STRING else float(number)


def _scaled(text: str, field: Field) -> float | str:
    found = json.loads(text)
    if found["scale"] is None or found["value"] is None:
        raise ValueError(text)
    return _decimal(found["value"], found["scale"], field)


def _json(text: str, field: Field) -> str:
    return opaque_text(json.loads(text), field.column_type, is_json=True)


def _kinds_of(record: bytes) -> tuple[tuple[str, Kind], ...] | None:
    """Return what the schema of a message says about the columns of its row; None: it is not wrapped."""
    try:
        found = json.loads(record)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("payload"), dict):
        return None
    kinds = {}
    for side in _members(found.get("schema")):
        if side.get("field") in ("before", "after"):
            for column in _members(side):
                name, meaning = column.get("field"), column.get("name")
                if isinstance(name, str) and isinstance(meaning, str):
                    kinds[name] = (meaning, _scale(column))
    return tuple(sorted(kinds.items()))


def _members(schema: object) -> list[dict[str, Any]]:
    fields = schema.get("fields") if isinstance(schema, dict) else None
    return [item for item in fields if isinstance(item, dict)] if isinstance(fields, list) else []


def _scale(column: Mapping[str, Any]) -> int:
    parameters = column.get("parameters")
    text = parameters.get("scale") if isinstance(parameters, dict) else None
    return int(text) if isinstance(text, str) and text.lstrip("-").isdecimal() and len(text) < 5 else 0
