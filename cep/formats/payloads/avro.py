"""Avro as a format of messages: by a given schema, or by the schema whose number is in each message.

With a registry each message is read by the schema with which it was written. A given schema, the reader's,
then provides other names (`aliases`), and defaults for fields that older messages lack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.errors import InputError
from cep.expression import Type
from cep.formats.lines import Lines, lines_of_objects
from cep.formats.payloads.avro_columns import Path, WantedField, read_columns
from cep.formats.payloads.avro_schema import (
    Collection,
    Node,
    Record,
    Union,
    Value,
    arrow_type,
    at_place,
    branches_of,
    read_schema,
    word_for,
)
from cep.formats.payloads.columns import Base64Records, FieldValues, events_of, misfit, missing
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


class _AvroType:
    """See `PayloadType`."""

    settings = ("schema", "framing")
    files = ("schema",)

    def open(self, settings: Mapping[str, str], registry: SchemaSource | None) -> RecordFormat:
        """Return the format; raises InputError."""
        file = settings.get("schema", "")
        framing = settings.get("framing", CONFLUENT if registry is not None else NONE)
        if framing not in FRAMINGS:
            raise InputError("E0841", f"`framing` cannot be `{framing}`", f"write {in_words(FRAMINGS)}")
        if not file and registry is None:
            raise InputError(
                "E0890",
                "nothing says the schema of Avro messages",
                "give `schema: file.avsc`, or `registry: http://...`",
            )
        if registry is not None and framing == NONE:
            raise InputError(
                "E0890",
                "without framing no message says which schema of the registry it has",
                "remove `registry` and give `schema: file.avsc`, or remove `framing: none`",
            )
        what = f"the schema `{file}`"
        text = read_file(file, "the schema").decode(errors="replace") if file else ""
        if text:
            read_schema(text, what)
        return AvroFormat(text, what, framing == CONFLUENT, registry)


AVRO: PayloadType = _AvroType()


@dataclass(frozen=True, slots=True)
class AvroFormat(Unquoted):
    """Avro messages; see `RecordFormat`.

    - `schema`: with a registry the schema of the reader, or empty. Without one the schema of all messages.
    - `what`: the schema, for errors.
    - `is_framed`: whether the number of a schema precedes each message.
    - `registry`: returns schemas by their numbers.
    """

    schema: str
    what: str
    is_framed: bool
    registry: SchemaSource | None

    name = "avro"
    suffixes: tuple[str, ...] = ()

    def reader(self, origin: str, stream: Stream) -> AvroReader:
        """Return what reads the messages of `origin`."""
        return AvroReader(self, stream)

    def check(self, stream: Stream) -> None:
        """Raise InputError if no message can be of the stream, or the registry does not answer."""
        if self.schema:
            require_fields(read_schema(self.schema, self.what), stream, self.what)
        if self.registry is not None:
            self.registry.check()


def require_fields(schema: Record, stream: Stream, what: str) -> None:
    """Raise InputError unless a record has all columns of a stream, in types that fit."""
    found = {field: inside(at_place(schema, field.place), field) for field in stream.fields}
    lacking = [field for field, nodes in found.items() if not nodes]
    if lacking:
        raise missing(stream, lacking, what, schema.names)
    for field, nodes in found.items():
        if not any(_fits(node, field) for node in nodes):
            raise misfit(stream, field, word_for(nodes), what)


def inside(nodes: Sequence[Node], field: Field) -> list[Node]:
    """Return the possible types of a field, from those of the field or of its array."""
    found = list(nodes)
    for part in field.element:
        if isinstance(part, str):
            found = [inner for node in found for inner in at_place(node, (part,))]
        else:
            lists = [node for node in found if isinstance(node, Collection) and node.kind == "array"]
            found = [branch for node in lists for branch in branches_of(node.items)]
    return found


def _fits(node: Node, field: Field) -> bool:
    kind = arrow_type(node)
    return kind is not None and fits(kind, field)


@dataclass(frozen=True, slots=True)
class AvroReader:
    """Reads the messages of one stream; it remembers nothing from one call to the next."""

    avro: AvroFormat
    stream: Stream

    def begin(self, records: Sequence[bytes], *, is_last: bool) -> int | None:
        """Return 0: a message has no header."""
        return 0

    def decode(self, records: Sequence[bytes], *, is_last: bool) -> Decoded:
        """See `RecordReader.decode`. Raises InputError if the registry does not answer."""
        block = records if isinstance(records, Lines) else lines_of_objects(records)
        if not self.avro.is_framed:
            return _read(_plan(self.avro.schema, "", self.stream, self.avro.what), block, records)
        bodies, numbers, bad = unframed(block)
        if self.avro.registry is None and not bad.any():
            return _read(_plan(self.avro.schema, "", self.stream, self.avro.what), bodies, records)
        parts = [self._of_schema(number, rows, bodies) for number, rows in _by_number(numbers, bad)]
        if len(parts) == 1 and not bad.any():
            return _quoting(parts[0], records)
        told = [(row, frameless(block[row])) for row in np.flatnonzero(bad).tolist()]
        return _in_order([*parts, _refusing(told, self.stream)], records)

    def _of_schema(self, number: int, rows: I64, bodies: Lines) -> Decoded:
        """Return the messages `rows`, all of one schema, with their indices among all."""
        chosen = Lines(bodies.data, bodies.starts[rows], bodies.ends[rows])
        avro = self.avro
        if avro.registry is None:
            plan = _plan(avro.schema, "", self.stream, avro.what)
        else:
            text = avro.registry.schema(number)
            if text is None:
                return _refusing([(int(row), unknown_schema(number)) for row in rows], self.stream)
            try:
                plan = _plan(text, avro.schema, self.stream, f"schema {number}")
            except InputError as error:
                return _refusing([(int(row), str(error.args[0])) for row in rows], self.stream)
        decoded = _read(plan, chosen, chosen)
        told = [(int(rows[row]), reason) for row, reason in decoded.problems]
        return Decoded(decoded.events, rows[decoded.indices], told, (), 0)


def _by_number(numbers: I64, bad: Mask) -> Iterator[tuple[int, I64]]:
    """Yield the numbers of schemas, and the messages of each in their order."""
    rows = np.flatnonzero(~bad)
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    known, first = np.unique(numbers[rows], return_index=True)
    for number, group in zip(known.tolist(), np.split(rows, first[1:]), strict=True):
        if len(group):
            yield number, group


def _refusing(told: Sequence[tuple[int, str]], stream: Stream) -> Decoded:
    return Decoded(events_of(stream, {}, {}, ()).events, np.zeros(0, np.int64), told, (), 0)


def _quoting(decoded: Decoded, records: Sequence[bytes]) -> Decoded:
    return Decoded(decoded.events, decoded.indices, decoded.problems, Base64Records(records), len(records))


def _in_order(parts: Sequence[Decoded], records: Sequence[bytes]) -> Decoded:
    """Return messages of several schemas in their original order."""
    indices = np.concatenate([part.indices for part in parts])
    order = np.argsort(indices, kind="stable")
    # One schema may give texts with a dictionary where another gives plain texts.
    events = pa.concat_tables([part.events for part in parts], promote_options="permissive")
    problems = sorted(problem for part in parts for problem in part.problems)
    return Decoded(
        events.take(pa.array(order)), indices[order], problems, Base64Records(records), len(records)
    )


# ---------------------------------------------------------------- plans


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the columns of a stream are read from messages of one schema.

    `schema`: the schema with which they were written. `places`: by column the place of its value; None: the
    messages have none. `defaults`: by column its value in that case.
    """

    schema: Record
    stream: Stream
    places: Mapping[str, Path | None]
    defaults: Mapping[str, FieldValues]


@lru_cache(maxsize=256)
def _plan(written: str, wanted: str, stream: Stream, what: str) -> _Plan:
    """Return how messages of the schema `written` are read by the schema `wanted`, which may be empty.

    Raises InputError: the schema is invalid, or none of its messages can belong to the stream (E0891).
    """
    schema = read_schema(written, what)
    reader = read_schema(wanted, "the reader's schema") if wanted else None
    places: dict[str, Path | None] = {}
    defaults: dict[str, FieldValues] = {}
    for field in stream.fields:
        place = field.place
        nodes = at_place(schema, place)
        if not nodes and reader is not None:
            place = _written_place(schema, reader, field.place)
            nodes = at_place(schema, place)
            if not nodes:
                default = _default(reader, field)
                if default is None:
                    raise missing(stream, [field], what, schema.names)
                defaults[field.name] = default
        parts = inside(nodes, field)
        if nodes and not any(_fits(node, field) for node in parts):
            raise misfit(stream, field, word_for(parts or nodes), what)
        places[field.name] = place if nodes else None
    return _Plan(schema, stream, places, defaults)


def _written_place(schema: Record, reader: Record, place: Path) -> Path:
    """Return the writer's place for the reader's `place`: each name in it may be an alias."""
    found: list[str] = []
    here: Node | None = reader
    for name in place:
        records = list(branches_of(here)) if here is not None else []
        record = next((node for node in records if isinstance(node, Record) and name in node.names), None)
        names = [name]
        here = None
        if record is not None:
            at = record.names.index(name)
            names += record.aliases[at]
            here = record.parts[at]
        found.append(next((known for known in names if at_place(schema, (*found, known))), name))
    return tuple(found)


def _default(reader: Record, field: Field) -> FieldValues | None:
    """Return the value of a column in messages that lack it; None: the reader's schema has no default."""
    parents = [reader] if len(field.place) == 1 else at_place(reader, field.place[:-1])
    for parent in parents:
        if isinstance(parent, Record) and field.place[-1] in parent.names:
            at = parent.names.index(field.place[-1])
            text = parent.defaults[at]
            return None if text is None else _constant(json.loads(text), parent.parts[at], field)
    return None


def _constant(value: Any, node: Node, field: Field) -> FieldValues | None:
    """Return a default as a column of one row."""
    if isinstance(node, Union):
        # By the specification the default belongs to the first branch; newer writers allow any.
        return next(
            (found for part in node.branches if (found := _constant(value, part, field)) is not None), None
        )
    try:
        if field.type is Type.OPAQUE and value is not None:
            text = opaque_text(value, field.column_type, is_json=True)
            return FieldValues(pa.array([text], pa.string()), is_typed=True)
        if not isinstance(node, Value) or (node.kind == "null") is not (value is None):
            return None
        plain = pa.array([value], pa.string() if node.kind in ("string", "enum") else None)
        kind = {"int": pa.int32(), "long": pa.int64()}.get(node.kind)
        if kind is not None:
            plain = plain.cast(kind).view(node.arrow)
        return FieldValues(
            plain if kind is not None else plain.cast(node.arrow), fits=fits(node.arrow, field)
        )
    except (ValueError, pa.ArrowException):
        return None


# ---------------------------------------------------------------- columns


def _read(plan: _Plan, bodies: Lines, records: Sequence[bytes]) -> Decoded:
    """Return the events and problems of messages of one schema."""
    wanted: dict[Path, bool] = {}
    for field in plan.stream.fields:
        place = plan.places[field.name]
        if place is not None:
            is_whole = bool(field.element) or field.column_type.name in ("array", "map", "struct")
            wanted[place] = wanted.get(place, False) or is_whole
    columns, refused = read_columns(plan.schema, bodies, wanted)
    for row in np.flatnonzero(bodies.ends == bodies.starts).tolist():
        refused[row] = EMPTY
    found: dict[str, Sequence[FieldValues]] = {}
    for field in plan.stream.fields:
        place = plan.places[field.name]
        if place is not None:
            found[field.name] = [_found(column, field, len(bodies)) for column in columns.get(place, ())]
        elif field.name in plan.defaults:
            found[field.name] = [_repeated(plan.defaults[field.name], len(bodies))]
    return events_of(plan.stream, found, refused, records)


def _found(column: WantedField, field: Field, n: int) -> FieldValues:
    node = column.node
    if field.element:
        return _element(column, field, n)
    if not isinstance(node, Value):
        return _opaque(column.values, node, field, n)
    return FieldValues(column.values, fits=fits(node.arrow, field))


def _element(column: WantedField, field: Field, n: int) -> FieldValues:
    """Return a value inside each array."""
    nodes = inside([column.node], field)
    fitting = next((node for node in nodes if _fits(node, field)), None)
    if fitting is None:
        texts = [None if value is None else "" for value in column.values]
        return FieldValues(pa.array(texts, pa.string()), fits=False)
    values = [python_element(value, field.element) for value in column.values]
    if not isinstance(fitting, Value):
        return _opaque(values, fitting, field, n)
    bad = {row: repr(value) for row, value in enumerate(values) if not _is_of(value, fitting.arrow)}
    for row in bad:
        values[row] = None
    return FieldValues(pa.array(values, fitting.arrow), bad=bad)


def _is_of(value: Any, kind: pa.DataType) -> bool:
    """Return whether a value may have a type: a union also has values of other types."""
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _opaque(values: Sequence[Any], node: Node, field: Field, n: int) -> FieldValues:
    """Return whole values as JSON text."""
    texts: list[str | None] = [None] * n
    bad: dict[int, str] = {}
    is_of_type = _fits(node, field)
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            texts[row] = opaque_text(value, field.column_type) if is_of_type else ""
        except ValueError:
            bad[row] = repr(value)
    return FieldValues(pa.array(texts, pa.string()), fits=is_of_type, is_typed=True, bad=bad)


def _repeated(found: FieldValues, n: int) -> FieldValues:
    values = found.values.take(pa.array(np.zeros(n, np.int64)))
    return FieldValues(values, found.fits, found.is_typed)
