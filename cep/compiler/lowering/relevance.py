"""Whether a rule must see events for which none of its predicates holds, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cep.compiler import ir
from cep.compiler.automaton import nfa


def reasons_for_every_event(rule: ir.Rule, automaton: nfa.Nfa, undecided: Collection[str]) -> tuple[str, ...]:
    """Return why an event for which no predicate holds can still change something; empty: it cannot.

    `undecided` are the variables without a local predicate.
    """
    return tuple(_reasons(rule, automaton, undecided))


def _reasons(rule: ir.Rule, automaton: nfa.Nfa, undecided: Collection[str]) -> Iterator[str]:
    if undecided:
        yield f"no condition on the event alone for {', '.join(undecided)}"
    states = automaton.states[1:]
    strict = {edge.variable: None for state in states if _is_strict(state) for edge in state.takes}
    if strict:
        yield f"{', '.join(strict)} must be the very next event"
    not_next = {
        name: None
        for state in states
        if state.not_next or state.accepts_after_ignore
        for name in state.not_next
    }
    if not_next:
        yield f"the very next event must not be {', '.join(not_next)}"
    look_behinds = {
        look_behind.variable: None
        for edge in automaton.states[0].takes
        for look_behind in edge.look_behinds
        if look_behind.adjacent
    }
    if look_behinds:
        yield f"the event right before must not be {', '.join(look_behinds)}"
    windows = (rule.window, *(group.window for group in automaton.groups))
    if any(isinstance(window, ir.EventWindow) for window in windows):
        yield "a window counts events"


def _is_strict(state: nfa.State) -> bool:
    return state.contiguity is ir.Contiguity.STRICT
