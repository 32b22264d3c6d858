"""A window rule: syntax tree -> typed rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cep.compiler import ir
from cep.compiler.analysis.conditions import is_of_bounded_size
from cep.compiler.analysis.lets import with_lets
from cep.compiler.analysis.names import Names
from cep.compiler.analysis.outputs import type_measures
from cep.compiler.typing.checker import Scope, too_long
from cep.compiler.typing.window_rules import WindowRuleInference
from cep.compiler.typing.windows import is_zone
from cep.diagnostics.report import Report
from cep.errors import Span
from cep.expression import Expression, Frame, Window
from cep.language import ast
from cep.schema.time_literals import MAX_DURATION_US, print_duration

MOST_WINDOWS = 10_000
"""Windows of a hopping rule that one event may be in."""

_EVENT = ""
"""The event under test, under a name that no text can have."""


@dataclass(frozen=True, slots=True)
class TypedWindowRule:
    """What the clauses of a window rule say."""

    windowing: ir.Windowing
    measures: tuple[ir.Measure, ...]


def typed_window_rule(names: Names, columns: Sequence[str], report: Report) -> TypedWindowRule | None:
    """Return what WINDOW, WHERE, HAVING and MEASURES say, or None: reported."""
    rule, partitioning = names.rule, names.partitioning
    assert rule.windowing is not None
    window = _window(rule.windowing, report)
    if window is None or not partitioning.streams or len(partitioning.streams) < len(rule.streams):
        return None
    names = with_lets(names, report)
    where = having = None
    if rule.where is not None and is_of_bounded_size(rule.where, names, report):
        where = _inference(names, window, None, report).where_condition(rule.where)
    inference = _inference(names, window, where, report)
    if rule.having is not None and is_of_bounded_size(rule.having, names, report):
        having = inference.condition(rule.having)
    measures = type_measures(names, columns, report, inference.value)
    return TypedWindowRule(ir.Windowing(window, where, having), measures)


def _inference(names: Names, window: Window, where: Expression | None, report: Report) -> WindowRuleInference:
    streams = {stream.name: stream for stream in names.partitioning.streams}
    first = names.partitioning.streams[0]
    scope = Scope(
        names.rule.source,
        first,
        (),
        (),
        _EVENT,
        {_EVENT: first},
        is_qualified=names.partitioning.has_several_streams,
        lets=names.lets,
        joins=names.joins,
        tables=names.tables,
    )
    return WindowRuleInference(scope, report.add, streams, window, where)


def _window(written: ast.Windowing, report: Report) -> Window | None:
    """Return the window, or None: reported."""
    lengths = (written.length_us, written.every_us, written.most_us)
    given = [length_us for length_us in lengths if length_us is not None]
    if max(*given, written.offset_us or 0, 0) > MAX_DURATION_US:
        report.add(too_long(report.source, written.span))
        return None
    if 0 in given:
        report("E0217", "a window of no time", written.span, "no time at all", "write a longer time")
        return None
    if written.table is not None:
        report(
            "E0150",
            "FOR EACH: not supported yet",
            written.table.span,
            "part of the language to come",
            "leave it out: then a key has a row for windows with events only",
        )
        return None
    if written.kind is ast.WindowKind.SESSION:
        return Window(Frame.SESSION, written.length_us, is_whole=True, most_us=written.most_us or 0)
    every_us = written.every_us or written.length_us
    window = Window(
        Frame.TUMBLING, written.length_us, offset_us=(written.offset_us or 0) % every_us, is_whole=True
    )
    if written.kind is ast.WindowKind.HOPPING:
        return _hopping(replace(window, frame=Frame.HOPPING, every_us=every_us), written.span, report)
    zone = written.zone
    if zone is not None and not is_zone(zone.text):
        report(
            "E0217",
            f"there is no time zone '{zone.text}'",
            zone.span,
            "not in the database of time zones",
            "write a name such as 'Europe/Berlin' or 'UTC'",
        )
        return None
    return replace(window, zone="" if zone is None else zone.text)


def _hopping(window: Window, span: Span, report: Report) -> Window | None:
    if window.length > MOST_WINDOWS * window.every_us:
        report(
            "E0247",
            f"an event is in {-(-window.length // window.every_us):,} windows; the limit is {MOST_WINDOWS:,}",
            span,
            "each of them is computed",
            "write a longer time behind EVERY",
        )
        return None
    if window.every_us > window.length:
        report(
            "W0515",
            "events between two windows are in none",
            span,
            f"{print_duration(window.every_us - window.length)} between them",
            "write a length that is not below the time behind EVERY",
        )
    return window
