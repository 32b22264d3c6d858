"""Writes the operator's output to sinks in the workers, which already have it as Arrow."""

from __future__ import annotations

from dataclasses import dataclass, field

from cep.settings.file_mode import PRIVATE, FileMode
from cep.spool.new_files import umask
from spark_runtime.sinks.protocol import MicroBatch, Output, Rows, WorkerSink
from spark_runtime.wire.output import MATCH, CallResults
from spark_runtime.wire.plan import batch_of_task
from spark_runtime.wire.shared import SharedFolders


@dataclass(frozen=True, slots=True)
class Delivery:
    """The operator writes to some sinks itself, and returns rows for the others.

    - `sinks`: sinks to which the operator writes.
    - `kinds`: kinds of output that are returned as rows; counts always are.
    - `run`: with a number, it identifies a micro-batch of a stream; None in a batch.
    - `shared`: the folders that every worker must have.
    - `is_watched`: whether the counts contain what the live page of the run shows.
    """

    sinks: tuple[WorkerSink, ...] = ()
    kinds: frozenset[str] = frozenset((MATCH,))
    run: str | None = None
    file_mode: FileMode = PRIVATE
    shared: SharedFolders = field(default_factory=SharedFolders)
    is_watched: bool = False

    def deliver(self, found: CallResults, part: str) -> None:
        """Write the results of one call of the operator, which `part` names. Runs in a worker."""
        for sink in self.sinks:
            rows = _rows_of(sink.output, found)
            if rows:
                with umask(self.file_mode.umask):  # another program may have started this process
                    sink.write_part(self._batch_of_task(), part, rows)

    def _batch_of_task(self) -> MicroBatch:
        """Return the micro-batch that the running task belongs to."""
        if self.run is None:
            return MicroBatch(None, 0)
        from pyspark import TaskContext  # a pipeline file can be checked without PySpark

        context = TaskContext.get()
        assert context is not None
        return MicroBatch(self.run, batch_of_task(context))


def _rows_of(output: Output, found: CallResults) -> Rows:
    """Return the rows among a call's results that a sink gets."""
    if output.kind == MATCH:
        return Rows(output, found.matches)
    dead_or_late = found.dead if output.stream is None else found.late.get(output.stream.name, [])
    return Rows(output, dead_or_late)


ALL_AS_ROWS = Delivery()
"""The operator writes to no sink itself."""
