"""Writes a savepoint of a checkpoint, even while a run is using it.

The micro-batch of a savepoint is the last one that Spark has finished. A run records its progress before
that, and Spark retains the state of a hundred micro-batches, so progress and state belong together while the
run continues.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cep.errors import StateError
from cep.schema.time_literals import time_for_people
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.checkpoint import (
    Checkpoint,
    SourceIdentity,
    last_committed,
    read_checkpoint,
    recorded,
    rules_after,
    source_identities,
)
from spark_runtime.pipeline.course import course_text, read_course
from spark_runtime.pipeline.gaps import ledger_json, stored_entries
from spark_runtime.pipeline.generations import all_generations
from spark_runtime.pipeline.portable import portable, without_paths
from spark_runtime.pipeline.rule_places import without_folder
from spark_runtime.pipeline.savepoint import (
    COURSE,
    GAPS,
    GROUPS,
    HISTORY,
    MANIFEST,
    RULES,
    SOURCES,
    Manifest,
    SavedFile,
    SavedSource,
    new_folder,
    saved_file,
)
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.pipeline.stored_state import errors_of_storage, files_of, stored_values
from spark_runtime.sources.registry import source_type
from spark_runtime.sources.spec import BoundSource
from spark_runtime.state.contents import programs_in

_LOOKS = 5
"""How often the progress is read at most: that of a finished micro-batch is kept for two more."""

_ATTEMPTS = 3
"""How often a savepoint is begun at most, if the run removes what is being read."""

_LINES_OF_OFFSETS = 3
"""Lines of Spark's log of a micro-batch: version, settings, and the source that gives us our tasks."""


class _OvertakenError(StateError):
    """The run has gone on, and what was being read is gone."""


def save(path: str, folder: str) -> Manifest:
    """Write a savepoint of the checkpoint at `path` to `folder`, and return its manifest.

    Raises StateError: the checkpoint cannot be read (E0702, E0705, E0706), the position of a source cannot be
    saved (E0715), or the folder is not empty (E0716).
    """
    for _ in range(_ATTEMPTS - 1):
        with suppress(_OvertakenError):
            return _saved(path, folder)
    return _saved(path, folder)


def _saved(path: str, folder: str) -> Manifest:
    with errors_of_storage(path):
        checkpoint, _ = read_checkpoint(files_of(path), path)
        batch, progress = _progress(checkpoint)
        rules = rules_after(checkpoint, batch).stored.rules
        sources = source_identities(checkpoint)
        require_saved_positions(checkpoint, batch, sources)
    try:
        with new_folder(folder) as place, errors_of_storage(path):
            return _written(checkpoint, rules, sources, batch, progress, place)
    except StateError as error:
        n_more = last_committed(checkpoint) - batch if error.code == "E0702" else 0
        if not n_more:
            raise
        raise _OvertakenError(
            "E0702",
            f"`{path}` removed state of micro-batch {batch} while it was saved: {n_more} more were computed",
            "save it again while fewer are computed; or let Spark retain more with the setting "
            "`spark.sql.streaming.minBatchesToRetain`",
        ) from error


def _progress(checkpoint: Checkpoint) -> tuple[int, list[Any]]:
    """Return the last finished micro-batch, and what is recorded of it."""
    for _ in range(_LOOKS):
        batch = last_committed(checkpoint)
        found = recorded(checkpoint, batch)
        if found is not None:
            return batch, found
    raise StateError(
        "E0702",
        f"`{checkpoint.path}` does not say what micro-batch {batch} reached",
        "restore the checkpoint directory as a whole, or start with an empty one",
    )


def require_saved_positions(checkpoint: Checkpoint, batch: int, sources: dict[str, SourceIdentity]) -> None:
    """Raise StateError if the position of a source is not in our part of the checkpoint."""
    for stream, source in sources.items():
        kind = source_type(source.file_format)
        if isinstance(kind, BoundSource):
            raise StateError(
                "E0715",
                f"a savepoint cannot contain the position of stream `{stream}` ({source}): {kind.bound_by}",
                "move the checkpoint itself, as a whole",
            )
    offsets = (checkpoint.files.read(f"query/offsets/{batch}") or "").splitlines()
    if len(offsets) > _LINES_OF_OFFSETS:
        raise StateError(
            "E0715",
            "a savepoint cannot contain the position of a source that only Spark reads",
            "move the checkpoint itself, as a whole; or read files on a mounted disk, and Kafka without "
            "`via: spark`",
        )


def _written(
    checkpoint: Checkpoint,
    rules: StoredRules,
    sources: dict[str, SourceIdentity],
    batch: int,
    progress: list[Any],
    place: Path,
) -> Manifest:
    """Write the files of a savepoint; the manifest is the last one."""
    files: dict[str, SavedFile] = {}

    def write(name: str, data: bytes) -> None:
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        files[name] = saved_file(data)

    history = all_generations(checkpoint.files)[: rules_after(checkpoint, batch).stored.number + 1]
    saved, *earlier = without_folder([rules, *(generation.rules for generation in history)])
    write(RULES, saved.to_json().encode())
    rule_set = rules.rule_set()
    for value in stored_values(checkpoint, rule_set, batch):
        for _ in programs_in(value.data, rule_set):
            pass  # a savepoint of damaged state, or of other rules, is worth nothing
        write(f"{GROUPS}/{value.group}", value.data)
    for generation, known in zip(history, earlier, strict=True):
        write(f"{HISTORY}/{generation.number}.json", replace(generation, rules=known).to_json().encode())
    entries = stored_entries(checkpoint.files, batch)
    if entries and history:
        write(GAPS, ledger_json(entries).encode())
    course = [mark for mark in read_course(checkpoint.path) if mark.batch <= batch]
    if course:
        write(COURSE, course_text(course).encode())
    for stream in sources:
        name = f"{quote(stream, safe='')}.log"
        log = checkpoint.files.read_bytes(f"files/{name}")
        if log is not None:
            write(f"{SOURCES}/{name}", log)
    reached_text, offsets, ended, parts, *more = progress
    reached = Reached.of_json(reached_text)
    named = {
        "reached": [reached.watermark_us, reached.latest, reached.is_live, dict(reached.clocks)],
        "ended": ended,
        "partitions": parts,
        "waiting": more[0] if more else None,
        "waits": more[1] if len(more) > 1 else None,
        "reported": more[2] if len(more) > 2 else {},
    }
    manifest = Manifest(
        run=checkpoint.run_id,
        micro_batch=batch,
        watermark=None if reached.watermark_us is None else time_for_people(reached.watermark_us),
        key_groups=checkpoint.n_groups,
        rules={rule.name: rule.fingerprint.hex() for program in rules.programs for rule in program.rules},
        sources={
            name: SavedSource(source.file_format, portable(source.place), offsets.get(name))
            for name, source in sources.items()
        },
        progress=without_paths(named, {name: source.place for name, source in sources.items()}),
        files=files,
    )
    (place / MANIFEST).write_text(manifest.to_json())
    return manifest
