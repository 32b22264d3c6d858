"""From patterns to waits: small patterns, whole automata."""

from __future__ import annotations

import networkx as nx
import pytest

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import check_sources
from cep.errors import Source
from cep.explain.shown import show_node
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
            [f"+{v}" for v in state.begins]
            + [f"!{v}" for v in state.not_followed_by]
            + [f"!!{v}" for v in state.not_next]
        )
        extra += [f"#{v}" for exclusion in state.exclusions for v in exclusion.variables]
        extra += [
            f"#{v}:{take.variable}" for take in state.takes for f in take.exclusions for v in f.variables
        ]
        extra += [f"{v}=>{target}" for v, target in state.releases]
        flags = ["closes"] * state.closes + ["next"] * state.accepts_after_ignore
        moves = [f"skip:{state.next}"] if state.not_next and state.next != number else []
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
        ("a b+ c", ["start a:1", "strict b:2", "strict b:2 c:-1"]),  # strict waits are one
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
        ("b+ !c d", ["start b:1", "strict b:1 d:-1 !!c"]),
        # A possessive loop keeps what it begins with from what follows, at the start, too.
        ("a->++ -> b", ["start a:1,2", "next a:1,2", "next b:-1 #a"]),
        ("a->*+ -> b", ["start a:1,2 b:-1 #a:b", "next a:1,2", "next b:-1 #a"]),
        ("c a->{2}+ -> b", ["start c:1", "strict a:2", "next a:3", "next b:-1"]),
        ("a -> b->++ -> !c FOR 5 SECONDS -> d", ["start a:1", "next b:1,2", "any !c #b", "next d:-1 #b"]),
        # UNTIL keeps events from its loop; one that closes a possessive loop lifts its claim.
        (
            "a b+ UNTIL (x > 1) -> c",
            ["start a:1", "strict b:2,3 #until#1:b", "strict b:2,3 #until#1", "next c:-1"],
        ),
        (
            "c -> a->*+ UNTIL (x > 1) -> b",
            [
                "start c:1,2",
                "next a:3,2 +a #until#1:a",
                "next b:-1 #a until#1=>4",
                "next a:3,2 #until#1",
                "next b:-1",
            ],
        ),
        # Iterations that take nothing are none.
        (
            "a -> (b? c?)+ -> d",
            [
                *("start a:1,2,3", "next b:4,3", "strict c:5,3", "next d:-1"),
                *("strict c:5,3 b:4,3", "strict b:4,3 c:5,3"),
            ],
        ),
    ],
)  # fmt: skip
def test_states(pattern: str, expected: list[str]) -> None:
    assert show(pattern) == expected


def test_chains_of_options_stay_small() -> None:
    assert len(automaton("a " + " ".join(["(b?|c?)"] * 60) + " d").states) < 400


def test_loops_that_can_be_closed_in_any_order_have_a_limit() -> None:
    loops = [
        ir.Repeat(ir.Take("a"), 0, None, ir.Contiguity.NEXT, ir.Greed.POSSESSIVE, until=f"u{number}")
        for number in range(16)
    ]
    nodes: list[ir.Node] = [ir.Take("c"), *loops, ir.Take("b")]
    items = [ir.Item(ir.Contiguity.NEXT, node) for node in nodes]
    assert len(nfa.build(ir.Sequence((*items[:9], items[-1]))).states) < 2_000
    with pytest.raises(nfa.AutomatonTooLargeError):
        nfa.build(ir.Sequence(tuple(items)))


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
