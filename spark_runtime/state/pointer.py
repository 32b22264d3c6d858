"""What Spark's state store contains for a group whose state is in files."""

from __future__ import annotations

import json
import os
import uuid
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from cep.errors import StateError
from cep.write_errors import writing
from spark_runtime.state.pieces import Piece, batch_of
from spark_runtime.wire.plan import batch_of_task

_MAGIC = b"SCKP\x01"


@dataclass(frozen=True, slots=True)
class Kept:
    """Where large state is kept.

    - `folder`: a folder that the driver and all executors see.
    - `run`: a unique name for this run of the query, which the names of files contain.
    - `n_retained`: the number of micro-batches for which Spark retains state. Their files are kept.
    - `most_bytes`: the memory of a machine that warm state may use; None: a quarter.
    - `inline_bytes`: smaller snapshots are in Spark's state store, because a file would cost more than it
      saves.
    - `most_records`: the number of records after which a group writes a snapshot. The pointer names each
      record, and Spark carries the pointer.
    - `by_query`: whether each query has its own folder in `folder`, named by Spark's id of its checkpoint.
    - `tables`: the folder with the contents of static tables that records name.
    - `options`: the options for access to storage that is not a disk. They may contain secrets.
    """

    folder: str
    run: str
    n_retained: int
    most_bytes: int | None = None
    inline_bytes: int = 64 << 10
    most_records: int = 128
    by_query: bool = False
    tables: str = ""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of_run(cls, folder: str, n_retained: str | None, **named: Any) -> Kept:
        """Return these settings for a new run, with `n_retained` from Spark's setting."""
        return cls(folder, uuid.uuid4().hex[:8], int(n_retained or 100), **named)

    def in_task(self) -> Kept:
        """Return these settings with the folder of the query of the running task, and create `folder`."""
        if not self.by_query:
            return self
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        assert query is not None  # Spark names it in each task of a stream
        with writing(self.folder):
            os.makedirs(self.folder, exist_ok=True)  # the driver of Spark Connect may be elsewhere
        folder = f"{self.folder}/{query}"
        return replace(self, folder=folder, by_query=False, tables=f"{folder}/tables")


class Task(NamedTuple):
    """A task of a stream, which has one key group.

    - `partition`: the partition of the key group.
    - `attempt`: the number of the attempt, different for all attempts of an application.
    """

    batch: int
    group: int
    partition: int
    attempt: int

    @classmethod
    def running(cls, group: int) -> Task:
        """Return the running task, which has this key group."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return cls(batch_of_task(context), group, context.partitionId(), context.taskAttemptId())

    def file(self, run: str) -> str:
        """Return the name of the file that the task writes."""
        return f"{self.group}/{self.batch}-{run}-{self.attempt}"


class Earlier(NamedTuple):
    """An earlier snapshot.

    - `batch`: the micro-batch that its file is named after.
    - `since`: the first micro-batch whose state continues from it.
    """

    batch: int
    since: int


@dataclass(frozen=True, slots=True)
class Pointer:
    """The state of a key group: a snapshot, then the later input of its chain.

    - `base`: the snapshot (`snapshots.encode_state`).
    - `records`: the later records (`recording`), the oldest first.
    - `layout`: the `Layout` of these records.
    - `since`: the first micro-batch whose state continues from `base`. It comes after that of the file if the
      snapshot was written between two calls.
    - `earlier`: earlier snapshots, the oldest first, from which retained state continues.
    """

    base: Piece
    records: tuple[Piece, ...]
    layout: Piece
    digest: str
    since: int
    earlier: tuple[Earlier, ...] = ()

    @property
    def version(self) -> Piece:
        """The last piece, which identifies the state: no other attempt wrote it."""
        return self.records[-1] if self.records else self.base

    @property
    def snapshots(self) -> tuple[Earlier, ...]:
        """The snapshots from which retained state, or this state, continues, the oldest first."""
        return *self.earlier, Earlier(batch_of(self.base.file), self.since)

    @property
    def n_record_bytes(self) -> int:
        """The length of all records."""
        return sum(piece.length for piece in self.records)

    def encode(self) -> bytes:
        """Return the pointer as bytes."""
        pieces = (self.base, self.layout, *self.records)
        names = list(dict.fromkeys(piece.file for piece in pieces))
        numbers = {name: number for number, name in enumerate(names)}
        found = {
            "files": names,
            "pieces": [[numbers[piece.file], *piece[1:]] for piece in pieces],
            "digest": self.digest,
            "earlier": [snapshot.batch for snapshot in self.earlier],
            "since": [snapshot.since for snapshot in self.snapshots],
        }
        return _MAGIC + zlib.compress(json.dumps(found, separators=(",", ":")).encode(), 1)

    @classmethod
    def decode(cls, data: bytes) -> Pointer:
        """Return the pointer that `encode` wrote. Raises StateError if it is damaged (E0702)."""
        try:
            found = json.loads(zlib.decompress(data[len(_MAGIC) :]))
            base, layout, *records = (Piece(found["files"][at], *rest) for at, *rest in found["pieces"])
            batches = [*found["earlier"], batch_of(base.file)]
            of_all = found.get("since", batches)  # earlier versions wrote all snapshots in calls
            *earlier, (_, since) = map(Earlier, batches, of_all)
            return cls(base, tuple(records), layout, str(found["digest"]), since, tuple(earlier))
        except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
            raise StateError(
                "E0702",
                "the state in the checkpoint is damaged: it does not name its files",
                "restore the checkpoint directory as a whole, or start with an empty one",
            ) from error


def is_pointer(data: bytes) -> bool:
    """Return whether a value of Spark's state store is a pointer, and not the state itself."""
    return data[: len(_MAGIC)] == _MAGIC
