"""Absences that are not allowed, and what to write instead if something means the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import assert_never

from cep.diagnostics.report import Reporter
from cep.language import ast
from cep.language.printer import print_pattern

_ALONE = "an absence needs an event: a -> {absence}, or {absence} -> a"
_PART = (
    "no rule says that: a part of & or PERMUTE takes events; an absence can stand before all parts or "
    "behind them, a -> {absence} -> (b & c)"
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
