"""The kernel of JSON lines takes what is plain, exactly, and nothing else. Lines lie in a block."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cep.formats.lines import Lines, lines_of_column, lines_of_objects, without_returns
from cep.formats.text import json_lines
from cep.formats.text.json import columns
from cep.formats.text.json.kernel import Names
from cep.formats.text.json.scan import HIGHEST_POWER, LOWEST_POWER, WIDE_POWERS
from cep.schema.stream import Field, Stream
from cep.schema.time_values import timestamp_us

STREAM = Stream(
    "e",
    (
        Field("ts", "timestamp"),
        Field("s", "string"),
        Field("x", "double"),
        Field("n", "bigint"),
        Field("ok", "boolean"),
        Field("m", "string", path=("a", "b", "m")),
        Field("k", "tinyint", path=("a", "k")),
        Field("Ä", "string"),
        Field("day", "date"),
    ),
    "ts",
)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    columns.compile_kernel()


def plain(lines: Sequence[bytes], stream: Stream = STREAM) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the events that the kernel makes of lines, and the lines that it leaves."""
    plan = columns.plan_of(stream)
    assert plan is not None
    events, rows, others = columns.plain_events(lines_of_objects(lines), stream, plan)
    events.validate(full=True)
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(len(lines)))
    return events.to_pylist(), others.tolist()


def values(texts: Sequence[str], name: str) -> list[Any]:
    """Return the values that the kernel reads; `...` where it reads none."""
    lines = [f'{{"{name}":{text}}}'.encode("utf-8", "surrogatepass") for text in texts]
    events, others = plain(lines)
    found = iter(events)
    left = set(others)
    return [... if row in left else next(found)[name] for row in range(len(lines))]


# ---------------------------------------------------------------- values


def test_a_number_is_the_nearest_double() -> None:
    random = Random(1)
    texts = [repr(random.uniform(-1, 1) * 10.0 ** random.randint(-290, 290)) for _ in range(20_000)]
    texts += [str(random.randrange(10**17)) + f"e{random.randint(-280, 280)}" for _ in range(20_000)]
    texts += [f"{random.uniform(0, 9999):.{random.randint(1, 13)}f}" for _ in range(20_000)]
    found = values(texts, "x")
    assert sum(value is ... for value in found) < 100
    wrong = [text for text, value in zip(texts, found, strict=True) if value not in (..., float(text))]
    assert wrong == []


def test_numbers_between_two_doubles_are_read_as_python_reads_them_or_left() -> None:
    random = Random(2)
    texts = []
    for _ in range(5_000):
        low = random.randrange(1 << 53, 1 << 59)
        texts += [str((low | 1) << shift) for shift in range(3)]
        number = random.randrange(1 << 53, 1 << 54)
        texts += [f"{number}.5", f"{number}e0", f"{2 * number + 1}e-1", f"{number}e22", f"{number}e-23"]
    found = values([text for text in texts if len(text) < 24], "x")
    kept = [text for text in texts if len(text) < 24]
    wrong = [text for text, value in zip(kept, found, strict=True) if value not in (..., float(text))]
    assert wrong == []


def test_edges_of_numbers() -> None:
    texts = [
        "0",
        "-0",
        "0.0",
        "-0.0",
        "-0e5",
        "0e9999",
        "1E+2",
        "1e-2",
        "123456789012345678",
    ]
    found = values(texts, "x")
    assert found == [float(text) for text in texts]
    assert [math.copysign(1, value) for value in found[:5]] == [1, -1, 1, -1, -1]
    wholes = ["9223372036854775807", "-9223372036854775807", "-0", "-1", "999999999999999999"]
    assert values(wholes, "n") == [int(text) for text in wholes]


@pytest.mark.parametrize(
    "text",
    [
        *("9223372036854775808", "-9223372036854775808", "10000000000000000000", "1.0", "1e3", "NaN", "+"),
        *("-", "01", "-01", "00", "1a", "true", '"1"', "[1]", "{}", "1_0", "0x1"),
    ],
)
def test_what_is_no_whole_number_of_64_bits_is_left(text: str) -> None:
    assert values([text], "n") == [...]


@pytest.mark.parametrize(
    "text",
    [
        *("NaN", "Infinity", "-Infinity", "1.", ".5", "1.e5", "1e", "1e+", "1e5.0", "01.5", "-.5", "1e400"),
        *("1e-400", "4.9e-324", "+", "1..2", "1e99999"),
    ],
)
def test_what_is_no_number_or_a_hard_one_is_left(text: str) -> None:
    assert values([text], "x") == [...]


def test_the_powers_of_ten_are_cut_off_and_not_rounded() -> None:
    for row, power in enumerate(range(LOWEST_POWER, HIGHEST_POWER + 1)):
        high, low = map(int, WIDE_POWERS[row])
        found = high << 64 | low
        assert found >> 127 == 1
        exponent = math.floor(power * math.log2(10) + 1e-9) - 127 if power else -127
        over, under = 10 ** max(power, 0), 10 ** max(-power, 0)
        over, under = over << max(-exponent, 0), under << max(exponent, 0)
        assert found == over // under


def test_numbers_out_of_the_range_of_a_small_type_are_left() -> None:
    events, others = plain([b'{"a":{"k":%d}}' % number for number in (-129, -128, 127, 128)])
    assert [event["k"] for event in events] == [-128, 127]
    assert others == [0, 3]


def test_times_are_those_of_the_definition() -> None:
    random = Random(3)
    texts = []
    for _ in range(20_000):
        day = f"{random.choice((0, 1, 4, 1900, 1970, 2000, 2024, 9999, random.randrange(10_000))):04}"
        day += f"-{random.randrange(14):02}-{random.choice((0, 1, 28, 29, 30, 31, 32)):02}"
        clock = f"{random.randrange(26):02}:{random.choice((0, 30, 59, 60)):02}"
        seconds = f":{random.choice((0, 59, 60)):02}"
        fraction = "." + "123456789123"[: random.randrange(12)]
        zones = ("", "Z", "z", "+02", "-0230", "+02:30", "+24", "+02:60", "+2", "-", "+02:")
        parts = [random.choice(["T", "T", "T", "t"]) + clock, seconds, fraction][: random.randrange(4)]
        texts.append(day + "".join(parts) + random.choice(zones))
    found = values([json.dumps(text) for text in texts], "ts")
    meant = [timestamp_us(text) for text in texts]
    assert sum(value is not None for value in meant) > 500
    assert found == [... if value is None else value for value in meant]


def test_a_day_has_no_clock() -> None:
    assert values(['"2024-05-01"', '"2024-05-01T00:00"', '"2024-05-1"', '""', '"2024-05-01 "'], "day") == [
        1_714_521_600_000_000, ..., ..., ..., ...,
    ]  # fmt: skip


def test_texts_are_what_json_says() -> None:
    texts = [f'"\\u{code:04x}{code:04X}"' for code in range(0x10000)]
    left = [0xD800 <= code < 0xE000 for code in range(0x10000)]
    found = values(texts, "s")
    assert [value is ... for value in found] == left
    assert all(
        is_left or value == json.loads(text) for text, value, is_left in zip(texts, found, left, strict=True)
    )
    others = ['"\\"\\\\\\/\\b\\f\\n\\r\\t"', '""', '"Zoë 日本 \U0001f600"', '"a\\u00e9b\x7f"']
    assert values(others, "s") == [json.loads(text) for text in others]
    pairs = ["\U00010000", "\U0010ffff", *map(chr, range(0x10000, 0x110000, 997)), "a\U0001f600b"]
    assert values([json.dumps(text) for text in pairs], "s") == pairs
    halves = (
        "\\ud83d",
        "\\ude00",
        "\\ud83d\\ud83d",
        "\\ud83d\\n",
        "\\ud83dx",
        "\\ud83d\\u12",
        "\\ud83d\\u0041",
    )
    assert values([f'"{half}"' for half in halves], "s") == [...] * len(halves)


@pytest.mark.parametrize(
    "text", ['"\\x"', '"\\u12g4"', '"\\u123"', '"a\tb"', '"\\', '"', '"a', '"\x1f"', "'a'", "a", "1"]
)
def test_what_is_no_text_is_left(text: str) -> None:
    assert values([text], "s") == [...]


def test_a_text_is_utf_8() -> None:
    seconds = (0x00, 0x22, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF)
    signs = [
        bytes(sign[:length])
        for length in (1, 2, 3, 4)
        for sign in itertools.product(
            range(0x20, 0x100), seconds, (0x7F, 0x80, 0xBF, 0xC0), (0x80, 0xBF, 0x41)
        )
        if sign[0] not in b'"\\'
    ]
    signs = [sign for sign in dict.fromkeys(signs) if b'"' not in sign and b"\0" not in sign]
    for name in (b"s", b"other"):
        _, others = plain([b'{"' + name + b'":"' + sign + b'"}' for sign in signs])
        assert others == [row for row, sign in enumerate(signs) if not is_utf8(sign)]
    _, others = plain([b'{"name ' + sign + b'":1}' for sign in signs])
    assert others == [row for row, sign in enumerate(signs) if not is_utf8(sign)]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_counts_may_be_whole_or_not() -> None:
    stream = Stream(
        "e", (Field("ts", "timestamp", unit="seconds"), Field("at", "timestamp", unit="nanoseconds")), "ts"
    )
    lines = [
        b'{"ts":1714557607,"at":1714557607123456789}',
        b'{"ts":1714557607.25}',
        b'{"at":1e18}',  # more than 53 bits: some whole number that no DOUBLE holds may be meant
        b'{"ts":253402300800}',
        b'{"ts":-1.5,"at":null}',
        b'{"ts":"1714557607"}',
    ]
    events, others = plain(lines, stream)
    assert [event["ts"] for event in events] == [1714557607000000, 1714557607250000, -1500000]
    assert [event["at"] for event in events] == [1714557607123456, None, None]
    assert others == [2, 3, 5]


# ---------------------------------------------------------------- objects


def test_names_stand_in_any_order_and_at_any_level() -> None:
    lines = [
        b'{"a":{"b":{"m":"x"},"k":1},"s":"y"}',
        b'{"s":"y","a":{"k":1,"b":{"m":"x"}}}',
        b' {\t"s" : "y" , "a" : { "k" : 1 , "b" : { "m" : "x" , "q" : {} } } }\r',
        b'{"a":{"k":1,"b":{"m":"x"},"s":2,"a":3,"m":4},"s":"y","k":"no","m":5,"b":6}',
    ]
    events, others = plain(lines)
    assert others == []
    assert {(event["m"], event["k"], event["s"], event["x"]) for event in events} == {("x", 1, "y", None)}


def test_what_is_missing_or_null_is_null() -> None:
    lines = [
        b"{}",
        b"{ }",
        b'{"a":null,"s":null}',
        b'{"a":{}}',
        b'{"a":{"b":null,"k":null}}',
        b'{"a":{"b":{ }}}',
    ]
    events, others = plain(lines)
    assert others == []
    assert {value for event in events for value in event.values()} == {None}


def test_a_line_that_is_left_leaves_nothing_behind() -> None:
    lines = [b'{"s":"abc","x":1,"n":2,"ok":true}!', b'{"s":"d"}', b'{"s":"ef","a":{"b":{"m":"gh"}}', b"{}"]
    events, others = plain(lines)
    assert others == [0, 2]
    assert [(event["s"], event["x"], event["n"], event["ok"], event["m"]) for event in events] == [
        ("d", None, None, None, None),
        (None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b'{"s":"a","s":"b"}',
        b'{"s":null,"s":"b"}',
        b'{"a":{"k":1},"a":{"b":null}}',
        b'{"a":{"k":1,"k":1}}',
        '{"Ä":"1","\\u00c4":"2"}'.encode(),
        b'{"\\u0073":"a"}',
        b'{"\\u00C4":"a"}',
        b'{"o\\u0074her":1}',
        b'{"a":1}',
        b'{"a":[]}',
        b'{"a":{"b":"x"}}',
    ],
)
def test_names_that_stand_twice_or_are_spelled_oddly_and_other_things_than_objects_are_left(
    line: bytes,
) -> None:
    assert plain([line]) == ([], [0])


def test_a_name_may_be_spelled_in_ascii() -> None:
    events, others = plain([b'{"\\u00c4":"a"}', '{"Ä":"b"}'.encode(), b'{"other":1,"other":2}'])
    assert ([event["Ä"] for event in events], others) == (["a", "b", None], [])


def test_odd_names_of_columns() -> None:
    names = ["", "\\", '"', "a.b", "\n", "'", "x" * 60, "日本", "\U0001f600"]
    stream = Stream("e", (Field("ts", "timestamp"), *(Field(name, "bigint") for name in names)), "ts")
    objects = [{name: number for number, name in enumerate(names)}, dict.fromkeys(reversed(names), 7)]
    lines = [
        json.dumps(item, ensure_ascii=is_ascii).encode() for item in objects for is_ascii in (True, False)
    ]
    events, others = plain(lines, stream)
    assert others == []
    assert [{name: event[name] for name in names} for event in events] == [
        item for item in objects for _ in "12"
    ]


def test_more_names_than_are_remembered() -> None:
    rest = {f"name {number}": number for number in range(2 * columns.N_USUAL)}
    line = json.dumps({**rest, "n": 1}).encode()
    events, others = plain([line, line, json.dumps({"n": 2, **rest}).encode()])
    assert ([event["n"] for event in events], others) == ([1, 1, 2], [])


GOOD = (
    "{}", "[]", "[[],{}]", '{"":[{"a":{}}]}', "[1,2.5e-7,-0]", '["\\ud800","\\u0000"]', "null", "true",
    "false", "[ null , true ]", '{ "a" : 1 , "b" : [ ] }', "1" * 5000, "0." + "1" * 400, "1e99999999999",
    '"\\\\"', '"]}"', "[" * 50 + "]" * 50,
)  # fmt: skip
BAD = (
    "", "[", "]", "{]", "[}", "[1,]", "[,1]", "[1 2]", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}",
    '{"a":1 "b":2}', "nul", "trues", "TRUE", "NaN", "-", "01", "1.", "+1", "[[1]", '{"a":[1}',
    '["a]', "'a'", '"\\u12"', "\xa0", "/**/1", "1,", "[" * 61 + "]" * 61,
)  # fmt: skip


def test_values_of_no_column_are_checked_all_the_same() -> None:
    _, others = plain([b'{"q":%s,"s":"x"}' % text.encode() for text in (*GOOD, *BAD)])
    assert others == list(range(len(GOOD), len(GOOD) + len(BAD)))


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"{", b"}", b"[]", b"null", b"{}{}", b"{} x", b"{},", b"{,}", b'{"s"}', b"{}\0",
        b"\xef\xbb\xbf{}", b"{}\x0b", b"\xa0{}", b'{"s":"a"', b'{"s":"a', b'{"s":', b'{"s',
        b'{"ts":"2024-05-0', b'{"n":1', b'{"ok":tr',
    ],
)  # fmt: skip
def test_what_is_no_object_is_left(line: bytes) -> None:
    assert plain([line, b"{}"])[1] == [0]
    assert plain([b"{}", line])[1] == [1]


# ---------------------------------------------------------------- messages, blocks, merging


def test_a_message_does_not_go_on_in_the_next_one() -> None:
    parts = [
        b'{"s":"a',
        b'b"}',
        b'{"n":1',
        b"2}",
        b'{"q":[',
        b"1]}",
        b'{"n":3}',
        b"",
        b'{"a":{"k":1}',
        b"}",
        b"{}",
    ]
    plan = columns.plan_of(STREAM)
    assert plan is not None
    lines = lines_of_column(pa.array(parts, pa.binary()))
    assert list(lines) == parts
    events, rows, _ = columns.plain_events(lines, STREAM, plan)
    assert rows.tolist() == [6, 10]
    assert events.column("n").to_pylist() == [3, None]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.binary_view()])
def test_messages_of_a_column(kind: pa.DataType) -> None:
    column = pa.array(["{}", None, "", '{"n":1}', "x"], kind)
    assert list(lines_of_column(column)) == [b"{}", b"", b"", b'{"n":1}', b"x"]
    assert list(lines_of_column(column.slice(2, 2))) == [b"", b'{"n":1}']
    assert list(lines_of_column(column.slice(2, 0))) == []


@pytest.mark.parametrize(
    ("block", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\r\n\r\nb\r\r\n\n\rc\r", [b"a", b"", b"b\r", b"", b"\rc"]),
    ],
)
def test_lines_of_a_block(block: bytes, lines: list[bytes]) -> None:
    found = Lines.of_block(block)
    assert len(found) == len(lines)
    assert found.objects() == list(found) == [found[row] for row in range(len(lines))] == lines
    assert list(found[1:]) == found[1:].objects() == lines[1:]
    assert bool(found) == bool(lines)


def test_many_lines_of_a_block() -> None:
    lines = [b"x" * (row % 7) for row in range(5_000)]
    found = Lines.of_block(b"\n".join(lines) + b"\n")
    assert list(found) == found.objects() == lines
    assert list(without_returns(lines_of_objects([line + b"\r" for line in lines]))) == lines


@pytest.mark.parametrize("every", [1, 2, 7, 1000])
def test_lines_that_the_kernel_leaves_are_at_their_places(every: int) -> None:
    lines = [b'{"n":%d}' % row if row % every else b'{"\\u006e":%d}' % row for row in range(3_000)]
    lines[10:13] = [b"", b"{", b'{"n":true}']
    for given in (lines, Lines.of_block(b"\n".join(lines))):
        events, rows, problems = json_lines.parse(given, STREAM)
        assert (
            rows.tolist()
            == events.column("n").to_pylist()
            == [r for r in range(3_000) if r not in (10, 11, 12)]
        )
        assert problems == [(11, "not a JSON object"), (12, "field `n` is not of type bigint: true")]


def test_a_stream_of_which_the_kernel_takes_nothing_is_read_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[int] = []
    read = columns.plain_events

    def noted(lines: Lines, *rest: Any) -> Any:
        seen.append(len(lines))
        return read(lines, *rest)

    monkeypatch.setattr(columns, "plain_events", noted)
    for name, n_seen in ((b"\\u006e", 1), (b"n", 2)):
        seen.clear()
        lines = [b'{"%s":%d}' % (name, row) for row in range(10_000)]
        for given in (lines, Lines.of_block(b"\n".join(lines))):
            assert json_lines.parse(given, STREAM)[0].column("n").to_pylist() == list(range(10_000))
        assert len(seen) == 2 * n_seen


def test_lines_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b'{"s":"%d","n":%d}' % (row, row) if row % 10 else b"{" for row in range(1_000)]
    at_once = json_lines.parse(lines, STREAM)
    monkeypatch.setattr(columns, "_PART_BYTES", 2_000)
    in_parts = json_lines.parse(lines, STREAM)
    assert in_parts[0].equals(at_once[0])
    assert in_parts[1].tolist() == at_once[1].tolist()
    assert in_parts[2] == at_once[2]
    monkeypatch.setattr(columns, "_MOST_BYTES", 5)
    assert json_lines.parse(lines, STREAM)[0].equals(at_once[0])


def test_no_reader_waits_for_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("the kernel is not compiled")

    lines = [b'{"n":1}'] * 100
    with_kernel = json_lines.parse(lines, STREAM)
    monkeypatch.setattr(columns, "is_ready", lambda **_: False)
    monkeypatch.setattr(columns, "plain_events", fail)
    assert json_lines.parse(lines, STREAM)[0].equals(with_kernel[0])


@pytest.mark.parametrize(
    "fields",
    [
        (Field("x", "array<int>"),),
        (Field("x", "bigint"), Field("y", "bigint", path=("x",))),
        (Field("x", "bigint"), Field("y", "bigint", path=("x", "y"))),
        (Field("y", "bigint", path=("x", "y")), Field("x", "bigint")),
        (Field("x", "bigint", path=("a",) * (columns.MAX_PLACE + 1)),),
    ],
)
def test_streams_that_the_kernel_does_not_read(fields: tuple[Field, ...]) -> None:
    stream = Stream("e", (Field("ts", "timestamp"), *fields), "ts")
    assert columns.plan_of(stream) is None
    assert len(json_lines.parse([b"{}"] * 100, stream)[0]) == 100


def test_a_plan_has_the_names_of_the_kernel() -> None:
    plan = columns.plan_of(STREAM)
    assert plan is not None
    assert {name for name in Names._fields if hasattr(plan, name)} == {*Names._fields} - {
        "usual",
        "seen",
        "is_list",
    }
    assert plan.bucket.dtype == np.int64
