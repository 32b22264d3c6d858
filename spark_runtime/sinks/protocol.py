"""The protocol of a sink, to which one kind of output goes, micro-batch by micro-batch.

The workers, which have the output, write to a `WorkerSink`. On the driver, a `TableSink` gets Arrow tables,
and a `DriverSink` a DataFrame.
Each micro-batch of each sink is begun, written and committed. After a crash, an unfinished micro-batch begins
again with the same number and the same rows, perhaps in another order or split differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from cep.errors import StateError
from cep.formats.late_events import as_declared, json_lines
from cep.rule_set import of_rules
from cep.schema.stream import Stream
from spark_runtime.wire.output import MATCH, Matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Guarantee(StrEnum):
    """How often a sink gets each row if a stream continues after crashes."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch.

    `run`: names the stream. The checkpoint stores it, so it is the same after a restart. None in a batch.
    `number`: counts from 0. A repeated number is the same micro-batch. `plan`: distinguishes micro-batches
    with the same number (`Plan.identity`). Empty if unknown, as in a worker.
    """

    run: str | None
    number: int
    plan: str = ""

    @property
    def name(self) -> str:
        """A name that is unique among the micro-batches of all streams."""
        return "all" if self.run is None else f"{self.run}-{self.number}"


@dataclass(frozen=True, slots=True)
class Mark:
    """The last micro-batch of a stream that a sink contains.

    `place`: the sink, for messages, such as "table `alerts`". `plan`: `MicroBatch.plan`; empty if the sink
    does not know it. `is_continued`: whether another run has continued from an older checkpoint of this
    stream (`RevocableSink`). `by`: that run; empty if there is none, or the sink does not know it.
    """

    place: str
    number: int
    plan: str = ""
    is_continued: bool = False
    by: str = field(default="", compare=False)

    def is_of(self, batch: MicroBatch) -> bool:
        """Return whether the sink already contains a micro-batch that is to be written.

        Raises StateError: the sink contains a later one, or another one with the same number (E0849).
        """
        if self.number < batch.number:
            return False
        if self.number > batch.number or (self.plan and batch.plan and self.plan != batch.plan):
            has = "another" if self.number == batch.number else "already"
            raise StateError(
                "E0849",
                f"{self.place} has {has} micro-batch {self.number} of this stream, {batch.number} comes now: "
                "another run writes, with a copy of this checkpoint",
                "end the other run; to continue with this checkpoint, run once with "
                "--accept-older-checkpoint",
            )
        return True


@dataclass(frozen=True, slots=True)
class Output:
    """The output that a sink gets.

    Parameters
    ----------
    kind
        `MATCH`, `DEAD`, or the `late_kind` of `stream`.
    schema
        Columns of its rows: `RuleSet.schema_of`, `DEAD_LETTER_SCHEMA`, or `declared_schema` of `stream`.
    stream
        The stream of the late events.
    folder
        The folder name that separates late events of several streams; otherwise empty.
    rules
        The rules whose matches it has; None: all of them.
    is_shadow
        Whether it has the matches of shadow rules.
    """

    kind: str
    schema: pa.Schema
    stream: Stream | None = None
    folder: str = ""
    rules: frozenset[str] | None = None
    is_shadow: bool = False

    def chosen(self, matches: pa.Table) -> pa.Table:
        """Return the rows and columns of matches that are in the output."""
        return matches if self.rules is None else of_rules(matches, self.rules, self.schema)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of an output in the operator's form; can be read more than once.

    On the driver, late events are JSON.
    """

    output: Output
    found: Matches | Sequence[Any]  # tables of matches or of late events; dead letters as JSON

    def __bool__(self) -> bool:
        if self.output.rules is None:
            return bool(self.found)
        return any(len(self.output.chosen(table)) for table in self.found)

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables of the output's schema."""
        output = self.output
        if output.kind == MATCH:
            chosen = map(output.chosen, self.found)
            yield from (table.cast(output.schema) for table in chosen if len(table))
        elif output.stream is not None:
            yield from (as_declared(table, output.stream) for table in self.found)
        elif self.found:
            objects = [json.loads(text) for text in self.found]
            columns = [pa.array([row.get(name) for row in objects]) for name in output.schema.names]
            yield pa.table(columns, names=output.schema.names).cast(output.schema)

    def lines(self) -> Iterator[str]:
        """Yield the rows as JSON objects, as the sink `json` writes them."""
        if self.output.kind == MATCH:
            from spark_runtime.sinks.json_rows import json_rows

            for table in self.tables():
                yield from json_rows(table)
            return
        for item in self.found:
            if isinstance(item, str):
                yield item
            else:
                assert self.output.stream is not None
                yield from json_lines(item, self.output.stream)


class Sink(Protocol):
    """The interface of all sinks. Each method may raise InputError (`cep.write_errors.writing`)."""

    @property
    def output(self) -> Output:
        """The output that it gets."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that it gives."""

    def check(self) -> None:
        """Raise InputError if the sink cannot be written. Called on the driver, before anything runs."""

    def last(self, run: str) -> Mark | None:
        """Return the last micro-batch of a stream that it contains; None if there is none, or it is unknown.

        Called on the driver, after `check` and before the first `begin`. An exactly-once sink always knows
        it.
        """

    def begin(self, batch: MicroBatch) -> None:
        """Prepare for a micro-batch; delete what an interrupted attempt left. Called on the driver."""

    def commit(self, batch: MicroBatch) -> None:
        """Publish a micro-batch in place of an earlier one with its name. Called on the driver.

        The checkpoint records it after this returns. Called for a micro-batch without rows, too.
        """

    def close(self) -> None:
        """End the run, which succeeded or was stopped. Called on the driver."""


@runtime_checkable
class WorkerSink(Sink, Protocol):
    """A sink that is written in the workers. It is sent to them, so it holds no connection."""

    def write_part(self, batch: MicroBatch, part: str, rows: Rows) -> None:
        """Write some rows of a micro-batch, at least one.

        `part` names them within the micro-batch. A failed task is repeated: rows that another attempt wrote,
        or is writing, under the same name must not count.
        """


@dataclass(frozen=True, slots=True)
class Collected:
    """The rows of a micro-batch, collected on the driver; can be read more than once.

    `typed`: converts late events, which are JSON, to a table.
    """

    n_rows: int
    rows: Rows
    typed: Callable[[Sequence[str]], pa.Table]

    @property
    def output(self) -> Output:
        """Their output."""
        return self.rows.output

    def tables(self) -> Iterator[pa.Table]:
        """Yield the rows as tables of the output's schema."""
        rows = self.rows
        if self.output.stream is None:
            yield from rows.tables()
        elif rows:
            yield self.typed(list(rows.lines())).cast(self.output.schema)

    def lines(self) -> Iterator[str]:
        """Yield the rows as JSON objects, as the sink `json` writes them."""
        yield from self.rows.lines()


@runtime_checkable
class TableSink(Sink, Protocol):
    """A sink that is written on the driver from Arrow tables: a transaction, or requests."""

    def write_rows(self, batch: MicroBatch, rows: Collected) -> None:
        """Write all rows of a micro-batch. Called once between `begin` and `commit`, even without rows."""


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows of a micro-batch, on the driver: their number, and a DataFrame with the output's columns."""

    n_rows: int
    frame: DataFrame


@runtime_checkable
class DriverSink(Sink, Protocol):
    """A sink that the driver writes, either itself or through Spark."""

    @property
    def wants_rows(self) -> bool:
        """Whether it may read the rows of the next micro-batch more than once; only then are they kept."""

    def write_batch(self, batch: MicroBatch, rows: BatchRows) -> None:
        """Write all rows of a micro-batch. Called once between `begin` and `commit`, even without rows."""


@runtime_checkable
class RefusingSink(Protocol):
    """A sink whose server may refuse a row permanently; such rows are stored elsewhere and counted."""

    @property
    def shown(self) -> str:
        """The name of the sink, for the summary."""

    @property
    def n_refused(self) -> int:
        """Number of rows that were permanently refused since it was opened."""


@runtime_checkable
class RevocableSink(Protocol):
    """A sink that can remove micro-batches."""

    def take_back(self, run: str, after: int, by: str, *, anew: bool = False) -> None:
        """Remove the micro-batches of a stream after number `after`. Called on the driver, after `last`.

        The run `by` continues from there, with the next number or, if `anew`, with number 0. So from now on
        `last` says that `run` is continued. Rows after `after` that other runs wrote in its place are also
        removed. StateError (E0849): they continued earlier.
        """


AnySink = WorkerSink | TableSink | DriverSink
"""A sink, by the place and form in which it gets its rows."""
