"""Stories among the traffic of a shop: for each rule some that it must find, and near misses."""

from __future__ import annotations

from dataclasses import dataclass

from scenarios.payments.events import DAY_US, HOUR_US, NOW_US, Order, Pen, Plot

ORDERS_PER_STORY = 500
MIN_STORIES = 4
"""Fewest stories of each rule, and fewest near misses."""


@dataclass(frozen=True, slots=True)
class Story:
    """A story that was told; `key` is what an alert of `rule` names: an account or the number of an order."""

    rule: str
    is_planted: bool
    variant: str
    key: str


def _usual(pen: Pen) -> Order:
    """Place an order that is nothing special."""
    order = pen.place(pen.new_account(), pen.cents(20, 150))
    pen.wait(1, 10)
    return order


def _paid(pen: Pen) -> Order:
    order = _usual(pen)
    pen.pay(order)
    return order


def _paid_again(pen: Pen) -> int:
    order = _paid(pen)
    pen.wait(1, 60)
    pen.pay(order)
    pen.wait(100, 200)
    pen.ship(order)
    return order.order_id


def _paid_again_after_it_was_shipped(pen: Pen) -> int:
    order = _paid(pen)
    pen.wait(2, 10, HOUR_US)
    pen.ship(order)
    pen.wait(2, 10, HOUR_US)
    pen.pay(order)
    return order.order_id


def _paid_again_after_a_refund(pen: Pen) -> int:
    order = _paid(pen)
    pen.wait(5, 60)
    pen.refund(order)
    pen.wait(5, 60)
    pen.pay(order)
    return order.order_id


def _paid_after_it_was_declined(pen: Pen) -> int:
    order = _usual(pen)
    pen.decline(order)
    pen.wait(1, 30)
    pen.pay(order)
    return order.order_id


def _paid_again_a_day_later(pen: Pen) -> int:
    order = _paid(pen)
    pen.wait(24.1, 30, HOUR_US)
    pen.pay(order)
    return order.order_id


def _shipped(pen: Pen) -> Order:
    order = _usual(pen)
    pen.wait(2, 20, HOUR_US)
    pen.ship(order)
    return order


def _shipped_and_never_paid(pen: Pen) -> int:
    return _shipped(pen).order_id


def _shipped_although_declined(pen: Pen) -> int:
    order = _usual(pen)
    pen.decline(order)
    pen.wait(2, 20, HOUR_US)
    pen.ship(order)
    pen.wait(5, 50)
    pen.decline(order)
    return order.order_id


def _paid_too_late(pen: Pen) -> int:
    order = _shipped(pen)
    pen.wait(61, 300)
    pen.pay(order)
    return order.order_id


def _placed_before_the_pipeline_started(pen: Pen) -> int:
    pen.now_us = NOW_US
    pen.wait(-50, -15)
    order = _usual(pen)
    pen.wait(2, 20, HOUR_US)
    pen.ship(order)
    return order.order_id


def _paid_within_the_hour(pen: Pen) -> int:
    order = _shipped(pen)
    pen.wait(5, 59)
    pen.pay(order)
    return order.order_id


def _paid_and_shipped(pen: Pen) -> int:
    order = _usual(pen)
    pen.decline(order)
    pen.wait(1, 10)
    pen.pay(order)
    pen.wait(2, 20, HOUR_US)
    pen.ship(order)
    return order.order_id


def _never_paid_and_never_shipped(pen: Pen) -> int:
    return _usual(pen).order_id


def _fail(pen: Pen, account: str, n: int, *, is_strange: bool = True) -> None:
    for _ in range(n):
        pen.log_in(account, success=False, is_strange=is_strange)
        pen.wait(0.1, 2)


def _buy(pen: Pen, account: str, low: float, high: float) -> None:
    order = pen.place(account, pen.cents(low, high))
    pen.wait(1, 5)
    pen.pay(order)
    pen.wait(2, 10, HOUR_US)
    pen.ship(order)


def _guessed_and_bought(pen: Pen) -> str:
    account = pen.new_account()
    _fail(pen, account, pen.rng.randint(3, 6))
    pen.log_in(account, is_strange=True)
    pen.wait(1, 10)
    _buy(pen, account, 501, 1900)
    return account


def _bought_without_a_login(pen: Pen) -> str:
    account = pen.new_account()
    _fail(pen, account, 3)
    pen.wait(1, 20)
    _buy(pen, account, 501, 1900)
    return account


def _failed_twice_only(pen: Pen) -> str:
    account = pen.new_account()
    _fail(pen, account, 2)
    pen.log_in(account)
    pen.wait(1, 10)
    _buy(pen, account, 501, 1900)
    return account


def _bought_too_little(pen: Pen) -> str:
    account = pen.new_account()
    _fail(pen, account, 4)
    pen.log_in(account)
    pen.wait(1, 10)
    _buy(pen, account, 300, 500)
    return account


def _bought_too_late(pen: Pen) -> str:
    account = pen.new_account()
    _fail(pen, account, 3)
    pen.wait(31, 60)
    pen.log_in(account)
    _buy(pen, account, 501, 1900)
    return account


def _cancelled(pen: Pen) -> Order:
    order = _paid(pen)
    pen.wait(10, 300)
    pen.cancel(order)
    pen.wait(10, 300)
    return order


def _refunded_again(pen: Pen) -> int:
    order = _cancelled(pen)
    pen.refund(order)
    pen.wait(0.1, 30, HOUR_US)
    pen.refund(order)
    return order.order_id


def _refunded_again_in_part(pen: Pen) -> int:
    order = _cancelled(pen)
    pen.refund(order)
    pen.wait(0.1, 30, HOUR_US)
    pen.refund(order, order.cents // 3)
    return order.order_id


def _refunded_once(pen: Pen) -> int:
    order = _cancelled(pen)
    pen.refund(order)
    return order.order_id


def _refunded_in_two_parts(pen: Pen) -> int:
    order = _cancelled(pen)
    pen.refund(order, order.cents // 3)
    pen.wait(0.1, 30, HOUR_US)
    pen.refund(order, order.cents - order.cents // 3)
    return order.order_id


def _refunded_twice_and_never_cancelled(pen: Pen) -> int:
    order = _paid(pen)
    pen.wait(3, 10, HOUR_US)
    pen.ship(order)
    for _ in range(2):
        pen.wait(1, 20, HOUR_US)
        pen.refund(order)
    return order.order_id


def _refunded_again_days_later(pen: Pen) -> int:
    order = _cancelled(pen)
    pen.refund(order)
    pen.wait(2.1, 3, DAY_US)
    pen.refund(order)
    return order.order_id


def _spend(pen: Pen, account: str, *cents: int, is_declined: bool = False) -> None:
    for amount in cents:
        order = pen.place(account, amount)
        pen.wait(1, 5)
        (pen.decline if is_declined else pen.pay)(order)
        pen.wait(5, 60)


def _over_the_limit(pen: Pen) -> str:
    account = pen.new_account()
    _spend(pen, account, *(pen.cents(410, 450) for _ in range(pen.rng.randint(5, 7))))
    return account


def _over_the_limit_by_a_cent(pen: Pen) -> str:
    account = pen.new_account()
    _spend(pen, account, *[40_000] * 4, 40_001)
    return account


def _exactly_at_the_limit(pen: Pen) -> str:
    account = pen.new_account()
    _spend(pen, account, *[40_000] * 5)
    return account


def _over_the_limit_in_two_days(pen: Pen) -> str:
    account = pen.new_account()
    _spend(pen, account, *[45_000] * 4)
    pen.wait(24, 30, HOUR_US)
    _spend(pen, account, *[45_000] * 4)
    return account


def _over_the_limit_with_what_was_declined(pen: Pen) -> str:
    account = pen.new_account()
    _spend(pen, account, *[45_000] * 3)
    _spend(pen, account, *[45_000] * 3, is_declined=True)
    return account


PLOTS: dict[str, tuple[tuple[Plot, ...], tuple[Plot, ...]]] = {
    "paid_twice": (
        (_paid_again, _paid_again_after_it_was_shipped),
        (_paid_again_after_a_refund, _paid_after_it_was_declined, _paid_again_a_day_later),
    ),
    "shipped_unpaid": (
        (
            _shipped_and_never_paid,
            _shipped_although_declined,
            _paid_too_late,
            _placed_before_the_pipeline_started,
        ),
        (_paid_within_the_hour, _paid_and_shipped, _never_paid_and_never_shipped),
    ),
    "order_after_failed_logins": (
        (_guessed_and_bought, _bought_without_a_login),
        (_failed_twice_only, _bought_too_little, _bought_too_late),
    ),
    "refunded_twice": (
        (_refunded_again, _refunded_again_in_part),
        (
            _refunded_once,
            _refunded_in_two_parts,
            _refunded_twice_and_never_cancelled,
            _refunded_again_days_later,
        ),
    ),
    "day_limit": (
        (_over_the_limit, _over_the_limit_by_a_cent),
        (_exactly_at_the_limit, _over_the_limit_in_two_days, _over_the_limit_with_what_was_declined),
    ),
}
"""Rule -> plots that it must find, and near misses. The stories use the plots in turn."""


def tell_stories(pen: Pen, n_orders: int) -> list[Story]:
    """Write the stories for so many orders of the traffic. Each has an account and orders of its own."""
    n = max(MIN_STORIES, n_orders // ORDERS_PER_STORY)
    told = []
    for rule, (planted, near_misses) in PLOTS.items():
        for plots, is_planted in ((planted, True), (near_misses, False)):
            for idx in range(n):
                plot = plots[idx % len(plots)]
                pen.now_us = NOW_US
                pen.wait(1, 36, HOUR_US)
                told.append(Story(rule, is_planted, plot.__name__.strip("_"), str(plot(pen))))
    return told
