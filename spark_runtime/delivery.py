"""Output -> files on a local disk, written by the operator, in the workers that have it as Arrow already.

Spark's own writer would make rows of matches first, four microseconds each. It takes a job for each sink, and
before them the output would have to be kept: half a second in each micro-batch.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from spark_runtime.output import COUNTS, DEAD, LATE, MATCH

_BATCH_PROPERTY = "streaming.sql.batchId"
"""Where Spark tells tasks the number of their micro-batch."""


@dataclass(frozen=True, slots=True)
class Part:
    """A sink that is files: output of one kind, in a folder for each micro-batch."""

    kind: str  # MATCH, or one whose texts are JSON objects with the columns of `schema`
    path: str
    file_format: str  # json or parquet
    schema: pa.Schema

    @property
    def is_for_workers(self) -> bool:
        """Whether `write` can do it where the path is: not JSON of matches, no nested columns."""
        if "://" in self.path:
            return False
        is_flat = not any(pa.types.is_nested(field.type) for field in self.schema)
        return self.kind != MATCH or (self.file_format == "parquet" and is_flat)

    def folder(self, batch: str) -> str:
        """Return where the files of a micro-batch are."""
        return f"{self.path}/batch={batch}"

    def hidden(self, batch: str) -> Path:
        """Return where they are until all are whole."""
        return Path(self.path) / f".batch={batch}"

    def write(self, file: Path, rows: Sequence[Any]) -> None:
        """Write tables of matches (`carried_schema`), or texts, as a file."""
        if self.file_format == "json":
            file.write_text("".join(f"{text}\n" for text in rows), encoding="utf-8")
            return
        import pyarrow.parquet as pq

        # By default Arrow looks for repeated values in numbers and identifiers, too, and compresses
        # identifiers, which are random: three times the time for a file smaller by a twelfth.
        texts = [item.name for item in self.schema if pa.types.is_string(item.type)]
        compression = {name: "none" if name == "match_id" else "snappy" for name in self.schema.names}
        others = [name for name in self.schema.names if name != "match_id"]
        repeating = [name for name in texts if name != "match_id"]
        with pq.ParquetWriter(
            file, self.schema, use_dictionary=repeating, compression=compression, write_statistics=others
        ) as writer:
            for table in self._tables(rows):
                writer.write_table(table)

    def _tables(self, rows: Sequence[Any]) -> Iterator[pa.Table]:
        if self.kind == MATCH:
            yield from (table.cast(self.schema) for table in rows)
        elif rows:
            objects = [json.loads(text) for text in rows]
            columns = [pa.array([row.get(name) for row in objects]) for name in self.schema.names]
            yield pa.table(columns, names=self.schema.names).cast(self.schema)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What becomes of the operator's output: some sinks are written at once, the rest are rows.

    Parameters
    ----------
    parts
        Sinks that the operator writes.
    kinds
        Kinds of output that are given as rows; counts always are.
    run
        Names the micro-batches of a stream, with their number; None in a batch.
    """

    parts: tuple[Part, ...] = ()
    kinds: frozenset[str] = frozenset((MATCH, LATE, DEAD))
    run: str | None = None

    def deliver(self, found: Mapping[str, list[Any]], file: str) -> dict[str, list[Any]]:
        """Write what one call of the operator found; return what of it are rows. `file` names the call."""
        for part in self.parts:
            rows = found[part.kind]
            if rows:
                self._write(part, rows, f"part-{file}.{part.file_format}")
        return {kind: rows for kind, rows in found.items() if kind in self.kinds or kind == COUNTS}

    def _write(self, part: Part, rows: Sequence[Any], name: str) -> None:
        context = TaskContext.get()
        assert context is not None
        number = 0
        if self.run is not None:
            told = context.getLocalProperty(_BATCH_PROPERTY)
            assert told is not None  # in the folder of another micro-batch the rows would be lost
            number = int(told)
        folder = part.hidden(self.name(number))
        folder.mkdir(parents=True, exist_ok=True)
        # No attempt of the task is in the way of another.
        unfinished = folder / f".{name}.{context.taskAttemptId()}"
        part.write(unfinished, rows)
        unfinished.replace(folder / name)

    def name(self, number: int) -> str:
        """Return the name of micro-batch `number`."""
        return "all" if self.run is None else f"{self.run}-{number}"

    def begin(self, number: int) -> None:
        """Make room for micro-batch `number`."""
        for part in self.parts:
            shutil.rmtree(part.hidden(self.name(number)), ignore_errors=True)

    def finish(self, number: int) -> None:
        """Micro-batch `number` is computed: let each of its folders take the place of what was there.

        Without rows there is none, but for the first micro-batch, so that the path exists.
        """
        for part in self.parts:
            hidden, folder = part.hidden(self.name(number)), Path(part.folder(self.name(number)))
            if number == 0 and not hidden.exists():
                hidden.mkdir(parents=True)
                if part.file_format == "parquet":  # else nobody could tell the columns
                    part.write(hidden / "part-0.parquet", [])
            if hidden.exists():
                (hidden / "_SUCCESS").touch()
                shutil.rmtree(folder, ignore_errors=True)
                hidden.rename(folder)


ALL_AS_ROWS = Delivery()
"""Nothing is written at once."""
