"""The events of a shop: changes of orders, payments and logins, and the pen that writes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US

START_US = 1_740_960_000 * SECOND_US
"""2025-03-03T00:00Z, the start of the data."""

NOW_US = START_US + DAY_US
"""When the pipeline starts for the first time: earlier changes are in its first copy."""

PLACED, SHIPPED, CANCELLED = "placed", "shipped", "cancelled"
PAYMENT, DECLINED, REFUND = "payment", "declined", "refund"


@dataclass(frozen=True, slots=True)
class OrderChange:
    """A row of the table `orders`, valid from a time on. Amounts are in cents, times in microseconds."""

    at_us: int
    order_id: int
    account: str
    status: str
    cents: int


@dataclass(frozen=True, slots=True)
class Payment:
    """A row of the table `payments`."""

    at_us: int
    payment_id: int
    order_id: int
    account: str
    kind: str
    cents: int


@dataclass(frozen=True, slots=True)
class Login:
    """A message of the topic `logins`."""

    at_us: int
    login_id: int
    account: str
    success: bool
    address: str


@dataclass(frozen=True, slots=True)
class Order:
    """An order that a pen has placed."""

    order_id: int
    account: str
    cents: int


@dataclass(slots=True)
class Pen:
    """Writes events at its current time `now_us`."""

    rng: Random
    changes: list[OrderChange | Payment] = field(default_factory=list)
    logins: list[Login] = field(default_factory=list)
    now_us: int = START_US
    n_accounts: int = 0
    n_orders: int = 0
    n_payments: int = 0

    def wait(self, low: float, high: float, unit_us: int = MINUTE_US) -> None:
        """Advance the time by a random amount between `low` and `high`."""
        self.now_us += int(self.rng.uniform(low, high) * unit_us)

    def cents(self, low: float, high: float) -> int:
        """Return a random amount between two bounds."""
        return round(self.rng.uniform(low, high) * 100)

    def new_account(self) -> str:
        """Return the name of a new account."""
        self.n_accounts += 1
        return f"account-{self.n_accounts}"

    def place(self, account: str, cents: int) -> Order:
        """Place an order."""
        self.n_orders += 1
        order = Order(self.n_orders, account, cents)
        self._change(order, PLACED)
        return order

    def ship(self, order: Order) -> None:
        """Ship an order."""
        self._change(order, SHIPPED)

    def cancel(self, order: Order) -> None:
        """Cancel an order."""
        self._change(order, CANCELLED)

    def pay(self, order: Order) -> None:
        """Pay for an order."""
        self._move(order, PAYMENT, order.cents)

    def decline(self, order: Order) -> None:
        """Try to pay for an order, without success."""
        self._move(order, DECLINED, order.cents)

    def refund(self, order: Order, cents: int | None = None) -> None:
        """Refund the amount of an order, or `cents` of it."""
        self._move(order, REFUND, order.cents if cents is None else cents)

    def log_in(self, account: str, *, success: bool = True, is_strange: bool = False) -> None:
        """Log in, successfully or not, from the account's usual address or from a strange one."""
        number = int(account.rpartition("-")[2])
        network = "203.0.113" if is_strange else f"10.{number // 256 % 256}.{number % 256}"
        address = f"{network}.{7 if not is_strange else self.rng.randrange(1, 255)}"
        self.logins.append(Login(self.now_us, len(self.logins) + 1, account, success, address))

    def _change(self, order: Order, status: str) -> None:
        self.changes.append(OrderChange(self.now_us, order.order_id, order.account, status, order.cents))

    def _move(self, order: Order, kind: str, cents: int) -> None:
        self.n_payments += 1
        self.changes.append(Payment(self.now_us, self.n_payments, order.order_id, order.account, kind, cents))


Plot = Callable[[Pen], "str | int"]
"""Writes a story; returns the key of its rule: an account, or the number of an order."""


def write_traffic(pen: Pen, n_orders: int, days: float = 2.5) -> None:
    """Write the events of honest customers, who log in, place an order, pay for it and receive it."""
    accounts = [pen.new_account() for _ in range(max(20, n_orders // 3))]
    for _ in range(n_orders):
        pen.now_us = START_US + int(pen.rng.random() * days * DAY_US)
        account = pen.rng.choice(accounts)
        if pen.rng.random() < 0.1:
            pen.log_in(account, success=False)
            pen.wait(0.1, 1)
        pen.log_in(account)
        pen.wait(1, 20)
        order = pen.place(account, pen.cents(5, 150))
        pen.wait(0.5, 15)
        if pen.rng.random() < 0.05:
            pen.decline(order)
            pen.wait(0.5, 10)
        fate = pen.rng.random()
        if fate < 0.03:
            pen.cancel(order)
        elif fate < 0.06:
            pen.pay(order)
            pen.wait(20, 300)
            pen.cancel(order)
            pen.wait(30, 300)
            pen.refund(order)
        elif fate < 0.08:
            pen.wait(100, 300)
            pen.ship(order)
            pen.wait(5, 50)
            pen.pay(order)
        else:
            pen.pay(order)
            pen.wait(120, 1200)
            pen.ship(order)
