"""Delivery of events in files of JSON lines or Parquet: some arrive late, some twice, some broken.

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
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scenarios.fraud.events import (
    COUNTRIES,
    DAY_US,
    END_US,
    F64,
    HOUR_US,
    I64,
    KINDS,
    LATENESS_US,
    MINUTE_US,
    NOTHING,
    SECOND_US,
    STRANGE_DEVICE,
    Events,
)

JSON_FLAWS = ("not json", "cut off", "wrong type", "no time", "bad time", "year 9999", "no card")
"""Flaws of malformed lines. The lines get them in turn."""

PARQUET_FLAWS = ("no time", "year 9999", "no card")
"""Flaws that are possible in a typed file."""

YEAR_9999_US = 253_370_764_800_000_000

_SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.int64()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("card_id", pa.string()),
        pa.field("kind", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field("country", pa.string()),
        pa.field("merchant_id", pa.string()),
        pa.field("card_present", pa.bool_()),
        pa.field("approved", pa.bool_()),
        pa.field("device", pa.string()),
        pa.field("payee", pa.string()),
        pa.field("payee_country", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Faults:
    """Shares of the events that arrive beyond the lateness or twice, and of additional malformed lines."""

    stragglers: float = 0.0005
    duplicates: float = 0.005
    malformed: float = 0.001


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Row numbers of the events in the order of arrival. An event that is delivered twice occurs twice."""

    row: I64
    n_stragglers: int
    n_duplicates: int


def draw_deliveries(rng: np.random.Generator, events: Events, faults: Faults) -> Deliveries:
    """Return the order in which the events arrive."""
    n = len(events)
    delay_us = (rng.exponential(2.0, n) * SECOND_US).astype(np.int64)
    held_up = rng.random(n) < 0.05
    delay_us[held_up] = rng.integers(0, LATENESS_US - MINUTE_US, int(held_up.sum()))
    delay_us = np.minimum(delay_us, LATENESS_US - MINUTE_US)
    straggles = (rng.random(n) < faults.stragglers) & (events.case == NOTHING)
    delay_us[straggles] = rng.integers(HOUR_US, 8 * DAY_US, int(straggles.sum()))
    again = np.flatnonzero(rng.random(n) < faults.duplicates)
    again_us = events.ts_us[again] + delay_us[again] + rng.integers(0, MINUTE_US, len(again))
    arrival_us = np.concatenate([events.ts_us + delay_us, again_us])
    row = np.concatenate([np.arange(n), again])
    return Deliveries(row[np.argsort(arrival_us, kind="stable")], int(straggles.sum()), len(again))


def event_table(events: Events, event_id: I64) -> pa.Table:
    """Return the events as the table that is delivered in Parquet."""

    def text(prefix: str, numbers: I64) -> pa.Array:
        digits = pc.cast(pa.array(numbers), pa.string())
        return pc.if_else(
            pa.array(numbers == NOTHING),
            pa.scalar(None, pa.string()),
            pc.binary_join_element_wise(prefix, digits, ""),
        )

    def flag(numbers: I64) -> pa.Array:
        return pa.array(numbers == 1, mask=numbers == NOTHING)

    def name(names: tuple[str, ...], numbers: I64) -> pa.Array:
        return pa.array(names).take(pa.array(numbers, mask=numbers == NOTHING))

    def device(numbers: I64) -> pa.Array:
        own = text("d", np.where(numbers < STRANGE_DEVICE, numbers, NOTHING))
        strange = text("x", np.where(numbers >= STRANGE_DEVICE, numbers - STRANGE_DEVICE, NOTHING))
        return pc.coalesce(own, strange)

    return pa.table(
        [
            pa.array(event_id),
            pa.array(events.ts_us).cast(pa.timestamp("us", tz="UTC")),
            text("card-", events.card),
            name(KINDS, events.kind),
            pa.array(events.amount, from_pandas=True),  # NaN is NULL
            name(COUNTRIES, events.country),
            text("m", events.merchant),
            flag(events.card_present),
            flag(events.approved),
            device(events.device),
            text("p", events.payee),
            name(COUNTRIES, events.payee_country),
        ],
        schema=_SCHEMA,
    )


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


def malformed_line(rng: np.random.Generator, line: str, flaw: str, event_id: int) -> str:
    """Return a damaged copy of `line` with another event id."""
    fields = {**json.loads(line), "event_id": event_id}
    match flaw:
        case "not json":
            return f"WARN  gateway-3 backpressure, queue={event_id}\n"
        case "wrong type":
            fields["event_id"] = str(event_id)
        case "no time":
            del fields["ts"]
        case "bad time":
            fields["ts"] = "31/02/2025 25:61"
        case "year 9999":
            fields["ts"] = "9999-01-01 00:00:00.000Z"
        case "no card":
            fields["card_id"] = None
    text = json.dumps(fields, separators=(",", ":"))
    return (text[: int(rng.integers(10, len(text) - 1))] if flaw == "cut off" else text) + "\n"


def malformed_rows(rows: pa.Table, flaws: list[str], event_id: I64) -> pa.Table:
    """Return damaged copies of `rows` with other event ids. Each copy has its flaw."""
    flaw = np.array(flaws, dtype=object)
    time = rows["ts"].cast(pa.int64()).to_numpy().copy()
    time[flaw == "year 9999"] = YEAR_9999_US
    columns = {
        "event_id": pa.array(event_id),
        "ts": pa.array(time, mask=flaw == "no time").cast(_SCHEMA.field("ts").type),
        "card_id": pc.if_else(pa.array(flaw == "no card"), pa.scalar(None, pa.string()), rows["card_id"]),
    }
    return pa.table({name: columns.get(name, rows[name]) for name in rows.column_names}, schema=_SCHEMA)


def write_files(
    rng: np.random.Generator,
    folder: Path,
    events: Events,
    deliveries: Deliveries,
    *,
    n_malformed: int,
    n_files: int,
    file_format: str,
) -> dict[str, int]:
    """Write the deliveries with malformed lines among them; return the number of lines with each flaw."""
    folder.mkdir(parents=True, exist_ok=True)
    known_flaws, writer = _FORMATS[file_format]
    flaws = [known_flaws[idx % len(known_flaws)] for idx in range(n_malformed)]
    bounds = np.linspace(0, len(deliveries.row), n_files + 1).astype(np.int64)
    flaw_bounds = np.linspace(0, n_malformed, n_files + 1).astype(np.int64)
    for idx in range(n_files):
        rows = deliveries.row[bounds[idx] : bounds[idx + 1]]
        table = event_table(events.take(rows), rows + 1)
        first, end = int(flaw_bounds[idx]), int(flaw_bounds[idx + 1])
        path = folder / f"part-{idx:04d}.{file_format}"
        writer(rng, path, table, flaws[first:end], len(events) + 1 + np.arange(first, end))
        # A stream reads files by age, so each file gets a second of its own.
        age_s = END_US // SECOND_US + idx
        os.utime(path, (age_s, age_s))
    return {flaw: flaws.count(flaw) for flaw in known_flaws}


def _places(rng: np.random.Generator, n_rows: int, n_extra: int) -> I64:
    """Return an order that puts the last `n_extra` of all rows at random places among the others."""
    at: F64 = np.concatenate([np.arange(n_rows), rng.random(n_extra) * n_rows])
    return np.argsort(at, kind="stable")


def _write_json(rng: np.random.Generator, path: Path, table: pa.Table, flaws: list[str], ids: I64) -> None:
    lines = json_lines(table)
    models = rng.integers(0, len(lines), len(flaws)).tolist()
    broken = [
        malformed_line(rng, lines[model].as_py(), flaw, event_id)
        for model, flaw, event_id in zip(models, flaws, ids.tolist(), strict=True)
    ]
    every = pa.concat_arrays([lines, pa.array(broken, pa.string())]).take(
        pa.array(_places(rng, len(lines), len(broken)))
    )
    # The values of a string array lie one after another in memory. With their line ends they form the file.
    offsets = np.frombuffer(every.buffers()[1], dtype=np.int32)
    path.write_bytes(memoryview(every.buffers()[2])[: offsets[len(every)]])


def _write_parquet(rng: np.random.Generator, path: Path, table: pa.Table, flaws: list[str], ids: I64) -> None:
    models = pa.array(rng.integers(0, len(table), len(flaws)))
    every = pa.concat_tables([table, malformed_rows(table.take(models), flaws, ids)])
    pq.write_table(every.take(pa.array(_places(rng, len(table), len(flaws)))), path)


_FORMATS: dict[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "json": (JSON_FLAWS, _write_json),
    "parquet": (PARQUET_FLAWS, _write_parquet),
}
"""Format -> the flaws of its malformed lines or rows, and the function that writes a file."""
