"""Anchors where no match can start, and WITHOUT that forbids what its pattern takes."""

from __future__ import annotations

from typing import assert_never

from cep.compiler.pattern_shape import summary
from cep.diagnostics.report import Reporter
from cep.language import ast


def check_anchors(pattern: ast.Pattern, report: Reporter, *, is_start: bool = True) -> None:
    """Report each anchor after which the first event of a match can never be."""
    match pattern:
        case ast.Step() | ast.Absence():
            pass
        case ast.Anchored(body=body):
            if not is_start:
                report(
                    "E0316",
                    "the anchor `^` stands only at the beginning",
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
