"""The folder in which a scenario runs: its pipeline file, and the results of the run."""

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
"""Folders that a run writes beside its `events`."""


def clear_results(out: Path) -> None:
    """Remove the results of an earlier run from `out`. A finished checkpoint would accept no more events."""
    for name in RESULTS:
        shutil.rmtree(out / name, ignore_errors=True)


def read_matches(path: Path, columns: Sequence[str]) -> pa.Table:
    """Return `columns` of all matches below `path`: a Parquet file or the directory of a sink."""
    return ds.dataset(path, format="parquet").to_table(columns=list(columns))


def place_pipeline(
    pipeline: Path,
    out: Path,
    *,
    file_format: str,
    mode: str,
    files_per_trigger: int | None = None,
    to_console: bool = True,
) -> Path:
    """Return a pipeline file that does the same as `pipeline`, in the folder `out`.

    It is `pipeline` itself if nothing differs, and otherwise a new file in `out`. If `files_per_trigger` is
    None, the number in `pipeline` stays.
    """
    text = pipeline.read_text(encoding="utf-8")
    spec: dict[str, Any] = yaml.safe_load(text)
    home = pipeline.parent
    usual = (home / spec["checkpoint"]).resolve().parent
    sources = spec["sources"] if "sources" in spec else [spec["source"]]
    wanted = (out.resolve(), file_format, mode, files_per_trigger, to_console)
    if wanted == (usual, sources[0]["format"], spec["mode"], None, True):
        return pipeline

    def moved(path: str) -> str:
        return os.path.relpath((home / path).resolve(), usual)

    def from_out(path: str) -> str:
        return str((home / path).resolve())

    spec["streams"] = from_out(spec["streams"])
    spec["rules"] = [from_out(path) for path in spec["rules"]]
    for source in sources:
        if (home / source["path"]).resolve().is_relative_to(usual):
            source |= {"format": file_format, "path": moved(source["path"])}
        else:  # it exists, not generated
            source["path"] = from_out(source["path"])
        if files_per_trigger is not None and "stream" in source:
            source["max_files_per_trigger"] = files_per_trigger
    spec["sinks"] = [sink for sink in spec["sinks"] if to_console or "path" in sink]
    for sink in (*spec["sinks"], spec["late"], spec["dead_letter"]):
        if "path" in sink:
            sink["path"] = moved(sink["path"])
    spec["checkpoint"] = moved(spec["checkpoint"])
    spec["mode"] = mode
    out.mkdir(parents=True, exist_ok=True)
    placed = out / "pipeline.yaml"
    placed.write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    return placed
