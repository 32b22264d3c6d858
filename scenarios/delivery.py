"""Delivery of generated events in files: the order of arrival, JSON lines, Parquet, and the manifest.

The order of the files, and of the lines inside a file, is the order of arrival. All events but the stragglers
arrive within the lateness that the stream declares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cep.arrays import I64

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of the events that arrive beyond the lateness or twice, and of additional malformed lines."""

    stragglers: float = 0.0005
    duplicates: float = 0.005
    malformed: float = 0.001


@dataclass(frozen=True, slots=True)
class Delays:
    """How late events arrive, in microseconds."""

    usual: int
    """Average of the delays of events that are not held up."""
    held_up: int
    """Upper bound of all delays but those of stragglers."""
    straggling: tuple[int, int]
    again: int
    """Upper bound of the time from the first delivery to the second."""
    held_up_share: float = 0.05


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Row numbers of the events in the order of arrival. An event that is delivered twice occurs twice."""

    row: I64
    n_stragglers: int
    n_duplicates: int


def draw_deliveries(
    rng: np.random.Generator, ts_us: I64, may_straggle: Mask, faults: Faults, delays: Delays
) -> Deliveries:
    """Return the order in which events with these times arrive."""
    n = len(ts_us)
    delay_us = (rng.exponential(1.0, n) * delays.usual).astype(np.int64)
    held_up = rng.random(n) < delays.held_up_share
    delay_us[held_up] = rng.integers(0, delays.held_up, int(held_up.sum()))
    delay_us = np.minimum(delay_us, delays.held_up)
    straggles = (rng.random(n) < faults.stragglers) & may_straggle
    delay_us[straggles] = rng.integers(*delays.straggling, int(straggles.sum()))
    again = np.flatnonzero(rng.random(n) < faults.duplicates)
    again_us = ts_us[again] + delay_us[again] + rng.integers(0, delays.again, len(again))
    arrival_us = np.concatenate([ts_us + delay_us, again_us])
    row = np.concatenate([np.arange(n), again])
    return Deliveries(row[np.argsort(arrival_us, kind="stable")], int(straggles.sum()), len(again))


def numbered(prefix: str, numbers: I64) -> pa.Array:
    """Return texts such as `card-7`, and NULL in place of -1."""
    digits = pc.cast(pa.array(numbers, mask=numbers == -1), pa.string())
    return pc.binary_join_element_wise(prefix, digits, "")


def chosen(names: tuple[str, ...], numbers: I64) -> pa.Array:
    """Return the name with each number, and NULL in place of -1."""
    return pa.array(names).take(pa.array(numbers, mask=numbers == -1))


def json_lines(table: pa.Table) -> pa.Array:
    """Return a JSON object with a line end for each row, without the fields that are NULL."""
    pieces: list[Any] = []
    before = "{"
    for field in table.schema:
        column = table[field.name].combine_chunks()
        quote = '"' if pa.types.is_string(field.type) or pa.types.is_timestamp(field.type) else ""
        values = column.cast(pa.timestamp("ms", tz="UTC"), safe=False) if field.name == "ts" else column
        text = pc.binary_join_element_wise(
            f'{before}"{field.name}":{quote}', values.cast(pa.string()), quote, ""
        )
        pieces.append(pc.fill_null(text, "") if column.null_count else text)
        before = ","
    return pc.binary_join_element_wise(*pieces, "}\n", "")


def write_lines(lines: pa.Array, path: Path) -> None:
    """Write texts that end with a line end."""
    # The values of a string array lie one after another in memory. With their line ends they form the file.
    offsets = np.frombuffer(lines.buffers()[1], dtype=np.int32)
    path.write_bytes(memoryview(lines.buffers()[2])[: offsets[len(lines)]])


def _write_json(table: pa.Table, path: Path) -> None:
    write_lines(json_lines(table), path)


_WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {"json": _write_json, "parquet": pq.write_table}
"""Format -> the function that writes a file."""


def write_file(folder: Path, number: int, table: pa.Table, file_format: str, age_us: int) -> None:
    """Write a table as file `number` of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"part-{number:04d}.{file_format}"
    _WRITERS[file_format](table, path)
    set_age(path, number, age_us)


def set_age(path: Path, number: int, age_us: int) -> None:
    """Set the time of a file. A stream reads files by age, so each file gets a second of its own."""
    age_s = age_us // 1_000_000 + number
    os.utime(path, (age_s, age_s))


def generate_once(out: Path, options: dict[str, Any], write: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the manifest in `out`, after `write` has written its files, unless it has these options already.

    `write` returns what the manifest contains in addition to the options.
    """
    path = out / "manifest.json"
    if path.exists():
        existing: dict[str, Any] = json.loads(path.read_text())
        if existing["options"] == options:
            return existing
        path.unlink()
    out.mkdir(parents=True, exist_ok=True)
    manifest = {"options": options, **write()}
    # The manifest is written last, because it says that the files are complete.
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    return manifest
