"""Late events are written as their stream is read: what is written gives the same events again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cep.errors import Source
from cep.formats.files import read_events
from cep.formats.late_events import LATE_COLUMN, late_events
from cep.output.files import write_late
from cep.schema.stream import COMMA_SEPARATED, Stream
from cep.settings.schema_file import parse_streams

SCHEMA = """
      at: {type: timestamp, unit: seconds, field: meta.at}
      sent: {type: timestamp, unit: milliseconds, field: meta.sent}
      counted: {type: timestamp, unit: nanoseconds}
      local: {type: timestamp, format: "%d.%m.%y %I:%M:%S.%f %p", zone: Europe/Berlin}
      mailed: {type: timestamp, format: "%a, %d %b %Y %H:%M:%S %z"}
      berlin: {type: timestamp, zone: Europe/Berlin}
      born: {type: date, format: "%B %d %Y"}
      day: date
      card: {type: string, field: n.card_id}
      price: {type: "decimal(10,2)", field: n.price}
      id: {type: bigint, field: _id}
      twice: {type: bigint, field: _id}
"""

ROWS = [
    '{"meta":{"at":1714557600,"sent":1714557600123},"counted":1714557600123456000,'
    '"local":"31.03.24 01:30:00.5 AM","mailed":"wed, 1 may 2024 12:30:00 +0200","berlin":"2024-10-27 02:30",'
    '"born":"july 4 1976","day":"2024-05-01","n":{"card_id":"c,1","price":12.5},"_id":7}',
    '{"meta":{"at":1714557601.25},"local":"27.10.24 02:30:00.000001 AM",'
    '"mailed":"Thu, 02 May 2024 00:00:00 Z"}',
]


def stream_of(more: str = "") -> Stream:
    text = f"streams:\n  s:\n    event_time: at\n    schema: {SCHEMA}{more}"
    streams, problems = parse_streams(Source("streams.yaml", text))
    assert problems == []
    return streams["s"]


def events_of(path: Path, stream: Stream) -> pa.Table:
    chunks = list(read_events(path, stream))
    assert [letter for chunk in chunks for letter in chunk.dead_letters.to_pylist()] == []
    return pa.concat_tables([chunk.events for chunk in chunks])


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_late_events_are_written_in_the_form_in_which_they_are_read(tmp_path: Path, suffix: str) -> None:
    stream = stream_of("    csv: {delimiter: tab}\n")
    (tmp_path / "a.jsonl").write_text("\n".join(ROWS))
    events = events_of(tmp_path / "a.jsonl", stream)
    late = late_events(events, np.array([1_500_000, 2_000_000]), stream)
    written = tmp_path / f"late{suffix}"
    write_late(written, {stream: late})
    # A CSV file of late events has commas, whatever the stream declares.
    again = replace(stream, csv=COMMA_SEPARATED) if suffix == ".csv" else stream
    assert events_of(written, again).to_pylist() == events.to_pylist()
    assert late.column(LATE_COLUMN).to_pylist() == [1.5, 2.0]


def test_a_late_event_in_json_is_what_was_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(ROWS[1])
    stream = stream_of()
    events = events_of(tmp_path / "a.jsonl", stream)
    write_late(tmp_path / "late.jsonl", {stream: late_events(events, np.array([10]), stream)})
    assert (tmp_path / "late.jsonl").read_text() == (
        '{"meta": {"at": 1714557601.25}, "local": "27.10.24 02:30:00.000001 AM", '
        '"mailed": "Thu, 02 May 2024 00:00:00 Z", "_late_seconds": 1e-05}\n'
    )


def test_a_field_inside_a_column_that_is_read_whole_is_written_once(tmp_path: Path) -> None:
    text = """streams:
  s:
    event_time: ts
    schema: {ts: timestamp, card: {type: string, field: n.card}, n: "struct<card: string, k: int>"}
"""
    stream = parse_streams(Source("streams.yaml", text))[0]["s"]
    line = '{"ts":"2024-05-01T00:00:00Z","n":{"card":"c1","k":2}}'
    (tmp_path / "a.jsonl").write_text(line)
    events = events_of(tmp_path / "a.jsonl", stream)
    late = late_events(events, np.array([10]), stream)
    for suffix in (".jsonl", ".parquet"):
        write_late(tmp_path / f"late{suffix}", {stream: late})
        assert events_of(tmp_path / f"late{suffix}", stream).to_pylist() == events.to_pylist()
