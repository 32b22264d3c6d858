"""Planted stories and their truth: abuse, and near misses that lack one thing.

Each story has an instrument and a day of its own. Its accounts do nothing else there, and none of its events
is a straggler. So the right answer is known, whatever the ordinary orders around it are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from cep.arrays import F64
from cep.backtest.truth import NEAR_MISS
from scenarios.delivery import Mask
from scenarios.trading.market import (
    BUY,
    CLOSED_US,
    CLOSING_US,
    DAY_US,
    HOUR_US,
    N_MEMBERS,
    RELATED,
    RELATED_LATER,
    SECOND_US,
    START_US,
    Market,
    account_name,
    owner_name,
)
from scenarios.trading.pen import Case, OwnerChange, Pen, Stories

ABUSE = "abuse"

EVENTS_PER_ABUSE = 20_000
"""Each rule has one abuse and one near miss in this many events, but at least `MIN_ABUSES` of each."""

MIN_ABUSES = 6

_CLOSES = CLOSING_US / HOUR_US


def _spoofing(
    pen: Pen,
    n: tuple[int, int] = (3, 5),
    sizes: tuple[float, float] = (12, 25),
    stays: float = 0.05,
    after: float = 0.1,
    is_other_side: bool = True,
) -> str:
    for number in range(pen.number_in(n)):
        order = pen.place(pen.trader, pen.side, pen.size(*sizes), pen.price(-8 if pen.side == BUY else 8))
        low = stays if number == 1 else 0.05  # the other orders are withdrawn in time
        pen.wait(low, low + 0.4)
        pen.cancel(order)
        pen.wait(0.1, 1.2)
    pen.wait(after, after + 0.5)
    pen.trade(pen.trader, pen.other_side if is_other_side else pen.side, pen.size(0.5, 3))
    return account_name(pen.trader)


def _spoofing_in_the_auction(pen: Pen) -> str:
    pen.at((CLOSED_US - 4 * SECOND_US) / HOUR_US)
    return _spoofing(pen, (3, 3), after=0)


def _layering(
    pen: Pen,
    n: tuple[int, int] = (4, 7),
    sizes: tuple[float, float] = (3.2, 6),
    step: float = 5.0,
    stays: float = 0.2,
    is_taken: bool = False,
    is_other_side: bool = True,
) -> str:
    away, top = (-1 if pen.side == BUY else 1), pen.price()
    orders = []
    for level in range(pen.number_in(n)):
        price = top * (1 + away * (3 + step * level) / 10_000)
        orders.append(pen.place(pen.trader, pen.side, pen.size(*sizes), price))
        pen.wait(0.05, 1.2)
    if is_taken:
        pen.take_half(orders[0])
        pen.wait(0.1, 0.4)
    pen.trade(pen.trader, pen.other_side if is_other_side else pen.side, pen.size(0.5, 2))
    pen.wait(stays, 2 * stays)
    for order in orders:
        pen.cancel(order)
        pen.wait(0.01, 0.3)
    return account_name(pen.trader)


def _wash_trades(
    pen: Pen,
    n: tuple[int, int] = (3, 5),
    minutes: tuple[float, float] = (0.3, 2),
    are_related: bool = True,
    is_busted: bool = False,
) -> str:
    pair = pen.related(RELATED) if are_related else (pen.trader, pen.client((pen.member + 1) % N_MEMBERS))
    trade = 0
    for number in range(pen.number_in(n)):
        pen.wait(60 * minutes[0] * (number > 0), 60 * minutes[1] * (number > 0))
        trade = pen.trade(pair[number % 2], BUY, pen.size(1, 4), other=pair[1 - number % 2])
    # The exchange may cancel a trade for a minute, so the story ends a minute later.
    pen.wait(5, 50)
    if is_busted:
        pen.bust(trade)
    pen.wait(55, 60)
    return owner_name(pair[0])


def _related_only_later(pen: Pen) -> str:
    # A pair becomes related once, so each such story has another pair.
    pen.member = len(pen.stories.owners)
    first, second = pen.related(RELATED_LATER)
    for number in range(3):
        pen.trade((first, second)[number % 2], BUY, pen.size(1, 4), other=(second, first)[number % 2])
        pen.wait(30, 120)
    pen.wait(60, 120)
    pen.stories.owners.append(OwnerChange(second, pen.now_us, first))
    return owner_name(first)


def _momentum_ignition(
    pen: Pen,
    n: tuple[int, int] = (5, 8),
    percent: float = 0.9,
    turn_percent: float = 0.8,
    after: tuple[float, float] = (5, 40),
    is_aggressive: bool = True,
) -> str:
    sign, start, trades = (1 if pen.side == BUY else -1), pen.price(), pen.number_in(n)
    pen.bend((trades, sign * percent), (trades + 40, sign * percent), (trades + 200, 0))
    for number in range(trades):
        price = start * (1 + sign * percent / 100 * number / (trades - 1))
        pen.trade(pen.trader, pen.side, pen.size(0.5, 2), price, is_aggressive=is_aggressive)
        pen.wait(0.2, 1.5)
    pen.wait(*after)
    pen.trade(pen.trader, pen.other_side, pen.size(3, 6), start * (1 + sign * turn_percent / 100))
    return account_name(pen.trader)


def _front_running(
    pen: Pen,
    sizes: tuple[float, float] = (25, 50),
    before: tuple[float, float] = (2, 25),
    gain_percent: float = 0.6,
    of_member: int = 0,
    is_same_side: bool = True,
) -> str:
    sign, house = (1 if pen.side == BUY else -1), pen.house()
    client = pen.client((pen.member + of_member) % N_MEMBERS)
    start = pen.price()
    pen.bend((90, sign * gain_percent))
    pen.trade(house, pen.side, pen.size(4, 10), start)
    pen.wait(*before)
    pen.place(client, pen.side if is_same_side else pen.other_side, pen.size(*sizes), start)
    pen.wait(60, 240)
    pen.trade(house, pen.other_side, pen.size(4, 10), start * (1 + sign * gain_percent / 100))
    return account_name(house)


def _trades_after_the_client(pen: Pen) -> str:
    sign, house = (1 if pen.side == BUY else -1), pen.house()
    pen.bend((90, sign * 0.6))
    start = pen.price()
    pen.place(pen.client(pen.member), pen.side, pen.size(25, 50), start)
    pen.wait(0.5, 10)
    pen.trade(house, pen.side, pen.size(4, 10), start)
    pen.wait(60, 240)
    pen.trade(house, pen.other_side, pen.size(4, 10), start * (1 + sign * 0.006))
    return account_name(house)


def _marking_the_close(
    pen: Pen,
    n: tuple[int, int] = (4, 7),
    percent: float = 1.8,
    of_volume: float = 0.15,
    hour: float = _CLOSES - 9 / 60,
    n_traders: int = 1,
) -> str:
    # The price is level in the half hour before: its average is the price at which the trades start.
    pen.at(hour - 0.55)
    pen.bend((0.55 * 3600, 0))
    for _ in range(11):
        pen.trade(pen.stranger(), pen.side, pen.size(0.5, 1.5))
        pen.wait(60, 170)
    pen.at(hour)
    sign, trades, start_us = (1 if pen.side == BUY else -1), pen.number_in(n), pen.now_us
    traders = [pen.trader, *(pen.client((pen.member + n) % N_MEMBERS) for n in range(1, n_traders))]
    pen.bend((250, sign * percent))
    for number in range(trades):
        size = int(pen.volume * of_volume / trades) + 1
        pen.trade(traders[number % n_traders], pen.side, size)
        pen.now_us = start_us + 500 * (number + 1) // trades * SECOND_US
    return account_name(pen.trader)


def _shape(pen: Pen, legs: tuple[tuple[float, float], ...], minutes: tuple[float, float] = (2.0, 3.5)) -> str:
    """Move the price: after each leg, of some minutes, to a percentage. Strangers trade all the time."""
    # It rises first, so that the fall starts at the highest price of the last minutes.
    points, end_s = [(60.0, 0.5)], 60.0
    for scale, percent in legs:
        end_s += 60 * scale * pen.rng.uniform(*minutes)
        points.append((end_s, percent))
    pen.bend(*points)
    end_us = pen.now_us + int((end_s + 30) * SECOND_US)
    pen.now_us += 58 * SECOND_US
    while pen.now_us < end_us:
        pen.trade(pen.stranger(), BUY, pen.size(0.5, 1.5))
        pen.wait(end_s / 80, end_s / 40)
    return ""


def _low_in_the_reopening(pen: Pen) -> str:
    halt_us = START_US + pen.day * DAY_US + int(pen.market.halt_us[pen.symbol, pen.day])
    pen.now_us = halt_us - 40 * SECOND_US
    before = pen.price(50)  # the highest of the last minutes
    for _ in range(4):
        pen.trade(pen.stranger(), BUY, pen.size(0.5, 1.5), before)
        pen.wait(5, 9)
    pen.now_us = halt_us + int(pen.market.halted_us[pen.symbol, pen.day]) + 15 * SECOND_US
    pen.trade(pen.stranger(), BUY, pen.size(2, 5), 0.965 * before, is_aggressive=False)
    pen.wait(20, 30)
    for _ in range(4):
        pen.trade(pen.stranger(), BUY, pen.size(0.5, 1.5), before)
        pen.wait(5, 9)
    return ""


@dataclass(frozen=True, slots=True)
class Plot:
    """Writes a story, and returns who did it. `reason` says why it is not a match; it is empty for abuse."""

    write: Callable[[Pen], str]
    reason: str = ""
    needs_halt: bool = False


_W_MINUTES = (5.5, 6.3)
_W_FALL, _W_RISE, _W_END = (1.0, -2.1), (1.0, -0.5), (1.0, 0.4)

PLOTS: dict[str, tuple[Plot, ...]] = {
    "spoofing": (
        Plot(_spoofing),
        Plot(partial(_spoofing, n=(2, 2)), "two orders, not three"),
        Plot(partial(_spoofing, n=(3, 3), stays=0.52), "one order stays for more than 500 milliseconds"),
        Plot(partial(_spoofing, sizes=(3, 9.5)), "no order has ten times the typical size"),
        Plot(partial(_spoofing, is_other_side=False), "the trade is on the side of the orders"),
        Plot(partial(_spoofing, after=2.0), "the trade comes more than 2 seconds later"),
        Plot(_spoofing_in_the_auction, "it happens in the closing auction"),
    ),
    "layering": (
        Plot(_layering),
        Plot(partial(_layering, n=(3, 3)), "three orders, not four"),
        Plot(partial(_layering, step=0.0), "all orders have one price"),
        Plot(partial(_layering, n=(4, 4), is_taken=True), "half of one order is filled"),
        Plot(partial(_layering, sizes=(0.8, 2.9)), "no order has three times the typical size"),
        Plot(partial(_layering, is_other_side=False), "the trade is on the side of the orders"),
        Plot(partial(_layering, stays=6), "the orders stay for more than 5 seconds after the trade"),
    ),
    "wash_trades": (
        Plot(_wash_trades),
        Plot(partial(_wash_trades, n=(2, 2)), "two trades, not three"),
        Plot(partial(_wash_trades, n=(3, 3), minutes=(5.5, 12)), "three trades in more than 10 minutes"),
        Plot(partial(_wash_trades, are_related=False), "the accounts have two owners"),
        Plot(partial(_wash_trades, n=(3, 3), is_busted=True), "the exchange cancels the third trade"),
        Plot(_related_only_later, "the accounts get one owner only after the trades"),
    ),
    "momentum_ignition": (
        Plot(_momentum_ignition),
        Plot(partial(_momentum_ignition, n=(4, 4)), "four trades, not five"),
        Plot(
            partial(_momentum_ignition, percent=0.35, turn_percent=0.3),
            "the price moves by less than half a percent",
        ),
        Plot(partial(_momentum_ignition, after=(62, 100)), "the other side comes after more than a minute"),
        Plot(partial(_momentum_ignition, turn_percent=0.1), "the position is closed with a loss"),
        Plot(partial(_momentum_ignition, is_aggressive=False), "others took the orders of the trader"),
    ),
    "front_running": (
        Plot(_front_running),
        Plot(_trades_after_the_client, "the firm trades after the client's order"),
        Plot(partial(_front_running, of_member=1), "the client is one of another firm"),
        Plot(partial(_front_running, is_same_side=False), "the client's order is on the other side"),
        Plot(partial(_front_running, sizes=(2, 19)), "the order has less than twenty times the typical size"),
        Plot(partial(_front_running, before=(31, 80)), "the firm trades more than 30 seconds before"),
        Plot(partial(_front_running, gain_percent=0.05), "the firm gains less than 0.2 percent"),
    ),
    "marking_the_close": (
        Plot(_marking_the_close),
        Plot(partial(_marking_the_close, n=(2, 2)), "two trades, not three"),
        Plot(partial(_marking_the_close, of_volume=0.07), "the trades are less than a tenth of a day"),
        Plot(partial(_marking_the_close, percent=0.5), "the price moves by less than one percent"),
        Plot(
            partial(_marking_the_close, hour=_CLOSES - 1.5),
            "it happens an hour before the close",
        ),
        Plot(partial(_marking_the_close, n=(6, 6), n_traders=3), "three accounts trade, twice each"),
    ),
    "v_shape": (
        Plot(partial(_shape, legs=((1, -2.6), (1, 0.3)))),
        Plot(partial(_shape, legs=((1, -0.9), (1, 0.4))), "the price falls by less than two percent"),
        Plot(partial(_shape, legs=((1, -2.6), (1, -1.2), (1, -1.2))), "the price returns half of the way"),
        Plot(partial(_shape, legs=((1, -2.6), (5, 0.3))), "the price returns after more than ten minutes"),
        Plot(_low_in_the_reopening, "the low is a price of an auction, after a halt", needs_halt=True),
    ),
    "w_shape": (
        Plot(partial(_shape, legs=(_W_FALL, _W_RISE, _W_FALL, _W_END), minutes=_W_MINUTES)),
        Plot(
            partial(_shape, legs=((1, -1.0), (1, -0.1), (1, -1.0), _W_END), minutes=_W_MINUTES),
            "the price falls by less than two percent",
        ),
        Plot(
            partial(_shape, legs=(_W_FALL, (1, -0.9), (1, -2.7), _W_END), minutes=_W_MINUTES),
            "the second low is lower than the first by more than a tenth of the fall",
        ),
        Plot(
            partial(_shape, legs=(_W_FALL, (1, -1.6), _W_FALL, _W_END), minutes=_W_MINUTES),
            "between the lows the price rises by less than two fifths of the fall",
        ),
        Plot(
            partial(_shape, legs=(_W_FALL, _W_RISE, _W_FALL, (1, -0.8)), minutes=_W_MINUTES),
            "the price does not return",
        ),
        Plot(partial(_shape, legs=(_W_FALL, (2, 0.4)), minutes=_W_MINUTES), "there is one low"),
    ),
}
"""Rule -> its abuse, then its near misses. The stories use the near misses in turn."""


def n_abuses(n_events: int) -> int:
    """Return the number of abuses, and of near misses, that are planted for each rule in `n_events`."""
    return max(MIN_ABUSES, n_events // EVENTS_PER_ABUSE)


def plant(rng: np.random.Generator, market: Market, volume: F64, n_events: int) -> Stories:
    """Return the stories for `n_events`, and move prices where a story needs it.

    `volume` has the number of shares that are traded in a day, for each instrument. No two stories have the
    same instrument and day.
    """
    n = n_abuses(n_events)
    told = [
        (rule, plot)
        for rule, (abuse, *near_misses) in PLOTS.items()
        for idx in range(n)
        for plot in (abuse, near_misses[idx % len(near_misses)])
    ]
    is_halted = market.halt_us > 0
    quiet, halted = _shuffled(rng, ~is_halted), _shuffled(rng, is_halted)
    stories = Stories()
    for rule, plot in told:
        symbol, day = (halted if plot.needs_halt else quiet).pop()
        pen = Pen(rng, market, stories, volume[symbol], symbol, day)
        first = len(stories.rows)
        trader = plot.write(pen)
        times = [int(row[0]) for row in stories.rows[first:]]
        label = NEAR_MISS if plot.reason else ABUSE
        stories.cases.append(Case(rule, label, plot.reason, symbol, trader, min(times), pen.now_us))
    return stories


def _shuffled(rng: np.random.Generator, places: Mask) -> list[tuple[int, int]]:
    """Return the places (instrument, day) at random."""
    return [(int(symbol), int(day)) for symbol, day in rng.permutation(np.argwhere(places))]
