"""The checkpoint directory of a pipeline: Spark's own part, and everything that Spark does not know.

    <checkpoint>/rules.json          the rules: texts, streams, meaning of their stored state (`stored_rules`)
    <checkpoint>/rules/<number>.json the rules from one change to the next (`generations`)
    <checkpoint>/pipeline.json       written at the first start: key groups, sources
    <checkpoint>/plan/<number>.json  what a micro-batch reads (`wire.plan`)
    <checkpoint>/done.json           progress after the last micro-batches
    <checkpoint>/course.log          how far the stream had come when (`course`)
    <checkpoint>/backfill/           the past with which new rules begin (`prepared`)
    <checkpoint>/delivered.json      which sinks contain a micro-batch (`delivering`)
    <checkpoint>/gaps.json           what rules did not see (`gaps`)
    <checkpoint>/alive               when a continuous stream last ran (`gaps`)
    <checkpoint>/files/<stream>.log  files of a folder that were read (`file_log`)
    <checkpoint>/restored/           the state that a savepoint contained, until Spark has it (`restoring`)
    <checkpoint>/query               Spark's checkpoint of the query
    <checkpoint>/lock                held by the run that uses it (`lock`)
    <checkpoint>/lease/              the same on remote storage (`lease`)

Our files of JSON have a checksum (`sealed`), but for those that only say who uses the checkpoint.

Paths may be on any file system that Spark's Hadoop library supports; the lists of files exist only on local
disks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from typing import Any
from urllib.parse import quote

from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.errors import StateError
from cep.program.identity import differences
from spark_runtime.event_time.clock_waits import Waits
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Partition
from spark_runtime.event_time.reached import Reached
from spark_runtime.event_time.waiting import Waiting
from spark_runtime.pipeline.generations import FOLDER as GENERATIONS
from spark_runtime.pipeline.generations import (
    Generation,
    Standing,
    all_generations,
    standing,
    withdraw,
    write_generation,
)
from spark_runtime.pipeline.portable import moved, with_paths
from spark_runtime.pipeline.rule_places import folder_of, has_no_folder, in_folder
from spark_runtime.pipeline.stored_rules import FORMAT as RULES_FORMAT
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles, is_remote
from spark_runtime.storage.sealed import parsing, read_sealed, write_sealed
from spark_runtime.wire.plan import MAX_INLINE, Plan

_FORMAT = 4
"""Earlier versions: 1 had other key groups; in 2 Spark knew the sources by number; 3 had undivided state
and one watermark for all sources."""

RULES, PIPELINE, DONE = "rules.json", "pipeline.json", "done.json"

_ORIGIN = "restored"
"""What a restored checkpoint says of its savepoint, in `PIPELINE`."""

NOTES = "delivered.json"
"""Which sinks contain the last micro-batch, for sinks that do not know it (`delivering`)."""

GAPS = "gaps.json"
"""What rules did not see (`gaps`)."""

_WAY_OUT = "restore the checkpoint directory as a whole, or start with an empty one"

KEPT_BATCHES = 3
"""How many micro-batches keep plans and `done.json`. Spark repeats none before the last but one."""


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """The identity of a source. The same files in another place are another source."""

    file_format: str
    place: str

    def __str__(self) -> str:
        return f"{self.file_format} {self.place}".strip()


@dataclass(frozen=True, slots=True)
class Origin:
    """The savepoint from which a checkpoint was made.

    `run` and `batch`: the stream that was saved, as sinks know it, and its last micro-batch in the savepoint.
    The name is empty if sinks need not be checked for it. `groups`: the labels of the key groups that have
    state.
    """

    run: str
    batch: int
    groups: frozenset[int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint directory. `origin`: of a restored one."""

    path: str
    run_id: str  # names the directories that sinks write; the same after a restart
    n_groups: int
    files: CheckpointFiles
    origin: Origin | None = None

    @property
    def query_path(self) -> str:
        """Spark's part."""
        return f"{self.path}/query"

    def file_log(self, stream: str) -> str:
        """Return the path of the list of files that were read from a folder."""
        return f"{self.path}/files/{quote(stream, safe='')}.log"

    def log_of(self, stream: str) -> str:
        """Return the path of `file_log`; an empty string if the checkpoint is not on a disk."""
        return "" if is_remote(self.path) else self.file_log(stream)


def open_checkpoint(
    files: CheckpointFiles,
    path: str,
    rules: StoredRules,
    sources: Mapping[str, SourceIdentity],
    n_groups: int,
    *,
    accepts_source_change: bool = False,
    accepts_other_rules: bool = False,
) -> Checkpoint:
    """Return the checkpoint at `path`, creating it if missing. `sources` contains the source of each stream.

    With `accepts_other_rules` its rules remain as they are, and `rules_after` returns them.

    Raises StateError: it belongs to other rules, other sources or a different version, or was written with
    corrections and `rules` have none, or the other way round (E0649).
    """
    given = {name: [source.file_format, source.place] for name, source in sorted(sources.items())}
    has_begun = _has_begun(files)
    found = _known(files, path)
    if found is None and has_begun:
        raise _damaged(f"{path}/{PIPELINE}", "the file is missing, but the query has micro-batches")
    if found is not None and _ORIGIN in found:
        has_begun, found = True, _placed(files, path, found, given)
    before = _rules_before(files, path, has_begun=has_begun)
    if found is None or before is None or not has_begun:
        # Nothing was reported: what a run that failed or had other rules left does not matter.
        is_same = before is not None and before.fingerprints == rules.fingerprints
        if found is None or not is_same or found["sources"] != given:
            if files.names("query/offsets"):
                found = None  # sinks may have parts of a micro-batch, and would mistake others for them
            for part in ("query", "files", "plan", GENERATIONS, NOTES, GAPS):
                files.remove(part)
        run = new_name() if found is None else found["run"]
        found = {"format": _FORMAT, "sources": given, "run": run, "key_groups": n_groups}
        write_sealed(files, RULES, rules.to_json())
        write_sealed(files, PIPELINE, json.dumps(found))
        return _checkpoint(path, found, files)
    checkpoint = _checkpoint(path, found, files)
    before = _latest_rules(checkpoint, before, rules)
    before.require_same_kind(has_corrections=rules.has_corrections)
    is_other = before.fingerprints != rules.fingerprints
    if is_other and not accepts_other_rules:
        raise StateError(
            "E0701",
            f"the checkpoint `{path}` was written by other rules: "
            f"{differences(before.programs, rules.programs)}",
            "without `reload: never` in the pipeline file the rules may change; or give them an empty "
            f"checkpoint directory; the former rules are in {RULES} there",
        )
    if any(found["sources"].get(name, source) != source for name, source in given.items()):
        if not accepts_source_change:
            raise _other_source(path, found["sources"], sources)
        _move_planned(checkpoint, found["sources"], given)
    _add_sources(files, found, given)
    if before != rules and rules.reads(before):  # they differ in ways that do not affect stored state
        write_sealed(files, RULES, rules.to_json())
    if checkpoint.origin is not None:
        _place_rules(files, rules)
    return checkpoint


def _add_sources(
    files: CheckpointFiles, found: Mapping[str, Any], given: Mapping[str, Sequence[str]]
) -> None:
    """Record the places of sources. Those that rules no longer read are kept, because they may come back."""
    if not given.items() <= found["sources"].items():
        write_sealed(files, PIPELINE, json.dumps({**found, "sources": {**found["sources"], **given}}))


def _has_begun(files: CheckpointFiles) -> bool:
    """Return whether sinks may have a micro-batch."""
    return (
        any(map(str.isdigit, files.names("query/commits")))
        or any(name.isdigit() and int(name) > 0 for name in files.names("query/offsets"))
        or files.read(NOTES) is not None
    )


def _move_planned(
    checkpoint: Checkpoint, before: Mapping[str, Sequence[str]], given: Mapping[str, Sequence[str]]
) -> None:
    """Let a planned micro-batch read files of a source that was moved: later ones do not read them again."""
    batch = _last_done(checkpoint) + 1
    plan = planned(checkpoint, batch)
    if plan is not None:
        old, new = ({name: place for name, (_, place) in of.items()} for of in (before, given))
        changed = moved(plan, old, new)
        if changed.shares != plan.shares:
            write_plan(checkpoint, batch, changed)


def _place_rules(files: CheckpointFiles, rules: StoredRules) -> None:
    """Give the rules of a savepoint the paths of their files, if `rules` make their folder certain.

    The last generation is changed at the end, so the next run does again what a killed one began.
    """
    saved = [generation for generation in all_generations(files) if has_no_folder(generation.rules)]
    folder = folder_of(saved[-1].rules, rules.texts) if saved else None
    if folder is not None:
        for generation in saved:
            write_generation(files, replace(generation, rules=in_folder(generation.rules, folder)))


def _latest_rules(checkpoint: Checkpoint, before: StoredRules, rules: StoredRules) -> StoredRules:
    """Return the rules that compute the next micro-batch.

    If a run was killed before it planned a micro-batch under changed rules, and the rules are now others
    again, that change has not happened.
    """
    found = standing(checkpoint.files, _last_done(checkpoint), before)
    latest = found.latest
    if (
        found.is_pending
        and latest.rules.fingerprints != rules.fingerprints
        and planned(checkpoint, latest.batch) is None
    ):
        found = withdraw(checkpoint.files, found)
    return found.latest.rules


def rules_after(checkpoint: Checkpoint, batch: int) -> Standing:
    """Return the generations of rules that matter after a micro-batch."""
    rules = _rules_before(checkpoint.files, checkpoint.path, has_begun=True)
    assert rules is not None  # otherwise an error was raised
    return standing(checkpoint.files, batch, rules)


def recorded_rules(files: CheckpointFiles, path: str) -> Sequence[Generation]:
    """Return the generations of rules of a checkpoint, the oldest first.

    Raises StateError: it is not a checkpoint (E0705), or damaged (E0702).
    """
    found = all_generations(files)
    if not found:
        checkpoint, _ = read_checkpoint(files, path)
        found = [rules_after(checkpoint, 0).latest]
    return found


def read_checkpoint(files: CheckpointFiles, path: str) -> tuple[Checkpoint, StoredRules]:
    """Return the checkpoint at `path`, which is not changed, and its rules.

    Raises StateError: it has no micro-batches (E0705), it is damaged (E0702), or of a different version
    (E0706).
    """
    found = _known(files, path)
    has_begun = any(map(str.isdigit, files.names("query/commits")))
    if found is not None and not has_begun and _ORIGIN in found:
        raise StateError(
            "E0705",
            f"`{path}` was restored from a savepoint, and has not run since",
            "run the pipeline once with `cep run`: its first micro-batch takes over the saved state",
        )
    rules = _rules_before(files, path, has_begun=True) if found is not None and has_begun else None
    if found is None or rules is None:
        raise StateError(
            "E0705",
            f"`{path}` is not the checkpoint of a pipeline that has finished a micro-batch",
            "give the folder that `checkpoint` in the pipeline file names",
        )
    checkpoint = _checkpoint(path, found, files)
    return checkpoint, standing(files, last_committed(checkpoint), rules).stored.rules


def _checkpoint(path: str, found: Mapping[str, Any], files: CheckpointFiles) -> Checkpoint:
    origin = None
    if _ORIGIN in found:
        of = found[_ORIGIN]
        origin = Origin(str(of["run"]), int(of["micro_batch"]), frozenset(of["groups"]))
    return Checkpoint(path, str(found["run"]), int(found["key_groups"]), files, origin)


def pipeline_json(sources: Mapping[str, SourceIdentity], run: str, n_groups: int, origin: Origin) -> str:
    """Return the file of a restored checkpoint. A source whose place is empty may be anywhere."""
    found = {
        "format": _FORMAT,
        "sources": {name: [source.file_format, source.place] for name, source in sorted(sources.items())},
        "run": run,
        "key_groups": n_groups,
        _ORIGIN: {"run": origin.run, "micro_batch": origin.batch, "groups": sorted(origin.groups)},
    }
    return json.dumps(found)


def source_identities(checkpoint: Checkpoint) -> dict[str, SourceIdentity]:
    """Return the source of each stream."""
    return _sources(_opened(checkpoint))


def _sources(found: Mapping[str, Any]) -> dict[str, SourceIdentity]:
    return {str(name): SourceIdentity(*map(str, source)) for name, source in found["sources"].items()}


def _placed(
    files: CheckpointFiles, path: str, found: dict[str, Any], given: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return the description of a restored checkpoint, with the places of its sources once they are known."""
    places = {
        name: given[name][1]
        for name, (kind, place) in found["sources"].items()
        if not place and name in given and given[name][0] == kind and given[name][1]
    }
    if not places:
        return found
    done = {
        number: [json.dumps(with_paths(json.loads(reached), places)), *with_paths(more, places)]
        for number, (reached, *more) in _progress(files, path).items()
    }
    write_sealed(files, DONE, json.dumps(done))
    sources = {name: [kind, places.get(name, place)] for name, (kind, place) in found["sources"].items()}
    found = {**found, "sources": sources}
    write_sealed(files, PIPELINE, json.dumps(found))
    return found


def renamed(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return a checkpoint under a name for which no sink contains rows."""
    found = {**_opened(checkpoint), "run": name}
    if _ORIGIN in found:
        found[_ORIGIN]["run"] = ""
    write_sealed(checkpoint.files, PIPELINE, json.dumps(found))
    return _checkpoint(checkpoint.path, found, checkpoint.files)


def new_name() -> str:
    """Return a name for a run that no sink knows."""
    return uuid.uuid4().hex[:8]


def _opened(checkpoint: Checkpoint) -> dict[str, Any]:
    found = _known(checkpoint.files, checkpoint.path)
    if found is None:
        raise _damaged(f"{checkpoint.path}/{PIPELINE}", "the file is missing")
    return found


def _known(files: CheckpointFiles, path: str) -> dict[str, Any] | None:
    """Return the description of a checkpoint; None if it has none."""
    error = _damaged(f"{path}/{PIPELINE}", "the file is damaged")
    text = read_sealed(files, PIPELINE, str, error)
    if text is None:
        return None
    found = _json(text)
    is_sound = isinstance(found, dict) and isinstance(found.get("format"), int)
    if not is_sound or found["format"] != _FORMAT:
        has = f"has format {found['format']}" if is_sound else "does not say its format"
        raise _other_version(path, f"{has}, this version reads {_FORMAT}")
    known: dict[str, Any] = found
    with parsing(error):
        _checkpoint(path, known, files)
        _sources(known)
    return known


def _rules_before(files: CheckpointFiles, path: str, *, has_begun: bool) -> StoredRules | None:
    """Return the rules that wrote the checkpoint; None if they are not recorded and nothing was computed."""
    error = _damaged(f"{path}/{RULES}", "the file is damaged")
    try:
        text = read_sealed(files, RULES, str, error)
        found = None if text is None else _json(text)
        if isinstance(found, dict) and found.get("format") == RULES_FORMAT:
            with parsing(error):
                return StoredRules.of_json(found)
    except StateError:
        if has_begun:
            raise
    if not has_begun:
        return None
    if isinstance(found, dict) and isinstance(found.get("format"), int):
        has = f"has format {found['format']} in {RULES}"
        raise _other_version(path, f"{has}, this version reads {RULES_FORMAT}")
    if text is None:
        raise _damaged(f"{path}/{RULES}", "the file is missing, but the query has micro-batches")
    raise error


def _other_version(path: str, fact: str) -> StateError:
    return StateError(
        "E0706",
        f"the checkpoint `{path}` {fact}",
        "continue with the version of spark-cep that wrote it, or start with an empty checkpoint directory",
    )


def _other_source(
    path: str, before: Mapping[str, Sequence[str]], now: Mapping[str, SourceIdentity]
) -> StateError:
    name = next(
        name
        for name in now
        if name in before and list(before[name]) != [now[name].file_format, now[name].place]
    )
    was = SourceIdentity(*before[name])
    return StateError(
        "E0710",
        f"the source of stream `{name}` was `{was}` when the checkpoint `{path}` was written, "
        f"now it is `{now[name]}`",
        "if the files have moved, run with --accept-source-change: files with the names and the content of "
        "those that were read are not read again, all others are; else start with an empty checkpoint",
    )


# ---------------------------------------------------------------- Spark's part


def check_query_log(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose query cannot continue, before Spark fails with its own error.

    Raises StateError: files of the query are missing or damaged.
    """
    offsets, commits = (_batches(checkpoint, folder) for folder in ("offsets", "commits"))
    if not offsets and not commits:
        return
    where = checkpoint.query_path
    if not offsets or (commits and commits[-1] > offsets[-1]):
        raise _damaged(f"{where}/offsets", f"the offsets of micro-batch {commits[-1]} are missing")
    if checkpoint.files.read("query/metadata") is None:
        raise _damaged(f"{where}/metadata", "the file is missing")
    last = offsets[-1]
    if last > 0 and last not in commits and last - 1 not in offsets:
        raise _damaged(f"{where}/offsets", f"the offsets of micro-batch {last - 1} are missing")
    for number in offsets[-2:]:
        lines = (checkpoint.files.read(f"query/offsets/{number}") or "").splitlines()
        if len(lines) < 3 or any(_json(line) is None for line in lines[1:]):
            raise _damaged(f"{where}/offsets/{number}", "the file is damaged")
    for number in commits[-2:]:
        lines = (checkpoint.files.read(f"query/commits/{number}") or "").splitlines()
        if len(lines) < 2 or _json(lines[1]) is None:
            raise _damaged(f"{where}/commits/{number}", "the file is damaged")


def last_done(checkpoint: Checkpoint, *, is_live: bool) -> Done:
    """Return the progress after the last micro-batch that will not be repeated.

    Raises StateError: it is missing or damaged (E0702).
    """
    last = _last_done(checkpoint)
    if last < 0 and checkpoint.origin is None:
        return Done(last, Reached(is_live=is_live), {}, ended=False)
    found = recorded(checkpoint, last)
    if found is None:
        raise _damaged(f"{checkpoint.path}/{DONE}", f"it does not say what micro-batch {last} reached")
    return _done(last, found, is_live=is_live)


def _done(batch: int, entry: Sequence[Any], *, is_live: bool = False) -> Done:
    """Return what an entry of `DONE` records about a micro-batch."""
    reached, offsets, ended, parts, *more = entry  # earlier versions wrote only these four
    told = Reached.of_json(reached)
    watermark_us = END_OF_TIME_US if ended else told.watermark_us
    partitions = {name: Partition(*part) for name, part in parts.items()}
    waiting = Waiting.of_json(more[0]) if more else Waiting()
    waits = Waits(*more[1]) if len(more) > 1 and more[1] is not None else None
    days = more[2] if len(more) > 2 else {}
    reported = {rule: {int(day): n for day, n in of_rule.items()} for rule, of_rule in days.items()}
    now = Reached(watermark_us, told.latest, is_live, told.clocks)
    return Done(batch, now, {**offsets}, ended, partitions, waiting, waits, reported=reported)


def recorded(checkpoint: Checkpoint, batch: int) -> list[Any] | None:
    """Return what `write_done` recorded about a micro-batch; None if there is no such record.

    In a restored checkpoint, -1 is the micro-batch of the savepoint.

    Raises StateError: the records are damaged (E0702).
    """
    return _progress(checkpoint.files, checkpoint.path).get(str(batch))


def _progress(files: CheckpointFiles, path: str) -> dict[str, list[Any]]:
    """Return the entries of `DONE` by the number of the micro-batch. Raises StateError: damaged (E0702)."""

    def parsed(text: str) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = dict(json.loads(text).items())
        for number, entry in found.items():
            _done(int(number), entry)
        return found

    return read_sealed(files, DONE, parsed, _damaged(f"{path}/{DONE}", "the file is damaged")) or {}


def last_committed(checkpoint: Checkpoint) -> int:
    """Return the last micro-batch that Spark has finished; -1: there is none."""
    return max(_batches(checkpoint, "commits"), default=-1)


def write_done(checkpoint: Checkpoint, done: Done) -> None:
    """Record the progress after a micro-batch whose output is written."""
    kept: dict[str, list[Any]] = {}
    with suppress(StateError):  # it then has the entry of this micro-batch alone
        found = _progress(checkpoint.files, checkpoint.path)
        kept = {name: value for name, value in found.items() if _is_kept(int(name), done.batch)}
    parts = {name: astuple(part) for name, part in done.partitions.items()}
    more: list[Any] = [done.waiting.to_json()]
    if done.waits is not None or done.reported:
        more.append(None if done.waits is None else astuple(done.waits))
    if done.reported:
        more.append(done.reported)
    kept[str(done.batch)] = [done.reached.to_json(), dict(done.offsets), done.ended, parts, *more]
    write_sealed(checkpoint.files, DONE, json.dumps(kept))


def planned(checkpoint: Checkpoint, batch: int) -> Plan | None:
    """Return the stored plan of micro-batch `batch`, or None. Raises StateError: it is damaged (E0702)."""
    name = f"plan/{batch}.json"
    error = _damaged(f"{checkpoint.path}/{name}", "the file is damaged")
    return read_sealed(checkpoint.files, name, Plan.of_json, error)


def write_plan(checkpoint: Checkpoint, batch: int, plan: Plan) -> None:
    """Store the plan of micro-batch `batch`."""
    write_sealed(checkpoint.files, f"plan/{batch}.json", plan.to_json())
    for name in checkpoint.files.names("plan"):
        number = name.removesuffix(".json")
        if number.isdigit() and not _is_kept(int(number), batch):
            checkpoint.files.remove(f"plan/{name}")


def plan_for_tasks(checkpoint: Checkpoint, batch: int, plan: Plan) -> str:
    """Return the form of a plan that tasks get: the plan itself or, if it is long, the name of its file.

    Tasks cannot read the files of a checkpoint that only Spark can reach.
    """
    text = plan.to_json()
    is_short = len(text) <= MAX_INLINE or is_remote(checkpoint.path)
    return text if is_short else f"{checkpoint.path}/plan/{batch}.json"


def _is_kept(number: int, batch: int) -> bool:
    return batch - KEPT_BATCHES < number <= batch


def _last_done(checkpoint: Checkpoint) -> int:
    """Return the last micro-batch that will not be repeated, or -1."""
    offsets, commits = (_batches(checkpoint, folder) for folder in ("offsets", "commits"))
    if not offsets:
        return -1
    # Spark repeats the last planned one unless it is committed.
    return offsets[-1] if offsets[-1] in commits else offsets[-1] - 1


def _batches(checkpoint: Checkpoint, folder: str) -> list[int]:
    """Return the micro-batches in a folder of Spark's log, in order."""
    return sorted(int(name) for name in checkpoint.files.names(f"query/{folder}") if name.isdigit())


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _damaged(path: str, fact: str) -> StateError:
    return StateError("E0702", f"`{path}`: {fact}", _WAY_OUT)
