"""A rule at each stage of its compilation, as text: syntax tree, typed rule, automaton, program.

What is shown follows from the dataclasses of each stage, so a new field of one is shown without a change
here. Fields with their default value and places in the text are omitted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, IntEnum

import numpy as np
import numpy.typing as npt

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.compile import Compiled, CompiledRule
from cep.errors import Source, Span
from cep.explain.shown import show_expression
from cep.expression import Expression
from cep.language import ast
from cep.program.records import COLUMNS, Kind, RecordField, RuleTables

STAGES = ("ast", "ir", "nfa", "program")
"""What can be shown, in the order in which a rule goes through them."""


def show_stages(compiled: Compiled, stage: str) -> list[str]:
    """Return `stage` of each rule; "all": every stage."""
    shown = []
    for rule in compiled.rules:
        for chosen in STAGES if stage == "all" else (stage,):
            match chosen:
                case "ast":
                    shown.append(_show(rule, rule.tree))
                case "ir":
                    shown.append(_show(rule, rule.typed))
                case "nfa":
                    shown.append(_show(rule, rule.automaton))
                case _:
                    shown.append(_joined(_program(rule)))
    return shown


def _show(rule: CompiledRule, stage: ast.Rule | ir.Rule | nfa.Nfa) -> str:
    """Return a stage whose parts are dataclasses, as a tree."""
    return _joined(_tree(f"rule {rule.name}: ", stage))


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


# ---------------------------------------------------------------- trees


def _tree(head: str, value: object) -> Iterator[str]:
    """Show `value` after `head`, its parts indented below it."""
    short = _in_line(value)
    if short is not None:
        yield head + short
        return
    indent = " " * (len(head) - len(head.lstrip(" "))) + "  "
    if isinstance(value, tuple):
        yield head.rstrip()
        for number, item in enumerate(value):
            named = isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)
            yield from _tree(f"{indent}{item[0]}: ", item[1]) if named else _tree(f"{indent}{number}: ", item)
        return
    yield head + type(value).__name__
    for name, part in _parts(value):
        yield from _tree(f"{indent}{name}: ", part)


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield the fields of a dataclass that are worth showing."""
    assert dataclasses.is_dataclass(value)
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if isinstance(part, Span | Source | ir.Origin) or _is_default(field, part):
            continue
        yield field.name, part


def _is_default(field: dataclasses.Field[object], part: object) -> bool:
    if field.default is not dataclasses.MISSING:
        return part == field.default
    return part is None or (isinstance(part, tuple) and not part)


def _in_line(value: object) -> str | None:
    """Return what fits after its name, or None."""
    if isinstance(value, Expression):
        return f"{show_expression(value)} ({value.type.value})"
    match value:
        case ast.Name() | ast.Text():
            return value.text
        case Enum():
            return (
                value.name.lower() if isinstance(value, IntEnum) else str(value.value or value.name.lower())
            )
        case tuple():
            shown = [_in_line(item) for item in value]
            is_flat = all(isinstance(item, str | int | Enum | ast.Name | ast.Text) for item in value)
            return ", ".join(text or "" for text in shown) if is_flat else None
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = list(_parts(value))
            if any(not _is_word(part) for _, part in parts):
                return None
            return f"{type(value).__name__}({', '.join(f'{name}={_in_line(part)}' for name, part in parts)})"
        case _:
            return str(value)


def _is_word(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_word, value)) and _in_line(value) is not None
    return isinstance(value, str | int | float | Enum | ast.Name | ast.Text) or value is None


# ---------------------------------------------------------------- the program


_Numbers = npt.NDArray[np.generic]


def _program(rule: CompiledRule) -> Iterator[str]:
    """Show what the engine receives: the rule's part of its program, and what it shares with other rules."""
    program, lowered = rule.program, rule.lowered
    yield f"rule {rule.name}: program of {', '.join(stream.name for stream in program.streams)}"
    yield f"  rules: {', '.join(other.name for other in program.rules)}"
    yield from _tree("  roles: ", program.roles)
    yield "  predicates:"
    for word, predicates in enumerate(program.predicates):
        for bit, predicate in enumerate(predicates):
            used = " *" if word == lowered.word and lowered.event_mask >> bit & 1 else ""
            yield f"    {word}.{bit}: {show_expression(predicate)}{used}"
    if program.derived:
        yield "  derived:"
        for name, expression in program.derived:
            yield f"    {name}: {show_expression(expression)} ({expression.type.value})"
    yield f"  columns: {', '.join(program.columns)}"
    for field in dataclasses.fields(lowered):
        value = getattr(lowered, field.name)
        if not isinstance(value, RuleTables) and value is not None and value != ():
            yield from _tree(f"  {field.name}: ", value)
    variables = [variable.name for variable in rule.typed.variables]
    yield f"  variables: {', '.join(variables)}"
    yield from _tables(lowered.tables, variables)


def _tables(tables: RuleTables, variables: list[str]) -> Iterator[str]:
    """Show arrays with the same start of their names and the same length as the columns of a table."""
    tables_of: dict[tuple[str, int], dict[str, _Numbers]] = {}
    for name, array in tables._asdict().items():
        topic = name.partition("_")[0]
        if COLUMNS[name].kind in (Kind.LIST, Kind.ROWS):
            if array.any():
                yield f"  {name}: {' '.join(map(str, array))}"
        elif len(array):
            tables_of.setdefault((topic, len(array)), {})[name] = array
    for (topic, length), columns in tables_of.items():
        yield f"  {topic}:"
        yield from _table(columns, length, topic, variables)


def _table(columns: Mapping[str, _Numbers], length: int, topic: str, variables: list[str]) -> Iterator[str]:
    shown = [["", *map(str, range(length))]]
    for name, array in columns.items():
        heading = name.removeprefix(f"{topic}_")
        shown.append([heading, *(_cell(name, int(value), variables) for value in array)])
    widths = [max(map(len, column)) for column in shown]
    for row in zip(*shown, strict=True):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"    {'  '.join(cells)}".rstrip()


def _cell(name: str, value: int, variables: list[str]) -> str:
    match COLUMNS[name]:
        case RecordField(names=names) if names is not None:
            return names(value).name.lower()
        case RecordField(kind=Kind.REFERENCE) if value >= 0:  # all references are to variables
            return variables[value]
        case RecordField(kind=Kind.MASK):
            return f"{value:b}"
        case RecordField(kind=Kind.HASH):
            return f"{value:016x}"
        case _:
            return str(value)
