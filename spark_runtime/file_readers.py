"""Files of events -> parcels, in the workers: read by the same code as without Spark, and prepared.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep import csv_lines, json_lines
from cep.dead_letter import DEAD_LETTER_SCHEMA
from cep.files import Chunk, Format, Piece, checked, csv_header, read_events
from cep.local import keys_of
from cep.schema import Stream
from spark_runtime.parcels import Packer
from spark_runtime.workers import settle


@dataclass(frozen=True)
class FileReader:
    """Files as parcels: takes their paths. No value of theirs passes through the JVM."""

    packer: Packer
    stream: Stream
    file_format: Format

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take batches of paths; yield parcels."""
        settle()
        keys = keys_of(self.packer.layout.programs, self.stream)
        for batch in batches:
            for path in batch.column(0).to_pylist():
                chunks = read_events(
                    local_name(path), self.stream, self.file_format, keys=keys, in_worker=True
                )
                for chunk in chunks:
                    yield from self.packer.chunk(chunk, self.stream)


@dataclass(frozen=True)
class LineReader:
    """Lines of text files that only Spark can read as parcels.

    A partition holds whole files, one after another, each from its first line on.
    """

    packer: Packer
    stream: Stream
    file_format: Format

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take batches of lines, each with the path of its file; yield parcels."""
        settle()
        path, first_line = "", 1
        header: list[str] | None = None
        for batch in batches:
            for lines, file in _files(batch):
                if file != path:
                    path, first_line, header = file, 1, None
                n_lines = len(lines)
                if self.file_format is Format.CSV and header is None:
                    header = csv_header(local_name(path), lines[0], self.stream)
                    lines[0] = b""
                chunk = self._chunk(local_name(path), first_line, lines, header)
                yield from self.packer.chunk(chunk, self.stream)
                first_line += n_lines

    def _chunk(self, source: str, first_line: int, lines: list[bytes], header: list[str] | None) -> Chunk:
        if header is None:
            events, indices, problems = json_lines.parse(lines, self.stream)
        else:
            events, indices, problems = csv_lines.parse(lines, header, self.stream)
        piece = Piece(
            source,
            events,
            indices + first_line,
            lines,
            first_line,
            [(index + first_line, reason) for index, reason in problems],
        )
        return checked(piece, self.stream, keys_of(self.packer.layout.programs, self.stream))


@dataclass(frozen=True)
class TypedReader:
    """Typed events (`spark_runtime.schema.typed_events`) as parcels."""

    packer: Packer
    stream: Stream

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Take batches of events; yield parcels."""
        settle()
        for batch in batches:
            events = pa.Table.from_batches([batch])
            yield from self.packer.chunk(Chunk(events, DEAD_LETTER_SCHEMA.empty_table()), self.stream)


def _files(batch: pa.RecordBatch) -> Iterator[tuple[list[bytes], str]]:
    """Yield the lines of each file in a batch with its path."""
    lines, paths = batch.columns
    start = 0
    while start < batch.num_rows:
        path = paths[start].as_py()
        stop = batch.num_rows
        if paths[stop - 1].as_py() != path:
            stop = start + int(np.argmin(np.asarray(pc.equal(paths.slice(start), path))))
        part = lines.slice(start, stop - start)
        yield [line.removesuffix(b"\r") for line in part.to_pylist()], path
        start = stop


def local_name(path: str) -> str:
    """Return a file's path as a user writes it: without ``file:`` and percent signs."""
    for scheme in ("file://", "file:"):
        if path.startswith(scheme):
            return unquote(path.removeprefix(scheme))
    return path
