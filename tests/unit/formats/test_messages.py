"""Messages of a topic: each value is a record of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk
from cep.formats.protocol import FileFormat
from cep.formats.registry import FORMATS
from cep.formats.text.messages import EMPTY, MessageReader, Messages, tombstones
from cep.schema.stream import CsvLayout, DeviceClock, Field, Stream, TableSettings

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp"), Field("note", "string")), "ts")
T = "2024-05-01T00:00:00Z"


def read(stream: Stream, name: str, values: list[bytes], columns: dict[str, pa.Array] | None = None) -> Chunk:
    """Return the values at the offsets 100, 102, 104 and so on."""
    found = FORMATS.get(name)
    assert not isinstance(found, FileFormat)
    reader = MessageReader(stream, found, (), tuple(columns or ()))
    positions = 100 + 2 * np.arange(len(values))
    return reader.chunk(Messages("t[3]", values, positions, columns or {}), AheadGuard(stream.max_ahead_us))


def dead(chunk: Chunk) -> list[tuple[str, int, str | None]]:
    rows = chunk.dead_letters.to_pylist()
    assert {row["source"] for row in rows} <= {"t[3]"}
    return [(row["reason"], row["position"], row["raw"]) for row in rows]


def json_of(number: int, note: str = "x") -> bytes:
    return f'{{"id": {number}, "ts": "{T}", "note": "{note}"}}'.encode()


def test_json_messages_are_events_or_dead_letters_at_their_offsets() -> None:
    values = [json_of(1), b"no", json_of(2).replace(b",", b",\n"), json_of(3) * 2, b"", json_of(4), b"\xff"]
    chunk = read(STREAM, "json", values)
    assert chunk.events.column("id").to_pylist() == [1, 2, 4]
    assert (chunk.source, chunk.latest) == ("t[3]", 100)
    assert [(reason, position) for reason, position, _ in dead(chunk)] == [
        ("not a JSON object", 102),
        ("not a JSON object", 106),
        (EMPTY, 108),
        ("not UTF-8 text", 112),
    ]


def test_csv_messages_have_no_header_and_end_where_they_end() -> None:
    values = [
        f"1,{T},plain".encode(),
        f'2,{T},"open'.encode(),
        f'3,{T},closed"'.encode(),
        f'4,{T},"two\nlines"'.encode(),
        f"5,{T},a\n6,{T},b".encode(),
        f"7,{T},plain".encode(),
        b"",
        b"8,x",
        f"9,{T},a\r\n".encode(),
        f'9,{T},"a"b\r\n'.encode(),
    ]
    chunk = read(STREAM, "csv", values)
    assert chunk.events.to_pylist() == [
        {"id": 1, "ts": 1714521600000000, "note": "plain"},
        {"id": 4, "ts": 1714521600000000, "note": "two\nlines"},
        {"id": 7, "ts": 1714521600000000, "note": "plain"},
    ]
    assert dead(chunk) == [
        ("a quote that does not enclose a whole field", 102, f'2,{T},"open'),
        ("a quote that does not enclose a whole field", 104, f'3,{T},closed"'),
        ("a line feed outside quotes", 108, f"5,{T},a\n6,{T},b"),
        (EMPTY, 112, ""),
        ("2 fields where there are columns for 3", 114, "8,x"),
        ("a line feed outside quotes", 116, f"9,{T},a\r\n"),
        ("a quote that does not enclose a whole field", 118, f'9,{T},"a"b\r\n'),
    ]


@pytest.mark.parametrize("quote", ["", '"'])
def test_a_csv_message_of_two_lines_is_no_event(quote: str) -> None:
    stream = replace(STREAM, csv=CsvLayout(quote=quote))
    chunk = read(stream, "csv", [f"1,{T},a\n2,{T},b".encode()])
    assert (chunk.events.num_rows, [reason for reason, _, _ in dead(chunk)]) == (
        0,
        ["a line feed outside quotes"],
    )


def test_a_message_means_the_same_alone_and_among_others() -> None:
    values = [json_of(1), b'{"id": 1', json_of(2), b'"', b"\n", b'{"id": "x"}', json_of(3, "a\\nb")]
    for name, given in (
        ("json", values),
        (
            "csv",
            [f'1,{T},"a'.encode(), f'"b,{T},c'.encode(), f"2,{T},d\r".encode(), b'"', b"\n", b",,", b"\xff"],
        ),
    ):
        together = read(STREAM, name, given)
        alone = [read(STREAM, name, [value]) for value in given]
        assert pa.concat_tables([chunk.events for chunk in alone]).to_pylist() == together.events.to_pylist()
        reasons = [reason for chunk in alone for reason, _, _ in dead(chunk)]
        assert reasons == [reason for reason, _, _ in dead(together)]
        assert together.events.num_rows + together.dead_letters.num_rows == len(given)


def test_columns_that_are_not_in_the_value_are_typed_as_they_are_declared() -> None:
    stream = replace(STREAM, fields=(*STREAM.fields, Field("key", "bigint"), Field("sent", "timestamp")))
    columns = {
        "key": pa.array(["7", "x", None, "9"]),
        "sent": pa.array([1, 2, 3, 4], pa.int64()),
    }
    values = [json_of(1), json_of(2), json_of(3), b"no"]
    chunk = read(stream, "json", values, columns)
    assert [(row["id"], row["key"], row["sent"]) for row in chunk.events.to_pylist()] == [
        (1, 7, 1),
        (3, None, 3),
    ]
    assert [(reason, position) for reason, position, _ in dead(chunk)] == [
        ("field `key` is not of type bigint: x", 102),
        ("not a JSON object", 106),
    ]


def test_other_encodings_are_read_message_by_message() -> None:
    stream = replace(STREAM, csv=CsvLayout(encoding="latin-1"))
    chunk = read(stream, "csv", [f"1,{T},é".encode("latin-1")])
    assert chunk.events.column("note").to_pylist() == ["é"]
    assert read(stream, "csv", [b"\xe9"]).dead_letters.column("raw").to_pylist() == ["é"]


def test_where_times_are_estimated_the_event_time_is_no_part_of_the_value() -> None:
    fields = (Field("d", "string"), Field("e", "timestamp"), Field("s", "timestamp"), Field("r", "timestamp"))
    clock = DeviceClock("d", "e", "s", "r")
    stream = Stream("s", (*fields, Field("ts", "timestamp")), "ts", device_clock=clock)
    found = FORMATS.get("json")
    assert not isinstance(found, FileFormat)

    class Plain:
        def true_times(self, events: pa.Table) -> pa.Array:
            return events.column("r").combine_chunks()

        def copy(self) -> Plain:
            return self

    value = f'{{"d": "a", "e": "{T}", "s": "{T}", "r": "{T}"}}'.encode()
    messages = Messages("t[0]", [value], np.array([5]), {})
    chunk = MessageReader(stream, found).chunk(messages, AheadGuard(1, clocks=Plain()))
    assert chunk.events.column("ts").to_pylist() == [1714521600000000]
    assert chunk.latest == 5


def test_a_tombstone_is_a_dead_letter_without_a_text() -> None:
    assert tombstones("t[0]", [4, 9]).to_pylist() == [
        {"reason": "a message without a value (tombstone)", "source": "t[0]", "position": at, "raw": None}
        for at in (4, 9)
    ]


def test_a_value_without_an_operation_sets_the_row_of_a_table_in_which_tombstones_delete() -> None:
    fields = (Field("id", "bigint"), Field("at", "timestamp"), Field("op", "string"), Field("cap", "double"))
    table = Stream("customers", fields, "at", table=TableSettings(("id",), op="op"))
    found = FORMATS.get("json")
    assert not isinstance(found, FileFormat)
    columns = {"id": pa.array(["7", "8", "9"]), "at": pa.array([5, 6, 7], pa.int64())}
    values = [b'{"cap": 1.5}', b'{"cap": 2.5, "op": "d"}', b'{"op": null}']
    messages = Messages("t[3]", values, np.array([40, 41, 42]), columns)

    def read(upserts: str | None, given: Messages = messages) -> Chunk:
        reader = MessageReader(table, found, (), ("id", "at"), upserts)
        return reader.chunk(given, AheadGuard(table.max_ahead_us))

    chunk = read("op")
    assert [(row["id"], row["op"], row["cap"]) for row in chunk.events.to_pylist()] == [
        (7, "upsert", 1.5),
        (8, "d", 2.5),
        (9, "upsert", None),
    ]
    assert dead(chunk) == []
    plain = replace(messages, values=[b'{"cap": 1.5}'] * 3)
    assert (len(read("op", plain).events), dict(read("op", plain).absent)) == (3, {})
    assert [reason for reason, _, _ in dead(read(None))] == ["`op` is NULL"] * 2


def test_messages_without_a_value_delete_the_rows_of_their_keys() -> None:
    fields = (Field("id", "bigint"), Field("at", "timestamp"), Field("op", "string"), Field("cap", "double"))
    table = Stream("customers", fields, "at", table=TableSettings(("id",), op="op"))
    found = FORMATS.get("json")
    assert not isinstance(found, FileFormat)
    reader = MessageReader(table, found, (), ("id", "at"))
    columns = {"id": pa.array(["7", "x", None]), "at": pa.array([5, 6, 7], pa.int64())}
    empty = Messages("t[3]", [b""] * 3, np.array([40, 41, 42]), columns)
    chunk = reader.deletions(empty, "op", AheadGuard(table.max_ahead_us))
    assert chunk.events.to_pylist() == [{"id": 7, "at": 5, "op": "d", "cap": None}]
    assert [(reason, position) for reason, position, _ in dead(chunk)] == [
        ("field `id` is not of type bigint: x", 41),
        ("key is NULL: `id`", 42),
    ]
