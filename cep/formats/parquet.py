"""Parquet, as a format; Arrow's reader of it is loaded with the first file."""

from __future__ import annotations

from collections.abc import Iterator

from cep.formats.chunks import Piece
from cep.formats.protocol import FileFormat
from cep.schema.stream import Stream


class _Parquet:
    """Rows of Parquet files."""

    name = "parquet"
    suffixes = (".parquet",)
    name_in_spark = "parquet"

    def read(self, file: str, stream: Stream, *, in_worker: bool) -> Iterator[Piece]:
        """Yield the rows of a file; see `FileFormat.read`."""
        from cep.formats import parquet_rows

        yield from parquet_rows.read(file, stream, in_worker=in_worker)


PARQUET: FileFormat = _Parquet()
