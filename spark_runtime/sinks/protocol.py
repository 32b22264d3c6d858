"""What a sink is: where one kind of output goes, micro-batch by micro-batch.

A `WorkerSink` is written in the workers, where the output is. On the driver a `TableSink` gets Arrow tables,
and a `DriverSink` a DataFrame.
Each micro-batch of each sink is begun, written and committed. One that a crash has interrupted anywhere is
begun again, with the same number and the same rows, perhaps in another order and cut otherwise.

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from cep.errors import StateError
from cep.formats.late_events import as_declared, json_lines
from cep.schema.stream import Stream
from spark_runtime.wire.output import MATCH, Matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Guarantee(StrEnum):
    """What a sink has got of each row once a stream has gone on after crashes."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch.

    Parameters
    ----------
    run
        Names the stream; it stands in the checkpoint, so it is the same after a restart. None in a batch.
    number
        From 0. A number that comes again is the same micro-batch.
    plan
        Tells it from another micro-batch of its number (`Plan.identity`). Empty: not known, as in a worker.
    """

    run: str | None
    number: int
    plan: str = ""

    @property
    def name(self) -> str:
        """A name that no other micro-batch of any stream has."""
        return "all" if self.run is None else f"{self.run}-{self.number}"


@dataclass(frozen=True, slots=True)
class Mark:
    """The last micro-batch of a stream that a sink has.

    Parameters
    ----------
    place
        The sink, for messages: "table `alerts`".
    number
        Of the micro-batch.
    plan
        `MicroBatch.plan`; empty: the sink does not know it.
    is_continued
        Whether another run has continued from an older checkpoint of this stream (`RevocableSink`).
    """

    place: str
    number: int
    plan: str = ""
    is_continued: bool = False

    def is_of(self, batch: MicroBatch) -> bool:
        """Return whether a micro-batch that is to be written is there already.

        Raises
        ------
        StateError
            The sink has a later one, or another one of its number (E0849).
        """
        if self.number < batch.number:
            return False
        if self.number > batch.number or (self.plan and batch.plan and self.plan != batch.plan):
            has = "another" if self.number == batch.number else "already"
            raise StateError(
                "E0849",
                f"{self.place} has {has} micro-batch {self.number} of this stream, {batch.number} comes now: "
                "another run writes, with a copy of this checkpoint",
                "end the other run; to go on with this checkpoint, run once with --accept-older-checkpoint",
            )
        return True


@dataclass(frozen=True, slots=True)
class Output:
    """What a sink gets.

    Parameters
    ----------
    kind
        `MATCH`, `DEAD`, or the `late_kind` of `stream`.
    schema
        Columns of its rows: `RuleSet.match_schema`, `DEAD_LETTER_SCHEMA`, or `declared_schema` of `stream`.
    stream
        The stream of late events.
    folder
        What tells late events of several streams apart, as the name of a folder; else empty.
    """

    kind: str
    schema: pa.Schema
    stream: Stream | None = None
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an output as the operator has them; can be read more than once.

    On the driver late events are JSON.
    """

    output: Output
    found: Matches | Sequence[Any]  # tables of matches or of late events; dead letters as JSON

    def __bool__(self) -> bool:
        return bool(self.found)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables of the output's schema."""
        output = self.output
        if output.kind == MATCH:
            yield from (table.cast(output.schema) for table in self.found)
        elif output.stream is not None:
            yield from (as_declared(table, output.stream) for table in self.found)
        elif self.found:
            objects = [json.loads(text) for text in self.found]
            columns = [pa.array([row.get(name) for row in objects]) for name in output.schema.names]
            yield pa.table(columns, names=output.schema.names).cast(output.schema)

    def lines(self) -> Iterator[str]:
        """Yield late events or dead letters as JSON. Matches have no such form here."""
        assert self.output.kind != MATCH
        for item in self.found:
            if isinstance(item, str):
                yield item
            else:
                assert self.output.stream is not None
                yield from json_lines(item, self.output.stream)


class Sink(Protocol):
    """What all sinks have. Each method may raise InputError (`cep.write_errors.writing`)."""

    @property
    def output(self) -> Output:
        """What it gets."""
        ...

    @property
    def guarantee(self) -> Guarantee:
        """What it can promise."""
        ...

    def check(self) -> None:
        """Raise InputError if nothing can be written here. On the driver, before anything runs."""
        ...

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream that it has; None: none, or it cannot tell.

        On the driver, after `check` and before the first `begin`. An exactly-once sink can tell.
        """
        ...

    def begin(self, batch: MicroBatch) -> None:
        """Get ready for a micro-batch; forget what an interrupted one left under its name. On the driver."""
        ...

    def commit(self, batch: MicroBatch) -> None:
        """Show what was written of a micro-batch, instead of what its name had before. On the driver.

        The checkpoint says so after this has returned. Called for a micro-batch without rows, too.
        """
        ...

    def close(self) -> None:
        """End the run, which has gone well or was stopped. On the driver."""
        ...


@runtime_checkable
class WorkerSink(Sink, Protocol):
    """A sink that is written in the workers, to which it travels: it holds no connection."""

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
        """Write some rows of a micro-batch, at least one.

        `part` names them within the micro-batch. A task that fails is tried again: what was written under the
        same name before, or is being written by another attempt, must not count.
        """
        ...


@dataclass(frozen=True, slots=True)
class Collected:
    """The rows of a micro-batch, collected on the driver; can be read more than once.

    Parameters
    ----------
    n_rows
        How many.
    rows
        The rows.
    typed
        Makes a table of late events of their texts.
    """

    n_rows: int
    rows: Rows
    typed: Callable[[Sequence[str]], pa.Table]

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables of the output's schema."""
        rows = self.rows
        if rows.output.stream is None:
            yield from rows.tables()
        elif rows:
            yield self.typed(list(rows.lines())).cast(rows.output.schema)

    def lines(self) -> Iterator[str]:
        """Yield the rows as objects of JSON, as the sink `json` writes them."""
        if self.rows.output.kind != MATCH:
            yield from self.rows.lines()
            return
        from spark_runtime.sinks.json_rows import json_rows

        for table in self.rows.tables():
            yield from json_rows(table)


@runtime_checkable
class TableSink(Sink, Protocol):
    """A sink that is written on the driver from Arrow tables: a transaction, or requests."""

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Write all rows of a micro-batch. Called once between `begin` and `commit`, also without rows."""
        ...


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a micro-batch, on the driver: how many, and as a DataFrame with the output's columns."""

    n_rows: int
    frame: DataFrame


@runtime_checkable
class DriverSink(Sink, Protocol):
    """A sink that is written on the driver, or from there by Spark."""

    @property
    def wants_rows(self) -> bool:
        """Whether it may look at the rows of the next micro-batch; they are kept for it only then."""
        ...

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Write all rows of a micro-batch. Called once between `begin` and `commit`, also without rows."""
        ...


@runtime_checkable
class RefusingSink(Protocol):
    """A sink whose server may refuse a row for good; such rows are kept elsewhere, and counted."""

    @property
    def shown(self) -> str:
        """What it is, for the summary."""
        ...

    @property
    def n_refused(self) -> int:
        """Rows that were refused for good since it was opened."""
        ...


@runtime_checkable
class RevocableSink(Protocol):
    """A sink that can take micro-batches back."""

    def take_back(self, run: str, after: int, by: str) -> None:
        """Remove the micro-batches of a stream with numbers beyond `after`. On the driver, after `last`.

        The run `by` continues from there, so from now on `last` says that `run` is continued. What other runs
        have written after `after` in its place goes, too. StateError (E0849): they continued earlier.
        """
        ...


AnySink = WorkerSink | TableSink | DriverSink
"""A sink, by where and as what it gets its rows."""
