"""The pattern of a syntax tree -> ir: places and groups disappear, UNTIL conditions get names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from cep.compiler import ir
from cep.expression import Expression
from cep.language import ast

_CONTIGUITY = {
    ast.Joint.STRICT: ir.Contiguity.STRICT,
    ast.Joint.NEXT: ir.Contiguity.NEXT,
    ast.Joint.ANY: ir.Contiguity.ANY,
}
_GREED = {
    ast.Greed.GREEDY: ir.Greed.GREEDY,
    ast.Greed.RELUCTANT: ir.Greed.RELUCTANT,
    ast.Greed.POSSESSIVE: ir.Greed.POSSESSIVE,
}


def typed_pattern(
    pattern: ast.Pattern,
    untils: Mapping[ast.Repetition, str],
    distincts: Mapping[ast.Repetition, Expression] = MappingProxyType({}),
) -> ir.Node:
    """Return `pattern` without places. Groups exist only as nesting; `untils` names conditions.

    `distincts` has the values of DISTINCT BY.
    """
    match pattern:
        case ast.Step(variable=variable):
            return ir.Take(variable.text)
        case ast.Absence():
            raise AssertionError("an absence is allowed only in a sequence")
        case ast.Group(body=body, window=window):
            return ir.Group(typed_pattern(body, untils, distincts), typed_window(window))
        case ast.Anchored(body=body):
            return ir.Anchored(typed_pattern(body, untils, distincts))
        case ast.Without(body=body, variables=variables):
            return ir.Without(typed_pattern(body, untils, distincts), tuple(name.text for name in variables))
        case ast.Sequence(items=items):
            return ir.Sequence(tuple(typed for item in items for typed in _items(item, untils, distincts)))
        case ast.Alternation(branches=branches):
            return ir.Alternation(tuple(typed_pattern(branch, untils, distincts) for branch in branches))
        case ast.Permutation(parts=(only,)):
            return typed_pattern(only, untils, distincts)
        case ast.Permutation(parts=parts):
            return ir.Permutation(
                tuple(typed_pattern(part, untils, distincts) for part in parts), _CONTIGUITY[pattern.joint]
            )
        case ast.Repetition():
            repeated = typed_pattern(pattern.body, untils, distincts)
            joint, greed = _CONTIGUITY[pattern.joint], _GREED[pattern.greed]
            until = None if pattern.until is None else untils[pattern]
            return ir.Repeat(
                repeated,
                pattern.least,
                pattern.most,
                joint,
                greed,
                _gap(pattern.gap),
                until,
                distinct=distincts.get(pattern),
            )
        case _:
            assert_never(pattern)


def _items(
    item: ast.Item,
    untils: Mapping[ast.Repetition, str],
    distincts: Mapping[ast.Repetition, Expression],
) -> tuple[ir.Item, ...]:
    """Return `item` without places; "none of several" becomes an absence of each."""
    contiguity = _CONTIGUITY[item.joint]
    if isinstance(item.pattern, ast.Absence):
        names = tuple(name.text for name in item.pattern.variables)
        if item.pattern.period is not None:
            period = item.pattern.period
            absence = ir.TimedAbsence(names, ir.Window(period.length_us, period.inclusive))
            return (ir.Item(contiguity, absence),)
        return tuple(ir.Item(contiguity, ir.Absent(name.text)) for name in item.pattern.variables)
    return (ir.Item(contiguity, typed_pattern(item.pattern, untils, distincts), _gap(item.gap)),)


def typed_window(window: ast.Window | ast.EventWindow) -> ir.Window | ir.EventWindow:
    """Return `window` without its place."""
    if isinstance(window, ast.EventWindow):
        return ir.EventWindow(window.count)
    return ir.Window(window.length_us, window.inclusive)


def _gap(gap: ast.Gap | None) -> ir.Gap | None:
    return None if gap is None else ir.Gap(gap.low_us, gap.high_us, gap.sign != "<")
