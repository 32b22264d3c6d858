"""Messages of Protocol Buffers: read as protobuf's own parser reads them, or refused with the reason."""

from __future__ import annotations

import base64
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2, wrappers_pb2

from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.formats.payloads.protobuf_types import is_repeated
from cep.formats.payloads.registry import payload_format
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.stream import Field, Stream
from tests.unit.formats.test_avro import Known, dead, rows, stream

F = descriptor_pb2.FieldDescriptorProto
TIME_US = 1714564800123456
SCALARS = {
    "double": F.TYPE_DOUBLE, "float": F.TYPE_FLOAT, "int64": F.TYPE_INT64, "uint64": F.TYPE_UINT64,
    "int32": F.TYPE_INT32, "fixed64": F.TYPE_FIXED64, "fixed32": F.TYPE_FIXED32, "bool": F.TYPE_BOOL,
    "string": F.TYPE_STRING, "bytes": F.TYPE_BYTES, "uint32": F.TYPE_UINT32, "sfixed32": F.TYPE_SFIXED32,
    "sfixed64": F.TYPE_SFIXED64, "sint32": F.TYPE_SINT32, "sint64": F.TYPE_SINT64,
}  # fmt: skip
DECLARED = {
    "double": "double", "float": "double", "int64": "bigint", "uint64": "bigint", "int32": "int",
    "fixed64": "bigint", "fixed32": "bigint", "bool": "boolean", "string": "string", "bytes": "binary",
    "uint32": "bigint", "sfixed32": "int", "sfixed64": "bigint", "sint32": "int", "sint64": "bigint",
}  # fmt: skip
TIMESTAMP = ".google.protobuf.Timestamp"


def message(into: Any, name: str, **fields: str) -> Any:
    """Add a type of messages. A field is a scalar, or the name of a type; `?` optional, `*` repeated."""
    made = into.add(name=name)
    for number, (field, kind) in enumerate(fields.items(), 1):
        word = kind.rstrip("?*")
        item = made.field.add(name=field, number=number, label=F.LABEL_OPTIONAL)
        if kind.endswith("*"):
            item.label = F.LABEL_REPEATED
        if word in SCALARS:
            item.type = SCALARS[word]
        else:
            item.type = F.TYPE_ENUM if word.endswith("Colour") else F.TYPE_MESSAGE
            item.type_name = word
        if kind.endswith("?"):
            item.proto3_optional, item.oneof_index = True, len(made.oneof_decl)
            made.oneof_decl.add(name=f"_{field}")
    return made


def file_of(syntax: str = "proto3") -> Any:
    made = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax=syntax)
    made.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    colour = made.enum_type.add(name="Colour")
    for number, name in enumerate(("RED", "GREEN")):
        colour.value.add(name=name, number=number)
    return made


def set_of(file: Any) -> bytes:
    found = descriptor_pb2.FileDescriptorSet()
    for known in (timestamp_pb2, wrappers_pb2):
        known.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.add().CopyFrom(file)
    return bytes(found.SerializeToString())


def types_of(file: Any) -> Any:
    """Return the classes of the messages of a file, by name."""
    pool = descriptor_pool.DescriptorPool()
    for known in descriptor_pb2.FileDescriptorSet.FromString(set_of(file)).file:
        pool.Add(known)
    made = pool.FindFileByName("shop.proto").message_types_by_name
    return {name: message_factory.GetMessageClass(kind) for name, kind in made.items()}


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read messages of a type, or by schemas that have numbers."""

    def reading(
        of: Stream, file: Any, values: list[bytes], known: dict[int, str] | None = None, **settings: str
    ) -> Chunk:
        if file is not None:
            settings["descriptor"] = str(tmp_path / "s.desc")
            (tmp_path / "s.desc").write_bytes(set_of(file))
        reader = MessageReader(of, payload_format("protobuf", settings, Known(known) if known else None))
        reader.check()
        messages = Messages("t[3]", values, 100 + 2 * np.arange(len(values)), {})
        return reader.chunk(messages, AheadGuard(of.max_ahead_us))

    return reading


def test_each_type_is_read_and_what_is_not_there_is_its_default_or_null(read: Any) -> None:
    file = file_of()
    simple = {word: word for word in SCALARS}
    message(file.message_type, "Order", ts=TIMESTAMP, colour=".shop.Colour", note="string?",
            wrapped=".google.protobuf.Int64Value", **simple)  # fmt: skip
    order = types_of(file)["Order"]
    of = stream(ts="timestamp", colour="string", note="string", wrapped="bigint", **DECLARED)
    big, wide = (1 << 63) - 1, (1 << 32) - 1
    values = {
        "double": 0.1, "float": 0.5, "int64": -big - 1, "uint64": big, "int32": -(1 << 31), "fixed64": 7,
        "fixed32": wide, "bool": True, "string": "ä𝄞", "bytes": b"\xff", "uint32": wide, "sfixed32": -1,
        "sfixed64": -2, "sint32": -3, "sint64": big,
    }  # fmt: skip
    full = order(colour=1, note="", **values)
    full.ts.FromMicroseconds(TIME_US)
    full.wrapped.value = 0
    bare = order()
    bare.ts.FromMicroseconds(TIME_US)
    unknown = order(colour=9)
    unknown.ts.FromMicroseconds(TIME_US)
    chunk = read(of, file, [item.SerializeToString() for item in (full, bare, unknown)])
    assert dead(chunk) == []
    first, second, third = rows(chunk)
    assert first == {"ts": TIME_US, "colour": "GREEN", "note": "", "wrapped": 0, **values, "bytes": "/w=="}
    nothing = {"double": 0.0, "float": 0.0, "bool": False, "string": "", "bytes": ""}
    assert second == {
        "ts": TIME_US, "colour": "RED", "note": None, "wrapped": None, **dict.fromkeys(values, 0), **nothing
    }  # fmt: skip
    assert third["colour"] == "9"


def test_fields_inside_messages_have_a_path_and_whole_ones_are_json(read: Any) -> None:
    file = file_of()
    message(file.message_type, "Order", id="int64", place=".shop.Place", items=".shop.Place*", tags="string*",
            colour=".shop.Colour", at=TIMESTAMP)  # fmt: skip
    message(file.message_type, "Place", lat="double", zone="string?", at=TIMESTAMP)
    order = types_of(file)["Order"]
    of = Stream("s", (
        Field("at", "timestamp"), Field("lat", "double", path=("place", "lat")), Field("colour", "bigint"),
        Field("zone", "string", path=("place", "zone")), Field("place", "struct<lat:double,at:timestamp>"),
        Field("items", "array<struct<lat:double,zone:string>>"), Field("tags", "array<string>"),
    ), "at")  # fmt: skip
    one, two = order(colour=1, tags=["a", "b"]), order()
    one.at.FromMicroseconds(TIME_US)
    two.at.FromMicroseconds(TIME_US)
    one.place.lat = 1.5
    one.place.at.FromMicroseconds(TIME_US)
    one.items.add(lat=2.5, zone="x")
    chunk = read(of, file, [one.SerializeToString(), two.SerializeToString()], message="shop.Order")
    assert rows(chunk) == [
        {"at": TIME_US, "lat": 1.5, "colour": 1, "zone": None, "tags": '["a","b"]',
         "place": '{"lat":1.5,"at":"2024-05-01T12:00:00.123456Z"}', "items": '[{"lat":2.5,"zone":"x"}]'},
        {"at": TIME_US, "lat": None, "colour": 0, "zone": None, "place": None, "items": "[]", "tags": "[]"},
    ]  # fmt: skip


def test_elements_of_repeated_fields_have_an_index(read: Any) -> None:
    file = file_of()
    message(file.message_type, "Item", price="double?", sku="string")
    message(file.message_type, "Order", ts=TIMESTAMP, items=".shop.Item*", tags="string*")
    order = types_of(file)["Order"]
    fields = (
        Field("ts", "timestamp"),
        Field("price", "double", path=("items",), element=(1, "price")),
        Field("item", "struct<sku: string>", path=("items",), element=(0,)),
        Field("tag", "string", path=("tags",), element=(0,)),
    )
    time = datetime(2024, 5, 1, 10)
    values = [
        order(ts=time, items=[{"sku": "a"}, {"price": 2.5}], tags=["t"]),
        order(ts=time, items=[{"sku": "b"}]),
        order(ts=time),
    ] * 30
    chunk = read(
        Stream("s", fields, "ts"), file, [value.SerializeToString() for value in values], message="shop.Order"
    )
    assert dead(chunk) == []
    found = [(row["price"], row["item"], row["tag"]) for row in rows(chunk)]
    assert found == [(2.5, '{"sku":"a"}', "t"), (None, '{"sku":"b"}', None), (None, None, None)] * 30
    with pytest.raises(InputError, match=r"has no `tags\[0\].x`"):
        read(
            Stream("s", (Field("x", "double", path=("tags",), element=(0, "x")),), "x"),
            file,
            [],
            message="shop.Order",
        )


def test_what_is_no_message_is_a_dead_letter_in_base64(read: Any) -> None:
    file = file_of("proto2")
    message(file.message_type, "Order", at=TIMESTAMP, id="uint64", note="string")
    order = types_of(file)["Order"]
    good = order(id=1)
    good.at.FromMicroseconds(TIME_US)
    head = good.at.SerializeToString()
    head = b"\x0a" + bytes([len(head)]) + head
    huge = b"\x0a\x0c\x08" + b"\xff" * 8 + b"\x7f" + b"\x10\x01"
    hostile = {
        b"\x08": "not a message of shop.Order",
        b"\x0a\x7f": "not a message of shop.Order",
        b"{}": "not a message of shop.Order",
        b"": "an empty message",
        head + b"\x10" + b"\xff" * 9 + b"\x01": "field `id` is not of type bigint: 18446744073709551615",
        head + b"\x1a\x01\xff": "field `note` is not of type string: bytes that are not UTF-8 text",
        huge: f"field `at` is not of type timestamp: {(1 << 63) - 1} seconds and 1 nanoseconds since 1970",
        b"\x10\x05": "event time `at` is NULL",
    }
    values = [item for bad in hostile for item in (good.SerializeToString(), bad)]
    chunk = read(stream(at="timestamp", id="bigint", note="string"), file, values)
    assert [(row["id"], row["note"]) for row in rows(chunk)] == [(1, None)] * len(hostile)
    assert dead(chunk) == [(102 + 4 * at, reason) for at, reason in enumerate(hostile.values())]
    raws = chunk.dead_letters.column("raw").to_pylist()
    assert [base64.b64decode(raw) for raw in raws] == list(hostile)


def test_a_descriptor_that_does_not_fit_is_refused_before_anything_is_read(read: Any, tmp_path: Path) -> None:
    file = file_of()
    message(file.message_type, "Order", at="int64", id="string")
    message(file.message_type, "Other", at="int64")

    def refused(of: Stream, **settings: str) -> tuple[str, str]:
        with pytest.raises(InputError) as caught:
            read(of, file, [], **settings)
        return caught.value.code, str(caught.value.args[0]).replace(str(tmp_path / "s.desc"), "F")

    of = stream(at="timestamp", id="string")
    assert refused(of) == ("E0890", "the descriptor `F` has several messages")
    assert refused(of, message="shop.No") == ("E0890", "the descriptor `F` has no message `shop.No`")
    assert refused(of, message="shop.Order") == (
        "E0891", "field `at` of the descriptor `F` is int64, stream `s` declares timestamp",
    )  # fmt: skip
    assert refused(stream(at="bigint", ip="string"), message="shop.Order") == (
        "E0891", "the descriptor `F` has no `ip`, which stream `s` declares",
    )  # fmt: skip
    assert refused(of, message="shop.Order", schema="x") == (
        "E0828", "values of the format protobuf have no setting `schema`",
    )  # fmt: skip
    (tmp_path / "x").write_text("not a descriptor")
    with pytest.raises(InputError, match="cannot be used") as caught:
        payload_format("protobuf", {"descriptor": str(tmp_path / "x")})
    assert caught.value.code == "E0890"
    alone = descriptor_pb2.FileDescriptorSet(
        file=[descriptor_pb2.FileDescriptorProto(name="a", dependency=["b"])]
    )
    (tmp_path / "x").write_bytes(alone.SerializeToString())
    with pytest.raises(InputError, match="it refers to `b`, which is not in it"):
        payload_format("protobuf", {"descriptor": str(tmp_path / "x")})


def test_frames_say_the_schema_and_the_type(read: Any) -> None:
    file = file_of()
    message(file.message_type, "Other", at=TIMESTAMP)
    outer = message(file.message_type, "Outer", at=TIMESTAMP)
    message(outer.nested_type, "Order", at=TIMESTAMP, id="int64")
    message(outer.nested_type, "Later", id="string", at=TIMESTAMP)
    other = types_of(file)["Outer"]()
    other.at.FromMicroseconds(TIME_US)
    body = b"\x0a" + bytes([other.at.ByteSize()]) + other.at.SerializeToString()
    at = body[2:]
    later = b"\x0a\x01x\x12" + bytes([len(at)]) + at
    # The indices of a message: how many, then each, twice the number as a varint. One 0 stands for [0].
    frame = b"\0\0\0\0\x07"
    values = [
        frame + b"\x04\x02\x00" + body + b"\x10\x05",
        frame + b"\x00" + body,
        frame + b"\x04\x02\x02" + later,
        frame + b"\x04\x02",
        frame + b"\x02\x12" + body,
        b"\0\0\0\0\x08\x00" + body,
        b"",
        b"\x01" + frame,
        frame + b"\x04\x02\x00" + b"\x08",
        b"\0",
    ]
    of = stream(at="timestamp", id="bigint")
    chunk = read(of, file, values, message="shop.Outer.Order", framing="confluent")
    assert [(row["at"], row["id"]) for row in rows(chunk)] == [(TIME_US, 5)]
    no_frame, wanted = "no schema's number: the first byte is not 0", "where shop.Outer.Order is declared"
    assert dead(chunk) == [
        (102, f"a shop.Other {wanted}"),
        (104, f"a shop.Outer.Later {wanted}"),
        (106, "no index of a message behind the number of its schema"),
        (108, f"a message 9 {wanted}"),
        (110, f"a shop.Other {wanted}"),
        (112, "an empty message"),
        (114, no_frame),
        (116, "not a message of shop.Outer.Order"),
        (118, "no schema's number: the message has fewer than 5 bytes"),
    ]
    # A registry gives the descriptor itself, and each message is read as the type that its frame says.
    known = {7: base64.b64encode(file.SerializeToString()).decode()}
    chunk = read(of, None, values, known)
    assert [(row["at"], row["id"]) for row in rows(chunk)] == [(TIME_US, 5)]
    lacking = "schema 7 has no `id`, which stream `s` declares"
    assert dict(dead(chunk)) | {108: "", 106: ""} == {
        102: lacking,
        104: "field `id` of schema 7 is string, stream `s` declares bigint",
        106: "",
        108: "",
        110: "schema 8 is not in the registry",
        112: "an empty message",
        114: no_frame,
        116: "not a message of shop.Outer.Order",
        118: "no schema's number: the message has fewer than 5 bytes",
    }


def _all_kinds(syntax: str) -> Any:
    """A type with about everything in it, of which a stream wants the plain fields."""
    file = file_of(syntax)
    mark = "?" if syntax == "proto3" else ""
    fields = {
        "at": TIMESTAMP, "place": ".shop.Place", "colour": ".shop.Colour", "note": f"string{mark}",
        "wrapped": ".google.protobuf.StringValue", "many": "sint64*", "places": ".shop.Place*",
        "tags": "string*", "other": ".shop.Place", "one": "string", "two": "int32", "three": ".shop.Place",
    }  # fmt: skip
    made = message(file.message_type, "Order", **fields, **{word: word for word in SCALARS})
    made.oneof_decl.insert(0, descriptor_pb2.OneofDescriptorProto(name="choice"))
    for field in made.field:
        if field.name in ("one", "two", "three"):
            field.oneof_index = 0
        elif field.proto3_optional:
            field.oneof_index += 1
    message(file.message_type, "Place", lat="double", zone=f"string{mark}", at=TIMESTAMP, inner=".shop.Place")
    return file


def _filled(random: Random, made: Any, depth: int = 0) -> Any:
    """Fill some fields of a message."""
    for field in made.DESCRIPTOR.fields:
        # Most messages are such that none of their fields is left to the parser.
        if random.random() < (0.95 if field.name == "many" else 0.35):
            continue
        if field.message_type is None:
            values = [_random_scalar(random, field) for _ in range(random.randrange(3))]
            if is_repeated(field):
                getattr(made, field.name).extend(values)
            elif values:
                setattr(made, field.name, values[0])
        elif is_repeated(field):
            getattr(made, field.name).add()
        elif field.message_type.name == "Timestamp":
            made.at.FromMicroseconds(TIME_US + random.randrange(10**9))
        elif depth < 3:
            getattr(made, field.name).SetInParent()
            _filled(random, getattr(made, field.name), depth + 1)
    return made


def _random_scalar(random: Random, field: Any) -> Any:
    if field.type == F.TYPE_STRING:
        return random.choice(("", "a", "ä𝄞", "x" * 200))
    if field.type == F.TYPE_BYTES:
        return random.randbytes(random.randrange(5))
    if field.type in (F.TYPE_DOUBLE, F.TYPE_FLOAT):
        return random.choice((0.0, -0.0, 1.5, -2.5))
    if field.type in (F.TYPE_BOOL, F.TYPE_ENUM):
        return random.randrange(2)
    bits = 64 if "64" in field.name else 32
    is_unsigned = field.type in (F.TYPE_UINT32, F.TYPE_UINT64, F.TYPE_FIXED32, F.TYPE_FIXED64)
    low, end = (0, 1 << bits) if is_unsigned else (-(1 << bits - 1), 1 << bits - 1)
    end >>= is_unsigned and random.random() < 0.97
    return random.choice((0, 1, low, end - 1, random.randrange(low, end)))


def _changed(random: Random, values: list[bytes]) -> bytes:
    value = random.choice(values)
    match random.randrange(9):
        case 0:  # merged: the last value counts, and members of a oneof undo each other
            return value + random.choice(values)
        case 1:
            return value[: random.randrange(len(value) + 1)]
        case 2 if value:
            at = random.randrange(len(value))
            return value[:at] + random.randbytes(1) + value[at + 1 :]
        case 3:  # a field that nobody knows, a group, a colour without a name, a number of ten bytes
            more = (
                b"\xf8\x3f\x01",
                b"\xfb\x3f\xfc\x3f",
                b"\x18\x09",
                b"\x18" + b"\xff" * 9 + b"\x01",
                b"\x00\x00",
            )
            return value + random.choice(more)
        case _:
            return value


@pytest.mark.parametrize("syntax", ["proto2", "proto3"])
def test_columns_are_read_as_the_parser_reads_messages(
    read: Any, syntax: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, random = _all_kinds(syntax), Random(f"columns {syntax}")
    order = types_of(file)["Order"]
    of = Stream("s", (
        Field("at", "timestamp"), Field("lat", "double", path=("place", "lat")), Field("colour", "string"),
        Field("zone", "string", path=("place", "zone")), Field("seen", "timestamp", path=("other", "at")),
        Field("deep", "string", path=("place", "inner", "zone")), Field("note", "string"),
        Field("wrapped", "string"), Field("one", "string"), Field("two", "int"),
        Field("three", "double", path=("three", "lat")), *(Field(*item) for item in DECLARED.items()),
    ), "at", max_ahead_us=1 << 60)  # fmt: skip
    for _ in range(60):
        whole = [_filled(random, order()).SerializeToString() for _ in range(20)]
        values = [_changed(random, whole) for _ in range(random.choice((3, 80)))]
        chunks = []
        for fewest in (random.choice((0, 64)), 1_000):
            for module in ("protobuf", "protobuf_columns"):
                monkeypatch.setattr(f"cep.formats.payloads.{module}.FEWEST", fewest)
            chunks.append(read(of, file, values, message="shop.Order"))
        columns, parsed = chunks
        assert dead(columns) == dead(parsed)
        assert columns.events.num_rows == parsed.events.num_rows
        for name in parsed.events.column_names:
            assert repr(columns.events[name].to_pylist()) == repr(parsed.events[name].to_pylist()), name
