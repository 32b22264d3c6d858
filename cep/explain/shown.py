"""Patterns, expressions and durations as text, as `cep explain` shows them."""

from __future__ import annotations

from typing import assert_never

from cep.compiler import ir
from cep.expression import (
    ALL_EVENTS,
    IN_TAKEN,
    Aggregate,
    Call,
    Column,
    Expression,
    Frame,
    Joined,
    Literal,
    RegisterRef,
    RoleTest,
    Type,
    Window,
    Windowed,
)
from cep.program.window_functions import Function

_INFIX = frozenset(["=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "and", "or", IN_TAKEN])
_ARROWS = {ir.Contiguity.STRICT: " ", ir.Contiguity.NEXT: " -> ", ir.Contiguity.ANY: " ->> "}


def show_node(node: ir.Node) -> str:
    """Return a pattern as text, with every group in parentheses."""
    match node:
        case ir.Take(variable=variable):
            return variable
        case ir.Absent(variable=variable):
            return f"!{variable}"
        case ir.TimedAbsence(variables=variables, period=period):
            return f"!{_any_of(variables)} FOR {show_bound(period)}"
        case ir.Sequence(items=items):
            parts = [_group(item.node, ir.Sequence, ir.Alternation, ir.Permutation) for item in items]
            joints = ["", *(_joint(item) for item in items[1:])]
            return "".join(joint + part for joint, part in zip(joints, parts, strict=True))
        case ir.Alternation(branches=branches):
            return " | ".join(_group(branch, ir.Alternation) for branch in branches)
        case ir.Permutation(parts=members, contiguity=ir.Contiguity.STRICT):
            return f"PERMUTE({', '.join(show_node(member) for member in members)})"
        case ir.Permutation(parts=members):
            return " & ".join(_group(member, ir.Alternation, ir.Permutation) for member in members)
        case ir.Repeat():
            return _show_loop(node)
        case ir.Group(body=body, window=window):
            return f"({show_node(body)} WITHIN {show_bound(window)})"
        case ir.Anchored(body=body):
            return f"^ {_group(body, ir.Alternation, ir.Permutation)}"
        case ir.Without(body=body, variables=variables):
            return f"({show_node(body)} WITHOUT {_any_of(variables)})"
        case _:
            assert_never(node)


def _show_loop(loop: ir.Repeat) -> str:
    bounds = f"{{{loop.min},{'' if loop.max is None else loop.max}}}"
    sign = {ir.Greed.GREEDY: "", ir.Greed.RELUCTANT: "?", ir.Greed.POSSESSIVE: "+"}[loop.greed]
    until = "" if loop.until is None else f" UNTIL {loop.until}"
    if loop.distinct is not None:
        until = f" DISTINCT BY {show_expression(loop.distinct)}{until}"
    inner = _group(loop.body, ir.Sequence, ir.Alternation, ir.Permutation, ir.Repeat)
    return f"{inner}{_ARROWS[loop.contiguity].strip()}{show_gap(loop.gap)}{bounds}{sign}{until}"


def _any_of(variables: tuple[str, ...]) -> str:
    return f"({' | '.join(variables)})" if len(variables) > 1 else variables[0]


def _joint(item: ir.Item) -> str:
    arrow = _ARROWS[item.contiguity]
    return arrow if item.gap is None else f" {arrow.strip()}{show_gap(item.gap)} "


def show_gap(gap: ir.Gap | None) -> str:
    """Return the bounds of the time between two events as written."""
    match gap:
        case None:
            return ""
        case ir.Gap(low_us=0, limit_us=limit_us, inclusive=inclusive) if limit_us is not None:
            return f"[{'<=' if inclusive else '<'} {show_duration(limit_us)}]"
        case ir.Gap(low_us=low_us, high_us=None):
            is_open = (low_us - 1) % 1000 == 0
            return f"[> {show_duration(low_us - 1)}]" if is_open else f"[>= {show_duration(low_us)}]"
        case ir.Gap(low_us=low_us, high_us=high_us):
            assert high_us is not None
            return f"[{show_duration(low_us)}, {show_duration(high_us)}]"


def show_bound(window: ir.Window | ir.EventWindow) -> str:
    """Return the length of a window as written."""
    if isinstance(window, ir.EventWindow):
        return f"{window.count} EVENTS"
    return f"{'' if window.inclusive else '< '}{show_duration(window.length_us)}"


def _group(node: ir.Node, *kinds: type) -> str:
    text = show_node(node)
    return f"({text})" if isinstance(node, kinds) else text


def show_expression(expression: Expression) -> str:  # noqa: C901, PLR0912 - a case for each kind of node
    """Return an expression as text in the rule language's words."""
    match expression:
        case Literal(value=value, type=kind):
            return _literal(value, kind)
        case Column(name=name):
            return name
        case RegisterRef(number=number):
            return f"#{number}"
        case RoleTest(number=number):
            return f"role {number}"
        case Aggregate(kind="LAST", variable=variable, argument=Column(name=name), offset=0):
            return f"{variable}.{name}"
        case Aggregate(kind="LAST", variable=variable, argument=Joined() as argument, offset=0):
            return f"{variable}.{show_expression(argument)}"
        case Aggregate(variable=variable, argument=None) if variable == ALL_EVENTS:
            return "COUNT(*)"
        case Aggregate(variable=variable, argument=None):
            return f"COUNT({variable}.*)"
        case Aggregate(kind="DISTINCT", variable=variable, argument=argument) if argument is not None:
            return f"COUNT(DISTINCT {variable}.{show_expression(argument)})"
        case Aggregate(kind="VALUES", variable=variable, argument=argument) if argument is not None:
            return f"({variable}.{show_expression(argument)})"
        case Aggregate(kind=kind, variable=variable, argument=argument, offset=offset):
            assert argument is not None
            inner = f"{variable}.{show_expression(argument)}"
            return f"{kind}({inner}, {offset})" if offset else f"{kind}({inner})"
        case Windowed():
            return _windowed(expression)
        case Joined(table=table, column=column, is_before=is_before):
            return f"{table}.{column}{' before' if is_before else ''}"
        case Call(function=function, args=args) if function in _INFIX:
            word = "IN" if function == IN_TAKEN else function.upper()
            return f" {word} ".join(
                f"({show_expression(arg)})" if _is_infix(arg) else show_expression(arg) for arg in args
            )
        case Call() if (shown := _shown(expression)) is not expression:
            return show_expression(shown)
        case Call(function=function, args=args):
            return f"{function.upper()}({', '.join(show_expression(arg) for arg in args)})"
        case _:
            assert_never(expression)


def _windowed(windowed: Windowed) -> str:
    argument = "*" if windowed.argument is None else show_expression(windowed.argument)
    text = Function[windowed.function].shown(argument, windowed.parameter)
    if windowed.condition is not None:
        text += f" FILTER (WHERE {show_expression(windowed.condition)})"
    return text if windowed.window.is_whole else f"{text} OVER {show_over(windowed.window)}"


def show_over(window: Window) -> str:
    """Return a window in the rule language's words."""
    match window.frame:
        case Frame.ALL:
            return "ALL"
        case Frame.SESSION:
            return f"SESSION {show_duration(window.length)}"
        case Frame.TUMBLING:
            offset = f" OFFSET {show_duration(window.offset_us)}" if window.offset_us else ""
            zone = f" ZONE '{window.zone}'" if window.zone else ""
            return f"TUMBLING {show_duration(window.length)}{offset}{zone}"
        case Frame.EVENTS:
            length = f"{window.length} EVENTS" if window.length > 1 else "1 EVENT"
        case Frame.TIME | Frame.HOPPING:
            step = f" BY {show_duration(window.step_us)}" if window.step_us else ""
            length = show_duration(window.length) + step
        case _:
            assert_never(window.frame)
    return f"{'PREVIOUS' if window.previous else 'LAST'} {length}"


def _shown(expression: Expression) -> Expression:
    """Return what is shown of `expression`: without the conversions that the compiler inserted."""
    inner: Expression | None = None
    if isinstance(expression, Call) and expression.function == "double":
        inner = expression.args[0]
    elif isinstance(expression, Call) and (expression.function, expression.type) == ("floor", Type.INTERVAL):
        rounded = expression.args[0]
        inner = rounded.args[0] if isinstance(rounded, Call) else None
    return expression if inner is None else _shown(inner)


def _is_infix(expression: Expression) -> bool:
    shown = _shown(expression)
    return isinstance(shown, Call) and shown.function in _INFIX


def _literal(value: bool | int | float | str | None, kind: Type) -> str:
    match value:
        case None:
            return "NULL"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case bool():
            return str(value).upper()
        case int() if kind is Type.INTERVAL:
            return show_duration(value)
        case _:
            return str(value)


_UNITS = [("DAYS", 86_400_000_000), ("HOURS", 3_600_000_000), ("MINUTES", 60_000_000), ("SECONDS", 1_000_000)]


def show_duration(length_us: int) -> str:
    """Return a duration in its largest whole unit."""
    for unit, size in _UNITS:
        if length_us and length_us % size == 0:
            count = length_us // size
            return f"{count} {unit}" if count > 1 else f"{count} {unit.removesuffix('S')}"
    return f"{length_us / 1000:g} MILLISECONDS" if length_us % 1000 == 0 else f"{length_us} MICROSECONDS"
