"""A folder of files as a sink: each micro-batch has a folder of its own in it.

The folder is named after stream and micro-batch, and takes the place of one of the same name. So a
micro-batch that is run again after a crash replaces what it wrote the first time.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark import TaskContext

from cep.write_errors import writing
from spark_runtime.sinks.file_writers import FileWriter
from spark_runtime.sinks.protocol import Batch, BatchRows, Guarantee, Output, Rows


def folder_of(path: str, batch: Batch) -> str:
    """Return where the files of a micro-batch are."""
    return f"{path}/batch={batch.name}"


@dataclass(frozen=True, slots=True)
class FolderSink:
    """A folder on a local disk, written in the workers; see `WorkerSink`.

    Spark's own writer would make rows of matches first, four microseconds each. It takes a job for each sink,
    and before them the output would have to be kept: half a second in each micro-batch.
    """

    output: Output
    path: str
    writer: FileWriter

    guarantee = Guarantee.EXACTLY_ONCE

    def check(self) -> None:
        """Write a file and remove it."""
        _check_folder(self.path)

    def begin(self, batch: Batch) -> None:
        """Remove what was left of the micro-batch."""
        hidden = self._hidden(batch)
        if hidden.exists():
            with writing(self.path):
                shutil.rmtree(hidden)

    def write_part(self, batch: Batch, part: str, rows: Rows) -> None:
        """Write a file, under its name once it is whole: no attempt of a task is in the way of another."""
        context = TaskContext.get()
        attempt = 0 if context is None else context.taskAttemptId()
        name = f"part-{part}.{self.writer.name}"
        with writing(self.path):
            folder = self._hidden(batch)
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = folder / f".{name}.{attempt}"
            self.writer.write(unfinished, rows)
            unfinished.replace(folder / name)

    def commit(self, batch: Batch) -> None:
        """Let the folder of the micro-batch take the place of what was there.

        Without rows there is none, but for the first micro-batch, so that the path exists.
        """
        with writing(self.path):
            self._show(batch)

    def _show(self, batch: Batch) -> None:
        hidden, folder = self._hidden(batch), Path(folder_of(self.path, batch))
        if batch.number == 0 and not hidden.exists():
            hidden.mkdir(parents=True)
            if self.writer.has_columns:  # else nobody could tell them
                self.writer.write(hidden / f"part-0.{self.writer.name}", Rows(self.output, ()))
        if hidden.exists():
            (hidden / "_SUCCESS").touch()
            if folder.exists():  # of the same micro-batch, which a crash has made to be repeated
                shutil.rmtree(folder)
            hidden.rename(folder)

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""

    def _hidden(self, batch: Batch) -> Path:
        """Return where the files of a micro-batch are until all are whole."""
        return Path(self.path) / f".batch={batch.name}"


@dataclass(frozen=True, slots=True)
class FolderSinkOfSpark:
    """A folder that Spark writes, on any file system that it reaches; see `DriverSink`."""

    output: Output
    path: str
    writer: FileWriter

    guarantee = Guarantee.EXACTLY_ONCE
    wants_rows = True

    def check(self) -> None:
        """Write a file and remove it, on a disk of this machine. Elsewhere only Spark can tell."""
        if "://" not in self.path:
            _check_folder(self.path)

    def begin(self, batch: Batch) -> None:
        """Do nothing: Spark replaces the folder as it writes."""

    def write_batch(self, batch: Batch, rows: BatchRows) -> None:
        """Let Spark write the rows; without rows only the first micro-batch, so that the path exists."""
        if rows.n_rows or batch.number == 0:
            frame = self.writer.for_spark(rows.frame)
            writer = frame.write.mode("overwrite").format(self.writer.name)
            writer.options(**self.writer.spark_options).save(folder_of(self.path, batch))

    def commit(self, batch: Batch) -> None:
        """Do nothing: Spark has committed its job."""

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""


def _check_folder(path: str) -> None:
    """Raise InputError if a folder cannot be written. It is made if it is missing."""
    with writing(path):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
