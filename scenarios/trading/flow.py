"""Ordinary orders: market makers who quote and withdraw, clients, sweeps, bursts, auctions, halts, busts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cep.arrays import F64, I64
from scenarios.trading.market import (
    BUSTED,
    BUY,
    CANCELLED,
    CLOSED_US,
    CLOSING_US,
    DAY_US,
    EVENT,
    FILLED,
    HOUSE,
    MARKET_MAKER,
    MILLISECOND_US,
    MINUTE_US,
    N_DAYS,
    N_MEMBERS,
    NOTHING,
    OPEN_US,
    OPENING_US,
    REOPENING_US,
    SECOND_US,
    SELL,
    START_US,
    Events,
    Market,
    account_number,
)

_FILLED_SHARE, _CANCELLED_SHARE = 0.35, 0.55
_EVENTS_PER_ORDER = 1 + _CANCELLED_SHARE + 3 * _FILLED_SHARE
_LADDER_SHARE = 0.15
_LEVELS = 4
_BURST_SHARE = 0.1
_SWEEP_SHARE = 0.15
_BUST_SHARE = 0.004
_BASIS_POINT = 1e-4
# Shares of the orders: opening auction, twelve parts of the continuous trading, closing auction.
_PARTS = np.array([4, 14, 10, 8, 7, 6, 5, 5, 6, 6, 8, 10, 13, 6], dtype=np.float64)
_PART_ENDS_US = np.concatenate(
    [[OPENING_US], np.linspace(OPEN_US, CLOSING_US, len(_PARTS) - 1), [CLOSED_US - SECOND_US]]
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Events without prices, in the order in which the exchange reports those of one time.

    The price of event i is the price at `priced_us[i]` times 1 + `distance[i]`.
    """

    events: Events
    priced_us: I64
    distance: F64

    def with_prices(self, market: Market) -> Events:
        """Return the events with the prices of the market, as it is now."""
        middle = market.price(self.events["symbol"], self.priced_us)
        self.events["price"] = np.round(middle * (1 + self.distance), 2)
        return self.events


def draw_flow(rng: np.random.Generator, market: Market, n_events: int) -> Flow:
    """Return about `n_events` events."""
    n_ladders = int(n_events * _LADDER_SHARE) // (4 * _LEVELS)
    n_orders = int((n_events - n_ladders * 4 * _LEVELS) / _EVENTS_PER_ORDER)
    # An order that is filled has an order on the other side, which takes a number, too.
    ladders = _draw_ladders(rng, market, n_ladders, 2 * n_orders)
    return _joined([_draw_orders(rng, market, n_orders), ladders])


def daily_volume(market: Market, events: Events) -> F64:
    """Return the average number of shares of each instrument that are traded in a day."""
    bought = events[(events["kind"] == FILLED) & (events["side"] == BUY)]
    return np.bincount(bought["symbol"], bought["size"], minlength=market.n_symbols) / N_DAYS


def _draw_orders(rng: np.random.Generator, market: Market, n: int) -> Flow:
    """Return orders in the book, and what becomes of them: a trade, a withdrawal, or nothing."""
    order = np.zeros(n, EVENT)
    order["symbol"] = rng.choice(market.n_symbols, n, p=market.share)
    order["ts_us"] = _draw_times(rng, market, order["symbol"])
    order["account"] = _draw_accounts(rng, n, np.array([0.5, 0.2, 0.3]))
    order["side"] = rng.integers(0, 2, n)
    order["size"] = _draw_sizes(rng, market, order["symbol"])
    order["order_id"] = np.arange(n)
    order["trade_id"] = NOTHING
    order["aggressive"] = NOTHING
    order["case"] = NOTHING
    fate = rng.random(n)
    is_filled = fate < _FILLED_SHARE
    is_cancelled = ~is_filled & (fate < _FILLED_SHARE + _CANCELLED_SHARE)
    done_us = order["ts_us"] + (rng.exponential(20 * SECOND_US, n)).astype(np.int64)
    done_us, in_auction = _traded_times(market, order["symbol"], order["ts_us"], done_us)
    day_end_us = order["ts_us"] // DAY_US * DAY_US + CLOSED_US
    is_filled &= done_us < day_end_us
    fills = np.flatnonzero(is_filled)
    taker = _draw_accounts(rng, n, np.array([0.0, 0.3, 0.7]))
    _sweep(rng, order, fills[~in_auction[fills]], done_us, taker)
    is_maker = order["account"] % 15 == MARKET_MAKER
    life_us = rng.exponential(1.0, n) * np.where(is_maker, 400 * MILLISECOND_US, MINUTE_US)
    cancelled_us = np.minimum(order["ts_us"] + life_us.astype(np.int64) + MILLISECOND_US, day_end_us)
    away = np.where(is_filled, 2.0, 2 + rng.exponential(8.0, n)) * _BASIS_POINT
    distance = np.where(order["side"] == BUY, -away, away) * ~(in_auction & is_filled)
    priced_us = np.where(is_filled, done_us, order["ts_us"])
    placed = Flow(order, priced_us, distance)
    withdrawn = _part(placed, np.flatnonzero(is_cancelled), kind=CANCELLED, ts_us=cancelled_us[is_cancelled])
    return _joined([placed, *_trades(rng, placed, fills, done_us, in_auction, taker), withdrawn])


def _trades(
    rng: np.random.Generator, placed: Flow, fills: I64, done_us: I64, in_auction: I64, taker: I64
) -> list[Flow]:
    """Return the orders on the other side, both fills of each trade, and the busts of some trades."""
    n = len(placed.events)
    trade_id = np.arange(len(fills))
    entered_us = done_us[fills] - np.where(in_auction[fills], rng.integers(1, 20, len(fills)) * SECOND_US, 0)
    other: dict[str, I64] = {
        "account": taker[fills],
        "side": BUY + SELL - placed.events["side"][fills],
        "order_id": n + trade_id,
    }
    counter = _part(placed, fills, ts_us=entered_us, **other)
    done: dict[str, Any] = {"kind": FILLED, "ts_us": done_us[fills], "trade_id": trade_id}
    aggressive = (~in_auction[fills]).astype(np.int64)
    two_sides = _joined(
        [
            _part(placed, fills, **done, aggressive=np.int64(0)),
            _part(placed, fills, **done, **other, aggressive=aggressive),
        ]
    )
    # The two fills of a trade follow each other.
    pairs = np.arange(2 * len(fills)).reshape(2, -1).T.ravel()
    two_sides = _part(two_sides, pairs)
    busted = np.repeat(rng.random(len(fills)) < _BUST_SHARE, 2)
    later_us = np.repeat(rng.integers(10 * SECOND_US, 10 * MINUTE_US, len(fills)), 2)
    rows = np.flatnonzero(busted)
    bust_us = two_sides.events["ts_us"][rows] + later_us[rows]
    return [counter, two_sides, _part(two_sides, rows, kind=BUSTED, ts_us=bust_us, aggressive=NOTHING)]


def _draw_ladders(rng: np.random.Generator, market: Market, n: int, first_order: int) -> Flow:
    """Return the quotes of market makers: some levels on both sides, withdrawn together after seconds."""
    symbol = rng.choice(market.n_symbols, n, p=market.share)
    ladder = np.zeros(n, EVENT)
    ladder["symbol"] = symbol
    ladder["ts_us"] = _draw_times(rng, market, symbol)
    ladder["account"] = account_number(rng.integers(0, N_MEMBERS, n), MARKET_MAKER)
    ladder["trade_id"] = ladder["aggressive"] = ladder["case"] = NOTHING
    rows = np.repeat(np.arange(n), 2 * _LEVELS)
    level = np.tile(np.arange(2 * _LEVELS), n)
    away = (3 + 5 * (level // 2)) * _BASIS_POINT
    quotes = ladder[rows]
    quotes["side"] = level % 2
    quotes["order_id"] = first_order + np.arange(len(rows))
    quotes["size"] = market.typical_size[symbol[rows]]
    placed = Flow(quotes, quotes["ts_us"], np.where(level % 2 == BUY, -away, away))
    until_us = quotes["ts_us"] + np.repeat(rng.integers(SECOND_US, 8 * SECOND_US, n), 2 * _LEVELS)
    return _joined([placed, _part(placed, np.arange(len(rows)), kind=CANCELLED, ts_us=until_us)])


def _draw_times(rng: np.random.Generator, market: Market, symbol: I64) -> I64:
    """Return times at which the instruments accept orders: more at the start and the end, and in bursts."""
    n = len(symbol)
    edges = np.concatenate([[0.0], np.cumsum(_PARTS) / _PARTS.sum()])
    time_us = np.interp(rng.random(n), edges, _PART_ENDS_US).astype(np.int64)
    day = rng.integers(0, N_DAYS, n)
    in_burst = np.flatnonzero(rng.random(n) < _BURST_SHARE)
    bursts_us = rng.integers(OPEN_US + MINUTE_US, CLOSING_US - 30 * MINUTE_US, (market.n_symbols, N_DAYS))
    after_us = rng.exponential(15 * SECOND_US, len(in_burst)).astype(np.int64)
    time_us[in_burst] = bursts_us[symbol[in_burst], day[in_burst]] + np.minimum(after_us, 25 * MINUTE_US)
    at_us = START_US + day * DAY_US + time_us
    # An order that would come during a halt comes as soon as the halt is over.
    is_halted = market.is_halted(symbol, at_us)
    resumed_us = market.halt_end_us(symbol, at_us) + rng.integers(0, MINUTE_US, n)
    return np.asarray(np.where(is_halted, resumed_us, at_us))


def _traded_times(market: Market, symbol: I64, placed_us: I64, done_us: I64) -> tuple[I64, I64]:
    """Return when orders are filled, and whether that is the end of an auction."""
    midnight_us = placed_us // DAY_US * DAY_US
    opens_us, closes_us, ends_us = midnight_us + OPEN_US, midnight_us + CLOSING_US, midnight_us + CLOSED_US
    in_opening, in_closing = placed_us < opens_us, placed_us >= closes_us
    in_halt = market.is_halted(symbol, done_us, REOPENING_US) & ~in_opening & ~in_closing
    auction_us = np.select(
        [in_opening, in_closing], [opens_us, ends_us], market.halt_end_us(symbol, placed_us)
    )
    auction_us = auction_us + np.where(in_halt, REOPENING_US, 0) - MILLISECOND_US
    in_auction = in_opening | in_closing | in_halt
    overdue = ~in_auction & (done_us >= closes_us)
    return np.where(in_auction, auction_us, np.where(overdue, ends_us, done_us)), in_auction


def _sweep(rng: np.random.Generator, order: Events, fills: I64, done_us: I64, taker: I64) -> None:
    """Let one account take several orders within milliseconds, for some of the trades. Changes all arrays."""
    group = (order["symbol"] * N_DAYS + (order["ts_us"] - START_US) // DAY_US) * 2 + order["side"]
    rows = fills[np.lexsort((done_us[fills], group[fills]))]
    continues = (rng.random(len(rows)) < _SWEEP_SHARE) & (np.diff(group[rows], prepend=-1) == 0)
    idx = np.arange(len(rows))
    first = np.maximum.accumulate(np.where(continues, 0, idx))
    taker[rows] = taker[rows[first]]
    done_us[rows] = done_us[rows[first]] + (idx - first) * 20 * MILLISECOND_US
    order["ts_us"][rows] = np.minimum(order["ts_us"][rows], done_us[rows] - MILLISECOND_US)


def _draw_accounts(rng: np.random.Generator, n: int, shares: F64) -> I64:
    """Return accounts: market makers, those of the house, clients."""
    group = np.searchsorted(np.cumsum(shares), rng.random(n), side="right").clip(0, 2)
    house, client = rng.choice(HOUSE, n), rng.integers(max(HOUSE) + 1, 15, n)
    place = np.select([group == 0, group == 1], [np.full(n, MARKET_MAKER), house], client)
    drawn: I64 = account_number(rng.integers(0, N_MEMBERS, n), place)
    return drawn


def _draw_sizes(rng: np.random.Generator, market: Market, symbol: I64) -> I64:
    """Return sizes around the typical one. One order in two hundred is of an institution, and large."""
    n = len(symbol)
    factor = np.exp(0.6 * rng.standard_normal(n))
    factor = np.where(rng.random(n) < 0.005, rng.uniform(10, 40, n), factor)
    return np.maximum((market.typical_size[symbol] * factor).astype(np.int64) // 10 * 10, 10)


def _part(flow: Flow, rows: I64, **changed: I64 | int | np.int64) -> Flow:
    """Return the given rows with other values in some columns."""
    events = flow.events[rows]
    for name, values in changed.items():
        events[name] = values
    return Flow(events, flow.priced_us[rows], flow.distance[rows])


def _joined(parts: list[Flow]) -> Flow:
    return Flow(
        np.concatenate([part.events for part in parts]),
        np.concatenate([part.priced_us for part in parts]),
        np.concatenate([part.distance for part in parts]),
    )
