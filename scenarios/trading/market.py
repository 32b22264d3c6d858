"""The exchange of one seed: its days, instruments, accounts, and the path of each price."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cep.arrays import F64, I64

MILLISECOND_US = 1_000
SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

START_US = 1_740_960_000_000_000
"""The first midnight: Monday, 2025-03-03T00:00Z."""

N_DAYS = 5
END_US = START_US + N_DAYS * DAY_US

# Times of a day, after midnight. Orders come in from the start of the opening auction.
OPENING_US = 8 * HOUR_US + 50 * MINUTE_US
OPEN_US = 9 * HOUR_US
CLOSING_US = 17 * HOUR_US + 30 * MINUTE_US
CLOSED_US = CLOSING_US + 5 * MINUTE_US
REOPENING_US = 30 * SECOND_US
"""Length of the auction that ends a halt."""

KINDS = ("placed", "cancelled", "filled", "busted")
PLACED, CANCELLED, FILLED, BUSTED = range(4)
SIDES = ("buy", "sell")
BUY, SELL = range(2)
NOTHING = -1
"""NULL in a column of integers."""

Events = npt.NDArray[Any]
EVENT = np.dtype(
    [
        *((name, np.int64) for name in ("ts_us", "account", "symbol", "order_id", "kind", "side", "size")),
        *((name, np.int64) for name in ("trade_id", "aggressive", "case")),
        ("price", np.float64),
    ]
)
"""An event as numbers. `case` is the number of the planted story that it belongs to."""

N_MEMBERS = 40
ACCOUNTS_PER_MEMBER = 15
N_ACCOUNTS = N_MEMBERS * ACCOUNTS_PER_MEMBER
MARKET_MAKER = 0
HOUSE = (1, 2)
"""The places, among the accounts of a member, of those with which it trades for itself."""
STAND_IN = 5
"""The place of a client that is in no story. It has the orders that would disturb one."""
CLIENTS = (6, 7, 8, 9, 10)
RELATED = (14, 13)
"""Account 14 of a member and account 13 of the next one have one owner."""
RELATED_LATER = (12, 11)
"""The same, but only from a later time on, if a story says so."""

_STEP_US = 5 * SECOND_US
_N_STEPS = (CLOSED_US - OPENING_US) // _STEP_US + 1
_DAILY_VOLATILITY = 0.01


@dataclass(frozen=True, slots=True)
class Market:
    """Instruments by their number. `log_path[symbol, day, step]` is the logarithm of a price.

    `halt_us[symbol, day]` is the time of a day at which a halt starts, and `halted_us` its length. It is 0
    without a halt.
    """

    share: F64  # of the orders; sums to 1
    typical_size: I64
    log_path: F64
    halt_us: I64
    halted_us: I64

    @property
    def n_symbols(self) -> int:
        """Number of instruments."""
        return len(self.share)

    def price(self, symbol: I64 | int, at_us: I64 | int) -> Any:
        """Return the middle of the market at some times, not rounded."""
        day, time_us = np.divmod(np.asarray(at_us) - START_US, DAY_US)
        step = np.clip((time_us - OPENING_US) / _STEP_US, 0, _N_STEPS - 1.001)
        low = step.astype(np.int64)
        before, after = self.log_path[symbol, day, low], self.log_path[symbol, day, low + 1]
        return np.exp(before + (after - before) * (step - low))

    def bend(self, symbol: int, day: int, points: list[tuple[int, float]]) -> None:
        """Replace a part of the path of a day by a line through points: time of the day, and logarithm.

        The line starts at the price of the first point. The rest of the day continues from its end.
        """
        times = OPENING_US + _STEP_US * np.arange(_N_STEPS)
        path = self.log_path[symbol, day]
        at_us, by = zip(*points, strict=True)
        level = np.log(self.price(symbol, START_US + day * DAY_US + at_us[0]))
        is_bent, is_after = (times >= at_us[0]) & (times <= at_us[-1]), times > at_us[-1]
        if is_after.any():
            path[is_after] += level + by[-1] - path[is_after][0]
        path[is_bent] = level + np.interp(times[is_bent], at_us, by)

    def is_halted(self, symbol: I64, at_us: I64, extra_us: int = 0) -> Any:
        """Return whether the instrument is halted, or was `extra_us` ago."""
        day, time_us = np.divmod(at_us - START_US, DAY_US)
        start = self.halt_us[symbol, day]
        return (start > 0) & (start <= time_us) & (time_us < start + self.halted_us[symbol, day] + extra_us)

    def halt_end_us(self, symbol: I64, at_us: I64) -> Any:
        """Return the end of the halt of this day."""
        day = (at_us - START_US) // DAY_US
        return START_US + day * DAY_US + self.halt_us[symbol, day] + self.halted_us[symbol, day]


def draw_market(rng: np.random.Generator, n_symbols: int) -> Market:
    """Return a market whose busiest instrument is traded about twenty times as often as the quietest."""
    weight = 1.0 / (np.arange(n_symbols) + 1 + n_symbols / 20)
    rng.shuffle(weight)
    log_open = np.log(rng.uniform(20, 300, n_symbols))[:, None, None]
    overnight = np.cumsum(rng.normal(0, 0.008, (n_symbols, N_DAYS)), axis=1)[:, :, None]
    steps = rng.standard_normal((n_symbols, N_DAYS, _N_STEPS)) * (_DAILY_VOLATILITY / np.sqrt(_N_STEPS))
    is_halted = rng.random((n_symbols, N_DAYS)) < 0.04
    halt_us = rng.integers(10 * HOUR_US, 16 * HOUR_US, (n_symbols, N_DAYS)) // SECOND_US * SECOND_US
    halted_us = rng.integers(4 * MINUTE_US, 8 * MINUTE_US, (n_symbols, N_DAYS)) // SECOND_US * SECOND_US
    return Market(
        share=weight / weight.sum(),
        typical_size=rng.integers(5, 60, n_symbols) * 10,
        log_path=log_open + overnight + np.cumsum(steps, axis=2),
        halt_us=np.where(is_halted, halt_us, 0),
        halted_us=np.where(is_halted, halted_us, 0),
    )


def account_number(member: Any, place: Any) -> Any:
    """Return the account at a place among those of a member."""
    return member * ACCOUNTS_PER_MEMBER + place


def account_name(account: int) -> str:
    """Return the name of an account."""
    return f"acc-{account}"


def owner_name(account: int) -> str:
    """Return the owner of an account before the first day."""
    member, place = divmod(account, ACCOUNTS_PER_MEMBER)
    if place <= max(HOUSE):
        return f"firm-{member}"
    if place == RELATED[1]:
        return owner_name(account_number((member - 1) % N_MEMBERS, RELATED[0]))
    return f"owner-{account}"
