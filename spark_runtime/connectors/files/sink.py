"""A folder of files as a sink: each micro-batch has a folder of its own in it.

The folder is named after stream and micro-batch, and takes the place of one of the same name. So a
micro-batch that is run again after a crash replaces what it wrote the first time.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext

from cep.errors import StateError
from cep.write_errors import writing
from spark_runtime.connectors.files.writers import FileWriter
from spark_runtime.sinks.owner import WRITTEN_BY, Owner, plan_of, text_of
from spark_runtime.sinks.protocol import BatchRows, Guarantee, Mark, MicroBatch, Output, Rows

if TYPE_CHECKING:
    from spark_runtime.storage.checkpoint_files import CheckpointFiles


def folder_of(path: str, batch: MicroBatch) -> str:
    """Return where the files of a micro-batch are."""
    return f"{path}/batch={batch.name}"


_NOTE = ".continued-{}"
"""The file in a folder that says of a run that another one has continued it."""


@dataclass(frozen=True, slots=True)
class _Continued:
    """After which micro-batch of a run another run has continued, and which one."""

    after: int
    by: str


@dataclass(frozen=True, slots=True)
class _Written:
    """The micro-batches that a folder has. On the driver."""

    path: str
    kind: str
    owner: Owner | None

    @property
    def _files(self) -> CheckpointFiles:
        from pyspark.sql import SparkSession

        from spark_runtime.storage.checkpoint_files import HadoopFiles, LocalFiles, is_remote

        is_far = is_remote(self.path)
        return HadoopFiles(SparkSession.active(), self.path) if is_far else LocalFiles(self.path)

    def require_own(self) -> None:
        """Raise InputError if a batch would replace the result of another pipeline."""
        if self.owner is not None:
            name = f"batch={MicroBatch(None, 0).name}"
            text = self._files.read(f"{name}/{WRITTEN_BY}")
            self.owner.require(self.path, self.kind, f"{self.path}/{name}", text)

    def mark(self, run: str, number: int) -> Mark:
        """Return what tells a micro-batch."""
        text = self._files.read(f"batch={MicroBatch(run, number).name}/{WRITTEN_BY}")
        return Mark(f"folder `{self.path}`", number, plan_of(text))

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream."""
        numbers, continued = self._numbers(run), self._continued(run)
        if continued is not None:
            return replace(self.mark(run, max([continued.after, *numbers])), is_continued=True)
        return self.mark(run, max(numbers)) if numbers else None

    def take_back(self, run: str, after: int, by: str) -> None:
        """Remove the micro-batches of a stream after one, and all of runs that continued it before."""
        continued = self._continued(run)
        if continued is not None and after > continued.after:
            raise StateError(
                "E0849",
                f"folder `{self.path}` no longer has the micro-batches {continued.after + 1} to {after} of "
                "this stream: they were removed when an older copy of its checkpoint was accepted",
                "put the latest copy back, or start a new stream: another checkpoint, another folder",
            )
        if continued is not None:  # before its name is replaced: after a crash nothing else would lead to it
            self.take_back(continued.by, after, by)
        # The note before the removal: after a crash the checkpoint is refused again.
        self._files.write(_NOTE.format(run), json.dumps({"after": after, "by": by}))
        later = [number for number in self._numbers(run) if number > after]
        for number in sorted(later, reverse=True):  # a crash in between leaves no gap
            self._files.remove(f"batch={MicroBatch(run, number).name}")

    def _continued(self, run: str) -> _Continued | None:
        """Return from where another run has continued a stream; None: no other has."""
        text = self._files.read(_NOTE.format(run))
        try:
            return _Continued(**json.loads(text)) if text else None
        except (ValueError, TypeError) as error:
            raise StateError(
                "E0849",
                f"`{self.path}/{_NOTE.format(run)}`, which names the run that continued it, is damaged",
                "restore the file, or start a new stream: another checkpoint, another folder",
            ) from error

    def _numbers(self, run: str) -> list[int]:
        before = f"batch={run}-"
        ends = [name.removeprefix(before) for name in self._files.names("") if name.startswith(before)]
        return [int(end) for end in ends if end.isdigit()]

    def write(self, batch: MicroBatch, folder: str = "") -> None:
        """Say in the folder of a micro-batch who has written it; `folder`: its name until it is whole."""
        text = text_of(batch, self.path, self.kind, self.owner)
        self._files.write(f"{folder or f'batch={batch.name}'}/{WRITTEN_BY}", text)


@dataclass(frozen=True, slots=True)
class FolderSink:
    """A folder on a local disk, written in the workers; see `WorkerSink`.

    Spark's own writer would make rows of matches first, four microseconds each. It takes a job for each sink,
    and before them the output would have to be kept: half a second in each micro-batch.
    """

    output: Output
    path: str
    writer: FileWriter
    owner: Owner | None = None  # of a batch

    guarantee = Guarantee.EXACTLY_ONCE

    @property
    def _written(self) -> _Written:
        return _Written(self.path, self.output.kind, self.owner)

    def check(self) -> None:
        """Write a file and remove it."""
        _check_folder(self.path)
        self._written.require_own()

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream that has rows."""
        return self._written.last(run)

    def take_back(self, run: str, after: int, by: str) -> None:
        """Remove the folders of later micro-batches."""
        with writing(self.path):
            self._written.take_back(run, after, by)

    def begin(self, batch: MicroBatch) -> None:
        """Remove what was left of the micro-batch."""
        _require_same(self._written, batch)
        hidden = self._hidden(batch)
        if hidden.exists():
            with writing(self.path):
                shutil.rmtree(hidden)

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
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

    def commit(self, batch: MicroBatch) -> None:
        """Let the folder of the micro-batch take the place of what was there.

        Without rows there is none, but for the first micro-batch, so that the path exists.
        """
        with writing(self.path):
            self._show(batch)

    def _show(self, batch: MicroBatch) -> None:
        hidden, folder = self._hidden(batch), Path(folder_of(self.path, batch))
        if batch.number == 0 and not hidden.exists():
            hidden.mkdir(parents=True)
            if self.writer.has_columns:  # else nobody could tell them
                self.writer.write(hidden / f"part-0.{self.writer.name}", Rows(self.output, ()))
        if hidden.exists():
            (hidden / "_SUCCESS").touch()
            self._written.write(batch, hidden.name)
            if folder.exists():  # of the same micro-batch, which a crash has made to be repeated
                shutil.rmtree(folder)
            hidden.rename(folder)

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""

    def _hidden(self, batch: MicroBatch) -> Path:
        """Return where the files of a micro-batch are until all are whole."""
        return Path(self.path) / f".batch={batch.name}"


@dataclass(frozen=True, slots=True)
class FolderSinkOfSpark:
    """A folder that Spark writes, on any file system that it reaches; see `DriverSink`."""

    output: Output
    path: str
    writer: FileWriter
    owner: Owner | None = None  # of a batch

    guarantee = Guarantee.EXACTLY_ONCE
    wants_rows = True

    @property
    def _written(self) -> _Written:
        return _Written(self.path, self.output.kind, self.owner)

    @property
    def _is_near(self) -> bool:
        return "://" not in self.path

    def check(self) -> None:
        """Write a file and remove it, on a disk of this machine. Elsewhere only Spark can tell."""
        if self._is_near:
            _check_folder(self.path)
        self._written.require_own()

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream that has rows."""
        return self._written.last(run)

    def take_back(self, run: str, after: int, by: str) -> None:
        """Remove the folders of later micro-batches."""
        self._written.take_back(run, after, by)

    def begin(self, batch: MicroBatch) -> None:
        """Look whether the micro-batch is there; Spark replaces the folder as it writes."""
        if self._is_near:
            _require_same(self._written, batch)

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Let Spark write the rows; without rows only the first micro-batch, so that the path exists."""
        if rows.n_rows or batch.number == 0:
            frame = self.writer.for_spark(rows.frame)
            writer = frame.write.mode("overwrite").format(self.writer.name)
            writer.options(**self.writer.spark_options).save(folder_of(self.path, batch))

    def commit(self, batch: MicroBatch) -> None:
        """Say who has written the rows, which Spark has committed. Far away, a stream saves that time."""
        if (self._is_near and Path(folder_of(self.path, batch)).exists()) or self.owner is not None:
            self._written.write(batch)

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""


def _require_same(written: _Written, batch: MicroBatch) -> None:
    """Raise StateError if the folder has another micro-batch of the same number."""
    if batch.run is not None:
        written.mark(batch.run, batch.number).is_of(batch)


def _check_folder(path: str) -> None:
    """Raise InputError if a folder cannot be written. It is made if it is missing."""
    with writing(path):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
