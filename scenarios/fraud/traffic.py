"""Ordinary card traffic: busy and quiet cards and merchants, hours of the day, trips, codes, statements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scenarios.fraud.events import (
    BALANCE,
    COUNTRIES,
    CREDENTIAL_CHANGE,
    DAY_US,
    END_US,
    F64,
    HOUR_US,
    I64,
    LOGIN,
    MINUTE_US,
    N_DAYS,
    NOTHING,
    OTP_SENT,
    OTP_USED,
    PURCHASE,
    SECOND_US,
    START_US,
    STATEMENT,
    TRANSFER,
    WITHDRAWAL,
    Events,
    Mask,
    blank,
    concat,
)

EVENTS_PER_CARD = 33
"""Average number over all days. Some cards are used many times a day and some twice a month."""

CYCLE_US = 30 * DAY_US
"""Time from one statement of a card to the next."""

_HOUR_WEIGHTS = np.array(
    [2, 1, 1, 1, 1, 2, 4, 7, 9, 10, 11, 13, 15, 13, 11, 11, 12, 14, 15, 13, 10, 8, 6, 4], dtype=np.float64
)
_WEEKDAY_WEIGHTS = np.array([1.15, 0.75, 0.95, 0.95, 1.0, 1.05, 1.25])  # the first day is a Saturday
_COUNTRY_WEIGHTS = np.array([30, 14, 8, 5, 4, 4, 9, 8, 5, 2, 2, 2, 4, 1, 1, 0.3, 0.3, 0.1, 0.3, 0.3])
_NEIGHBOUR = np.array([1, 3, 3, 2, 0, 0, 5, 1, 0, 0, 0, 10, 1, 12, 0, 18, 13, 14, 15, 14])
_KIND_WEIGHTS = {
    PURCHASE: 0.70,
    LOGIN: 0.155,
    BALANCE: 0.09,
    WITHDRAWAL: 0.03,
    TRANSFER: 0.022,
    CREDENTIAL_CHANGE: 0.003,
}
_LOCAL_COUNTRY_SHARE = 0.8
_AFTER_ANOTHER_SHARE = 0.25
_ONLINE_SHARE = 0.4
_CODE_FROM_AMOUNT = 150.0
_UNUSED_CODE_SHARE = 0.01
_SLOW_CODE_SHARE = 0.003


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of one seed. A card is its index. The trip of a card that stays at home is NOTHING."""

    share: F64  # of the traffic; sums to 1
    home: I64  # index of COUNTRIES
    abroad: I64
    trip_start_us: I64
    trip_end_us: I64
    lives_at_border: Mask
    statement_us: I64  # of the first statement
    n_merchants: int

    def __len__(self) -> int:
        return len(self.share)

    def country_at(self, card: I64, ts_us: I64) -> I64:
        """Return the country where the holder is."""
        travels = (self.trip_start_us[card] <= ts_us) & (ts_us < self.trip_end_us[card])
        # A holder who lives at a border is on one side of it or the other for some hours at a time.
        across = self.lives_at_border[card] & ((card * 7919 + ts_us // (3 * HOUR_US) * 104_729) % 5 < 2)
        home = np.where(across, _NEIGHBOUR[self.home[card]], self.home[card])
        return np.where(travels, self.abroad[card], home)

    def is_on_the_way(self, card: I64, ts_us: I64) -> Mask:
        """Return whether the holder is between two countries, where no terminal reads a card."""
        start, end = self.trip_start_us[card], self.trip_end_us[card]
        near = (np.abs(ts_us - start) < 4 * HOUR_US) | (np.abs(ts_us - end) < 4 * HOUR_US)
        return np.asarray(near & (start != NOTHING))


def draw_cards(rng: np.random.Generator, n_cards: int) -> Cards:
    """Return `n_cards` cards. The busiest card is used about a hundred times as often as the quietest."""
    # Zipf-Mandelbrot, because plain Zipf would give one card a tenth of all purchases.
    weight = 1.0 / (np.arange(n_cards) + 1 + n_cards / 300)
    rng.shuffle(weight)
    home = rng.choice(len(COUNTRIES), n_cards, p=_COUNTRY_WEIGHTS / _COUNTRY_WEIGHTS.sum())
    abroad = (home + rng.integers(1, len(COUNTRIES), n_cards)) % len(COUNTRIES)
    travels = rng.random(n_cards) < 0.35
    trip_start = START_US + rng.integers(DAY_US, (N_DAYS - 4) * DAY_US, n_cards)
    trip_end = trip_start + rng.integers(3 * DAY_US, 14 * DAY_US, n_cards)
    return Cards(
        share=weight / weight.sum(),
        home=home.astype(np.int64),
        abroad=abroad.astype(np.int64),
        trip_start_us=np.where(travels, trip_start, NOTHING),
        trip_end_us=np.where(travels, trip_end, NOTHING),
        lives_at_border=rng.random(n_cards) < 0.03,
        statement_us=START_US + rng.integers(0, CYCLE_US, n_cards),
        n_merchants=max(50, n_cards // 12),
    )


def draw_traffic(rng: np.random.Generator, cards: Cards, n_events: int) -> Events:
    """Return at least `n_events` ordinary events. They include one-time codes, but no statements."""
    base = _draw_base(rng, cards, n_events)
    return concat([*_add_codes(rng, base)])


PAYEES_PER_CARD = 6
"""Number of people to whom a holder sends most of the money."""

_NEW_PAYEE_SHARE = 0.1


def usual_payee(card: int | I64) -> Any:
    """Return the first of the usual payees of a card."""
    return card * PAYEES_PER_CARD


def with_payees(rng: np.random.Generator, cards: Cards, events: Events, at_home: I64) -> Events:
    """Return events whose transfers have payees: most often one of a few in the country of the holder.

    The cards `at_home` send money to no other country.
    """
    rows = np.flatnonzero((events.kind == TRANSFER) & (events.payee == NOTHING))
    card = events.card[rows]
    usual = rng.choice(PAYEES_PER_CARD, len(rows), p=_falling(PAYEES_PER_CARD))
    strange = PAYEES_PER_CARD * len(cards) + rng.integers(0, 4 * len(cards), len(rows))
    is_strange = (rng.random(len(rows)) < _NEW_PAYEE_SHARE) & ~np.isin(card, at_home)
    payee, country = events.payee.copy(), events.payee_country.copy()
    payee[rows] = np.where(is_strange, strange, usual_payee(card) + usual)
    weight = _COUNTRY_WEIGHTS / _COUNTRY_WEIGHTS.sum()
    country[rows] = np.where(is_strange, rng.choice(len(COUNTRIES), len(rows), p=weight), cards.home[card])
    return replace(events, payee=payee, payee_country=country)


def draw_statements(rng: np.random.Generator, cards: Cards, traffic: Events, quiet: list[int]) -> Events:
    """Return the statements of every card: the sum of its purchases since the statement before.

    The cards in `quiet` did not pay in their first cycle. The first cycle of every other card starts before
    the first day, so the first statement of such a card is never empty.
    """
    n_cards = len(cards)
    paid = traffic.take((traffic.kind == PURCHASE) & (traffic.approved == 1))
    cycle = (paid.ts_us - cards.statement_us[paid.card]) // CYCLE_US  # -1: before the first statement
    first = _amounts(rng, n_cards, median=200.0, spread=1.0)
    first += np.bincount(paid.card, weights=paid.amount * (cycle == -1), minlength=n_cards)
    first[quiet] = 0.0
    second = np.bincount(paid.card, weights=paid.amount * (cycle == 0), minlength=n_cards)
    every_card = np.arange(n_cards, dtype=np.int64)
    kind = np.full(2 * n_cards, STATEMENT, dtype=np.int64)
    times = np.concatenate([cards.statement_us, cards.statement_us + CYCLE_US])
    statements = blank(times, np.concatenate([every_card, every_card]), kind)
    return replace(statements, amount=np.round(np.concatenate([first, second]), 2))


def _draw_base(rng: np.random.Generator, cards: Cards, n_events: int) -> Events:
    """Return independent events. Some of them are followed by another event minutes later."""
    card = (
        np.searchsorted(np.cumsum(cards.share), rng.random(n_events)).clip(0, len(cards) - 1).astype(np.int64)
    )
    ts_us = _draw_times(rng, n_events)
    n_after = int(n_events * _AFTER_ANOTHER_SHARE)
    parent = rng.integers(n_after, n_events, n_after)
    card[:n_after] = card[parent]
    ts_us[:n_after] = ts_us[parent] + (rng.exponential(8.0, n_after) * MINUTE_US).astype(np.int64)
    ts_us = np.minimum(ts_us, END_US - 1)
    kinds = np.array(list(_KIND_WEIGHTS))
    shares = np.array(list(_KIND_WEIGHTS.values()))
    kind = kinds[np.searchsorted(np.cumsum(shares), rng.random(n_events)).clip(0, len(kinds) - 1)]
    events = blank(ts_us, card, kind.astype(np.int64))

    is_purchase = kind == PURCHASE
    online = (rng.random(n_events) < _ONLINE_SHARE) | cards.is_on_the_way(card, ts_us)
    present = (is_purchase & ~online) | (kind == WITHDRAWAL)
    amount = np.full(n_events, np.nan)
    amount[is_purchase] = _amounts(rng, int(is_purchase.sum()), median=22.0, spread=1.1)
    taken = kind == WITHDRAWAL
    amount[taken] = rng.choice(20.0 * np.arange(1, 21), int(taken.sum()), p=_falling(20))
    moved = kind == TRANSFER
    amount[moved] = _amounts(rng, int(moved.sum()), median=120.0, spread=1.1)
    where = cards.country_at(card, ts_us)
    shop = np.where(
        rng.random(n_events) < _LOCAL_COUNTRY_SHARE,
        where,
        rng.choice(len(COUNTRIES), n_events, p=_COUNTRY_WEIGHTS / _COUNTRY_WEIGHTS.sum()),
    )
    fails = np.select([is_purchase, kind == LOGIN], [0.03, 0.06], 0.02)
    approved = (rng.random(n_events) >= fails).astype(np.int64)
    by_device = np.isin(kind, (LOGIN, TRANSFER, CREDENTIAL_CHANGE, BALANCE)) | (is_purchase & ~present)
    return replace(
        events,
        amount=amount,
        country=np.where(is_purchase & ~present, shop, where),
        merchant=np.where(is_purchase, _draw_merchants(rng, cards, n_events), NOTHING),
        card_present=np.where(is_purchase | taken, present.astype(np.int64), NOTHING),
        approved=np.where(kind == BALANCE, NOTHING, approved),
        device=np.where(by_device, own_device(card, (rng.random(n_events) < 0.2).astype(np.int64)), NOTHING),
    )


def own_device(card: I64, second: I64) -> I64:
    """Return the number of the holder's first or second device."""
    return card * 2 + second


def _add_codes(rng: np.random.Generator, base: Events) -> tuple[Events, Events, Events]:
    """Return the events, the codes sent for large online payments, and the codes used.

    A payment is omitted if its code was never used. A few holders use the code after its time.
    """
    asks = np.flatnonzero(
        (base.kind == PURCHASE) & (base.card_present == 0) & (base.amount >= _CODE_FROM_AMOUNT)
    )
    paid = base.take(asks)
    fate = rng.random(len(asks))
    unused = fate < _UNUSED_CODE_SHARE
    slow = ~unused & (fate < _UNUSED_CODE_SHARE + _SLOW_CODE_SHARE)
    before_us = (5 + rng.exponential(20.0, len(asks)).clip(0, 200)) * SECOND_US
    before_us[slow] += rng.integers(5 * MINUTE_US, 9 * MINUTE_US, int(slow.sum()))
    sent = replace(
        blank(paid.ts_us - before_us.astype(np.int64), paid.card, np.full(len(asks), OTP_SENT)),
        amount=paid.amount,
        device=paid.device,
    )
    answer_us = paid.ts_us - rng.integers(SECOND_US // 2, 4 * SECOND_US, len(asks))
    used = replace(
        blank(answer_us, paid.card, np.full(len(asks), OTP_USED)), amount=paid.amount, device=paid.device
    )
    happens = np.ones(len(base), dtype=bool)
    happens[asks[unused]] = False
    return base.take(happens), sent, used.take(~unused)


def _draw_times(rng: np.random.Generator, n: int) -> I64:
    """Return times that are distributed over the day and the week like real purchases."""
    days = np.resize(_WEEKDAY_WEIGHTS, N_DAYS)
    slots = np.outer(days, _HOUR_WEIGHTS).ravel()
    edges = np.concatenate([[0.0], np.cumsum(slots) / slots.sum()])
    # Inverse of the distribution function, linear inside each hour.
    return START_US + (np.interp(rng.random(n), edges, np.arange(len(edges))) * HOUR_US).astype(np.int64)


def _draw_merchants(rng: np.random.Generator, cards: Cards, n: int) -> I64:
    """Return merchants with Zipf's law, exponent 1.1."""
    weight = np.arange(1, cards.n_merchants + 1) ** -1.1
    return (
        np.searchsorted(np.cumsum(weight / weight.sum()), rng.random(n))
        .clip(0, cards.n_merchants - 1)
        .astype(np.int64)
    )


def _amounts(rng: np.random.Generator, n: int, median: float, spread: float) -> F64:
    drawn: F64 = np.maximum(median * np.exp(spread * rng.standard_normal(n)), 0.5)
    return np.round(drawn, 2)


def _falling(n: int) -> F64:
    weight: F64 = 1.0 / np.arange(1, n + 1)
    return np.asarray(weight / weight.sum())
