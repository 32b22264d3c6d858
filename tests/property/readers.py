"""``python -m tests.property.readers --examples N`` or ``--minutes M`` reads files until one does harm.

An example is a line, a row of Parquet or a damaged file. Each becomes an event or a dead letter, or its file
is refused with a code. The result is the same if the example is alone, among good lines, in blocks of any
size, or in the portions in which Spark reads lines. Dead letters can be written and read again.
"""

from __future__ import annotations

import argparse
import atexit
import gzip
import io
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cep.diagnostics.codes import FILES
from cep.errors import InputError
from cep.expression import Type
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, Piece, checked
from cep.formats.dead_letter import CARRIAGE_RETURN, MISPLACED_QUOTE, not_encoded
from cep.formats.files import Format, read_events, text_reader
from cep.formats.lines import lines_of_column, lines_of_objects
from cep.formats.text import csv_lines, json_lines
from cep.formats.text.json import columns
from cep.formats.text.text_files import lines_as_utf8
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema
from tests.property.hostile_events import (
    csv_header,
    csv_line,
    draw_stream,
    good_csv_line,
    good_json_line,
    hostile_csv_line,
    hostile_json_line,
    parquet_table,
)
from tests.property.hostile_text import damage_bytes

N_GOOD = 120
"""Good lines around hostile ones. There are so many that they are not read one by one."""

BOM = b"\xef\xbb\xbf"

STREAMS_EVERY = 20
"""Batches of lines of one stream."""

Row = tuple[Any, ...]
Found = dict[int, Row | str]
"""Line -> its event, with floats as bits, or the reason why it is no event."""


class HarmError(Exception):
    """A line, a row or a file was read in a wrong way."""


def rows_of(events: pa.Table) -> list[Row]:
    """Return events with floats as bits, so that zeros have signs and NaN is equal to itself."""
    columns = [
        column.combine_chunks().view(pa.int64()) if column.type == pa.float64() else column
        for column in events.columns
    ]
    values = [column.to_pylist() for column in columns]
    return list(zip(*values, strict=True)) if values else [()] * len(events)


def of_lines(events: pa.Table, indices: Any, problems: Iterable[tuple[int, str]], schema: pa.Schema) -> Found:
    """Return the result of each line. Raises HarmError if a line became two things."""
    if events.schema != schema or len(events) != len(indices):
        raise HarmError(f"events of schema {events.schema}, {len(events)} of {len(indices)}")
    indices = indices.tolist()
    if indices != sorted(indices):
        raise HarmError("events out of order")
    pairs: list[tuple[int, Row | str]] = [*zip(indices, rows_of(events), strict=True), *problems]
    found = dict(pairs)
    if len(found) != len(pairs):
        raise HarmError("a line is an event twice, or an event and a dead letter")
    return found


def check_letters(chunk: Chunk) -> None:
    """Write the dead letters of a chunk as JSON and Parquet and read them again. Raises HarmError."""
    letters = chunk.dead_letters
    letters.validate(full=True)
    rows = letters.to_pylist()
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    if [json.loads(line) for line in text.split(b"\n")[:-1]] != rows:
        raise HarmError("dead letters as JSON lines are others")
    file = io.BytesIO()
    pq.write_table(letters, file)
    if pq.read_table(io.BytesIO(file.getvalue())) != letters:
        raise HarmError("dead letters as Parquet are others")
    for row in rows:
        if not row["reason"].isprintable() or len(row["reason"]) > 1000:
            raise HarmError(f"a reason that cannot be shown: {row['reason']!r}")


Read = tuple[list[Row], list[Row], str]
"""The events of a file, its dead letters, and the code of the error if the whole file is wrong."""


def compare(one: Read, other: Read, what: str) -> None:
    """Raise HarmError if two ways of reading a file gave different results."""
    for a, b in zip(one, other, strict=True):
        if isinstance(a, str) or isinstance(b, str) or len(a) != len(b):
            if a != b:
                raise HarmError(
                    f"{what}: {one[2]} {len(one[0])} {one[1][:5]}, {other[2]} {len(other[0])} {other[1][:5]}"
                )
            continue
        for row, (x, y) in enumerate(zip(a, b, strict=True)):
            if x != y:
                raise HarmError(f"{what}: row {row} {x}, {y}")


def check_chunks(chunks: Sequence[Chunk], stream: Stream, code: str) -> Read:
    """Check the form of events and dead letters, and return them as rows."""
    schema = event_table_schema(stream)
    for chunk in chunks:
        if [column.name for column in chunk.events.schema] != schema.names:
            raise HarmError(f"events of schema {chunk.events.schema}")
        chunk.events.validate(full=True)
        for column in stream.fields:
            if column.type is Type.TIMESTAMP:  # Python holds timestamps of some years only
                chunk.events.column(column.name).cast(pa.timestamp("us")).to_pylist()
        check_letters(chunk)
    events = [row for chunk in chunks for row in rows_of(chunk.events.cast(schema))]
    letters = [tuple(row.values()) for chunk in chunks for row in chunk.dead_letters.to_pylist()]
    return events, letters, code


def read_file(path: Path, stream: Stream, kind: Format | None = None, **options: Any) -> Read:
    """Return the content of a file, and the code of the error if the whole file is wrong."""
    chunks: list[Chunk] = []
    try:
        chunks.extend(read_events(path, stream, kind, keys=[("ts",)], **options))
    except InputError as error:
        if error.code not in FILES or not str(error):
            raise HarmError(f"{error.code} is no code") from error
        return check_chunks(chunks, stream, error.code)
    return check_chunks(chunks, stream, "")


# ---------------------------------------------------------------- lines


def _json_parse(lines: Sequence[bytes], stream: Stream) -> Found:
    """Return the result of each line, with the kernel and without it. Raises HarmError if they differ."""
    schema = event_table_schema(stream)
    found = of_lines(*json_lines.parse(lines, stream), schema)
    without = of_lines(*json_lines.parse_otherwise(lines, stream), schema)
    for index in found.keys() | without.keys():
        if found.get(index) != without.get(index):
            raise HarmError(
                f"{lines[index]!r} by the kernel: {found.get(index)}, otherwise: {without.get(index)}"
            )
    return found


def n_plain(lines: Sequence[bytes], stream: Stream) -> int:
    """Return how many lines the kernel takes. Raises HarmError if it takes others where they lie otherwise.

    Lines may lie one behind the other with nothing between them, as messages do.
    """
    plan = columns.plan_of(stream)
    if plan is None or len(lines) <= json_lines.ONE_BY_ONE:
        return 0
    apart = columns.plain_events(lines_of_objects(lines), stream, plan)
    close = columns.plain_events(lines_of_column(pa.array(lines, pa.binary())), stream, plan)
    schema = event_table_schema(stream)
    if of_lines(*apart[:2], (), schema) != of_lines(*close[:2], (), schema):
        raise HarmError("the kernel reads messages in another way than lines")
    return len(apart[0])


def _csv_parse(lines: Sequence[bytes], stream: Stream, header: Sequence[str]) -> Found:
    parsed = csv_lines.read(lines, header, stream)
    if parsed.n_read != len(lines):
        raise HarmError("lines were left")
    return of_lines(parsed.events, parsed.indices, parsed.problems, event_table_schema(stream))


def try_lines(random: Random, tally: Counter[str], stream: Stream, *, is_csv: bool) -> int:
    """Try a few hostile lines and return their number."""
    # Because of one bad line Arrow's JSON reader refuses many lines. If many lines are bad, all lines are
    # read one by one.
    n_hostile = random.choice((1, 2, 4, 8, 40) if not is_csv else (1, 8, 100, 200))
    n_good = random.choice((0, N_GOOD, N_GOOD))
    header = csv_header(stream)
    if is_csv:
        goods = [good_csv_line(stream, header, random) for _ in range(20)]
        hostile = [hostile_csv_line(stream, header, random) for _ in range(n_hostile)]
    else:
        goods = [good_json_line(stream, random) for _ in range(20)]
        hostile = [hostile_json_line(stream, random) for _ in range(n_hostile)]
    lines = [random.choice(goods) for _ in range(n_good)]
    for line in hostile:
        lines.insert(random.choice((0, len(lines), random.randint(0, len(lines)))), line)

    def parse(some: Sequence[bytes]) -> Found:
        return _csv_parse(some, stream, header) if is_csv else _json_parse(some, stream)

    # A hostile line of CSV may contain line feeds, and its record may include the lines after it.
    lines = b"\n".join(lines).split(b"\n") if lines else []
    together = parse(lines)
    if not is_csv:
        tally["lines of many that the kernel took"] += n_plain(lines, stream)
    records = csv_lines.read(lines, header, stream).records if is_csv else lines
    full = [index for index, record in enumerate(records) if (record if is_csv else _is_full(record))]
    if sorted(together) != full:
        raise HarmError(f"lines were lost or made: {sorted(together)} of {records}")
    # The record of an open quote includes the lines after the quote.
    of_form = {MISPLACED_QUOTE, CARRIAGE_RETURN, not_encoded(stream.csv.encoding)}
    closed = [index for index in full if not is_csv or together[index] not in of_form]
    odd = [index for index in closed if records[index] in hostile]
    for part in [random.choices(full, k=1) if full else [], *_parts(random, closed, odd)]:
        some = b"\n".join(records[index] for index in part).split(b"\n") if part else []
        apart = [found for _, found in sorted(parse(some).items())]
        for index, found in zip(part, apart, strict=True):
            if found != together[index]:
                raise HarmError(f"{records[index]!r} among others: {together[index]}, apart: {found}")
    if random.random() < 0.1:
        _try_file(random, tally, stream, lines, header if is_csv else ())
    tally["events of hostile lines"] += max(
        0, sum(not isinstance(found, str) for found in together.values()) - n_good
    )
    tally[f"{'CSV' if is_csv else 'JSON'} lines"] += n_hostile
    return n_hostile


def _is_full(line: bytes) -> bool:
    """Return whether a line of JSON is not empty."""
    return bool(line.removeprefix(BOM).strip())


def _parts(random: Random, indices: Sequence[int], odd: Sequence[int]) -> list[list[int]]:
    """Return a few `odd` indices, whose lines are then read one by one, and all indices in two parts."""
    few = sorted(random.sample(odd, min(len(odd), json_lines.ONE_BY_ONE)))
    is_first = [random.random() < 0.5 for _ in indices]
    halves = [
        [index for index, first in zip(indices, is_first, strict=True) if first is side]
        for side in (True, False)
    ]
    return [few, *halves] if random.random() < 0.3 else [few]


def _try_file(
    random: Random, tally: Counter[str], stream: Stream, lines: list[bytes], header: Sequence[str]
) -> None:
    """Read lines as a file, in blocks of two sizes, and in the portions in which Spark reads them."""
    is_csv = bool(header)
    if is_csv and stream.csv.has_header:
        lines = [csv_line(stream, header, dict(zip(header, header, strict=True)), random), *lines]
    end = random.choice((b"\n", b"\r\n"))
    data = end.join(lines) + random.choice((b"", end))
    encoding = stream.csv.encoding if is_csv else "utf-8"
    if encoding != "utf-8":
        data = data.decode(errors="replace").encode(encoding, errors="replace")
    is_packed = random.random() < 0.1
    path = _folder() / f"f.{'csv' if is_csv else 'json'}{'.gz' if is_packed else ''}"
    path.write_bytes(gzip.compress(data, 1) if is_packed else data)
    whole = read_file(path, stream)
    size = random.choice((7, 100, 100, 1000, 1000, 1000))
    compare(whole, read_file(path, stream, block_bytes=size), f"at once and in blocks of {size}")
    tally[f"files refused with {whole[2]}" if whole[2] else "files"] += 1
    n_full = sum(map(_is_full, lines))
    if not is_csv and not whole[2] and len(whole[0]) + len(whole[1]) != n_full:
        raise HarmError(f"{len(whole[0])} events and {len(whole[1])} dead letters of {n_full} lines")
    if data and not encoding.startswith("utf-16"):
        kind = Format.CSV if is_csv else Format.JSON
        compare(whole, _in_portions(random, path, stream, kind, data), "at once and in portions")


def _in_portions(random: Random, path: Path, stream: Stream, kind: Format, data: bytes) -> Read:
    lines = [line.removesuffix(b"\r") for line in data.removesuffix(b"\n").split(b"\n")] if data else []
    chunks: list[Chunk] = []

    def take(pieces: Iterable[Piece]) -> None:
        chunks.extend(checked(piece, stream, [("ts",)], AheadGuard(stream.max_ahead_us)) for piece in pieces)

    try:
        reader = text_reader(str(path), stream, kind)
        while lines:
            n = random.randint(1, 50)
            portion = lines_as_utf8(lines[:n], reader.encoding)
            take(reader.read(portion))
            lines = lines[n:]
        take(reader.read([], is_last=True))
    except InputError as error:
        return check_chunks(chunks, stream, error.code)
    return check_chunks(chunks, stream, "")


@cache
def _folder() -> Path:
    """Return a folder for files. It is in memory if the machine has a known folder in memory."""
    folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
    atexit.register(folder.cleanup)
    return Path(folder.name)


# ---------------------------------------------------------------- rows and bytes


def try_rows(random: Random, tally: Counter[str], stream: Stream) -> int:
    """Try a file of Parquet and return the number of its rows."""
    n = random.choice((0, 1, 30, 100))
    table = parquet_table(stream, random, n)
    if table is None:
        return 0
    file = io.BytesIO()
    try:
        pq.write_table(
            table,
            file,
            row_group_size=random.choice((None, 7)),
            compression=random.choice(("snappy", "none", "zstd")),
            use_dictionary=random.random() < 0.7,
            store_schema=random.random() < 0.5,
            write_page_checksum=random.random() < 0.5,
            data_page_version=random.choice(("1.0", "2.0")),
        )
    except (pa.ArrowException, OverflowError):
        tally["tables that Parquet has not"] += 1
        return 0
    data = file.getvalue()
    is_damaged = random.random() < 0.1
    if is_damaged:
        data = damage_bytes(data, random)
    path = _folder() / "f.parquet"
    path.write_bytes(data)
    found = read_file(path, stream)
    in_worker = read_file(path, stream, in_worker=True)
    if not is_damaged:
        compare(found, in_worker, "here and in a worker")
        if not found[2] and len(found[0]) + len(found[1]) != n:
            raise HarmError(f"{len(found[0])} events and {len(found[1])} dead letters of {n} rows")
    tally[f"files refused with {found[2]}" if found[2] else "files"] += 1
    tally["Parquet rows, damaged" if is_damaged else "Parquet rows"] += max(n, 1)
    tally["dead rows"] += len(found[1])
    return max(n, 1)


def try_bytes(random: Random, tally: Counter[str], stream: Stream) -> int:
    """Try a file of damaged bytes under any name."""
    header = csv_header(stream)
    parts = [
        b"\n".join(good_json_line(stream, random) for _ in range(random.randint(0, 5))),
        b"\n".join(good_csv_line(stream, header, random) for _ in range(random.randint(0, 5))),
        b"[\n" + good_json_line(stream, random) + b",\n" + good_json_line(stream, random) + b"\n]",
        json.dumps({"a": 1, "b": [1, {"c": 2}]}, indent=random.choice((None, 1, 4))).encode(),
        random.randbytes(random.randint(0, 50)),
        random.choice(
            (b"", b"[", b"[]", b"{", b"\n", b"\xff\xfe{\0}\0", b"PAR1", b"PK\x03\x04", b"\x1f\x8b\x08")
        ),
    ]
    data = random.choice(parts)
    match random.randrange(6):
        case 0:
            data = gzip.compress(data)
        case 1:
            data = gzip.compress(data * 50)[: random.randint(0, 200)]
        case 2:
            data = bytes(pa.compress(data or b"x", codec="zstd", asbytes=True))
        case 3:
            data = data.replace(b"\n", random.choice((b"\r", b"\r\n", b"\0")))
        case 4:
            data = damage_bytes(data, random)
        case _:
            data += b"\n" + random.choice(parts)
    endings = (".json", ".csv", ".parquet", ".jsonl.gz", ".csv.zst", ".json.bz2", ".ndjson.lz4", ".txt")
    path = _folder() / f"f{random.choice(endings)}"
    path.write_bytes(data)
    kind = random.choice((None, None, None, *Format))
    whole = read_file(path, stream, kind)
    small = read_file(path, stream, kind, block_bytes=random.choice((1, 7, 100)))
    if whole[2] != "E0606":  # how much of a cut file is read depends on the size of the blocks
        compare(whole, small, "at once and in small blocks")
    tally[f"files refused with {whole[2]}" if whole[2] else "files"] += 1
    tally["damaged files"] += 1
    return 1


# ---------------------------------------------------------------- all


def try_examples(first_seed: int, examples: int, minutes: float) -> Counter[str]:
    """Try examples. If one does harm, print the seed of the round and raise the error."""
    columns.compile_kernel()  # no reader waits for the compiler, so nothing would try the kernel
    tally: Counter[str] = Counter()
    started = time.monotonic()
    seed = first_seed
    while tally["examples"] < (examples or tally["examples"] + 1) and (
        not minutes or time.monotonic() - started < 60 * minutes
    ):
        try:
            tally["examples"] += try_round(Random(seed), tally)
        except BaseException:
            print(f"seed {seed} after {tally['examples']:,} examples", file=sys.stderr, flush=True)
            raise
        seed += 1
    return tally


def try_round(random: Random, tally: Counter[str]) -> int:
    """Try some examples of two drawn streams and return their number."""
    n_tried = 0
    stream, of_csv = draw_stream(random), draw_stream(random, is_csv=True)
    attempts: list[Callable[[], int]] = [
        lambda: try_lines(random, tally, stream, is_csv=False),
        lambda: try_lines(random, tally, of_csv, is_csv=True),
        lambda: try_rows(random, tally, stream),
        lambda: try_bytes(random, tally, random.choice((stream, of_csv))),
    ]
    for _ in range(STREAMS_EVERY):
        (attempt,) = random.choices(attempts, (24, 4, 2, 2))
        n_tried += attempt()
    return n_tried


def main() -> int:
    """Try examples in one or more processes. Print how many of each kind were tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.readers", description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="stop after this many lines, rows and files")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this many minutes")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args()
    if not options.examples and not options.minutes:
        parser.error("give --examples or --minutes")
    first_seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    started = time.monotonic()
    share = -(-options.examples // options.jobs)
    tasks = [(first_seed + 100_000_000 * job, share, options.minutes) for job in range(options.jobs)]
    tally: Counter[str] = Counter()
    if options.jobs == 1:
        pa.set_cpu_count(1)  # the files are small
        tally = try_examples(*tasks[0])
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs, pa.set_cpu_count, (1,)) as pool:
            for part in pool.starmap(try_examples, tasks):
                tally += part
    minutes = (time.monotonic() - started) / 60
    print(f"{tally['examples']:,} examples in {minutes:.1f} minutes from seed {first_seed}, no harm:")
    for what, count in sorted(tally.items()):
        print(f"  {count:>9,} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
