"""Writes what a log of matches contains to a sink: the same rows, micro-batches and ids as the stream wrote.

A micro-batch is written under the name that it had. So a sink that records which micro-batches it contains
gets none twice, however often a replay is interrupted and repeated, and the stream can continue with that
sink.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from cep.errors import CepError, InputError
from cep.rule_set import KIND
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import read_sink
from spark_runtime.pipeline.portable import folder_of
from spark_runtime.pipeline.trust import WHOLE, is_listed
from spark_runtime.sinks.match_log import Entry, MatchLog
from spark_runtime.sinks.owner import WRITTEN_BY, output_of
from spark_runtime.sinks.place import FormatSink, Place, PlacedSink, PlacedSource, folder_place, folders_of
from spark_runtime.sinks.protocol import AnySink, Collected, Mark, Output, Rows, TableSink, WorkerSink
from spark_runtime.sinks.registry import SinkContext, SinkSpec
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.output import DEAD, LATE, MATCH

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

    Raises InputError: entries from `start` on are removed, or it is after the end (E0721). StateError: a file
    is missing (E0720).
    """
    first = log.first_offset()
    known = list(log.entries())
    if known and start > known[-1].offset + 1:  # the next one: nothing new has been written
        raise InputError("E0721", f"the log `{log.path}` {_end_of(known[-1])}", "write a smaller --from")
    if start and start < first:
        raise InputError(
            "E0721",
            f"the log `{log.path}` begins with offset {first}: what was before is not kept",
            f"write --from {first} or more",
        )
    found = [entry for entry in known if entry.offset >= start]
    if time_us is not None:
        at = next((at for at, entry in enumerate(found) if entry.time_us >= time_us), len(found))
        found = found[at:]
    for entry in found:
        log.require_files(entry)
    return found


def end_of(log: MatchLog) -> str:
    """Return, in words, where a log that is not empty ends. StateError (E0720): it is damaged."""
    return _end_of(list(log.entries())[-1])


def _end_of(last: Entry) -> str:
    return f"ends with offset {last.offset}, micro-batch {last.micro_batch}"


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
        return pa.table(list(map(self._converted, columns, self.schema)), schema=self.schema)

    def _converted(self, column: pa.ChunkedArray, now: pa.Field) -> pa.ChunkedArray:
        try:
            return column.cast(now.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            offset = self.entry.offset
            raise InputError(
                "E0721",
                f"`{now.name}` was {column.type} in offset {offset}, and is {now.type} in the rules now; a "
                f"value does not fit: {error}",
                "replay with the pipeline file and rules of that time; or begin after it: "
                f"--from {offset + 1}",
            ) from error


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

    def unknown_rules(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the rules in `only` that neither the pipeline nor a row has, and those of the rows."""
        unknown = self.only.difference(self.pipeline.rules.names(shadow=False))
        if not unknown:
            return (), ()
        known = {rule for rule, _ in replace(self, only=frozenset()).counts()}
        return sorted(unknown - known), sorted(known)

    def conversions(self, schema: pa.Schema) -> Iterator[str]:
        """Yield, in a sentence, which columns had another type than in `schema`."""
        versions = {entry.rules: entry for entry in self.entries if entry.run}
        for entry in versions.values():
            for then in self.log.schema(entry):
                now = schema.field(then.name)
                if then.type != now.type:
                    yield (
                        f"`{then.name}` was {then.type} up to offset {entry.offset}, and is {now.type} in "
                        "the rules now: its values are converted"
                    )

    def into(self, spec: SinkSpec, shown: str, console: Console, say: Callable[[str], None]) -> Replayed:
        """Write the rows to a sink, micro-batch by micro-batch, except for those that it contains.

        `say` is called with a warning about columns whose type has changed, and with the way to continue if
        an error ends the replay and the sink does not record what it contains. Raises InputError: only Spark
        writes to the sink, it is a place of the pipeline or has other files, or a value does not fit the
        rules now (E0721), or it fails; a setting of Spark is not allowed (E0838). StateError: a file of the
        log is damaged (E0720), or the sink contains another micro-batch (E0849).
        """
        sink = self._opened(spec, shown, console)
        runs = dict.fromkeys(entry.run for entry in self.entries if entry.run)
        sink.check()
        for text in self.conversions(sink.output.schema):
            say(f"warning: {text}")
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
                if isinstance(sink, WorkerSink):
                    with suppress(CepError):
                        sink.begin(entry.batch)  # it removes what is incomplete
                if marks[entry.run] is None and done.n_batches:
                    say(f"written: all before offset {entry.offset}; to continue: --from {entry.offset}")
                raise
            done = replace(done, n_rows=done.n_rows + rows.n_rows, n_batches=done.n_batches + 1)
        sink.close()
        return done

    def _opened(self, spec: SinkSpec, shown: str, console: Console) -> WorkerSink | TableSink:
        output = Output(MATCH, self.schema())
        places = spec.places(output) if isinstance(spec, PlacedSink) else ()
        for place, (what, own) in product(places, _own_places(self.pipeline, self.log)):
            if place.meets(own):
                n_more = len(place.name) - len(own.name)
                relation = "is" if not n_more else "is inside" if n_more > 0 else "contains"
                raise InputError("E0721", f"sink {shown} {relation} {what}", "name another place")
        for entry, place in product(self.pipeline.sources, places):
            if isinstance(entry.spec, PlacedSource) and entry.spec.reads(place):
                what = f"sink {shown} is the source of `{entry.stream}`"
                raise InputError("E0721", what, "name another place")
        for folder in folders_of([(spec, [output])]):
            _require_no_other_files(folder, spec.file_format if isinstance(spec, FormatSink) else "")
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


def _own_places(pipeline: Pipeline, log: MatchLog) -> Iterator[tuple[str, Place]]:
    """Yield the places of a pipeline where matches must not be written, in words."""
    yield "the log that is replayed", folder_place(log.path)
    yield "the checkpoint", folder_place(pipeline.checkpoint)
    read = {entry.stream: entry.spec.place for entry in pipeline.sources}
    for name, path in (read | {file.table.name: file.path for file in pipeline.tables}).items():
        if folder := folder_of(path):
            yield f"the source of `{name}`", folder_place(folder)
    others = {"late": pipeline.late, "dead_letter": pipeline.dead_letter, "shadow": pipeline.shadow}
    for spec, outputs in pipeline.outputs():
        known = next((name for name, other in others.items() if other is spec), None)
        if known is not None and isinstance(spec, PlacedSink):
            for place in chain.from_iterable(map(spec.places, outputs)):
                yield f"the {'folder' if place.has_inside else 'place'} of `{known}`", place


_OTHER_ROWS = {DEAD: "dead letters", LATE: "late events"}


def _require_no_other_files(folder: str, own: str) -> None:
    """Raise InputError if a folder has files of another format than `own`, or other rows than matches.

    Its micro-batches would be taken for those of the log. `own` is empty for a table of Delta.
    """
    if (Path(folder) / "_delta_log").exists():
        if own:
            raise _other_files(folder, f"files of the format delta, not {own}")
        return  # a table may be divided by a column that is called `batch`
    for batch in filter(Path.is_dir, Path(folder).glob("batch=*")):
        output = output_of(LocalFiles(str(batch)).read(WRITTEN_BY)).partition(" ")[0]
        if output in _OTHER_ROWS:
            raise _other_files(folder, f"{_OTHER_ROWS[output]}, not matches")
        for part in batch.glob("part-*.*"):
            there = part.suffix.removeprefix(".")
            if there != own:
                raise _other_files(folder, f"files of the format {there}, not {own or 'delta'}")


def _other_files(folder: str, what: str) -> InputError:
    return InputError("E0721", f"`{folder}` has {what}", "name an empty folder")


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
