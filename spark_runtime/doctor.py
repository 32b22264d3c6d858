"""Finds what would keep a pipeline from running, without Spark: `cep doctor`.

All sources and sinks are checked at the same time, so one that does not answer does not hide another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from cep.errors import CepError
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.source_entry import SourceEntry
from spark_runtime.pipeline.trust import WHOLE, Trust
from spark_runtime.sessions.java import find_java
from spark_runtime.sessions.local_session import check_pyspark
from spark_runtime.sinks.registry import SinkContext
from spark_runtime.sources.protocol import DemandingSource, Source
from spark_runtime.state.restored import FOLDER as RESTORED
from spark_runtime.storage.checkpoint_files import is_remote
from spark_runtime.tables.static import StaticFile

MOST_SECONDS = 10.0
"""How many seconds a source or a sink may take to answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing that was checked, and the result.

    `what`: such as ``source transactions (kafka)``. `problem`: the error; None if there is none. `note`: a
    remark on a thing without a problem.
    """

    what: str
    problem: CepError | None
    seconds: float
    note: str = ""


def examine_machine() -> Iterator[Finding]:
    """Check what Spark needs on this machine, PySpark and Java; yield the findings."""
    yield _asked("PySpark", check_pyspark)
    yield _asked("Java", lambda: find_java().command)


def examine_pipeline(path: str | Path, trust: Trust = WHOLE) -> Iterator[Finding]:
    """Check a pipeline file, its checkpoint, its sources and its sinks; yield the findings.

    `trust`: that of the run.

    Raises RuleError: the file, its rules or its streams are wrong; the error lists every problem.
    """
    pipeline = load_pipeline(path, trust)
    n_rules = len(pipeline.rules.rules)
    yield Finding("pipeline file", None, 0.0, f"{n_rules} rule{'' if n_rules == 1 else 's'}")
    if pipeline.is_stream and not is_remote(pipeline.checkpoint):
        note = "the run continues from here" if _has_begun(pipeline) else "the run starts from the beginning"
        yield Finding("checkpoint", None, 0.0, note)
    yield from _at_the_same_time([*_of_sources(pipeline), *_of_sinks(pipeline)])


_Question = tuple[str, Callable[[], object]]


def _of_sources(pipeline: Pipeline) -> Iterator[_Question]:
    for entry in pipeline.sources:
        word = "table" if entry.is_table else "source"
        yield f"{word} {entry.stream} ({entry.name})", lambda entry=entry: _check_source(pipeline, entry)  # type: ignore[misc]

    for file in pipeline.tables:
        yield f"table {file.table.name} ({file.file_format}, static)", lambda file=file: _check_table(file)  # type: ignore[misc]


def _has_begun(pipeline: Pipeline) -> bool:
    """Return whether the checkpoint, on a disk of this machine, contains what a stream has reached."""
    commits = Path(pipeline.checkpoint) / "query" / "commits"
    is_restored = (Path(pipeline.checkpoint) / RESTORED).is_dir()
    return is_restored or any(file.name.isdigit() for file in commits.glob("*"))


def _check_table(file: StaticFile) -> str:
    n_rows = file.read().rows().num_rows
    return f"{n_rows:,} row{'' if n_rows == 1 else 's'}"


def _check_source(pipeline: Pipeline, entry: SourceEntry) -> str:
    has_log = pipeline.is_stream and not is_remote(pipeline.checkpoint)
    log = f"{pipeline.checkpoint}/files/none.log" if has_log else ""
    source = pipeline.opened_source(entry, log, has_begun=has_log and _has_begun(pipeline))
    if isinstance(source, Source):
        source.check()
        return ""
    if isinstance(source, DemandingSource):
        source.check_settings(dict(pipeline.spark))
    return "only Spark can ask it"


def _of_sinks(pipeline: Pipeline) -> Iterator[_Question]:
    owner = None if pipeline.is_stream else pipeline.owner
    context = SinkContext(pipeline.rules, Console(quiet=True), owner)
    for spec, sink in pipeline.opened_sinks(context):
        name = type(spec).__name__.removesuffix("Spec").removesuffix("Sink").lower()
        yield f"sink of {sink.output.kind} ({name})", sink.check


def _at_the_same_time(questions: list[_Question]) -> Iterator[Finding]:
    """Yield the answer to each question in order, within `MOST_SECONDS`."""
    answers: dict[int, Finding] = {}

    def ask(number: int, what: str, question: Callable[[], object]) -> None:
        answers[number] = _asked(what, question)

    # Daemon threads: one that never answers must not keep the command from ending.
    threads = [
        threading.Thread(target=ask, args=(number, *question), daemon=True)
        for number, question in enumerate(questions)
    ]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for number, (thread, (what, _)) in enumerate(zip(threads, questions, strict=True)):
        thread.join(max(0.0, started + MOST_SECONDS - time.monotonic()))
        yield answers.get(number) or Finding(what, _no_answer(), time.monotonic() - started)


def _asked(what: str, question: Callable[[], object]) -> Finding:
    started = time.monotonic()
    try:
        note = question()
    except CepError as error:
        return Finding(what, error, time.monotonic() - started)
    return Finding(what, None, time.monotonic() - started, note if isinstance(note, str) else "")


def _no_answer() -> CepError:
    return CepError(
        "E0848",
        f"no answer within {MOST_SECONDS:g} seconds",
        "look whether the server is up, and whether a firewall lies between",
    )
