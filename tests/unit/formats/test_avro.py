"""Messages of Avro: read as fastavro writes them, or refused with the reason."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import numpy as np
import pytest

from cep.errors import InputError
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.formats.lines import lines_of_objects
from cep.formats.payloads.registry import payload_format
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.stream import Field, Stream

TIME = datetime(2024, 5, 1, 12, tzinfo=UTC)
TIME_US = 1714564800000000
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


def record(*fields: Any, name: str = "E") -> dict[str, Any]:
    """Return a schema of fields, each a name and a type, or more of a field."""
    made = [item if isinstance(item, dict) else {"name": item[0], "type": item[1]} for item in fields]
    return {"type": "record", "name": name, "fields": made}


def stream(**columns: str) -> Stream:
    return Stream("s", tuple(Field(name, kind) for name, kind in columns.items()), next(iter(columns)))


def written(schema: Any, values: list[Any]) -> list[bytes]:
    parsed, found = fastavro.parse_schema(schema), []
    for value in values:
        content = io.BytesIO()
        fastavro.schemaless_writer(content, parsed, value)
        found.append(content.getvalue())
    return found


def framed(number: int, values: list[bytes]) -> list[bytes]:
    return [b"\0" + number.to_bytes(4, "big") + value for value in values]


@dataclass(frozen=True)
class Known:
    """Schemas by number, as a registry has them."""

    schemas: Mapping[int, str] = field(hash=False)

    def check(self) -> None:
        pass

    def schema(self, number: int, form: str = "") -> str | None:
        return self.schemas.get(number)


@pytest.fixture
def read(tmp_path: Path) -> Any:
    """Read messages of a schema, or of schemas by number."""

    def reading(
        of: Stream, schema: Any, values: list[bytes], known: dict[int, Any] | None = None, **settings: str
    ) -> Chunk:
        if schema is not None:
            settings["schema"] = str(tmp_path / "s.avsc")
            (tmp_path / "s.avsc").write_text(json.dumps(schema))
        texts = None if known is None else Known({at: json.dumps(item) for at, item in known.items()})
        reader = MessageReader(of, payload_format("avro", settings, texts))
        reader.check()
        messages = Messages("t[3]", values, 100 + 2 * np.arange(len(values)), {})
        return reader.chunk(messages, AheadGuard(of.max_ahead_us))

    return reading


def dead(chunk: Chunk) -> list[tuple[int, str]]:
    return [(row["position"], row["reason"]) for row in chunk.dead_letters.to_pylist()]


def rows(chunk: Chunk) -> list[Any]:
    return list(chunk.events.to_pylist())


def test_each_type_is_read_as_it_was_written(read: Any) -> None:
    schema = record(
        ("ts", MICROS),
        ("i", "int"),
        ("l", "long"),
        ("f", "float"),
        ("d", "double"),
        ("b", "boolean"),
        ("s", "string"),
        ("e", {"type": "enum", "name": "Colour", "symbols": ["RED", "GREEN"]}),
        ("x", {"type": "fixed", "name": "Two", "size": 2}),
        ("n", ["null", "string"]),
        ("m", ["long", "null"]),
        ("raw", "bytes"),
    )
    of = stream(
        ts="timestamp", i="int", l="bigint", f="float", d="double", b="boolean", s="string", e="string",
        x="binary", n="string", m="bigint", raw="binary",
    )  # fmt: skip
    one = {
        "ts": TIME, "i": -(1 << 31), "l": (1 << 63) - 1, "f": 0.1, "d": 0.1, "b": True, "s": "ä€𝄞",
        "e": "GREEN", "x": b"\xff\0", "n": None, "m": 7, "raw": b"\0\n\xff",
    }  # fmt: skip
    two = {
        **one,
        "i": 0,
        "l": -(1 << 63),
        "b": False,
        "s": "",
        "e": "RED",
        "n": "there",
        "m": None,
        "raw": b"",
    }
    chunk = read(of, schema, written(schema, [one, two]))
    texts = {"ts": TIME_US, "x": "/wA=", "raw": "AAr/", "f": pytest.approx(0.1, rel=1e-7)}
    assert dead(chunk) == []
    assert rows(chunk) == [{**one, **texts}, {**two, **texts, "raw": ""}]


@pytest.mark.parametrize("number", [0, 1, -1, 63, 64, -64, -65, 8191, 8192, 1 << 27, (1 << 55) - 1, 1 << 55,
                                    (1 << 56), -(1 << 56), 1 << 62, (1 << 63) - 1, -(1 << 63)])  # fmt: skip
def test_an_integer_of_any_length_is_read(read: Any, number: int) -> None:
    schema = record(("ts", MICROS), ("l", "long"), ("s", "string"))
    values = [{"ts": TIME, "l": at, "s": "x" * 70} for at in (number, 3, number)]
    chunk = read(stream(ts="timestamp", l="bigint", s="string"), schema, written(schema, values))
    assert [row["l"] for row in rows(chunk)] == [number, 3, number]


def test_a_decimal_may_have_38_digits(read: Any) -> None:
    most = Decimal("9" * 38)
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}
    schema = record(("ts", MICROS), ("n", kind))
    chunk = read(
        stream(ts="timestamp", n="decimal(38,0)"), schema, written(schema, [{"ts": TIME, "n": most}])
    )
    assert dead(chunk) == []
    assert rows(chunk) == [{"ts": TIME_US, "n": 1e38}]


def test_times_dates_decimals_and_ids_are_values(read: Any) -> None:
    schema = record(
        ("ts", {"type": "long", "logicalType": "timestamp-millis"}),
        ("nanos", {"type": "long", "logicalType": "timestamp-nanos"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}),
        ("fee", {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 8}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("uid", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}),
        ("count", "long"),
    )
    name = UUID("12345678-1234-5678-1234-567812345678")
    value = {
        "ts": TIME, "nanos": TIME_US * 1000 + 999, "local": datetime(2024, 5, 1, 12), "day": date(2024, 5, 1),
        "price": Decimal("-12.34"), "fee": Decimal(17), "id": str(name), "uid": name.bytes,
        "count": 1714564800,
    }  # fmt: skip
    plain = json.loads(json.dumps(schema))
    for at in (1, 7):  # fastavro writes these only as what they are made of
        plain["fields"][at]["type"].pop("logicalType")
    declared = dict.fromkeys(("ts", "nanos", "local"), "timestamp")
    of = stream(**declared, day="date", price="decimal(8,2)", fee="decimal(8,0)", id="string", uid="string")
    of = Stream("s", (*of.fields, Field("count", "timestamp", unit="seconds")), "ts")
    (row,) = rows(read(of, schema, written(plain, [value])))
    midnight = TIME_US - 12 * 3_600_000_000
    assert row == {
        "ts": TIME_US, "nanos": TIME_US, "local": TIME_US, "day": midnight, "price": -12.34, "fee": 17.0,
        "id": str(name), "uid": str(name), "count": TIME_US,
    }  # fmt: skip


def test_fields_inside_records_and_of_unions_have_a_path(read: Any) -> None:
    inner = record(("lat", "double"), ("zone", ["null", "string", "int"]), name="Place")
    schema = record(("ts", MICROS), ("place", ["null", inner]), ("v", ["long", "double", "null"]))
    fields = (
        Field("ts", "timestamp"),
        Field("lat", "double", path=("place", "lat")),
        Field("zone", "string", path=("place", "zone")),
        Field("v", "bigint"),
    )
    values = [
        {"ts": TIME, "place": {"lat": 1.5, "zone": "UTC"}, "v": 1},
        {"ts": TIME, "place": None, "v": None},
        {"ts": TIME, "place": {"lat": 2.5, "zone": None}, "v": 2},
        {"ts": TIME, "place": {"lat": 3.5, "zone": 7}, "v": 3},
        {"ts": TIME, "place": {"lat": 4.5, "zone": "CET"}, "v": 0.5},
    ]
    chunk = read(Stream("s", fields, "ts"), schema, written(schema, values))
    found = [(row["lat"], row["zone"], row["v"]) for row in rows(chunk)]
    assert found == [(1.5, "UTC", 1), (None, None, None), (2.5, None, 2)]
    assert dead(chunk) == [
        (106, "field `zone` is not of type string: 7"),
        (108, "field `v` is not of type bigint: 0.5"),
    ]


def test_arrays_maps_and_records_are_passed_on_as_json_or_over(read: Any) -> None:
    point = record(("x", "int"), ("at", MICROS), name="Point")
    schema = record(
        ("ts", MICROS),
        ("before", {"type": "array", "items": point}),
        ("tags", {"type": "map", "values": "long"}),
        ("other", {"type": "array", "items": ["null", "string"]}),
        ("point", "Point"),
        ("id", "long"),
    )
    points = [{"x": 1, "at": TIME}, {"x": -2, "at": TIME}]
    values = [
        {"ts": TIME, "before": points, "tags": {"a": 1}, "other": ["x", None], "point": points[0], "id": 1},
        {"ts": TIME, "before": [], "tags": {}, "other": [], "point": points[1], "id": 2},
    ]
    of = stream(ts="timestamp", before="array<struct<x:int,at:timestamp>>", tags="map<string,bigint>",
                point="struct<x:int>", id="bigint")  # fmt: skip
    chunk = read(of, schema, written(schema, values))
    at = "2024-05-01T12:00:00.000000Z"
    assert [(row["before"], row["tags"], row["point"], row["id"]) for row in rows(chunk)] == [
        (f'[{{"x":1,"at":"{at}"}},{{"x":-2,"at":"{at}"}}]', '{"a":1}', '{"x":1}', 1),
        ("[]", "{}", '{"x":-2}', 2),
    ]
    narrow = stream(ts="timestamp", id="bigint")
    assert [row["id"] for row in rows(read(narrow, schema, written(schema, values)))] == [1, 2]
    # A message that ends within an array, or has more of one than there are bytes for.
    hurt = [value[:-9] for value in written(schema, values)]
    assert rows(read(narrow, schema, hurt)) == []


def test_elements_of_arrays_have_an_index(read: Any) -> None:
    reading = record(("value", ["null", "double", "string"]), ("at", MICROS), name="Reading")
    schema = record(
        ("ts", MICROS),
        ("readings", ["null", {"type": "array", "items": reading}]),
        ("grid", {"type": "array", "items": {"type": "array", "items": "long"}}),
    )
    fields = (
        Field("ts", "timestamp"),
        Field("first", "double", path=("readings",), element=(0, "value")),
        Field("at", "timestamp", path=("readings",), element=(1, "at")),
        Field("cell", "int", path=("grid",), element=(1, 0)),
        Field("row", "array<bigint>", path=("grid",), element=(1,)),
    )
    values = [
        {
            "ts": TIME,
            "readings": [{"value": 1.5, "at": TIME}, {"value": None, "at": TIME}],
            "grid": [[1], [2, 3]],
        },
        {"ts": TIME, "readings": [], "grid": []},
        {"ts": TIME, "readings": None, "grid": [[], []]},
        {"ts": TIME, "readings": [{"value": "x", "at": TIME}], "grid": []},
        {"ts": TIME, "readings": [], "grid": [[], [2**40]]},
    ]
    of = Stream("s", fields, "ts")
    with pytest.raises(InputError, match="stream `s` declares int"):
        read(of, schema, [])
    of = Stream("s", (*fields[:3], Field("cell", "bigint", path=("grid",), element=(1, 0)), fields[4]), "ts")
    chunk = read(of, schema, written(schema, values))
    found = [(row["first"], row["at"], row["cell"], row["row"]) for row in rows(chunk)]
    nothing = (None, None, None, None)
    assert found == [
        (1.5, TIME_US, 2, "[2,3]"),
        nothing,
        (*nothing[:3], "[]"),
        (None, None, 2**40, f"[{2**40}]"),
    ]
    assert dead(chunk) == [(106, "field `first` is not of type double: 'x'")]


def test_what_is_no_record_is_a_dead_letter_in_base64(read: Any) -> None:
    schema = record(
        ("ts", MICROS), ("s", "string"), ("b", "boolean"), ("u", ["null", "int"]),
        ("e", {"type": "enum", "name": "C", "symbols": ["A", "B"]}),
    )  # fmt: skip
    (good,) = written(schema, [{"ts": TIME, "s": "ab", "b": True, "u": 5, "e": "B"}])
    head = good[: -len(b"\4ab\1\2\n\2")]
    hostile = {
        b"": "an empty message",
        good + b"\0": "bytes after the end of the record",
        good[:-1]: "the message ends within field `e`",
        head[:3]: "the message ends within field `ts`",
        head + b"\5ab\1\2\n\2": "field `s` has a length that no value has",
        head + b"\x40ab\1\2\n\2": "the message ends within field `s`",
        head + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fab": "the message ends within field `s`",
        head + b"\4ab\2\2\n\2": "field `b` is no boolean of Avro",
        head + b"\4ab\1\1\n\2": "field `u` is none of the types of its union",
        head + b"\4ab\1\4\n\2": "field `u` is none of the types of its union",
        head + b"\4ab\1\2\n\1": "field `e` is none of the symbols of its enum",
        head + b"\4ab\1\2\n\4": "field `e` is none of the symbols of its enum",
        head + b"\4ab\1\2" + b"\xff" * 9 + b"\2" + b"\2": "field `u` is no integer of Avro",
        head + b"\4ab\1\2\x80\x80\x80\x80\x10\2": "field `u` is no integer of Avro",
        head + b"\4a\xff\1\2\n\2": 'field `s` is not of type string: "a\N{REPLACEMENT CHARACTER}"',
    }
    of = stream(ts="timestamp", s="string", b="boolean", u="int", e="string")
    mixed = [value for bad in hostile for value in (good, bad)] + [good]
    chunk = read(of, schema, mixed)
    assert [row["u"] for row in rows(chunk)] == [5] * (len(hostile) + 1)
    assert dead(chunk) == [(102 + 4 * at, reason) for at, reason in enumerate(hostile.values())]
    raws = chunk.dead_letters.column("raw").to_pylist()
    assert [base64.b64decode(raw) for raw in raws] == list(hostile)
    assert set(chunk.dead_letters.column("source").to_pylist()) == {"t[3]"}


def test_a_schema_that_does_not_fit_is_refused_before_anything_is_read(read: Any) -> None:
    schema = record(("ts", "long"), ("id", "string"))
    with pytest.raises(InputError) as caught:
        read(stream(ts="timestamp", id="string"), schema, [])
    assert (
        caught.value.code,
        caught.value.args[0].replace(str(caught.value.args[0]).split("`")[3], "F"),
    ) == (
        "E0891",
        "field `ts` of the schema `F` is long, stream `s` declares timestamp",
    )
    with pytest.raises(InputError, match="has no `other`, which stream `s` declares"):
        read(stream(id="string", other="bigint"), schema, [])


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("{", "cannot be used"),
        ('"long"', "is not the schema of a record"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x", "type": "nothing"}]}', "cannot be used"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":["null","R"]}]}', "contains itself"),
        ('{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"array","items":"null"}}]}',
         "without a byte"),
    ],
)  # fmt: skip
def test_a_schema_that_is_none_or_bottomless_is_refused(tmp_path: Path, schema: str, said: str) -> None:
    (tmp_path / "s.avsc").write_text(schema)
    with pytest.raises(InputError, match=said) as caught:
        payload_format("avro", {"schema": str(tmp_path / "s.avsc")})
    assert caught.value.code == "E0890"


def test_each_message_is_read_by_the_schema_whose_number_it_has(read: Any) -> None:
    old = record(("ts", MICROS), ("card", "string"))
    new = record(
        ("note", "string"), ("ts", {"type": "long", "logicalType": "timestamp-millis"}),
        ("card_id", "string"), ("amount", "int"),
    )  # fmt: skip
    wanted = record(
        ("ts", MICROS),
        {"name": "card_id", "type": "string", "aliases": ["card"]},
        {"name": "amount", "type": ["long", "null"], "default": 7},
    )
    wrong = record(("ts", MICROS), ("card_id", "double"), ("amount", "int"))
    first = framed(1, written(old, [{"ts": TIME, "card": card} for card in ("a", "b")]))
    second = framed(70_000, written(new, [{"note": "x", "ts": TIME, "card_id": "c", "amount": 2}]))
    third = framed(3, written(wrong, [{"ts": TIME, "card_id": 1.5, "amount": 2}]))
    values = [first[0], *second, *third, *framed(9, [b"?"]), b"\1\0\0\0\1", b"\0\0", b"", first[1]]
    known = {1: old, 70_000: new, 3: wrong}
    of = stream(ts="timestamp", card_id="string", amount="bigint")
    chunk = read(of, wanted, values, known)
    assert [(row["ts"], row["card_id"], row["amount"]) for row in rows(chunk)] == [
        (TIME_US, "a", 7), (TIME_US, "c", 2), (TIME_US, "b", 7),
    ]  # fmt: skip
    no_frame = "no schema's number: the first byte is not 0"
    assert dead(chunk) == [
        (104, "field `card_id` of schema 3 is double, stream `s` declares string"),
        (106, "schema 9 is not in the registry"),
        (108, no_frame),
        (110, "no schema's number: the message has fewer than 5 bytes"),
        (112, "an empty message"),
    ]
    # Without a schema of the reader, what a message lacks is NULL.
    alone = read(stream(ts="timestamp", card="string", amount="bigint"), None, values, known)
    assert [(row["card"], row["amount"]) for row in rows(alone)] == [
        ("a", None), (None, 2), (None, 2), ("b", None),
    ]  # fmt: skip


def test_frames_are_passed_over_where_a_schema_is_given(read: Any) -> None:
    schema = record(
        ("ts", MICROS),
    )
    values = framed(17, written(schema, [{"ts": TIME}]))
    chunk = read(stream(ts="timestamp"), schema, [*values, values[0][5:]], framing="confluent")
    assert [row["ts"] for row in rows(chunk)] == [TIME_US]
    assert dead(chunk) == [(102, "no schema's number: the first byte is not 0")]


def _random_type(chance: random.Random, depth: int, names: list[int]) -> Any:
    simple = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
    names[0] += 1
    number = names[0]
    match chance.randrange(9 if depth else 6):
        case 0 | 1 | 2 | 3:
            return chance.choice(simple)
        case 4:
            return {
                "type": "enum",
                "name": f"e{number}",
                "symbols": ["A", "B", "C"][: chance.randint(1, 3)],
            }
        case 5:
            return {"type": "fixed", "name": f"f{number}", "size": chance.randint(0, 9)}
        case 6:
            kinds = chance.sample(simple, chance.randint(1, 4))
            return [*kinds, {"type": "enum", "name": f"e{number}", "symbols": ["A"]}]
        case 7:
            items = _random_type(chance, 0, names)
            is_list = chance.random() < 0.5 and items not in ("null",) and "fixed" not in str(items)
            return {"type": "array", "items": items} if is_list else {"type": "map", "values": items}
        case _:
            parts = [(f"p{at}", _random_type(chance, depth - 1, names)) for at in range(chance.randint(0, 3))]
            return record(*parts, name=f"r{number}")


def _random_value(chance: random.Random, kind: Any) -> Any:  # noqa: C901, PLR0912 - a line for each type
    if isinstance(kind, list):
        return _random_value(chance, chance.choice(kind))
    match kind if isinstance(kind, str) else kind["type"]:
        case "null":
            return None
        case "boolean":
            return chance.random() < 0.5
        case "int":
            return chance.randint(-(1 << 31), (1 << 31) - 1) >> chance.randrange(32)
        case "long":
            return chance.randint(-(1 << 63), (1 << 63) - 1) >> chance.randrange(64)
        case "float" | "double":
            return float(chance.randint(-1000, 1000)) / 8
        case "bytes":
            return chance.randbytes(chance.choice([0, 1, 5, 70]))
        case "string":
            return "aä€"[: chance.randrange(4)] * chance.choice([1, 1, 30])
        case "enum":
            return chance.choice(kind["symbols"])
        case "fixed":
            return chance.randbytes(kind["size"])
        case "array":
            return [_random_value(chance, kind["items"]) for _ in range(chance.randrange(4))]
        case "map":
            return {str(at): _random_value(chance, kind["values"]) for at in range(chance.randrange(4))}
        case _:
            return {part["name"]: _random_value(chance, part["type"]) for part in kind["fields"]}


_DECLARED = {"boolean": "boolean", "int": "int", "long": "bigint", "float": "double", "double": "double",
             "string": "string", "enum": "string"}  # fmt: skip


@pytest.mark.parametrize("seed", range(60))
def test_random_records_are_what_fastavro_reads_and_cut_ones_are_refused(seed: int, read: Any) -> None:
    chance = random.Random(seed)
    parts = [(f"f{at}", _random_type(chance, 2, [at * 100])) for at in range(chance.randint(1, 6))]
    schema = record(*parts, ("ts", "long"))
    fields = [Field("ts", "timestamp", unit="microseconds")]
    for name, kind in parts:
        word = kind if isinstance(kind, str) else "" if isinstance(kind, list) else kind["type"]
        if word in _DECLARED:
            fields.append(Field(name, _DECLARED[word]))
    of = Stream("s", tuple(fields), "ts")
    values = [
        {**{name: _random_value(chance, kind) for name, kind in parts}, "ts": TIME_US} for _ in range(30)
    ]
    content = written(schema, values)
    parsed = fastavro.parse_schema(schema)
    expected: list[Any] = [fastavro.schemaless_reader(io.BytesIO(value), parsed, None) for value in content]
    wanted = [{item.name: row[item.name] for item in fields} for row in expected]
    chunk = read(of, schema, content)
    assert dead(chunk) == []
    assert rows(chunk) == wanted
    # Cut anywhere, a message is refused: no byte of a record can be left away.
    cut = [value[: chance.randrange(len(value))] for value in content]
    mixed = [value for pair in zip(cut, content, strict=True) for value in pair]
    chunk = read(of, schema, mixed)
    assert rows(chunk) == wanted
    assert [at for at, _ in dead(chunk)] == [100 + 4 * at for at in range(len(cut))]
    # The same alone and among others, as objects and as a block.
    block = read(of, schema, lines_of_objects(mixed))
    assert (rows(block), dead(block)) == (rows(chunk), dead(chunk))
    for at in range(0, len(mixed), 13):
        alone = read(of, schema, mixed[at : at + 1])
        assert rows(alone) == ([wanted[at // 2]] if at % 2 else [])
