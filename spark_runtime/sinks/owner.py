"""The owner of a folder of files: the micro-batch of a stream or the batch that wrote it.

A file in the folder, which readers ignore, names the owner:

    <folder>/batch=<micro-batch>/_written_by
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cep.errors import InputError
from spark_runtime.sinks.protocol import MicroBatch

WRITTEN_BY = "_written_by"  # without an extension: other programs may read all of `batch=*/*.json`


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline that runs as a batch: its results replace only its own earlier results.

    `pipeline`: the path of its file. `sources`: by stream or table, the format and the place of its source.
    """

    pipeline: str
    sources: Mapping[str, tuple[str, str]]

    def said(self, path: str, kind: str) -> dict[str, Any]:
        """Return how a folder at `path` names this owner; moving everything together does not change it."""

        def near(place: str) -> str:
            is_near = os.path.isabs(place) and "://" not in path
            return os.path.relpath(place, path) if is_near else place

        sources = {name: f"{kind} {near(place)}".strip() for name, (kind, place) in self.sources.items()}
        return {"pipeline": near(self.pipeline), "output": kind, "sources": sources}

    def require(self, path: str, kind: str, there: str, text: str | None) -> None:
        """Raise InputError (E0887) if the result at `there` belongs to another pipeline.

        `text` is the owner named there; None if the result is missing or an earlier version wrote it.
        """
        try:
            found = json.loads(text or "")
            found = {name: found[name] for name in ("pipeline", "output", "sources")}
        except (ValueError, TypeError, KeyError):
            return
        if found == self.said(path, kind):
            return
        sources = ", ".join(f"{name}: {place}" for name, place in dict(found["sources"]).items())
        raise InputError(
            "E0887",
            f"`{there}` is the result of another batch, which would be replaced: of `{found['pipeline']}`, "
            f"which read {sources}",
            "name another folder; or remove that result first, if nobody needs it",
        )


def text_of(batch: MicroBatch, path: str, kind: str, owner: Owner | None) -> str:
    """Return the text that names the owner in the folder of a micro-batch."""
    if batch.run is not None:
        found = {"run": batch.run, "micro_batch": batch.number, "plan": batch.plan, "output": kind}
        return json.dumps(found)
    return json.dumps({} if owner is None else owner.said(path, kind))


def plan_of(text: str | None) -> str:
    """Return the plan of a micro-batch from the text in its folder; empty if the text has none."""
    return _value_of("plan", text)


def output_of(text: str | None) -> str:
    """Return the kind of rows from the text in a folder; empty if an earlier version wrote it."""
    return _value_of("output", text)


def _value_of(name: str, text: str | None) -> str:
    try:
        return str(json.loads(text or "{}").get(name, ""))
    except (ValueError, AttributeError):
        return ""
