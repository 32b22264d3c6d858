"""Debezium's envelopes -> events: what they say of rows, wrapped in a schema or not."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from hashlib import md5
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from cep.formats.ahead import AheadGuard
from cep.formats.payloads.debezium import DebeziumFormat
from cep.formats.payloads.registry import payload_format, payload_names
from cep.formats.protocol import FormatWithColumns, RecordFormat
from cep.formats.text.messages import MessageReader, Messages
from cep.local.find_matches import find_matches
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.connectors.message_logs.settings import MessageSpec
from spark_runtime.connectors.message_logs.source import MessageSource
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sources.spec import SourceContext

DECIMAL = "org.apache.kafka.connect.data.Decimal"
SCALED = "io.debezium.data.VariableScaleDecimal"
AT = "2024-05-01T10:00:00.123456Z"
AT_US = int(datetime.fromisoformat(AT).astimezone(UTC).timestamp() * 1e6)
STREAM = Stream("s", (Field("id", "bigint"), Field("note", "string"), Field("ts", "timestamp")), "ts")


def row(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "note": f"n{number}", "ts": AT, **more}


def envelope(op: str, after: Any = None, before: Any = None, **more: Any) -> dict[str, Any]:
    source = {
        "connector": "postgresql",
        "ts_ms": AT_US // 1000,
        "db": "shop",
        "schema": "public",
        "table": "orders",
        "txId": 571,
        "lsn": 24023128,
    }
    return {"before": before, "after": after, "source": source | more, "op": op, "ts_ms": 1}


def wrapped(value: dict[str, Any], **meanings: Any) -> dict[str, Any]:
    columns = [{"type": "int64", "optional": True, "field": name, **more} for name, more in meanings.items()]
    sides = [{"type": "struct", "fields": columns, "field": side} for side in ("before", "after")]
    return {"schema": {"type": "struct", "fields": sides, "name": "envelope"}, "payload": value}


def text(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def read(
    *values: Any, stream: Stream = STREAM, columns: dict[str, str] | None = None
) -> tuple[list[dict[str, Any]], list[tuple[int, str]]]:
    given = [value if isinstance(value, bytes) else text(value) for value in values]
    reader = MessageReader(stream, DebeziumFormat().with_columns(columns or {}))
    chunk = reader.chunk(
        Messages("t[0]", given, np.arange(len(given), dtype=np.int64), {}), AheadGuard(stream.max_ahead_us)
    )
    dead = [(d["position"], d["reason"]) for d in chunk.dead_letters.to_pylist()]
    return chunk.events.to_pylist(), dead


def test_it_is_a_format_of_messages_that_can_say_more_than_the_row() -> None:
    found = payload_format("debezium")
    assert "debezium" in payload_names()
    assert isinstance(found, RecordFormat)
    assert isinstance(found, FormatWithColumns)


def test_a_change_is_the_row_behind_it_and_of_a_deleted_row_the_row_before() -> None:
    values = [
        envelope("r", row(1)),
        envelope("c", row(2)),
        envelope("u", row(3), row(2)),
        envelope("d", None, row(4)),
    ]
    expected = [{"id": n, "note": f"n{n}", "ts": AT_US} for n in (1, 2, 3, 4)]
    assert read(*values) == (expected, [])
    assert read(*map(wrapped, values)) == (expected, [])
    mixed = [values[0], wrapped(values[1]), values[2], wrapped(values[3])]
    assert read(*mixed) == (expected, [])
    many = [envelope("c", row(n)) for n in range(3000)]
    assert len(read(*many)[0]) == 3000


def test_what_is_said_besides_the_row_has_the_words_of_the_source_postgres() -> None:
    words = {
        "op": ("string", "op"),
        "at": ("timestamp", "commit_time"),
        "lsn": ("bigint", "lsn"),
        "place": ("string", "lsn"),
        "name": ("string", "table"),
        "xid": ("bigint", "transaction"),
        "was": ("string", "before.note"),
        "was_id": ("int", "before.id"),
    }
    fields = (Field("id", "int"), *(Field(name, ddl) for name, (ddl, _) in words.items()))
    columns = {name: what for name, (_, what) in words.items()}
    stream = Stream("s", fields, "at")
    values = [envelope("u", row(2), row(1), ts_us=AT_US), envelope("c", row(3), schema=None)]
    for form in (lambda value: value, wrapped):
        events, dead = read(*map(form, values), stream=stream, columns=columns)
        assert dead == []
        assert events == [
            {
                "id": 2,
                "op": "u",
                "at": AT_US,
                "lsn": 24023128,
                "place": "0/16E9058",
                "name": "public.orders",
                "xid": 571,
                "was": "n1",
                "was_id": 1,
            },
            {
                "id": 3,
                "op": "c",
                "at": AT_US // 1000 * 1000,
                "lsn": 24023128,
                "place": "0/16E9058",
                "name": "shop.orders",
                "xid": 571,
                "was": None,
                "was_id": None,
            },
        ]


def test_a_schema_says_what_numbers_and_texts_mean() -> None:
    stream = Stream(
        "s",
        (
            Field("id", "int"),
            Field("ts", "timestamp"),
            Field("day", "date"),
            Field("price", "decimal(10,2)"),
            Field("info", "struct<a:int>"),
        ),
        "ts",
    )
    meanings = {
        "ts": {"name": "io.debezium.time.MicroTimestamp"},
        "day": {"name": "io.debezium.time.Date"},
        "price": {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        "info": {"name": "io.debezium.data.Json"},
    }
    after = {"id": 1, "ts": AT_US, "day": 19844, "price": "/zg=", "info": '{"a": 1}'}
    expected = {"id": 1, "ts": AT_US, "day": 19844 * 86_400_000_000, "price": -2.0, "info": '{"a":1}'}
    values = [wrapped(envelope("c", after), **meanings), wrapped(envelope("d", None, after), **meanings)]
    assert read(*values, stream=stream) == ([expected, expected], [])
    ms = {**meanings, "ts": {"name": "io.debezium.time.Timestamp"}}
    both = [values[0], wrapped(envelope("c", {**after, "ts": AT_US // 1000}), **ms)]
    assert [event["ts"] for event in read(*both, stream=stream)[0]] == [AT_US, AT_US // 1000 * 1000]
    bad = wrapped(envelope("c", {**after, "price": "?", "info": "{"}), **meanings)
    assert read(bad, stream=stream)[1] == [(0, "field `price` is not of type decimal(10,2): ?")]
    # Without a schema nobody knows the unit of a number.
    _, dead = read(envelope("c", {"id": 1, "ts": AT_US}))
    assert dead == [
        (
            0,
            f"field `after.ts` is not of type timestamp: {AT_US}; "
            "for microseconds since 1970 declare {type: timestamp, unit: microseconds}",
        )
    ]
    counted = Stream("s", (Field("id", "int"), Field("ts", "timestamp", unit="microseconds")), "ts")
    assert read(envelope("c", {"id": 1, "ts": AT_US}), stream=counted) == ([{"id": 1, "ts": AT_US}], [])


def test_what_is_no_change_of_a_row_is_a_dead_letter() -> None:
    large = "__debezium_unavailable_value"
    values = [
        b"no",
        b"{}",
        b'{"payload":null,"schema":null}',
        b'{"payload":{}}',
        envelope("t"),
        envelope("m"),
        envelope("c", row("x")),  # type: ignore[arg-type]
        envelope("u", row(1, note=large)),
        envelope("u", row(1, note=large), row(1, note="kept")),
        envelope("c", None),
        b"",
        b'{"op":1}',
        b'{"schema":{}',
        b'{"schema":[],"payload":{"op":"c"}}',
        b"\xff",
    ]
    events, dead = read(*values)
    assert [event["note"] for event in events] == ["kept"]
    no_envelope = "not an envelope of Debezium: it has no `op`"
    assert dead == [
        (0, "not a JSON object"),
        (1, no_envelope),
        (2, no_envelope),
        (3, no_envelope),
        (4, "TRUNCATE has removed all rows, and the log does not name them"),
        (5, "a message of Debezium that is no change of a row"),
        (6, 'field `after.id` is not of type bigint: "x"'),
        (
            7,
            "column `note` is large and unchanged, so not in the log: "
            "say ALTER TABLE ... REPLICA IDENTITY FULL",
        ),
        (9, "event time `ts` is NULL"),
        (10, "an empty message"),
        (11, "field `op` is not of type string: 1"),
        (12, "not a JSON object"),
        (13, "event time `ts` is NULL"),
        (14, "not UTF-8 text"),
    ]
    for index, value in enumerate(values):  # a message means the same alone
        alone_events, alone_dead = read(value)
        assert [reason for _, reason in alone_dead] == [reason for at, reason in dead if at == index]
        assert len(alone_events) + len(alone_dead) == 1


LARGE = "__debezium_unavailable_value"
LARGE_BASE64 = base64.b64encode(LARGE.encode()).decode()
LARGE_UUID = str(UUID(bytes=md5(LARGE.encode()).digest(), version=3))


@pytest.mark.parametrize(
    ("ddl", "meaning", "placeholder", "kept", "expected"),
    [
        ("string", {}, LARGE, "old", "old"),
        ("string", {}, LARGE_BASE64, "b2xk", "b2xk"),
        ("string", {}, LARGE.encode().hex(), "6f6c64", "6f6c64"),
        ("string", {}, json.dumps({LARGE: LARGE}, separators=(",", ":")), '{"a":"b"}', '{"a":"b"}'),
        ("binary", {}, LARGE_BASE64, "b2xk", "b2xk"),
        ("array<string>", {}, [LARGE], ["old"], '["old"]'),
        ("array<binary>", {}, [LARGE_BASE64], ["b2xk"], '["b2xk"]'),
        ("array<string>", {}, [LARGE_UUID], ["old"], '["old"]'),
        ("array<int>", {}, list(LARGE.encode()), [1, 2], "[1,2]"),
        ("array<double>", {}, [LARGE], [1.5], "[1.5]"),
        ("map<string,string>", {}, {LARGE: LARGE}, {"a": "b"}, '{"a":"b"}'),
        ("struct<a:int>", {"name": "io.debezium.data.Json"}, LARGE, '{"a": 1}', '{"a":1}'),
        ("decimal(10,2)", {"name": DECIMAL, "parameters": {"scale": "2"}}, LARGE_BASE64, "AJY=", 1.5),
        ("double", {"name": SCALED}, {"scale": 0, "value": LARGE_BASE64}, {"scale": 2, "value": "AJY="}, 1.5),
    ],
)
def test_a_large_value_that_was_not_changed_is_that_of_the_row_before(
    ddl: str, meaning: dict[str, Any], placeholder: Any, kept: Any, expected: Any
) -> None:
    fields = (*STREAM.fields, Field("large", ddl), Field("was", ddl))
    stream, columns = Stream("s", fields, "ts"), {"was": "before.large"}

    def change(op: str, after: Any, before: Any) -> dict[str, Any]:
        return wrapped(envelope(op, after, before), large=meaning)

    unknown = "column `large` is large and unchanged, so not in the log"
    values = [
        change("u", row(1, large=placeholder, half="\ud800"), row(1, large=kept)),
        change("u", row(2, large=placeholder), None),
        change("u", row(3, large=placeholder), row(3)),
        change("d", None, row(4, large=placeholder)),
        change("u", row(5, large=kept), row(5, large=placeholder)),
        change("u", row(6, large=kept), row(6, large=kept)),
    ]
    events, dead = read(*values, stream=stream, columns=columns)
    assert [(event["id"], event["large"], event["was"]) for event in events] == [
        (1, expected, expected),
        (6, expected, expected),
    ]
    assert [(at, reason.partition(":")[0]) for at, reason in dead] == [(at, unknown) for at in (1, 2, 3, 4)]
    # A column that the stream does not declare may be large and unchanged.
    assert len(read(*values)[0]) == len(values)


@pytest.mark.parametrize(
    ("unscaled", "scale", "expected"),
    [
        (150, 2, "1.50"),
        (-1, 3, "-0.001"),
        (7, 0, "7"),
        (7, -2, "700"),
        (12345678901234567890123456789012345678, 10, "1234567890123456789012345678.9012345678"),
    ],
)
def test_a_decimal_of_base64_is_read_with_all_its_digits(unscaled: int, scale: int, expected: str) -> None:
    value = base64.b64encode(unscaled.to_bytes(17, "big", signed=True)).decode()
    forms: list[tuple[dict[str, Any], Any]] = [
        ({"name": DECIMAL, "parameters": {"scale": str(scale)}}, value),
        ({"name": SCALED}, {"scale": scale, "value": value}),
    ]
    for meaning, given in forms:
        for ddl, read_as in (("string", expected), ("double", float(expected))):
            stream = Stream("s", (*STREAM.fields, Field("n", ddl)), "ts")
            message = wrapped(envelope("c", row(1, n=given)), n=meaning)
            events, dead = read(message, stream=stream)
            assert dead == []
            assert events[0]["n"] == read_as


@pytest.mark.parametrize(
    "given",
    [{"scale": 1}, {"value": "AJY="}, {"scale": 1 << 30, "value": "AJY="}, {"scale": 0, "value": "?"}],
)
def test_a_decimal_with_its_scale_that_is_none_is_a_dead_letter(given: dict[str, Any]) -> None:
    stream = Stream("s", (*STREAM.fields, Field("n", "string")), "ts")
    events, dead = read(wrapped(envelope("c", row(1, n=given)), n={"name": SCALED}), stream=stream)
    assert events == []
    assert "is not of type" in dead[0][1]


@pytest.mark.parametrize("name", ["io.debezium.time.Date", "org.apache.kafka.connect.data.Date"])
@pytest.mark.parametrize("ddl", ["date", "timestamp"])
def test_a_day_outside_the_years_1_to_9999_is_a_dead_letter(name: str, ddl: str) -> None:
    stream = Stream("s", (*STREAM.fields, Field("day", ddl)), "ts")
    first, last = -719162, 2932896
    days = [first - 1, first, last, last + 1, 213503983, 2147483647, -2147483648]
    messages = [wrapped(envelope("c", row(n, day=day)), day={"name": name}) for n, day in enumerate(days)]
    events, dead = read(*messages, stream=stream)
    assert [event["day"] for event in events] == [first * 86_400_000_000, last * 86_400_000_000]
    assert dead == [(at, f"field `day` is not of type {ddl}: {days[at]}") for at in (0, 3, 4, 5, 6)]


def test_a_pipeline_file_names_what_is_said_besides_the_row(tmp_path: Path) -> None:
    (tmp_path / "streams.yaml").write_text(
        "streams: {s: {event_time: ts, schema: {id: bigint, ts: timestamp, k: string, op: string}}}"
    )
    (tmp_path / "r.cep").write_text("RULE r FROM s PARTITION BY id PATTERN a DEFINE a AS id > 0")
    file = tmp_path / "p.yaml"

    def spec(columns: str, value: str = "debezium") -> MessageSpec:
        file.write_text(
            "rules: [r.cep]\nsource: {stream: s, format: kafka, brokers: b, topic: t, "
            f"value: {value}, columns: {columns}}}\nsinks: [{{format: json, path: out}}]\ncheckpoint: c\n"
        )
        [source] = load_pipeline(file).sources
        assert isinstance(source.spec, MessageSpec)
        return source.spec

    stream = Stream(
        "s",
        (Field("id", "bigint"), Field("ts", "timestamp"), Field("k", "string"), Field("op", "string")),
        "ts",
    )
    opened = spec("{commit_time: ts, op: op, key: k}").open(SourceContext(stream, (), is_stream=True))
    assert isinstance(opened, MessageSource)
    assert opened.reading.columns == {"k": "key"}
    assert opened.reading.value_format == DebeziumFormat((("ts", "commit_time"), ("op", "op")))
    for columns, value in (("{op: op}", "json"), ("{number: op}", "debezium")):
        with pytest.raises(Exception, match="E0841"):
            spec(columns, value)


def test_a_table_of_envelopes_is_joined_as_any_other() -> None:
    fields = (
        *(Field("id", "bigint"), Field("limit", "double"), Field("at", "timestamp")),
        *(Field("op", "string"), Field("lsn", "bigint")),
    )
    customers = Stream(
        "customers", fields, "at", ("lsn",), table=TableSettings(("id",), TableKind.CHANGELOG, "op")
    )
    payments = Stream(
        "payments", (Field("id", "bigint"), Field("ts", "timestamp"), Field("amount", "double")), "ts"
    )
    rule = (
        "RULE r FROM payments JOIN customers ON id PARTITION BY id PATTERN a "
        "DEFINE a AS amount > customers.limit OR customers.limit IS NULL "
        "MEASURES a.ts AS ts, a.customers.limit AS most MATCH ALL"
    )
    changes = [
        envelope("r", {"id": 1, "limit": 10.0}, ts_us=1_000_000, lsn=1),
        envelope("u", {"id": 1, "limit": 30.0}, {"id": 1}, ts_us=3_000_000, lsn=4),
        envelope("u", {"id": 1, "limit": 20.0}, {"id": 1}, ts_us=3_000_000, lsn=3),
        wrapped(envelope("d", None, {"id": 1, "limit": None}, ts_us=5_000_000, lsn=7)),
        envelope("c", {"id": 1, "limit": 5.0}, ts_us=6_000_000, lsn=9),
    ]
    versions, dead = read(*changes, stream=customers, columns={"op": "op", "at": "commit_time", "lsn": "lsn"})
    assert dead == []
    rows = [{"id": 1, "ts": second * 1_000_000, "amount": 25.0} for second in range(8)]
    streams = {"payments": payments, "customers": customers}
    found = find_matches(rule, streams, {"payments": rows, "customers": versions})
    seconds = {(match["match_end"].second, match["most"]) for match in found}
    assert seconds == {(0, None), (1, 10.0), (2, 10.0), (5, None), (6, 5.0), (7, 5.0)}
