"""What each format of events promises, whoever wrote it (`cep.formats.protocol`)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.diagnostics.codes import FILES
from cep.errors import InputError
from cep.formats.chunks import Piece
from cep.formats.files import Format
from cep.formats.protocol import AnyFormat, FileFormat, RecordFormat
from cep.formats.registry import FORMATS, format_of_name
from cep.formats.text.text_files import TextReader, line_blocks
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema
from tests.sample_plugin.sample_kv.records import KEY_VALUE

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp"), Field("day", "string")), "ts")
TIME = datetime(2024, 5, 1, tzinfo=UTC)

Written = tuple[list[int], dict[int, str]]
"""The ids of the events, and the reasons of the dead letters by position."""


def lines(file: Path, header: bytes, good: str, hostile: list[tuple[bytes, str]], first: int) -> Written:
    """Write hostile lines among good ones; return what is to come out."""
    written, dead, ids = [header] if header else [], {}, []
    for number, (line, reason) in enumerate(hostile):
        ids += [2 * number, 2 * number + 1]
        written += [good.format(2 * number).encode(), line, good.format(2 * number + 1).encode()]
        if reason:
            dead[first + 3 * number + 1] = reason
    file.write_bytes(b"\n".join(written))
    return ids, dead


def json_file(file: Path) -> Written:
    good = '{{"id":{},"ts":"2024-05-01T00:00:00Z","day":"d"}}'
    wrong = "field `id` is not of type bigint: "
    hostile = [
        (b"", ""),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"{" * 3000, "not a JSON object"),
        (b'{"id":1.5}', f"{wrong}1.5"),
        (b'{"id":' + b"9" * 500 + b"}", f"{wrong}{'9' * 60}..."),
        (b"[1]", "not a JSON object"),
        (b'{"id":1', "not a JSON object"),
    ]
    return lines(file, b"", good, hostile, 1)


def csv_file(file: Path) -> Written:
    hostile = [
        (b"", ""),
        (b"\xff,2024-05-01,d", "not UTF-8 text"),
        (b"x,2024-05-01,d", "field `id` is not of type bigint: x"),
        (b"1,2024-05-01", "2 fields where the header has 3"),
        (b'1,"2024"-05-01,d', "a quote that does not enclose a whole field"),
    ]
    return lines(file, b"id,ts,day", "{},2024-05-01T00:00:00Z,d", hostile, 2)


def key_value_file(file: Path) -> Written:
    hostile = [
        (b"", ""),
        (b"id=\xff", "not UTF-8 text"),
        (b"nothing", "not key=value"),
        (b"id=x", "field `id` is not of type bigint: x"),
    ]
    return lines(file, b"", "id={} ts=2024-05-01T00:00:00Z day=d", hostile, 1)


def parquet_file(file: Path) -> Written:
    days = pa.array([b"d", b"\xff", b"d"]).view(pa.string())
    pq.write_table(pa.table({"id": [0, 9, 1], "ts": [TIME] * 3, "day": days}), file)
    return [0, 1], {2: 'field `day` is not of type string: "\N{REPLACEMENT CHARACTER}"'}


MADE: dict[str, Callable[[Path], Written]] = {
    "json": json_file,
    "csv": csv_file,
    "parquet": parquet_file,
    "kv": key_value_file,
}
ALL: list[AnyFormat] = [*(FORMATS.get(name) for name in FORMATS.built_in), KEY_VALUE]
EACH = pytest.mark.parametrize("found", ALL, ids=lambda found: found.name)


def pieces(found: AnyFormat, file: Path, block_bytes: int = 1 << 20) -> list[Piece]:
    if isinstance(found, FileFormat):
        return list(found.read(str(file), STREAM, in_worker=False))
    reader = TextReader(str(file), STREAM, found, {})
    blocks = line_blocks(str(file), block_bytes, found.encoding(STREAM))
    read = [piece for block in blocks for piece in reader.read(block)]
    return [*read, *reader.read([], is_last=True)]


def come_out(read: list[Piece]) -> tuple[list[Any], list[int], dict[int, str]]:
    rows = [row for piece in read for row in piece.events.to_pylist()]
    positions = [position for piece in read for position in piece.positions.tolist()]
    return rows, positions, {at: reason for piece in read for at, reason in piece.problems}


def test_each_format_of_this_package_is_tried_here() -> None:
    assert {*FORMATS.built_in, "kv"} == set(MADE)
    assert list(FORMATS.built_in) == list(Format)


@EACH
def test_a_format_is_of_one_protocol_and_known_by_its_endings(found: AnyFormat) -> None:
    assert isinstance(found, FileFormat) is not isinstance(found, RecordFormat)
    if found is not KEY_VALUE:
        assert {format_of_name(f"a{suffix}") for suffix in found.suffixes} == {found.name}
    assert all(suffix == suffix.lower() and suffix.startswith(".") for suffix in found.suffixes)


@EACH
def test_each_record_is_an_event_with_its_position_or_a_problem(found: AnyFormat, tmp_path: Path) -> None:
    file = tmp_path / f"a{found.suffixes[0]}"
    ids, dead = MADE[found.name](file)
    read = pieces(found, file)
    rows, positions, problems = come_out(read)
    assert [row["id"] for row in rows] == ids
    assert problems == dead
    assert len(positions) == len(ids) == len(set(positions) - set(problems))
    assert positions == sorted(positions)
    for piece in read:
        assert piece.events.schema.names == event_table_schema(STREAM).names
        assert len(piece.raws([at for at, _ in piece.problems])) == len(piece.problems)


@EACH
@pytest.mark.parametrize("block_bytes", [1, 7, 100])
def test_what_a_record_means_does_not_depend_on_the_size_of_blocks(
    found: AnyFormat, tmp_path: Path, block_bytes: int
) -> None:
    file = tmp_path / f"a{found.suffixes[0]}"
    MADE[found.name](file)
    assert come_out(pieces(found, file, block_bytes)) == come_out(pieces(found, file))


@EACH
def test_a_file_of_another_kind_is_refused_or_all_dead_letters(found: AnyFormat, tmp_path: Path) -> None:
    file = tmp_path / f"a{found.suffixes[0]}"
    file.write_bytes(bytes(range(256)) * 10)
    code = ""
    rows: list[Any] = []
    problems: Any = {}
    try:
        rows, _, problems = come_out(pieces(found, file))
    except InputError as error:
        code = error.code
    assert rows == []
    assert problems or code in FILES


@pytest.mark.parametrize("found", [f for f in ALL if isinstance(f, RecordFormat)], ids=lambda f: f.name)
def test_records_of_no_file_have_no_header(found: RecordFormat) -> None:
    good = {
        "json": b'{"id":7,"ts":"2024-05-01","day":"d"}',
        "csv": b"7,2024-05-01,d",
        "kv": b"id=7 ts=2024-05-01 day=d",
    }
    reader = found.reader("topic[3]", STREAM)
    for _ in range(2):
        decoded = reader.decode([good[found.name]], is_last=True)
        assert decoded.events.column("id").to_pylist() == [7]
        assert (decoded.indices.tolist(), list(decoded.problems), decoded.n_read) == ([0], [], 1)
