"""Delivery of card events in files of JSON lines or Parquet: some arrive late, some twice, some broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scenarios.delivery import Delays, Deliveries, chosen, json_lines, numbered, set_age, write_lines
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


DELAYS = Delays(2 * SECOND_US, LATENESS_US - MINUTE_US, (HOUR_US, 8 * DAY_US), MINUTE_US)
"""All events but the stragglers arrive within the lateness."""


def event_table(events: Events, event_id: I64) -> pa.Table:
    """Return the events as the table that is delivered in Parquet."""

    def flag(numbers: I64) -> pa.Array:
        return pa.array(numbers == 1, mask=numbers == NOTHING)

    def device(numbers: I64) -> pa.Array:
        own = numbered("d", np.where(numbers < STRANGE_DEVICE, numbers, NOTHING))
        strange = numbered("x", np.where(numbers >= STRANGE_DEVICE, numbers - STRANGE_DEVICE, NOTHING))
        return pc.coalesce(own, strange)

    return pa.table(
        [
            pa.array(event_id),
            pa.array(events.ts_us).cast(pa.timestamp("us", tz="UTC")),
            numbered("card-", events.card),
            chosen(KINDS, events.kind),
            pa.array(events.amount, from_pandas=True),  # NaN is NULL
            chosen(COUNTRIES, events.country),
            numbered("m", events.merchant),
            flag(events.card_present),
            flag(events.approved),
            device(events.device),
            numbered("p", events.payee),
            chosen(COUNTRIES, events.payee_country),
        ],
        schema=_SCHEMA,
    )


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
        set_age(path, idx, END_US)
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
    write_lines(every, path)


def _write_parquet(rng: np.random.Generator, path: Path, table: pa.Table, flaws: list[str], ids: I64) -> None:
    models = pa.array(rng.integers(0, len(table), len(flaws)))
    every = pa.concat_tables([table, malformed_rows(table.take(models), flaws, ids)])
    pq.write_table(every.take(pa.array(_places(rng, len(table), len(flaws)))), path)


_FORMATS: dict[str, tuple[tuple[str, ...], Callable[..., None]]] = {
    "json": (JSON_FLAWS, _write_json),
    "parquet": (PARQUET_FLAWS, _write_parquet),
}
"""Format -> the flaws of its malformed lines or rows, and the function that writes a file."""
