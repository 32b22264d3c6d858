"""Stories, and the pen that writes the orders of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scenarios.trading.market import (
    ACCOUNTS_PER_MEMBER,
    BUSTED,
    BUY,
    CANCELLED,
    CLIENTS,
    DAY_US,
    EVENT,
    FILLED,
    HOUSE,
    MILLISECOND_US,
    N_ACCOUNTS,
    N_DAYS,
    N_MEMBERS,
    NOTHING,
    PLACED,
    SECOND_US,
    SELL,
    STAND_IN,
    START_US,
    Events,
    Market,
    account_number,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One story: its rule and label, why it is not a match, where it happens, who does it, and when."""

    rule: str
    label: str  # of scenarios.trading.stories
    reason: str
    symbol: int
    trader: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """An account has the owner of another account from a time on."""

    account: int
    ts_us: int
    owner_of: int


@dataclass(frozen=True, slots=True)
class Order:
    """An order that a pen has placed."""

    number: int
    account: int
    side: int
    size: int
    price: float


@dataclass(slots=True)
class Stories:
    """All stories of a seed, and the accounts that do nothing else with an instrument on a day."""

    cases: list[Case] = field(default_factory=list)
    rows: list[tuple[float, ...]] = field(default_factory=list)
    reserved: list[tuple[int, int, int]] = field(default_factory=list)  # account, symbol, day
    owners: list[OwnerChange] = field(default_factory=list)
    n_orders: int = 0
    n_trades: int = 0

    def events(self, first_order: int, first_trade: int) -> Events:
        """Return the events of all stories. Orders and trades are counted from the given numbers."""
        events = np.array(self.rows, EVENT)
        events["order_id"] += first_order
        events["trade_id"] += np.where(events["trade_id"] == NOTHING, 0, first_trade)
        return events

    def make_room(self, market: Market, ordinary: Events) -> None:
        """Give the ordinary orders that would disturb a story to another account of the same member."""
        is_reserved = np.zeros((N_ACCOUNTS, market.n_symbols, N_DAYS), dtype=bool)
        is_reserved[tuple(np.array(self.reserved).T)] = True
        account, day = ordinary["account"], (ordinary["ts_us"] - START_US) // DAY_US
        stand_in = account_number(account // ACCOUNTS_PER_MEMBER, STAND_IN)
        ordinary["account"] = np.where(is_reserved[account, ordinary["symbol"], day], stand_in, account)


class Pen:
    """Writes the orders of one story, which has an instrument and a day. Its clock only goes forward."""

    def __init__(
        self,
        rng: np.random.Generator,
        market: Market,
        stories: Stories,
        volume: float,
        symbol: int,
        day: int,
    ) -> None:
        self.rng = rng
        self.market = market
        self.stories = stories
        self.volume = volume
        self.symbol = symbol
        self.day = day
        self.member = int(rng.integers(0, N_MEMBERS))
        self.side = int(rng.integers(0, 2))
        self.other_side = BUY + SELL - self.side
        self.trader = self.client(self.member)
        self.now_us = 0
        self.at(rng.uniform(10, 15.5))

    def at(self, hour: float) -> None:
        """Set the clock to a time of the day."""
        self.now_us = START_US + self.day * DAY_US + round(hour * 3_600_000) * MILLISECOND_US

    def wait(self, low_s: float, high_s: float) -> None:
        """Advance the clock by a random time between `low_s` and `high_s`."""
        self.now_us += int(self.rng.uniform(low_s, high_s) * SECOND_US) // MILLISECOND_US * MILLISECOND_US

    def number_in(self, bounds: tuple[int, int]) -> int:
        """Return a random number between two bounds, both included."""
        return int(self.rng.integers(bounds[0], bounds[1] + 1))

    def size(self, low: float, high: float) -> int:
        """Return a size between two multiples of the typical one."""
        typical = int(self.market.typical_size[self.symbol])
        return max(1, int(self.rng.uniform(low, high) * typical))

    def client(self, member: int) -> int:
        """Return a client of a member. It does nothing else with this instrument on this day."""
        return self._reserved(account_number(member, int(self.rng.choice(CLIENTS))))

    def house(self) -> int:
        """Return an account with which the member of this story trades for itself."""
        return self._reserved(account_number(self.member, int(self.rng.choice(HOUSE))))

    def related(self, places: tuple[int, int]) -> tuple[int, int]:
        """Return two accounts of different members that have, or may get, one owner."""
        other_member = (self.member + 1) % N_MEMBERS
        return (
            self._reserved(account_number(self.member, places[0])),
            self._reserved(account_number(other_member, places[1])),
        )

    def stranger(self) -> int:
        """Return an account that is in no story."""
        return int(account_number(int(self.rng.integers(0, N_MEMBERS)), STAND_IN))

    def price(self, basis_points: float = 0.0) -> float:
        """Return the current price, moved by some hundredths of a percent."""
        return float(self.market.price(self.symbol, self.now_us)) * (1 + basis_points / 10_000)

    def bend(self, *points: tuple[float, float]) -> None:
        """Move the price of the instrument along lines through points: seconds from now, and percent.

        After the last point it stays where it is.
        """
        now_us = (self.now_us - START_US) % DAY_US
        line = [(now_us + int(after_s * SECOND_US), float(np.log1p(by / 100))) for after_s, by in points]
        self.market.bend(self.symbol, self.day, [(now_us, 0.0), *line])

    def place(self, account: int, side: int, size: int, price: float) -> Order:
        """Write an order."""
        self.stories.n_orders += 1
        order = Order(self.stories.n_orders, account, side, size, round(price, 2))
        self._add(PLACED, order)
        return order

    def cancel(self, order: Order) -> None:
        """Withdraw an order."""
        self._add(CANCELLED, order)

    def trade(
        self,
        account: int,
        side: int,
        size: int,
        price: float | None = None,
        *,
        other: int | None = None,
        is_aggressive: bool = True,
    ) -> int:
        """Write a trade with another account, or with a stranger; return its number.

        Without a price, the current price is used.
        """
        at = self.price() if price is None else price
        mine = self.place(account, side, size, at)
        theirs = self.place(self.stranger() if other is None else other, BUY + SELL - side, size, at)
        return self._fill(mine, theirs, is_aggressive)

    def take_half(self, order: Order) -> None:
        """Write that a stranger takes half of an order in the book."""
        half = Order(order.number, order.account, order.side, order.size // 2, order.price)
        self._fill(self.place(self.stranger(), BUY + SELL - order.side, half.size, order.price), half)

    def bust(self, trade: int) -> None:
        """Write that the exchange cancels a trade."""
        fills = [row for row in self.stories.rows if row[_TRADE] == trade and row[_KIND] == FILLED]
        self.stories.rows += [(self.now_us, *row[1:_KIND], BUSTED, *row[_KIND + 1 :]) for row in fills]

    def _fill(self, order: Order, other: Order, is_aggressive: bool = True) -> int:
        self.stories.n_trades += 1
        self._add(FILLED, order, self.stories.n_trades, int(is_aggressive))
        self._add(FILLED, other, self.stories.n_trades, int(not is_aggressive))
        return self.stories.n_trades

    def _add(self, kind: int, order: Order, trade: int = NOTHING, aggressive: int = NOTHING) -> None:
        self.stories.rows.append(
            (
                *(self.now_us, order.account, self.symbol, order.number, kind, order.side, order.size),
                *(trade, aggressive, len(self.stories.cases), order.price),
            )
        )

    def _reserved(self, account: int) -> int:
        self.stories.reserved.append((account, self.symbol, self.day))
        return account


_KIND = list(EVENT.fields or ()).index("kind")
_TRADE = list(EVENT.fields or ()).index("trade_id")
