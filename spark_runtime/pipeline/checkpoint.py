"""The checkpoint directory of a pipeline: Spark's own part, and everything that Spark does not know.

    <checkpoint>/rules.json          the rules: texts, streams, meaning of their stored state (`stored_rules`)
    <checkpoint>/pipeline.json       written at the first start: key groups, sources
    <checkpoint>/plan/<number>.json  what a micro-batch reads (`wire.plan`)
    <checkpoint>/done.json           progress after the last micro-batches
    <checkpoint>/delivered.json      which sinks contain a micro-batch (`delivering`)
    <checkpoint>/files/<stream>.log  files of a folder that were read (`file_log`)
    <checkpoint>/query               Spark's checkpoint of the query
    <checkpoint>/lock                held by the run that uses it (`lock`)
    <checkpoint>/lease/              the same on remote storage (`lease`)

Paths may be on any file system that Spark's Hadoop library supports; the lists of files exist only on local
disks.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
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
from spark_runtime.pipeline.stored_rules import FORMAT as RULES_FORMAT
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.storage.checkpoint_files import CheckpointFiles, is_remote
from spark_runtime.wire.plan import MAX_INLINE, Plan

_FORMAT = 4
"""Earlier versions: 1 had other key groups; in 2 Spark knew the sources by number; 3 had undivided state
and one watermark for all sources."""

_RULES = "rules.json"

NOTES = "delivered.json"
"""Which sinks contain the last micro-batch, for sinks that do not know it (`delivering`)."""

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
class Checkpoint:
    """An opened checkpoint directory."""

    path: str
    run_id: str  # names the directories that sinks write; the same after a restart
    n_groups: int
    files: CheckpointFiles

    @property
    def query_path(self) -> str:
        """Spark's part."""
        return f"{self.path}/query"

    def file_log(self, stream: str) -> str:
        """Return the path of the list of files that were read from a folder."""
        return f"{self.path}/files/{quote(stream, safe='')}.log"


def open_checkpoint(
    files: CheckpointFiles,
    path: str,
    rules: StoredRules,
    sources: Mapping[str, SourceIdentity],
    n_groups: int,
    *,
    accepts_source_change: bool = False,
) -> Checkpoint:
    """Return the checkpoint at `path`, creating it if missing. `sources` contains the source of each stream.

    Raises StateError: it belongs to other rules, other sources or another version.
    """
    given = {name: [source.file_format, source.place] for name, source in sorted(sources.items())}
    has_begun = any(map(str.isdigit, files.names("query/commits"))) or any(
        name.isdigit() and int(name) > 0 for name in files.names("query/offsets")
    )
    text = files.read("pipeline.json")
    if text is None and has_begun:
        raise _damaged(f"{path}/pipeline.json", "the file is missing, but the query has micro-batches")
    found = None if text is None else _known(text, path)
    before = _rules_before(files, path, has_begun=has_begun)
    if found is None or before is None or not has_begun:
        # Nothing was reported yet: what a run that failed or had other rules left behind does not matter.
        is_same = before is not None and before.fingerprints == rules.fingerprints
        if found is None or not is_same or found["sources"] != given:
            if files.names("query/offsets"):
                # A sink may contain the first micro-batch, and would mistake another one for it.
                found = None
            for part in ("query", "files", "plan", NOTES):
                files.remove(part)
        run = new_name() if found is None else found["run"]
        found = {"format": _FORMAT, "sources": given, "run": run, "key_groups": n_groups}
        files.write(_RULES, rules.to_json())
        files.write("pipeline.json", json.dumps(found))
        return Checkpoint(path, str(run), n_groups, files)
    if before.fingerprints != rules.fingerprints:
        raise StateError(
            "E0701",
            f"the checkpoint `{path}` was written by other rules: "
            f"{differences(before.programs, rules.programs)}",
            "give the changed rules a checkpoint directory of their own, where matching starts afresh; "
            f"or go on with the rules as they were, whose texts are in {_RULES} there",
        )
    if found["sources"] != given:
        if not accepts_source_change:
            raise _other_source(path, found["sources"], sources)
        files.write("pipeline.json", json.dumps({**found, "sources": given}))
    if before != rules:  # in ways that do not affect stored state
        files.write(_RULES, rules.to_json())
    return Checkpoint(path, str(found["run"]), int(found["key_groups"]), files)


def read_checkpoint(files: CheckpointFiles, path: str) -> tuple[Checkpoint, StoredRules]:
    """Return the checkpoint at `path`, of which nothing is changed, and its rules.

    Raises StateError: it has no micro-batches (E0705), it is damaged (E0702), or of another version (E0706).
    """
    text = files.read("pipeline.json")
    has_begun = any(map(str.isdigit, files.names("query/commits")))
    rules = _rules_before(files, path, has_begun=True) if text is not None and has_begun else None
    if text is None or rules is None:
        raise StateError(
            "E0705",
            f"`{path}` is not the checkpoint of a pipeline that has finished a micro-batch",
            "give the folder that `checkpoint` in the pipeline file names",
        )
    found = _known(text, path)
    return Checkpoint(path, str(found["run"]), int(found["key_groups"]), files), rules


def renamed(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Return a checkpoint under a name for which no sink contains rows."""
    found = {**_known(checkpoint.files.read("pipeline.json") or "", checkpoint.path), "run": name}
    checkpoint.files.write("pipeline.json", json.dumps(found))
    return replace(checkpoint, run_id=name)


def new_name() -> str:
    """Return a name for a run that no sink knows."""
    return uuid.uuid4().hex[:8]


def _known(text: str, path: str) -> dict[str, Any]:
    found = _json(text)
    is_sound = isinstance(found, dict) and isinstance(found.get("format"), int)
    if not is_sound or found["format"] != _FORMAT:
        has = f"has format {found['format']}" if is_sound else "does not say its format"
        raise _other_version(path, f"{has}, this version reads {_FORMAT}")
    known: dict[str, Any] = found
    return known


def _rules_before(files: CheckpointFiles, path: str, *, has_begun: bool) -> StoredRules | None:
    """Return the rules that wrote the checkpoint; None if they are not recorded and nothing was computed."""
    text = files.read(_RULES)
    found = None if text is None else _json(text)
    if isinstance(found, dict) and found.get("format") == RULES_FORMAT:
        try:
            return StoredRules.of_json(found)
        except (ValueError, KeyError, TypeError, AttributeError):
            found = None
    if not has_begun:
        return None
    if isinstance(found, dict) and isinstance(found.get("format"), int):
        has = f"has format {found['format']} in {_RULES}"
        raise _other_version(path, f"{has}, this version reads {RULES_FORMAT}")
    fact = "the file is missing, but the query has micro-batches" if text is None else "the file is damaged"
    raise _damaged(f"{path}/{_RULES}", fact)


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
        name for name in now if list(before.get(name, ())) != [now[name].file_format, now[name].place]
    )
    was = SourceIdentity(*before[name]) if name in before else "not there"
    return StateError(
        "E0710",
        f"the source of stream `{name}` was `{was}` when the checkpoint `{path}` was written, "
        f"now it is `{now[name]}`",
        "if the files have moved, run with --accept-source-change: files with the names and the content of "
        "those that were read are not read again, all others are; else start with an empty checkpoint",
    )


# ---------------------------------------------------------------- Spark's part


def check_query_log(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose query cannot continue, before Spark fails with an error of its own.

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
    """Return the progress after the last micro-batch that will not be repeated."""
    last = _last_done(checkpoint)
    if last < 0:
        return Done(last, Reached(is_live=is_live), {}, ended=False)
    found = _json(checkpoint.files.read("done.json") or "")
    if not isinstance(found, dict) or str(last) not in found:
        raise _damaged(f"{checkpoint.path}/done.json", f"it does not say what micro-batch {last} reached")
    reached, offsets, ended, parts, *more = found[str(last)]  # earlier versions wrote only these four
    told = Reached.of_json(reached)
    watermark_us = END_OF_TIME_US if ended else told.watermark_us
    partitions = {name: Partition(*part) for name, part in parts.items()}
    waiting = Waiting.of_json(more[0]) if more else Waiting()
    waits = Waits(*more[1]) if len(more) > 1 else None
    now = Reached(watermark_us, told.latest, is_live, told.clocks)
    return Done(last, now, offsets, ended, partitions, waiting, waits)


def write_done(checkpoint: Checkpoint, done: Done) -> None:
    """Record the progress after a micro-batch whose output is written."""
    found = _json(checkpoint.files.read("done.json") or "{}")
    kept = found if isinstance(found, dict) else {}
    kept = {name: value for name, value in kept.items() if _is_kept(int(name), done.batch)}
    parts = {name: astuple(part) for name, part in done.partitions.items()}
    more = [done.waiting.to_json(), *([] if done.waits is None else [astuple(done.waits)])]
    kept[str(done.batch)] = [done.reached.to_json(), dict(done.offsets), done.ended, parts, *more]
    checkpoint.files.write("done.json", json.dumps(kept))


def planned(checkpoint: Checkpoint, batch: int) -> Plan | None:
    """Return the stored plan of micro-batch `batch`, or None."""
    text = checkpoint.files.read(f"plan/{batch}.json")
    return None if text is None else Plan.of_json(text)


def write_plan(checkpoint: Checkpoint, batch: int, plan: Plan) -> None:
    """Store the plan of micro-batch `batch`."""
    checkpoint.files.write(f"plan/{batch}.json", plan.to_json())
    for name in checkpoint.files.names("plan"):
        number = name.removesuffix(".json")
        if number.isdigit() and not _is_kept(int(number), batch):
            checkpoint.files.remove(f"plan/{name}")


def plan_for_tasks(checkpoint: Checkpoint, batch: int, plan: Plan) -> str:
    """Return the form of a plan that tasks get: the plan, or the name of its file if it is long.

    Tasks cannot read a file of a checkpoint that only Spark reaches.
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
    except ValueError:
        return None


def _damaged(path: str, fact: str) -> StateError:
    return StateError("E0702", f"`{path}`: {fact}", _WAY_OUT)
