"""The automaton of a rule as a picture, in the languages of Graphviz and of Mermaid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import CompiledRule
from cep.diagnostics.safe_text import for_cell
from cep.explain.feeds import fed

MATCH = "match"
"""The name of the state that is a match."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from one state to another; `is_epsilon`: no event is taken on it."""

    start: str
    end: str
    label: str
    is_epsilon: bool = False


def dot(rules: Iterable[CompiledRule]) -> str:
    """Return the automata of `rules` as one graph for Graphviz; dotted arrows are matches that rules read."""
    rules = tuple(rules)
    lines = ["digraph rules {", "  rankdir=LR", "  node [shape=circle]"]
    for number, rule in enumerate(rules):
        lines += [f"  subgraph cluster_{number} {{", f"    label={_quoted(rule.name)}"]
        for state, label in states_of(rule.automaton).items():
            shape = ", shape=doublecircle" if state == MATCH else ""
            lines.append(f"    {_quoted(f'{number}.{state}')} [label={_quoted(label)}{shape}]")
        for arrow in arrows_of(rule.automaton):
            ends = f"{_quoted(f'{number}.{arrow.start}')} -> {_quoted(f'{number}.{arrow.end}')}"
            style = ", style=dashed" if arrow.is_epsilon else ""
            lines.append(f"    {ends} [label={_quoted(arrow.label)}{style}]")
        lines.append("  }")
    for source, target, label in fed(rules):
        ends = f"{_quoted(f'{source}.{MATCH}')} -> {_quoted(f'{target}.{_name(0)}')}"
        lines.append(f"  {ends} [label={_quoted(label)}, style=dotted]")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(rules: Iterable[CompiledRule]) -> str:
    """Return the automata of `rules` as one flowchart for Mermaid; thick arrows are matches that are read."""
    rules = tuple(rules)
    lines = ["flowchart LR"]
    for number, rule in enumerate(rules):
        lines.append(f"  subgraph r{number}[{_entities(rule.name)}]")
        for state, label in states_of(rule.automaton).items():
            shape = f"((({_entities(label)})))" if state == MATCH else f"(({_entities(label)}))"
            lines.append(f"    r{number}_{state}{shape}")
        for arrow in arrows_of(rule.automaton):
            sign = "-.->" if arrow.is_epsilon else "-->"
            ends = (f"r{number}_{arrow.start}", f"r{number}_{arrow.end}")
            lines.append(f"    {ends[0]} {sign}|{_entities(arrow.label)}| {ends[1]}")
        lines.append("  end")
    for source, target, label in fed(rules):
        lines.append(f"  r{source}_{MATCH} ==>|{_entities(label)}| r{target}_{_name(0)}")
    return "\n".join(lines) + "\n"


def states_of(automaton: nfa.Nfa) -> dict[str, str]:
    """Return the label of each state: its number, and what must not occur while a run waits there."""
    labels = {}
    for number, state in enumerate(automaton.states):
        excluded = [name for exclusion in state.exclusions for name in exclusion.variables]
        absent = dict.fromkeys((*state.not_followed_by, *state.not_next, *excluded))
        labels[_name(number)] = " ".join([str(number), *(f"!{name}" for name in absent)])
    return labels | {MATCH: MATCH}


def arrows_of(automaton: nfa.Nfa) -> Iterator[Arrow]:
    """Yield the ways between the states of `states_of`, state by state, the preferred one first."""
    for number, state in enumerate(automaton.states):
        for take in state.takes:
            yield from _preferred(number, take.after, take.variable)
        for name, target in state.releases:
            yield Arrow(_name(number), _name(target), f"until {name}", is_epsilon=True)
        if state.timed_absence is not None:
            yield from _preferred(number, state.timed_absence.after, "time is over", is_epsilon=True)
        if number and state.contiguity is not ir.Contiguity.STRICT and not state.accepts_after_ignore:
            yield Arrow(_name(number), _name(state.next), "ignore", is_epsilon=True)
        if state.accepts_after_ignore:
            yield Arrow(_name(number), MATCH, "any other event", is_epsilon=True)
        if state.closes:
            yield Arrow(_name(number), MATCH, "window closes", is_epsilon=True)


def _preferred(
    number: int, after: tuple[int, ...], label: str, *, is_epsilon: bool = False
) -> Iterator[Arrow]:
    """Yield an arrow to each successor; several are numbered, the preferred one first."""
    for rank, successor in enumerate(after, start=1):
        ranked = f"{label} ({rank})" if len(after) > 1 else label
        yield Arrow(_name(number), _name(successor), ranked, is_epsilon)


def _name(state: int) -> str:
    return MATCH if state == nfa.ACCEPT else str(state)


def _quoted(text: str) -> str:
    """Quote `text` for Graphviz, with unprintable characters escaped."""
    return '"' + for_cell(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _entities(text: str) -> str:
    """Quote `text` for Mermaid, which knows no escapes but character numbers."""
    return (
        '"'
        + "".join(char if char.isalnum() or char in " _-.,()" else f"#{ord(char)};" for char in text)
        + '"'
    )
