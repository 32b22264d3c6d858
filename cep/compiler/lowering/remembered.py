"""Functions of remembered values, computed when the values are remembered.

Runs hold strings as codes, which only show whether two are equal. Functions of the strings of one remembered
event therefore move into the aggregate: ``UPPER(a.s) = 'X'`` becomes ``LAST(a.(UPPER(s) = 'X'))``.
"""

from __future__ import annotations

from cep.expression import Aggregate, Call, Expression, Literal, Type, is_null_strict


def remembered(call: Call) -> Aggregate | None:
    """Return ``f(LAST(v.x), LAST(v.y), 'text')`` as ``LAST(v.(f(x, y, 'text')))``; None: not of this form.

    Both are NULL if no event was taken as v: `f` must be NULL as soon as one argument is.
    """
    if not is_null_strict(call.function):
        return None
    events = {
        (arg.kind, arg.variable, arg.offset)
        for arg in call.args
        if isinstance(arg, Aggregate) and arg.argument is not None
    }
    if len(events) != 1:
        return None
    ((kind, variable, offset),) = events
    if kind not in ("FIRST", "LAST"):
        return None
    inner: list[Expression] = []
    for arg in call.args:
        if isinstance(arg, Aggregate) and arg.argument is not None:
            inner.append(arg.argument)
        elif isinstance(arg, Literal):
            inner.append(arg)
        else:
            return None
    return Aggregate(kind, variable, Call(call.function, tuple(inner), call.type), offset, call.type)


def remember_strings(expression: Expression) -> Expression:
    """Return `expression` with the functions of remembered strings moved where `remembered` can."""
    if not isinstance(expression, Call):
        return expression
    args = tuple(remember_strings(arg) for arg in expression.args)
    call = Call(expression.function, args, expression.type)
    if any(arg.type is Type.STRING for arg in args):
        return remembered(call) or call
    return call
