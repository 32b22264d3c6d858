"""Typed rules -> automata. A pattern whose automaton is too large is a problem of its rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.automaton.spelled_out import spelled_out
from cep.compiler.limits import too_many_choices
from cep.errors import Diagnostic


class Built(NamedTuple):
    """A rule and the automaton of its pattern."""

    rule: ir.Rule
    automaton: nfa.Nfa


def build(rules: Iterable[ir.Rule]) -> tuple[tuple[Built, ...], tuple[Diagnostic, ...]]:
    """Return `rules` with their automata, and the problems of those that have none."""
    built: list[Built] = []
    problems: list[Diagnostic] = []
    for rule in rules:
        try:
            built.append(Built(spelled_out(rule), nfa.build(rule.pattern)))
        except nfa.AutomatonTooLargeError:
            problems.append(too_many_choices(rule))
    return tuple(built), tuple(problems)
