"""Several `RuleSet`s in one call of `detect`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cep.errors import RuleError
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream
from spark_runtime.detection import _combined

STREAM = Stream("t", (Field("ts", "timestamp"), Field("k", "string"), Field("v", "double")), event_time="ts")
RULE = "RULE {} FROM t PARTITION BY k PATTERN a DEFINE a AS v > {} MEASURES a.v AS av"
A, B = load_rules(RULE.format("a", 0), STREAM), load_rules(RULE.format("b", 0), STREAM)


def test_a_rule_set_that_is_given_twice_counts_once() -> None:
    assert [rule.name for rule in _combined([A, B, A]).rules] == ["a", "b"]


def test_rules_of_one_name_and_streams_declared_in_two_ways_are_refused() -> None:
    """Their matches would have the same ids, and events would be read by one of the declarations."""
    other = replace(STREAM, lateness_us=1)
    same, third = load_rules(RULE.format("a", 1), STREAM), load_rules(RULE.format("c", 1), other)
    for rule_sets, code in (([A, same], "E0301"), ([A, third], "E0614")):
        with pytest.raises(RuleError) as caught:
            _combined(rule_sets)
        assert [problem.code for problem in caught.value.diagnostics] == [code]
