"""Avro schemas: what is read from a record, as a tree of nodes.

A schema is refused if a few bytes could keep its reader busy forever: types that contain themselves, and
arrays whose items take no bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException

from cep.errors import InputError
from cep.schema.column_types import MAX_DIGITS

Json = Any
"""A schema as JSON has it."""

_UTC = "UTC"
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", _UTC),
    ("long", "timestamp-micros"): pa.timestamp("us", _UTC),
    ("long", "timestamp-nanos"): pa.timestamp("ns", _UTC),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}

MAX_DEPTH = 64
"""Levels of types inside each other."""


@dataclass(frozen=True, slots=True)
class Value:
    """A simple value: `kind` is its type in Avro, `arrow` the type of its column."""

    kind: str
    arrow: pa.DataType
    word: str
    size: int = 0  # bytes of a fixed
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """Named values in a row; `aliases` are the other names that each may have had."""

    names: tuple[str, ...]
    parts: tuple[Node, ...]
    aliases: tuple[tuple[str, ...], ...]
    defaults: tuple[str | None, ...]  # as JSON; None: it has none
    schema: str  # only it, as JSON


@dataclass(frozen=True, slots=True)
class Union:
    """One of several; its number precedes it."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Collection:
    """An array or a map, of any length."""

    kind: str
    items: Node
    schema: str  # only it, as JSON


Node = Value | Record | Union | Collection


def read_schema(text: str | bytes, what: str) -> Record:
    """Return the record that a schema is.

    Raises InputError: it is not an Avro schema, not a record, or a schema that is refused (E0890).

    `what`: the schema, for errors: ``the schema `orders.avsc` ``.
    """
    try:
        named: dict[str, Json] = {}
        parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
        node = _Reader(named).node(parsed, ())
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            "E0890", f"{what} cannot be used: {said[:200]}", "it must be the JSON of a schema of Avro"
        ) from error
    if not isinstance(node, Record):
        raise InputError(
            "E0890", f"{what} is not the schema of a record", "give the schema of a whole message"
        )
    return node


class _Reader:
    """Turns a schema that fastavro has parsed into nodes: named types are written out once."""

    def __init__(self, named: dict[str, Json]) -> None:
        self.named = named

    def node(self, schema: Json, inside: tuple[str, ...]) -> Node:
        if len(inside) > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} types inside each other")
        if isinstance(schema, list):
            return Union(tuple(self.node(branch, inside) for branch in schema))
        if isinstance(schema, str):
            if schema in _PLAIN:
                return Value(schema, _PLAIN[schema], schema)
            if schema in inside:
                raise ValueError(f"`{schema}` contains itself, so a message may be of any depth")
            return self.node(self.named[schema], inside)
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.node(kind, inside)
        if kind in ("record", "error"):
            return self._record(schema, inside)
        if kind in ("array", "map"):
            items = self.node(schema["items" if kind == "array" else "values"], (*inside, ""))
            if kind == "array" and not may_have_bytes(items):
                raise ValueError("an array of items without a byte, of which a message may have any number")
            return Collection(kind, items, json.dumps(self._alone(schema, set())))
        if kind not in _PLAIN:
            return self.node(kind, inside)
        return _value(schema, kind)

    def _record(self, schema: Json, inside: tuple[str, ...]) -> Record:
        name = schema["name"]
        if name in inside:
            raise ValueError(f"`{name}` contains itself, so a message may be of any depth")
        fields = schema["fields"]
        return Record(
            tuple(field["name"] for field in fields),
            tuple(self.node(field["type"], (*inside, name)) for field in fields),
            tuple(tuple(field.get("aliases", ())) for field in fields),
            tuple(json.dumps(field["default"]) if "default" in field else None for field in fields),
            json.dumps(self._alone(schema, set())),
        )

    def _alone(self, schema: Json, known: set[str]) -> Json:
        """Return a self-contained part of the schema."""
        if isinstance(schema, list):
            return [self._alone(branch, known) for branch in schema]
        if isinstance(schema, str):
            if schema in _PLAIN or schema in known:
                return schema
            return self._alone(self.named[schema], known)
        if "name" in schema:
            if schema["name"] in known:
                return schema["name"]
            known.add(schema["name"])
        copy = {name: value for name, value in schema.items() if not name.startswith("__")}
        for part in ("type", "items", "values"):
            if part in copy and not (part == "type" and isinstance(copy[part], str)):
                copy[part] = self._alone(copy[part], known)
        if "fields" in copy:
            copy["fields"] = [
                {**field, "type": self._alone(field["type"], known)} for field in copy["fields"]
            ]
        return copy


def _value(schema: Json, kind: str) -> Value:
    logical = schema.get("logicalType", "")
    size = int(schema.get("size", 0))
    found = _LOGICAL.get((kind, logical))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        digits, places = int(schema["precision"]), int(schema.get("scale", 0))
        if 1 <= digits <= MAX_DIGITS and 0 <= places <= digits:
            found = pa.decimal128(digits, places)
    if logical == "uuid" and kind == "fixed" and size == 16:
        found = pa.string()
    word = kind if found is None else f"{kind} ({logical})"
    return Value(kind, found or _PLAIN[kind], word, size, tuple(schema.get("symbols", ())))


def may_have_bytes(node: Node) -> bool:
    """Return whether every value of a type has at least one byte."""
    match node:
        case Value():
            return node.kind != "null" and not (node.kind == "fixed" and node.size == 0)
        case Record():
            return any(map(may_have_bytes, node.parts))
        case _:
            return True


def branches_of(node: Node) -> Iterator[Node]:
    """Yield the possible types of a value: the branches of a union, except null."""
    if isinstance(node, Union):
        for branch in node.branches:
            yield from branches_of(branch)
    elif not (isinstance(node, Value) and node.kind == "null"):
        yield node


def at_place(node: Node, place: Sequence[str]) -> list[Node]:
    """Return the possible types of a field, in all branches of unions; empty: no such field exists."""
    found = list(branches_of(node))
    for name in place:
        parts = [
            part
            for record in found
            if isinstance(record, Record)
            for at, part in zip(record.names, record.parts, strict=True)
            if at == name
        ]
        found = [branch for part in parts for branch in branches_of(part)]
        if parts and not found:
            return [Value("null", pa.null(), "null")]
    return found


def arrow_type(node: Node) -> pa.DataType | None:
    """Return the type of a column with these values; None: there is none, as for a union of several."""
    match node:
        case Value():
            return node.arrow
        case Record():
            kinds = [arrow_type(part) for part in node.parts]
            known = zip(node.names, kinds, strict=True)
            # A field without a type counts as missing.
            return pa.struct([(name, kind) for name, kind in known if kind is not None])
        case Collection():
            kind = arrow_type(node.items)
            if kind is None:
                return None
            return pa.list_(kind) if node.kind == "array" else pa.map_(pa.string(), kind)
        case Union():
            kinds = [arrow_type(branch) for branch in branches_of(node)]
            return kinds[0] if len(kinds) == 1 else pa.null() if not kinds else None


def word_for(nodes: Sequence[Node]) -> str:
    """Return the type of a field in Avro's terms: ``long (timestamp-millis)``."""
    words = [
        node.word if isinstance(node, Value) else node.kind if isinstance(node, Collection) else "record"
        for node in nodes
    ]
    return " or ".join(dict.fromkeys(words))
