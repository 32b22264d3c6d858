"""Window rules -> programs: values over windows become windowed columns, those of measures also registers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cep.compiler import ir
from cep.compiler.empty_windows import is_untrue_of_nothing
from cep.compiler.limits import MAX_REGISTERS, too_many_registers
from cep.compiler.lowering.shared import Shared
from cep.errors import Diagnostic
from cep.expression import Expression, Frame, RegisterRef, Windowed, rebuild, walk
from cep.program.program import Register, RuleProgram
from cep.program.windows import WindowRule


def lower_window_rule(rule: ir.Rule, plain: RuleProgram, shared: Shared) -> RuleProgram | Diagnostic:
    """Return the program of a window rule; `plain` is the program of its pattern, a single event."""
    windowing = rule.windowing
    assert windowing is not None
    registers: dict[Windowed, RegisterRef] = {}

    def held(leaf: Expression) -> Expression:
        if not isinstance(leaf, Windowed):
            return leaf
        return registers.setdefault(leaf, RegisterRef(len(registers), leaf.type))

    measures = tuple((measure.name, rebuild(measure.expression, held)) for measure in rule.measures)
    if len(registers) > MAX_REGISTERS:
        return too_many_registers(rule, len(registers))
    columns = tuple(shared.window(windowed).name for windowed in registers)
    return replace(
        plain,
        needs_every_event=next(reasons_for_every_event(rule), None) is not None,
        registers=tuple(Register(windowed.type, windowed.function) for windowed in registers),
        measures=measures,
        windowed=WindowRule(
            window=windowing.window,
            where=shared.place(windowing.where),
            having=None if windowing.having is None else shared.over_columns(windowing.having),
            columns=columns,
            table=None
            if windowing.table is None
            else shared.joins.number(windowing.table, windowing.table_key),
        ),
    )


def values_of(rule: ir.Rule) -> list[Windowed]:
    """Return the values over windows that a rule computes, each once."""
    assert rule.windowing is not None
    expressions = [measure.expression for measure in rule.measures]
    expressions += [] if rule.windowing.having is None else [rule.windowing.having]
    found = (node for expression in expressions for node in walk(expression) if isinstance(node, Windowed))
    return list(dict.fromkeys(found))


def reasons_for_every_event(rule: ir.Rule) -> Iterator[str]:
    """Yield why an event for which no condition of the rule holds can still change a row; none: it cannot.

    Without WHERE an event creates a window, and sets the ends of a session. If HAVING is not TRUE for a
    window whose events no value counts, such windows may be omitted, and so may events that no value counts.
    """
    windowing = rule.windowing
    assert windowing is not None
    if windowing.where is not None:
        return
    if windowing.window.frame is Frame.SESSION:
        yield "any event keeps a session open"
        return
    if windowing.having is None or not is_untrue_of_nothing(windowing.having):
        yield "any event makes a window"
    for windowed in values_of(rule):
        if windowed.condition is None and not windowed.stream:
            yield f"{windowed.function} looks at all"
