"""From patterns to waits: small patterns, whole automata."""

from __future__ import annotations

import networkx as nx
import pytest

from cep.compiler import nfa
from cep.compiler.compile import check_sources
from cep.errors import Source
from cep.explain import show_node
from tests.unit.engine.events import STREAM


def automaton(pattern: str) -> nfa.Nfa:
    define = ", ".join(f"{v} AS letter = '{v}'" for v in "abcde" if v in pattern)
    text = f"RULE r FROM events PARTITION BY k PATTERN {pattern} WITHIN 1 MINUTE DEFINE {define}"
    rules, problems = check_sources([Source("t", text)], {"events": STREAM})
    assert not [p for p in problems if p.is_error], problems
    return nfa.build(rules[0].pattern)


def show(pattern: str) -> list[str]:
    """One line a state: contiguity, takes with successors, and what else matters."""
    lines = []
    for number, state in enumerate(automaton(pattern).states):
        takes = " ".join(f"{take.variable}:{','.join(map(str, take.after))}" for take in state.takes)
        extra = (
            [f"+{v}" for v in state.begins] + [f"!{v}" for v in state.bars] + [f"!!{v}" for v in state.guards]
        )
        flags = ["closes"] * state.closes + ["next"] * state.accepts_after_skip
        moves = [f"skip:{state.next}"] if state.guards and state.next != number else []
        kind = "start" if number == 0 else state.contiguity.value
        lines.append(" ".join([kind, takes, *extra, *moves, *flags]).replace("  ", " ").strip())
    return lines


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["start a:-1"]),
        ("a b", ["start a:1", "strict b:-1"]),
        ("a -> b ->> c", ["start a:1", "next b:2", "any c:-1"]),
        ("a -> (b | c)", ["start a:1", "next b:-1 c:-1"]),
        # An optional element left out hands over to the next arrow, as a wait of its own.
        ("a -> b? -> c", ["start a:1,2", "next b:2", "next c:-1"]),
        ("a -> b?? -> c", ["start a:1,2", "next c:-1", "next b:1"]),
        ("a -> (b? c)", ["start a:1,2", "next b:2", "strict c:-1"]),
        # A loop goes on by its own joint and is left by the next one.
        ("a b+ c", ["start a:1", "strict b:1,2", "strict c:-1"]),
        ("a -> b->+ c", ["start a:1", "next b:1,2", "strict c:-1"]),
        ("a -> b+? -> c", ["start a:1", "next b:2,3", "next c:-1", "strict b:2,3"]),
        ("a{2,3}", ["start a:1", "strict a:2,-1", "strict a:-1"]),
        # Inside one wait the branches keep their order; a branch that hands over splits it.
        ("a -> (b? -> c | d)", ["start a:1,2,3", "next b:2 +d", "next c:-1", "next d:-1 +b"]),
        ("a -> !b -> c", ["start a:1", "next c:-1 !b"]),
        ("a !b c", ["start a:1", "strict c:-1 !!b"]),
        ("a !b -> c", ["start a:1", "next c:-1 !!b skip:2", "next c:-1"]),
        ("a -> !b", ["start a:1", "any !b closes"]),
        ("a !b", ["start a:1", "any !!b next"]),  # silence decides nothing
        ("a !b -> !c", ["start a:1", "any !c !!b skip:2", "any !c closes"]),
        ("a -> !b -> c?", ["start a:1,2", "next c:-1 !b", "any !b closes"]),
        # An absence behind a loop holds between its repetitions, too.
        ("b->+ -> !c -> d", ["start b:1,2", "next b:1,2 !c", "next d:-1 !c"]),
        ("b{2} -> !c -> d", ["start b:1", "strict b:2", "next d:-1 !c"]),
        ("b+ !c d", ["start b:1,2", "strict b:1,2 !!c", "strict d:-1 !!c"]),
        # Iterations that take nothing are none.
        (
            "a -> (b? c?)+ -> d",
            ["start a:1,2,3", "next b:2,4,3", "strict c:4,2,3", "next d:-1", "strict b:2,4,3"],
        ),
    ],
)  # fmt: skip
def test_states(pattern: str, expected: list[str]) -> None:
    assert show(pattern) == expected


def test_chains_of_options_stay_small() -> None:
    assert len(automaton("a " + " ".join(["(b?|c?)"] * 60) + " d").states) < 400


def test_the_graph_reaches_acceptance_from_every_state() -> None:
    graph = automaton("a -> (b? -> c | d)->{2,4} -> !e").graph()
    assert all(nx.has_path(graph, state, nfa.ACCEPT) for state in graph)


def test_patterns_print() -> None:
    rules, _ = check_sources(
        [Source("t", "RULE r FROM events PARTITION BY k PATTERN a -> (b | c)->>{2,}? !d WITHIN 1 MINUTE "
         "DEFINE a AS x > 1, b AS x > 2, c AS x > 3, d AS x > 4")],
        {"events": STREAM},
    )  # fmt: skip
    assert show_node(rules[0].pattern) == "a -> (b | c)->>{2,}? !d"
