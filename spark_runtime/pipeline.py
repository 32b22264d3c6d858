"""A pipeline file, run: source -> rules -> sinks as one streaming query, or as one batch.

run("pipeline.yaml")
"""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from types import FrameType

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live
from rich.text import Text

from cep.dead_letter import DEAD_LETTER_SCHEMA
from cep.language.diagnostics import in_order, render
from cep.local import match_schema, streams_of
from cep.output import summary_lines
from spark_runtime.checkpoint import Checkpoint, is_ended, mark_end, open_checkpoint
from spark_runtime.dataflow import Dataflow, spark_schema
from spark_runtime.delivery import Delivery, Part
from spark_runtime.failures import as_cep_error
from spark_runtime.layout import END_OF_INPUT, PROGRAM, TEXT
from spark_runtime.output import COUNTS, DEAD, KIND, LATE, MALFORMED, MATCH, ROWS, late_schema
from spark_runtime.parcels import GROUP, PARCEL_SCHEMA
from spark_runtime.pipeline_file import AVAILABLE_NOW, Pipeline, load_pipeline
from spark_runtime.progress import Summary, Totals
from spark_runtime.session import LOCAL_CHECKPOINT_SETTINGS, session
from spark_runtime.sinks import ConsoleSink, write
from spark_runtime.sources import is_counted_by_spark, source_parcels
from spark_runtime.workers import start_warming

_POLL_SECONDS = 0.25


def run(path: str | Path, *, console: Console | None = None, quiet: bool = False) -> Summary:
    """Run the pipeline of the file at `path` to its end, or until Ctrl-C; return what happened.

    Parameters
    ----------
    path
        The pipeline file.
    console
        Where matches for the console sink go; default: standard output.
    quiet
        Show no progress and no summary on standard error.

    Raises
    ------
    RuleError, InputError, StateError, SetupError, CepError
        What went wrong, in a user's words.
    """
    pipeline = load_pipeline(path)
    errors = Console(stderr=True, highlight=False, quiet=quiet)
    if pipeline.warnings:
        errors.print(render(in_order(pipeline.warnings)), markup=False)
    is_short = not pipeline.is_stream or pipeline.trigger == AVAILABLE_NOW
    spark = session(dict(pipeline.spark), name=f"spark-cep {pipeline.name}", is_short=is_short)
    started = time.monotonic()
    warming = start_warming(spark)
    job = _Job(pipeline, spark, errors, console or Console(highlight=False), started, warming)
    try:
        with _quiet_py4j():
            was_stopped = job.run_stream() if pipeline.is_stream else job.run_batch()
    except Exception as error:
        raise as_cep_error(error) from error
    for sink in job.consoles:
        sink.close()
    summary = job.totals.summary(time.monotonic() - started, was_stopped=was_stopped)
    for line in summary_lines(summary.counts, summary.reasons, summary.seconds):
        errors.print(line, markup=False)
    errors.print(f"{'events/s':<14}{summary.events_per_second:>12,.0f}  while batches were processed")
    if was_stopped:
        errors.print("stopped: the next run goes on from here")
    return summary


@dataclass
class _Job:
    """One run of a pipeline."""

    pipeline: Pipeline
    spark: SparkSession
    errors: Console
    console: Console
    started: float
    warming: threading.Thread
    totals: Totals = field(init=False)
    consoles: list[ConsoleSink] = field(init=False)
    by_workers: list[Part] = field(init=False)  # the sinks that are files
    by_spark: list[Part] = field(init=False)

    def __post_init__(self) -> None:
        programs = self.pipeline.programs
        of_columns = [is_counted_by_spark(source) for source in self.pipeline.sources]
        self.totals = Totals(
            tuple(rule.name for program in programs for rule in program.rules),
            tuple(number for number, is_of_columns in enumerate(of_columns) if is_of_columns),
        )
        self.consoles = [
            ConsoleSink(self.console, programs, sink.limit)
            for sink in self.pipeline.sinks
            if sink.file_format == "console"
        ]
        is_local = str(self.spark.sparkContext.master).startswith("local")
        parts = _parts(self.pipeline)
        self.by_workers = [part for part in parts if is_local and part.is_for_workers]
        self.by_spark = [part for part in parts if part not in self.by_workers]

    def flow(self, n_groups: int, run_id: str | None) -> Dataflow:
        """Return the plan; `run_id` None: of a batch."""
        programs = self.pipeline.programs
        rows = {part.kind for part in self.by_spark} | ({MATCH} if self.consoles else set())
        delivery = Delivery(tuple(self.by_workers), frozenset(rows), run_id)
        return Dataflow(programs, match_schema(programs), n_groups, delivery)

    # ------------------------------------------------------------ batch

    def run_batch(self) -> bool:
        """Run the pipeline as one batch over all of its input."""
        flow = self.flow(self._n_partitions(), None)
        before = time.monotonic()
        parcels = reduce(
            DataFrame.unionByName,
            [source_parcels(self.spark, source, flow, is_stream=False) for source in self.pipeline.sources],
        )
        self.warming.join()
        with self._display():
            self._write(flow, flow.output(parcels), 0)
        paths = [source.path for source in self.pipeline.sources if is_counted_by_spark(source)]
        if paths:
            self.totals.input_rows[0] = sum(self.spark.read.parquet(path).count() for path in paths)
        self.totals.processing_ms[0] = int((time.monotonic() - before) * 1000)
        return False

    def _n_partitions(self) -> int:
        return int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1)

    # ------------------------------------------------------------ stream

    def run_stream(self) -> bool:
        """Run the pipeline as a stream; return whether Ctrl-C ended it."""
        programs = self.pipeline.programs
        checkpoint = open_checkpoint(self.spark, self.pipeline.checkpoint, programs, self._n_partitions())
        self.spark.conf.set("spark.sql.shuffle.partitions", str(checkpoint.n_groups))
        if "://" not in checkpoint.path:
            for key, value in LOCAL_CHECKPOINT_SETTINGS.items():
                self.spark.conf.set(key, value)
        flow = self.flow(checkpoint.n_groups, checkpoint.run_id)
        ended = is_ended(self.spark, checkpoint)
        if ended:
            self.errors.print(
                "warning: the input of this checkpoint was declared complete (at_end: finish); "
                "events that come now are late. For a new run, use an empty checkpoint directory.",
                markup=False,
            )
        with self._display():
            if self._run_query(flow, checkpoint):
                return True
            if self.pipeline.finishes and not ended:
                mark_end(self.spark, checkpoint, flow.labels)
                return self._run_query(flow, checkpoint)
        return False

    def _run_query(self, flow: Dataflow, checkpoint: Checkpoint) -> bool:
        query = self._start_query(flow, checkpoint)
        ended = threading.Event()
        # While the main thread waits in Java, Ctrl-C is not noticed; while it waits here, it is.
        waiter = threading.Thread(target=_wait, args=(query, ended), daemon=True)
        waiter.start()
        with _noted_interrupt() as interrupted:
            while not ended.wait(_POLL_SECONDS):
                if interrupted.is_set():
                    # The batch that is running is given up; the next run repeats and overwrites it.
                    query.stop()
                    ended.wait()
                    self._note_progress(query)
                    return True
                self._note_progress(query)
        self._note_progress(query)
        error = query.exception()
        if error is not None:
            raise error
        return interrupted.is_set()

    def _start_query(self, flow: Dataflow, checkpoint: Checkpoint) -> StreamingQuery:
        is_waiting = self.pipeline.trigger != AVAILABLE_NOW
        parcels = reduce(
            DataFrame.unionByName,
            [
                source_parcels(self.spark, source, flow, is_stream=True, may_be_empty=is_waiting)
                for source in self.pipeline.sources
            ],
        )
        parcels = parcels.unionByName(self._end_parcels(checkpoint))

        def deliver(output: DataFrame, batch: int) -> None:
            self._write(flow, output, batch)

        writer = flow.output(parcels).writeStream.foreachBatch(deliver)
        self.warming.join()
        writer = writer.option("checkpointLocation", checkpoint.query_path).outputMode("append")
        if is_waiting:
            return writer.trigger(processingTime=self.pipeline.trigger).start()
        return writer.trigger(availableNow=True).start()

    def _end_parcels(self, checkpoint: Checkpoint) -> DataFrame:
        """Return the stream that says, once, to every key group that the input is complete."""
        marks = self.spark.readStream.schema("group int").json(checkpoint.end_path)
        values = {PROGRAM: F.lit(END_OF_INPUT), GROUP: F.col("group")}
        return marks.select(
            *(
                values.get(column.name, F.lit(None)).cast(column.dataType).alias(column.name)
                for column in spark_schema(PARCEL_SCHEMA)
            )
        )

    def _note_progress(self, query: StreamingQuery) -> None:
        last = query.lastProgress
        if last is None or int(last["batchId"]) in self.totals.processing_ms:
            return
        for progress in query.recentProgress:
            self.totals.note(progress)

    @contextmanager
    def _display(self) -> Iterator[None]:
        """Show the line of progress, on a terminal."""
        if self.errors.quiet or not self.errors.is_terminal:
            yield
            return
        line = _Line(self.totals, self.started)
        with Live(get_renderable=line, console=self.errors, refresh_per_second=4, transient=True):
            yield

    # ------------------------------------------------------------ output

    def _write(self, flow: Dataflow, output: DataFrame, batch: int) -> None:
        """Compute one batch, and give its output to the sinks that did not get it from the workers."""
        is_kept = bool(self.by_spark) or any(console.wants_more for console in self.consoles)
        if is_kept:
            output = output.persist()
        try:
            flow.delivery.begin(batch)
            # Whatever is not asked for saves Spark some ten milliseconds of planning, in each micro-batch.
            texts = (output.where(F.col(KIND) == COUNTS) if flow.delivery.kinds else output).collect()
            flow.delivery.finish(batch)
            counts = self.totals.add(batch, [Counter(json.loads(row[TEXT])) for row in texts])
            n_malformed = sum(n for key, n in counts.items() if key.startswith(MALFORMED))
            n_rows = {MATCH: counts[ROWS], LATE: counts["late"], DEAD: n_malformed}
            for part in self.by_spark:
                # Those of the first batch always, so that the path exists.
                if n_rows[part.kind] or batch == 0:
                    is_match = part.kind == MATCH
                    rows = flow.matches(output) if is_match else flow.objects(output, part.kind, part.schema)
                    write(rows, part, flow.delivery.name(batch))
            for console in self.consoles:
                console.write(flow.matches(output), n_rows[MATCH])
        finally:
            if is_kept:
                output.unpersist()


def _parts(pipeline: Pipeline) -> list[Part]:
    """Return the sinks that are files."""
    schema = match_schema(pipeline.programs)
    parts = [Part(MATCH, s.path, s.file_format, schema) for s in pipeline.sinks if s.file_format != "console"]
    if pipeline.late is not None:
        late = late_schema(len(streams_of(pipeline.programs)))
        parts.append(Part(LATE, pipeline.late.path, pipeline.late.file_format, late))
    if pipeline.dead_letter is not None:
        letters = pipeline.dead_letter
        parts.append(Part(DEAD, letters.path, letters.file_format, DEAD_LETTER_SCHEMA))
    return parts


@dataclass(frozen=True)
class _Line:
    """The line of progress; rich asks for it each time it draws."""

    totals: Totals
    started: float

    def __call__(self) -> Text:
        return self.totals.line(time.monotonic() - self.started)


def _wait(query: StreamingQuery, ended: threading.Event) -> None:
    try:
        query.awaitTermination()
    except Exception:  # noqa: BLE001, S110 - asked for again by whoever waits for `ended`
        pass
    finally:
        ended.set()


@contextmanager
def _noted_interrupt() -> Iterator[threading.Event]:
    """Let Ctrl-C set an event; the second one interrupts as usual.

    An exception would come in the middle of whatever is being asked of Java, and break that connection.
    """
    noted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        if noted.is_set():
            raise KeyboardInterrupt
        noted.set()

    if threading.current_thread() is not threading.main_thread():  # interrupts do not come here
        yield noted
        return
    before = signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Keep Py4J from printing the traces of calls that are given up, or whose error is raised anyway."""
    logger = logging.getLogger("py4j")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)
