"""New rules begin with the past: it is prepared separately, and taken over with the change of rules.

    <checkpoint>/backfill/prepared/    what `cep backfill` has read, up to a micro-batch
    <checkpoint>/backfill/<number>/    the same up to the micro-batch that takes it over (`state.warming`)

Each of these folders appears in one step. So if the process is killed, the folder is either missing or
complete. When the rules change, the run reads what has arrived since `cep backfill`, exactly up to the
offsets that the checkpoint has committed. Then it records the change (`generations`), and each key group
takes over its part. So no event is seen twice, and none is missing.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import Counts, amount
from cep.engine.corrections.filled_gaps import Written
from cep.errors import StateError
from cep.program.changes import BEGINNING, Changes
from cep.program.program import MATCH
from cep.rule_set import BY_EVENT, KIND, REVISION, RuleSet
from cep.write_errors import writing
from spark_runtime.event_time.done import Done
from spark_runtime.operator.call import carried_rows
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.course import Mark, read_course
from spark_runtime.pipeline.generations import Filled
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.past import Past, Position, needed_programs
from spark_runtime.sinks.json_rows import json_rows
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.registry import source_type
from spark_runtime.sources.spec import BoundSource
from spark_runtime.state.snapshots import Tables
from spark_runtime.state.warming import WarmRules, write_warm
from spark_runtime.storage.checkpoint_files import CheckpointFiles, LocalFiles, is_remote, is_there
from spark_runtime.storage.sealed import read_sealed
from spark_runtime.tables.content import tables_of
from spark_runtime.tables.static import StaticTables
from spark_runtime.wire.output import Matches, carried_schema

FOLDER = "backfill"
_OF_PAST = ("match of the past is", "matches of the past are")
PREPARED = f"{FOLDER}/prepared"

FORMAT = 1
MANIFEST, STATE, MATCHES, LOGGED, _OF = "prepared.json", "state", "matches", "logged", "prepared"
_MANIFEST = f"{PREPARED}/{MANIFEST}"


class PastMatches(StrEnum):
    """What becomes of matches of the past."""

    ALERT = "alert"
    APART = "apart"
    NONE = "none"


@dataclass(frozen=True)
class Prepared:
    """What `cep backfill` has read.

    Parameters
    ----------
    id
        Distinguishes it from others.
    rules
        The rules that begin with the past.
    programs
        The fingerprints of the programs whose state it has, in hexadecimal digits.
    position
        `Position.to_json`.
    from_us
        The rules see the events at or after this time; None: all.
    matches
        What becomes of the matches of these rules before they begin.
    into
        The folder for matches that are written apart; otherwise empty.
    digest
        `digest_of` the folder.
    filled
        The gaps that are filled, if the rules are not new (`filling`).
    log_offset
        The last entry of the log of matches that was read then; -1: none.
    """

    id: str
    rules: tuple[str, ...]
    programs: tuple[str, ...]
    position: Sequence[Any]
    from_us: int | None
    matches: PastMatches
    into: str
    digest: str
    filled: tuple[Filled, ...] = ()
    log_offset: int = -1


# ---------------------------------------------------------------- what is stored


def read_prepared(checkpoint: str) -> Prepared | None:
    """Return what is prepared in the checkpoint at a local path; None: nothing is prepared.

    Raises StateError: it is damaged or of a different version (E0702).
    """
    if is_remote(checkpoint):
        return None
    return _read_manifest(LocalFiles(checkpoint), checkpoint)


def _read_manifest(files: CheckpointFiles, checkpoint: str) -> Prepared | None:
    error = StateError(
        "E0702",
        f"`{checkpoint}/{_MANIFEST}`, which has the past of new rules, is damaged or of another version",
        "run `cep backfill` again",
    )
    return read_sealed(files, _MANIFEST, _of_manifest, error)


def _of_manifest(text: str) -> Prepared:
    found = json.loads(text)
    if found.pop("format") != FORMAT:
        raise ValueError("another version")
    found["rules"], found["programs"] = tuple(found["rules"]), tuple(found["programs"])
    found["matches"] = PastMatches(found["matches"])
    found["filled"] = tuple(map(Filled.of_json, found.get("filled", ())))
    Position.of_json(found["position"])
    return Prepared(**found)


def digest_of(folder: Path) -> str:
    """Return the SHA-256 of the files in a folder, in hexadecimal digits."""
    found = sha256()
    for name in (STATE, MATCHES, LOGGED):
        if is_there(folder / name):
            found.update((folder / name).read_bytes())
    return found.hexdigest()


def discard(checkpoint: str) -> bool:
    """Remove what is prepared; return whether anything was."""
    place = Path(checkpoint) / PREPARED
    was = is_there(place)
    with writing(place), suppress(FileNotFoundError):  # the run may have taken it over meanwhile
        shutil.rmtree(place)
    return was


def forget(files: CheckpointFiles, batch: int) -> None:
    """Remove what key groups have taken over up to a micro-batch, and its source."""
    of = files.read(f"{FOLDER}/{batch}/{_OF}")
    prepared = None if of is None else _read_manifest(files, "the checkpoint")
    if prepared is not None and prepared.id == of:
        files.remove(PREPARED)
    for name in files.names(FOLDER):
        number = name.removeprefix(".").removesuffix(".unfinished")
        if number.isdigit() and int(number) <= batch:
            files.remove(f"{FOLDER}/{name}")


@contextmanager
def appearing(place: Path) -> Iterator[Path]:
    """Yield a folder whose contents appear at `place` in one step."""
    unfinished = place.with_name(f".{place.name}.unfinished")
    with writing(place):
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        yield unfinished
        shutil.rmtree(place, ignore_errors=True)
        unfinished.rename(place)


# ---------------------------------------------------------------- reading


class FoundMatches:
    """The matches of the past of some rules, in a temporary file if they are many.

    `keeps`: whether more than their number is kept.
    """

    def __init__(self, rules: RuleSet, names: Sequence[str], *, keeps: bool) -> None:
        self.n: dict[str, int] = dict.fromkeys(names, 0)
        self.rows = Matches(carried_schema(rules.match_schema))
        self._rules, self._names, self._keeps = rules, pa.array(names, pa.string()), keeps

    def put(self, matches: pa.Table) -> None:
        """Add the matches of these rules."""
        chosen = matches.filter(pc.is_in(matches.column("rule"), value_set=self._names))
        if not chosen.num_rows:
            return
        for counted in pc.value_counts(chosen.column("rule").combine_chunks()).to_pylist():
            self.n[counted["values"]] += counted["counts"]
        if self._keeps:
            if self._rules.corrections is not None:
                n = chosen.num_rows
                chosen = chosen.append_column(REVISION, pa.repeat(pa.scalar(0, pa.int64()), n))
                chosen = chosen.append_column(KIND, pa.repeat(pa.scalar(MATCH), n))
            ended_by = BY_EVENT if self._rules.tells_end else ""
            self.rows.append(carried_rows(chosen, self.rows.schema, self._rules, ended_by))


def _sources(checkpoint: Checkpoint, pipeline: Pipeline, rules: RuleSet) -> dict[str, Source]:
    """Return the sources that some rules read.

    Raises StateError: the past of one cannot be read again (E0718).
    """
    found: dict[str, Source] = {}
    for entry in pipeline.sources:
        if entry.stream not in rules.inputs:
            continue
        kind = source_type(entry.name)
        why = f"{kind.bound_by}" if isinstance(kind, BoundSource) else ""
        source = pipeline.opened_source(entry, checkpoint.log_of(entry.stream), has_begun=True)
        if why or not isinstance(source, Source):
            raise no_past(
                f"the past of stream `{entry.stream}` ({entry.name}) cannot be read again: "
                f"{why or 'only Spark reads its source'}",
                "let the rule begin without a past, or run it over an archive of the events with `cep match`",
            )
        found[entry.stream] = source
    return found


def static(pipeline: Pipeline, rules: RuleSet) -> Tables:
    """Return the current rows of the static tables that rules join."""
    tables = StaticTables(
        {file.table.name: file for file in pipeline.tables if file.table.name in rules.tables}
    )
    tables.load()
    return tables_of(rules.programs, tables.now, {})


@contextmanager
def reading(
    checkpoint: Checkpoint, pipeline: Pipeline, rules: RuleSet, tables: Tables, data: bytes, *more: Any
) -> Iterator[Past]:
    """Yield rules over the past of a pipeline; `more`: see `Past`. Raises StateError as `_sources` does."""
    past = Past(rules, _sources(checkpoint, pipeline, rules), tables, data, *more)
    try:
        yield past
    finally:
        past.close()


def new_matches(rules: RuleSet, names: Sequence[str], matches: PastMatches) -> FoundMatches:
    """Return room for the matches of some rules."""
    return FoundMatches(rules, names, keeps=matches is not PastMatches.NONE)


def write_matches(place: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    """Write matches as an Arrow stream."""
    with pa.OSFile(str(place), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def stored_rows(checkpoint: str, name: str, schema: pa.Schema) -> pa.Table:
    """Return the prepared rows in a file that `write_matches` wrote, with the columns of `schema`."""
    data = (Path(checkpoint) / PREPARED / name).read_bytes()
    return pa.ipc.open_stream(data).read_all().cast(schema)


def write_apart(into: str, name: str, rules: RuleSet, found: FoundMatches) -> None:
    """Write matches as JSON lines; an existing file with the same name is replaced."""
    place = Path(into) / f"{name}.jsonl"
    with writing(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        unfinished = place.with_name(f".{place.name}.tmp")
        with unfinished.open("w", encoding="utf-8") as file:
            for table in found.rows:
                file.writelines(f"{row}\n" for row in json_rows(_as_declared(table, rules)))
        unfinished.replace(place)


def _as_declared(rows: pa.Table, rules: RuleSet) -> pa.Table:
    """Return carried matches in the types that rules give their columns."""
    types = {item.name: item.type for item in rules.match_schema}
    columns = {name: rows.column(name) for name in rows.column_names}
    return pa.table(
        {
            name: column if pa.types.is_nested(column.type) else column.cast(types.get(name, column.type))
            for name, column in columns.items()
        }
    )


# ---------------------------------------------------------------- taking it up


def take_up(
    checkpoint: Checkpoint,
    done: Done,
    pipeline: Pipeline,
    changes: Changes,
    say: Callable[[str], None] = lambda text: None,
) -> WarmRules | None:
    """Return the past with which new rules begin after micro-batch `done`; None: they begin without one.

    Input that has arrived since `cep backfill` is read now. `pipeline` contains the new rules.

    Raises StateError: it was prepared for other rules (E0718), or is damaged (E0702). Raises InputError:
    input that was read earlier can no longer be read.
    """
    prepared = read_prepared(checkpoint.path)
    if prepared is None or prepared.filled:
        return None
    begin = tuple(name for name in prepared.rules if changes.verdicts.get(name) in BEGINNING)
    if not begin:
        return None
    found = new_matches(pipeline.rules, begin, prepared.matches)
    taken = brought_up(checkpoint, done, pipeline, prepared, begin, found)
    if prepared.matches is PastMatches.APART:
        write_apart(prepared.into, "rest", pipeline.rules, found)
    rows = list(found.rows) if prepared.matches is PastMatches.ALERT else []
    warm = write_taken(checkpoint, done, prepared, taken, pa.concat_tables(rows) if rows else None)
    n_rows = sum(table.num_rows for table in rows)
    say(
        f"{', '.join(f'`{name}`' for name in begin)} begin{'s' if len(begin) == 1 else ''} with the past: "
        f"{taken.since}" + (f", {amount(n_rows, *_OF_PAST)} reported" if n_rows else "")
    )
    return warm


class Taken(NamedTuple):
    """The state of rules with a past.

    `data`: `Past.snapshot`. `counts`: what was read since `cep backfill`. `reached_us`: the event time that
    the stream has reached; the state lags behind it if `brought_up` found matches beyond it.
    """

    rules: RuleSet
    data: bytes
    counts: Counts
    reached_us: int

    @property
    def since(self) -> str:
        """What was read since `cep backfill`, as text."""
        n_lost = sum(self.counts.lost.values())
        gone = f" ({amount(n_lost, 'message is', 'messages are')} gone)" if n_lost else ""
        return f"{amount(self.counts.events, 'event')} since `cep backfill`{gone}"


def brought_up(
    checkpoint: Checkpoint,
    done: Done,
    pipeline: Pipeline,
    prepared: Prepared,
    begin: Sequence[str],
    found: FoundMatches,
    keep: Callable[[pa.Table], pa.Table] = lambda matches: matches,
    beyond: FoundMatches | None = None,
) -> Taken:
    """Return the state of the rules in `begin` after micro-batch `done`; newer input is read now.

    `found` receives the stored matches, then the later ones, as far as `keep` returns them. With `beyond`,
    the state is that at the time before which nothing is corrected, and `beyond` receives the matches after
    it. Raises as `take_up`.
    """
    needed = needed_programs(pipeline.rules, begin)
    if tuple(begin) != prepared.rules or prepared.programs != tuple(
        program.fingerprint.hex() for program in needed.programs
    ):
        raise no_past(
            f"the past of `{prepared.rules[0]}` was read for other rules than those that are to run",
            "run `cep backfill` again; or `cep backfill --discard`, and the rule begins without a past",
        )
    tables, folder = static(pipeline, needed), Path(checkpoint.path) / PREPARED
    if digest_of(folder) != prepared.digest:
        raise StateError(
            "E0702",
            f"`{folder}`, which has the past of new rules, does not contain what was written",
            "run `cep backfill` again",
        )
    if prepared.matches is PastMatches.ALERT:
        for batch in pa.ipc.open_stream((folder / MATCHES).read_bytes()):
            found.rows.append(pa.Table.from_batches([batch]).cast(found.rows.schema))
    data, position = (folder / STATE).read_bytes(), Position.of_json(prepared.position)
    with reading(checkpoint, pipeline, needed, tables, data, position) as past:

        def put(matches: pa.Table) -> None:
            found.put(keep(matches))

        past.read(read_course(checkpoint.path), Mark.of(done), put)
        before = past.snapshot()
        past.catch_up(put if beyond is None else beyond.put)
        reached_us = past.position.reached.watermark_us
    assert reached_us is not None
    return Taken(needed, past.snapshot() if beyond is None else before, past.counts, reached_us)


def write_taken(
    checkpoint: Checkpoint,
    done: Done,
    prepared: Prepared,
    taken: Taken,
    matches: pa.Table | None,
    written: pa.Table | None = None,
) -> WarmRules | None:
    """Write what key groups take over after micro-batch `done`, and the matches that they report.

    `written`: with corrections and filled gaps, their `Written.matches`.
    """
    with appearing(Path(checkpoint.path) / FOLDER / str(done.batch + 1)) as place:
        place.rmdir()
        of_gaps = None if written is None else Written(taken.reached_us, written)
        write_warm(place, taken.data, taken.rules, checkpoint.n_groups, matches, of_gaps)
        (place / _OF).write_text(prepared.id)
    return warm_of(checkpoint.path, done.batch + 1, prepared.rules, prepared.from_us)


def waiting_fill(checkpoint: str, batch: int) -> Prepared | None:
    """Return the gaps that are prepared for filling; None if there are none.

    Gaps that rules took over in `batch` do not count, nor do damaged preparations.
    """
    try:
        prepared = read_prepared(checkpoint)
    except StateError:
        return None
    if prepared is None or not prepared.filled:
        return None
    return None if LocalFiles(checkpoint).read(f"{FOLDER}/{batch}/{_OF}") == prepared.id else prepared


def warm_of(checkpoint: str, batch: int, rules: Sequence[str], from_us: int | None) -> WarmRules | None:
    """Return the past that rules take over in a micro-batch; None: no rule does."""
    return WarmRules(f"{checkpoint}/{FOLDER}/{batch}", frozenset(rules), from_us) if rules else None


def no_past(fact: str, help_text: str) -> StateError:
    """Return the error for a past with which rules cannot begin."""
    return StateError("E0718", fact, help_text)
