"""The formats of files that sinks write.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from spark_runtime.operator.output import MATCH
from spark_runtime.sinks.protocol import Output, Rows


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

    def write(self, file: Path, rows: Rows) -> None:
        """Write a file, whole. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class JsonWriter:
    """An object on each line; what is NULL is left out. Spark writes matches."""

    name: str = "json"
    spark_options: Mapping[str, str] = field(
        default_factory=lambda: {
            "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",  # to the microsecond
            "ignoreNullFields": "true",
        }
    )
    has_columns: bool = False

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


def _is_flat(schema: pa.Schema) -> bool:
    return not any(pa.types.is_nested(item.type) for item in schema)
