from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from cep.arrays import I64
from cep.backtest.truth import NEAR_MISS, Score
from cep.errors import Source
from cep.local.find_matches import find_matches
from cep.local.match_file import match_file
from cep.rulebook import compile_rulebook, load_rulebook
from cep.settings.schema_file import load_streams
from scenarios.delivery import draw_deliveries
from scenarios.trading.__main__ import score_trading
from scenarios.trading.generate import DELAYS, LATENESS_US, MIN_EVENTS, Options, draw_events, generate
from scenarios.trading.market import BUSTED, BUY, DAY_US, FILLED, MINUTE_US, NOTHING, START_US, Events
from scenarios.trading.stories import ABUSE, PLOTS, n_abuses

ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "rules" / "trading"
STREAMS = load_streams(RULES / "streams.yaml")
OPTIONS = Options(events=60_000, seed=3, file_format="parquet", files=3)
INPUTS = {"orders": "events", "accounts": "accounts", "instruments": "instruments"}


@dataclass(frozen=True, slots=True)
class Run:
    """What was generated, and the matches of a local run."""

    out: Path
    truth: pa.Table
    matches: pa.Table


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("trading")
    generate(OPTIONS, out)
    programs = compile_rulebook(load_rulebook([RULES])).rule_set
    found = match_file(programs, {name: out / folder for name, folder in INPUTS.items()})
    return Run(out, pq.read_table(out / "truth.parquet"), found.matches)


@pytest.fixture(scope="module")
def events() -> Events:
    return draw_events(np.random.default_rng(OPTIONS.seed), OPTIONS.events)[0]


def test_the_rules_find_all_abuse_and_nothing_else(run: Run) -> None:
    n = n_abuses(OPTIONS.events)
    assert score_trading(run.matches, run.truth) == [
        Score(rule, n, n, n, n, near_misses=n, near_misses_reported=0, lookalikes_reported=0)
        for rule in PLOTS
    ]


def test_a_rule_of_the_library_has_stories_or_is_for_information_only(run: Run) -> None:
    texts = [path.read_text() for path in RULES.glob("*.cep")]
    severities = {name: of for text in texts for name, of in re.findall(_SEVERITY, text)}
    assert {name for name, severity in severities.items() if severity != "info"} == set(PLOTS)
    assert set(run.matches["rule"].to_pylist()) == set(severities)


_SEVERITY = r"RULE (\w+)\n  TITLE .*\n  SEVERITY (\w+)"

_SECOND = """  second AS is_trade AND price BETWEEN low.price - 0.1 * (high.price - low.price)
                AND low.price + 0.1 * (high.price - low.price),
"""

# Each reason for a near miss, and the parts of its rule without which the near miss is reported: a part, what
# replaces it, and so on. Owners are no part of a rule.
NEEDED: dict[str, dict[str, tuple[str, ...]]] = {
    "spoofing": {
        "two orders, not three": ("{3}", "{2}"),
        "one order stays for more than 500 milliseconds": ("WITHIN 500 MILLISECONDS", "WITHIN 5 SECONDS"),
        "no order has ten times the typical size": (">= 10 *", ">= 1 *"),
        "the trade is on the side of the orders": ("side <> placed.side", "TRUE"),
        "the trade comes more than 2 seconds later": ("{3} ->[<= 2 SECONDS]", "{3} ->[<= 9 SECONDS]"),
        "it happens in the closing auction": ("AND instruments.phase = 'continuous'", ""),
    },
    "layering": {
        "three orders, not four": ("{4}", "{3}"),
        "all orders have one price": (" DISTINCT BY price", ""),
        "half of one order is filled": ("order_id IN (layer.order_id)\nMEASURES", "FALSE\nMEASURES"),
        "no order has three times the typical size": (">= 3 *", ">= 0 *"),
        "the trade is on the side of the orders": ("side <> layer.side", "TRUE"),
        "the orders stay for more than 5 seconds after the trade": (
            "[<= 5 SECONDS] pulled",
            "[<= 1 HOUR] pulled",
        ),
    },
    "wash_trades": {
        "two trades, not three": ("{3}", "{2}"),
        "three trades in more than 10 minutes": ("WITHIN 10 MINUTES", "WITHIN 1 HOUR"),
        "the exchange cancels the third trade": ("kind = 'busted'", "kind = 'nothing'"),
    },
    "momentum_ignition": {
        "four trades, not five": ("{5,}", "{4,}"),
        "the price moves by less than half a percent": ("0.005", "0.001"),
        "the other side comes after more than a minute": ("[<= 1 MINUTE]", ""),
        "the position is closed with a loss": (
            "AVG(push.price) - price) > 0",
            "AVG(push.price) - price) > -100",
        ),
        "others took the orders of the trader": ("AND aggressive ", ""),
    },
    "front_running": {
        "the firm trades after the client's order": (
            *("PATTERN own ->[<= 30 SECONDS] client", "PATTERN client ->[<= 30 SECONDS] own"),
            *(" AND side = own.side\n", "\n"),
        ),
        "the client is one of another firm": ("PARTITION BY member, symbol", "PARTITION BY symbol"),
        "the client's order is on the other side": (" AND side = own.side\n", "\n"),
        "the order has less than twenty times the typical size": (">= 20 *", ">= 1 *"),
        "the firm trades more than 30 seconds before": ("[<= 30 SECONDS]", "[<= 3 MINUTES]"),
        "the firm gains less than 0.2 percent": (">= 0.002 *", ">= 0 *"),
    },
    "marking_the_close": {
        "two trades, not three": ("mark->{2,}", "mark->{1,}"),
        "the trades are less than a tenth of a day": (">= 0.1 *", ">= 0.03 *"),
        "the price moves by less than one percent": (">= 0.01 *", ">= 0.002 *"),
        "it happens an hour before the close": ("closes - 10", "closes - 100"),
        "three accounts trade, twice each": (
            *("AND account = FIRST(mark.account)", ""),
            *("AND account = mark.account", ""),
            *("last_mark.account", "FIRST(mark.account)"),
        ),
    },
    "v_shape": {
        "the price falls by less than two percent": ("0.98 *", "0.99 *"),
        "the price returns half of the way": ("0.25 *", "0.7 *"),
        "the price returns after more than ten minutes": ("WITHIN 10 MINUTES", "WITHIN 1 HOUR"),
        "the low is a price of an auction, after a halt": (" AND instruments.phase = 'continuous'", ""),
    },
    "w_shape": {
        "the price falls by less than two percent": ("0.98 *", "0.99 *"),
        "the second low is lower than the first by more than a tenth of the fall": (
            *(" WITHOUT broken", ""),
            *(",\n  broken AS is_trade AND price < low.price - 0.1 * (high.price - low.price)", ""),
        ),
        "between the lows the price rises by less than two fifths of the fall": ("0.4 *", "0.1 *"),
        "the price does not return": ("0.25 *", "0.7 *"),
        "there is one low": (
            *("middle -> second -> back", "middle -> back"),
            *(_SECOND, ""),
            *("  second.price AS second,\n", ""),
        ),
    },
}


OF_OWNERS = {"the accounts have two owners", "the accounts get one owner only after the trades"}


def _of_near_misses(run: Run, rule: str) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Return the near misses of a rule, and all events of the places where they happen."""
    near = run.truth.filter((pc.field("rule") == rule) & (pc.field("label") == NEAR_MISS))
    tables = {name: pq.read_table(run.out / folder) for name, folder in INPUTS.items()}
    for name in ("orders", "instruments"):
        tables[name] = tables[name].filter(pc.field("symbol").isin(near["symbol"]))
    return near, tables


def _read_by(rule: str, tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    return {name: table for name, table in tables.items() if re.search(rf"(FROM|JOIN) {name}\b", rule)}


@pytest.mark.parametrize("rule", PLOTS)
def test_each_near_miss_lacks_what_its_reason_says(run: Run, rule: str) -> None:
    near, tables = _of_near_misses(run, rule)
    text = (RULES / f"{rule}.cep").read_text()
    reasons = near["reason"].to_pylist()
    assert set(reasons) == {plot.reason for plot in PLOTS[rule]} - {""}
    assert set(reasons) == set(NEEDED[rule]) | (OF_OWNERS if rule == "wash_trades" else set())
    for reason in set(reasons):
        of_reason = near.filter(pc.equal(near["reason"], reason))
        changed, given = text, tables
        replaced = NEEDED[rule].get(reason, ())
        for part, instead in zip(replaced[::2], replaced[1::2], strict=True):
            assert part in changed, part
            changed = changed.replace(part, instead)
        if reason in OF_OWNERS:
            given = {**tables, "accounts": _with_one_owner(tables, of_reason)}
        found = find_matches(Source(reason, changed), STREAMS, _read_by(changed, given), as_table=True)
        for column in {"account", "owner", "trader"} - {*found.column_names}:
            found = found.append_column(column, pa.nulls(len(found), pa.string()))
        (scored,) = score_trading(found, of_reason)
        assert scored.near_misses_reported == len(of_reason), reason


def _with_one_owner(tables: dict[str, pa.Table], stories: pa.Table) -> pa.Table:
    """Return the versions of accounts, those of each story with its one owner from the start."""
    owners = dict(zip(*(tables["accounts"][name].to_pylist() for name in ("account", "owner")), strict=True))
    for sequences, owner in zip(
        *(stories[name].to_pylist() for name in ("sequences", "trader")), strict=True
    ):
        of_story = tables["orders"].filter(pc.field("sequence").isin(sequences))
        owners |= dict.fromkeys(of_story["account"].to_pylist(), owner)
    accounts = tables["accounts"].to_pylist()
    return pa.Table.from_pylist([{**row, "owner": owners[row["account"]]} for row in accounts])


def test_the_truth_names_the_events_of_every_story(events: Events, run: Run) -> None:
    assert len(run.truth) == 2 * n_abuses(OPTIONS.events) * len(PLOTS)
    starts_us = run.truth["start"].cast(pa.int64()).to_pylist()
    for story, start_us in zip(run.truth.to_pylist(), starts_us, strict=True):
        rows = np.array(story["sequences"]) - 1
        assert events["ts_us"][rows].min() == start_us
        assert {f"SYM{symbol}" for symbol in events["symbol"][rows]} == {story["symbol"]}
        assert (story["label"] == ABUSE) == (story["reason"] == "")
    days = [start_us // DAY_US for start_us in starts_us]
    assert len(set(zip(run.truth["symbol"].to_pylist(), days, strict=True))) == len(run.truth)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.*")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def test_one_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        generate(Options(MIN_EVENTS, seed, files=2), tmp_path / name)
    assert _digest(tmp_path / "one") == _digest(tmp_path / "again") != _digest(tmp_path / "other")


def _fills(events: Events) -> Events:
    fills: Events = events[events["kind"] == FILLED]
    return fills[np.argsort(fills["trade_id"], kind="stable")]


def test_a_trade_has_two_sides_with_one_time_price_and_size(events: Events) -> None:
    fills = _fills(events)
    one, other = fills[::2], fills[1::2]
    assert len(np.unique(one["trade_id"])) == len(one) == len(fills) // 2
    for name in ("trade_id", "ts_us", "symbol", "price", "size"):
        assert (one[name] == other[name]).all(), name
    assert (one["side"] + other["side"] == 1).all()
    assert (one["account"] != other["account"]).mean() > 0.99


def test_an_order_is_placed_before_anything_else_happens_to_it(events: Events) -> None:
    order = np.argsort(events["order_id"], kind="stable")
    sorted_events = events[order]
    is_first = np.diff(sorted_events["order_id"], prepend=-1) != 0
    assert (sorted_events["kind"][is_first] == 0).all()
    assert (sorted_events["kind"][~is_first] != 0).all()
    assert not ((events["kind"] == BUSTED) & ~np.isin(events["trade_id"], _fills(events)["trade_id"])).any()


PHASES = """
RULE phases FROM orders JOIN instruments ON symbol PARTITION BY symbol PATTERN f
DEFINE f AS kind = 'filled' AND side = 'buy' MEASURES f.instruments.phase AS phase
"""


def test_nothing_is_traded_in_a_halt_and_auctions_end_with_trades(run: Run) -> None:
    tables = {name: pq.read_table(run.out / folder) for name, folder in INPUTS.items()}
    counted = find_matches(Source("phases", PHASES), STREAMS, _read_by(PHASES, tables), as_table=True)
    phases = Counter(counted["phase"].to_pylist())
    assert set(phases) == {"opening", "continuous", "reopening", "closing"}
    assert phases["continuous"] > 10 * phases["opening"] > 0


def _behind_us(events: Events, rows: I64) -> I64:
    times: I64 = events["ts_us"][rows]
    return np.maximum.accumulate(times) - times


def test_only_reports_of_trades_and_busts_arrive_after_the_lateness(events: Events) -> None:
    assert STREAMS["orders"].lateness_us == LATENESS_US
    is_report = np.isin(events["kind"], (FILLED, BUSTED)) & (events["case"] == NOTHING)
    drawn = draw_deliveries(np.random.default_rng(1), events["ts_us"], is_report, OPTIONS.faults, DELAYS)
    behind_us = _behind_us(events, drawn.row)
    late = drawn.row[behind_us >= LATENESS_US]
    assert 0 < len(late) <= drawn.n_stragglers + drawn.n_duplicates
    assert is_report[late].all()
    assert ((behind_us > 0) & (behind_us < LATENESS_US)).mean() > 0.001
    assert len(drawn.row) == len(events) + drawn.n_duplicates


def test_trading_has_a_rhythm_and_busy_instruments(events: Events) -> None:
    minute = (events["ts_us"] - START_US) % DAY_US // MINUTE_US
    per_half_hour = np.bincount(minute // 30)
    assert per_half_hour[18] > 1.5 * per_half_hour[26]  # nine o'clock, and one o'clock
    assert per_half_hour[:17].sum() == 0
    bought = events[(events["kind"] == FILLED) & (events["side"] == BUY) & (events["case"] == NOTHING)]
    per_symbol = np.sort(np.bincount(bought["symbol"]))
    assert per_symbol[-1] > 5 * per_symbol[0] > 0


def test_a_report_beyond_the_lateness_is_late_in_a_stream_and_changes_no_alert(run: Run) -> None:
    programs = compile_rulebook(load_rulebook([RULES])).rule_set
    streamed: Any = match_file(
        programs, {name: run.out / folder for name, folder in INPUTS.items()}, as_stream=True
    )
    assert streamed.counts.late > 0
    assert score_trading(streamed.matches, run.truth) == score_trading(run.matches, run.truth)
