"""The score card: what speaks for keeping, tuning and retiring a rule."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cep.backtest.history import Backtest, Scope, backtest
from cep.backtest.scorecard import Advice, Card, Thresholds, card_text, noise_of, score_card
from cep.rulebook import load_rules
from tests.unit.backtest.test_history import DAY_US, HOUR_US, RULE, STREAM, at
from tests.unit.backtest.test_sampling import chunks_of


def over(rows: list[dict[str, object]], days: float) -> Backtest:
    scope = Scope(from_us=0, to_us=int(days * DAY_US))
    return backtest(load_rules([RULE + "\n"], STREAM), {"events": chunks_of(STREAM, rows)}, scope)


def pairs(n: int, key: str = "k{n}") -> list[dict[str, object]]:
    """Return events of `n` alerts, one every six minutes."""
    return [
        row
        for number in range(n)
        for row in (
            at(number / 10, "a", key.format(n=number)),
            at(number / 10 + 0.01, "b", key.format(n=number)),
        )
    ]


def silent(days: float) -> Backtest:
    """Return a run with an event, and without an alert."""
    return over([at(0, "a", "k")], days)


def card(found: Backtest, *, tests: int = 1, n_confirmed: int = 0, n_refused: int = 0) -> Card:
    ids = found.alerts["match_id"].to_pylist()
    verdicts = {
        match_id: number < n_confirmed for number, match_id in enumerate(ids[: n_confirmed + n_refused])
    }
    thresholds = Thresholds()
    (row,) = score_card(found, {"pair": tests}, {"pair": "2026-01-01"}, verdicts, thresholds)
    return row


@pytest.mark.parametrize(
    ("found", "confirmed", "refused", "advice", "reason"),
    [
        (over(pairs(20), 2), 0, 0, Advice.KEEP, ""),
        (silent(40), 0, 0, Advice.RETIRE, "no alert in 40 days"),
        (silent(3), 0, 0, Advice.KEEP, "no alert in 3 days, too few to say more"),
        (over([], 40), 0, 0, None, "no events, so no advice"),
        (over(pairs(120), 1), 0, 0, Advice.TUNE, "120 alerts a day"),
        (over(pairs(20, "k"), 1), 0, 0, Advice.TUNE, "95% of its alerts are repeats"),
        (over(pairs(20), 2), 2, 10, Advice.TUNE, "16.7% of 12 verdicts confirm it"),
        (over(pairs(20), 2), 0, 12, Advice.RETIRE, "0% of 12 verdicts confirm it"),
        (over(pairs(20), 2), 0, 9, Advice.KEEP, ""),
        (over(pairs(20), 2), 8, 4, Advice.KEEP, ""),
    ],
)
def test_an_advice_has_its_reason(
    found: Backtest, confirmed: int, refused: int, advice: Advice | None, reason: str
) -> None:
    row = card(found, n_confirmed=confirmed, n_refused=refused)
    assert (row.advice, row.reason) == (advice, reason)
    assert (row.verdicts, row.confirmed) == (confirmed + refused, confirmed)


def test_a_rule_without_tests_is_named() -> None:
    assert card(over(pairs(20), 2), tests=0).reason == "no tests"
    assert card(silent(40), tests=0).reason == "no alert in 40 days; no tests"


def test_noise_is_the_share_of_alerts_that_repeat_one_of_their_key_and_day() -> None:
    days = [0, 0, 0, 1, 0]
    keys = ["a", "a", "b", "a", "a"]
    alerts = pa.table({"key": keys, "end_us": [day * DAY_US + HOUR_US for day in days]})
    assert noise_of(alerts) == pytest.approx(2 / 5)
    assert noise_of(alerts.slice(0, 0)) == 0.0


def test_rules_to_retire_come_first() -> None:
    texts = [RULE.replace("pair", name) + "\n" for name in ("one", "two")]
    texts[1] = texts[1].replace("kind = 'b'", "kind = 'c'")
    found = backtest(
        load_rules(texts, STREAM),
        {"events": chunks_of(STREAM, pairs(20))},
        Scope(from_us=0, to_us=50 * DAY_US),
    )
    cards = score_card(found, {"one": 2, "two": 1}, {"one": "2026-01-02"}, {}, Thresholds())
    assert card_text(cards).splitlines() == [
        "rule  alerts  a day  noise  tests     changed  confirmed  advice",
        "two        0      0     0%      1                         retire  no alert in 50 days",
        "one       20    0.4     0%      2  2026-01-02               keep",
    ]
