"""A window rule: syntax tree -> typed rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cep.compiler import ir
from cep.compiler.analysis.conditions import is_of_bounded_size
from cep.compiler.analysis.empty_ranges import warn_of_empty_range
from cep.compiler.analysis.joins import declared_table
from cep.compiler.analysis.lets import with_lets
from cep.compiler.analysis.names import Names
from cep.compiler.analysis.outputs import type_measures
from cep.compiler.analysis.partitioning import Partitioning
from cep.compiler.empty_windows import is_untrue_of_nothing
from cep.compiler.typing.checker import names_zone, too_long
from cep.compiler.typing.window_rules import WindowRuleInference
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.expression import Expression, Frame, Window
from cep.language import ast
from cep.program.match_stream import MatchStream
from cep.schema.stream import Stream, TableKind
from cep.schema.time_literals import MAX_DURATION_US, print_duration

MOST_WINDOWS = 10_000
"""Windows of a hopping rule that one event may be in."""


@dataclass(frozen=True, slots=True)
class TypedWindowRule:
    """What the clauses of a window rule say."""

    windowing: ir.Windowing
    measures: tuple[ir.Measure, ...]


def typed_window_rule(
    names: Names, streams: Mapping[str, Stream], columns: Sequence[str], report: Reporter
) -> TypedWindowRule | None:
    """Return what WINDOW, WHERE, HAVING and MEASURES say, or None after a report."""
    rule, partitioning = names.rule, names.partitioning
    assert rule.windowing is not None
    window = _window(rule.windowing, report)
    if window is None or not partitioning.streams or len(partitioning.streams) < len(rule.streams):
        return None
    table, table_key = _table_of_keys(rule.windowing, partitioning, streams, report)
    names = with_lets(names, report)
    where = having = None
    if rule.where is not None and is_of_bounded_size(rule.where, names, report):
        where = _inference(names, window, None, report).where_condition(rule.where)
    inference = _inference(names, window, where, report)
    if rule.having is not None and is_of_bounded_size(rule.having, names, report):
        having = inference.condition(rule.having)
        warn_of_empty_range(
            having, rule.having.span, report, has_silent_windows=rule.windowing.table is not None
        )
    measures = type_measures(names, columns, report, inference.value)
    if table is not None and rule.windowing.table is not None and having is not None:
        _warn_of_having(having, table, rule.windowing.table.span, report)
    return TypedWindowRule(ir.Windowing(window, where, having, table, table_key), measures)


def _inference(
    names: Names, window: Window, where: Expression | None, report: Reporter
) -> WindowRuleInference:
    streams = {stream.name: stream for stream in names.partitioning.streams}
    scope = names.event_scope(names.partitioning.streams[0])
    return WindowRuleInference(scope, report.add, streams, window, where)


def _window(written: ast.Windowing, report: Reporter) -> Window | None:
    """Return the window, or None after a report."""
    lengths = (written.length_us, written.every_us, written.most_us)
    given = [length_us for length_us in lengths if length_us is not None]
    if max(*given, written.offset_us or 0, 0) > MAX_DURATION_US:
        report.add(too_long(report.source, written.span))
        return None
    if 0 in given:
        report("E0217", "a window of no time", written.span, "no time at all", "write a longer time")
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
    if zone is not None and not names_zone(zone.text, zone.span, report):
        return None
    return replace(window, zone="" if zone is None else zone.text)


def _hopping(window: Window, span: Span, report: Reporter) -> Window | None:
    if window.length > MOST_WINDOWS * window.every_us:
        report(
            "E0247",
            f"an event is in {-(-window.length // window.every_us):,} windows; the limit is {MOST_WINDOWS:,}",
            span,
            "each of them is computed",
            "write a longer time after EVERY",
        )
        return None
    if window.every_us > window.length:
        report(
            "W0515",
            "events between two windows are in none",
            span,
            f"{print_duration(window.every_us - window.length)} between them",
            "write a length that is not below the time after EVERY",
        )
    return window


def _table_of_keys(
    written: ast.Windowing, partitioning: Partitioning, streams: Mapping[str, Stream], report: Reporter
) -> tuple[Stream | None, tuple[str, ...]]:
    """Return the table after FOR EACH, and its key in the order of the rule's key.

    None: there is none, or its problem was reported.
    """
    none = (None, ())
    if written.table is None:
        return none
    name = written.table
    if written.kind is ast.WindowKind.SESSION:
        report(
            "E0324",
            "a session without events",
            name.span,
            "a session begins with an event, so FOR EACH would add none",
            "write WINDOW TUMBLING or HOPPING, or leave FOR EACH out",
        )
        return none
    matches = [stream.name for stream in partitioning.streams if isinstance(stream, MatchStream)]
    if matches:
        report(
            "E0324",
            f"FOR EACH over matches of `{matches[0]}`",
            name.span,
            "it is not known when matches could first have come",
            "let the rule read the streams of that rule",
        )
        return none
    table = declared_table(name, streams, report)
    if table is None or table.table is None:
        return none
    if table.table.kind is not TableKind.CHANGELOG:
        kind = table.table.kind.value
        report(
            "E0325",
            f"`{table.name}` is {kind}, FOR EACH needs a changelog",
            name.span,
            "the keys of a static table are not known at a time"
            if table.is_static
            else "each of its rows is everywhere, a key would have its windows everywhere",
            f"leave `{kind}: true` of `{table.name}` out in the streams file"
            + (", and give it an `event_time`" if table.is_static else ""),
        )
        return none
    order = _key_order(partitioning.key, table.table.key)
    if order is None:
        report(
            "E0326",
            f"the rule's key is {_names(partitioning.key)}, the key of `{table.name}` is "
            f"{_names(table.table.key)}",
            name.span,
            "its keys are no keys of the rule",
            f"write PARTITION BY {', '.join(table.table.key)}, or name a table with the rule's key",
        )
        return none
    for key, column in zip(partitioning.key, order, strict=True):
        field = table.field(column)
        assert field is not None
        kind_of_key = partitioning.key_types.get(key)
        if kind_of_key is not None and field.type is not kind_of_key:
            report(
                "E0326",
                f"`{key}` is {kind_of_key.upper()}, `{table.name}.{column}` is {field.type.upper()}",
                name.span,
                "values of different types are never equal",
                "use columns of one type, or change the type of one in the streams file",
            )
            return none
    return table, order


def _warn_of_having(having: Expression, table: Stream, span: Span, report: Reporter) -> None:
    if is_untrue_of_nothing(having):
        report(
            "W0516",
            "HAVING holds for no window without events",
            span,
            f"no row comes for a key of `{table.name}` that is silent",
            "write HAVING COUNT(*) = 0, or leave FOR EACH out",
        )


def _key_order(key: tuple[str, ...], of_table: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the table's key in the order of the rule's key; None: the keys differ.

    Columns correspond by name. A single column may have a different name.
    """
    if len(key) == len(of_table) == 1:
        return of_table
    return key if sorted(key) == sorted(of_table) else None


def _names(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
