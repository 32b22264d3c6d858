"""Writes what a log of matches contains to a sink: the same rows, micro-batches and ids as the stream wrote.

A micro-batch is written under the name that it had. So a sink that records which micro-batches it contains
gets none twice, however often a replay is interrupted and repeated, and the stream can continue with that
sink.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from cep.errors import InputError
from cep.rule_set import KIND
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import read_sink
from spark_runtime.pipeline.trust import WHOLE, is_listed
from spark_runtime.sinks.match_log import Entry, MatchLog, damaged
from spark_runtime.sinks.place import PlacedSink, folder_place
from spark_runtime.sinks.protocol import AnySink, Collected, Mark, Output, Rows, TableSink, WorkerSink
from spark_runtime.sinks.registry import SinkContext, SinkSpec
from spark_runtime.wire.output import MATCH

_RULE = "rule"


def log_of(pipeline: Pipeline, file: str) -> MatchLog:
    """Return the log of a pipeline. InputError (E0721): it has none, or the log is still empty."""
    if pipeline.log is None:
        raise InputError(
            "E0721", f"`{file}` has no log of matches", "add: log: out/log; it fills from then on"
        )
    log = MatchLog(pipeline.log.path)
    if next(iter(log.entries()), None) is None:
        raise InputError("E0721", f"the log `{log.path}` is empty", "run the pipeline")
    return log


def entries_from(log: MatchLog, start: int = 0, time_us: int | None = None) -> list[Entry]:
    """Return the entries from an offset on, or from the first one that was written at a time or later.

    Raises InputError: entries from `start` on are removed (E0721). StateError: a file is missing (E0720).
    """
    first = log.first_offset()
    if start and start < first:
        raise InputError(
            "E0721",
            f"the log `{log.path}` begins with offset {first}: what was before is not kept",
            f"write --from {first} or more",
        )
    found = [entry for entry in log.entries() if entry.offset >= start]
    if time_us is not None:
        at = next((at for at, entry in enumerate(found) if entry.time_us >= time_us), len(found))
        found = found[at:]
    for entry in found:
        log.require_files(entry)
    return found


@dataclass(frozen=True, slots=True)
class _Parts(Sequence[pa.Table]):
    """The rows of an entry, a table for each file, which is read when it is needed.

    `rules`: the rules whose rows these are; empty: all.
    """

    log: MatchLog
    entry: Entry
    schema: pa.Schema
    rules: frozenset[str]

    def __len__(self) -> int:
        return len(self.entry.files)

    def __getitem__(self, at: int) -> pa.Table:  # type: ignore[override]  # no slices
        name = list(self.entry.files)[at]
        table = self.log.table(self.entry, name)
        if self.rules:
            table = table.filter(_is_of(table, self.rules))
        columns = [
            table.column(item.name) if item.name in table.column_names else pa.nulls(len(table), item.type)
            for item in self.schema
        ]
        found = pa.table(columns, names=self.schema.names)
        try:
            return found.cast(self.schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            place = str(self.log.file(self.entry, name))
            raise damaged(place, f"has values of another type than the rules now: {error}") from error


def _is_of(table: pa.Table, rules: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(table.column(_RULE), pa.array(sorted(rules), pa.string()))


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay wrote: the rows of `n_batches` micro-batches; the sink already had `n_skipped` others."""

    n_rows: int = 0
    n_batches: int = 0
    n_skipped: int = 0


@dataclass(frozen=True, slots=True)
class Replaying:
    """Entries of a log that are replayed. `only`: the rules whose rows are replayed; empty: all.

    `any_spark_setting`: whether Spark may start with settings of the pipeline file that can run code.
    """

    pipeline: Pipeline
    log: MatchLog
    entries: Sequence[Entry]
    only: frozenset[str] = frozenset()
    any_spark_setting: bool = False

    def counts(self) -> Counter[tuple[str, str]]:
        """Return the number of rows by rule and kind."""
        found: Counter[tuple[str, str]] = Counter()
        for entry in self.entries:
            has_kinds = bool(entry.run) and KIND in self.log.schema(entry).names
            for name in entry.files:
                columns = [_RULE, KIND] if has_kinds else [_RULE]
                table = self.log.table(entry, name, columns)
                for row in table.group_by(columns).aggregate([([], "count_all")]).to_pylist():
                    if not self.only or row[_RULE] in self.only:
                        found[row[_RULE], row.get(KIND) or MATCH] += row["count_all"]
        return found

    def schema(self) -> pa.Schema:
        """Return the columns of all rows: those of the current rules, then those of earlier rules only."""
        fields = {item.name: item for item in self.pipeline.rules.schema_of(shadow=False)}
        versions = {entry.rules: entry for entry in self.entries if entry.run}
        for entry in versions.values():
            there = self.log.schema(entry)
            fields |= {item.name: item.with_nullable(True) for item in there if item.name not in fields}
            fields |= {
                name: item.with_nullable(True) for name, item in fields.items() if name not in there.names
            }
        return pa.schema(list(fields.values()))

    def into(self, spec: SinkSpec, shown: str, console: Console, say: Callable[[str], None]) -> Replayed:
        """Write the rows to a sink, micro-batch by micro-batch, except for those that it contains.

        `say` is called with the way to continue if an error ends the replay and the sink does not record what
        it has. Raises InputError: only Spark writes to the sink, or it is the log (E0721), or it fails; a
        setting of Spark is not allowed (E0838). StateError: a file of the log is damaged (E0720), or the sink
        contains another micro-batch (E0849).
        """
        sink = self._opened(spec, shown, console)
        runs = dict.fromkeys(entry.run for entry in self.entries if entry.run)
        sink.check()
        marks = {run: sink.last(run) for run in runs}
        done = Replayed()
        for entry in filter(lambda entry: entry.run, self.entries):
            if _has(marks[entry.run], entry):
                done = replace(done, n_skipped=done.n_skipped + 1)
                continue
            rows = self._rows(entry, sink.output)
            try:
                _write(sink, entry, rows)
            except BaseException:
                if marks[entry.run] is None and done.n_batches:
                    say(f"written: all before offset {entry.offset}; to continue: --from {entry.offset}")
                raise
            done = replace(done, n_rows=done.n_rows + rows.n_rows, n_batches=done.n_batches + 1)
        sink.close()
        return done

    def _opened(self, spec: SinkSpec, shown: str, console: Console) -> WorkerSink | TableSink:
        output = Output(MATCH, self.schema())
        places = spec.places(output) if isinstance(spec, PlacedSink) else ()
        if any(place.meets(folder_place(self.log.path)) for place in places):
            raise InputError("E0721", f"sink {shown} is the log that is replayed", "name another place")
        context = SinkContext(self.pipeline.rules, console, is_replay=True)
        sink: AnySink = spec.open(output, context)
        if any(place.has_inside and place.name[1] != os.sep for place in places):  # not on a disk
            from spark_runtime.sessions.installed import check_pyspark
            from spark_runtime.sessions.local_session import session

            check_pyspark()
            self._require_listed()
            session(dict(self.pipeline.spark), is_short=True)
        if not isinstance(sink, WorkerSink | TableSink):
            raise InputError(
                "E0721",
                f"sink {shown} is written by Spark, which a replay does not start",
                "replay into {format: json, path: out/replayed}, and read that",
            )
        return sink

    def _require_listed(self) -> None:
        unlisted = [name for name, value in self.pipeline.spark if not is_listed(name, value)]
        if unlisted and not self.any_spark_setting:
            raise InputError(
                "E0838",
                f"this sink needs Spark, and a pipeline file may not set `{unlisted[0]}`: it can run "
                "code, or nobody has checked that it cannot",
                "if you trust the file, add --allow-spark-settings",
            )

    def _rows(self, entry: Entry, output: Output) -> Collected:
        parts = _Parts(self.log, entry, output.schema, self.only)
        n_rows = entry.n_rows
        if self.only:
            tables = (self.log.table(entry, name, [_RULE]) for name in entry.files)
            n_rows = sum(pc.sum(_is_of(table, self.only)).as_py() or 0 for table in tables)
        return Collected(n_rows, Rows(output, parts), lambda texts: pa.table({}))


def _has(mark: Mark | None, entry: Entry) -> bool:
    """Return whether a sink contains the micro-batch. StateError (E0849): another one of this number."""
    return mark is not None and (mark.number > entry.micro_batch or mark.is_of(entry.batch))


def _write(sink: WorkerSink | TableSink, entry: Entry, rows: Collected) -> None:
    sink.begin(entry.batch)
    if isinstance(sink, TableSink):
        sink.write_rows(entry.batch, rows)
    elif rows.n_rows:
        sink.write_part(entry.batch, "0", rows.rows)
    sink.commit(entry.batch)


def sink_of(pipeline: Pipeline, text: str) -> SinkSpec:
    """Return the sink that a text names or describes: ``postgres``, ``{format: json, path: out/again}``.

    Raises InputError: the pipeline has no such sink (E0721). RuleError: the settings are wrong.
    """
    known = dict(zip(pipeline.sink_names(), pipeline.sinks, strict=False))
    if text in known:
        return known[text]
    if ":" not in text:
        raise InputError(
            "E0721",
            f"the pipeline has no sink `{text}`, but {', '.join(known)}",
            "write one of them, or settings: --into '{format: json, path: out/again}'",
        )
    return read_sink(text, Path.cwd(), WHOLE, pipeline.rules)
