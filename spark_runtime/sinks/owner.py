"""Who has written a folder of files: a micro-batch of a stream, or a batch.

It stands in the folder, in a file that readers pass over:

    <folder>/batch=<micro-batch>/_written_by

Executors read this: it imports nothing of the compiler.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cep.errors import InputError
from spark_runtime.sinks.protocol import MicroBatch

WRITTEN_BY = "_written_by"  # has no ending: other programs may read all of `batch=*/*.json`


@dataclass(frozen=True, slots=True)
class Owner:
    """A pipeline that runs as a batch: its results take the place of its own earlier ones, and of no others.

    Parameters
    ----------
    pipeline
        The path of its file.
    sources
        By stream or table, the format and the place of its source.
    """

    pipeline: str
    sources: Mapping[str, tuple[str, str]]

    def said(self, path: str, kind: str) -> dict[str, Any]:
        """Return what a folder at `path` says of it; the same when everything is moved together."""

        def near(place: str) -> str:
            is_near = os.path.isabs(place) and "://" not in path
            return os.path.relpath(place, path) if is_near else place

        sources = {name: f"{kind} {near(place)}".strip() for name, (kind, place) in self.sources.items()}
        return {"pipeline": near(self.pipeline), "output": kind, "sources": sources}

    def require(self, path: str, kind: str, there: str, text: str | None) -> None:
        """Raise InputError (E0887) if a result at `there` is of another pipeline.

        `text` is what the result says; None: it is not there, or is of an earlier version.
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
    """Return what the folder of a micro-batch says."""
    if batch.run is not None:
        return json.dumps({"run": batch.run, "micro_batch": batch.number, "plan": batch.plan})
    return json.dumps({} if owner is None else owner.said(path, kind))


def plan_of(text: str | None) -> str:
    """Return the plan of a micro-batch from what its folder says; empty: it does not say it."""
    try:
        return str(json.loads(text or "{}").get("plan", ""))
    except (ValueError, AttributeError):
        return ""
