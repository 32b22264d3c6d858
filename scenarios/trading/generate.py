"""Generate orders with planted abuse: ``python -m scenarios.trading.generate --events 400000 --out DIR``.

DIR gets ``events/`` (files in the order of arrival), ``accounts/`` and ``instruments/`` (the changelogs of
both tables), ``truth.parquet`` (the stories) and ``manifest.json`` (the options, and the counts of what the
files contain). The same seed gives the same bytes every time.
"""

from __future__ import annotations

import dataclasses
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cep.arrays import F64, I64
from scenarios.delivery import Delays, Faults, chosen, draw_deliveries, generate_once, numbered, write_file
from scenarios.trading.flow import daily_volume, draw_flow
from scenarios.trading.market import (
    ACCOUNTS_PER_MEMBER,
    BUSTED,
    CLOSED_US,
    CLOSING_US,
    DAY_US,
    END_US,
    FILLED,
    HOUR_US,
    HOUSE,
    KINDS,
    MILLISECOND_US,
    MINUTE_US,
    N_ACCOUNTS,
    N_DAYS,
    NOTHING,
    OPEN_US,
    OPENING_US,
    REOPENING_US,
    SECOND_US,
    SIDES,
    START_US,
    Events,
    Market,
    account_name,
    draw_market,
    owner_name,
)
from scenarios.trading.pen import OwnerChange, Stories
from scenarios.trading.stories import plant

MIN_EVENTS = 40_000
"""Fewest events. With fewer, the events of the stories would outnumber the others."""

EVENTS_PER_SYMBOL = 2_500
MIN_SYMBOLS = 120

VERSION = 1
"""Version of the generator. It goes up when the same options give other events than before."""

LATENESS_US = 10 * SECOND_US
"""The lateness in rules/trading/streams.yaml."""

DELAYS = Delays(30 * MILLISECOND_US, LATENESS_US - SECOND_US, (MINUTE_US, 2 * HOUR_US), SECOND_US, 0.02)
"""All events arrive within the lateness, but some reports of trades and of busts are hours late."""

_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the generator. The number of events is met within a few percent."""

    events: int = 400_000
    seed: int = 7
    file_format: str = "json"
    files: int = 24
    faults: Faults = field(default_factory=lambda: Faults(malformed=0.0))

    def to_json(self) -> dict[str, Any]:
        """Return the options as they are in a manifest."""
        return {"version": VERSION, **dataclasses.asdict(self)}


def draw_events(rng: np.random.Generator, n_events: int) -> tuple[Events, Market, Stories, F64]:
    """Return events in order of time, the stories among them, and the shares traded in a day."""
    market = draw_market(rng, max(MIN_SYMBOLS, n_events // EVENTS_PER_SYMBOL))
    flow = draw_flow(rng, market, n_events)
    volume = daily_volume(market, flow.events)
    stories = plant(rng, market, volume, n_events)
    ordinary = flow.with_prices(market)
    stories.make_room(market, ordinary)
    told = stories.events(int(ordinary["order_id"].max()) + 1, int(ordinary["trade_id"].max()) + 1)
    events = np.concatenate([ordinary, told])
    events["ts_us"] = events["ts_us"] // MILLISECOND_US * MILLISECOND_US
    return events[np.argsort(events["ts_us"], kind="stable")], market, stories, volume


def event_table(events: Events, sequence: I64) -> pa.Table:
    """Return the events as the table that is delivered."""

    def column(name: str) -> I64:
        return np.ascontiguousarray(events[name])

    aggressive = column("aggressive")
    return pa.table(
        {
            "sequence": sequence,
            "ts": pa.array(column("ts_us")).cast(_TIME),
            "account": numbered("acc-", column("account")),
            "member": numbered("firm-", column("account") // ACCOUNTS_PER_MEMBER),
            "symbol": numbered("SYM", column("symbol")),
            "order_id": column("order_id"),
            "kind": chosen(KINDS, column("kind")),
            "side": chosen(SIDES, column("side")),
            "price": np.ascontiguousarray(events["price"]),
            "size": column("size"),
            "trade_id": pa.array(column("trade_id"), mask=column("trade_id") == NOTHING),
            "aggressive": pa.array(aggressive == 1, mask=aggressive == NOTHING),
        }
    )


def accounts_table(changes: list[OwnerChange]) -> pa.Table:
    """Return the versions of all accounts: those of before the first day, and the changes of owners."""
    first_us = START_US - 100 * DAY_US
    rows = [(account, first_us, "c", owner_name(account)) for account in range(N_ACCOUNTS)]
    rows += [(change.account, change.ts_us, "u", owner_name(change.owner_of)) for change in changes]
    rows.sort(key=lambda row: row[1])
    is_house = [account % ACCOUNTS_PER_MEMBER <= max(HOUSE) for account, *_ in rows]
    return pa.table(
        {
            "account": [account_name(account) for account, *_ in rows],
            "ts": pa.array([ts_us for _, ts_us, *_ in rows]).cast(_TIME),
            "op": [op for *_, op, _ in rows],
            "owner": [owner for *_, owner in rows],
            "capacity": ["house" if house else "client" for house in is_house],
        }
    )


def instruments_table(market: Market, volume: F64) -> pa.Table:
    """Return the versions of all instruments: each change of the phase is one."""
    rows = []
    for day in range(N_DAYS):
        for symbol in range(market.n_symbols):
            phases = [(OPENING_US, "opening"), (OPEN_US, "continuous"), (CLOSING_US, "closing")]
            phases.append((CLOSED_US, "closed"))
            if start_us := int(market.halt_us[symbol, day]):
                end_us = start_us + int(market.halted_us[symbol, day])
                phases += [(start_us, "halted"), (end_us, "reopening")]
                phases.append((end_us + REOPENING_US, "continuous"))
            rows += [(START_US + day * DAY_US + at_us, symbol, phase) for at_us, phase in phases]
    rows.sort()
    symbols = np.array([symbol for _, symbol, _ in rows])
    return pa.table(
        {
            "symbol": numbered("SYM", symbols),
            "ts": pa.array([ts_us for ts_us, *_ in rows]).cast(_TIME),
            "op": ["u"] * len(rows),
            "phase": [phase for *_, phase in rows],
            "typical_size": market.typical_size[symbols],
            "daily_volume": np.round(volume[symbols]),
            "closes": [CLOSING_US // MINUTE_US] * len(rows),
        }
    )


def truth_table(events: Events, stories: Stories) -> pa.Table:
    """Return the stories with the numbers of their events, which are the rows of `events` from 1."""
    rows = np.flatnonzero(events["case"] != NOTHING)
    of_case: list[list[int]] = [[] for _ in stories.cases]
    for row, case in zip(rows.tolist(), events["case"][rows].tolist(), strict=True):
        of_case[case].append(row + 1)
    cases = stories.cases
    return pa.table(
        {
            "rule": [case.rule for case in cases],
            "label": [case.label for case in cases],
            "reason": [case.reason for case in cases],
            "symbol": [f"SYM{case.symbol}" for case in cases],
            "trader": [case.trader for case in cases],
            "start": pa.array([case.start_us for case in cases], pa.int64()).cast(_TIME),
            "end": pa.array([case.end_us for case in cases], pa.int64()).cast(_TIME),
            "sequences": pa.array(of_case, pa.list_(pa.int64())),
        }
    )


def generate(options: Options, out: Path) -> dict[str, Any]:
    """Write events, tables, truth and manifest into `out`, unless they exist; return the manifest."""
    return generate_once(out, options.to_json(), lambda: _write(options, out))


def _write(options: Options, out: Path) -> dict[str, Any]:
    rng = np.random.default_rng(options.seed)
    events, market, stories, volume = draw_events(rng, options.events)
    is_report = np.isin(events["kind"], (FILLED, BUSTED)) & (events["case"] == NOTHING)
    deliveries = draw_deliveries(rng, events["ts_us"], is_report, options.faults, DELAYS)
    for name in ("events", "accounts", "instruments"):
        shutil.rmtree(out / name, ignore_errors=True)
    for idx, rows in enumerate(np.array_split(deliveries.row, options.files)):
        write_file(out / "events", idx, event_table(events[rows], rows + 1), options.file_format, END_US)
    write_file(out / "accounts", 0, accounts_table(stories.owners), options.file_format, END_US)
    write_file(out / "instruments", 0, instruments_table(market, volume), options.file_format, END_US)
    pq.write_table(truth_table(events, stories), out / "truth.parquet")
    return {
        "events": len(events),
        "lines": len(deliveries.row),
        "duplicates": deliveries.n_duplicates,
        "stragglers": deliveries.n_stragglers,
        "malformed": {},
        "stories": len(stories.cases),
        "instruments": market.n_symbols,
        "accounts": N_ACCOUNTS,
    }


@click.command(help="Generate orders with planted abuse and its truth.")
@click.option("--events", type=click.IntRange(min=MIN_EVENTS), default=400_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option("--files", type=click.IntRange(min=1), default=24, show_default=True)
@click.option(
    "--format", "file_format", type=click.Choice(["json", "parquet"]), default="json", show_default=True
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/trading"), show_default=True
)
def main(events: int, seed: int, files: int, file_format: str, out: Path) -> None:
    """Run the generator from the command line."""
    manifest = generate(Options(events, seed, file_format, files), out)
    click.echo(f"{manifest['lines']:,} lines of {manifest['events']:,} events in {out / 'events'}")


if __name__ == "__main__":
    main()
