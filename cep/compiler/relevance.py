"""Whether a rule must see events for which none of its predicates holds, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cep.compiler import ir, nfa


def reasons_for_every_event(rule: ir.Rule, automaton: nfa.Nfa, undecided: Collection[str]) -> tuple[str, ...]:
    """Say why an event for which no predicate holds can still change something; empty: it cannot.

    `undecided` are the variables without a local predicate.
    """
    return tuple(_reasons(rule, automaton, undecided))


def _reasons(rule: ir.Rule, automaton: nfa.Nfa, undecided: Collection[str]) -> Iterator[str]:
    if undecided:
        yield f"no condition on the event alone for {', '.join(undecided)}"
    waits = automaton.states[1:]
    strict = {edge.variable: None for wait in waits if _is_strict(wait) for edge in wait.takes}
    if strict:
        yield f"{', '.join(strict)} must be the very next event"
    guards = {name: None for wait in waits if wait.guards or wait.accepts_after_skip for name in wait.guards}
    if guards:
        yield f"the very next event must not be {', '.join(guards)}"
    looks = {
        look.variable: None for edge in automaton.states[0].takes for look in edge.looks if look.adjacent
    }
    if looks:
        yield f"the event right before must not be {', '.join(looks)}"
    windows = (rule.window, *(group.window for group in automaton.groups))
    if any(isinstance(window, ir.EventWindow) for window in windows):
        yield "a window counts events"


def _is_strict(state: nfa.State) -> bool:
    return state.contiguity is ir.Contiguity.STRICT
