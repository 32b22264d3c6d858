"""A shadow rule next to a live one, on the same stream: the alerts that it would add and remove.

The matches are those that the pipeline has written: of live rules to its log or a sink of files, of shadow
rules to the sink `shadow`. Each rule has its own match ids. So two matches are the same if they have the same
key and the same times.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from cep.output.compare import Fired, compare
from cep.program.changes import BEGINNING
from spark_runtime.pipeline.checkpoint import recorded_rules
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.stored_state import files_of
from spark_runtime.storage.checkpoint_files import is_remote

_COLUMNS = ("rule", "match_start", "match_end")


def beside(pipeline: Pipeline, shadow: str, live: str) -> tuple[Fired, ...]:
    """Return the matches that a shadow rule adds and lacks, compared with a live rule of the same key.

    Only matches that begin after both rules did are compared. Raises StateError: the checkpoint cannot be
    read (E0705).
    """
    begins = _begins(pipeline, (shadow, live))
    programs = pipeline.rules.programs
    (program,) = (each for each in programs if shadow in (rule.name for rule in each.rules))
    rules = replace(pipeline.rules, programs=(program,))
    tables = []
    for folders, rule in ((live_folders(pipeline), live), (shadow_folders(pipeline), shadow)):
        rows = _rows(folders[0], rule, program.key)
        found = [{**row, "rule": shadow} for row in rows if begins is None or row["match_start"] > begins]
        names = ("rule", "match_id", "match_start", "match_end", *program.key)
        tables.append(pa.table({name: [row[name] for row in found] for name in names}))
    return compare(rules, tables[0], rules, tables[1])


def live_folders(pipeline: Pipeline) -> list[str]:
    """Return the folders on this machine with the matches of live rules: the log, some sinks of files."""
    log = [] if pipeline.log is None else [pipeline.log.path]
    return [*log, *_folders(pipeline.sinks)]


def shadow_folders(pipeline: Pipeline) -> list[str]:
    """Return the folder on this machine with the matches of shadow rules, if there is one."""
    return _folders([pipeline.shadow])


def _folders(specs: Collection[object]) -> list[str]:
    found = (
        str(getattr(spec, "path", ""))
        for spec in specs
        if f".{getattr(getattr(spec, 'writer', None), 'name', '')}" in _READERS
    )
    return [folder for folder in found if not is_remote(folder)]


def _files(folder: str) -> list[Path]:
    """Return the files of complete micro-batches."""
    return [file for file in sorted(Path(folder).glob("batch=*/part-*")) if file.suffix in _READERS]


def _begins(pipeline: Pipeline, rules: Collection[str]) -> datetime | None:
    """Return the time after which all of some rules see events; None: they always did."""
    history = recorded_rules(files_of(pipeline.checkpoint), pipeline.checkpoint)
    times_us = [
        generation.begins_us
        for generation in history
        for change in generation.changes
        if change.rule in rules and change.verdict in BEGINNING and generation.begins_us is not None
    ]
    return datetime.fromtimestamp(max(times_us) / 1e6, UTC) if times_us else None


def _rows(folder: str, rule: str, key: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the matches of a rule; values of keys are texts, as files of all formats have them."""
    for file in _files(folder):
        for row in _READERS[file.suffix](file, (*_COLUMNS, *key)):
            if row["rule"] == rule:
                times = {name: _time(row[name]) for name in _COLUMNS[1:]}
                texts = {name: None if row.get(name) is None else str(row[name]) for name in key}
                place = " ".join(map(str, times.values()))
                yield {"rule": rule, "match_id": place, **times, **texts}


def _time(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _of_parquet(file: Path, columns: Collection[str]) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    opened = pq.ParquetFile(file)
    known = [name for name in columns if name in opened.schema_arrow.names]
    rows: list[dict[str, Any]] = opened.read(known).to_pylist()
    return rows


def _of_json(file: Path, columns: Collection[str]) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


_READERS = {".parquet": _of_parquet, ".json": _of_json}
