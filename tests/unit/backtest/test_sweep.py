"""Values of parameters: those that are named, and those that the events suggest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cep.backtest.figures import Figures
from cep.backtest.sweep import between, candidates, combinations, compared_column, values_of
from cep.backtest.truth import Score
from cep.backtest.tuning import Goal, proposal_text, propose
from cep.errors import InputError, Source
from cep.language import ast
from cep.language.front_ends import read_rules


def parsed(parameters: str, condition: str = "amount < small") -> ast.Rule:
    text = f"RULE r PARAM {parameters} FROM s PARTITION BY k PATTERN a DEFINE a AS {condition}"
    (rule,), problems = read_rules(Source("rules", text))
    assert list(problems) == []
    return rule


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("small=1..4", ("1", "2", "3", "4")),
        ("small=0.5..2..0.5", ("0.5", "1.0", "1.5", "2.0")),
        ("small=-1..1", ("-1", "0", "1")),
        ("small=1..4..2", ("1", "3")),
        ("small = 1, 5 ,1", ("1", "5")),
        ("card_testing.wait=10 MINUTES,1 HOUR", ("10 MINUTES", "1 HOUR")),
    ],
)
def test_values_are_a_range_or_a_list(text: str, values: tuple[str, ...]) -> None:
    assert values_of(text) == (text.partition("=")[0].strip(), values)


@pytest.mark.parametrize(
    "text", ["small", "small=", "=1..2", "small=4..1", "small=1..2..0", "small=1..300", "small=1...2..."]
)
def test_values_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        combinations([text])
    assert caught.value.code == "E0692"


def test_several_parameters_give_each_combination() -> None:
    assert combinations(["a=1,2", "b=x,y"]) == (
        {"a": "1", "b": "x"},
        {"a": "1", "b": "y"},
        {"a": "2", "b": "x"},
        {"a": "2", "b": "y"},
    )
    with pytest.raises(InputError, match="10,000 runs, more than 200"):
        combinations(["a=1..100", "b=1..100"])


@pytest.mark.parametrize(
    ("condition", "column"),
    [
        ("kind = 'p' AND amount < small", "amount"),
        ("small <= a.amount", "amount"),
        ("amount > small * 2", None),
        ("amount = small", None),
        ("NOT (amount > 3 OR size >= small)", "size"),
    ],
)
def test_the_column_that_is_compared_with_a_parameter_is_found(condition: str, column: str | None) -> None:
    assert compared_column(parsed("small = 5", condition), "small") == column


def constant(text: str) -> ast.Constant:
    return parsed(f"small = {text}").parameters[0].value


def test_quantiles_of_the_values_seen_are_tried_and_the_declared_value() -> None:
    seen = pa.chunked_array([pa.array([float(n) for n in range(1, 101)]), pa.array([None], pa.float64())])
    assert candidates(constant("5"), seen, 5) == ("1", "5", "34", "67", "99")
    assert candidates(constant("5.5"), seen, 5) == ("1.0", "5.5", "34.0", "67.0", "99.0")


def test_without_values_multiples_of_the_declared_value_are_tried() -> None:
    assert candidates(constant("4"), None, 9) == ("1", "2", "3", "4", "6", "8", "12", "16")
    assert candidates(constant("10 MINUTES"), None, 9)[:3] == ("150 SECONDS", "5 MINUTES", "450 SECONDS")


def test_values_between_two_are_even_unless_some_were_seen() -> None:
    assert between(constant("5.0"), "4.0", "1.0", None, 2) == ("2.0", "3.0")
    assert between(constant("5"), "1", "2", None, 5) == ("1", "2")
    assert between(constant("1 HOUR"), "1 HOUR", "3 HOURS", None, 1) == ("2 HOURS",)
    seen = pa.chunked_array([[1.0, 1.5, 1.7, 4.0, 9.0]])
    assert between(constant("5.0"), "4.0", "1.0", seen, 3) == ("1.5", "1.7")
    assert between(constant("5.0"), "4.0", "9.0", seen, 1) == ("6.5",)


@pytest.mark.parametrize("text", ["'x'", "TRUE", "0"])
def test_a_parameter_that_has_no_values_in_between_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        candidates(constant(text), None, 9)
    assert caught.value.code == "E0693"


def figures(alerts: int, found: int, right: int) -> Figures:
    score = Score("r", 10, found, alerts, right, 0, 0, 0)
    return Figures("r", alerts, float(alerts), alerts, score)


SEEN = pa.chunked_array([[2.0] * 2000 + [3.0, 5.0, 6.0, 7.0, 9.0] + [10.0] * 2000 + [20.0] * 2000])
"""Quantiles of the first grid are 2, 10, 20; those in between are in the second."""


def run(values: tuple[str, ...] | list[str] | object) -> list[Figures]:
    """Return what a rule reports: the larger the value, the more alerts, and all stories from 6 on."""
    assert isinstance(values, tuple | list)
    return [
        figures(10 * int(value), min(10, 2 * int(value) - 2), min(10, 2 * int(value) - 2)) for value in values
    ]


def test_the_value_with_the_most_recall_among_those_with_few_alerts_is_proposed() -> None:
    (parameter,) = parsed("small = 2").parameters
    found = propose(parameter, "2", SEEN, run, Goal(alerts_a_day=75))
    assert [one.value for one in found.tried] == ["2", "3", "5", "6", "7", "9", "10", "20"]
    assert found.best is not None
    assert found.best.value == "6"  # 7 has the same recall, but a lower precision
    assert proposal_text(found, Goal(alerts_a_day=75)).endswith("proposed: --set small=6")


def test_the_value_with_the_fewest_alerts_among_those_with_enough_recall_is_proposed() -> None:
    (parameter,) = parsed("small = 20").parameters
    found = propose(parameter, "20", SEEN, run, Goal(recall=0.75))
    assert found.best is not None
    assert (found.best.value, found.best.figures.recall) == ("5", 0.8)


def test_a_goal_that_no_value_meets_is_said() -> None:
    (parameter,) = parsed("small = 2").parameters
    goal = Goal(alerts_a_day=5)
    found = propose(parameter, "2", pa.chunked_array([[2.0, 3.0]]), run, goal)
    assert found.best is None
    assert proposal_text(found, goal).splitlines() == [
        "small    alerts  a day  keys  planted  found  recall  precision  near misses",
        "2 (now)      20   20.0    20       10      2     20%        10%            0",
        "3            30   30.0    30       10      4     40%      13.3%            0",
        "",
        "no value of `small` gives at most 5 alerts a day",
    ]
