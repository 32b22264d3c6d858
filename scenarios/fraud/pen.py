"""Stories, and the pen that writes the events of one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scenarios.fraud.events import (
    COUNTRIES,
    CREDENTIAL_CHANGE,
    DAY_US,
    END_US,
    I64,
    LOGIN,
    NOTHING,
    OTP_SENT,
    OTP_USED,
    PURCHASE,
    RISKY,
    SECOND_US,
    STRANGE_DEVICE,
    STRANGE_PAYEE,
    TRANSFER,
    WITHDRAWAL,
    EventList,
    Events,
    Mask,
)
from scenarios.fraud.traffic import Cards, usual_payee


@dataclass(frozen=True, slots=True)
class Case:
    """One story: its rule, its label, its card, and its first and last time."""

    rule: str
    label: str  # of scenarios.fraud.stories
    variant: str
    card: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A change of a holder's limit for transfers, valid from a time on."""

    card: int
    ts_us: int
    limit: float


@dataclass(slots=True)
class Stories:
    """All stories of a seed. `quiet_card[i]` has no ordinary payments before `quiet_until_us[i]`."""

    cases: list[Case] = field(default_factory=list)
    written: EventList = field(default_factory=EventList)
    quiet_card: list[int] = field(default_factory=list)
    quiet_until_us: list[int] = field(default_factory=list)
    empty_statement_card: list[int] = field(default_factory=list)
    limits: list[LimitChange] = field(default_factory=list)

    def cards_with_limits(self) -> I64:
        """Return the cards whose limit changes in a story."""
        return np.unique(np.array([change.card for change in self.limits], np.int64))

    def events(self) -> Events:
        """Return the events of all stories. The column `case` is an index into `cases`."""
        return self.written.to_events()

    def contradicts(self, traffic: Events, n_cards: int) -> Mask:
        """Return a mask of the ordinary events that contradict a story of a dormant card."""
        until = np.zeros(n_cards, dtype=np.int64)
        until[self.quiet_card] = self.quiet_until_us
        return (traffic.ts_us < until[traffic.card]) & np.isin(traffic.kind, (PURCHASE, OTP_SENT, OTP_USED))


@dataclass(frozen=True, slots=True)
class Payee:
    """The payee of a transfer, and the payee's country."""

    number: int
    country: int


class Pen:
    """Writes the events of one story of a card. Its clock only goes forward."""

    def __init__(
        self, rng: np.random.Generator, cards: Cards, stories: Stories, card: int, start_us: int
    ) -> None:
        self.rng = rng
        self.cards = cards
        self.stories = stories
        self.card = card
        self.now_us = start_us
        self.thief = STRANGE_DEVICE + int(rng.integers(0, 1_000_000_000))
        self.owner = 2 * card

    def wait(self, low_s: float, high_s: float) -> None:
        """Advance the clock by a random time between `low_s` and `high_s`."""
        self.now_us += int(self.rng.uniform(low_s, high_s) * SECOND_US)

    def between(self, low: float, high: float) -> float:
        """Return a random amount between `low` and `high`."""
        return round(float(self.rng.uniform(low, high)), 2)

    def times(self, low: int, high: int) -> range:
        """Return a range of random length from `low` to `high`, both included."""
        return range(int(self.rng.integers(low, high + 1)))

    def country(self) -> int:
        """Return the country where the holder is now."""
        return int(self.cards.country_at(np.array([self.card]), np.array([self.now_us]))[0])

    def other_country(self) -> int:
        """Return a country where the holder is not."""
        return (self.country() + int(self.rng.integers(1, len(COUNTRIES)))) % len(COUNTRIES)

    def merchants(self, n: int) -> list[int]:
        """Return `n` different merchants."""
        chosen: list[int] = self.rng.choice(self.cards.n_merchants, n, replace=False).tolist()
        return chosen

    def begin_at_most(self, days: float) -> None:
        """Set the clock back if fewer than `days` remain: a long story must end in time."""
        self.now_us = min(self.now_us, END_US - int(days * DAY_US))

    def pay_online(self, amount: float, device: int, approved: int = 1, merchant: int | None = None) -> None:
        """Write an online purchase, at any merchant if none is named."""
        where = self.merchants(1)[0] if merchant is None else merchant
        self._add(PURCHASE, amount, device=device, card_present=0, approved=approved, merchant=where)

    def pay_in_shop(self, amount: float, country: int) -> None:
        """Write a purchase with the card's chip."""
        self._add(PURCHASE, amount, country=country, card_present=1, merchant=self.merchants(1)[0])

    def log_in(self, device: int, approved: int) -> None:
        """Write a login."""
        self._add(LOGIN, np.nan, device=device, approved=approved)

    def change_credentials(self, device: int, approved: int = 1) -> None:
        """Write a change of password or phone number."""
        self._add(CREDENTIAL_CHANGE, np.nan, device=device, approved=approved)

    def transfer(self, amount: float, device: int, approved: int = 1, to: Payee | None = None) -> None:
        """Write a transfer, to somebody in the home country if no payee is named."""
        payee = Payee(usual_payee(self.card), int(self.cards.home[self.card])) if to is None else to
        self._add(TRANSFER, amount, device=device, approved=approved, payee=payee)

    def limit(self, amount: float) -> None:
        """Give the holder a limit for transfers from now on."""
        self.stories.limits.append(LimitChange(self.card, self.now_us, amount))

    def strange_payee(self, *, is_risky: bool = True) -> Payee:
        """Return somebody in a country to which the holder has never sent money."""
        home = int(self.cards.home[self.card])
        countries = [n for n in range(len(COUNTRIES)) if n != home and (n in RISKY) == is_risky]
        number = STRANGE_PAYEE + int(self.rng.integers(0, 1_000_000_000))
        return Payee(number, int(self.rng.choice(countries)))

    def withdraw(self, amount: float) -> None:
        """Write a withdrawal."""
        self._add(WITHDRAWAL, amount, card_present=1)

    def send_code(self, amount: float, device: int) -> None:
        """Write the event of a one-time code that was sent."""
        self._code(OTP_SENT, amount, device)

    def use_code(self, amount: float, device: int) -> None:
        """Write the event of a one-time code that was used."""
        self._code(OTP_USED, amount, device)

    def _code(self, kind: int, amount: float, device: int) -> None:
        case = len(self.stories.cases)
        self.stories.written.add(case, self.now_us, self.card, kind, amount=amount, device=device)

    def _add(
        self,
        kind: int,
        amount: float,
        *,
        country: int | None = None,
        merchant: int = -1,
        card_present: int = -1,
        approved: int = 1,
        device: int = -1,
        payee: Payee | None = None,
    ) -> None:
        self.stories.written.add(
            len(self.stories.cases),
            self.now_us,
            self.card,
            kind,
            amount=amount,
            country=self.country() if country is None else country,
            merchant=merchant,
            card_present=card_present,
            approved=approved,
            device=device,
            payee=NOTHING if payee is None else payee.number,
            payee_country=NOTHING if payee is None else payee.country,
        )
