"""Strategies of rules with a pattern."""

from __future__ import annotations

from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.rewrite import repeat_absences
from cep.expression import Aggregate, Type
from tests.property.strategies.events import COLUMNS, SECOND_US
from tests.property.strategies.expressions import (
    arguments,
    closings,
    conditions,
    predicates,
    values,
    windowed,
)
from tests.property.strategies.patterns import patterns, taken_variables, untils_of, variables_of

_KEYS = st.sampled_from([("k",)] * 4 + [("g",), ("k", "g")])


@st.composite
def windows(draw: st.DrawFn) -> ir.Window | ir.EventWindow:
    """Draw a window that is too short for some streams."""
    if draw(st.integers(0, 4)) == 0:
        return ir.EventWindow(draw(st.integers(1, 8)))
    length_us = draw(st.sampled_from([2, 4, 8, 12, 20])) * SECOND_US
    return ir.Window(length_us, draw(st.booleans()))


@st.composite
def rules(draw: st.DrawFn, name: str, max_size: int) -> ir.Rule:
    """Draw a rule."""
    pattern = repeat_absences(draw(patterns(max_size)))
    names = sorted(variables_of(pattern))
    taken = sorted(taken_variables(pattern))
    subsets: tuple[ir.Subset, ...] = ()
    if draw(st.integers(0, 2)) == 0:
        members = draw(st.lists(st.sampled_from(taken), min_size=1, max_size=3, unique=True))
        subsets = (ir.Subset("u", tuple(members)),)
    unions = ["u" for _ in subsets]
    automaton = nfa.build(pattern)
    needs_window = any(state.closes and state.not_followed_by for state in automaton.states) or any(
        look_behind.period is None for edge in automaton.states[0].takes for look_behind in edge.look_behinds
    )
    looked_for = {
        look_behind.variable for edge in automaton.states[0].takes for look_behind in edge.look_behinds
    }
    variables = tuple(
        ir.Variable(name, draw(predicates([] if name in looked_for else [*names, *unions], number)))
        for number, name in enumerate(names)
    )
    variables += tuple(
        ir.Variable(name, draw(closings([*names, *unions])), closes=True)
        for name in sorted(untils_of(pattern))
    )
    window = draw(windows()) if needs_window or draw(st.integers(0, 2)) > 0 else None
    measures = [
        ir.Measure(f"took_{name}", Aggregate("SUM", name, COLUMNS["w"], 0, Type.BIGINT)) for name in taken
    ]
    kinds = [Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP, Type.INTERVAL]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3, unique=True)):
        expression = draw(values(kind, [*taken, *unions], bare=False, depth=1, approximate=True))
        measures.append(ir.Measure(f"m_{kind}", expression))
    for kind in draw(st.lists(st.sampled_from(kinds[:-1]), max_size=2, unique=True)):
        listed = Aggregate(
            "ARRAY_AGG", draw(st.sampled_from([*taken, *unions])), draw(arguments(kind)), 0, kind
        )
        measures.append(ir.Measure(f"list_{kind}", listed))
    selection = draw(st.sampled_from(list(ir.Selection)))
    kind_of_skip = draw(st.sampled_from(list(ir.SkipKind)))
    target = None
    if kind_of_skip in (ir.SkipKind.TO_FIRST, ir.SkipKind.TO_LAST):
        target = draw(st.sampled_from([*taken, *(subset.name for subset in subsets)]))
    return ir.Rule(
        name=name,
        title="",
        severity="info",
        tags=(),
        streams=("events",),
        key=draw(_KEYS),
        pattern=pattern,
        window=window,
        variables=variables,
        measures=tuple(measures),
        selection=selection,
        skip=ir.Skip(kind_of_skip, target, subsets[0].members if target == "u" else ()),
        subsets=subsets,
        report=draw(
            reports(
                may_time_out=(window is not None or _has_limits(automaton))
                and selection is not ir.Selection.PREFERRED
            )
        ),
    )


@st.composite
def rules_of_values(draw: st.DrawFn, name: str, *, has_condition: bool = False) -> ir.Rule:
    """Draw a rule that reports windowed values of every event, or of those for which a condition holds."""
    kinds = [Type.BIGINT, Type.BIGINT, Type.DOUBLE, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP]
    measures = [
        ir.Measure(
            f"m{number}_{kind}", Aggregate("LAST", "a", draw(windowed(kind, approximate=True)), 0, kind)
        )
        for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)))
    ]
    condition = draw(conditions([], bare=True, depth=0, has_windows=False)) if has_condition else None
    return ir.Rule(
        name=name,
        title="",
        severity="info",
        tags=(),
        streams=("events",),
        key=draw(_KEYS),
        pattern=ir.Take("a"),
        window=None,
        variables=(ir.Variable("a", condition),),
        measures=tuple(measures),
        selection=ir.Selection.ALL,
        skip=ir.Skip(ir.SkipKind.NO_SKIP),
    )


def _has_limits(automaton: nfa.Nfa) -> bool:
    gaps = [state.gap for state in automaton.states]
    return bool(automaton.groups) or any(gap is not None and gap.high_us is not None for gap in gaps)


@st.composite
def reports(draw: st.DrawFn, *, may_time_out: bool) -> ir.Report:
    """Draw the report clauses: mostly none. (There are too few runs to reach a limit.)"""
    timeouts = may_time_out and draw(st.integers(0, 2)) == 0
    seconds, n_per_day = draw(st.sampled_from([(0, 0), (0, 0), (0, 0), (1, 0), (3, 0), (0, 1), (0, 2)]))
    return ir.Report(timeouts, seconds * SECOND_US, n_per_day, all_rows=draw(st.integers(0, 4)) == 0)
