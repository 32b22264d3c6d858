"""Finds what would keep a pipeline from running, without Spark: `cep doctor`.

All sources and sinks are checked at the same time, so one that does not answer does not hide another.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cep.counts import amount
from cep.errors import CepError, RuleError, StateError
from spark_runtime.sessions.installed import check_pyspark
from spark_runtime.sessions.java import find_java

if TYPE_CHECKING:  # the machine is examined without them
    from spark_runtime.pipeline.made import Pipeline
    from spark_runtime.pipeline.source_entry import SourceEntry
    from spark_runtime.pipeline.trust import Trust
    from spark_runtime.tables.static import StaticFile

MOST_SECONDS = 10.0
"""How many seconds a source or a sink may take to answer."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing that was checked, and the result.

    `what`: such as ``source transactions (kafka)``. `problem`: the error; None if there is none. `note`: a
    remark on a thing without a problem. `advice`: what may be done although there is no problem.
    """

    what: str
    problem: CepError | None
    seconds: float = 0.0
    note: str = ""
    advice: str = ""


def examine_machine() -> Iterator[Finding]:
    """Check what Spark needs on this machine, PySpark and Java; yield the findings."""
    yield _asked("PySpark", check_pyspark)
    yield _asked("Java", lambda: find_java().command)


def examine_pipeline(path: str | Path, trust: Trust | None = None) -> Iterator[Finding]:
    """Check a pipeline file, its extras, its checkpoint, its sources and its sinks; yield the findings.

    `trust`: the same as for the run. If the pipeline's file, rules or streams are wrong, there are no other
    findings.
    """
    from spark_runtime.pipeline.pipeline_file import load_pipeline
    from spark_runtime.pipeline.trust import WHOLE

    try:
        pipeline = load_pipeline(path, trust or WHOLE)
    except RuleError as error:
        for what, is_extra in (("pipeline file", False), ("extras", True)):
            found = [one for one in error.diagnostics if (one.code == "E0683") is is_extra]
            if found:
                yield Finding(what, RuleError(found))
        return
    n_rules = len(pipeline.rules.rules)
    yield Finding("pipeline file", None, note=f"{n_rules} rule{'' if n_rules == 1 else 's'}")
    sinks = dict(_of_sinks(pipeline))
    names = sorted(
        {*(entry.name for entry in pipeline.sources), *(sink.rpartition("(")[2][:-1] for sink in sinks)}
    )
    yield Finding("extras", None, note=f"installed for {', '.join(names)}")
    yield from _at_the_same_time([*_of_checkpoint(pipeline), *_of_sources(pipeline), *sinks.items()])


_Question = tuple[str, Callable[[], object]]


def _of_checkpoint(pipeline: Pipeline) -> Iterator[_Question]:
    from spark_runtime.storage.checkpoint_files import is_remote

    if pipeline.is_stream and not is_remote(pipeline.checkpoint):
        yield "checkpoint", lambda: _check_checkpoint(pipeline)


def _check_checkpoint(pipeline: Pipeline) -> str:
    """Read the state in the checkpoint, of as many key groups as half of the time allows."""
    _require_folder(Path(pipeline.checkpoint))
    if not _has_begun(pipeline):
        return "the run starts from the beginning"
    if not _has_finished(pipeline):
        _require_continues(pipeline)
        return "the run continues from the savepoint that was restored"
    from cep.engine.corrections.retained import other_kind
    from spark_runtime.pipeline.stored_state import stored_state

    until = time.monotonic() + MOST_SECONDS / 2
    n_groups, note = 0, "read"
    found = stored_state(pipeline.checkpoint)
    _require_continues(pipeline)
    for group in found.groups:
        is_corrected = any(part.program is None for part in group.programs)
        if group.programs and is_corrected != (pipeline.rules.corrections is not None):
            raise other_kind(is_corrected=is_corrected)
        n_groups += 1
        if time.monotonic() > until:
            note = "read, the others not for want of time"
            break
    return f"the run continues from here; state of {amount(n_groups, 'key group')} {note}"


def _require_folder(path: Path) -> None:
    """Raise InputError if a folder neither exists nor can be made, or may not be written; make nothing."""
    from cep.write_errors import writing

    with writing(path):
        there = next(place for place in (path, *path.parents) if place.exists())
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _require_continues(pipeline: Pipeline) -> None:
    """Raise StateError if the run would refuse the checkpoint, which remains as it is."""
    from spark_runtime.pipeline.checkpoint import SourceIdentity, check_query_log, open_checkpoint
    from spark_runtime.pipeline.made import Reload
    from spark_runtime.pipeline.stored_rules import StoredRules
    from spark_runtime.storage.checkpoint_files import UnchangedFiles

    checkpoint = open_checkpoint(
        UnchangedFiles(pipeline.checkpoint),
        pipeline.checkpoint,
        StoredRules.of(pipeline.texts, pipeline.rules),
        {entry.stream: SourceIdentity(entry.name, entry.spec.place) for entry in pipeline.sources},
        n_groups=1,  # of a new checkpoint only
        accepts_other_rules=pipeline.reload is not Reload.NEVER,
    )
    check_query_log(checkpoint)


def _of_sources(pipeline: Pipeline) -> Iterator[_Question]:
    for entry in pipeline.sources:
        word = "table" if entry.is_table else "source"
        yield f"{word} {entry.stream} ({entry.name})", lambda entry=entry: _check_source(pipeline, entry)  # type: ignore[misc]

    for file in pipeline.tables:
        yield f"table {file.table.name} ({file.file_format}, static)", lambda file=file: _check_table(file)  # type: ignore[misc]


def _has_begun(pipeline: Pipeline) -> bool:
    """Return whether the checkpoint, on a disk of this machine, contains what a stream has reached."""
    from spark_runtime.state.restored import FOLDER as RESTORED
    from spark_runtime.storage.checkpoint_files import is_there

    return is_there(Path(pipeline.checkpoint) / RESTORED) or _has_finished(pipeline)


def _has_finished(pipeline: Pipeline) -> bool:
    """Return whether a stream has finished a micro-batch on this checkpoint."""
    from spark_runtime.storage.checkpoint_files import LocalFiles

    return any(map(str.isdigit, LocalFiles(pipeline.checkpoint).names("query/commits")))


def _check_table(file: StaticFile) -> str:
    n_rows = file.read().rows().num_rows
    return f"{n_rows:,} row{'' if n_rows == 1 else 's'}"


def _check_source(pipeline: Pipeline, entry: SourceEntry) -> str:
    from spark_runtime.sources.protocol import DemandingSource, Source
    from spark_runtime.storage.checkpoint_files import is_remote

    has_log = pipeline.is_stream and not is_remote(pipeline.checkpoint)
    try:
        has_begun = has_log and _has_begun(pipeline)
    except StateError:  # what is said about the checkpoint; the source may still be wrong
        has_begun = True
    log = f"{pipeline.checkpoint}/files/none.log" if has_log else ""
    source = pipeline.opened_source(entry, log, has_begun=has_begun)
    if isinstance(source, Source):
        source.check()
        return ""
    if isinstance(source, DemandingSource):
        source.check_settings(dict(pipeline.spark))
    return "only Spark can ask it"


def _of_sinks(pipeline: Pipeline) -> Iterator[_Question]:
    from rich.console import Console

    from spark_runtime.sinks.registry import SinkContext

    owner = None if pipeline.is_stream else pipeline.owner
    context = SinkContext(pipeline.rules, Console(quiet=True), owner)
    for spec, sink in pipeline.opened_sinks(context):
        name = type(spec).__name__.removesuffix("Spec").removesuffix("Sink").lower()
        yield f"sink of {sink.output.kind} ({name})", sink.check


def _at_the_same_time(questions: list[_Question]) -> Iterator[Finding]:
    """Yield the answer to each question in order, within `MOST_SECONDS`."""
    answers: dict[int, Finding] = {}
    faults: list[Exception] = []

    def ask(number: int, what: str, question: Callable[[], object]) -> None:
        try:
            answers[number] = _asked(what, question)
        except Exception as fault:  # noqa: BLE001 - raised again below: a thread would only print it
            faults.append(fault)

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
        if faults:
            raise faults[0]
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
