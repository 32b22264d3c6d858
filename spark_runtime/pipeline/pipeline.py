"""Runs a pipeline file: source -> rules -> sinks, as one streaming query or one batch.

run("pipeline.yaml")
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console

from cep.arguments import path_of, wrong_argument
from cep.diagnostics.diagnostic import in_order, render
from cep.diagnostics.safe_text import for_cell
from cep.errors import CepError
from cep.output.summary import loss_lines, summary_lines
from cep.spool.new_files import umask
from spark_runtime.pipeline.address import Address, address_of
from spark_runtime.pipeline.failures import as_cep_error
from spark_runtime.pipeline.lineage import traced
from spark_runtime.pipeline.made import AVAILABLE_NOW, Pipeline
from spark_runtime.pipeline.metrics_server import monitored
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.progress import Summary
from spark_runtime.pipeline.runs import BatchRun, StreamRun
from spark_runtime.pipeline.savepoint import require_finished
from spark_runtime.pipeline.trust import Trust
from spark_runtime.pipeline.workers import start_warming
from spark_runtime.sessions.local_session import session
from spark_runtime.sessions.signals import awaited_stop
from spark_runtime.storage.checkpoint_files import is_remote
from spark_runtime.storage.lock import locked

_UMASK = "spark.hadoop.fs.permissions.umask-mode"


def run_pipeline(  # noqa: PLR0913 - all but one have a default
    path: str | Path,
    *,
    console: Console | None = None,
    quiet: bool = False,
    accept_source_change: bool = False,
    accept_older_checkpoint: bool = False,
    roots: str | Sequence[str] = (),
    allow_spark_settings: bool = False,
    ui: str | Address | None = None,
    shadow: str | Sequence[str] = (),
) -> Summary:
    """Run the pipeline file at `path` to its end or until a signal stops it; return a summary.

    During the run, all files that this process creates have the `file_mode` of the pipeline: it sets the
    umask.

    Parameters
    ----------
    path
        The pipeline file.
    console
        The output of the console sink; default: standard output.
    quiet
        Show only warnings and losses on standard error, no progress and no summary.
    accept_source_change
        Continue from a checkpoint although a source is now in another place.
    accept_older_checkpoint
        Continue from a checkpoint although sinks contain later micro-batches than it does.
    roots
        A folder, or an address of a folder in another file system, or several: all paths of the file must be
        in them. Empty: any path.
    shadow
        The name of a rule, or several: they are shadow rules, whatever their status.
    allow_spark_settings
        Accept all settings under `spark`, even those that can run code.
    ui
        The address of the live page, such as ``"127.0.0.1:8080"``, instead of the one in the file.

    Raises
    ------
    RuleError, InputError, StateError, SetupError, CepError
        The run failed; the message says why.
    """
    path = path_of("path", path)
    if isinstance(ui, str) and (ui := address_of(text := ui)) is None:
        raise wrong_argument("ui", text, "a host and a port: 127.0.0.1:8080")
    load = partial(_loaded, path, Trust.of(roots, any_spark_setting=allow_spark_settings), ui, shadow)
    pipeline = load()
    errors = Console(stderr=True, highlight=False)
    if pipeline.warnings:
        errors.print(render(in_order(pipeline.warnings)), markup=False, soft_wrap=True)

    def say(text: str) -> None:
        errors.print(text, markup=False, soft_wrap=True)

    with (
        awaited_stop() if pipeline.is_stream else nullcontext(threading.Event()) as stop,
        umask(pipeline.file_mode.umask),
        _lock(pipeline, say) as inherited,
        monitored(pipeline, say, is_quiet=quiet) as watched,
        traced(watched, say),
        _quiet_py4j(),
    ):
        try:
            run = watched.run = _start(pipeline, errors, console or Console(highlight=False), inherited)
        except Exception as error:
            if stop.is_set():  # and Java has received the signal, too
                raise KeyboardInterrupt from error
            raise
        run.is_quiet = quiet
        if isinstance(run, StreamRun):
            run.accepts_source_change = accept_source_change
            run.accepts_older_checkpoint = accept_older_checkpoint
            run.load_again = load
            run.stop = stop
        try:
            run.run()
            run.close()
        except Exception as error:
            # A signal to the process group ends Java, too.
            run.was_stopped = stop.is_set() and run.failure is None and not isinstance(error, CepError)
            if not run.was_stopped:
                raise run.failure or as_cep_error(error, run.places) from error
        finally:
            run.shared.remove()
    summary = run.totals.summary(time.monotonic() - run.started, was_stopped=run.was_stopped)
    summary.time = None if run.batches is None else run.batches.status()
    pipeline = run.pipeline  # its rules may have changed
    summary.read_columns = pipeline.rules.read_columns
    summary.sources = () if run.batches is None else run.batches.of_sources()
    for line in _shown(pipeline, summary, is_quiet=quiet):
        say(for_cell(line))
    return summary


def _loaded(path: str | Path, trust: Trust, ui: Address | None, shadow: str | Sequence[str]) -> Pipeline:
    pipeline = load_pipeline(path, trust, shadow)
    return pipeline if ui is None else replace(pipeline, ui=ui)


def _shown(pipeline: Pipeline, summary: Summary, *, is_quiet: bool) -> Iterator[str]:
    """Yield the lines of the summary."""
    instead = "run with `mode: batch`" if pipeline.is_stream else ""
    streams = pipeline.rules.inputs
    if is_quiet:
        outputs = (("late", pipeline.late), ("dead_letter", pipeline.dead_letter))
        kept = [name for name, sink in outputs if sink is not None]
        yield from loss_lines(summary.counts, streams, instead, pipeline.rules.read_columns, kept=kept)
        return
    read = pipeline.rules.read_columns
    yield from summary_lines(
        summary.counts, summary.seconds, streams, instead, read, shadow=pipeline.rules.shadow
    )
    if summary.time is not None:
        for word, text in summary.time.summary_lines():
            yield f"{word:<14}{'':>12}  {text}"
    for hot in sorted(summary.hot_keys, key=lambda hot: -hot.share):
        yield f"{'hot key':<14}{hot.share:>12.0%}  {hot}"
    for text in summary.sources:
        yield f"{'source':<14}{'':>12}  {text}"
    yield f"{'events/s':<14}{summary.events_per_second:>12,.0f}  while batches were processed"
    if summary.was_stopped:
        yield "stopped: the next run continues from here"


@contextmanager
def _lock(pipeline: Pipeline, say: Callable[[str], None]) -> Iterator[tuple[int, ...]]:
    """Hold the lock of a stream's checkpoint; yield the part of it that the JVM inherits."""
    if not pipeline.is_stream or is_remote(pipeline.checkpoint):
        yield ()
        return
    require_finished(pipeline.checkpoint)
    with locked(pipeline.checkpoint, say) as descriptor:
        yield (descriptor,)


def _start(
    pipeline: Pipeline, errors: Console, console: Console, inherited: tuple[int, ...]
) -> BatchRun | StreamRun:
    is_short = not pipeline.is_stream or pipeline.trigger == AVAILABLE_NOW
    name = f"spark-cep {pipeline.name}"
    # Hadoop uses its own setting instead of the process's umask, on every file system.
    settings = {_UMASK: f"{pipeline.file_mode.umask:03o}", **dict(pipeline.spark)}
    spark = session(settings, name=name, is_short=is_short, inherited=inherited)
    runner = StreamRun if pipeline.is_stream else BatchRun
    return runner(
        pipeline, spark, errors, console, time.monotonic(), start_warming(spark, pipeline.rules.programs)
    )


@contextmanager
def _quiet_py4j() -> Iterator[None]:
    """Keep Py4J from printing traces of calls that are abandoned or whose error is raised anyway."""
    logger, root = logging.getLogger("py4j"), logging.getLogger()
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    root.addFilter(_is_not_of_py4j)
    try:
        yield
    finally:
        root.removeFilter(_is_not_of_py4j)
        logger.setLevel(before)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Return False for what Py4J writes to the root logger: a trace of an interrupted call."""
    return Path(record.pathname).parent.name != "py4j"
