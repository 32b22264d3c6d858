"""Descriptors of Protocol Buffers: the fields of a message that a stream reads, and their types."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

# Files that others import without including them.
from google.protobuf import (  # noqa: F401
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError

from cep.errors import InputError
from cep.schema.arrow_columns import element_kind

Descriptor = Any
"""`google.protobuf.descriptor.Descriptor`: a type of messages."""

FieldDescriptor = Any
"""`google.protobuf.descriptor.FieldDescriptor`."""

TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = "google.protobuf."
_WRAPPED = frozenset(
    _WRAPPERS + name + "Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = 1, 2, 3, 4, 5, 6, 7, 8, 9
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = (
    10, 11, 12, 13, 14, 15, 16, 17, 18,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scalar:
    """How a type is written: `wire` is its wire type, `word` its name, `arrow` the type of its column."""

    word: str
    wire: int
    arrow: pa.DataType


SCALARS: dict[int, Scalar] = {
    _DOUBLE: Scalar("double", 1, pa.float64()),
    _FLOAT: Scalar("float", 5, pa.float32()),
    _INT64: Scalar("int64", 0, pa.int64()),
    _UINT64: Scalar("uint64", 0, pa.int64()),  # a value above is a dead letter
    _INT32: Scalar("int32", 0, pa.int32()),
    _FIXED64: Scalar("fixed64", 1, pa.int64()),  # as uint64
    _FIXED32: Scalar("fixed32", 5, pa.uint32()),
    _BOOL: Scalar("bool", 0, pa.bool_()),
    _STRING: Scalar("string", 2, pa.string()),
    _BYTES: Scalar("bytes", 2, pa.binary()),
    _UINT32: Scalar("uint32", 0, pa.uint32()),
    _ENUM: Scalar("enum", 0, pa.string()),
    _SFIXED32: Scalar("sfixed32", 5, pa.int32()),
    _SFIXED64: Scalar("sfixed64", 1, pa.int64()),
    _SINT32: Scalar("sint32", 0, pa.int32()),
    _SINT64: Scalar("sint64", 0, pa.int64()),
}

UNSIGNED_64 = frozenset(("uint64", "fixed64"))


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A wanted field of a message.

    - `place`: the names of the fields on the path to it.
    - `word`: its type, for errors.
    - `arrow`: the type of its column; None: no column is of its type.
    - `is_plain`: whether it is a scalar, a `Timestamp` or a wrapper. Others are read as a whole.
    """

    place: tuple[str, ...]
    word: str
    arrow: pa.DataType | None
    is_plain: bool


@lru_cache(maxsize=64)
def message_of(content: bytes, name: str, what: str) -> Descriptor:
    """Return the type of messages with a name in a set of descriptors.

    Raises InputError: it is not such a set, or has no such type (E0890).

    `content`: a FileDescriptorSet, as ``protoc --include_imports --descriptor_set_out`` writes it. `name`:
    the name with its package, ``shop.Order``. Empty: the only type of the last file.
    """
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(content).file
        if not files:
            raise ValueError("there is no file in it")
        pool = pool_of(files)
    except (DecodeError, TypeError, ValueError) as error:
        said = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            "E0890",
            f"{what} cannot be used: {said[:200]}",
            "write it by: protoc --include_imports --descriptor_set_out=orders.desc orders.proto",
        ) from error
    top = pool.FindFileByName(files[-1].name).message_types_by_name
    known = sorted(kind.full_name for kind in top.values())
    wanted = name or (known[0] if len(known) == 1 else "")
    try:
        return pool.FindMessageTypeByName(wanted)
    except KeyError:
        fact = f"{what} has no message `{name}`" if name else f"{what} has several messages"
        raise InputError("E0890", fact, f"write `message: ` and one of {', '.join(known)}") from None


def pool_of(files: Sequence[Any]) -> Any:
    """Return a pool with files and with Google's files that they import.

    Raises ValueError or TypeError: the files contradict each other, or an imported file is missing.
    """
    pool = descriptor_pool.DescriptorPool()
    given = {file.name: file for file in files}
    done: set[str] = set()

    def add(name: str, way: tuple[str, ...]) -> None:
        if name in done or name in way:
            return
        file = given.get(name)
        if file is None:
            try:
                file = descriptor_pb2.FileDescriptorProto()
                descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
            except KeyError:
                raise ValueError(f"it refers to `{name}`, which is not in it") from None
        for needed in file.dependency:
            add(needed, (*way, name))
        pool.Add(file)
        done.add(name)

    for file in files:
        add(file.name, ())
    return pool


def file_of_registry(text: str) -> Any:
    """Return the file that a registry gives as base64; raises ValueError."""
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError) as error:
        raise ValueError("it is no descriptor") from error


def message_class(kind: Descriptor) -> Any:
    """Return the class of messages of a type."""
    return message_factory.GetMessageClass(kind)


def index_path(kind: Descriptor) -> tuple[int, ...]:
    """Return the position of a type in its file: the indices of the enclosing messages, then its own."""
    path: list[int] = []
    while kind.containing_type is not None:
        path.insert(0, [item.name for item in kind.containing_type.nested_types].index(kind.name))
        kind = kind.containing_type
    first = list(kind.file.message_types_by_name).index(kind.name)
    return (first, *path)


def message_at(file: Any, path: Sequence[int]) -> Descriptor | None:
    """Return the message of a file with an index path; None: there is none."""
    kinds = list(file.message_types_by_name.values())
    found = None
    for index in path:
        if not 0 <= index < len(kinds):
            return None
        found = kinds[index]
        kinds = list(found.nested_types)
    return found


def field_at(
    kind: Descriptor, place: tuple[str, ...], element: tuple[str | int, ...] = ()
) -> ProtoField | None:
    """Return the field at a place; None: there is none.

    `element`: the field is a list, and a value inside it is wanted.
    """
    found: FieldDescriptor = None
    for name in place:
        if found is not None and (is_repeated(found) or found.message_type is None):
            return None
        inside = kind if found is None else found.message_type
        found = inside.fields_by_name.get(name)
        if found is None:
            return None
    if element:
        kind_of_list = element_kind(_arrow(found, ()), element)
        return None if kind_of_list is None else ProtoField(place, str(kind_of_list), kind_of_list, False)
    return ProtoField(place, _word(found), _arrow(found, ()), is_plain(found))


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field may have any number of values. Protobuf 5 has only `label` for this."""
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def is_required(field: FieldDescriptor) -> bool:
    """Return whether each message must have a field. Protobuf 5 says only `label`."""
    return bool(field.is_required if hasattr(field, "is_required") else field.label == field.LABEL_REQUIRED)


def is_plain(field: FieldDescriptor) -> bool:
    """Return whether a field is a scalar, a `Timestamp` or a wrapper with at most one value."""
    if is_repeated(field):
        return False
    return field.message_type is None or field.message_type.full_name in {TIMESTAMP, *_WRAPPED}


def wrapped(field: FieldDescriptor) -> FieldDescriptor | None:
    """Return the field inside a wrapper such as `StringValue`; None: it is not a wrapper."""
    kind = field.message_type
    return kind.fields_by_name["value"] if kind is not None and kind.full_name in _WRAPPED else None


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    kind = field.message_type
    return bool(is_repeated(field) and kind is not None and kind.GetOptions().map_entry)


def _word(field: FieldDescriptor) -> str:
    if is_map(field):
        return "map"
    kind = field.message_type
    word = SCALARS[field.type].word if kind is None else kind.full_name
    return f"repeated {word}" if is_repeated(field) else word


def _arrow(field: FieldDescriptor, inside: tuple[str, ...]) -> pa.DataType | None:
    """Return the type of a column of a field; None: there is none, as for a type that contains itself."""
    kind = field.message_type
    if is_map(field):
        key, value = (_arrow(kind.fields_by_name[name], inside) for name in ("key", "value"))
        return None if key is None or value is None else pa.map_(key, value)
    found: pa.DataType | None
    if kind is None:
        found = SCALARS[field.type].arrow
    elif kind.full_name == TIMESTAMP:
        found = pa.timestamp("us", "UTC")
    elif kind.full_name in _WRAPPED:
        found = SCALARS[kind.fields_by_name["value"].type].arrow
    elif kind.full_name in inside:
        return None
    else:
        parts = [(part.name, _arrow(part, (*inside, kind.full_name))) for part in kind.fields]
        found = pa.struct([(name, part) for name, part in parts if part is not None])
    return pa.list_(found) if is_repeated(field) and found is not None else found
