"""Where the names of rules are declared and used: for renaming, and for going to a declaration.

Only rules without a syntax error have places. The scope of a name is its rule, or its stream for a column. A
measure has the scope of its rule, even where another rule reads it from the matches (`MATCHES OF`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from typing import Any

import yaml

from cep.errors import Source, Span
from cep.language import ast
from cep.language.front_ends import read_rules
from cep.language.parameters import named_values
from cep.language.printer import print_name
from cep.settings.yaml_document import Document, span_of


class NameKind(StrEnum):
    """The kind of thing that a name names, as messages call it."""

    RULE = "rule"
    STEP = "step"
    SUBSET = "subset"
    MEASURE = "measure"
    PARAMETER = "parameter"
    LET = "value of LET"
    STREAM = "stream"
    COLUMN = "column"


RENAMED = (NameKind.STEP, NameKind.SUBSET, NameKind.MEASURE, NameKind.PARAMETER, NameKind.LET)
"""What `rename` renames: the other names also occur in files that it does not read."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """What a name means: its kind, the rule or the stream in which it is known, and its text."""

    kind: NameKind
    scope: str
    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a text. `is_declaration`: here the rule says what it is."""

    symbol: Symbol
    source: Source
    span: Span
    is_declaration: bool = False


def places(sources: Iterable[Source]) -> tuple[Place, ...]:
    """Return all places of names in texts, ordered within each text."""
    found: list[Place] = []
    for source in sources:
        of_text = [place for rule in read_rules(source)[0] for place in _Rule(rule).places()]
        found += sorted(dict.fromkeys(of_text), key=lambda place: place.span.start)
    return tuple(found)


def symbol_at(found: Iterable[Place], name: str, offset: int) -> Place | None:
    """Return the place at an offset of the text called `name`; None: no name has this place."""
    return next(
        (
            place
            for place in found
            if place.source.name == name and place.span.start <= offset <= place.span.end
        ),
        None,
    )


def declaration(found: Iterable[Place], symbol: Symbol, streams_file: Source | None) -> Place | None:
    """Return where a name is declared: in a rule, or in the streams file; None: no declaration is known."""
    if symbol.kind in (NameKind.STREAM, NameKind.COLUMN):
        span = None if streams_file is None else stream_place(streams_file, symbol)
        return None if span is None or streams_file is None else Place(symbol, streams_file, span, True)
    of_symbol = [place for place in found if place.symbol == symbol]
    declared = [place for place in of_symbol if place.is_declaration]
    return next(iter((*declared, *of_symbol)), None)


def renamed(found: Iterable[Place], symbol: Symbol, new: str) -> tuple[tuple[Source, Span, str], ...]:
    """Return what replaces the text at each place of a name. A name that needs backticks gets them."""
    text = print_name(new)
    return tuple((place.source, place.span, text) for place in found if place.symbol == symbol)


def in_tests(source: Source, symbol: Symbol, is_only: bool) -> Iterator[Span]:
    """Yield the places of a measure or a parameter in the text of a test file of its rule.

    `is_only`: no other rule of the test file has a name like it. A key ``rule.parameter`` is always its own.
    """
    document = Document(source)
    cases = _at(document.root(), "cases")
    parameters = _at(document.root(), "parameters")
    if symbol.kind is NameKind.PARAMETER and isinstance(parameters, yaml.MappingNode):
        for key, _ in parameters.value:
            span = span_of(key, len(source.text))
            if key.value == f"{symbol.scope}.{symbol.text}":
                yield Span(span.end - len(symbol.text), span.end)
            elif key.value == symbol.text and is_only:
                yield span
    if symbol.kind is NameKind.MEASURE and is_only and isinstance(cases, yaml.MappingNode):
        for _, case in cases.value:
            expected = _at(case, "expect")
            for match in expected.value if isinstance(expected, yaml.SequenceNode) else ():
                for key, _ in match.value if isinstance(match, yaml.MappingNode) else ():
                    if key.value == symbol.text:
                        yield span_of(key, len(source.text))


def stream_place(source: Source, symbol: Symbol) -> Span | None:
    """Return where a streams file declares a stream, a table or a column of one."""
    root = Document(source).root()
    name = symbol.text if symbol.kind is NameKind.STREAM else symbol.scope
    for section in ("streams", "tables"):
        streams = _at(root, section)
        for key, value in streams.value if isinstance(streams, yaml.MappingNode) else ():
            if key.value != name:
                continue
            if symbol.kind is NameKind.STREAM:
                return span_of(key, len(source.text))
            columns = _at(value, "schema")
            for column, _ in columns.value if isinstance(columns, yaml.MappingNode) else ():
                if column.value == symbol.text:
                    return span_of(column, len(source.text))
    return None


def _at(node: yaml.Node | None, name: str) -> yaml.Node | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next((value for key, value in pairs if key.value == name), None)


class _Rule:
    """The places of names in one rule."""

    def __init__(self, rule: ast.Rule) -> None:
        self.rule = rule
        self.name = rule.name.text
        self.read = {rule.streams[number].text for number in rule.matches}
        self.only = rule.streams[0].text if len(rule.streams) == 1 else ""
        self.streams = {name.text for name in rule.streams}
        self.tables = {join.table.text for join in rule.joins}
        self.parameters = {one.name.text for one in rule.parameters}
        self.lets = {one.name.text for one in rule.lets}
        self.subsets = {one.name.text for one in rule.subsets}
        self.steps: dict[str, str] = {}
        for pattern in ast.walk(rule.pattern):
            self.steps |= {name.text: self.only for name in _variables(pattern)}
        self.steps |= {
            one.variable.text: one.stream.text if one.stream else self.only for one in rule.definitions
        }

    def places(self) -> Iterator[Place]:
        """Yield all places, in no order."""
        rule = self.rule
        yield self._place(NameKind.RULE, "", rule.name, True)
        for number, name in enumerate(rule.streams):
            kind = NameKind.RULE if number in rule.matches else NameKind.STREAM
            yield self._place(kind, "", name)
        yield from self._joins()
        for part in rule.key:
            for column in part.columns:
                yield from self._column(column, self.only)
        yield from self._pattern()
        for subset in rule.subsets:
            yield self._place(NameKind.SUBSET, self.name, subset.name, True)
            yield from (self._variable(name) for name in subset.members)
        for one in rule.parameters:
            yield self._place(NameKind.PARAMETER, self.name, one.name, True)
        for name in named_values(rule):
            yield self._place(NameKind.PARAMETER, self.name, name)
        for let in rule.lets:
            yield self._place(NameKind.LET, self.name, let.name, True)
            yield from self._stream(let.stream)
            yield from self._inside(let.expression, let.stream.text if let.stream else self.only)
        for definition in rule.definitions:
            stream = self.steps[definition.variable.text]
            yield self._place(NameKind.STEP, self.name, definition.variable, True)
            yield from self._stream(definition.stream)
            yield from (self._of_stream(stream, name) for name in definition.key)
            yield from self._inside(definition.condition, stream)
        yield from self._stream(rule.windowing.table if rule.windowing is not None else None)
        for condition in (rule.where, rule.having):
            yield from self._inside(condition, self.only)
        for measure in rule.measures:
            yield self._place(NameKind.MEASURE, self.name, measure.name, True)
            yield from self._inside(measure.expression, self.only)
        if rule.skip is not None and rule.skip.variable is not None:
            yield self._variable(rule.skip.variable)

    def _place(self, kind: NameKind, scope: str, name: ast.Name, is_declaration: bool = False) -> Place:
        return Place(Symbol(kind, scope, name.text), self.rule.source, name.span, is_declaration)

    def _of_stream(self, stream: str, name: ast.Name) -> Place:
        """Return the place of a column, which is a measure where the stream is that of matches."""
        return self._place(NameKind.MEASURE if stream in self.read else NameKind.COLUMN, stream, name)

    def _stream(self, name: ast.Name | None) -> Iterator[Place]:
        if name is not None:
            yield self._place(NameKind.RULE if name.text in self.read else NameKind.STREAM, "", name)

    def _variable(self, name: ast.Name) -> Place:
        kind = NameKind.SUBSET if name.text in self.subsets else NameKind.STEP
        return self._place(kind, self.name, name)

    def _joins(self) -> Iterator[Place]:
        for join in self.rule.joins:
            yield from self._stream(join.table)
            for pair in join.pairs:
                yield from self._column(pair.left, self.only)
                if pair.right is not None:
                    yield from self._column(pair.right, join.table.text)

    def _pattern(self) -> Iterator[Place]:
        for pattern in ast.walk(self.rule.pattern):
            yield from map(self._variable, _variables(pattern))
            if isinstance(pattern, ast.Repetition):
                inside = [name for part in ast.walk(pattern.body) for name in _variables(part)]
                stream = self.steps.get(inside[0].text, self.only) if inside else self.only
                if pattern.distinct is not None:
                    yield self._of_stream(stream, pattern.distinct)
                yield from self._inside(pattern.until, stream)

    def _inside(self, node: Any, stream: str) -> Iterator[Place]:
        """Yield the places in an expression about an event of `stream`."""
        if isinstance(node, ast.Column):
            yield from self._column(node, stream, is_expression=True)
        elif isinstance(node, ast.Events):
            if node.variable is not None:
                yield self._variable(node.variable)
        elif isinstance(node, tuple):
            for part in node:
                yield from self._inside(part, stream)
        elif is_dataclass(node):
            for one in fields(node):
                yield from self._inside(getattr(node, one.name), stream)

    def _column(self, column: ast.Column, stream: str, is_expression: bool = False) -> Iterator[Place]:
        variable = column.variable
        if variable is None:
            known: Mapping[NameKind, set[str]] = {
                NameKind.PARAMETER: self.parameters,
                NameKind.LET: self.lets,
            }
            kinds = [kind for kind, names in known.items() if column.name.text in names and is_expression]
            if kinds:
                yield self._place(kinds[0], self.name, column.name)
            else:
                yield self._of_stream(stream, column.name)
            return
        if column.table is not None:
            yield self._variable(variable)
            yield self._place(NameKind.STREAM, "", column.table)
            yield self._of_stream(column.table.text, column.name)
        elif variable.text in self.steps or variable.text in self.subsets:
            yield self._variable(variable)
            of_variable = self.steps.get(variable.text, self.only)
            is_let = column.name.text in self.lets and is_expression
            if is_let:
                yield self._place(NameKind.LET, self.name, column.name)
            else:
                yield self._of_stream(of_variable, column.name)
        else:
            yield from self._stream(variable)
            yield self._of_stream(variable.text, column.name)


def _variables(pattern: ast.Pattern) -> tuple[ast.Name, ...]:
    """Return the variables that a pattern itself names, without those of the patterns inside it."""
    match pattern:
        case ast.Step(variable=variable):
            return (variable,) if variable.text else ()
        case ast.Absence(variables=variables) | ast.Without(variables=variables):
            return variables
        case _:
            return ()
