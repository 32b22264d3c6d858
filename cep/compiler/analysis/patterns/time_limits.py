"""Checks of the time limits of a rule: gaps, periods of absence, windows of groups and of the rule."""

from __future__ import annotations

from cep.compiler.pattern_shape import closing_absences, gaps_of, least_events, opening_absences
from cep.compiler.typing.checker import too_long
from cep.diagnostics.report import Reporter
from cep.errors import Span
from cep.language import ast
from cep.schema.time_literals import MAX_DURATION_US, print_duration


def check_times(rule: ast.Rule, report: Reporter) -> None:
    """Report what is wrong with the limits of `rule`'s pattern and window."""
    if rule.window is not None:
        check_window(rule.window, report)
        _warn_of_few_events(rule.window, rule.pattern, report)
    in_groups: set[ast.Absence] = set()
    for node in ast.walk(rule.pattern):
        for gap in gaps_of(node):
            _check_gap(gap, report)
        if isinstance(node, ast.Sequence):
            for index, item in enumerate(node.items):
                if isinstance(item.pattern, ast.Absence):
                    _check_absence(item.pattern, item, index, report)
        elif isinstance(node, ast.Group):
            check_window(node.window, report)
            _warn_of_few_events(node.window, node.body, report)
            in_groups |= _check_end_of_group(node.body, report)
    if rule.window is None:
        _check_open_absences(rule.pattern, in_groups, report)
    elif isinstance(rule.window, ast.Window):
        _warn_of_idle_limits(rule.pattern, rule.window, report)


def has_limits(rule: ast.Rule) -> bool:
    """Return whether something can end a wait of `rule` without an event: a window or the end of a gap."""
    if rule.window is not None:
        return True
    return any(
        isinstance(node, ast.Group) or any(gap.high_us is not None for gap in gaps_of(node))
        for node in ast.walk(rule.pattern)
    )


def check_window(window: ast.Window | ast.EventWindow, report: Reporter) -> None:
    """Report a window that nothing fits into, or that is too long."""
    if isinstance(window, ast.EventWindow):
        if window.count == 0:
            report(
                "E0312",
                "no match fits into this window",
                window.span,
                "a match has at least one event",
                "write a larger number",
            )
    elif window.length_us > MAX_DURATION_US:
        report.add(too_long(report.source, window.span))
    elif window.length_us == 0 and not window.inclusive:
        report(
            "E0312",
            "no match fits into this window",
            window.span,
            "shorter than one event",
            "write a longer time, or WITHIN 0 SECONDS for events of one instant",
        )


def _warn_of_few_events(window: ast.Window | ast.EventWindow, pattern: ast.Pattern, report: Reporter) -> None:
    """Warn of a window of fewer events than a match takes."""
    least = least_events(pattern)
    if isinstance(window, ast.EventWindow) and 0 < window.count < least:
        report(
            "W0508",
            "a window of fewer events than the pattern takes",
            window.span,
            f"a match takes at least {least:,} events",
            f"write WITHIN {least} EVENTS, or a larger number",
        )


def _check_absence(absence: ast.Absence, item: ast.Item, index: int, report: Reporter) -> None:
    if item.gap is not None:
        report(
            "E0321",
            f"a limit on the gap before `{absence.text}`",
            item.gap.span,
            "an absence takes no event",
            f"put the limit before the next event, or write -> {absence.text} FOR and a time",
        )
    if absence.period is None:
        return
    if index > 0 and item.joint is ast.Joint.STRICT:
        report(
            "E0320",
            f"`{absence.text} FOR` a time needs an arrow before it",
            absence.span,
            "without one only the very next event is examined",
            f"write -> {absence.text} FOR and the time; or leave the time out",
        )
    if absence.period.length_us > MAX_DURATION_US:
        report.add(too_long(report.source, absence.period.span))
    elif absence.period.length_us - (not absence.period.inclusive) < 1:
        report(
            "E0312",
            "an absence for no time at all",
            absence.period.span,
            "nothing can come in it",
            "write a longer time",
        )


def _check_gap(gap: ast.Gap, report: Reporter) -> None:
    if max(gap.first_us, gap.second_us or 0) > MAX_DURATION_US:
        report.add(too_long(report.source, gap.span))
    elif gap.high_us is not None and gap.high_us < gap.low_us:
        wrong_way = gap.second_us is not None
        report(
            "E0312",
            "no time fits into this gap",
            gap.span,
            "the shorter time comes first" if wrong_way else "shorter than no time at all",
            f"write [{print_duration(gap.second_us or 0)}, {print_duration(gap.first_us)}]"
            if wrong_way
            else "write [<= 0 SECONDS] for events of one instant",
        )


def _check_end_of_group(body: ast.Pattern, report: Reporter) -> set[ast.Absence]:
    found = closing_absences(body)
    for absence in found:
        report(
            "E0322",
            f"`{absence.text}` at the end of a group with WITHIN",
            absence.span,
            "the group's window says nothing about what comes after its last event",
            f"write how long: {absence.text} FOR 5 MINUTES",
        )
    return set(found)


def _check_open_absences(pattern: ast.Pattern, in_groups: set[ast.Absence], report: Reporter) -> None:
    """Without a window, an absence at either end needs its own duration."""
    for absence in closing_absences(pattern):
        if absence not in in_groups:
            report(
                "E0311",
                f"`{absence.text}` at the end needs a time",
                absence.span,
                "nothing says how long to wait",
                f"write {absence.text} FOR 10 MINUTES, or add WITHIN; for the very next event only, "
                "leave out the arrow",
            )
    for absence in opening_absences(pattern):
        if absence.period is None:
            report(
                "E0311",
                f"`{absence.text}` at the start needs a time",
                absence.span,
                "nothing says how far to look back",
                f"write {absence.text} FOR 10 MINUTES, or add WITHIN and a time",
            )


def _warn_of_idle_limits(pattern: ast.Pattern, window: ast.Window, report: Reporter) -> None:
    """Warn of limits that the rule's window makes pointless, or that make a match impossible."""
    span_us = window.length_us - (not window.inclusive)
    opening = opening_absences(pattern)

    def warn(span: Span, *, is_impossible: bool) -> None:
        label = "no match can contain it" if is_impossible else "the window always ends first"
        title = "a limit longer than the window of the rule"
        report("W0508", title, span, label, "write a shorter time here, or a longer one after WITHIN")

    for node in ast.walk(pattern):
        period = node.period if isinstance(node, ast.Absence) and node not in opening else None
        if period is not None and period.length_us - (not period.inclusive) > span_us:
            warn(period.span, is_impossible=True)
        inner = node.window if isinstance(node, ast.Group) else None
        if isinstance(inner, ast.Window) and inner.length_us > window.length_us:
            warn(inner.span, is_impossible=False)
        for gap in gaps_of(node):
            if gap.low_us > span_us:
                warn(gap.span, is_impossible=True)
            elif gap.high_us is not None and gap.high_us > span_us:
                warn(gap.span, is_impossible=False)
