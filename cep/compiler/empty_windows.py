"""What HAVING says about a window without events: all counts are 0, all other values are NULL."""

from __future__ import annotations

from cep.compiler.lowering.shared import conjuncts
from cep.expression import Call, Expression, Literal, Type, Windowed, is_null_strict

_OF_COUNTS = ("COUNT", "DISTINCT")
_COMPARE = ("=", "<>", "<", "<=", ">", ">=")


def is_untrue_of_nothing(having: Expression) -> bool:
    """Return whether HAVING is certainly not TRUE if all counts are 0 and everything else is NULL."""
    return any(_is_untrue(part) for part in conjuncts(having))


def _is_untrue(part: Expression) -> bool:
    if not isinstance(part, Call) or part.function not in _COMPARE:
        return False
    if any(_is_null(arg) for arg in part.args):
        return True
    left, right = map(_number, part.args)
    if left is None or right is None:
        return False
    holds = {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return not holds[part.function]


def _is_null(value: Expression) -> bool:
    """Return whether a value over no events is certainly NULL."""
    if isinstance(value, Windowed):
        return value.function not in _OF_COUNTS
    return isinstance(value, Call) and is_null_strict(value.function) and any(map(_is_null, value.args))


def _number(value: Expression) -> float | None:
    """Return the number that a value over no events is; None: unknown."""
    if isinstance(value, Windowed):
        return 0 if value.function in _OF_COUNTS else None
    if isinstance(value, Literal) and value.type in (Type.BIGINT, Type.DOUBLE):
        return None if value.value is None else float(value.value)
    if isinstance(value, Call) and value.function == "double":
        return _number(value.args[0])
    return None
