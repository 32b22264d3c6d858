"""Matches, late events and dead letters of a local run, as files: JSON lines, CSV, Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cep.errors import InputError
from cep.formats.late_events import as_declared, json_lines
from cep.output.rows import json_line
from cep.schema.stream import Stream
from cep.schema.text_values import texts_of_numbers
from cep.write_errors import replacing


class TableWriter(Protocol):
    """Writes a whole file in one format. Raises OSError if it cannot be written."""

    def write(self, file: Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write a table; `rows` are the same rows as mappings, each with the columns that it has."""

    def write_late(self, file: Path, events: pa.Table, stream: Stream) -> None:
        """Write late events (`late_schema`) so that the file can be read as events of the stream."""


class _JsonLines:
    """An object on each line."""

    def write(self, file: Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(json_line(row) + "\n" for row in rows)

    def write_late(self, file: Path, events: pa.Table, stream: Stream) -> None:
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{line}\n" for line in json_lines(events, stream))


class _Csv:
    """Lists, events and times are their text in JSON."""

    def write(self, file: Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        import pyarrow.csv

        with file.open("wb") as sink:
            pyarrow.csv.write_csv(_flat(table), sink)

    def write_late(self, file: Path, events: pa.Table, stream: Stream) -> None:
        self.write(file, as_declared(events, stream, is_flat=True), ())


class _Parquet:
    """The columns with their types."""

    def write(self, file: Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
        import pyarrow.parquet

        with file.open("wb") as sink:
            pyarrow.parquet.write_table(table, sink)

    def write_late(self, file: Path, events: pa.Table, stream: Stream) -> None:
        self.write(file, as_declared(events, stream), ())


WRITERS: Mapping[str, TableWriter] = {
    **dict.fromkeys((".jsonl", ".json", ".ndjson"), _JsonLines()),
    ".csv": _Csv(),
    ".parquet": _Parquet(),
}
"""Ending of the files that can be written -> what writes them. A format is added here with one line."""


def writer_of(path: str | Path) -> TableWriter:
    """Return the writer of files with the ending of `path`.

    Raises InputError: the ending is not that of a format.
    """
    found = WRITERS.get(Path(path).suffix)
    if found is None:
        raise InputError(
            "E0608",
            f"the format of `{path}` cannot be told",
            f"names of output files end in {', '.join(WRITERS)}",
        )
    return found


def write_table(path: str | Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `table` to a file in the format of its ending; `rows` are the same rows for JSON lines."""
    with replacing(path) as file:
        writer_of(path).write(file, table, rows)


def late_files(path: str | Path, streams: Iterable[Stream]) -> dict[Stream, Path]:
    """Return the file for the late events of each stream: `path` if there is one stream.

    With several streams, the events of each have their own file, with the name of the stream before the
    ending.
    """
    path, moving = Path(path), [stream for stream in streams if not stream.is_static]
    if len(moving) == 1:
        return {moving[0]: path}
    return {stream: path.with_name(f"{path.stem}.{stream.name}{path.suffix}") for stream in moving}


def write_late(path: str | Path, late: Mapping[Stream, pa.Table]) -> None:
    """Write late events (`cep.formats.late_events.late_schema`) to `late_files`, by the ending of `path`."""
    for stream, file in late_files(path, late).items():
        with replacing(file) as unfinished:
            writer_of(path).write_late(unfinished, late[stream], stream)


def _flat(table: pa.Table) -> pa.Table:
    """Return `table` with lists, events, times and `NUMBER_WORDS` as their text in JSON."""
    for number, item in enumerate(table.schema):
        if pa.types.is_timestamp(item.type) and item.type.tz is not None:
            times = table.column(number).cast(pa.timestamp("us", tz="UTC"))
            table = table.set_column(number, item.name, pc.strftime(times, "%Y-%m-%dT%H:%M:%SZ"))
        elif pa.types.is_floating(item.type):
            table = table.set_column(number, item.name, texts_of_numbers(table.column(number)))
        elif pa.types.is_nested(item.type):
            texts = [
                None if value is None else json_line(value) for value in table.column(number).to_pylist()
            ]
            table = table.set_column(number, item.name, pa.array(texts, pa.string()))
    return table
