"""Planted stories and their truth: frauds, near misses that no rule may report, honest look-alikes.

The rule of a fraud must find it, whatever the ordinary traffic around it is. A near miss lacks one thing, for
example a probe, a minute or an amount. A look-alike is honest and has everything that the rule asks for, so
precision stays below 100 %. Each story has a card of its own, and none of its events is a straggler.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cep.backtest.truth import LOOKALIKE, NEAR_MISS
from scenarios.fraud.events import DAY_US, END_US, HOUR_US, I64, MINUTE_US, START_US
from scenarios.fraud.pen import Case, Pen, Stories
from scenarios.fraud.traffic import CYCLE_US, Cards

FRAUD = "fraud"

EVENTS_PER_FRAUD = 20_000
"""Each rule has one fraud and one near miss in this many events, but at least `MIN_FRAUDS` of each."""

MIN_FRAUDS = 5
FRAUDS_PER_LOOKALIKE = 5


Plot = Callable[[Pen], None]


def _probe(pen: Pen, n: range, low: float, high: float, approved: int = 1) -> None:
    for _ in n:
        pen.pay_online(pen.between(low, high), pen.thief, approved)
        pen.wait(5, 50)


def _card_testing(pen: Pen) -> None:
    _probe(pen, pen.times(3, 7), 0.5, 2)
    pen.wait(10, 180)
    pen.pay_online(pen.between(600, 3000), pen.thief)


def _one_probe_too_few(pen: Pen) -> None:
    _probe(pen, range(2), 0.5, 2)
    pen.pay_online(pen.between(600, 3000), pen.thief)


def _cashout_after_the_window(pen: Pen) -> None:
    start_us = pen.now_us
    _probe(pen, range(3), 0.5, 2)
    pen.now_us = start_us + 10 * MINUTE_US
    pen.wait(1, 60)
    pen.pay_online(pen.between(600, 3000), pen.thief)


def _cashout_small_for_its_probes(pen: Pen) -> None:
    _probe(pen, range(3), 4, 4.9)
    pen.pay_online(pen.between(210, 390), pen.thief)


def _declined_probes(pen: Pen) -> None:
    _probe(pen, range(4), 0.5, 2, approved=0)
    pen.pay_online(pen.between(600, 3000), pen.thief)


def _small_purchases_before_a_booking(pen: Pen) -> None:
    for _ in range(3):
        pen.pay_online(pen.between(0.9, 2), pen.owner)
        pen.wait(20, 90)
    pen.pay_online(pen.between(250, 900), pen.owner)


def _impossible_travel(pen: Pen) -> None:
    country = pen.other_country()
    pen.pay_in_shop(pen.between(100, 800), pen.country())
    pen.wait(5 * 60, 55 * 60)
    pen.pay_in_shop(pen.between(100, 1500), country)


def _an_hour_and_more_apart(pen: Pen) -> None:
    country = pen.other_country()
    pen.pay_in_shop(pen.between(100, 800), pen.country())
    pen.wait(60 * 60 + 1, 75 * 60)
    pen.pay_in_shop(pen.between(100, 1500), country)


def _online_abroad(pen: Pen) -> None:
    pen.pay_in_shop(pen.between(100, 800), pen.country())
    pen.wait(60, 30 * 60)
    pen.pay_online(pen.between(100, 1500), pen.owner)


def _second_shop_in_the_same_country(pen: Pen) -> None:
    country = pen.country()
    pen.pay_in_shop(pen.between(100, 800), country)
    pen.wait(60, 30 * 60)
    pen.pay_in_shop(pen.between(100, 1500), country)


def _partner_abroad_with_the_second_card(pen: Pen) -> None:
    _impossible_travel(pen)


def _account_takeover(pen: Pen) -> None:
    _fail(pen, pen.times(3, 6), pen.thief)
    pen.wait(20, 300)
    pen.change_credentials(pen.thief)
    pen.wait(30, 600)
    pen.transfer(pen.between(300, 5000), pen.thief)


def _fail(pen: Pen, n: range, device: int) -> None:
    for _ in n:
        pen.log_in(device, approved=0)
        pen.wait(3, 30)


def _two_failures(pen: Pen) -> None:
    _fail(pen, range(2), pen.thief)
    pen.change_credentials(pen.thief)
    pen.wait(30, 600)
    pen.transfer(pen.between(300, 5000), pen.thief)


def _transfer_from_the_owners_device(pen: Pen) -> None:
    _fail(pen, range(3), pen.thief)
    pen.change_credentials(pen.thief)
    pen.wait(30, 600)
    pen.transfer(pen.between(300, 5000), pen.owner)


def _transfer_after_the_window(pen: Pen) -> None:
    start_us = pen.now_us
    _fail(pen, range(3), pen.thief)
    pen.change_credentials(pen.thief)
    pen.now_us = start_us + 30 * MINUTE_US
    pen.wait(1, 120)
    pen.transfer(pen.between(300, 5000), pen.thief)


def _change_refused(pen: Pen) -> None:
    _fail(pen, range(4), pen.thief)
    pen.change_credentials(pen.thief, approved=0)
    pen.wait(30, 600)
    pen.transfer(pen.between(300, 5000), pen.thief)


def _forgotten_password_before_the_rent(pen: Pen) -> None:
    _fail(pen, pen.times(3, 4), pen.owner)
    pen.change_credentials(pen.owner)
    pen.wait(60, 600)
    pen.transfer(pen.between(400, 1500), pen.owner)


def _rapid_drain(pen: Pen) -> None:
    for step in pen.times(5, 8):
        if step % 3 == 2:
            pen.transfer(pen.between(700, 1000), pen.thief)
        else:
            pen.withdraw(float(pen.rng.integers(35, 50) * 20))
        pen.wait(60, 480)


def _just_below_the_limit(pen: Pen) -> None:
    for _ in range(5):
        pen.withdraw(float(pen.rng.integers(25, 30) * 20))
        pen.wait(60, 480)


def _spread_over_hours(pen: Pen) -> None:
    for _ in range(6):
        pen.withdraw(float(pen.rng.integers(30, 45) * 20))
        pen.wait(26 * 60, 32 * 60)


def _two_steps_only(pen: Pen) -> None:
    pen.transfer(pen.between(2000, 4000), pen.thief)
    pen.wait(60, 480)
    pen.transfer(pen.between(2000, 4000), pen.thief)


def _transfers_refused(pen: Pen) -> None:
    for _ in range(6):
        pen.transfer(pen.between(700, 1000), pen.thief, approved=0)
        pen.wait(60, 300)


def _a_car_is_bought(pen: Pen) -> None:
    for _ in range(3):
        pen.transfer(pen.between(1200, 4000), pen.owner)
        pen.wait(60, 300)


def _after_an_empty_statement(pen: Pen, low_days: float, high_days: float) -> None:
    statement_us = int(pen.cards.statement_us[pen.card])
    pen.now_us = statement_us
    pen.wait(low_days * 86_400, high_days * 86_400)
    pen.now_us = min(pen.now_us, END_US - HOUR_US)
    pen.stories.quiet_card.append(pen.card)
    # Until the next statement, which is not empty, the rule would rightly report a large online payment.
    pen.stories.quiet_until_us.append(statement_us + CYCLE_US)
    pen.stories.empty_statement_card.append(pen.card)


def _dormant_card_wakes(pen: Pen) -> None:
    _after_an_empty_statement(pen, 1, 28)
    pen.pay_online(pen.between(450, 2500), pen.thief)


def _a_small_awakening(pen: Pen) -> None:
    _after_an_empty_statement(pen, 1, 28)
    pen.pay_online(pen.between(300, 395), pen.thief)


def _woken_in_a_shop(pen: Pen) -> None:
    _after_an_empty_statement(pen, 1, 28)
    pen.pay_in_shop(pen.between(400, 2500), pen.country())


def _in_use_again(pen: Pen) -> None:
    _after_an_empty_statement(pen, 5, 20)
    pen.pay_in_shop(pen.between(10, 60), pen.country())
    pen.now_us = int(pen.cards.statement_us[pen.card]) + CYCLE_US
    pen.wait(3600, 10 * 86_400)
    pen.now_us = min(pen.now_us, END_US - MINUTE_US)
    if pen.now_us <= int(pen.cards.statement_us[pen.card]) + CYCLE_US:
        return  # The second statement comes after the last day, so the story ends with the small purchase.
    pen.stories.quiet_until_us[-1] = pen.now_us + MINUTE_US
    pen.pay_online(pen.between(400, 2500), pen.thief)


def _furniture_after_a_long_stay_abroad(pen: Pen) -> None:
    _after_an_empty_statement(pen, 1, 28)
    pen.pay_online(pen.between(400, 1500), pen.owner)


def _unanswered_code(pen: Pen) -> None:
    pen.send_code(pen.between(500, 3000), pen.thief)


def _answered_too_late(pen: Pen) -> None:
    amount = pen.between(500, 3000)
    pen.send_code(amount, pen.thief)
    pen.wait(301, 900)
    pen.use_code(amount, pen.thief)


def _another_payments_code(pen: Pen) -> None:
    amount = pen.between(500, 3000)
    pen.send_code(amount, pen.thief)
    pen.wait(10, 200)
    pen.use_code(amount + 100, pen.thief)


def _answered_in_the_last_seconds(pen: Pen) -> None:
    amount = pen.between(500, 3000)
    pen.send_code(amount, pen.owner)
    pen.wait(285, 299.9)
    pen.use_code(amount, pen.owner)


def _code_for_a_small_payment(pen: Pen) -> None:
    pen.send_code(pen.between(400, 499), pen.thief)


def _holder_gives_up(pen: Pen) -> None:
    pen.send_code(pen.between(500, 1500), pen.owner)


def _velocity(pen: Pen) -> None:
    _buy(pen, pen.merchants(int(pen.rng.integers(5, 9))), pen.thief)


def _buy(
    pen: Pen, merchants: list[int], device: int, gap_s: tuple[float, float] = (2, 12), approved: int = 1
) -> None:
    for merchant in merchants:
        pen.pay_online(pen.between(60, 350), device, approved, merchant)
        pen.wait(*gap_s)


def _four_payments_in_a_minute(pen: Pen) -> None:
    _buy(pen, pen.merchants(4), pen.thief)


def _all_at_two_merchants(pen: Pen) -> None:
    _buy(pen, pen.merchants(2) * 4, pen.thief)


def _slower_than_five_a_minute(pen: Pen) -> None:
    _buy(pen, pen.merchants(8), pen.thief, gap_s=(15.5, 40))


def _payments_refused(pen: Pen) -> None:
    _buy(pen, pen.merchants(7), pen.thief, approved=0)


def _presents_are_bought_at_once(pen: Pen) -> None:
    _buy(pen, pen.merchants(5), pen.owner)


def _rent(pen: Pen, n: range, low_days: float = 0.5, high_days: float = 3) -> None:
    for _ in n:
        pen.transfer(pen.between(40, 150), pen.owner)
        pen.wait(low_days * 86_400, high_days * 86_400)


def _unusual_amount(pen: Pen) -> None:
    pen.begin_at_most(30)
    _rent(pen, pen.times(6, 9))
    pen.transfer(pen.between(5000, 9000), pen.thief)


def _too_little_is_known(pen: Pen) -> None:
    pen.begin_at_most(30)
    _rent(pen, range(2))
    pen.transfer(pen.between(5000, 9000), pen.thief)


def _large_but_below_the_bound(pen: Pen) -> None:
    pen.begin_at_most(30)
    _rent(pen, pen.times(6, 9))
    pen.transfer(pen.between(1200, 1990), pen.thief)


def _transfers_are_longer_ago(pen: Pen) -> None:
    pen.begin_at_most(50)
    _rent(pen, range(6), 0.1, 1)
    pen.wait(30.1 * 86_400, 40 * 86_400)
    pen.transfer(pen.between(5000, 9000), pen.thief)


def _unusual_amount_refused(pen: Pen) -> None:
    pen.begin_at_most(30)
    _rent(pen, pen.times(6, 9))
    pen.transfer(pen.between(5000, 9000), pen.thief, approved=0)


def _a_kitchen_is_paid(pen: Pen) -> None:
    pen.begin_at_most(30)
    _rent(pen, pen.times(6, 9))
    pen.transfer(pen.between(5000, 9000), pen.owner)


def _owner_logs_in(pen: Pen) -> None:
    pen.begin_at_most(12)
    pen.log_in(pen.owner, approved=1)
    pen.wait(3600, 10 * 86_400)


def _new_device(pen: Pen) -> None:
    _owner_logs_in(pen)
    pen.log_in(pen.thief, approved=1)
    pen.wait(20, 25 * 60)
    pen.transfer(pen.between(600, 5000), pen.thief)


def _new_device_moves_nothing(pen: Pen) -> None:
    _owner_logs_in(pen)
    pen.log_in(pen.thief, approved=1)
    pen.wait(20, 25 * 60)
    pen.transfer(pen.between(600, 5000), pen.owner)


def _new_device_waits_too_long(pen: Pen) -> None:
    _owner_logs_in(pen)
    pen.log_in(pen.thief, approved=1)
    pen.wait(30 * 60 + 1, 45 * 60)
    pen.transfer(pen.between(600, 5000), pen.thief)


def _device_is_known_for_days(pen: Pen) -> None:
    pen.begin_at_most(20)
    pen.log_in(pen.thief, approved=1)
    pen.wait(86_400, 5 * 86_400)
    _owner_logs_in(pen)
    pen.log_in(pen.thief, approved=1)
    pen.wait(20, 25 * 60)
    pen.transfer(pen.between(600, 5000), pen.thief)


def _new_device_is_refused(pen: Pen) -> None:
    _owner_logs_in(pen)
    pen.log_in(pen.thief, approved=0)
    pen.wait(20, 25 * 60)
    pen.transfer(pen.between(600, 5000), pen.thief)


def _owner_has_a_new_phone(pen: Pen) -> None:
    _new_device(pen)


def _limited(pen: Pen, limit: float) -> None:
    pen.begin_at_most(8)
    pen.limit(limit)
    pen.wait(86_400, 5 * 86_400)


def _new_payee(pen: Pen) -> None:
    _limited(pen, 500)
    pen.transfer(pen.between(510, 1900), pen.thief, to=pen.strange_payee())


def _limit_was_lowered_this_day(pen: Pen) -> None:
    _limited(pen, 5000)
    pen.limit(500)
    pen.wait(60, 8 * 3600)
    pen.transfer(pen.between(510, 1900), pen.thief, to=pen.strange_payee())


def _limit_was_raised_this_day(pen: Pen) -> None:
    _limited(pen, 500)
    pen.limit(5000)
    pen.wait(60, 8 * 3600)
    pen.transfer(pen.between(510, 1900), pen.thief, to=pen.strange_payee())


def _within_the_limit(pen: Pen) -> None:
    _limited(pen, 2000)
    pen.transfer(pen.between(510, 1900), pen.thief, to=pen.strange_payee())


def _payee_is_known(pen: Pen) -> None:
    _limited(pen, 500)
    payee = pen.strange_payee()
    pen.transfer(pen.between(50, 400), pen.owner, to=payee)
    pen.wait(3600, 86_400)
    pen.transfer(pen.between(510, 1900), pen.owner, to=payee)


def _payee_can_be_called_back(pen: Pen) -> None:
    _limited(pen, 500)
    pen.transfer(pen.between(510, 1900), pen.thief, to=pen.strange_payee(is_risky=False))


def _transfer_to_a_new_payee_refused(pen: Pen) -> None:
    _limited(pen, 500)
    pen.transfer(pen.between(510, 1900), pen.thief, approved=0, to=pen.strange_payee())


def _a_house_is_rented_abroad(pen: Pen) -> None:
    _limited(pen, 500)
    pen.transfer(pen.between(510, 1900), pen.owner, to=pen.strange_payee())


PLOTS: dict[str, dict[str, tuple[Plot, ...]]] = {
    "card_testing": {
        FRAUD: (_card_testing,),
        NEAR_MISS: (
            _one_probe_too_few,
            _cashout_after_the_window,
            _cashout_small_for_its_probes,
            _declined_probes,
        ),
        LOOKALIKE: (_small_purchases_before_a_booking,),
    },
    "impossible_travel": {
        FRAUD: (_impossible_travel,),
        NEAR_MISS: (_an_hour_and_more_apart, _online_abroad, _second_shop_in_the_same_country),
        LOOKALIKE: (_partner_abroad_with_the_second_card,),
    },
    "account_takeover": {
        FRAUD: (_account_takeover,),
        NEAR_MISS: (
            _two_failures,
            _transfer_from_the_owners_device,
            _transfer_after_the_window,
            _change_refused,
        ),
        LOOKALIKE: (_forgotten_password_before_the_rent,),
    },
    "rapid_drain": {
        FRAUD: (_rapid_drain,),
        NEAR_MISS: (_just_below_the_limit, _spread_over_hours, _two_steps_only, _transfers_refused),
        LOOKALIKE: (_a_car_is_bought,),
    },
    "dormant_card_wakes": {
        FRAUD: (_dormant_card_wakes,),
        NEAR_MISS: (_a_small_awakening, _woken_in_a_shop, _in_use_again),
        LOOKALIKE: (_furniture_after_a_long_stay_abroad,),
    },
    "unanswered_code": {
        FRAUD: (_unanswered_code, _answered_too_late, _another_payments_code),
        NEAR_MISS: (_answered_in_the_last_seconds, _code_for_a_small_payment),
        LOOKALIKE: (_holder_gives_up,),
    },
    "velocity": {
        FRAUD: (_velocity,),
        NEAR_MISS: (
            _four_payments_in_a_minute,
            _all_at_two_merchants,
            _slower_than_five_a_minute,
            _payments_refused,
        ),
        LOOKALIKE: (_presents_are_bought_at_once,),
    },
    "unusual_amount": {
        FRAUD: (_unusual_amount,),
        NEAR_MISS: (
            _too_little_is_known,
            _large_but_below_the_bound,
            _transfers_are_longer_ago,
            _unusual_amount_refused,
        ),
        LOOKALIKE: (_a_kitchen_is_paid,),
    },
    "new_device": {
        FRAUD: (_new_device,),
        NEAR_MISS: (
            _new_device_moves_nothing,
            _new_device_waits_too_long,
            _device_is_known_for_days,
            _new_device_is_refused,
        ),
        LOOKALIKE: (_owner_has_a_new_phone,),
    },
    "new_payee": {
        FRAUD: (_new_payee, _limit_was_lowered_this_day),
        NEAR_MISS: (
            _limit_was_raised_this_day,
            _within_the_limit,
            _payee_is_known,
            _payee_can_be_called_back,
            _transfer_to_a_new_payee_refused,
        ),
        LOOKALIKE: (_a_house_is_rented_abroad,),
    },
}
"""Rule -> label -> plots of such stories. The stories use the plots in turn."""


def n_frauds(n_events: int) -> int:
    """Return the number of frauds that are planted for each rule in `n_events`."""
    return max(MIN_FRAUDS, n_events // EVENTS_PER_FRAUD)


def plant(rng: np.random.Generator, cards: Cards, n_events: int) -> Stories:
    """Return the stories for `n_events`.

    Each story has a card of its own. No story starts in the first two or the last two days.
    """
    frauds = n_frauds(n_events)
    amount = {FRAUD: frauds, NEAR_MISS: frauds, LOOKALIKE: max(1, frauds // FRAUDS_PER_LOOKALIKE)}
    told = [
        (rule, label, plots[idx % len(plots)])
        for rule, by_label in PLOTS.items()
        for label, plots in by_label.items()
        for idx in range(amount[label])
    ]
    chosen: I64 = rng.permutation(np.flatnonzero(~cards.lives_at_border))[: len(told)]
    stories = Stories()
    for card, (rule, label, plot) in zip(chosen.tolist(), told, strict=True):
        start_us = int(rng.integers(START_US + 2 * DAY_US, END_US - 2 * DAY_US))
        pen = Pen(rng, cards, stories, card, start_us)
        n_before = len(stories.written.rows)
        plot(pen)
        times = [int(row[0]) for row in stories.written.rows[n_before:]]
        stories.cases.append(Case(rule, label, plot.__name__.strip("_"), card, min(times), max(times)))
    return stories
