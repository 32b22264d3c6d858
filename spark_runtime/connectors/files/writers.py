"""The formats of files that sinks write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_runtime.sinks.json_rows import texts_of
from spark_runtime.sinks.protocol import Collected, Output, Rows
from spark_runtime.wire.output import MATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"  # to the microsecond


class FileWriter(Protocol):
    """Writes files of one format; it is sent to the workers."""

    @property
    def name(self) -> str:
        """The extension of the files, without the dot; also Spark's name of the format."""

    @property
    def spark_options(self) -> Mapping[str, str]:
        """The options for writing the format with Spark."""

    @property
    def has_columns(self) -> bool:
        """Whether a file without rows contains the names of the columns."""

    def can_write(self, output: Output) -> bool:
        """Return whether `write` supports the columns of an output; otherwise Spark writes it."""

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return rows in a form that Spark can write. On the driver."""

    def write(self, file: Path, rows: Rows | Collected) -> None:
        """Write a complete file; raise OSError on failure."""


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """An object on each line, without NULLs. Spark writes matches."""

    name: str = "json"
    spark_options: Mapping[str, str] = field(
        default_factory=lambda: {
            "timestampFormat": _TIMES,
            "ignoreNullFields": "true",
        }
    )
    has_columns: bool = False

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are."""
        return frame

    def can_write(self, output: Output) -> bool:
        """Return whether the output is late events or dead letters, which are already JSON."""
        return output.kind != MATCH

    def write(self, file: Path, rows: Rows | Collected) -> None:
        """Write each row as a line."""
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{text}\n" for text in rows.lines())


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """Columns with their types. Spark writes matches that contain lists and events."""

    name: str = "parquet"
    spark_options: Mapping[str, str] = field(default_factory=dict)
    has_columns: bool = True

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are."""
        return frame

    def can_write(self, output: Output) -> bool:
        """Return whether the output is late events, dead letters, or matches without nested columns."""
        return output.kind != MATCH or _is_flat(output.schema)

    def write(self, file: Path, rows: Rows | Collected) -> None:
        """Write the rows table by table."""
        import pyarrow.parquet as pq

        schema = rows.output.schema
        # By default, Arrow also searches numbers and identifiers for repeated values, and compresses
        # identifiers, which are random: three times the time for a file that is a twelfth smaller.
        texts = [item.name for item in schema if pa.types.is_string(item.type)]
        compression = {name: "none" if name == "match_id" else "snappy" for name in schema.names}
        others = [name for name in schema.names if name != "match_id"]
        repeating = [name for name in texts if name != "match_id"]
        options: dict[str, Any] = {}
        if _is_flat(schema):  # nested columns have other names
            options = {"use_dictionary": repeating, "compression": compression, "write_statistics": others}
        with pq.ParquetWriter(file, schema, **options) as writer:
            for table in rows.tables():
                writer.write_table(table)


@dataclass(frozen=True, slots=True)
class CsvWriter:
    """A line of names, and a line for each row, as in RFC 4180; lists and events are JSON strings.

    NULL is an empty field; an empty string is two quotes.
    """

    name: str = "csv"
    spark_options: Mapping[str, str] = field(
        default_factory=lambda: {
            "header": "true",
            "escape": '"',
            "timestampFormat": _TIMES,
            # By default, Spark strips blanks.
            "ignoreLeadingWhiteSpace": "false",
            "ignoreTrailingWhiteSpace": "false",
        }
    )
    has_columns: bool = True

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return the rows with JSON in place of lists and events."""
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql import types as T  # noqa: N812

        nested = (T.ArrayType, T.StructType, T.MapType)
        names = [item.name for item in frame.schema if isinstance(item.dataType, nested)]
        options = {"timestampFormat": _TIMES}
        return frame.withColumns({name: F.to_json(frame[name], options) for name in names})

    def can_write(self, output: Output) -> bool:
        """Return True: the format supports all columns."""
        return True

    def write(self, file: Path, rows: Rows | Collected) -> None:
        """Write the rows table by table."""
        names = _csv_fields(pa.chunked_array([pa.array(rows.output.schema.names, pa.string())]))
        with file.open("w", encoding="utf-8", newline="") as lines:
            lines.write(f"{','.join(names.to_pylist())}\n")
            for table in rows.tables():
                for part in table.to_batches(_CSV_ROWS):
                    lines.writelines(f"{text}\n" for text in _csv_lines(pa.Table.from_batches([part])))


_CSV_ROWS = 10_000
"""Number of rows that are formatted at a time."""

_QUOTED = r'[",\r\n]|^\s|\s$|^$'
"""Fields that are quoted: some must be, and readers treat the others differently."""


def _csv_lines(table: pa.Table) -> list[str]:
    """Return the rows of a table as lines."""
    fields = [_csv_fields(texts_of(column)) for column in table.columns]
    lines: list[str] = pc.binary_join_element_wise(
        *fields, ",", null_handling="replace", null_replacement=""
    ).to_pylist()
    return lines


def _csv_fields(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as fields of a line; NULLs remain NULL."""
    doubled = pc.replace_substring(texts, '"', '""')
    quoted = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, _QUOTED), quoted, texts)


def _is_flat(schema: pa.Schema) -> bool:
    return not any(pa.types.is_nested(item.type) for item in schema)
