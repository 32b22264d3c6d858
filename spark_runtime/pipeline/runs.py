"""The runners on Spark: a pipeline as one batch, or as a stream."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live
from rich.text import Text

from cep.counts import Counts, amount, largest
from cep.errors import CepError, StateError
from cep.output.summary import absent_texts
from cep.rule_set import RuleSet
from cep.schema.time_literals import time_for_people
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.dataflow.schema import spark_schema
from spark_runtime.dataflow.share_reader import TICKS, ShareReader
from spark_runtime.event_time.watermarks import WatermarkRule
from spark_runtime.operator.daily import FirstOfDays
from spark_runtime.pipeline.checkpoint import (
    Checkpoint,
    SourceIdentity,
    check_query_log,
    last_done,
    open_checkpoint,
    plan_for_tasks,
)
from spark_runtime.pipeline.delivering import Delivering, NamedSink, Notes, Written, delivery_of, named
from spark_runtime.pipeline.gaps import Ledger
from spark_runtime.pipeline.history import History
from spark_runtime.pipeline.kept import kept_of
from spark_runtime.pipeline.made import Pipeline, Reload
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.next_plan import Turn
from spark_runtime.pipeline.progress import Totals
from spark_runtime.pipeline.reloading import Reloading, RuleTurn
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.sessions.callbacks import Callbacks
from spark_runtime.sessions.local_session import is_local
from spark_runtime.sessions.run_folder import places
from spark_runtime.sessions.state_stores import forget_ended
from spark_runtime.sinks.place import folders_of
from spark_runtime.sinks.protocol import RefusingSink
from spark_runtime.sinks.registry import SinkContext
from spark_runtime.sources.protocol import Source, SparkSource
from spark_runtime.state.far import is_on_s3
from spark_runtime.state.pieces import FOLDER as STATE_FOLDER
from spark_runtime.state.pieces import Pieces
from spark_runtime.state.pointer import Kept
from spark_runtime.state.restored import FOLDER as RESTORED_FOLDER
from spark_runtime.state.restored import Restored
from spark_runtime.storage.checkpoint_files import CheckpointFiles, is_remote
from spark_runtime.storage.lease import checkpoint_files
from spark_runtime.tables.content import PROPERTY as TABLES_PROPERTY
from spark_runtime.tables.content import text_of, timed_inputs
from spark_runtime.tables.static import StaticFile, StaticTables
from spark_runtime.wire.key_groups import require_few
from spark_runtime.wire.parcels import PARCEL_SCHEMA
from spark_runtime.wire.plan import CAP_PROPERTY, CLOCK_PROPERTY, PROPERTY, Plan, shares
from spark_runtime.wire.shared import SharedFolders, SharesFolder, require_gone

_POLL_SECONDS = 0.25

_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"

_LIMITED = {
    "open_runs": ("open run",),
    "open_runs_mb": ("open run",),
    "waiting_events": ("waiting event",),
    "matches": ("match", "matches"),
    "alerts_per_day": ("alert",),
}
"""What each limit of a pipeline drops: one of it, and many."""

_HEAP_FOR_WAITING = 11
"""Java's heap must be this many times as large as the waiting events that tasks hold at a time.

The heap contains each value of the state store several times (docs/design/decisions, 23).
"""


@dataclass
class PipelineRun:
    """The common part of a batch and a stream.

    `errors`: where progress and warnings go. `warming`: compiles the engine in the workers.
    """

    pipeline: Pipeline
    spark: SparkSession
    errors: Console
    console: Console
    started: float
    warming: threading.Thread
    totals: Totals = field(init=False)
    is_quiet: bool = False
    failure: CepError | None = None  # an error in this process, while Spark waited for it
    was_stopped: bool = False
    of_batch: Counts = field(default_factory=Counts)  # of the last computed micro-batch
    batches: MicroBatches | None = None  # of a stream
    notes: Notes = field(default_factory=lambda: Notes(None))
    shared: SharedFolders = field(default_factory=SharedFolders)  # of a cluster
    written: Written = field(default_factory=Written)
    query: StreamingQuery | None = None  # of a stream

    def __post_init__(self) -> None:
        self.totals = Totals(tuple(rule.name for rule in self.rules.rules))

    @property
    def rules(self) -> RuleSet:
        """The rules of the pipeline."""
        return self.pipeline.rules

    # ------------------------------------------------------------ sinks

    @cached_property
    def sinks(self) -> tuple[NamedSink, ...]:
        """The sinks, each with its output."""
        owner = None if self.pipeline.is_stream else self.pipeline.owner
        context = SinkContext(self.rules, self.console, owner)
        return named(self.pipeline.opened_sinks(context), self.pipeline.sink_names())

    def _check_sinks(self) -> None:
        """Check that each sink can be written, so that an error is raised before anything runs."""
        for item in self.sinks:
            item.sink.check()

    def flow(self, n_groups: int, run_id: str | None, sources: Iterable[Source]) -> Dataflow:
        """Return the plan; `run_id` is None in a batch. On a cluster, mark the folders that workers use."""
        if not is_local(self.spark):
            sharing = (*sources, *(item.sink for item in self.sinks))
            folders = [item.shared_folder for item in sharing if isinstance(item, SharesFolder)]
            if run_id is not None and not is_remote(self.pipeline.checkpoint):
                folders.append(self.pipeline.checkpoint)
            self.shared = SharedFolders.marked(folders, run_id or "all")
        is_watched = self.pipeline.ui is not None
        file_mode = self.pipeline.file_mode
        delivery = delivery_of(
            self.sinks,
            run_id,
            file_mode,
            self.shared,
            is_watched=is_watched,
            by_driver=run_id is not None and self.pipeline.limits.alerts_per_day is not None,
        )
        return Dataflow(self.rules, n_groups, delivery, is_batch=run_id is None)

    def _write(
        self,
        flow: Dataflow,
        output: DataFrame,
        number: int,
        plan: str = "",
        first: FirstOfDays | None = None,
    ) -> None:
        """Compute one batch, and write its output to the sinks. `first`: which matches are reported."""

        def counted(counts: Iterable[Counts]) -> Counts:
            found = self.totals.add(number, counts)
            if not is_local(self.spark):
                require_gone(found.gone)
            return found

        delivering = Delivering(self.sinks, flow, self.notes, self.written, first)
        self.of_batch = delivering.write(output, number, plan, counted)

    def close(self) -> None:
        """End the run of the sinks."""
        for item in self.sinks:
            item.sink.close()
            if isinstance(item.sink, RefusingSink) and item.sink.n_refused:
                self.totals.counts.add(Counts(refused_rows={item.sink.shown: item.sink.n_refused}))

    @property
    def places(self) -> list[str]:
        """The folders on this machine to which the run writes: checkpoint, outputs, temporary files."""
        checkpoint = [self.pipeline.checkpoint] if self.pipeline.is_stream else []
        folders = [
            *checkpoint,
            *folders_of(self.pipeline.outputs()),
            *map(str, places(dict(self.pipeline.spark))),
        ]
        return [folder for folder in dict.fromkeys(folders) if not is_remote(folder)]

    # ------------------------------------------------------------ sources

    @property
    def _static_files(self) -> dict[str, StaticFile]:
        return {file.table.name: file for file in self.pipeline.tables}

    def _sources(
        self, checkpoint: Checkpoint | None, *, has_begun: bool = False
    ) -> tuple[dict[str, Source], list[SparkSource]]:
        """Return the sources that we read, by stream, and those that only Spark can read.

        The order of the latter does not depend on the order in the pipeline file.
        """
        ours: dict[str, Source] = {}
        of_spark: list[SparkSource] = []
        for entry in sorted(self.pipeline.sources, key=lambda entry: entry.stream):
            log = "" if checkpoint is None else checkpoint.log_of(entry.stream)
            source = self.pipeline.opened_source(entry, log, has_begun=has_begun)
            if isinstance(source, Source):
                ours[entry.stream] = source
            else:
                of_spark.append(source)
        for source in ours.values():
            source.check()
        return ours, of_spark

    def _parcels_of_spark(self, sources: Sequence[SparkSource], flow: Dataflow) -> list[DataFrame]:
        is_stream = self.pipeline.is_stream
        return [source.parcels(self.spark, flow, is_stream=is_stream) for source in sources]

    @property
    def _n_tasks(self) -> int:
        return self.spark.sparkContext.defaultParallelism

    def _n_partitions(self) -> int:
        name = "spark.sql.shuffle.partitions"
        return require_few(int(self.spark.conf.get(name) or 1), name)

    # ------------------------------------------------------------ progress

    @contextmanager
    def _display(self) -> Iterator[None]:
        """Show the line of progress, on a terminal."""
        if self.is_quiet or not self.errors.is_terminal:
            yield
            return
        line = _Line(self)
        with Live(get_renderable=line, console=self.errors, refresh_per_second=4, transient=True):
            yield


@dataclass(frozen=True)
class _Line:
    """The line of progress, which rich requests each time it draws."""

    run: PipelineRun

    def __call__(self) -> Text:
        line = self.run.totals.line(time.monotonic() - self.run.started)
        held = "" if self.run.batches is None else self.run.batches.held_line()
        if held and self.run.batches is not None:
            line.append("".join(f"\n{text}" for text in (held, *self.run.batches.shown)))
        if self.run.batches is not None:
            line.append("".join(f"\n{text}" for text in self.run.batches.of_sources()))
        line.append("".join(f"\nhot key: {hot}" for hot in self.run.totals.hot_now))
        return line


class BatchRun(PipelineRun):
    """A pipeline as one batch over all available input."""

    def run(self) -> Counts:
        """Read all input and write all output; return the summary."""
        tables = StaticTables(self._static_files)
        tables.load()
        self._check_sinks()
        before = time.monotonic()
        sources, of_spark = self._sources(None)
        flow = replace(self.flow(self._n_partitions(), None, sources.values()), tables=tables.now)
        ranges = [(name, *item) for name, source in sources.items() for item in source.everything()]
        parts, order = shares(ranges, self._n_tasks, sources)
        frames = self._parcels_of_spark(of_spark, flow)
        if parts:
            slots = self.spark.range(0, len(parts), 1, len(parts))
            reader = ShareReader(sources, flow.packer, Plan(parts, order=order), self.shared)
            frames.append(slots.mapInArrow(reader, spark_schema(PARCEL_SCHEMA)))
        parcels = reduce(DataFrame.unionByName, frames)
        self.warming.join()
        with self._display():
            self._write(flow, flow.output(parcels), 0)
        self.totals.times.append(time.monotonic() - before)
        self.totals.counts.add(tables.counts())
        return self.totals.counts


@dataclass
class StreamRun(PipelineRun):
    """A pipeline as a stream; `was_stopped` says whether `stop`, which a signal sets, ended it."""

    stop: threading.Event = field(default_factory=threading.Event)
    accepts_source_change: bool = False
    accepts_older_checkpoint: bool = False
    told_absent: set[str] = field(default_factory=set)  # streams whose first events have arrived
    told_limits: set[str] = field(default_factory=set)  # limits beyond which something was dropped
    has_ended: bool = False  # whether all micro-batches of the query are done
    reloading: Reloading | None = None
    ledger: Ledger | None = None
    load_again: Callable[[], Pipeline] | None = None  # reads the pipeline file, as far as it is trusted

    def run(self) -> Counts:
        """Run to the end of the input or until Ctrl-C; return the summary."""
        with checkpoint_files(self.spark, self.pipeline.checkpoint, self._say) as files:
            return self._run(files)

    def _run(self, files: CheckpointFiles) -> Counts:
        identities = {s.stream: SourceIdentity(s.name, s.spec.place) for s in self.pipeline.sources}
        checkpoint = open_checkpoint(
            files,
            self.pipeline.checkpoint,
            StoredRules.of(self.pipeline.texts, self.rules),
            identities,
            self._n_partitions(),
            accepts_source_change=self.accepts_source_change,
            accepts_other_rules=self.pipeline.reload is not Reload.NEVER,
        )
        check_query_log(checkpoint)
        self.notes = Notes(files)
        usual = str(self._n_partitions())
        self.spark.conf.set("spark.sql.shuffle.partitions", str(checkpoint.n_groups))
        try:
            return self._run_on(checkpoint, files)
        finally:  # the session may be shared, and the next run has a different checkpoint
            self.spark.conf.set("spark.sql.shuffle.partitions", usual)

    def _run_on(self, checkpoint: Checkpoint, files: CheckpointFiles) -> Counts:
        manager = files.checkpoint_manager()
        if manager is not None and _MANAGER not in dict(self.pipeline.spark):
            self.spark.conf.set(_MANAGER, manager)
        only_spark = partial(self._only_spark, checkpoint)
        load = self.load_again
        reloading = self.reloading = Reloading(checkpoint, self.pipeline, self._say, only_spark, load)
        self.pipeline = reloading.turn.pipeline
        tables = self._tables(checkpoint, files)
        self._check_sinks()
        done = last_done(checkpoint, is_live=self.pipeline.is_live)
        history = History(checkpoint, self.sinks, done.batch)
        if self.accepts_older_checkpoint:
            checkpoint = history.accepted(self._say)
        else:
            history.require()
        if done.ended:
            self._say(
                "warning: the input of this checkpoint was declared complete (at_end: finish); "
                "events that come now are late. For a new run, use an empty checkpoint directory."
            )
        self.ledger = self._ledger(files, reloading.generation, done.batch)
        # The event that made others late may come from an earlier run: the summary names it nevertheless.
        self.totals.counts.add(Counts(latest=done.reached.latest))
        with self._display():
            self._run_turn(checkpoint, tables, reloading.turn)
            while not self.was_stopped and (turn := reloading.following()) is not None:
                turn = self._taken(turn)
                # Rules and queries refer to each other. Python alone would keep those of dozens of changes.
                gc.collect()
                self._run_turn(checkpoint, self._tables(checkpoint, files), turn)
        if self.batches is not None and not self.was_stopped:
            self.batches.require_progress()
        return self.totals.counts

    def _ledger(self, files: CheckpointFiles, generation: int, batch: int) -> Ledger:
        """Return the ledger of gaps, in which a continuous stream that was down has entered it."""
        ledger = Ledger(files)
        if self.pipeline.is_live:
            down = ledger.began(time.time(), self.pipeline.down_after_s, generation, batch)
            if down is not None:
                since = time_for_people(down.first_us or 0)
                self._say(
                    f"warning: the pipeline was down since {since}: cep gaps {self.pipeline.checkpoint}"
                )
        return ledger

    def _tables(self, checkpoint: Checkpoint, files: CheckpointFiles) -> StaticTables:
        folder = "" if is_remote(checkpoint.path) else checkpoint.path
        # Elsewhere rules with static tables have no files of state (`kept_of`).
        has_pieces = folder or is_on_s3(checkpoint.path)
        written = Pieces(f"{checkpoint.path}/{STATE_FOLDER}").batches if has_pieces else set
        tables = StaticTables(self._static_files, files, folder, written=written)
        tables.load()
        return tables

    def _taken(self, turn: RuleTurn) -> RuleTurn:
        """Return the rules that run next: those of `turn`, or those before if a sink cannot take them."""
        assert self.reloading is not None
        before = self.pipeline
        try:
            self._use(turn.pipeline)
            turn = self.reloading.take(turn)
        except CepError as error:
            turn = self.reloading.refuse(error)
            self._use(before)
        self.totals.add_rules(rule.name for rule in self.rules.rules)
        return turn

    def _use(self, pipeline: Pipeline) -> None:
        """Replace the sinks, which depend on the columns of matches, by others that are checked.

        A sink that is not checked has not opened its table, or does not know the end of its log.
        """
        if "sinks" in vars(self):  # they may have been refused when they were opened
            self.close()
            del self.sinks
        self.pipeline = pipeline
        self._check_sinks()

    def _only_spark(self, checkpoint: Checkpoint) -> list[str]:
        """Return the streams whose sources only Spark can read."""
        return [
            entry.stream
            for entry in self.pipeline.sources
            if not isinstance(self.pipeline.opened_source(entry, checkpoint.log_of(entry.stream)), Source)
        ]

    def _run_turn(self, checkpoint: Checkpoint, tables: StaticTables, turn: RuleTurn) -> None:
        """Run the rules of a generation until the input ends, Ctrl-C comes, or others are to follow."""
        done = last_done(checkpoint, is_live=self.pipeline.is_live)
        origin = checkpoint.origin
        sources, of_spark = self._sources(checkpoint, has_begun=done.batch >= 0 or origin is not None)
        if origin is not None and of_spark:
            raise not_restored(checkpoint.path)
        restored = None
        if origin is not None and done.batch < 0:
            restored = Restored(f"{checkpoint.path}/{RESTORED_FOLDER}", origin.groups)
            History(checkpoint, self.sinks, done.batch).begin()
        flow = self.flow(checkpoint.n_groups, checkpoint.run_id, sources.values())
        kept, limits = self._kept(checkpoint), self.pipeline.limits
        flow = replace(flow, kept=kept, restored=restored, change=turn.change, limits=limits)
        finishes = self.pipeline.finishes and not done.ended
        query = _Query(flow, checkpoint, sources, of_spark, tables)
        try:
            # Only Spark knows when one of its own sources has been read to its end.
            self.was_stopped = self._run_query(query, finishes and not of_spark)
            if finishes and of_spark and not self.was_stopped:
                self.was_stopped = self._run_query(query, True)
        finally:
            forget_ended(self.spark)
            self.shared.remove()

    def _kept(self, checkpoint: Checkpoint) -> Kept | None:
        """Return where large state is kept; None: in Spark's state store."""
        n_retained = self.spark.conf.get("spark.sql.streaming.minBatchesToRetain")
        return kept_of(self.pipeline, checkpoint, n_retained, self._say)

    def _say(self, text: str) -> None:
        self.errors.print(text, markup=False, soft_wrap=True)

    def _run_query(self, made: _Query, finishes: bool) -> bool:
        """Run the query to its end; return whether a signal ended it."""
        if self.stop.is_set():
            return True
        reloading = self.reloading
        assert reloading is not None
        change = made.flow.change
        turn = Turn(takes_over=None if change is None else change.batch)
        if reloading.leaves:
            turn.leaves.set()
        self.has_ended = False
        batches = MicroBatches(
            checkpoint=made.checkpoint,
            sources=made.sources,
            n_tasks=self._n_tasks,
            rule=self._watermark_rule,
            done=last_done(made.checkpoint, is_live=self.pipeline.is_live),
            interval_s=self.pipeline.interval_s,
            finishes=finishes,
            by_spark=tuple(
                entry.stream for entry in self.pipeline.sources if entry.stream not in made.sources
            ),
            start_us=min(stream.min_valid_us for stream in timed_inputs(self.rules).values()),
            limit=replace(self.pipeline.waiting, n_bytes=self._waiting_bytes),
            ends_waits=self.pipeline.end_waits_after_us is not None,
            turn=turn,
            ledger=self.ledger,
            generation=reloading.generation,
            tables=made.tables,
            seconds=self.totals.times,
        )
        self.batches = batches
        callbacks = Callbacks(self.spark)
        self.query = query = self._start_query(made, batches, callbacks)
        ended = threading.Event()
        # Signals are noticed while the main thread waits here, but not while it waits in Java.
        waiter = threading.Thread(target=_wait, args=(query, ended), daemon=True)
        waiter.start()
        while not ended.wait(_POLL_SECONDS):
            if self.stop.is_set() and not batches.stopped.is_set():
                # The running batch is abandoned; the next run repeats and overwrites it.
                batches.stop()
                query.stop()
            elif reloading.look(time.monotonic()):
                turn.leaves.set()
            if self.pipeline.is_live and self.ledger is not None:
                self.ledger.alive(time.time())
        batches.add_seconds()
        callbacks.close()
        # Not otherwise: to translate an error from Java takes 60 ms.
        if not self.has_ended and not self.stop.is_set() and (error := query.exception()) is not None:
            raise error
        batches.close(self.totals.counts)
        return self.stop.is_set()

    def _tell_absent(self) -> None:
        """Report once, for each continuous stream, the fields that rules read and its first events lack."""
        counts = self.totals.counts
        new = counts.records.keys() - self.told_absent
        if self.pipeline.is_live and new:
            self.told_absent |= new
            read = {column for column in self.rules.read_columns if column[0] in new}
            for text in absent_texts(counts, self.rules.inputs, read):
                self.errors.print(f"warning: {text}", markup=False, soft_wrap=True)

    def _tell_dropped(self, number: int) -> None:
        """Report what a limit of the pipeline dropped: once for each limit. The summary has all of it."""
        counts = self.of_batch
        for name, n in counts.beyond.items():
            if name not in self.told_limits:
                self.told_limits.add(name)
                keys = ", ".join(f"{key} ({n:,})" for key, n in largest(counts.dropped_keys, 3).items())
                were, of = ("it was", "It was of") if n == 1 else ("they were", "Most were of")
                self._say(
                    f"warning[E0722]: micro-batch {number} had {amount(n, *_LIMITED[name])} too many: {were} "
                    f"dropped beyond `limits: {name}`. {of} {keys}. "
                    f"What follows is in the summary and in cep gaps {self.pipeline.checkpoint}"
                )

    @property
    def _watermark_rule(self) -> WatermarkRule:
        idle = {e.stream: e.idle_after_s for e in self.pipeline.sources if e.idle_after_s is not None}
        # A run over the present input ends by itself, so the wall clock need not end waits.
        ends_after_us = self.pipeline.end_waits_after_us if self.pipeline.is_live else None
        return WatermarkRule(self.rules.lateness_us, self.pipeline.watermark, idle, ends_after_us)

    @property
    def _waiting_bytes(self) -> int | None:
        """Return how many bytes of events may wait in memory; None if other machines hold them."""
        if not is_local(self.spark):
            return None
        heap = getattr(self.spark.sparkContext._jvm, "java.lang.Runtime").getRuntime().maxMemory()
        return int(heap / _HEAP_FOR_WAITING)

    def _start_query(self, made: _Query, batches: MicroBatches, callbacks: Callbacks) -> StreamingQuery:
        # Our own source comes first, so that the others keep their numbers.
        frames = [self._shares(made), *self._parcels_of_spark(made.of_spark, made.flow)]

        def deliver(output: DataFrame, number: int) -> None:
            callbacks.note()
            try:
                plan = batches.next(number)
            except CepError as error:
                self.failure = error
                raise
            if plan is None:
                # Spark cannot withdraw a micro-batch. It will be the first one of the next run.
                self.has_ended = True
                raise EndOfRun
            told = plan_for_tasks(made.checkpoint, number, plan)
            # The jobs of this micro-batch inherit it, because they run in the calling thread.
            self.spark.sparkContext.setLocalProperty(PROPERTY, told)
            tables = made.tables.told(plan.tables)
            self.spark.sparkContext.setLocalProperty(TABLES_PROPERTY, text_of(tables))
            cap = "" if plan.cap_us is None else str(plan.cap_us)
            self.spark.sparkContext.setLocalProperty(CAP_PROPERTY, cap)
            if batches.ends_waits:
                clock = "" if plan.clock_us is None else str(plan.clock_us)
                self.spark.sparkContext.setLocalProperty(CLOCK_PROPERTY, clock)
            try:
                limit = self.pipeline.limits.alerts_per_day
                first = None if limit is None else FirstOfDays(limit, self.rules, batches.done.reported)
                self._write(made.flow, output, number, plan.identity, first)
                batches.complete(number, self.of_batch, None if first is None else first.days())
                self._tell_absent()
                self._tell_dropped(number)
                self.totals.note_hot(number, self.of_batch, self.pipeline.limits.hot_percent or 100)
            except CepError as error:
                self.failure = error
                raise

        writer = made.flow.output(reduce(DataFrame.unionByName, frames)).writeStream.foreachBatch(deliver)
        self.warming.join()
        writer = writer.option("checkpointLocation", made.checkpoint.query_path).outputMode("append")
        if made.of_spark and not self.pipeline.is_live:
            return writer.trigger(availableNow=True).start()
        # Spark starts the next micro-batch immediately. `batches` then decides when it reads.
        trigger = self.pipeline.trigger if made.of_spark else "0 seconds"
        return writer.trigger(processingTime=trigger).start()

    def _shares(self, made: _Query) -> DataFrame:
        """Return the parcels of the sources that we read."""
        ticks = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TICKS)
        slots = ticks.option("numPartitions", self._n_tasks).load().select("value")
        reader = ShareReader(made.sources, made.flow.packer, shared=self.shared)
        return made.flow.marked(slots.mapInArrow(reader, spark_schema(PARCEL_SCHEMA)))


@dataclass(frozen=True, slots=True)
class _Query:
    """The parts of a query."""

    flow: Dataflow
    checkpoint: Checkpoint
    sources: Mapping[str, Source]
    of_spark: Sequence[SparkSource]
    tables: StaticTables


def not_restored(path: str) -> StateError:
    """Return the error for a restored checkpoint in a pipeline with a source that only Spark reads."""
    return StateError(
        "E0715",
        f"the checkpoint `{path}` was restored from a savepoint, which contains no position of a source that "
        "only Spark reads",
        "read the source as before: from a disk, or Kafka without `via: spark`",
    )


class EndOfRun(Exception):  # noqa: N818 - nothing is wrong
    """Ends a query between two micro-batches."""


def _wait(query: StreamingQuery, ended: threading.Event) -> None:
    try:
        query.awaitTermination()
    except Exception:  # noqa: BLE001, S110 - the thread that waits for `ended` gets it again
        pass
    finally:
        ended.set()
