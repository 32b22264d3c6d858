"""The folder of a scenario's run: the pipeline file that works in it, and the results."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import yaml

RESULTS = ("matches", "late", "dead_letter", "checkpoint")
"""What a run leaves beside its `events`."""


def clear_results(out: Path) -> None:
    """Remove what an earlier run left in `out`: a finished checkpoint takes no more events."""
    for name in RESULTS:
        shutil.rmtree(out / name, ignore_errors=True)


def read_matches(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return `columns` of all matches below `path`: a Parquet file or the directory of a sink."""
    return ds.dataset(path, format="parquet").to_table(columns=list(columns))


def place_pipeline(pipeline: Path, out: Path, *, file_format: str, mode: str) -> Path:
    """Return a pipeline file that does what `pipeline` does, in `out`.

    That is `pipeline` itself where nothing differs; else a file written into `out`.
    """
    text = pipeline.read_text(encoding="utf-8")
    spec: dict[str, Any] = yaml.safe_load(text)
    home = pipeline.parent
    usual = (home / spec["checkpoint"]).resolve().parent
    if (out.resolve(), file_format, mode) == (usual, spec["source"]["format"], spec["mode"]):
        return pipeline

    def moved(path: str) -> str:
        return os.path.relpath((home / path).resolve(), usual)

    def from_out(path: str) -> str:
        return str((home / path).resolve())

    spec["streams"] = from_out(spec["streams"])
    spec["rules"] = [from_out(path) for path in spec["rules"]]
    spec["source"] |= {"format": file_format, "path": moved(spec["source"]["path"])}
    for sink in (*spec["sinks"], spec["late"], spec["dead_letter"]):
        if "path" in sink:
            sink["path"] = moved(sink["path"])
    spec["checkpoint"] = moved(spec["checkpoint"])
    spec["mode"] = mode
    if mode == "batch":
        # A batch reads all there is, once: it has no trigger, no checkpoint and no late events.
        for name in ("checkpoint", "trigger", "at_end", "late"):
            del spec[name]
        spec["source"].pop("max_files_per_trigger", None)
    out.mkdir(parents=True, exist_ok=True)
    placed = out / "pipeline.yaml"
    placed.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return placed
