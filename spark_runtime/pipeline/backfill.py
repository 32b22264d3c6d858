"""Reads the past for new rules, and keeps it in the checkpoint until they begin (`prepared`)."""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from cep.counts import Counts
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.errors import StateError
from cep.program.changes import BEGINNING, Changes, Verdict
from cep.rule_set import RuleSet
from cep.write_errors import writing
from spark_runtime.event_time.done import Done
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done, read_checkpoint
from spark_runtime.pipeline.course import Mark, read_course
from spark_runtime.pipeline.made import Pipeline, Reload
from spark_runtime.pipeline.past import Position, Tell, Throttle, first_matchers, needed_programs
from spark_runtime.pipeline.prepared import (
    FORMAT,
    LOGGED,
    MANIFEST,
    MATCHES,
    PREPARED,
    STATE,
    FoundMatches,
    PastMatches,
    Prepared,
    appearing,
    digest_of,
    new_matches,
    no_past,
    reading,
    static,
    write_apart,
    write_matches,
)
from spark_runtime.pipeline.reloading import proposed
from spark_runtime.storage.checkpoint_files import LocalFiles, is_remote, reading_place
from spark_runtime.storage.sealed import sealed


@dataclass(frozen=True)
class Wanted:
    """What `cep backfill` should do.

    Parameters
    ----------
    rules
        The rules that should begin with the past.
    from_us
        They see the events at or after this time; None: all that can be read.
    matches
        What becomes of their matches before they begin.
    into
        The folder for matches that are written apart.
    rate
        The maximum number of events to read per second; None: as many as possible.
    """

    rules: tuple[str, ...]
    from_us: int | None
    matches: PastMatches = PastMatches.NONE
    into: str = ""
    rate: float | None = None


@dataclass
class PastResult:
    """What was read of the past, and what was found.

    `n_unknown`: see `Past`.
    """

    micro_batch: int
    counts: Counts
    n_unknown: int = 0
    matches: dict[str, int] = field(default_factory=dict)


def prepare(
    checkpoint: Checkpoint,
    done: Done,
    pipeline: Pipeline,
    wanted: Wanted,
    tell: Tell = lambda n_read, n_all, reached_us: None,
) -> PastResult:
    """Read the past for new rules up to the micro-batch `done`, and keep it in the checkpoint.

    `pipeline` contains the new rules.

    Raises
    ------
    StateError
        There is no past, or it cannot be read again (E0718); the folder for matches is not empty (E0716).
    InputError
        Input that was read earlier can no longer be read.
    """
    require_past(done)
    rules = wanted.rules
    needed = needed_programs(pipeline.rules, rules)
    require_known(needed, done)
    require_empty(wanted.into)
    tables, until = static(pipeline, needed), Mark.of(done)
    course = read_course(checkpoint.path)
    position = Position.before(course, wanted.from_us, until, is_live=pipeline.is_live)
    begin = first_matchers(needed, wanted.from_us, tables)
    found = new_matches(pipeline.rules, rules, wanted.matches)
    throttle = Throttle(wanted.rate)
    with reading(checkpoint, pipeline, needed, tables, begin, position, throttle, tell) as past:
        past.read(course, until, found.put)
    if wanted.matches is PastMatches.APART:
        write_apart(wanted.into, "past", pipeline.rules, found)
    write_prepared(checkpoint, wanted, needed, past.snapshot(), past.position, found)
    return PastResult(done.batch, past.counts, past.n_unknown, found.n)


def write_prepared(
    checkpoint: Checkpoint,
    wanted: Wanted,
    needed: RuleSet,
    data: bytes,
    position: Position,
    found: FoundMatches,
    logged: pa.Table | None = None,
    **more: Any,
) -> None:
    """Keep what was read of the past in the checkpoint, in one step.

    `data`: the state of the programs `needed` at `position`. `logged`: with corrections, the log's rows for
    the matches of gaps. `more`: see `Prepared`.
    """
    with appearing(Path(checkpoint.path) / PREPARED) as place:
        (place / STATE).write_bytes(data)
        if wanted.matches is PastMatches.ALERT:
            write_matches(place / MATCHES, found.rows.schema, found.rows)
        if logged is not None:
            write_matches(place / LOGGED, logged.schema, [logged])
        prepared = Prepared(
            id=uuid.uuid4().hex[:8],
            rules=wanted.rules,
            programs=tuple(program.fingerprint.hex() for program in needed.programs),
            position=position.to_json(),
            from_us=wanted.from_us,
            matches=wanted.matches,
            into=wanted.into,
            digest=digest_of(place),
            **more,
        )
        (place / MANIFEST).write_text(sealed(json.dumps({"format": FORMAT, **asdict(prepared)})))


def require_past(done: Done) -> None:
    """Raise StateError (E0718) if a stream has no past, or its past does not continue."""
    if done.ended or (done.watermark_us is not None and done.watermark_us >= END_OF_TIME_US):
        raise no_past(
            "the input was declared complete (`at_end: finish`): all windows are closed, and events that "
            "come now are late",
            "use an empty checkpoint directory: all rules then see all of the input",
        )
    if done.reached.read_until_us is None:
        raise no_past("the stream has read no event", "new rules see all of its events without a backfill")
    if done.watermark_us is None:
        raise no_past(
            "the stream has no watermark yet: a source has had no event",
            "run the pipeline until each source has had one, or set `idle_after` for it",
        )


def require_known(rules: RuleSet, done: Done) -> None:
    """Raise StateError (E0718) if rules read a stream that the checkpoint has not read yet."""
    for name, stream in rules.inputs.items():
        if name not in done.offsets and not stream.is_static:
            raise no_past(
                f"the pipeline has read nothing of stream `{name}`",
                "let the rule begin without a past",
            )


def require_empty(into: str) -> None:
    """Raise StateError (E0716) unless the folder for matches is empty, or not needed."""
    if not into:
        return
    with writing(into), suppress(FileNotFoundError):
        if os.listdir(into):
            raise StateError(
                "E0716", f"`{into}` is not empty", "name a folder that is empty, or does not exist"
            )


def backfill_pipeline(
    pipeline: Pipeline, wanted: Wanted, tell: Tell = lambda n_read, n_all, reached_us: None
) -> PastResult:
    """Read the past for new rules of a pipeline file, whose checkpoint may be in use.

    Raises StateError as `prepare` does, and if another process is reading the past for the checkpoint, or if
    the rules cannot follow those of the checkpoint (E0701).
    """
    with alone_with(pipeline) as files:
        return _backfilled(files, pipeline, wanted, tell)


@contextmanager
def alone_with(pipeline: Pipeline) -> Iterator[LocalFiles]:
    """Yield the checkpoint of a pipeline, and lock it against another `cep backfill`.

    Raises StateError (E0718): another `cep backfill` is running, or rules of this pipeline cannot begin with
    a past.
    """
    if is_remote(pipeline.checkpoint):
        raise no_past(
            f"the checkpoint `{pipeline.checkpoint}` is not on a disk",
            "let the rule begin without a past",
        )
    if pipeline.reload is Reload.NEVER:
        raise no_past(
            "the pipeline has `reload: never`", "let it take changed rules: `reload: after approval`"
        )
    with _alone(pipeline.checkpoint):
        yield LocalFiles(pipeline.checkpoint)


@contextmanager
def _alone(checkpoint: str) -> Iterator[None]:
    """Keep another `cep backfill` away. The lock is on the folder: `lock` in it belongs to the run."""
    with reading_place(checkpoint):
        try:
            descriptor = os.open(checkpoint, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            descriptor = None
    if descriptor is None:
        yield  # what follows says so
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise no_past(
                "another `cep backfill` reads the past for this checkpoint", "wait until it ends, or end it"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _backfilled(files: LocalFiles, pipeline: Pipeline, wanted: Wanted, tell: Tell) -> PastResult:
    _, found = proposed(files, pipeline)
    new = beginning(found.changes, wanted)
    checkpoint, _ = read_checkpoint(files, pipeline.checkpoint)
    done = last_done(checkpoint, is_live=pipeline.is_live)
    return prepare(checkpoint, done, found.pipeline, replace(wanted, rules=tuple(new)), tell)


def beginning(changes: Changes, wanted: Wanted) -> Mapping[str, Verdict]:
    """Return the rules that can begin with a past, and their verdicts; if some are wanted, only these.

    Raises StateError (E0718): a wanted rule is not new, or its matches were reported before it changed.
    """
    new = {name: verdict for name, verdict in changes.verdicts.items() if verdict in BEGINNING}
    for name in wanted.rules:
        if name not in new:
            verdict = changes.verdicts.get(name)
            raise no_past(
                f"there is no rule `{name}`" if verdict is None else f"rule `{name}` is not new: {verdict}",
                f"new rules are: {', '.join(new) or 'none'}",
            )
    new = {name: verdict for name, verdict in new.items() if not wanted.rules or name in wanted.rules}
    for name, verdict in new.items():
        if verdict is Verdict.CHANGED and wanted.matches is PastMatches.ALERT:
            raise no_past(
                f"rule `{name}` has changed, and may have reported matches of the past",
                "use `--matches apart` or `none`, or give the rule another name",
            )
    if not new:
        raise no_past("no rule is new", "add the rule to the files that `rules` in the pipeline file names")
    return new
