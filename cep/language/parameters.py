"""The parameters of rules: constants with a name (`PARAM small = 5`), which `--set small=4` replaces.

A parameter has its value before anything is typed. Each place that names it keeps its own position in the
text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Diagnostic, Source
from cep.language import ast
from cep.language.cursor import KIND_WORDS, ProblemError
from cep.language.patterns import PatternReader
from cep.language.printer import print_name

PARTS = (
    *("pattern", "window", "windowing", "lets", "definitions", "where", "having", "measures"),
    "report",
)
"""The parts of a rule that may name parameters."""


_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
_ASSIGNED = re.compile(rf"((?:{_QUOTED.pattern}|[^`=])+)=(.*)", re.DOTALL)


def assignment(text: str) -> tuple[str, str] | None:
    """Return the name and the value in ``small=4``; None: it has another form.

    The name may be in backticks, as in rules: `` `a=b`=4 ``.
    """
    found = _ASSIGNED.fullmatch(text)
    if found is None:
        name, sign, value = text.partition("=")
    else:
        name, sign, value = _QUOTED.sub(_unquoted, found[1].strip()), "=", found[3]
    return (name if found else name.strip(), value.strip()) if sign and name.strip() else None


def setting_of(rules: Sequence[ast.Rule], rule: str, parameter: str) -> str | None:
    """Return what `--set` calls a parameter of one of the rules; None: each name is that of others, too."""
    for names in ((parameter,), (rule, parameter)):
        if len(list(_places(rules, ".".join(names)))) == 1:
            return ".".join(map(print_name, names))
    return None


def with_values(rule: ast.Rule) -> ast.Rule:
    """Return a rule with the value of each parameter in the places that name it."""
    if not rule.parameters:
        return rule
    values = {parameter.name.text: parameter.value for parameter in rule.parameters}
    return replace(rule, **{part: _with_values(getattr(rule, part), values) for part in PARTS})


def parameters_read(rule: ast.Rule) -> set[str]:
    """Return the parameters that a rule, as it is written, names somewhere."""
    known = {parameter.name.text for parameter in rule.parameters}
    read = {name for part in PARTS for name in _names(getattr(rule, part))}
    return (read | {name.text for name in named_values(rule)}) & known


def named_values(node: Any) -> Iterator[ast.Name]:
    """Yield the parameters in a syntax tree that replace a number, a duration or a pattern."""
    if isinstance(node, ast.ParameterValue):
        yield node.name
    elif isinstance(node, ast.Text):
        if node.parameter is not None:
            yield node.parameter
    elif isinstance(node, tuple):
        for part in node:
            yield from named_values(part)
    elif is_dataclass(node):
        for one in fields(node):
            yield from named_values(getattr(node, one.name))


def set_parameters(
    rules: Sequence[ast.Rule], given: Mapping[str, str]
) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
    """Return rules with other values of their parameters, and the problems of these values.

    The names in `given` are those of parameters, for all rules that have them, or ``rule.parameter``.
    """
    found, problems = list(rules), list[Diagnostic]()
    for name, text in given.items():
        places = list(_places(found, name))
        if not places:
            known = {parameter.name.text for rule in rules for parameter in rule.parameters}
            advice = did_you_mean(name, known, "parameters")
            problems.append(Diagnostic("E0889", f"no rule has a parameter `{name}`", help=advice))
        for number, place in places:
            rule = found[number]
            parameter = rule.parameters[place]
            value = _constant(text, parameter.value)
            if value is None or (_is_negative(value) and _is_amount(rule, parameter.name.text)):
                problems.append(_wrong(rule.source, parameter, text))
                continue
            changed = replace(parameter, value=value)
            parameters = (*rule.parameters[:place], changed, *rule.parameters[place + 1 :])
            found[number] = replace(rule, parameters=parameters)
    return tuple(found), problems


def _places(rules: Iterable[ast.Rule], name: str) -> Iterator[tuple[int, int]]:
    """Yield the number of each rule with the parameter `name`, and the place of the parameter."""
    for number, rule in enumerate(rules):
        for place, parameter in enumerate(rule.parameters):
            if name in (parameter.name.text, f"{rule.name.text}.{parameter.name.text}"):
                yield number, place


def _unquoted(name: re.Match[str]) -> str:
    return name[1].replace("``", "`")


def _constant(text: str, declared: ast.Constant) -> ast.Constant | None:
    """Return the constant that a text stands for, of the kind that is declared; None: it stands for none."""
    if declared.kind is ast.Kind.TEXT and not text.startswith("'"):
        return replace(declared, value=text)
    reader = PatternReader(Source("value", text))
    try:
        found = reader.unary()
    except ProblemError:
        return None
    if not isinstance(found, ast.Constant) or not reader.is_at_end():
        return None
    if declared.kind is ast.Kind.DECIMAL and found.kind is ast.Kind.INTEGER and found.value is not None:
        return replace(declared, value=float(found.value))
    return replace(declared, value=found.value) if found.kind is declared.kind else None


def _is_negative(value: ast.Constant) -> bool:
    return value.kind is ast.Kind.INTEGER and isinstance(value.value, int) and value.value < 0


def _is_amount(rule: ast.Rule, name: str) -> bool:
    """Return whether a parameter is somewhere a number of events, of runs or of matches."""
    return any(place.text == name for place in named_values(rule))


def _wrong(source: Source, parameter: ast.Parameter, text: str) -> Diagnostic:
    name, kind = parameter.name.text, parameter.value.kind
    word = KIND_WORDS[kind]
    advice = f"give {word}" + ("; a parameter declared as 5.0 may be 4.5" if kind is ast.Kind.INTEGER else "")
    title = f"parameter `{name}` is {word.partition(':')[0]}, and `{text}` is not"
    return Diagnostic("E0895", title, source, parameter.value.span, "declared here", advice)


def _with_values(node: Any, values: Mapping[str, ast.Constant]) -> Any:
    """Return `node`, itself if nothing in it names a parameter."""
    if isinstance(node, ast.Column):
        is_bare = node.variable is None and node.table is None
        value = values.get(node.name.text) if is_bare else None
        return node if value is None else replace(value, span=node.span)
    if isinstance(node, ast.ParameterValue):
        return values[node.name.text].value
    if isinstance(node, ast.Text):
        if node.parameter is None:
            return node
        declared = values[node.parameter.text]
        return replace(node, text=str(declared.value), span=declared.span, parameter=None)
    if isinstance(node, tuple):
        parts = tuple(_with_values(part, values) for part in node)
        return node if all(new is old for new, old in zip(parts, node, strict=True)) else parts
    if not is_dataclass(node) or isinstance(node, type):
        return node
    old = {part.name: getattr(node, part.name) for part in fields(node)}
    new = {name: _with_values(value, values) for name, value in old.items()}
    changed = {name: value for name, value in new.items() if value is not old[name]}
    return replace(node, **changed) if changed else node


def _names(node: Any) -> Iterator[str]:
    """Yield the names of columns without a variable."""
    if isinstance(node, ast.Column):
        if node.variable is None and node.table is None:
            yield node.name.text
    elif isinstance(node, tuple):
        for part in node:
            yield from _names(part)
    elif is_dataclass(node):
        for one in fields(node):
            yield from _names(getattr(node, one.name))
