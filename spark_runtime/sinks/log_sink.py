"""The log of matches as a sink: a folder of files, and an entry of the log for each micro-batch with rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from cep.write_errors import writing
from spark_runtime.sinks.match_log import MatchLog
from spark_runtime.sinks.protocol import Guarantee, Mark, MicroBatch, Output, RevocableSink, Rows, WorkerSink


class FolderOfRows(WorkerSink, RevocableSink, Protocol):
    """A sink of files on a disk."""


@dataclass(slots=True)
class LogSink:
    """A log of matches, whose rows the workers write; see `WorkerSink`.

    `folder`: the rows. `version` and `texts`: the rules, and the text of their file in the log. `keep_us` and
    `max_bytes`: how long entries are kept, and how large the log may be; None: no limit.
    """

    folder: FolderOfRows
    log: MatchLog
    version: str
    texts: str
    keep_us: int | None = None
    max_bytes: int | None = None

    guarantee = Guarantee.EXACTLY_ONCE

    @property
    def output(self) -> Output:
        """The matches."""
        return self.folder.output

    @property
    def shared_folder(self) -> str:
        """The folder of the rows."""
        return self.log.path

    def check(self) -> None:
        """Try to write a file, and find the end of the log. StateError (E0720): it is damaged."""
        self.folder.check()
        with writing(self.log.path):
            self.log.open()

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream with rows."""
        return self.folder.last(run)

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove later micro-batches, from the end of the log."""
        with writing(self.log.path):
            self.log.cut(run, after)
        self.folder.take_back(run, after, by, anew=anew)

    def begin(self, batch: MicroBatch) -> None:
        """Remove the remains of the micro-batch."""
        self.folder.begin(batch)

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
        """Write a file."""
        self.folder.write_part(batch, part, rows)

    def commit(self, batch: MicroBatch) -> None:
        """Move the rows to their place, then add the entry that counts them, then remove old entries."""
        self.folder.commit(batch)
        now_us = time.time_ns() // 1000
        with writing(self.log.path):
            self.log.append_rules(batch, self.version, self.texts, now_us)
            self.log.append_rows(batch, self.version, now_us)
            if self.keep_us is not None or self.max_bytes is not None:
                since_us = None if self.keep_us is None else now_us - self.keep_us
                self.log.retain(since_us, self.max_bytes)

    def close(self) -> None:
        """Do nothing: each entry is already complete."""
