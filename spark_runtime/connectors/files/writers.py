"""The formats of files that sinks write.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from spark_runtime.sinks.json_rows import texts_of
from spark_runtime.sinks.protocol import Output, Rows
from spark_runtime.wire.output import MATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"  # to the microsecond


class FileWriter(Protocol):
    """Writes files of one format; it travels to the workers."""

    @property
    def name(self) -> str:
        """Ending of the files, without the dot; also what Spark calls the format."""
        ...

    @property
    def spark_options(self) -> Mapping[str, str]:
        """How Spark writes the format, where it does."""
        ...

    @property
    def has_columns(self) -> bool:
        """Whether a file without rows says which columns there are."""
        ...

    def can_write(self, output: Output) -> bool:
        """Say whether `write` knows the columns of an output; if not, Spark writes it."""
        ...

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return rows as Spark can write them. On the driver."""
        ...

    def write(self, file: Path, rows: Rows) -> None:
        """Write a file, whole. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """An object on each line; what is NULL is left out. Spark writes matches."""

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
        """Return whether these are late events or dead letters, which come as JSON."""
        return output.kind != MATCH

    def write(self, file: Path, rows: Rows) -> None:
        """Write each row as a line."""
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{text}\n" for text in rows.lines())


@dataclass(frozen=True, slots=True)
class ParquetWriter:
    """The columns with their types. Spark writes matches with lists and events."""

    name: str = "parquet"
    spark_options: Mapping[str, str] = field(default_factory=dict)
    has_columns: bool = True

    def for_spark(self, frame: DataFrame) -> DataFrame:
        """Return the rows as they are."""
        return frame

    def can_write(self, output: Output) -> bool:
        """Return whether these are late events, dead letters, or matches without nested columns."""
        return output.kind != MATCH or _is_flat(output.schema)

    def write(self, file: Path, rows: Rows) -> None:
        """Write the rows table by table."""
        import pyarrow.parquet as pq

        schema = rows.output.schema
        # By default Arrow looks for repeated values in numbers and identifiers, too, and compresses
        # identifiers, which are random: three times the time for a file smaller by a twelfth.
        texts = [item.name for item in schema if pa.types.is_string(item.type)]
        compression = {name: "none" if name == "match_id" else "snappy" for name in schema.names}
        others = [name for name in schema.names if name != "match_id"]
        repeating = [name for name in texts if name != "match_id"]
        options: dict[str, Any] = {}
        if _is_flat(schema):  # the columns inside others have names of their own
            options = {"use_dictionary": repeating, "compression": compression, "write_statistics": others}
        with pq.ParquetWriter(file, schema, **options) as writer:
            for table in rows.tables():
                writer.write_table(table)


@dataclass(frozen=True, slots=True)
class CsvWriter:
    """A line of names, and a line for each row, as RFC 4180 has them; lists and events are texts of JSON.

    NULL is an empty field, an empty text is two quotes.
    """

    name: str = "csv"
    spark_options: Mapping[str, str] = field(
        default_factory=lambda: {
            "header": "true",
            "escape": '"',
            "timestampFormat": _TIMES,
            # By default Spark takes blanks away.
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
        """Return that it can."""
        return True

    def write(self, file: Path, rows: Rows) -> None:
        """Write the rows table by table."""
        names = _csv_fields(pa.chunked_array([pa.array(rows.output.schema.names, pa.string())]))
        with file.open("w", encoding="utf-8", newline="") as lines:
            lines.write(f"{','.join(names.to_pylist())}\n")
            for table in rows.tables():
                for part in table.to_batches(_CSV_ROWS):
                    lines.writelines(f"{text}\n" for text in _csv_lines(pa.Table.from_batches([part])))


_CSV_ROWS = 10_000
"""Rows that become texts at a time."""

_QUOTED = r'[",\r\n]|^\s|\s$|^$'
"""Fields that quotes are put around: some must have them, and with the others readers differ."""


def _csv_lines(table: pa.Table) -> list[str]:
    """Return the rows of a table as lines."""
    fields = [_csv_fields(texts_of(column)) for column in table.columns]
    lines: list[str] = pc.binary_join_element_wise(
        *fields, ",", null_handling="replace", null_replacement=""
    ).to_pylist()
    return lines


def _csv_fields(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return texts as fields of a line, NULL where they are."""
    doubled = pc.replace_substring(texts, '"', '""')
    quoted = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, _QUOTED), quoted, texts)


def _is_flat(schema: pa.Schema) -> bool:
    return not any(pa.types.is_nested(item.type) for item in schema)
