"""Event files -> typed tables, in bounded pieces, with all dead letters.

JSON lines, CSV and Parquet; one file, a directory or a pattern of paths; plain or compressed text, or
standard input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cep.errors import InputError
from cep.formats import dead_letter
from cep.formats.ahead import AheadGuard
from cep.formats.chunks import Chunk, Piece, checked, no_events, with_columns, without
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.path_names import (
    PathPattern,
    check_names,
    is_skipped,
    leads_nowhere,
    name_when_complete,
    path_pattern,
    path_values,
)
from cep.formats.protocol import FileFormat
from cep.formats.registry import FORMATS, format_of_name, in_words, known_suffixes, record_formats
from cep.formats.text.damaged import BYTES_BEHIND, COMPRESSED
from cep.formats.text.text_files import STDIN, Bounds, TextReader, is_read_once, line_blocks
from cep.schema.stream import Stream

BLOCK_BYTES = 8 << 20
"""Bytes of text that are looked at together."""

_LOOK_BYTES, _LOOK_EVENTS = 1 << 16, 64
"""Bytes of text, and events, that tell when the records of a file were received first."""


class Format(StrEnum):
    """The formats of this package. The name of any other registered format may be used instead."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


class BadFile(StrEnum):
    """What happens to a file that cannot be read to its end, or does not belong to the stream."""

    FAIL = "fail"
    """It stops the run: an InputError."""
    QUARANTINE = "quarantine"
    """What was read of it counts, and a dead letter stands for the rest."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How files of a stream are read.

    - `keys`: keys of the rules: an event with a NULL in each of them is a dead letter.
    - `on_bad_file`: what happens to a file that cannot be read completely.
    - `block_bytes`: bytes of text that are examined together.
    - `in_worker`: whether repeated strings of a Parquet file become Arrow dictionaries, and Arrow starts no
      threads, because there is a process for each core.
    - `pattern`: the pattern by which the files were found; its names are columns.
    """

    keys: tuple[tuple[str, ...], ...] = ()
    on_bad_file: BadFile = BadFile.FAIL
    block_bytes: int = BLOCK_BYTES
    in_worker: bool = False
    pattern: PathPattern | None = None


def read_events(
    path: str | Path,
    stream: Stream,
    file_format: str | None = None,
    *,
    keys: Iterable[Sequence[str]] = (),
    on_bad_file: BadFile = BadFile.FAIL,
    block_bytes: int = BLOCK_BYTES,
    in_worker: bool = False,
    ahead: AheadGuard | None = None,
) -> Iterator[Chunk]:
    """Yield the events of `path`, file after file by name, as events of `stream`; see `Reading`.

    `ahead` judges event times; for a stream with a `device_clock` it must estimate them. The files of such a
    stream are read in the order of their first receipt.

    `path` may be a pattern (`path_names`). An event is a dead letter if its time is NULL, out of bounds or
    too far ahead, or if its key is NULL for every rule. Raises InputError for a problem of a whole file,
    unless it is quarantined. Anything that could be read is yielded first.
    """
    pattern = pattern_of(path)
    if pattern is not None:
        check_names(pattern, stream)
    given = file_format
    files, file_format = find_files(path, file_format)
    reading = Reading(tuple(map(tuple, keys)), on_bad_file, block_bytes, in_worker, pattern)
    guard = AheadGuard(stream.max_ahead_us) if ahead is None else ahead
    for name in partial_files(path, given, pattern):
        yield no_events(stream, name, is_partial=True)
    for name in in_order_of_receipt(files, stream, file_format, reading):
        yield from read_file(name, stream, file_format, reading, guard)


def in_order_of_receipt(
    files: Sequence[str], stream: Stream, file_format: str, reading: Reading
) -> Sequence[str]:
    """Return files in the order in which they are read: with a `device_clock` in order of receipt."""
    if stream.device_clock is None or len(files) == 1:  # standard input can be read only once
        return files
    return sorted(files, key=lambda name: first_received_us(name, stream, file_format, reading))


def first_received_us(
    name: str, stream: Stream, file_format: str, reading: Reading, bounds: Bounds | None = None
) -> int:
    """Return when the first records of a file were received, microseconds since 1970; 0: unknown.

    `bounds`: see `read_file`.
    """
    plain = stream.by_receipt()
    look = replace(reading, block_bytes=_LOOK_BYTES, keys=(), on_bad_file=BadFile.QUARANTINE)
    for chunk in read_file(name, plain, file_format, look, AheadGuard(plain.max_ahead_us), bounds):
        if chunk.events.num_rows:
            received = chunk.events.column(plain.event_time)[:_LOOK_EVENTS]
            return int(pc.min(received).as_py())
    return 0


def read_file(
    name: str,
    stream: Stream,
    file_format: str,
    reading: Reading,
    ahead: AheadGuard,
    bounds: Bounds | None = None,
) -> Iterator[Chunk]:
    """Yield the events of one file as events of `stream`; see `read_events`.

    `bounds`: only these bytes, of a file that `is_plain_text`; the header of a CSV file is read in any case.
    """
    position = 1
    try:
        for piece in _pieces(name, stream, file_format, reading, bounds):
            position = piece.next_position
            yield checked(piece, stream, reading.keys, ahead)
    except InputError as error:
        if reading.on_bad_file is BadFile.FAIL and error.code != BYTES_BEHIND:
            raise
        yield refused_chunk(name, position, stream, error)
    else:
        if position == 1 and name != STDIN and _is_empty(name):
            yield no_events(stream, name, is_empty=True)


def _pieces(
    name: str, stream: Stream, file_format: str, reading: Reading, bounds: Bounds | None
) -> Iterator[Piece]:
    named = values_in_path(name, stream, reading.pattern)
    found = FORMATS.get(file_format)
    if not isinstance(found, FileFormat):
        yield from _read_text(TextReader(name, stream, found, named), reading.block_bytes, bounds)
    elif not _is_empty(name):
        for piece in found.read(name, without(stream, named), in_worker=reading.in_worker):
            yield with_columns(piece, stream, named)


def require_utf8(name: str) -> None:
    """Raise InputError unless the name of a file is text: it is a value of events and of dead letters."""
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise InputError("E0606", f"the name of `{shown}` is not UTF-8", "rename the file") from None


def _is_empty(name: str) -> bool:
    try:
        return Path(name).stat().st_size == 0
    except OSError:  # opening it reports the reason
        return False


def values_in_path(name: str, stream: Stream, pattern: PathPattern | None) -> Mapping[str, pa.Scalar]:
    """Return the columns that a file's records lack: those in its name, and NULL for estimated ones.

    Raises InputError: the name is not UTF-8 (E0606), or not of the pattern.
    """
    require_utf8(name)
    named = {} if pattern is None else dict(path_values(pattern, name, stream))
    if stream.device_clock is not None:
        named[stream.event_time] = pa.scalar(None, pa.int64())  # estimated later
    return named


def refused_chunk(name: str, position: int, stream: Stream, error: InputError) -> Chunk:
    """Return the chunk that represents the unreadable part of a file, from `position` on."""
    reason = dead_letter.refused_file(f"{error.code}, {error.args[0]}")
    dead = pa.table([[reason], [dead_letter.printable(name)], [position], [None]], schema=DEAD_LETTER_SCHEMA)
    return no_events(stream, name, dead, is_refused=True)


def pattern_of(path: str | Path) -> PathPattern | None:
    """Return a path as a pattern, or None. The exact name of a file or folder is not a pattern."""
    try:
        is_there = str(path) == STDIN or Path(path).exists()
    except OSError:
        is_there = False
    return None if is_there else path_pattern(str(path))


def text_reader(
    name: str, stream: Stream, file_format: str, named: Mapping[str, pa.Scalar] | None = None
) -> TextReader:
    """Return a builder of pieces from the lines of a text file, wherever they come from.

    `named`: see `values_in_path`.
    """
    found = FORMATS.get(file_format)
    assert not isinstance(found, FileFormat), file_format
    return TextReader(name, stream, found, named or {})


def is_plain_text(name: str, file_format: str, stream: Stream) -> bool:
    """Return whether a line feed ends a line of a file, so that reading can continue where it stopped."""
    found = FORMATS.get(file_format)
    if isinstance(found, FileFormat) or name.lower().endswith(COMPRESSED):
        return False
    return not found.encoding(stream).startswith("utf-16")


def _read_text(reader: TextReader, block_bytes: int, bounds: Bounds | None) -> Iterator[Piece]:
    if bounds is not None:
        reader.pass_over(bounds[0])
    blocks = line_blocks(reader.name, block_bytes, reader.encoding, bounds)
    try:
        for lines in blocks:
            yield from reader.read(lines)
    except InputError:
        yield from reader.read([], is_last=True)
        raise
    yield from reader.read([], is_last=True)


def find_files(
    path: str | Path, file_format: str | None = None, *, follows_all: bool = True
) -> tuple[list[str], str]:
    """Return the files of `path` by name, and their format.

    Raises InputError: there are none, they cannot be read, they are those of a table in a lake, or, with
    `follows_all`, a link among them leads nowhere (E0601).
    """
    if str(path) == STDIN:
        if file_format is None:
            raise InputError(
                "E0602",
                "the format of standard input cannot be told",
                f"give {in_words(record_formats())} as --input-format, which `cep match` calls --format",
            )
        if isinstance(FORMATS.get(file_format), FileFormat):
            raise InputError(
                "E0606",
                f"{file_format.capitalize()} cannot be read from standard input",
                "give the file's name",
            )
        return [STDIN], file_format
    try:
        pattern = pattern_of(path)
        missing = links_to_nothing(path, file_format, pattern) if follows_all else []
        if missing:
            fact = f"`{missing[0]}` is a link to `{missing[0].readlink()}`, which does not exist"
            raise InputError("E0601", fact, "remove the link, or restore the file")
        files = _files_at(Path(path), file_format, pattern)
        file_format = file_format or _format_of_all(files, path)
        if isinstance(FORMATS.get(file_format), FileFormat):
            require_no_table(path, pattern)
        is_empty = not any(is_read_once(file) or file.stat().st_size for file in files)
    except OSError as error:
        raise InputError("E0606", f"`{path}` cannot be read: {error.strerror}") from error
    if is_empty:
        raise InputError("E0603", f"`{path}` is empty")
    return [str(file) for file in files], file_format


def links_to_nothing(path: str | Path, file_format: str | None, pattern: PathPattern | None) -> list[Path]:
    """Return the links among the files of a folder or a pattern that lead nowhere, by name."""
    if pattern is not None:
        return pattern.links_to_nothing()
    found = (item for item in Path(path).iterdir() if leads_nowhere(item)) if Path(path).is_dir() else ()
    return sorted(
        item
        for item in found
        if not is_skipped(item.name) and (file_format is not None or format_of_name(item.name) is not None)
    )


def partial_files(path: str | Path, file_format: str | None, pattern: PathPattern | None) -> list[str]:
    """Return the files of a folder or a pattern that are skipped because they are not complete, by name."""
    if pattern is not None:
        return list(map(str, pattern.partial()))
    found = Path(path).iterdir() if Path(path).is_dir() else ()
    return sorted(
        str(item)
        for item in found
        if (name := name_when_complete(item.name))
        and (file_format is not None or format_of_name(name) is not None)
        and item.is_file()
    )


def require_no_table(path: str | Path, pattern: PathPattern | None) -> None:
    """Raise InputError (E0606) if a folder, or that of a pattern, is in a table whose log says which of its
    files count.
    """
    folder = Path(path) if pattern is None else pattern.folder
    if not folder.is_dir():
        return
    folder = folder.resolve()
    for place in (folder, *folder.parents):
        found = [kind for name, kind in _LOGS_OF_TABLES.items() if (place / name).exists()]
        found += ["Iceberg"] if any((place / "metadata").glob("*.metadata.json")) else []
        if found:
            raise InputError(
                "E0606",
                f"`{place}` is a table of {found[0]}: some of its files contain rows that were removed",
                f"read it with `detect` and Spark's connector for {found[0]}, or write its rows to files",
            )


_LOGS_OF_TABLES = {"_delta_log": "Delta", ".hoodie": "Hudi"}


def _is_profile(file: Path) -> bool:
    """Return whether a file is what `cep profile` wrote about events, an object over several lines."""
    if not file.name.endswith(".profile.json"):
        return False
    with file.open("rb") as data:
        return data.read(2) == b"{\n"


def _files_at(path: Path, file_format: str | None, pattern: PathPattern | None) -> list[Path]:
    if pattern is not None:
        files = pattern.files()
        if not files:
            raise InputError("E0601", f"there is no file of the pattern `{path}`")
        return files
    if not path.exists():
        raise InputError("E0601", f"there is no file or directory `{path}`")
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.is_file() and not is_skipped(file.name))
        if file_format is None:
            files = [
                file for file in files if format_of_name(file.name) is not None and not _is_profile(file)
            ]
        if not files:
            raise InputError(
                "E0603",
                f"there are no event files in `{path}`",
                f"files of events end in {', '.join(known_suffixes())}; "
                "directories inside it are not searched",
            )
        return files
    return [path]


def _format_of_all(files: Sequence[Path], path: str | Path) -> str:
    formats = {format_of_name(file.name) for file in files}
    found = formats.pop()
    if formats or found is None:
        fact = (
            f"`{path}` has files of several formats" if formats else f"the format of `{path}` cannot be told"
        )
        raise InputError("E0602", fact, f"give the format: {in_words(FORMATS.names)}")
    return found
