"""Random odd streams, and random hostile files for them: lines, rows, bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa

from cep.expression import Type
from cep.schema.stream import DDL_TYPES, UNITS, CsvLayout, Field, Stream
from cep.schema.text_values import NUMBER_WORDS
from cep.schema.time_values import END_US, FIRST_US
from tests.property.hostile_text import damage_bytes

NAMES = ("id", "k", "x", "Ä ö", "a.b", "n", "N", "#", "payload", "日本", "x" * 60, "\\", "'")

OPAQUE = (
    "array<string>",
    "array<double>",
    "array<array<int>>",
    "struct<id:bigint,at:timestamp,day:date,cost:decimal(10,2),f:float>",
    "struct<a:boolean,b:array<struct<x:tinyint>>>",
    "map<string,bigint>",
    "map<int,double>",
    "binary",
)

FORMATS = (
    "%d/%m/%Y %H:%M:%S",
    "%Y%m%d%H%M%S",
    "%m/%d/%y %I:%M %p",
    "%a, %d %b %Y %H:%M:%S %z",
    "%Y-%m-%dT%H:%M:%S.%f%z",
    "%d. %B %Y",
    "%%%Y|%m|%d\\%H",
)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC")

LAYOUTS = (
    CsvLayout(),
    CsvLayout(delimiter=";"),
    CsvLayout(delimiter="\t", quote=""),
    CsvLayout(delimiter="|", quote="'"),
    CsvLayout(has_header=False),
    CsvLayout(delimiter=";", encoding="iso8859-1"),
    CsvLayout(encoding="cp1252"),
    CsvLayout(encoding="utf-16"),
    CsvLayout(delimiter="^", quote="]"),
    CsvLayout(delimiter=";", decimal=",", thousands="."),
    CsvLayout(decimal=",", thousands="\u202f"),
    CsvLayout(delimiter=";", thousands="'"),
)

# ---------------------------------------------------------------- streams


def draw_stream(random: Random, *, is_csv: bool = False) -> Stream:
    """Return a stream with columns of all types and forms, or only those of CSV files if `is_csv`."""
    fields = [_time_field(random, "ts")]
    for name in random.sample(NAMES, random.randint(1, 6)):
        ddl = random.choice((*DDL_TYPES, "decimal(10,2)", "timestamp", "double", "bigint", "string"))
        if not is_csv and random.random() < 0.05:
            ddl = random.choice(OPAQUE)
        if ddl in ("timestamp", "date"):
            fields.append(_time_field(random, name, ddl))
            continue
        path: tuple[str, ...] = ()
        if random.random() < 0.2:
            path = random.choice((("n", name), ("n", "m", name), ("Other",), (name, name)))
        element: tuple[str | int, ...] = ()
        if not is_csv and random.random() < 0.02:
            element = random.choice(((0,), (1, "x"), (0, 2)))
        fields.append(Field(name, ddl, path=path, element=element))
    random.shuffle(fields)
    # The limit `max_ahead` depends on which events are read together, so on the portions of a file. This
    # value switches it off.
    stream = Stream("s", tuple(fields), "ts", max_ahead_us=END_US - FIRST_US)
    return replace(stream, csv=random.choice(LAYOUTS)) if is_csv else stream


def _time_field(random: Random, name: str, ddl: str = "timestamp") -> Field:
    match random.randrange(6):
        case 0 if ddl == "timestamp":
            return Field(name, ddl, unit=random.choice(tuple(UNITS)))
        case 1:
            text = random.choice(FORMATS) if ddl == "timestamp" else "%d. %B %Y"
            zone = random.choice(ZONES) if "%z" not in text and ddl == "timestamp" else ""
            return Field(name, ddl, format=text, zone=zone)
        case 2 if ddl == "timestamp":
            return Field(name, ddl, zone=random.choice(ZONES))
        case _:
            return Field(name, ddl)


# ---------------------------------------------------------------- values

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def good_text(field: Field, random: Random) -> str:
    """Return a value of a column as CSV writes it."""
    match field.type:
        case Type.BOOLEAN:
            return random.choice(("true", "false"))
        case Type.BIGINT:
            return str(random.randint(-100, 100))
        case Type.DOUBLE:
            return random.choice(("1.5", "-2", "0.1", "1e3", "12345.678", "-0.0", "1e308", *NUMBER_WORDS))
        case Type.STRING:
            return random.choice(("a", "card 7", "Zoë", "x" * 30, "1"))
        case Type.TIMESTAMP if field.unit:
            factor, divisor = UNITS[field.unit]
            return str(random.randint(10**15, 2 * 10**15) * divisor // factor)
        case Type.TIMESTAMP:
            time = _EPOCH + timedelta(seconds=random.randint(10**9, 2 * 10**9))
            if field.format:
                return time.strftime(field.format.replace("%z", "Z"))
            return f"{time:%Y-%m-%d}" if field.ddl == "date" else f"{time:%Y-%m-%dT%H:%M:%SZ}"
        case _:
            return json.dumps(_tree(field.ddl))


def _tree(ddl: str) -> object:
    if ddl == "binary":
        return base64.b64encode(b"\0\xff").decode()
    return [] if ddl.startswith("array") else {}


def good_json(field: Field, random: Random) -> str:
    """Return a value of a column as JSON writes it."""
    text = good_text(field, random)
    is_text = field.type is Type.STRING or (field.type is Type.TIMESTAMP and not field.unit)
    is_text = is_text or (text in NUMBER_WORDS and random.random() < 0.7)
    return json.dumps(text, ensure_ascii=random.random() < 0.5) if is_text else text


# fmt: off
_NUMBERS = (
    "0", "-0", "-0.0", "1", "-1", "127", "128", "-129", "32768", "2147483648", "-2147483649",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
    "9007199254740993", "9007199254740993.0", "1e3", "1E+05", "1e-7", "1.0", "0.1", "1.5", "1e400", "-1e400",
    "1e-400", "4.9e-324", "2.4703282292062327e-324", "1.7976931348623159e308", "3.4028236e38", "16777217",
    "1" * 20, "1" * 310, "-" + "9" * 400, "9" * 5000, "0." + "1" * 400, "1e99999999999999999999",
    "1714557607", "1714557607.123456", "1714557607123", "1714557607123456", "1714557607123456789",
    "-62135596801", "253402300800", "9223372036854", "9223372036855", "-9223372036855", "0.5", "1.9999999",
)
_NO_NUMBERS = (
    "NaN", "Infinity", "-Infinity", "-NaN", "Inf", "-Inf", "nan", "inf", "+1", "01", "-01", "1.", ".5", "-",
    "--1", "1e", "1e+", "0x1F", "1_000", "1,000", " 1", "1 ", "\u0663", "1\0", "True", "TRUE", "yes", "tru",
    "nul", "", "1,5", "1.234,5", "1.234.567", "12.34,5", "1.2345", ",5", "5,", "1'234.5", "1,234.5e3", "1.,5",
)
_BARE_WORDS = ("NaN", "Infinity", "-Infinity", "-NaN", "Inf", "-Inf", "+Infinity", "nan", "Infinit")
_TIMES = (
    "2024-05-01", "2024-05-01T10:00", "2024-05-01 10:00:00.123456789", "2024-05-01T24:00", "2024-02-29",
    "2023-02-29", "2024-02-30", "2024-04-31", "0000-01-01", "0001-01-01", "9999-12-31T23:59:59.999999Z",
    "2024-05-01T10:00+24:00", "2024-05-01T10:00+23:59", "2024-05-01T10:00-2359", "2024-05-01T10:00+02:60",
    "0001-01-01T00:00+02:00", "9999-12-31T23:59-23:59", "2024-05-01T10:00:60", "2024-13-01", "2024-00-10",
    "2024-03-31T02:30", "2024-10-27T02:30", "2024-05-01T10:00:00,5", "2024-05-01t10:00z", "20240501",
    "2024-W18-3", "yesterday", "01/05/2024 10:00:00", "31/04/2024 00:00:00", "29/02/1900 00:00:00",
    "1/5/2024 1:2:3", "05/01/24 12:30 PM", "05/01/24 00:30 am", "29. Februar 2024", "29. FEBRUARY 2024",
    "1. May 0000", "Wed, 01 May 2024 10:00:00 +0200", "20240501100000", "%2024|5|1\\7",
    "2024-05-01T10:00:00.123456789Z", "\uff12024-05-01", "2024-05-01\n", "2024-05-01\u0000",
    "2024\u201305\u201301",
)
_TEXTS = (
    "", " ", "a", "\0", "a\0b", "\t", "\n", "\r\n", "\x1b[31m", "\x7f", "\x85", "\u2028", "\ufeff", "\u202e",
    "'", "''", "%s", "${x}", "\\", "\\u0041", "Information", "-NaN", "Inf", "{[", "}]", "日本", "\U0001f600",
    "e\u0301", "\ud800", "\udc00", "\ud83d", "\ude00\ud83d", "x" * 5000, "AP8=", "AP8", "not base64!",
)
# fmt: on
HOSTILE_TEXTS = (*_NUMBERS, *_NO_NUMBERS, *_TIMES, *_TEXTS)


def hostile_json(random: Random, depth: int = 0) -> str:
    """Return a JSON value, or a text that looks like one."""
    match random.randrange(16 if depth < 3 else 9):
        case 0 | 1:
            return random.choice(_NUMBERS)
        case 2:
            return random.choice(_NO_NUMBERS)
        case 3:
            return json.dumps(random.choice(_TIMES), ensure_ascii=random.random() < 0.5)
        case 4:
            return json.dumps(random.choice(HOSTILE_TEXTS))
        case 5:
            return f'"{random.choice(HOSTILE_TEXTS)}"'
        case 6:
            return random.choice(("null", "true", "false", "[]", "{}", '""', '"\\ud800"', '"\\ud83d\\ude00"'))
        case 7:
            return str(random.randint(-(2**66), 2**66) >> random.randrange(66))
        case 8:
            return repr(random.uniform(-1, 1) * 10.0 ** random.randint(-320, 308))
        case 9 | 10 | 11:
            items = [hostile_json(random, depth + 1) for _ in range(random.randint(0, 3))]
            return "[" + ",".join(items) + "]"
        case 12 | 13 | 14:
            keys = ("id", "x", "n", "m", "a", "at", "day", "cost", "1", "", "\\u0078", "k", "b")
            members = [
                f'"{random.choice(keys)}":{hostile_json(random, depth + 1)}'
                for _ in range(random.randint(0, 4))
            ]
            return "{" + ",".join(members) + "}"
        case _:
            n = random.choice((98, 99, 100, 101, 102, 990, 1100, 3000))
            opening, closing = random.choice((("[", "]"), ('{"a":', "}"), ('[{"x":', "}]")))
            return opening * n + "1" + closing * n


# ---------------------------------------------------------------- lines


def json_line(stream: Stream, values: dict[str, str]) -> bytes:
    """Return an object with the `values` of the columns in the places where the stream reads them."""
    tree: dict[str, Any] = {}
    others: list[str] = []
    for field in stream.fields:
        if field.name not in values:
            continue
        inside: Any = tree
        for name in field.place[:-1]:
            inside = inside.setdefault(name, {}) if isinstance(inside, dict) else inside
        if isinstance(inside, dict) and not isinstance(inside.get(field.place[-1]), dict):
            inside[field.place[-1]] = _around(values[field.name], field.element)
    others += [f'"{name}":{text}' for name, text in values.items() if stream.field(name) is None]
    return _written(tree, others).encode(errors="surrogatepass")


def _around(value: str, element: Sequence[str | int]) -> str:
    """Return arrays and objects around a value, so that it is where a stream looks for it."""
    for part in reversed(element):
        value = f'{{"{part}":{value}}}' if isinstance(part, str) else f"[{'null,' * part}{value}]"
    return value


def _written(tree: Any, others: Sequence[str] = ()) -> str:
    if isinstance(tree, str):
        return tree
    members = [f"{json.dumps(name)}:{_written(value)}" for name, value in tree.items()]
    return "{" + ",".join([*members, *others]) + "}"


def good_json_line(stream: Stream, random: Random) -> bytes:
    """Return a line that is an event."""
    return json_line(stream, {field.name: good_json(field, random) for field in stream.fields})


def hostile_json_line(stream: Stream, random: Random) -> bytes:
    """Return a line without a line feed. It may be an event or not."""
    values = {field.name: good_json(field, random) for field in stream.fields if random.random() < 0.9}
    kind = random.randrange(12)
    if kind == 0:
        values["other"] = hostile_json(random)
    elif kind < 8:
        for _ in range(random.choice((1, 1, 1, 2, 4))):
            field = random.choice(stream.fields)
            values[field.name] = _of_kind(field, random) if random.random() < 0.6 else hostile_json(random)
    line = json_line(stream, values)
    if kind == 8:
        line = damage_bytes(line, random)
    elif kind == 9:
        line = _respaced(line, random)
    elif kind == 10:
        name = json.dumps(random.choice(stream.fields).place[0]).encode()
        line = line[:-1] + b"," + name + b":" + hostile_json(random).encode(errors="surrogatepass") + b"}"
    elif kind == 11:
        others = (
            b"",
            b"   ",
            b"{}",
            b"null",
            b"[1]",
            b"{} {}",
            b"{}\0{}",
            b"\xef\xbb\xbf{}",
            b"\xff",
            b"{",
            b"}",
            b"{]}",
        )
        line = random.choice(
            (*others, line + line, b"\xef\xbb\xbf" + line, b" " + line + b"\t", random.randbytes(9))
        )
    return line.replace(b"\n", b" ")


def _of_kind(field: Field, random: Random) -> str:
    """Return an unusual value that may have the type of the field."""
    match field.type:
        case Type.STRING:
            return json.dumps(random.choice(_TEXTS), ensure_ascii=random.random() < 0.5)
        case Type.TIMESTAMP if not field.unit:
            return json.dumps(random.choice(_TIMES), ensure_ascii=random.random() < 0.5)
        case Type.BOOLEAN | Type.OPAQUE:
            return hostile_json(random)
        case _:
            words = (*_BARE_WORDS, *map(json.dumps, _BARE_WORDS), '"\\u004eaN"', '" NaN"', '"NaN')
            return random.choice((*_NUMBERS, *random.choices(words, k=20)))


def _respaced(line: bytes, random: Random) -> bytes:
    blank = random.choice((b" ", b"\t", b"\r", b"\x0b", b"\x0c", b"\xc2\xa0", b"\0", b"/**/"))
    for sign in random.sample((b",", b":", b"{", b"}"), 2):
        line = line.replace(sign, blank + sign + blank)
    return line


def csv_header(stream: Stream) -> list[str]:
    """Return the columns of a file, which include the columns of the stream."""
    columns = list(dict.fromkeys(field.column for field in stream.fields))
    return columns if not stream.csv.has_header else [*columns[::-1], "other"]


def csv_line(stream: Stream, header: Sequence[str], values: dict[str, str], random: Random) -> bytes:
    """Return a record with the `values` of the columns of the file."""
    layout = stream.csv
    return layout.delimiter.join(csv_field(values.get(name, ""), layout, random) for name in header).encode(
        errors="surrogatepass"
    )


def csv_field(text: str, layout: CsvLayout, random: Random) -> str:
    """Return a text as a field. It is quoted if necessary, and sometimes if not."""
    signs = (layout.delimiter, "\n", "\r")
    if not layout.quote:
        return "".join(sign for sign in text if sign not in signs)
    if layout.quote in text or any(sign in text for sign in signs) or random.random() < 0.1:
        return layout.quote + text.replace(layout.quote, layout.quote * 2) + layout.quote
    return text


def good_csv_line(stream: Stream, header: Sequence[str], random: Random) -> bytes:
    """Return a line that is an event."""
    values = {field.column: _in_layout(good_text(field, random), field, stream) for field in stream.fields}
    return csv_line(stream, header, values, random)


def _in_layout(text: str, field: Field, stream: Stream) -> str:
    """Return a number with the signs of the files of a stream; other values as they are."""
    is_number = field.type in (Type.DOUBLE, Type.BIGINT) or field.unit
    return text.replace(".", stream.csv.decimal) if is_number else text


def hostile_csv_line(stream: Stream, header: Sequence[str], random: Random) -> bytes:
    """Return one line or several. They may be an event or not."""
    chosen = [field for field in stream.fields if random.random() < 0.9]
    values = {field.column: _in_layout(good_text(field, random), field, stream) for field in chosen}
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        values[random.choice(header)] = random.choice(HOSTILE_TEXTS)
    line = csv_line(stream, header, values, random)
    match random.randrange(8):
        case 0:
            line = damage_bytes(line, random)
        case 1:
            quote, sign = stream.csv.quote.encode() or b'"', stream.csv.delimiter.encode()
            at = random.randrange(len(line) + 1)
            odd = (
                quote,
                quote * 2,
                quote * 3,
                sign,
                b"\r",
                b"\n",
                quote + sign,
                sign + quote,
                b"\xff",
                b"\0",
            )
            line = line[:at] + random.choice(odd) + line[at:]
        case 2:
            line = random.choice(
                (b"", b" ", line + stream.csv.delimiter.encode(), random.randbytes(9), line * 2)
            )
        case _:
            pass
    return line


# ---------------------------------------------------------------- rows of Parquet

_INVALID = b"\xff\xfe\x80"


def _strings(random: Random, n: int) -> pa.Array:
    values = [
        random.choice((b"a", b"", None, "Zoë".encode(), _INVALID if random.random() < 0.1 else b"b"))
        for _ in range(n)
    ]
    array = pa.array(values, pa.binary())
    buffers = array.buffers()
    return pa.Array.from_buffers(pa.string(), n, buffers, array.null_count)


def _integers(kind: pa.DataType) -> Callable[[Random, int], pa.Array]:
    def draw(random: Random, n: int) -> pa.Array:
        info = np.iinfo(kind.to_pandas_dtype())
        values = [
            None
            if random.random() < 0.1
            else random.choice((0, 1, info.min, info.max, random.randint(info.min, info.max)))
            for _ in range(n)
        ]
        return pa.array(values, kind)

    return draw


def _floats(kind: pa.DataType) -> Callable[[Random, int], pa.Array]:
    def draw(random: Random, n: int) -> pa.Array:
        odd = (0.0, -0.0, float("nan"), float("inf"), 1e300, 1714557607.123456, -1.5, None, 9.3e18, 1e-320)
        return pa.array([random.choice(odd) for _ in range(n)], pa.float64()).cast(kind, safe=False)

    return draw


def _times(kind: pa.DataType) -> Callable[[Random, int], pa.Array]:
    def draw(random: Random, n: int) -> pa.Array:
        bits = kind.bit_width - 1
        values = [
            None
            if random.random() < 0.1
            else random.randint(-(2**bits), 2**bits - 1) >> random.randrange(bits)
            for _ in range(n)
        ]
        return pa.array(values, pa.int32() if bits == 31 else pa.int64()).view(kind)

    return draw


def _decimals(random: Random, n: int) -> pa.Array:
    return pa.array([random.choice((None, "0.10", "-2.67", "99999999.99")) for _ in range(n)]).cast(
        pa.decimal128(10, 2)
    )


def _lists(of: Callable[[Random, int], pa.Array]) -> Callable[[Random, int], pa.Array]:
    def draw(random: Random, n: int) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum([random.randint(0, 2) for _ in range(n)]))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), of(random, int(offsets[-1])))

    return draw


def _maps(keys: Callable[[Random, int], pa.Array], items: Callable[[Random, int], pa.Array]) -> Any:
    def draw(random: Random, n: int) -> pa.Array:
        offsets = np.concatenate(([0], np.cumsum([random.randint(0, 2) for _ in range(n)]))).astype(np.int32)
        n_items = int(offsets[-1])
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            keys(random, n_items).fill_null(keys(Random(1), 50).drop_null()[0]),
            items(random, n_items),
        )

    return draw


def _structs(**fields: Callable[[Random, int], pa.Array]) -> Callable[[Random, int], pa.Array]:
    def draw(random: Random, n: int) -> pa.Array:
        arrays = [of(random, n) for of in fields.values()]
        mask = pa.array([random.random() < 0.1 for _ in range(n)], pa.bool_())
        return pa.StructArray.from_arrays(arrays, names=list(fields), mask=mask)

    return draw


def _booleans(random: Random, n: int) -> pa.Array:
    return pa.array([random.choice((True, False, None)) for _ in range(n)], pa.bool_())


def _binaries(random: Random, n: int) -> pa.Array:
    return pa.array([random.choice((None, b"", _INVALID)) for _ in range(n)], pa.binary())


def _large(of: Callable[[Random, int], pa.Array]) -> Callable[[Random, int], pa.Array]:
    return lambda random, n: of(random, n).cast(pa.binary()).cast(pa.large_binary()).view(pa.large_string())


_TIMESTAMPS = [_times(pa.timestamp(unit, zone)) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")]
_INTEGERS = [
    _integers(kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32())
]
_DOUBLES = [_floats(pa.float32()), _floats(pa.float64()), _decimals, *_INTEGERS[:3]]
_ANY = [*_TIMESTAMPS, *_INTEGERS, *_DOUBLES, _strings, _booleans, _binaries, _times(pa.date32())]

_OF_OPAQUE: dict[str, list[Callable[[Random, int], pa.Array]]] = {
    "array<string>": [_lists(_strings)],
    "array<double>": [_lists(draw) for draw in _DOUBLES],
    "array<array<int>>": [_lists(_lists(draw)) for draw in _INTEGERS[:3]],
    "struct<id:bigint,at:timestamp,day:date,cost:decimal(10,2),f:float>": [
        _structs(id=_INTEGERS[3], at=time, day=_times(pa.date32()), cost=_decimals, f=_floats(pa.float32()))
        for time in _TIMESTAMPS
    ],
    "struct<a:boolean,b:array<struct<x:tinyint>>>": [
        _structs(a=_booleans, b=_lists(_structs(x=_INTEGERS[0])))
    ],
    "map<string,bigint>": [_maps(_strings, _INTEGERS[3])],
    "map<int,double>": [_maps(_INTEGERS[2], _floats(pa.float64()))],
    "binary": [_binaries],
}


def parquet_column(field: Field, random: Random, n: int) -> pa.Array:
    """Return a column for a field. Mostly its type fits the field."""
    if random.random() < 0.02:
        return random.choice(_ANY)(random, n)
    choices: list[Callable[[Random, int], pa.Array]]
    match field.type:
        case Type.OPAQUE:
            choices = _OF_OPAQUE[field.ddl]
        case Type.BOOLEAN:
            choices = [_booleans]
        case Type.BIGINT:
            choices = _INTEGERS[: {"tinyint": 1, "smallint": 2, "int": 3, "bigint": 4}[field.ddl]]
        case Type.DOUBLE:
            choices = [_decimals] if field.is_decimal else _DOUBLES
        case Type.STRING:
            choices = [_strings, _large(_strings)]
        case _ if field.ddl == "date":
            choices = [_strings] if field.format else [_times(pa.date32()), _times(pa.date64())]
        case _:
            choices = list(_TIMESTAMPS)
            if field.unit:
                choices += [*_INTEGERS, _floats(pa.float64())] * 2
            if field.format:
                choices += [_strings] * 8
    return random.choice(choices)(random, n)


def parquet_table(stream: Stream, random: Random, n: int) -> pa.Table | None:
    """Return a table with the columns of a stream in their places, or None if the places are in conflict."""
    tree: dict[str, Any] = {}
    for field in stream.fields:
        inside = tree
        for name in field.place[:-1]:
            inside = inside.setdefault(name, {})
            if not isinstance(inside, dict):
                return None
        if field.place[-1] in inside:
            return None
        inside[field.place[-1]] = parquet_column(field, random, n)
    tree["other"] = _strings(random, n)
    return pa.table([_nested(value, random, n) for value in tree.values()], names=list(tree))


def _nested(value: Any, random: Random, n: int) -> pa.Array:
    if not isinstance(value, dict):
        return value
    mask = pa.array([random.random() < 0.1 for _ in range(n)], pa.bool_())
    return pa.StructArray.from_arrays(
        [_nested(item, random, n) for item in value.values()], names=list(value), mask=mask
    )
