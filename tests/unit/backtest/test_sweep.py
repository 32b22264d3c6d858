"""Values of parameters: those that are named, and those that the events suggest."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from cep.backtest.figures import Figures
from cep.backtest.sweep import (
    between,
    beyond,
    candidates,
    combinations,
    compared_column,
    declared_text,
    number_of,
    values_of,
    why_not_tuned,
)
from cep.backtest.truth import Score
from cep.backtest.tuning import (
    Goal,
    Tuned,
    Values,
    changed_settings,
    joint_text,
    proposal_text,
    propose,
    propose_together,
)
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


def test_a_name_may_be_in_backticks() -> None:
    assert values_of("`a=b` = 1, 2") == ("a=b", ("1", "2"))
    assert values_of("r.`a``=b`=1..2") == ("r.a`=b", ("1", "2"))
    assert values_of("a`b=1") == ("a`b", ("1",))


@pytest.mark.parametrize(
    "text",
    [
        "small",
        "small=",
        "small=,",
        "small= , ",
        "=1..2",
        "small=4..1",
        "small=1..2..0",
        "small=1..300",
        "small=1...2...",
    ],
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
    assert combinations(["a=1,2", "a=2,3"]) == ({"a": "1"}, {"a": "2"}, {"a": "3"})
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


def test_values_beyond_the_quantiles_reach_both_extremes() -> None:
    seen = pa.chunked_array([[0.1234, *(float(n) for n in range(1, 10_001)), 20_001.5, None]])
    assert beyond(constant("5.0"), seen) == ("0.123", "1.0", "10.0", "9990.0", "10000.0", "20100.0")
    assert beyond(constant("5"), seen) == ("0", "1", "10", "9991", "10000", "20100")
    assert beyond(constant("5"), None) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("5", "9007199254740993", "12.345678", "0.000001", "1e+300", "-2.5"),
        *("12345678 MICROSECONDS", "500 MICROSECONDS", "1 MICROSECOND"),
    ],
)
def test_the_declared_value_is_tried_exactly(text: str) -> None:
    declared = constant(text)
    assert declared_text(declared) == text
    tried = candidates(declared, None, 9)
    assert text in tried
    assert constant(declared_text(declared)) == declared
    numbers = [number_of(declared, one) for one in tried]
    assert numbers == sorted(numbers)


GREATEST = 1.7976931348623157e308
LONGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "numbers", "extremes"),
    [
        ("5", [-GREATEST, GREATEST], (str(-LONGEST - 1), str(LONGEST))),
        ("5", [float(-LONGEST), float(LONGEST)], (str(-LONGEST - 1), str(LONGEST))),
        ("5.0", [-GREATEST, GREATEST], ("-1.7976931348623157e+308", "1.7976931348623157e+308")),
    ],
)
def test_values_that_are_tried_are_values_that_a_parameter_can_have(
    text: str, numbers: list[float], extremes: tuple[str, str]
) -> None:
    """Without a warning of numpy, too, which is an error in tests."""
    declared, seen = constant(text), pa.chunked_array([[*numbers, 0.0]])
    outer = beyond(declared, seen)
    assert (outer[0], outer[-1]) == extremes
    tried = {*outer, *candidates(declared, seen, 10), *between(declared, *extremes, None, 5)}
    assert len(tried) > 5
    for value in tried:
        assert declared_text(constant(value)) == value


@pytest.mark.parametrize("text", ["1e+308", "-1e+308", str(LONGEST), "1e-323"])
def test_multiples_of_an_extreme_value_are_values_that_a_parameter_can_have(text: str) -> None:
    declared = constant(text)
    for value in candidates(declared, None, 9):
        assert declared_text(constant(value)) == value


def test_zero_has_no_sign() -> None:
    assert declared_text(constant("-0.0")) == "0.0"
    assert "-0.0" not in candidates(constant("-0.0"), pa.chunked_array([[-0.0, 0.0, 1.0]]), 5)
    assert beyond(constant("5.0"), pa.chunked_array([[-0.0]])) == ("0.0",)
    assert between(constant("5.0"), "-1.0", "1.0", pa.chunked_array([[-0.0]]), 1) == ("0.0",)


def test_multiples_of_short_durations_are_tried() -> None:
    assert candidates(constant("500 MICROSECONDS"), None, 9)[::3] == (
        "125 MICROSECONDS",
        "500 MICROSECONDS",
        "1500 MICROSECONDS",
    )


@pytest.mark.parametrize(
    ("seen", "column", "reason"),
    [
        (None, None, "is 0, and no column is compared with it"),
        (None, "loss", "is 0, and `loss`, which is compared with it, is no column of the events"),
        ([], "x", "is 0, and the column `x`, which is compared with it, has no numbers"),
        ([None], "x", "is 0, and the column `x`, which is compared with it, has no numbers"),
        ([1.0], "x", None),
    ],
)
def test_why_a_parameter_of_zero_is_not_tuned(
    seen: list[float | None] | None, column: str | None, reason: str | None
) -> None:
    values = None if seen is None else pa.chunked_array([seen], pa.float64())
    assert why_not_tuned(constant("0"), values, column) == reason
    assert why_not_tuned(constant("1"), values, column) is None


@pytest.mark.parametrize("text", ["'x'", "TRUE", "0", "0 SECONDS"])
def test_a_parameter_that_has_no_values_in_between_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        candidates(constant(text), None, 9)
    assert caught.value.code == "E0693"


def figures(alerts: int, found: int, right: int) -> Figures:
    score = Score("r", 10, found, alerts, right, 0, 0, 0)
    return Figures("r", alerts, float(alerts), alerts, score)


SEEN = pa.chunked_array([[2.0] * 2000 + [3.0, 5.0, 6.0, 7.0, 9.0] + [10.0] * 2000 + [20.0] * 2000])
"""Quantiles of the first grid are 2, 10, 20; those in between are in the second."""


OWN = {"small": "small", "wide": "wide"}
"""What `--set` calls the parameters."""


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
    assert proposal_text(found, Goal(alerts_a_day=75), OWN).endswith("proposed: --set small=6")


def test_values_that_meet_the_goal_are_compared_in_the_order_of_the_guide() -> None:
    def best(goal: Goal, of: dict[str, Figures]) -> str:
        (parameter,) = parsed("small = 4").parameters
        found = propose(parameter, "4", None, lambda values: [of.get(one) for one in values], goal)
        assert found.best is not None
        return found.best.value

    unknown = {value: Figures("r", n, float(n), n) for value, n in (("2", 3), ("4", 5), ("8", 7), ("16", 9))}
    assert best(Goal(alerts_a_day=8), unknown) == "8"
    precise = {"2": figures(4, 6, 4), "4": figures(6, 6, 3), "8": figures(5, 5, 5), "12": figures(5, 6, 5)}
    assert best(Goal(alerts_a_day=8), precise) == "12"
    assert best(Goal(recall=0.5), precise) == "2"
    assert best(Goal(alerts_a_day=8), precise | {"2": figures(5, 6, 5), "12": figures(4, 6, 4)}) == "2"
    assert best(Goal(recall=0.5), {"4": figures(5, 6, 3), "8": figures(5, 6, 4)}) == "8"
    same = {value: figures(5, 6, 5) for value in ("1", "3", "8")}
    assert best(Goal(alerts_a_day=8), same) == best(Goal(recall=0.5), same) == "3"


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
    assert proposal_text(found, goal, OWN).splitlines() == [
        "small    alerts  a day  keys  planted  found  recall  precision  near misses",
        "2 (now)      20   20.0    20       10      2     20%        10%            0",
        "3            30   30.0    30       10      4     40%      13.3%            0",
        "",
        "no value of `small` that was tried gives at most 5 alerts a day",
    ]


def test_values_up_to_the_extremes_are_tried_if_no_quantile_meets_the_goal() -> None:
    (parameter,) = parsed("small = 500.0").parameters
    seen = pa.chunked_array([[float(n) for n in range(1, 1001)]])
    goal = Goal(alerts_a_day=40)

    def alerts(values: Sequence[str]) -> list[Figures]:
        counts = [10 * int(float(value)) for value in values]
        return [figures(count, 1, count) for count in counts]

    found = propose(parameter, "500.0", seen, alerts, goal)
    assert found.best is not None
    assert found.best.value == "4.0"
    within = propose(parameter, "500.0", seen, alerts, Goal(alerts_a_day=4000))
    assert within.tried[0].value == "10.0"


def test_values_that_a_rule_cannot_have_are_passed_over() -> None:
    (parameter,) = parsed("small = 2").parameters
    goal = Goal(alerts_a_day=5)

    def at_least_two(values: Sequence[str]) -> list[Figures | None]:
        return [figures(9, 1, 1) if int(value) >= 2 else None for value in values]

    found = propose(parameter, "2", None, at_least_two, goal)
    assert [one.value for one in found.tried] == ["2", "3", "4", "6", "8"]
    alone = propose(
        parameter, "2", None, lambda of: [figures(9, 1, 1) if one == "2" else None for one in of], goal
    )
    assert proposal_text(alone, goal, OWN).splitlines()[-1] == "no other value of `small` could be tried"
    joint = propose_together(
        two(), lambda values: both(values) if int(values[0][1]) >= 2 else None, Goal(recall=1.0), 200
    )
    assert joint.best == (("small", "4"), ("wide", "8"))
    assert {int(values[0][1]) for values in joint.tried} >= {2, 3, 4}
    assert min(int(values[0][1]) for values in joint.tried) == 2


def test_a_proposal_can_be_pasted() -> None:
    (parameter,) = parsed("wide = 10 MINUTES").parameters
    goal = Goal(alerts_a_day=1)

    def alerts(values: Sequence[str]) -> list[Figures]:
        return [figures(1 if value == "40 MINUTES" else 9, 1, 1) for value in values]

    found = proposal_text(propose(parameter, "10 MINUTES", None, alerts, goal), goal, OWN)
    assert found.splitlines()[-1] == "proposed: --set 'wide=40 MINUTES'"


def test_one_alert_and_one_run_are_singular() -> None:
    goal = Goal(alerts_a_day=1)
    found = joint_text(propose_together(two(), lambda _: figures(9, 1, 1), goal, 1), goal, OWN)
    assert found.splitlines()[-2:] == [
        "no values that were tried give at most 1 alert a day",
        "1 run; more were not allowed",
    ]


def two() -> list[Tuned]:
    first, second = parsed("small = 2, wide = 4", "amount < small AND size < wide").parameters
    return [Tuned(first, "2", None), Tuned(second, "4", None)]


def both(values: Values) -> Figures:
    """Return what a rule reports: alerts grow with both values; all stories are found from 4 and 8 on."""
    small, wide = (int(value) for _, value in values)
    found = min(5, small + 1) + min(5, wide // 2 + 1)
    return figures(small * wide, found, found)


def test_several_parameters_are_tuned_together_until_no_change_of_one_is_better() -> None:
    goal = Goal(recall=1.0)
    alone = propose(
        two()[0].parameter,
        "2",
        None,
        lambda values: [both((("small", v), ("wide", "4"))) for v in values],
        goal,
    )
    assert alone.best is None  # no value of `small` alone gives it
    found = propose_together(two(), both, goal, 200)
    assert found.best == (("small", "4"), ("wide", "8"))
    assert found.is_complete
    assert found.steps[0] == (("small", "2"), ("wide", "4"))
    assert joint_text(found, goal, OWN).splitlines()[-2:] == [
        "proposed: --set small=4 --set wide=8",
        f"{len(found.tried)} runs",
    ]


def test_runs_of_several_parameters_end_with_the_budget_and_the_best_so_far_is_kept() -> None:
    goal = Goal(alerts_a_day=3)
    found = propose_together(two(), both, goal, 3)
    assert len(found.tried) == 3
    assert not found.is_complete
    assert joint_text(found, goal, OWN).splitlines()[-1] == "3 runs; more were not allowed"
    whole = propose_together(two(), both, goal, 200)
    assert whole.best is not None
    assert both(whole.best).a_day <= 3
    assert len(whole.tried) <= 100


def test_a_parameter_that_no_setting_sets_alone_is_changed_in_its_file() -> None:
    (parameter,) = parsed("small = 2").parameters
    goal, file = Goal(recall=0.75), "in the file of the rule: --set would change other rules, too"
    alone = propose(parameter, "2", SEEN, run, goal)
    assert proposal_text(alone, goal, {"small": None}).splitlines()[-1] == f"proposed: small=5 {file}"
    assert changed_settings([("small", "5")], {"small": None}) == []
    together = propose_together(two(), both, Goal(recall=1.0), 200)
    assert joint_text(together, goal, {"small": None, "wide": "wide"}).splitlines()[-3:-1] == [
        "proposed: --set wide=8",
        f"proposed: small=4 {file}",
    ]


def test_values_that_are_best_already_are_kept() -> None:
    found = propose_together(two(), lambda _: figures(1, 10, 1), Goal(alerts_a_day=5), 100)
    assert found.best == (("small", "2"), ("wide", "4"))
    assert joint_text(found, Goal(alerts_a_day=5), OWN).splitlines()[-2] == "keep small=2, wide=4"
    none = propose_together(two(), lambda _: figures(9, 1, 1), Goal(alerts_a_day=5), 100)
    assert none.best is None
    text = joint_text(none, Goal(alerts_a_day=5), OWN)
    assert "no values that were tried give at most 5 alerts a day" in text
