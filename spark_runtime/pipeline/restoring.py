"""Creates a checkpoint from a savepoint, without Spark.

Only Spark can write its state store, so the query of a restored checkpoint is a new one. Its first
micro-batch reads no input: each key group gets its state from a file below the checkpoint
(`state.restored`), and Spark the event time that was reached. A new query has a new name, so sinks do not
mistake its micro-batches for earlier ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.program.changes import Changes, changes_of
from cep.rule_set import RuleSet
from cep.settings.file_mode import PRIVATE
from spark_runtime.pipeline.cause import cause_of
from spark_runtime.pipeline.checkpoint import DONE, PIPELINE, Origin, SourceIdentity, new_name, pipeline_json
from spark_runtime.pipeline.checkpoint import GAPS as GAPS_OF_CHECKPOINT
from spark_runtime.pipeline.checkpoint import RULES as RULES_OF_CHECKPOINT
from spark_runtime.pipeline.course import FILE as COURSE_OF_CHECKPOINT
from spark_runtime.pipeline.course import course_text, marks_of
from spark_runtime.pipeline.gaps import before_all
from spark_runtime.pipeline.generations import require_continues, require_same_inputs, write_generation
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.savepoint import (
    COURSE,
    GAPS,
    RULES,
    SOURCES,
    Manifest,
    Savepoint,
    new_folder,
    opened,
)
from spark_runtime.pipeline.stored_rules import StoredRules
from spark_runtime.state.restored import FOLDER, add_part
from spark_runtime.state.snapshots import changed_state, divided_state
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.storage.sealed import write_sealed
from spark_runtime.wire.key_groups import labels, require_few
from spark_runtime.wire.packer import groups_of


class RestoredCheckpoint(NamedTuple):
    """What was restored: the manifest of the savepoint, the number of key groups, the changes of rules."""

    manifest: Manifest
    n_groups: int
    changes: Changes


def restore(
    folder: str, path: str, n_groups: int | None = None, pipeline: Pipeline | None = None
) -> RestoredCheckpoint:
    """Write a checkpoint at `path` that continues from the savepoint in `folder`.

    Raises StateError: the savepoint cannot be read (E0714), the target is not empty (E0716), or the state
    cannot continue under the rules of the pipeline (E0701).

    `n_groups`: the number of key groups; None: that of the savepoint. `pipeline`: the pipeline with whose
    rules the checkpoint continues, and whose `file_mode` it gets; None: with those of the savepoint, and only
    this user may read it.
    """
    savepoint = opened(folder)
    manifest = savepoint.manifest
    for name in manifest.files:
        savepoint.data(name)
    n_groups = manifest.key_groups if n_groups is None else require_few(n_groups, "the number of key groups")
    before = savepoint.rule_set()
    now = before if pipeline is None else pipeline.rules
    changes = changes_of(before.programs, now.programs)
    require_continues(changes)
    require_same_inputs(changes)  # nobody knows the position of others
    with new_folder(path, PRIVATE if pipeline is None else pipeline.file_mode) as place:
        groups = _restore_groups(savepoint, before, now, place / FOLDER, n_groups)
        texts = savepoint.data(RULES)
        if pipeline is not None:
            texts = StoredRules.of(pipeline.texts, now).to_json().encode()
        files = LocalFiles(str(place))
        write_sealed(files, RULES_OF_CHECKPOINT, texts.decode())
        for name in manifest.files:
            if name.startswith(f"{SOURCES}/"):
                file = place / "files" / name.removeprefix(f"{SOURCES}/")
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(savepoint.data(name))
        _restore_history(savepoint, files, changes, texts)
        if COURSE in manifest.files:
            marks = marks_of(savepoint.data(COURSE), f"{folder}/{COURSE}")
            # The last micro-batch of the savepoint is now -1, and the others come before it.
            earlier = [replace(mark, batch=mark.batch - manifest.micro_batch - 1) for mark in marks]
            (place / COURSE_OF_CHECKPOINT).write_text(course_text(earlier))
        write_sealed(files, DONE, json.dumps({"-1": _progress(manifest)}))
        sources = {
            name: SourceIdentity(source.format, source.place) for name, source in manifest.sources.items()
        }
        origin = Origin(manifest.run, manifest.micro_batch, groups)
        write_sealed(files, PIPELINE, pipeline_json(sources, new_name(), n_groups, origin))
    return RestoredCheckpoint(manifest, n_groups, changes)


def _restore_history(savepoint: Savepoint, files: LocalFiles, changes: Changes, texts: bytes) -> None:
    """Write which rules ran and what they did not see, all of it before the first micro-batch.

    `texts` are the rules that continue, in the form of `StoredRules.to_json`.
    """
    history = [replace(generation, batch=-1) for generation in savepoint.history()]
    if not history:
        return
    now = StoredRules.of_json(json.loads(texts))
    if now.version != history[-1].rules.version:
        history.append(history[-1].following(now, -1, savepoint.reached, changes, cause_of(now.texts)))
    for generation in history:
        write_generation(files, generation)
    if GAPS in savepoint.manifest.files:
        write_sealed(files, GAPS_OF_CHECKPOINT, before_all(savepoint.data(GAPS).decode()))


def _progress(manifest: Manifest) -> list[Any]:
    """Return the progress as the checkpoint records it (`write_done`).

    Key groups report what waits in them in the first micro-batch.
    """
    told = manifest.progress
    offsets = {name: of.position for name, of in manifest.sources.items() if of.position is not None}
    *_, given_up, n_next = told["waiting"] or [{}, {}, [], 1]
    waits = None if told["waits"] is None else [told["waits"][0], None]
    return [
        json.dumps(told["reached"]),
        offsets,
        told["ended"],
        told["partitions"],
        [{}, {}, given_up, n_next],
        waits,
        told.get("reported", {}),
    ]


def _states(savepoint: Savepoint, before: RuleSet, now: RuleSet) -> Iterator[tuple[int, bytes]]:
    """Yield the label and the state of each key group under the rules `now`, one at a time."""
    if now is before:
        yield from savepoint.groups()
        return
    n_groups, read_until_us = savepoint.manifest.key_groups, savepoint.reached.read_until_us
    begins_us = START_OF_TIME_US if read_until_us is None else read_until_us
    without = set(labels(n_groups, n_groups))
    for label, data in savepoint.groups():
        without.discard(label)
        yield label, changed_state(data, before, now, n_groups, begins_us)
    for label in sorted(without):  # new rules begin there at the same time
        yield label, changed_state(None, before, now, n_groups, begins_us)


def _restore_groups(
    savepoint: Savepoint, before: RuleSet, now: RuleSet, folder: Path, n_groups: int
) -> frozenset[int]:
    """Write the state of key groups; return the labels of those that have any."""
    states = _states(savepoint, before, now)
    if n_groups == savepoint.manifest.key_groups:
        found = set()
        for label, data in states:
            add_part(folder, label, data)
            found.add(label)
        return frozenset(found)
    labels_now = labels(n_groups, n_groups)
    is_first = True
    for _, data in states:
        parts = divided_state(data, now, groups_of(now, n_groups), n_groups)
        for label, part in zip(labels_now, parts, strict=True):
            if is_first or not part.is_empty:  # what all keys share is needed once in each group
                add_part(folder, label, part.data)
        is_first = False
    return frozenset() if is_first else frozenset(labels_now)
