"""Generate card events with planted fraud: ``python -m scenarios.fraud.generate --events 2000000 --out DIR``.

DIR gets ``events/`` (files in the order of arrival), ``customers/`` (the changelog of their limits),
``truth.parquet`` (the stories) and ``manifest.json`` (the options, and the counts of what the files contain).
The same seed gives the same bytes every time.
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

from scenarios.delivery import Faults, draw_deliveries, generate_once, write_file
from scenarios.fraud.customers import draw_customers
from scenarios.fraud.delivery import DELAYS, write_files
from scenarios.fraud.events import BALANCE, END_US, MILLISECOND_US, NOTHING, Events, concat
from scenarios.fraud.pen import Case
from scenarios.fraud.stories import plant
from scenarios.fraud.traffic import EVENTS_PER_CARD, draw_cards, draw_statements, draw_traffic, with_payees

MIN_EVENTS = 5_000
"""Fewest events. With fewer, the events of the stories would outnumber the traffic."""

MIN_CARDS = 300

VERSION = 3
"""Version of the generator. It goes up when the same options give other events than before."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the generator. `events` counts distinct well-formed events."""

    events: int = 2_000_000
    seed: int = 7
    file_format: str = "json"
    files: int = 48
    faults: Faults = field(default_factory=Faults)

    def to_json(self) -> dict[str, Any]:
        """Return the options as they are in a manifest."""
        return {"version": VERSION, **dataclasses.asdict(self)}


def draw_events(rng: np.random.Generator, n_events: int) -> tuple[Events, tuple[Case, ...], pa.Table]:
    """Return exactly `n_events` events in order of time, the stories among them, and the customers."""
    cards = draw_cards(rng, max(MIN_CARDS, n_events // EVENTS_PER_CARD))
    stories = plant(rng, cards, n_events)
    told = stories.events()
    n_traffic = n_events - len(told) - 2 * len(cards)
    # The traffic has one-time codes beyond the requested number of events, so there is enough to remove.
    traffic = draw_traffic(rng, cards, n_traffic + len(stories.quiet_card) * EVENTS_PER_CARD)
    traffic = traffic.take(~stories.contradicts(traffic, len(cards)))
    # Surplus events are removed from the balance events, because no story has a balance event.
    excess = len(traffic) - n_traffic
    looks = rng.permutation(np.flatnonzero(traffic.kind == BALANCE))[:excess]
    traffic = traffic.take(np.delete(np.arange(len(traffic)), looks))
    # Separate generators, so that these draws do not change any others.
    of_payees, of_customers = rng.spawn(2)
    traffic = with_payees(of_payees, cards, traffic, stories.cards_with_limits())
    paid = concat([traffic, told])
    events = concat([paid, draw_statements(rng, cards, paid, stories.empty_statement_card)])
    events = dataclasses.replace(events, ts_us=events.ts_us // MILLISECOND_US * MILLISECOND_US)
    customers = draw_customers(of_customers, cards, stories)
    return events.take(np.argsort(events.ts_us, kind="stable")), tuple(stories.cases), customers


def truth_table(events: Events, cases: tuple[Case, ...]) -> pa.Table:
    """Return the stories with the ids of their events, which are the row numbers of `events` from 1."""
    rows = np.flatnonzero(events.case != NOTHING)
    of_case: list[list[int]] = [[] for _ in cases]
    for row, case in zip(rows.tolist(), events.case[rows].tolist(), strict=True):
        of_case[case].append(row + 1)
    time = pa.timestamp("us", tz="UTC")
    return pa.table(
        {
            "rule": [case.rule for case in cases],
            "label": [case.label for case in cases],
            "variant": [case.variant for case in cases],
            "card_id": [f"card-{case.card}" for case in cases],
            "start": pa.array([case.start_us for case in cases], pa.int64()).cast(time),
            "end": pa.array([case.end_us for case in cases], pa.int64()).cast(time),
            "event_ids": pa.array(of_case, pa.list_(pa.int64())),
        }
    )


def generate(options: Options, out: Path) -> dict[str, Any]:
    """Write events, truth and manifest into `out`, unless they exist; return the manifest."""
    return generate_once(out, options.to_json(), lambda: _write(options, out))


def _write(options: Options, out: Path) -> dict[str, Any]:
    rng = np.random.default_rng(options.seed)
    events, cases, customers = draw_events(rng, options.events)
    deliveries = draw_deliveries(rng, events.ts_us, events.case == NOTHING, options.faults, DELAYS)
    for name in ("events", "customers"):
        shutil.rmtree(out / name, ignore_errors=True)
    flaws = write_files(
        rng,
        out / "events",
        events,
        deliveries,
        n_malformed=round(options.events * options.faults.malformed),
        n_files=options.files,
        file_format=options.file_format,
    )
    write_file(out / "customers", 0, customers, options.file_format, END_US)
    pq.write_table(truth_table(events, cases), out / "truth.parquet")
    return {
        "events": len(events),
        "lines": len(deliveries.row) + sum(flaws.values()),
        "duplicates": deliveries.n_duplicates,
        "stragglers": deliveries.n_stragglers,
        "malformed": flaws,
        "stories": len(cases),
        "customers": len(customers),
    }


@click.command(help="Generate card events with planted fraud and its truth.")
@click.option("--events", type=click.IntRange(min=MIN_EVENTS), default=2_000_000, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=7, show_default=True)
@click.option("--files", type=click.IntRange(min=1), default=48, show_default=True)
@click.option(
    "--format", "file_format", type=click.Choice(["json", "parquet"]), default="json", show_default=True
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/fraud"), show_default=True
)
def main(events: int, seed: int, files: int, file_format: str, out: Path) -> None:
    """Run the generator from the command line."""
    manifest = generate(Options(events, seed, file_format, files), out)
    click.echo(f"{manifest['lines']:,} lines of {manifest['events']:,} events in {out / 'events'}")


if __name__ == "__main__":
    main()
