"""Files that cannot be read to their end, or are not of the stream: they stop a run, or are quarantined."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.errors import InputError
from cep.formats.chunks import Chunk
from cep.formats.files import BadFile, read_events
from cep.schema.stream import Field, Stream

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
N = 20_000


def cut_gzip(folder: Path, *, share: float) -> Path:
    text = "".join(f'{{"id":{number},"ts":"2024-05-01","x":"{number * 7919 % N}"}}\n' for number in range(N))
    data = gzip.compress(text.encode())
    file = folder / "a.json.gz"
    file.write_bytes(data[: int(len(data) * share)])
    return file


def cut_parquet(folder: Path) -> Path:
    file = folder / "a.parquet"
    ids = pa.array(range(N), pa.int64())
    times = pa.array([0] * N, pa.timestamp("us", tz="UTC"))
    pq.write_table(pa.table({"id": ids, "ts": times}), file, row_group_size=N // 4, compression="none")
    data = bytearray(file.read_bytes())
    start = pq.read_metadata(file).row_group(2).column(0).data_page_offset
    data[start : start + 200] = b"\xff" * 200
    file.write_bytes(bytes(data))
    return file


def chunks(file: Path, on_bad_file: BadFile = BadFile.QUARANTINE) -> list[Chunk]:
    return list(read_events(file, STREAM, on_bad_file=on_bad_file))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9999])
def test_of_a_cut_file_all_that_can_be_read_is_read(tmp_path: Path, share: float) -> None:
    file = cut_gzip(tmp_path, share=share)
    with pytest.raises(InputError, match="E0606"):
        chunks(file, BadFile.FAIL)
    *read, last = chunks(file)
    ids = [number for chunk in read for number in chunk.events.column("id").to_pylist()]
    assert ids == list(range(len(ids)))
    assert len(ids) > 0.8 * share * N
    assert last.is_refused
    (letter,) = last.dead_letters.to_pylist()
    assert (letter["source"], letter["position"], letter["raw"]) == (str(file), len(ids) + 1, None)
    refused = f"the file is refused from here on: E0606, `{file}` cannot be read behind line {len(ids):,}: "
    assert letter["reason"].startswith(refused)


def test_of_a_damaged_parquet_file_the_batches_before_the_damage_are_read(tmp_path: Path) -> None:
    file = cut_parquet(tmp_path)
    with pytest.raises(InputError, match="E0606"):
        chunks(file, BadFile.FAIL)
    *read, last = chunks(file)
    assert sum(chunk.events.num_rows for chunk in read) == N // 2
    assert last.dead_letters.column("position").to_pylist() == [N // 2 + 1]


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.csv", "no,header\n1,2\n", "E0604"),
        ("a.csv", '"open\n', "E0606"),
        ("a.parquet", "no Parquet", "E0606"),
    ],
)
def test_a_file_that_is_not_of_the_stream_is_one_dead_letter(
    tmp_path: Path, name: str, text: str, code: str
) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(InputError, match=code):
        chunks(file, BadFile.FAIL)
    (last,) = chunks(file)
    (letter,) = last.dead_letters.to_pylist()
    assert letter["position"] == 1
    assert letter["reason"].startswith(f"the file is refused from here on: {code}, ")


def test_the_files_after_a_bad_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("no,header\n1,2\n")
    (tmp_path / "2.csv").write_text("id,ts\n7,2024-05-01\n")
    found = [chunk.events.column("id").to_pylist() for chunk in chunks(tmp_path)]
    assert found == [[], [7]]


PACKED = ("gz", "bz2", "zst", "lz4")


def packed(kind: str, first: int, end: int) -> bytes:
    """Return lines with the ids from `first` on as a part of a packed file, with a checksum."""
    text = "".join(f'{{"id":{number},"ts":"2024-05-01"}}\n' for number in range(first, end)).encode()
    if kind == "gz":
        return gzip.compress(text)
    if kind == "bz2":
        return bz2.compress(text)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, {"zst": "zstd", "lz4": "lz4"}[kind]) as file:
        file.write(text)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def ids_and_letters(file: Path, on_bad_file: BadFile) -> tuple[list[int], list[tuple[int, str]]]:
    found = chunks(file, on_bad_file)
    letters = [letter for chunk in found for letter in chunk.dead_letters.to_pylist()]
    ids = [number for chunk in found for number in chunk.events.column("id").to_pylist()]
    return ids, [(letter["position"], letter["reason"]) for letter in letters]


@pytest.mark.parametrize("n", [5, 20_000])
@pytest.mark.parametrize("kind", PACKED)
def test_zeros_behind_the_end_of_a_packed_file_are_padding(tmp_path: Path, kind: str, n: int) -> None:
    file = tmp_path / f"a.json.{kind}"
    for n_zeros in (1, 7, 100_000):
        file.write_bytes(packed(kind, 0, n) + packed(kind, n, 2 * n) + bytes(n_zeros))
        assert ids_and_letters(file, BadFile.FAIL) == (list(range(2 * n)), [])


@pytest.mark.parametrize("on_bad_file", list(BadFile))
@pytest.mark.parametrize("kind", PACKED)
def test_other_bytes_behind_the_end_are_named_and_cost_no_line(
    tmp_path: Path, kind: str, on_bad_file: BadFile
) -> None:
    file = tmp_path / f"a.json.{kind}"
    form = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}[kind]
    whole = packed(kind, 0, 5) + packed(kind, 5, 10)
    for behind, n in ((b"x", "1 byte"), (b"no!\n" * 50, "200 bytes"), (bytes(5000) + b"x", "5,001 bytes")):
        file.write_bytes(whole + behind)
        reason = f"`{file}` has {n} after its end that are not {form}"
        expected = [(11, f"the file is refused from here on: E0624, {reason}")]
        assert ids_and_letters(file, on_bad_file) == (list(range(10)), expected)
    assert chunks(file, on_bad_file)[-1].is_refused


@pytest.mark.parametrize("kind", PACKED)
def test_of_several_parts_all_lines_before_the_damage_are_read(tmp_path: Path, kind: str) -> None:
    file = tmp_path / f"a.json.{kind}"
    first, second = packed(kind, 0, 5), packed(kind, 5, 10)
    for cut in (1, len(second) // 2, len(second) - 1):
        file.write_bytes(first + second[:-cut])
        with pytest.raises(InputError, match="E0606"):
            chunks(file, BadFile.FAIL)
        ids, [(position, reason)] = ids_and_letters(file, BadFile.QUARANTINE)
        assert ids == list(range(len(ids)))
        assert (len(ids) >= 5, position) == (True, len(ids) + 1)
        assert f"E0606, `{file}` cannot be read behind line {len(ids)}: " in reason
    damaged = first + second[:4] + b"\xff" * 8 + second[12:]
    file.write_bytes(damaged + packed(kind, 10, 15))
    ids, letters = ids_and_letters(file, BadFile.QUARANTINE)
    assert ids[:5] == list(range(5))
    assert "E0606" in letters[-1][1]


def test_a_line_without_an_end_is_read_though_bytes_are_behind_it(tmp_path: Path) -> None:
    file = tmp_path / "a.json.gz"
    file.write_bytes(gzip.compress(b'{"id":1,"ts":"2024-05-01"}') + b"garbage")
    assert ids_and_letters(file, BadFile.FAIL)[0] == [1]
