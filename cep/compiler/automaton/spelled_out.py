"""Typed rules -> typed rules in simpler terms: short forms of a pattern become variables and conditions.

- ``v->+ DISTINCT BY x``: ``x IS NOT NULL AND COUNT(DISTINCT v.x) = COUNT(v.*)`` is one more condition of v.
  It counts the event under test as taken, so this event must have a new value. The second part implies the
  first. But the first reads only the event. An absence at the start of the pattern can test nothing else,
  because it reads events before there is a run. It also excludes events without a value before a run is
  examined.
- ``^``: all events of a key except the first are events of the variable `NOT_FIRST`. None is taken as it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cep.compiler import ir
from cep.compiler.automaton.pattern_graph import NOT_FIRST
from cep.expression import Aggregate, Call, Frame, Literal, Type, Window, Windowed


def spelled_out(rule: ir.Rule) -> ir.Rule:
    """Return `rule` with the variables and conditions that its automaton needs."""
    if any(isinstance(node, ir.Anchored) for node in ir.walk(rule.pattern)):
        # Every event of the rule's streams counts, so no stream is named.
        n_events = Windowed("COUNT", None, None, Window(Frame.ALL), 0.0, "", Type.BIGINT)
        is_later = Call(">", (n_events, Literal(1, Type.BIGINT)), Type.BOOLEAN)
        rule = replace(rule, variables=(*rule.variables, ir.Variable(NOT_FIRST, is_later, closes=True)))
    for number, loop in enumerate(_loops_of_distinct(rule.pattern), 1):
        rule = _with_distinct(rule, loop, number)
    return rule


def _loops_of_distinct(pattern: ir.Node) -> Iterator[ir.Repeat]:
    for node in ir.walk(pattern):
        if isinstance(node, ir.Repeat) and node.distinct is not None:
            yield node


def _with_distinct(rule: ir.Rule, loop: ir.Repeat, number: int) -> ir.Rule:
    """Return `rule` with the condition of each variable of `loop` that its value is new to the loop."""
    assert loop.distinct is not None
    taken = ir.summary(loop.body).taken
    name, subsets = taken[0], rule.subsets
    if len(taken) > 1:
        name = f"distinct#{number}"
        subsets = (*subsets, ir.Subset(name, taken))
    n_values = Aggregate("DISTINCT", name, loop.distinct, 0, Type.BIGINT)
    n_events = Aggregate("COUNT", name, None, 0, Type.BIGINT)
    has_value = Call("is_not_null", (loop.distinct,), Type.BOOLEAN)
    is_new = Call("=", (n_values, n_events), Type.BOOLEAN)

    def narrowed(variable: ir.Variable) -> ir.Variable:
        if variable.name not in taken:
            return variable
        parts = () if variable.predicate is None else (variable.predicate,)
        return replace(variable, predicate=Call("and", (*parts, has_value, is_new), Type.BOOLEAN))

    return replace(rule, variables=tuple(map(narrowed, rule.variables)), subsets=subsets)
