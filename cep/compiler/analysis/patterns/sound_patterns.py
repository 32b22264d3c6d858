"""Whether a pattern is sound: quantifiers, size, anchors, absences, limits in time.

For a misplaced absence, it says what to write instead where another pattern means the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import assert_never

from cep.compiler.analysis.patterns.time_limits import check_times
from cep.compiler.pattern_shape import count_positions, summary, variable_names
from cep.diagnostics.report import Reporter
from cep.language import ast
from cep.language.printer import print_pattern

MAX_VARIABLES = 200
"""Different variables of a pattern."""

MAX_POSITIONS = 1_000
"""Positions of a pattern once its bounded loops are unrolled."""


def is_sound(rule: ast.Rule, report: Reporter) -> bool:
    """Return whether the pattern of `rule` is sound; if not, report why."""
    n_before = len(report.problems)
    check_absences(rule.pattern, report)
    check_anchors(rule.pattern, report)
    check_without(rule.pattern, report)
    _check_quantifiers(rule.pattern, report)
    if not report.has_error_since(n_before):
        _check_size(rule.pattern, report)
    if not report.has_error_since(n_before):
        check_times(rule, report)
    return not report.has_error_since(n_before)


def _check_quantifiers(pattern: ast.Pattern, report: Reporter) -> None:
    for node in ast.walk(pattern):
        if not isinstance(node, ast.Repetition):
            continue
        if node.most == 0:
            report(
                "E0306",
                "a quantifier that allows no repetition",
                node.quantifier_span,
                "at most 0 times",
                "leave the step out, or write !v for an event that must not come",
            )
        elif node.most is not None and node.least > node.most:
            report(
                "E0307",
                f"at least {node.least} but at most {node.most}",
                node.quantifier_span,
                "the lower bound comes first",
                f"write {{{node.most},{node.least}}}",
            )
        elif node.until is not None and node.most is not None and node.most <= 1:  # by a parameter
            report(
                "E0314",
                "UNTIL closes a loop, and there is none",
                node.quantifier_span,
                "this quantifier allows one repetition only",
                "let the parameter be 2 or more, or leave UNTIL out",
            )


def _check_size(pattern: ast.Pattern, report: Reporter) -> None:
    positions = count_positions(pattern)
    n_variables = len(variable_names(pattern))
    if positions > MAX_POSITIONS:
        many = f"{positions:,}" if positions < 10**15 else "very many"
        report(
            "E0903",
            f"the pattern has {many} positions; the limit is {MAX_POSITIONS:,}",
            pattern.span,
            "bounded loops count as often as they repeat, n parts in any order 2^(n - 1) times",
            "use smaller bounds, a loop without an upper one: a->{3,}, or fewer parts in any order",
        )
    elif n_variables > MAX_VARIABLES:
        report(
            "E0914",
            f"the pattern has {n_variables:,} variables; the limit is {MAX_VARIABLES:,}",
            pattern.span,
            "too many different names",
            "give steps with the same condition the same name",
        )
    elif summary(pattern).nullable:
        report(
            "E0308",
            "the pattern matches without any event",
            pattern.span,
            "every part of it may be left out",
            "make one step necessary: a+ instead of a*",
        )


def check_anchors(pattern: ast.Pattern, report: Reporter, *, is_start: bool = True) -> None:
    """Report each anchor after which the first event of a match can never be."""
    match pattern:
        case ast.Step() | ast.Absence():
            pass
        case ast.Anchored(body=body):
            if not is_start:
                report(
                    "E0316",
                    "the anchor `^` is allowed only at the beginning",
                    pattern.span,
                    "an event of the match may come before it",
                    "write it before the first step of the pattern: ^ a -> b, ^ (a & b), ^ a->{3}",
                )
            check_anchors(body, report, is_start=is_start)
        case ast.Sequence(items=items):
            for number, item in enumerate(items):
                check_anchors(item.pattern, report, is_start=is_start and number == 0)
        case ast.Repetition(body=body, most=most):
            check_anchors(body, report, is_start=is_start and most == 1)
        case ast.Permutation(parts=parts):
            for part in parts:
                check_anchors(part, report, is_start=False)
        case ast.Alternation() | ast.Group() | ast.Without():
            for child in ast.children(pattern):
                check_anchors(child, report, is_start=is_start)
        case _:
            assert_never(pattern)


def check_without(pattern: ast.Pattern, report: Reporter) -> None:
    """Report each variable that is forbidden in a pattern which takes it."""
    for node in ast.walk(pattern):
        if not isinstance(node, ast.Without):
            continue
        taken = summary(node.body).taken
        for name in node.variables:
            if name.text in taken:
                report(
                    "E0317",
                    f"`{name.text}` is a step of the pattern that is without it",
                    name.span,
                    "no event can be both",
                    "give the events that must not come a variable of their own",
                )


_ALONE = "an absence needs an event: a -> {absence}, or {absence} -> a"
_PART = (
    "no rule says that: a part of & or PERMUTE takes events; an absence is allowed before all parts or "
    "after them, a -> {absence} -> (b & c)"
)
_MAX_SHOWN = 80
"""Characters of a pattern that a help shows with its branches in full."""


def check_absences(pattern: ast.Pattern, report: Reporter) -> None:
    """Report each absence that does not follow something in its own group, or start the pattern."""
    _check(pattern, True, lambda: _ALONE, report)


def _check(pattern: ast.Pattern, is_start: bool, instead: Callable[[], str], report: Reporter) -> None:
    """Check `pattern`, which no absence can start. `instead` returns what to write for one."""
    match pattern:
        case ast.Step():
            pass
        case ast.Absence(text=text):
            missing = "comes before it or after it" if is_start else "comes before it"
            report(
                "E0313",
                f"`{text}` begins a group",
                pattern.span,
                f"no event {missing} in its parentheses",
                instead().format(absence=print_pattern(pattern)),
            )
        case ast.Sequence(items=items):
            first, *rest = (item.pattern for item in items)
            if not isinstance(first, ast.Absence) or not is_start:
                _check(first, is_start, partial(_instead, pattern, 0) if is_start else instead, report)
            for number, part in enumerate(rest, 1):
                if not isinstance(part, ast.Absence):
                    _check(part, False, partial(_instead, pattern, number), report)
        case ast.Alternation(branches=branches):
            _check_each(branches, is_start, instead, report)
        case ast.Permutation(parts=parts):
            _check_each(parts, False, lambda: _PART, report)
        case ast.Repetition(body=body, most=most):
            _check(body, is_start and most == 1, partial(_in_loop, pattern) if most != 1 else instead, report)
        case ast.Group(body=body) | ast.Anchored(body=body) | ast.Without(body=body):
            _check(body, is_start, instead, report)
        case _:
            assert_never(pattern)


def _check_each(
    patterns: Iterable[ast.Pattern], is_start: bool, instead: Callable[[], str], report: Reporter
) -> None:
    for pattern in patterns:
        _check(pattern, is_start, instead, report)


def _instead(sequence: ast.Sequence, number: int) -> str:
    """Return what to write for an absence that starts the item `number` of `sequence`."""
    item = sequence.items[number]
    if isinstance(item.pattern, ast.Alternation):
        if sequence.span.end - sequence.span.start > _MAX_SHOWN:
            return "write the branches in full: a -> b | a -> {absence}"
        branches = (_in_place(sequence, number, branch) for branch in _branches(item.pattern))
        text = " | ".join(print_pattern(branch) for branch in branches)
        return "write the branches in full: " + text.replace("{", "{{").replace("}", "}}")
    joint = " " if item.joint is ast.Joint.STRICT else f" {item.joint} "
    return f"put it before the parenthesis: a{joint}{{absence}}{joint}(...)"


def _branches(alternation: ast.Alternation) -> Iterator[ast.Pattern]:
    """Yield the branches, including those of nested alternations."""
    for branch in alternation.branches:
        if isinstance(branch, ast.Alternation):
            yield from _branches(branch)
        else:
            yield branch


def _in_place(sequence: ast.Sequence, number: int, branch: ast.Pattern) -> ast.Sequence:
    """Return `sequence` with `branch` in place of the item `number`."""
    item = sequence.items[number]
    if isinstance(branch, ast.Sequence):
        first, *rest = branch.items
        own = (dataclasses.replace(item, pattern=first.pattern), *rest)
    else:
        own = (dataclasses.replace(item, pattern=branch),)
    items = (*sequence.items[:number], *own, *sequence.items[number + 1 :])
    return ast.Sequence(items, sequence.span)


def _in_loop(loop: ast.Repetition) -> str:
    """Return what to write for an absence before each repetition."""
    if loop.joint is ast.Joint.STRICT:
        return "for each repetition write: {absence} (c {absence})* c"
    return "for each repetition write: {absence} -> (c -> {absence})->* -> c"
