"""Makes a checkpoint from a savepoint, without Spark.

Nobody but Spark writes its state store, so the query of a restored checkpoint is a new one. Its first
micro-batch reads no input: each key group gets its state from a file below the checkpoint
(`state.restored`), and Spark the event time that was reached. A new query has a new name, so sinks do not
mistake its micro-batches for earlier ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from cep.rulebook import compile_texts
from spark_runtime.pipeline.checkpoint import DONE, PIPELINE, Origin, SourceIdentity, new_name, pipeline_json
from spark_runtime.pipeline.checkpoint import RULES as RULES_OF_CHECKPOINT
from spark_runtime.pipeline.savepoint import RULES, SOURCES, Manifest, Savepoint, new_folder, opened
from spark_runtime.state.restored import FOLDER, add_part
from spark_runtime.state.snapshots import divided_state
from spark_runtime.wire.key_groups import labels
from spark_runtime.wire.packer import groups_of


class RestoredCheckpoint(NamedTuple):
    """What was restored: the manifest of the savepoint, and the number of key groups."""

    manifest: Manifest
    n_groups: int


def restore(folder: str, path: str, n_groups: int | None = None) -> RestoredCheckpoint:
    """Write a checkpoint at `path` that continues from the savepoint in `folder`.

    `n_groups` is the number of key groups; None: that of the savepoint.

    Raises
    ------
    StateError
        The savepoint cannot be read (E0714), or the target is not empty (E0716).
    """
    savepoint = opened(folder)
    manifest = savepoint.manifest
    for name in manifest.files:
        savepoint.data(name)
    n_groups = manifest.key_groups if n_groups is None else n_groups
    with new_folder(path) as place:
        groups = _restore_groups(savepoint, place / FOLDER, n_groups)
        (place / RULES_OF_CHECKPOINT).write_bytes(savepoint.data(RULES))
        for name in manifest.files:
            if name.startswith(f"{SOURCES}/"):
                file = place / "files" / name.removeprefix(f"{SOURCES}/")
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(savepoint.data(name))
        (place / DONE).write_text(json.dumps({"-1": _progress(manifest)}))
        sources = {
            name: SourceIdentity(source.format, source.place) for name, source in manifest.sources.items()
        }
        origin = Origin(manifest.run, manifest.micro_batch, groups)
        (place / PIPELINE).write_text(pipeline_json(sources, new_name(), n_groups, origin))
    return RestoredCheckpoint(manifest, n_groups)


def _progress(manifest: Manifest) -> list[Any]:
    """Return the progress as the checkpoint records it (`write_done`).

    Key groups report what waits in them in the first micro-batch.
    """
    told = manifest.progress
    offsets = {name: of.position for name, of in manifest.sources.items() if of.position is not None}
    *_, given_up, n_next = told["waiting"] or [{}, {}, [], 1]
    waits = [] if told["waits"] is None else [[told["waits"][0], None]]
    return [
        json.dumps(told["reached"]),
        offsets,
        told["ended"],
        told["partitions"],
        [{}, {}, given_up, n_next],
        *waits,
    ]


def _restore_groups(savepoint: Savepoint, folder: Path, n_groups: int) -> frozenset[int]:
    """Write the state of key groups; return the labels of those that have any."""
    if n_groups == savepoint.manifest.key_groups:
        found = set()
        for label, data in savepoint.groups():
            add_part(folder, label, data)
            found.add(label)
        return frozenset(found)
    stored = savepoint.rules()
    rules = compile_texts(stored.texts, stored.streams).rule_set
    now = labels(n_groups, n_groups)
    is_first = True
    for _, data in savepoint.groups():
        for label, part in zip(
            now, divided_state(data, rules, groups_of(rules, n_groups), n_groups), strict=True
        ):
            if is_first or not part.is_empty:  # what all keys share is needed once in each group
                add_part(folder, label, part.data)
        is_first = False
    return frozenset() if is_first else frozenset(now)
