"""Conditions of rules on values that the events never had, according to the profiles of their streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cep.diagnostics.diagnostic import suggestion
from cep.diagnostics.safe_text import MAX_SHOWN, for_cell, in_short
from cep.errors import Diagnostic
from cep.language import ast
from cep.language.parameters import PARTS, with_values
from cep.language.printer import print_expression
from cep.profiles.profile import ColumnProfile, Profile, number_text, read_profile
from cep.schema.stream import Stream

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
"""Each comparison as it is with its sides exchanged."""

_MOST_SHOWN = 5
"""Values that a message lists."""

_MOST_COMPARED = 200
"""Values among which the one that is meant is looked for."""

_Value = bool | int | float | str | None

_NUMBERS = (ast.Kind.INTEGER, ast.Kind.DECIMAL)


def profiles_of(streams_file: Path | None, streams: Mapping[str, Stream]) -> dict[str, Profile]:
    """Return the profiles next to a streams file, by stream. Raises InputError (E0651)."""
    if streams_file is None:
        return {}
    found = {name: read_profile(streams_file, name) for name in streams}
    return {name: profile for name, profile in found.items() if profile is not None}


def never_seen(
    rules: Sequence[ast.Rule], streams: Mapping[str, Stream], profiles: Mapping[str, Profile]
) -> list[Diagnostic]:
    """Return a warning for each comparison with a value that no event had (W0652)."""
    return [problem for rule in rules for problem in _of_rule(rule, streams, profiles)]


def _of_rule(
    rule: ast.Rule, streams: Mapping[str, Stream], profiles: Mapping[str, Profile]
) -> Iterator[Diagnostic]:
    written = with_values(rule)
    lets = {let.name.text for let in rule.lets}
    for part in PARTS:
        for node, stream in _nodes(getattr(written, part), None):
            for column, operator, constant, value in _comparisons(node):
                if column.name.text in lets:
                    continue
                read = _profiles_of(rule, column, stream, streams, profiles)
                problems = [_problem(rule, node, column, operator, constant, value, one) for one in read]
                if problems and all(problem is not None for problem in problems):
                    yield from (problem for problem in problems[:1] if problem is not None)


def _nodes(node: Any, stream: str | None) -> Iterator[tuple[Any, str | None]]:
    """Yield `node` and all inside it, each with the stream that ON names."""
    if isinstance(node, tuple):
        for item in node:
            yield from _nodes(item, stream)
    elif is_dataclass(node):
        named = node.stream if isinstance(node, ast.Definition | ast.Let) else None
        stream = stream if named is None else named.text
        yield node, stream
        for one in fields(node):
            yield from _nodes(getattr(node, one.name), stream)


def _comparisons(node: Any) -> Iterator[tuple[ast.Column, str, ast.Constant, _Value]]:
    """Yield the columns that a node compares with constants, and the values of these in the comparison."""
    match node:
        case ast.Binary(operator=operator, left=ast.Column() as column, right=ast.Constant() as constant):
            if operator in _TURNED:
                yield column, operator, constant, constant.value
        case ast.Binary(operator=operator, left=ast.Constant() as constant, right=ast.Column() as column):
            if operator in _TURNED:
                yield column, _TURNED[operator], constant, constant.value
        case ast.In(operand=ast.Column() as column, items=items):
            # A fraction among the items makes the comparisons with all of them those of DOUBLE.
            constants = [item for item in items if isinstance(item, ast.Constant)]
            is_exact = all(item.kind is not ast.Kind.DECIMAL for item in constants)
            for item in constants:
                value = item.value
                yield column, "=", item, value if is_exact or not isinstance(value, int) else float(value)


def _profiles_of(
    rule: ast.Rule,
    column: ast.Column,
    named: str | None,
    streams: Mapping[str, Stream],
    profiles: Mapping[str, Profile],
) -> list[tuple[Profile, ColumnProfile]]:
    """Return the profiles of the streams that a column may be of; none: one of them has no profile."""
    joined = {join.table.text for join in rule.joins}
    table = column.table or column.variable
    if table is not None and table.text in joined:
        names = [table.text]
    elif named is not None and column.variable is None:
        names = [named]
    else:
        names = [name.text for name in rule.streams]
    names = [name for name in names if name in streams and streams[name].field(column.name.text) is not None]
    found = [
        (profiles[name], profiles[name].columns[column.name.text])
        for name in names
        if name in profiles and _has(profiles[name], streams[name], column.name.text)
    ]
    return found if len(found) == len(names) else []


def _has(profile: Profile, stream: Stream, column: str) -> bool:
    """Return whether a profile has a column as it is declared now; values of another type say nothing."""
    found, field = profile.columns.get(column), stream.field(column)
    return found is not None and field is not None and found.type == field.declared


def _problem(
    rule: ast.Rule,
    node: Any,
    column: ast.Column,
    operator: str,
    constant: ast.Constant,
    value: _Value,
    read: tuple[Profile, ColumnProfile],
) -> Diagnostic | None:
    profile, of_column = read
    events = f"{profile.n_events:,} events of `{profile.stream}`"
    if operator in ("=", "<>"):
        if of_column.counts is None or constant.kind not in (*_NUMBERS, ast.Kind.TEXT):
            return None
        if _is_counted(value, of_column.counts):
            return None
        shown = print_expression(constant)
        advice = _values(str(constant.value), of_column.counts)
        title = f"`{column.name.text}` was never {shown} in {events}"
        return Diagnostic("W0652", title, rule.source, constant.span, "never seen", advice)
    if not isinstance(value, int | float) or constant.kind not in _NUMBERS:
        return None
    if of_column.least is None or of_column.greatest is None or _is_held(of_column, operator, value):
        return None
    title = f"`{print_expression(node)}` held for none of {events}"
    ends = f"{number_text(of_column.least)} to {number_text(of_column.greatest)}"
    advice = f"`{column.name.text}` was from {ends}"
    return Diagnostic("W0652", title, rule.source, node.span, "never TRUE", advice)


def _is_held(of_column: ColumnProfile, operator: str, value: float) -> bool:
    """Return whether a comparison with a number holds for an event. NaN is greater than every number."""
    assert of_column.least is not None
    assert of_column.greatest is not None
    if operator in (">", ">="):
        end, limit = _alike(of_column.greatest, value)
        return of_column.n_nan > 0 or end > limit or (operator == ">=" and end == limit)
    end, limit = _alike(of_column.least, value)
    return end < limit or (operator == "<=" and end == limit)


def _alike(one: float, other: float) -> tuple[float, float]:
    """Return two numbers as rules compare them: whole numbers exactly, all others as DOUBLE."""
    is_exact = isinstance(one, int) and isinstance(other, int)
    return (one, other) if is_exact else (float(one), float(other))


def _is_counted(value: _Value, counts: Mapping[str, int]) -> bool:
    if not isinstance(value, int | float):
        return value in counts
    return str(value) in counts or any(_is_equal(text, value) for text in counts)


def _is_equal(text: str, value: float) -> bool:
    """Return whether a rule takes a counted value for equal to a number."""
    for number in (int, float):
        try:
            seen, other = _alike(number(text), value)
        except (ValueError, OverflowError):  # a string, which no rule may compare with a number
            continue
        return seen == other
    return False


def _values(text: str, counts: Mapping[str, int]) -> str:
    """Return what was seen: the value that may be meant, or the most frequent ones."""
    near = suggestion(text, [value for value in list(counts)[:_MOST_COMPARED] if len(value) <= MAX_SHOWN])
    if near is not None:
        return f"did you mean '{for_cell(near)}'? It occurs {counts[near]:,} times"
    shown = ", ".join(f"{in_short(value)} {n:,} times" for value, n in list(counts.items())[:_MOST_SHOWN])
    more = len(counts) - _MOST_SHOWN
    return (
        f"there are: {shown}{f' and {more:,} others' if more > 0 else ''}" if counts else "it is always NULL"
    )
