"""A folder of files as a sink: each micro-batch has its own subfolder.

The subfolder is named after stream and micro-batch, and replaces one with the same name. So a micro-batch
that is repeated after a crash replaces its earlier output.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from cep.errors import StateError
from cep.write_errors import require_folder, writing
from spark_runtime.connectors.files.writers import FileWriter
from spark_runtime.sinks.owner import WRITTEN_BY, Owner, plan_of, text_of
from spark_runtime.sinks.protocol import BatchRows, Collected, Guarantee, Mark, MicroBatch, Output, Rows
from spark_runtime.storage.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles, is_remote
from spark_runtime.wire.plan import IDENTITY_DIGITS


def folder_of(path: str, batch: MicroBatch) -> str:
    """Return the folder of the files of a micro-batch."""
    return f"{path}/batch={batch.name}"


_NOTE = ".continued-{}"
"""The file that records that another run has continued a run."""

_PART_OF_PLAN = re.compile(rf"part-([0-9a-f]{{{IDENTITY_DIGITS}}})\.")
"""A file of `ObjectSink`. Its name contains the plan of its micro-batch."""


@dataclass(frozen=True, slots=True)
class _Continued:
    """The micro-batch after which another run has continued a run; its name, and whether it counts from 0."""

    after: int
    by: str
    anew: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """The micro-batches in a folder. On the driver."""

    path: str
    kind: str
    owner: Owner | None

    @property
    def far_files(self) -> HadoopFiles:
        """The files of a folder on remote storage."""
        from pyspark.sql import SparkSession

        return HadoopFiles(SparkSession.active(), self.path)

    @property
    def _files(self) -> CheckpointFiles:
        return self.far_files if is_remote(self.path) else LocalFiles(self.path)

    def require_own(self) -> None:
        """Raise InputError if a batch would replace the result of another pipeline."""
        if self.owner is not None:
            name = f"batch={MicroBatch(None, 0).name}"
            text = self._files.read(f"{name}/{WRITTEN_BY}")
            self.owner.require(self.path, self.kind, f"{self.path}/{name}", text)

    def mark(self, run: str, number: int) -> Mark:
        """Return the mark of a micro-batch."""
        folder = f"batch={MicroBatch(run, number).name}"
        if is_remote(self.path):
            plans = map(_PART_OF_PLAN.match, self._files.names(folder))
            plan = next((found[1] for found in plans if found), "")
        else:
            plan = plan_of(self._files.read(f"{folder}/{WRITTEN_BY}"))
        return Mark(f"folder `{self.path}`", number, plan)

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream."""
        numbers, continued = self._numbers(run), self._continued(run)
        if continued is not None:
            last = self.mark(run, max([continued.after, *numbers]))
            return replace(last, is_continued=True, by=continued.by)
        return self.mark(run, max(numbers)) if numbers else None

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove the micro-batches of a stream after one, and those of runs that continued it earlier."""
        continued = self._continued(run)
        if continued is not None and after > continued.after:
            raise StateError(
                "E0849",
                f"folder `{self.path}` no longer has the micro-batches {continued.after + 1} to {after} of "
                "this stream: they were removed when an older copy of its checkpoint was accepted",
                "put the latest copy back, or start a new stream: another checkpoint, another folder",
            )
        if continued is not None:  # before its name is replaced, which alone leads to it
            self.take_back(continued.by, -1 if continued.anew else after, by, anew=anew)
        # The record comes before the removal: after a crash the checkpoint is refused again.
        self._files.write(_NOTE.format(run), json.dumps(asdict(_Continued(after, by, anew))))
        later = [number for number in self._numbers(run) if number > after]
        for number in sorted(later, reverse=True):  # a crash in between leaves no gap
            self._files.remove(f"batch={MicroBatch(run, number).name}")

    def _continued(self, run: str) -> _Continued | None:
        """Return the point from which another run has continued a stream, or None."""
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
        """Record the owner in the folder of a micro-batch; `folder`: its name until it is complete."""
        text = text_of(batch, self.path, self.kind, self.owner)
        self._files.write(f"{folder or f'batch={batch.name}'}/{WRITTEN_BY}", text)


@dataclass(frozen=True, slots=True)
class FolderSink:
    """A folder on a local disk, written in the workers; see `WorkerSink`.

    Spark's own writer would first convert matches to rows, four microseconds each. It would also need a job
    for each sink, and the output would have to be kept for it: half a second in each micro-batch.
    """

    output: Output
    path: str
    writer: FileWriter
    owner: Owner | None = None  # of a batch

    guarantee = Guarantee.EXACTLY_ONCE

    @property
    def shared_folder(self) -> str:
        """The folder."""
        return self.path

    @property
    def _written(self) -> _Written:
        return _Written(self.path, self.output.kind, self.owner)

    def check(self) -> None:
        """Try to write a file, and remove it."""
        require_folder(self.path, f".probe-{os.getpid()}")
        self._written.require_own()

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream with rows."""
        return self._written.last(run)

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove the folders of later micro-batches."""
        with writing(self.path):
            self._written.take_back(run, after, by, anew=anew)

    def begin(self, batch: MicroBatch) -> None:
        """Remove the remains of the micro-batch."""
        _require_same(self._written, batch)
        hidden = self._hidden(batch)
        if hidden.exists():
            with writing(self.path):
                shutil.rmtree(hidden)

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
        """Write a file, and rename it when it is complete, so that attempts of a task do not interfere."""
        from pyspark import TaskContext  # a pipeline file can be checked without PySpark

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
        """Move the folder of the micro-batch into its place.

        Without rows there is no folder, except for the first micro-batch, so that the path exists.
        """
        with writing(self.path):
            self._show(batch)

    def _show(self, batch: MicroBatch) -> None:
        hidden, folder = self._hidden(batch), Path(folder_of(self.path, batch))
        if batch.number == 0 and not hidden.exists():
            hidden.mkdir(parents=True)
            if self.writer.has_columns:  # an empty file would not show them otherwise
                self.writer.write(hidden / f"part-0.{self.writer.name}", Rows(self.output, ()))
        if hidden.exists():
            (hidden / "_SUCCESS").touch()
            self._written.write(batch, hidden.name)
            if folder.exists():  # of the same micro-batch, repeated after a crash
                shutil.rmtree(folder)
            hidden.rename(folder)

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""

    def _hidden(self, batch: MicroBatch) -> Path:
        """Return the folder of a micro-batch's files until all are complete."""
        return Path(self.path) / f".batch={batch.name}"


@dataclass(frozen=True, slots=True)
class ObjectSink:
    """A folder on remote storage, to which a stream writes a file in each micro-batch; see `TableSink`.

    Spark's own writer would need about a hundred requests to an object store; this one needs two. The name of
    the file contains the plan of the micro-batch, so the same micro-batch replaces it in one step.
    """

    output: Output
    path: str
    writer: FileWriter

    guarantee = Guarantee.EXACTLY_ONCE

    @property
    def _written(self) -> _Written:
        return _Written(self.path, self.output.kind, None)

    def check(self) -> None:
        """Do nothing: the first micro-batch writes."""

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream with rows."""
        return self._written.last(run)

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove the folders of later micro-batches."""
        self._written.take_back(run, after, by, anew=anew)

    def begin(self, batch: MicroBatch) -> None:
        """Check whether the micro-batch exists; its file is replaced in one step."""
        _require_same(self._written, batch)

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Write the rows; without rows, only the first micro-batch, so that the path exists."""
        if not rows.n_rows and batch.number:
            return
        is_file = rows.n_rows or self.writer.has_columns
        name = f"part-{batch.plan}.{self.writer.name}" if is_file else "_SUCCESS"
        with TemporaryDirectory() as folder:
            file = Path(folder) / name
            self.writer.write(file, rows)
            self._written.far_files.copy(file, f"batch={batch.name}/{name}")

    def commit(self, batch: MicroBatch) -> None:
        """Do nothing: the file is complete."""

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""


@dataclass(frozen=True, slots=True)
class FolderSinkOfSpark:
    """A folder that Spark writes: one that workers on other machines share, or the result of a batch.

    See `DriverSink`.
    """

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
    def shared_folder(self) -> str:
        """The folder if it is on a disk."""
        return "" if is_remote(self.path) else self.path

    def check(self) -> None:
        """Try to write a file on a disk of this machine, and remove it. Only Spark can check other places."""
        if not is_remote(self.path):
            require_folder(self.path, f".probe-{os.getpid()}")
        self._written.require_own()

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream with rows."""
        return self._written.last(run)

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove the folders of later micro-batches."""
        self._written.take_back(run, after, by, anew=anew)

    def begin(self, batch: MicroBatch) -> None:
        """Check whether the micro-batch exists; Spark replaces the folder when it writes."""
        _require_same(self._written, batch)

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Write the rows with Spark; without rows, only the first micro-batch, so that the path exists."""
        if rows.n_rows or batch.number == 0:
            frame = self.writer.for_spark(rows.frame)
            writer = frame.write.mode("overwrite").format(self.writer.name)
            writer.options(**self.writer.spark_options).save(folder_of(self.path, batch))

    def commit(self, batch: MicroBatch) -> None:
        """Record the owner of the rows, which Spark has committed."""
        if self.owner is not None or Path(folder_of(self.path, batch)).exists():
            self._written.write(batch)

    def close(self) -> None:
        """Do nothing: each micro-batch is complete by itself."""


def _require_same(written: _Written, batch: MicroBatch) -> None:
    """Raise StateError if the folder contains another micro-batch with the same number."""
    if batch.run is not None:
        written.mark(batch.run, batch.number).is_of(batch)
