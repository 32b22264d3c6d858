"""Conditions of rules on values that the events never had, according to the profiles of their streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from cep.diagnostics.diagnostic import suggestion
from cep.errors import Diagnostic
from cep.language import ast
from cep.language.parameters import PARTS, with_values
from cep.language.printer import print_expression
from cep.profiles.profile import ColumnProfile, Profile, read_profile, value_text
from cep.schema.stream import Stream

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
"""Each comparison as it is with its sides exchanged."""

_MOST_SHOWN = 5
"""Values that a message lists."""

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
            for column, operator, constant in _comparisons(node):
                if column.name.text in lets:
                    continue
                read = _profiles_of(rule, column, stream, streams, profiles)
                problems = [_problem(rule, node, column, operator, constant, one) for one in read]
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


def _comparisons(node: Any) -> Iterator[tuple[ast.Column, str, ast.Constant]]:
    """Yield the columns that a node compares with constants."""
    match node:
        case ast.Binary(operator=operator, left=ast.Column() as column, right=ast.Constant() as constant):
            if operator in _TURNED:
                yield column, operator, constant
        case ast.Binary(operator=operator, left=ast.Constant() as constant, right=ast.Column() as column):
            if operator in _TURNED:
                yield column, _TURNED[operator], constant
        case ast.In(operand=ast.Column() as column, items=items):
            yield from ((column, "=", item) for item in items if isinstance(item, ast.Constant))


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
        if name in profiles and column.name.text in profiles[name].columns
    ]
    return found if len(found) == len(names) else []


def _problem(
    rule: ast.Rule,
    node: Any,
    column: ast.Column,
    operator: str,
    constant: ast.Constant,
    read: tuple[Profile, ColumnProfile],
) -> Diagnostic | None:
    profile, of_column = read
    events = f"{profile.n_events:,} events of `{profile.stream}`"
    if operator in ("=", "<>"):
        if of_column.counts is None or constant.kind not in (*_NUMBERS, ast.Kind.TEXT):
            return None
        if _is_counted(constant, of_column.counts):
            return None
        shown = print_expression(constant)
        advice = _values(str(constant.value), of_column.counts)
        title = f"`{column.name.text}` was never {shown} in {events}"
        return Diagnostic("W0652", title, rule.source, constant.span, "never seen", advice)
    if constant.kind not in _NUMBERS or of_column.least is None or of_column.greatest is None:
        return None
    value = float(constant.value)  # type: ignore[arg-type]
    holds = {
        "<": of_column.least < value,
        "<=": of_column.least <= value,
        ">": of_column.greatest > value,
        ">=": of_column.greatest >= value,
    }
    if holds[operator]:
        return None
    title = f"`{print_expression(node)}` held for none of {events}"
    advice = f"`{column.name.text}` was from {of_column.least:,} to {of_column.greatest:,}"
    return Diagnostic("W0652", title, rule.source, node.span, "never TRUE", advice)


def _is_counted(constant: ast.Constant, counts: Mapping[str, int]) -> bool:
    if value_text(constant.value) in counts:
        return True
    if constant.kind not in _NUMBERS:
        return False
    value = float(constant.value)  # type: ignore[arg-type]
    return str(value) in counts or (value.is_integer() and str(int(value)) in counts)


def _values(text: str, counts: Mapping[str, int]) -> str:
    """Return what was seen: the value that may be meant, or the most frequent ones."""
    near = suggestion(text, list(counts)[:200])
    if near is not None:
        return f"did you mean '{near}'? It occurs {counts[near]:,} times"
    shown = ", ".join(f"{value} {n:,} times" for value, n in list(counts.items())[:_MOST_SHOWN])
    more = len(counts) - _MOST_SHOWN
    return (
        f"there are: {shown}{f' and {more:,} others' if more > 0 else ''}" if counts else "it is always NULL"
    )
