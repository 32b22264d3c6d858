"""Which forms of the rule language a case has, to count how often each is tried."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cep.compiler import ir
from cep.expression import (
    IN_TAKEN,
    Aggregate,
    Call,
    Expression,
    Frame,
    Joined,
    Windowed,
    is_windowed,
    walk,
)

FEATURES = (
    "windows",
    "windows BY",
    "window rules",
    "FOR EACH",
    "tables",
    "views",
    "MATCHES OF",
    "matches by another key",
    "IN",
    "COUNT(DISTINCT v.x)",
    "DISTINCT BY",
    "WITHOUT",
    "^",
    "PREV",
    "SEEN",
    "values of windows when an event was taken",
)
"""What is counted, in the order in which it is printed."""


def features(rules: Sequence[ir.Rule]) -> set[str]:
    """Return which of `FEATURES` the rules have."""
    return {name for rule in rules for name in _of_rule(rule)}


def _of_rule(rule: ir.Rule) -> Iterator[str]:
    if rule.windowing is not None:
        yield "window rules"
        if rule.windowing.table is not None:
            yield "FOR EACH"
    if rule.viewing is not None:
        yield "views"
    if rule.matches:
        yield "MATCHES OF"
        if any(rule.key != matches.key for matches in rule.matches):
            yield "matches by another key"
    for node in ir.walk(rule.pattern):
        match node:
            case ir.Repeat(distinct=distinct) if distinct is not None:
                yield "DISTINCT BY"
            case ir.Without():
                yield "WITHOUT"
            case ir.Anchored():
                yield "^"
            case _:
                pass
    for expression in _expressions(rule):
        for part in walk(expression):
            yield from _of_part(part)


def _of_part(part: Expression) -> Iterator[str]:
    match part:
        case Joined():
            yield "tables"
        case Aggregate(kind="DISTINCT"):
            yield "COUNT(DISTINCT v.x)"
        case Aggregate(argument=argument) if argument is not None and is_windowed(argument):
            yield "values of windows when an event was taken"
        case Call(function=function) if function == IN_TAKEN:
            yield "IN"
        case Windowed(window=window, function=function) if not window.is_whole:
            yield "windows"
            if window.step_us:
                yield "windows BY"
            if function == "LAG" and window.frame is Frame.ALL:
                yield "PREV"
            if function == "SEEN":
                yield "SEEN"
        case _:
            pass


def _expressions(rule: ir.Rule) -> Iterator[Expression]:
    yield from (item.predicate for item in rule.variables if item.predicate is not None)
    yield from (item.expression for item in rule.measures)
    for node in ir.walk(rule.pattern):
        if isinstance(node, ir.Repeat) and node.distinct is not None:
            yield node.distinct
    if rule.windowing is not None:
        yield from (part for part in (rule.windowing.where, rule.windowing.having) if part is not None)
