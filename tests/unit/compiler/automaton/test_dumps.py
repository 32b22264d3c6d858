"""The automata and graphs in the docstrings of the builder are those that it builds."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest

from cep.compiler import ir
from cep.compiler.automaton import nfa, pattern_graph
from cep.compiler.compile import check_sources
from cep.errors import Source
from tests.unit.engine.events import STREAM


def pattern_of(pattern: str) -> ir.Node:
    text = f"RULE r FROM events PARTITION BY k PATTERN {pattern} WITHIN 1 MINUTE"
    (rule,), problems = check_sources([Source("t", text)], {"events": STREAM})
    assert not [problem for problem in problems if problem.is_error]
    return rule.pattern


def dump(pattern: str) -> None:
    print(nfa.build(pattern_of(pattern)).dump())


def graph_of(pattern: str) -> None:
    builder = pattern_graph.Builder()
    builder.fragment(pattern_of(pattern), builder.add(pattern_graph.Mark.ACCEPT))
    print(builder.dump())


@pytest.mark.parametrize(("module", "n_examples"), [(nfa, 9), (pattern_graph, 4)])
def test_the_docstrings_show_what_is_built(module: ModuleType, n_examples: int) -> None:
    found = doctest.testmod(module, extraglobs={"dump": dump, "graph_of": graph_of})
    assert (found.failed, found.attempted) == (0, n_examples)


def test_a_dump_shows_every_part_of_a_state(capsys: pytest.CaptureFixture[str]) -> None:
    dump("c -> a->*+ UNTIL (x > 1) -> !d FOR 5 SECONDS -> b !e -> c")
    assert capsys.readouterr().out.splitlines() == [
        "0 start   c -> 1, 2",
        "1 next    a -> 3, 2; never ignores a",
        "2 any     not followed by d; excludes a; until#1 moves to 5; after its time -> 4",
        "3 next    a -> 3, 2; excludes until#1",
        "4 next    b -> 6; excludes a; until#1 moves to 7",
        "5 any     not followed by d; after its time -> 7",
        "6 next    c -> match; not next e; ignore -> 8",
        "7 next    b -> 6",
        "8 next    c -> match",
    ]
