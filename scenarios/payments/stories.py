"""Stories in the traffic of a shop: for each rule some that it must find, and near misses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TypeVar

from scenarios.payments.events import DAY_US, HOUR_US, MINUTE_US, NOW_US, Order, Pen, Plot

ORDERS_PER_STORY = 500
MIN_STORIES = 4
"""Fewest stories of each rule, and fewest near misses."""


@dataclass(frozen=True, slots=True)
class Story:
    """A planted story; `key` is what an alert of `rule` names: an account or the number of an order."""

    rule: str
    is_planted: bool
    variant: str
    key: str


_T = TypeVar("_T")
Step = Callable[[Pen, _T], object]
"""The next step of an order or an account, such as `Pen.pay`."""


def _wait(low: float, high: float, unit_us: int = MINUTE_US) -> Callable[[Pen, object], None]:
    return lambda pen, _: pen.wait(low, high, unit_us)


def _refund_part(pen: Pen, order: Order) -> None:
    """Refund a third of an order."""
    pen.refund(order, order.cents // 3)


def _refund_rest(pen: Pen, order: Order) -> None:
    """Refund an order except for a third."""
    pen.refund(order, order.cents - order.cents // 3)


def _of_order(*steps: Step[Order], when: Callable[[Pen], object] = lambda pen: None) -> Plot:
    """Return a story of an order that starts like any other; `when` is the time of its start."""

    def plot(pen: Pen) -> int:
        when(pen)
        order = pen.place(pen.new_account(), pen.cents(20, 150))
        pen.wait(1, 10)
        for step in steps:
            step(pen, order)
        return order.order_id

    return plot


def _before_the_start(pen: Pen) -> None:
    """Set the time to shortly before the start of the pipeline."""
    pen.now_us = NOW_US
    pen.wait(-50, -15)


def _of_account(*steps: Step[str]) -> Plot:
    """Return a story of a new account."""

    def plot(pen: Pen) -> str:
        account = pen.new_account()
        for step in steps:
            step(pen, account)
        return account

    return plot


def _fail(fewest: int, most: int | None = None) -> Step[str]:
    """Return a step that logs in several times with a wrong password."""

    def step(pen: Pen, account: str) -> None:
        for _ in range(fewest if most is None else pen.rng.randint(fewest, most)):
            pen.log_in(account, success=False, is_strange=True)
            pen.wait(0.1, 2)

    return step


def _buy(low: float, high: float) -> Step[str]:
    """Return a step that orders, pays for and receives an item; its amount is between two bounds."""

    def step(pen: Pen, account: str) -> None:
        order = pen.place(account, pen.cents(low, high))
        pen.wait(1, 5)
        pen.pay(order)
        pen.wait(2, 10, HOUR_US)
        pen.ship(order)

    return step


def _spend(*cents: int, way: Step[Order] = Pen.pay) -> Step[str]:
    """Return a step that orders for these amounts, and pays or tries to pay."""

    def step(pen: Pen, account: str) -> None:
        for amount in cents:
            order = pen.place(account, amount)
            pen.wait(1, 5)
            way(pen, order)
            pen.wait(5, 60)

    return step


def _spend_often(pen: Pen, account: str) -> None:
    """Spend more than 2,000 in five orders or more."""
    _spend(*(pen.cents(410, 450) for _ in range(pen.rng.randint(5, 7))))(pen, account)


def _log_in_from_afar(pen: Pen, account: str) -> None:
    pen.log_in(account, is_strange=True)


_LATER_SHIPPED = (_wait(2, 20, HOUR_US), Pen.ship)
_CANCELLED = (Pen.pay, _wait(10, 300), Pen.cancel, _wait(10, 300))
_HOURS_LATER = _wait(0.1, 30, HOUR_US)
_DEAR, _CHEAP = _buy(501, 1900), _buy(300, 500)

PLOTS: Mapping[str, tuple[Mapping[str, Plot], Mapping[str, Plot]]] = {
    "paid_twice": (
        {
            "paid_again": _of_order(Pen.pay, _wait(1, 60), Pen.pay, _wait(100, 200), Pen.ship),
            "paid_again_after_it_was_shipped": _of_order(
                Pen.pay, _wait(2, 10, HOUR_US), Pen.ship, _wait(2, 10, HOUR_US), Pen.pay
            ),
        },
        {
            "paid_again_after_a_refund": _of_order(Pen.pay, _wait(5, 60), Pen.refund, _wait(5, 60), Pen.pay),
            "paid_after_it_was_declined": _of_order(Pen.decline, _wait(1, 30), Pen.pay),
            "paid_again_a_day_later": _of_order(Pen.pay, _wait(24.1, 30, HOUR_US), Pen.pay),
        },
    ),
    "shipped_unpaid": (
        {
            "shipped_and_never_paid": _of_order(*_LATER_SHIPPED),
            "shipped_although_declined": _of_order(Pen.decline, *_LATER_SHIPPED, _wait(5, 50), Pen.decline),
            "paid_too_late": _of_order(*_LATER_SHIPPED, _wait(61, 300), Pen.pay),
            "placed_before_the_pipeline_started": _of_order(*_LATER_SHIPPED, when=_before_the_start),
        },
        {
            "paid_within_the_hour": _of_order(*_LATER_SHIPPED, _wait(5, 59), Pen.pay),
            "paid_and_shipped": _of_order(Pen.decline, _wait(1, 10), Pen.pay, *_LATER_SHIPPED),
            "never_paid_and_never_shipped": _of_order(),
        },
    ),
    "order_after_failed_logins": (
        {
            "guessed_and_bought": _of_account(_fail(3, 6), _log_in_from_afar, _wait(1, 10), _DEAR),
            "bought_without_a_login": _of_account(_fail(3), _wait(1, 20), _DEAR),
        },
        {
            "failed_twice_only": _of_account(_fail(2), Pen.log_in, _wait(1, 10), _DEAR),
            "bought_too_little": _of_account(_fail(4), Pen.log_in, _wait(1, 10), _CHEAP),
            "bought_too_late": _of_account(_fail(3), _wait(31, 60), Pen.log_in, _DEAR),
        },
    ),
    "refunded_twice": (
        {
            "refunded_again": _of_order(*_CANCELLED, Pen.refund, _HOURS_LATER, Pen.refund),
            "refunded_again_in_part": _of_order(*_CANCELLED, Pen.refund, _HOURS_LATER, _refund_part),
        },
        {
            "refunded_once": _of_order(*_CANCELLED, Pen.refund),
            "refunded_in_two_parts": _of_order(*_CANCELLED, _refund_part, _HOURS_LATER, _refund_rest),
            "refunded_twice_and_never_cancelled": _of_order(
                Pen.pay,
                _wait(3, 10, HOUR_US),
                Pen.ship,
                *(_wait(1, 20, HOUR_US), Pen.refund) * 2,
            ),
            "refunded_again_days_later": _of_order(
                *_CANCELLED, Pen.refund, _wait(2.1, 3, DAY_US), Pen.refund
            ),
        },
    ),
    "day_limit": (
        {
            "over_the_limit": _of_account(_spend_often),
            "over_the_limit_by_a_cent": _of_account(_spend(*[40_000] * 4, 40_001)),
        },
        {
            "exactly_at_the_limit": _of_account(_spend(*[40_000] * 5)),
            "over_the_limit_in_two_days": _of_account(
                _spend(*[45_000] * 4), _wait(24, 30, HOUR_US), _spend(*[45_000] * 4)
            ),
            "over_the_limit_with_what_was_declined": _of_account(
                _spend(*[45_000] * 3), _spend(*[45_000] * 3, way=Pen.decline)
            ),
        },
    ),
}
"""Rule -> stories that it must find, and near misses, by name. They are used in turn."""


def tell_stories(pen: Pen, n_orders: int) -> list[Story]:
    """Write the stories for `n_orders` orders of traffic. Each story has its own account and orders."""
    n = max(MIN_STORIES, n_orders // ORDERS_PER_STORY)
    told = []
    for rule, (planted, near_misses) in PLOTS.items():
        for plots, is_planted in ((planted, True), (near_misses, False)):
            for name, plot in islice(cycle(plots.items()), n):
                pen.now_us = NOW_US
                pen.wait(1, 36, HOUR_US)
                told.append(Story(rule, is_planted, name, str(plot(pen))))
    return told
