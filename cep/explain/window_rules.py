"""A window rule as text: its windows, which events count, what a key keeps, which windows have a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cep.compiler.compile import CompiledRule
from cep.compiler.lowering.window_rules import reasons_for_every_event, values_of
from cep.explain.shown import show_duration, show_expression
from cep.expression import Frame, Window, Windowed


def window_rule_lines(compiled: CompiledRule, kept: Callable[[Windowed], str]) -> Iterator[str]:
    """Yield the lines about a window rule, after its streams.

    `kept`: returns what a key keeps for a value.
    """
    rule = compiled.typed
    windowing = rule.windowing
    assert windowing is not None
    yield f"  window     {_window(windowing.window)}"
    if windowing.table is not None:
        table = windowing.table.name
        yield f"  for each   key of {table}: windows without events, too, if it was there all the time"
    where = "all events count" if windowing.where is None else show_expression(windowing.where)
    yield f"  where      {where}"
    every = "each window with an event" if windowing.table is None else "each window"
    having = every if windowing.having is None else show_expression(windowing.having)
    yield f"  having     {having}"
    if rule.report.suppress_us:
        yield f"  reports    no other row of a key for {show_duration(rule.report.suppress_us)} after one"
    if rule.report.n_per_day:
        yield f"  reports    at most {rule.report.n_per_day:,} rows of a key that end in one day (UTC)"
    reasons = list(reasons_for_every_event(rule))
    if reasons:
        yield "  events     all are needed, none is dropped before events are brought together by key:"
        yield from (f"               {reason}" for reason in reasons)
    elif compiled.program.needs_every_event:
        yield "  events     only those that count; all the same none is dropped: another rule needs all"
    else:
        yield "  events     only those that count; all others are dropped at the source"
    yield "a key keeps, while a window is open"
    yield "  when the window began, and its last event"
    yield from (f"  {show_expression(windowed)}: {kept(windowed)}" for windowed in values_of(rule))
    if windowing.table is not None:
        yield f"a key of {windowing.table.name} keeps since when it exists"
    yield "measures"
    for measure in rule.measures:
        yield f"  {measure.name} = {show_expression(measure.expression)}"


def _window(window: Window) -> str:
    """Return what the windows are, in words."""
    length = show_duration(window.length)
    offset = f", {show_duration(window.offset_us)} after round times" if window.offset_us else ""
    match window.frame:
        case Frame.SESSION:
            most = f", or when it is {show_duration(window.most_us)} long" if window.most_us else ""
            return f"ends {length} after its last event{most}"
        case Frame.HOPPING:
            return f"{length} long, one begins every {show_duration(window.every_us)}{offset}"
        case _:
            zone = f" by the clocks of {window.zone}" if window.zone else ""
            return f"{length} long, one after the other{zone}{offset}"
