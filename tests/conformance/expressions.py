"""Conditions of a case as expressions of a rule.

Two things differ. The logic of a case has two values: a comparison with null is false, and its negation is
true. So every `not` becomes IS NOT TRUE. An aggregate of a case over the stage that is being matched does not
include the event under test, but an aggregate of a rule does. So the event is subtracted again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cep.language.grammar import CLAUSE_WORDS, RESERVED
from tests.conformance.stages import Expression, UntranslatableError

NUMBER, TEXT, FLAG, NOTHING = "number", "text", "flag", "nothing"

TIME_COLUMN = "time_ms"
"""The column with the time of the event in milliseconds. A case reads it as `ts`."""

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED = RESERVED | CLAUSE_WORDS | {"BY", "END", "FOR", "ON", "PERMUTE", "REGEXP", "UNTIL"}
_INFINITE = "(1e308 * 10)"
_MAX_OFFSET = 63


def quoted(name: str) -> str:
    """Return `name` as a rule writes it."""
    if _WORD.match(name) and name.upper() not in _RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def literal(value: object) -> str:
    """Return a literal of a case."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float():
            text = repr(float(value))
            return f"({text})" if text.startswith("-") else text
        case str():
            return "'" + value.replace("'", "''") + "'"
        case _:
            raise UntranslatableError(f"a literal {value!r}")


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression can refer to.

    `own` is the stage that is being matched, if its aggregates include the event under test. `taken` are the
    stages that take events. A stage takes at most `n_events` events.
    """

    fields: Mapping[str, str]  # name -> kind
    taken: frozenset[str]
    own: str | None
    n_events: int


Typed = tuple[str, str]  # text, kind


def condition(expression: Expression, scope: Scope) -> str:
    """Return the text of a condition. The condition holds if the text is TRUE."""
    text, kind = _typed(expression, scope)
    if kind == NOTHING:
        return "FALSE"
    if kind != FLAG:
        raise UntranslatableError(f"a condition that is a {kind}: {expression!r}")
    return text


def _typed(expression: Expression, scope: Scope) -> Typed:
    if not isinstance(expression, list):
        return literal(expression), _kind_of(expression)
    operator, *given = expression
    if operator in _BY_NAME:
        return _BY_NAME[operator](given, scope)
    if operator in _COMPARISONS:
        return _comparison(operator, given, scope)
    if operator in AGGREGATES:
        return _aggregate(operator, given, scope)
    raise UntranslatableError(f"the operator {operator!r} is not known")


def _kind_of(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return FLAG
    return NUMBER if isinstance(value, int | float) else TEXT


def _number(expression: Expression, scope: Scope) -> str:
    text, kind = _typed(expression, scope)
    if kind not in (NUMBER, NOTHING):
        raise UntranslatableError(f"arithmetic with a {kind}")
    return "DOUBLE(NULL)" if kind == NOTHING else text


def _field(given: Sequence[Expression], scope: Scope) -> Typed:
    name = str(given[0])
    kind = scope.fields.get(name, NOTHING)
    return ("NULL" if kind == NOTHING else quoted(name)), kind


def _junction(word: str, neutral: str) -> Callable[[Sequence[Expression], Scope], Typed]:
    def build(given: Sequence[Expression], scope: Scope) -> Typed:
        parts = [f"({condition(part, scope)})" for part in given]
        return (f" {word} ".join(parts) or neutral), FLAG

    return build


def _not(given: Sequence[Expression], scope: Scope) -> Typed:
    return f"(({condition(given[0], scope)}) IS NOT TRUE)", FLAG


_COMPARISONS = {"==": "=", "=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def _two_valued(expression: Expression, scope: Scope) -> Typed:
    """Return an operand of a comparison. A condition inside it is true or false, never NULL."""
    text, kind = _typed(expression, scope)
    if kind == FLAG and isinstance(expression, list) and expression[0] not in ("field", "first", "last"):
        return f"(({text}) IS TRUE)", kind
    return text, kind


def _comparison(operator: str, given: Sequence[Expression], scope: Scope) -> Typed:
    (left, left_kind), (right, right_kind) = (_two_valued(side, scope) for side in given)
    if NOTHING in (left_kind, right_kind):
        return "FALSE", FLAG
    sign = _COMPARISONS[operator]
    if left_kind != right_kind:
        if sign == "<>":
            return f"({left} IS NOT NULL AND {right} IS NOT NULL)", FLAG
        if sign == "=":
            return "FALSE", FLAG
        raise UntranslatableError(f"a {left_kind} compared with a {right_kind}")
    if left_kind == FLAG and sign not in ("=", "<>"):
        raise UntranslatableError("an order of flags")
    return f"{left} {sign} {right}", FLAG


def _arithmetic(operator: str) -> Callable[[Sequence[Expression], Scope], Typed]:
    def build(given: Sequence[Expression], scope: Scope) -> Typed:
        if operator == "-" and len(given) == 1:
            return f"(-{_number(given[0], scope)})", NUMBER
        if operator == "+" and len(given) == 2 and (whole := _sum_with_event(given, scope)):
            return whole, NUMBER
        first, *others = (_number(part, scope) for part in given)
        text = first
        for part, other in zip(given[1:], others, strict=True):
            if operator == "/" and not (isinstance(part, int | float) and part):
                text = _quotient(text, other)
            else:
                text = f"({text} {operator} {other})"
        return text, NUMBER

    return build


def _sum_with_event(given: Sequence[Expression], scope: Scope) -> str | None:
    """Return the sum over the stage including the event under test, which is the SUM of a rule."""
    for one, other in (given, given[::-1]):
        if (
            isinstance(one, list)
            and isinstance(other, list)
            and one[0] == "sum"
            and other == ["field", one[2]]
        ):
            stage, name = str(one[1]), str(one[2])
            if stage == scope.own and scope.fields.get(name) == NUMBER:
                return f"CASE WHEN {quoted(name)} IS NOT NULL THEN SUM({quoted(stage)}.{quoted(name)}) END"
    return None


def _quotient(left: str, right: str) -> str:
    """Return a division of doubles. Division by zero is infinite, but 0/0 is NULL, which equals nothing."""
    return (
        f"CASE WHEN {right} <> 0.0 THEN {left} / {right} WHEN {left} > 0.0 THEN {_INFINITE} "
        f"WHEN {left} < 0.0 THEN -{_INFINITE} END"
    )


def _in(given: Sequence[Expression], scope: Scope) -> Typed:
    parts = [_comparison("==", (given[0], value), scope)[0] for value in given[1:]]
    return f"({' OR '.join(parts) or 'FALSE'})", FLAG


def _text_test(function: str) -> Callable[[Sequence[Expression], Scope], Typed]:
    def build(given: Sequence[Expression], scope: Scope) -> Typed:
        (left, left_kind), (right, right_kind) = (_typed(side, scope) for side in given)
        if NOTHING in (left_kind, right_kind):
            return "FALSE", FLAG
        if (left_kind, right_kind) != (TEXT, TEXT):
            raise UntranslatableError(f"{function} of a {left_kind}")
        return f"{function}({left}, {right})", FLAG

    return build


def _is_null(given: Sequence[Expression], scope: Scope) -> Typed:
    text, kind = _typed(given[0], scope)
    return ("TRUE" if kind == NOTHING else f"({text} IS NULL)"), FLAG


def _coalesce(given: Sequence[Expression], scope: Scope) -> Typed:
    known = [item for item in (_typed(part, scope) for part in given) if item[1] != NOTHING]
    if not known:
        return "NULL", NOTHING
    if len({kind for _, kind in known}) > 1:
        raise UntranslatableError("coalesce of several types")
    return f"COALESCE({', '.join(text for text, _ in known)})", known[0][1]


def _absolute(given: Sequence[Expression], scope: Scope) -> Typed:
    return f"ABS({_number(given[0], scope)})", NUMBER


_BY_NAME: dict[str, Callable[[Sequence[Expression], Scope], Typed]] = {
    "field": _field,
    "ts": lambda given, scope: (TIME_COLUMN, NUMBER),
    "true": lambda given, scope: ("TRUE", FLAG),
    "false": lambda given, scope: ("FALSE", FLAG),
    "and": _junction("AND", "TRUE"),
    "or": _junction("OR", "FALSE"),
    "not": _not,
    "+": _arithmetic("+"),
    "-": _arithmetic("-"),
    "*": _arithmetic("*"),
    "/": _arithmetic("/"),
    "%": _arithmetic("%"),
    "abs": _absolute,
    "in": _in,
    "startswith": _text_test("STARTSWITH"),
    "endswith": _text_test("ENDSWITH"),
    "contains": _text_test("CONTAINS"),
    "isnull": _is_null,
    "coalesce": _coalesce,
}

AGGREGATES = frozenset(("first", "last", "sum", "avg", "min", "max", "count"))


def _aggregate(operator: str, given: Sequence[Expression], scope: Scope) -> Typed:
    stage = str(given[0])
    name = str(given[1]) if len(given) > 1 else ""
    kind = NUMBER if operator == "count" else scope.fields.get(name, NOTHING)
    if operator in ("sum", "count") and (stage not in scope.taken or kind == NOTHING):
        return "0.0", NUMBER
    if stage not in scope.taken or kind == NOTHING:
        return "NULL", NOTHING
    if operator not in ("first", "last", "count") and kind != NUMBER:
        raise UntranslatableError(f"{operator} of a {kind}")
    variable, column = quoted(stage), f"{quoted(stage)}.{quoted(name)}"
    here = _with_event if stage == scope.own else _of_others
    return here(operator, variable, column, quoted(name), scope), kind


def _of_others(operator: str, variable: str, column: str, field: str, scope: Scope) -> str:
    match operator:
        case "count":
            return f"DOUBLE(COUNT({variable}.*))"
        case "sum":
            return f"COALESCE(SUM({column}), 0.0)"
        case _:
            return f"{operator.upper()}({column})"


def _with_event(operator: str, variable: str, column: str, field: str, scope: Scope) -> str:
    """Return an aggregate over the events of the stage, without the event under test."""
    match operator:
        case "count":
            return f"DOUBLE(COUNT({variable}.*) - 1)"
        case "sum":
            return f"(COALESCE(SUM({column}), 0.0) - COALESCE({field}, 0.0))"
        case "avg":
            known = f"(COUNT({column}) - CASE WHEN {field} IS NULL THEN 0 ELSE 1 END)"
            return f"((SUM({column}) - COALESCE({field}, 0.0)) / {known})"
        case "first":
            return f"CASE WHEN COUNT({variable}.*) > 1 THEN FIRST({column}) END"
        case "last":
            return f"LAST({column}, 1)"
        case _:
            if scope.n_events > _MAX_OFFSET:
                raise UntranslatableError(
                    f"{operator} of the stage that is matched without the event under test, over more than "
                    f"{_MAX_OFFSET} events: a rule's {operator.upper()} counts the event under test"
                )
            earlier = [f"LAST({column}, {number})" for number in range(1, max(scope.n_events, 2))]
            function = "LEAST" if operator == "min" else "GREATEST"
            return f"{function}({', '.join(earlier)})" if len(earlier) > 1 else earlier[0]
