"""What compilation keeps of each rule, and what it says of rules that do not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import check_sources, compile_sources
from cep.errors import RuleError, Source
from cep.language.parser import parse
from tests.unit.engine.events import STREAM

ROOT = Path(__file__).parents[3]
STREAMS = {"events": STREAM}

FIRST = "RULE first FROM events PARTITION BY k PATTERN a -> b+ -> !c WITHIN 1 MINUTE DEFINE b AS x > a.x"
SECOND = "RULE second FROM events PARTITION BY k PATTERN a WITHIN 1 MINUTE DEFINE a AS x > 5"


def test_each_rule_is_kept_at_each_stage() -> None:
    sources = [Source("one.cep", FIRST), Source("two.cep", SECOND)]
    compiled = compile_sources(sources, STREAMS)
    assert [rule.name for rule in compiled.rules] == ["first", "second"]
    for rule, source in zip(compiled.rules, sources, strict=True):
        assert (rule.tree,) == parse(source)[0]
        assert (rule.typed,) == check_sources([source], STREAMS)[0]
        assert rule.automaton == nfa.build(rule.typed.pattern)
        assert rule.lowered.name == rule.name
    (program,) = compiled.rule_set.programs
    assert [rule.program for rule in compiled.rules] == [program, program]


def test_the_typed_rule_that_is_kept_is_the_rewritten_one() -> None:
    (rule,) = compile_sources([Source("one.cep", FIRST)], STREAMS).rules
    assert isinstance(rule.typed.pattern, ir.Sequence)
    loop = rule.typed.pattern.items[1].node
    assert isinstance(loop, ir.Repeat)
    assert [item.node for item in loop.behind] == [ir.Absent("c")]


def test_explanations_build_and_parse_nothing_again() -> None:
    for path in (ROOT / "cep/explain").glob("*.py"):
        assert not re.search(r"\b(?:build|parse|analyze|rewrite)\(", path.read_text()), path


def test_rules_that_do_not_fit_are_reported_together() -> None:
    options = " -> ".join(["b?"] * 150)
    branches = [f"v{number}" for number in range(65)]
    conditions = ", ".join(f"{name} AS x = {number}" for number, name in enumerate(branches))
    head = "FROM events PARTITION BY k PATTERN"
    text = (
        f"RULE ways {head} a -> {options} WITHIN 1 MINUTE\n"
        f"RULE bits {head} {' | '.join(branches)} WITHIN 1 MINUTE DEFINE {conditions}"
    )
    with pytest.raises(RuleError) as refused:
        compile_sources([Source("large.cep", text)], STREAMS)
    assert [problem.code for problem in refused.value.diagnostics] == ["E0908", "E0904"]
