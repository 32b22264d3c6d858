"""The body of a request as a template: JSON in which `{{column}}` is replaced by a value of the row.

A template is parsed, filled as a structure, and only then written as JSON. So no value can end the string
that contains it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from cep.diagnostics.diagnostic import did_you_mean
from cep.settings.yaml_document import Document
from spark_runtime.sources.secrets import replaced, variables_of

ROW = "*"
"""The name that means the whole row."""

_PLACEHOLDER = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"true": "true", "false": "false", "null": "null", "~": "null", "": "null"}

_QUOTES = 'put it into quotes: "{{rule}}"'


class _Number(str):
    """A number as written: parsing and formatting it would change some."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """A part that is the same in each body, as JSON."""

    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a column, with its type; or the whole row."""

    column: str


@dataclass(frozen=True, slots=True)
class Text:
    """A string that contains values of columns."""

    parts: tuple[str | Value, ...]


@dataclass(frozen=True, slots=True)
class Members:
    """An object."""

    members: tuple[tuple[str, Part], ...]


@dataclass(frozen=True, slots=True)
class Elements:
    """An array."""

    elements: tuple[Part, ...]


Part = Constant | Value | Text | Members | Elements


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A column that a template names, and the place where it does."""

    name: str
    node: yaml.Node


@dataclass(frozen=True, slots=True)
class Template:
    """A body that contains values of a row."""

    root: Part

    def filled(self, row: str) -> str:
        """Return the body for a row, which is given as JSON without NULL columns."""
        values = json.loads(row, parse_int=_Number, parse_float=_Number)
        return _written(self.root, row, values)

    def with_secrets(self) -> Template:
        """Return the template with environment variables replaced; raise InputError if one is missing."""
        return Template(_replaced(self.root))

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables, each as `${NAME}`."""
        return tuple(dict.fromkeys(name for text in _texts(self.root) for name in variables_of(text)))


def _written(part: Part, row: str, values: dict[str, Any]) -> str:
    match part:
        case Constant():
            return part.text
        case Value():
            return row if part.column == ROW else _json(values.get(part.column))
        case Text():
            shown = (each if isinstance(each, str) else _shown(each, row, values) for each in part.parts)
            return _json("".join(shown))
        case Members():
            members = (f"{_json(name)}:{_written(each, row, values)}" for name, each in part.members)
            return f"{{{','.join(members)}}}"
        case Elements():
            return f"[{','.join(_written(each, row, values) for each in part.elements)}]"


def _shown(value: Value, row: str, values: dict[str, Any]) -> str:
    """Return a value within a text; NULL becomes an empty text."""
    if value.column == ROW:
        return row
    found = values.get(value.column)
    if found is None or isinstance(found, str):
        return found or ""
    return _json(found)


def _json(value: Any) -> str:
    match value:
        case _Number():
            return str(value)
        case dict():
            return f"{{{','.join(f'{_json(name)}:{_json(each)}' for name, each in value.items())}}}"
        case list():
            return f"[{','.join(map(_json, value))}]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _replaced(part: Part) -> Part:
    match part:
        case Text():
            return Text(
                tuple(replaced("body", each) if isinstance(each, str) else each for each in part.parts)
            )
        case Members():
            return Members(tuple((name, _replaced(each)) for name, each in part.members))
        case Elements():
            return Elements(tuple(map(_replaced, part.elements)))
        case Constant() | Value():
            return part


def _texts(part: Part) -> Iterator[str]:
    match part:
        case Text():
            yield from (each for each in part.parts if isinstance(each, str))
        case Members():
            for _, each in part.members:
                yield from _texts(each)
        case Elements():
            for each in part.elements:
                yield from _texts(each)
        case Constant() | Value():
            return


# ------------------------------------------------------------ reading


class TemplateReader:
    """Reads a template and reports problems to the document. `named` collects the columns found."""

    def __init__(self, document: Document, what: str) -> None:
        self.document = document
        self.what = what
        self.named: list[NamedColumn] = []

    def template(self, node: yaml.Node) -> Template:
        """Return a template, which is valid if no problem was reported."""
        return Template(self._part(node))

    def _part(self, node: yaml.Node) -> Part:
        match node:
            case yaml.MappingNode(value=[(yaml.MappingNode() as key, _)]):  # {{rule}} means this to YAML
                self._problem("a placeholder without quotes", key, "YAML reads braces", _QUOTES)
                return Constant("null")
            case yaml.MappingNode():
                return self._members(node)
            case yaml.SequenceNode():
                return Elements(tuple(self._part(each) for each in node.value))
            case yaml.ScalarNode():
                return self._scalar(node)
            case _:
                raise AssertionError(node)

    def _members(self, node: yaml.MappingNode) -> Part:
        members = []
        for entry in self.document.mapping(node, f"`{self.what}`") or []:
            if "{{" in entry.name:
                self._problem("a placeholder in a name", entry.key, "names are fixed", "write it as a value")
            members.append((entry.name, self._part(entry.value)))
        return Members(tuple(members))

    def _scalar(self, node: yaml.ScalarNode) -> Part:
        text = str(node.value)
        if node.style is None or node.style == "":  # without quotes
            if text in _WORDS:
                return Constant(_WORDS[text])
            if _NUMBER.fullmatch(text):
                return Constant(text)
        whole = _PLACEHOLDER.fullmatch(text)
        if whole is not None:
            return self._value(whole[1], node)
        parts: list[str | Value] = []
        end = 0
        for found in _PLACEHOLDER.finditer(text):
            parts += [self._literal(text[end : found.start()], node), self._value(found[1], node)]
            end = found.end()
        parts.append(self._literal(text[end:], node))
        return Text(tuple(part for part in parts if part != ""))

    def _literal(self, text: str, node: yaml.Node) -> str:
        if "{{" in text or "}}" in text:
            self._problem(
                "a placeholder that does not end, or does not begin",
                node,
                "`{{` and `}}` belong together",
                "write for example {{match_id}}",
            )
        return text

    def _value(self, column: str, node: yaml.Node) -> Value:
        if column != ROW:
            self.named.append(NamedColumn(column, node))
        return Value(column)

    def _problem(self, title: str, node: yaml.Node, label: str, help_text: str) -> None:
        self.document.problem("E0836", f"`{self.what}` has {title}", node, label, help_text)


def check_columns(document: Document, what: str, named: Sequence[NamedColumn], known: Sequence[str]) -> None:
    """Report each column of a template that rows lack."""
    for each in named:
        if each.name not in known:
            document.problem(
                "E0836",
                f"`{what}` names the column `{each.name}`, which rows do not have",
                each.node,
                "not a column",
                did_you_mean(each.name, known, "columns"),
            )
