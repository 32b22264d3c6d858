"""Where the event times of a file begin and end, without reading it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cep.formats.ahead import AheadGuard
from cep.formats.files import Format, Reading, is_plain_text
from cep.schema.stream import CsvLayout, Field, Stream
from spark_runtime.connectors.files.time_span import PEEK_BYTES, time_span
from spark_runtime.event_time.partitions import NO_SPAN, TimeSpan

DAY_US = 86_400_000_000
STREAM = Stream("s", (Field("ts", "timestamp"), Field("text", "string")), "ts", csv=CsvLayout())


def span(file: Path, file_format: Format, start: int = 0, end: int | None = None) -> TimeSpan:
    bounds = start, file.stat().st_size if end is None else end
    is_plain = is_plain_text(str(file), file_format, STREAM)
    ahead = AheadGuard(STREAM.max_ahead_us)
    return time_span(str(file), bounds, STREAM, file_format, Reading(), ahead, is_plain=is_plain)


def day(number: int) -> str:
    return f"1970-01-{number:02}T00:00:00Z"


def lines(*days: int, text: str = "") -> str:
    return "".join(json.dumps({"ts": day(number), "text": text}) + "\n" for number in days)


def test_a_small_file_is_known_by_the_earliest_of_its_events(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(lines(3, 2, 5))
    assert span(file, Format.JSON) == (DAY_US, DAY_US)


def test_of_a_large_file_the_beginning_and_the_end_are_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    long = "x" * (PEEK_BYTES // 20)
    file.write_text(lines(*[2] * 30, text=long) + lines(*[9] * 40, text=long) + lines(*[8] * 30, text=long))
    assert span(file, Format.JSON) == (DAY_US, 7 * DAY_US)


def test_a_part_of_a_file_has_its_own_span(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    first = lines(2, 3)
    file.write_text(first + lines(6, 7))
    assert span(file, Format.JSON, len(first)) == (5 * DAY_US, 5 * DAY_US)
    assert span(file, Format.JSON, 0, len(first)) == (DAY_US, DAY_US)


def test_csv_has_its_header_first(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    head = f"text,ts\na,{day(2)}\n"
    file.write_text(head + f"b,{day(4)}\n")
    assert span(file, Format.CSV, len(head)) == (3 * DAY_US, 3 * DAY_US)


def test_the_end_of_a_packed_file_is_not_known(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(gzip.compress(lines(4, 5).encode()))
    assert span(file, Format.JSON) == (3 * DAY_US, None)


def test_parquet_is_known_by_its_first_and_last_row_group(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    times = pa.array([3 * DAY_US, 2 * DAY_US, 8 * DAY_US, 9 * DAY_US], pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"ts": times, "text": ["a"] * 4}), file, row_group_size=2)
    assert span(file, Format.PARQUET) == (2 * DAY_US, 8 * DAY_US)


def test_dead_letters_say_nothing_of_time(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"ts": "soon"}\n' + lines(*[3] * 9) + '{"ts": "2999-01-01T00:00:00Z"}\nno JSON\n')
    assert span(file, Format.JSON) == (2 * DAY_US, 2 * DAY_US)


def test_a_file_that_cannot_be_read_has_no_span(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    file.write_bytes(b"no Parquet")
    assert span(file, Format.PARQUET) == NO_SPAN
    assert span(file.with_name("gone.jsonl"), Format.JSON, 0, 5) == NO_SPAN
    empty = tmp_path / "a.jsonl"
    empty.write_text("\n\n")
    assert span(empty, Format.JSON) == NO_SPAN
