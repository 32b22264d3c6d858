"""Strategies of typed expressions: values, windowed values, conditions, functions of text."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import strategies as st

from cep.compiler.typing.checker import as_interval
from cep.expression import (
    ALL_EVENTS,
    IN_TAKEN,
    Aggregate,
    Call,
    Expression,
    Frame,
    Literal,
    Type,
    Window,
    Windowed,
)
from tests.function_calls import EXACT, call, constant
from tests.property.strategies.events import COLUMNS, HUGE, SECOND_US
from tests.regular_expressions import some_pattern


def literals(kind: Type) -> st.SearchStrategy[Expression]:
    values: dict[Type, list[Any]] = {
        Type.BIGINT: [0, 1, 2, 3, -1, HUGE],
        Type.DOUBLE: [0.0, 0.5, 1.5, -2.0],
        Type.STRING: ["p", "q", "", "Straße"],
        Type.BOOLEAN: [True, False],
        Type.INTERVAL: [0, SECOND_US, 2 * SECOND_US],
        Type.TIMESTAMP: [3 * SECOND_US],
    }
    return st.sampled_from([Literal(value, kind) for value in (*values[kind], None)])


_COLUMN_OF = {
    Type.BIGINT: ["i", "i", "t"],
    Type.DOUBLE: ["d"],
    Type.STRING: ["s"],
    Type.BOOLEAN: ["b"],
    Type.TIMESTAMP: ["ts"],
}


def _column(kind: Type) -> st.SearchStrategy[Expression]:
    return st.sampled_from([COLUMNS[name] for name in _COLUMN_OF[kind]])


@st.composite
def _overs(draw: st.DrawFn) -> Window:
    """Draw the events of a windowed value."""
    frame = draw(st.sampled_from([frame for frame in Frame if frame is not Frame.HOPPING]))
    previous = draw(st.booleans())
    match frame:
        case Frame.TIME:
            length_us = draw(st.sampled_from([0, 1, 2, 3, 5, 9])) * SECOND_US
            if length_us and draw(st.booleans()):
                step_us = draw(st.sampled_from([1, 1, 2, 3])) * SECOND_US
                return Window(frame, -(-length_us // step_us) * step_us, previous, step_us=step_us)
            return Window(frame, length_us - draw(st.sampled_from([0, 0, 1])) * (length_us > 0), previous)
        case Frame.EVENTS:
            return Window(frame, draw(st.integers(1, 5)), previous)
        case Frame.SESSION:
            return Window(frame, draw(st.sampled_from([1, 2, 3])) * SECOND_US)
        case Frame.TUMBLING:
            length_us = draw(st.sampled_from([2, 5, 10])) * SECOND_US
            return Window(frame, length_us, offset_us=draw(st.sampled_from([0, 0, SECOND_US])))
        case _:
            return Window(frame)


WINDOWED: dict[Type, list[tuple[str, tuple[str, ...]]]] = {
    Type.BIGINT: [
        ("COUNT", ("", "i", "s", "d")),
        ("DISTINCT", ("i", "t", "s", "d", "b")),
        ("SUM", ("i", "t", "w")),
        *((name, ("i", "t")) for name in ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG")),
    ],
    Type.DOUBLE: [
        ("AVG", ("i", "t", "d")),
        ("PERCENTILE", ("i", "t", "d")),
        *((name, ("d",)) for name in ("SUM", "MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG")),
    ],
    Type.STRING: [(name, ("s",)) for name in ("FIRST_VALUE", "LAST_VALUE", "LAG")],
    Type.BOOLEAN: [("SEEN", ("i", "t", "s", "d", "b")), ("LAG", ("b",))],
    Type.TIMESTAMP: [(name, ("ts",)) for name in ("MIN", "MAX", "FIRST_VALUE", "LAST_VALUE", "LAG")],
}
"""Type -> functions of windows that give it, each with the columns of `COLUMNS` that it is drawn with."""

APPROXIMATE: list[tuple[str, tuple[str, ...]]] = [("STDDEV", ("i", "t", "d")), ("VARIANCE", ("i", "t", "d"))]
"""More that give a DOUBLE, for rules whose last bits are compared with mercy."""


@st.composite
def windowed(draw: st.DrawFn, kind: Type, approximate: bool = False) -> Expression:
    """Draw a windowed value of type `kind`. `approximate`: its last bits may be compared with mercy."""
    if draw(st.integers(0, 5)) == 0:
        return _previous(draw, kind)
    functions = WINDOWED[kind]
    if approximate and kind is Type.DOUBLE:
        functions = [*functions, *APPROXIMATE]
    function, columns = draw(st.sampled_from(functions))
    column = draw(st.sampled_from(columns))
    condition = draw(conditions([], bare=True, depth=0, has_windows=False)) if draw(st.booleans()) else None
    over = draw(_overs())
    if function == "PERCENTILE" and (over.frame is Frame.ALL or over.step_us):
        over = Window(Frame.EVENTS, 3)
    parameter = {
        "LAG": float(draw(st.integers(1, 3))),
        "PERCENTILE": draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),
    }.get(function, 0.0)
    return Windowed(function, COLUMNS.get(column), condition, over, parameter, "", kind)


def _previous(draw: st.DrawFn, kind: Type) -> Expression:
    """Draw PREV(x, n)."""
    (columns,) = [columns for function, columns in WINDOWED[kind] if function == "LAG"]
    argument = COLUMNS[draw(st.sampled_from(columns))]
    offset = draw(st.sampled_from([1, 1, 2, 3]))
    return Windowed("LAG", argument, None, Window(Frame.ALL), float(offset), "", kind)


@st.composite
def arguments(draw: st.DrawFn, kind: Type) -> Expression:
    """Draw the argument of an aggregate: mostly a column, rarely an expression over one event or a window."""
    column = draw(_column(kind))
    if draw(st.integers(0, 9)) == 0:
        return draw(windowed(kind))
    if kind in (Type.BIGINT, Type.DOUBLE) and draw(st.integers(0, 4)) == 0:
        return Call(draw(st.sampled_from("+-*")), (column, draw(_column(kind))), kind)
    return column


@st.composite
def _aggregate(draw: st.DrawFn, kind: Type, names: list[str], approximate: bool) -> Expression:
    name = draw(st.sampled_from(names))
    functions = {
        Type.BIGINT: ["FIRST", "LAST", "LAST", "COUNT", "COUNT", "DISTINCT", "SUM", "MIN", "MAX"],
        Type.DOUBLE: ["FIRST", "LAST", "LAST", "SUM", "AVG", "AVG", "MIN", "MAX"]
        + (["STDDEV"] if approximate else []),
        Type.TIMESTAMP: ["FIRST", "LAST", "MIN", "MAX"],
    }.get(kind, ["FIRST", "LAST"])
    function = draw(st.sampled_from(functions))
    argument: Expression | None = draw(arguments(kind))
    if function == "DISTINCT":
        return Aggregate(function, name, COLUMNS[draw(st.sampled_from("isdtb"))], 0, kind)
    if function == "COUNT":
        argument = draw(st.sampled_from([None, COLUMNS["i"], COLUMNS["s"], COLUMNS["d"]]))
        if argument is None and draw(st.booleans()):
            name = ALL_EVENTS
    elif function in ("AVG", "STDDEV") and draw(st.booleans()):
        argument = draw(arguments(Type.BIGINT))
    offset = draw(st.sampled_from([0, 0, 1, 2])) if function in ("FIRST", "LAST") else 0
    return Aggregate(function, name, argument, offset, kind)


def _leaf(
    kind: Type, names: list[str], *, bare: bool, approximate: bool, has_windows: bool = True
) -> st.SearchStrategy[Expression]:
    """Draw a value without an operator, of the event under test (`bare`) or of the variables `names`."""
    leaves = [literals(kind)]
    if kind is not Type.INTERVAL:
        leaves += [_column(kind)] * 3 if bare else []
        leaves += [windowed(kind)] if bare and has_windows else []
        leaves += [_aggregate(kind, names, approximate)] * 2 if names else []
    return st.one_of(leaves)


@st.composite
def values(  # noqa: C901, PLR0912 - a case for each type
    draw: st.DrawFn,
    kind: Type,
    names: list[str],
    *,
    bare: bool,
    depth: int,
    approximate: bool = False,
    has_windows: bool = True,
) -> Expression:
    """Draw an expression of type `kind`."""

    def again(kind: Type) -> Expression:
        return draw(
            values(kind, names, bare=bare, depth=depth - 1, approximate=approximate, has_windows=has_windows)
        )

    def condition(depth: int) -> Expression:
        return draw(conditions(names, bare=bare, depth=depth, has_windows=has_windows))

    leaf = _leaf(kind, names, bare=bare, approximate=approximate, has_windows=has_windows)
    if kind is Type.STRING and depth > 0 and draw(st.integers(0, 3)) == 0:
        parts = (again(kind), again(kind))
        if draw(st.booleans()):
            return Call("case", (condition(0), *parts), kind)
        return Call("coalesce", parts, kind)
    if depth <= 0 or kind is Type.STRING or draw(st.integers(0, 2)) == 0:
        if kind is Type.INTERVAL and depth > 0:
            return Call("-", (again(Type.TIMESTAMP), again(Type.TIMESTAMP)), kind)
        return draw(leaf)
    match kind:
        case Type.BOOLEAN:
            return condition(depth - 1)
        case Type.TIMESTAMP:
            return Call(draw(st.sampled_from("+-")), (again(kind), again(Type.INTERVAL)), kind)
        case Type.INTERVAL:
            return draw(_intervals(again))
    function = draw(
        st.sampled_from(
            ["+", "-", "*", "%", "negate", "abs", "coalesce", "case", "least", "greatest", "cast", "call"]
        )
    )
    match function:
        case "negate" | "abs":
            return Call(function, (again(kind),), kind)
        case "case":
            return Call(function, (condition(depth - 1), again(kind), again(kind)), kind)
        case "call":
            shape = draw(st.sampled_from([shape for shape in _OF_NUMBERS if shape[1] is kind]))
            args = [
                again(arg) if isinstance(arg, Type) else constant(arg, Random(draw(st.integers(0, 99))))
                for arg in shape[2]
            ]
            return call(shape, args)
        case "cast" if kind is Type.BIGINT:
            return Call(draw(st.sampled_from(["floor", "ceil"])), (again(Type.DOUBLE),), kind)
        case "cast":
            if draw(st.booleans()):
                return Call("/", (again(kind), again(kind)), kind)
            if draw(st.integers(0, 3)) == 0:
                times = (again(Type.INTERVAL), again(Type.INTERVAL))
                return Call("/", tuple(_double(time) for time in times), kind)
            if draw(st.booleans()):
                return Call("sqrt", (again(kind),), kind)
            return Call("double", (again(Type.BIGINT),), kind)
        case _:
            return Call(function, (again(kind), again(kind)), kind)


def _double(value: Expression) -> Expression:
    return Call("double", (value,), Type.DOUBLE)


@st.composite
def _intervals(draw: st.DrawFn, again: Callable[[Type], Expression]) -> Expression:
    """Draw an operation that gives an INTERVAL, in the form that the analyzer makes."""
    kind = Type.INTERVAL
    match draw(st.integers(0, 5)):
        case 0:
            return Call("*", (again(kind), again(Type.BIGINT)), kind)
        case 1:
            number = again(draw(st.sampled_from([Type.BIGINT, Type.DOUBLE])))
            operator = "*" if number.type is Type.DOUBLE and draw(st.booleans()) else "/"
            sides = (_double(again(kind)), number if number.type is Type.DOUBLE else _double(number))
            return as_interval(Call(operator, sides, Type.DOUBLE))
        case 2:
            return Call(draw(st.sampled_from("+-")), (again(kind), again(kind)), kind)
        case 3:
            return Call(draw(st.sampled_from(["negate", "abs"])), (again(kind),), kind)
        case _:
            return Call("-", (again(Type.TIMESTAMP), again(Type.TIMESTAMP)), kind)


_OF_NUMBERS = [shape for shape in EXACT if Type.STRING not in (shape[1], *shape[2])]
"""Functions that correlated predicates can call too."""

COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def conditions(
    draw: st.DrawFn, names: list[str], *, bare: bool, depth: int, has_windows: bool = True
) -> Expression:
    """Draw a predicate over the event under test and over the events taken as the variables `names`."""
    shape = draw(st.integers(0, 9))
    if shape == 7 and bare and has_windows:
        return draw(windowed(Type.BOOLEAN))
    if shape == 6 and bare and names and draw(st.booleans()):
        return draw(_memberships(names, has_windows=has_windows))
    if depth > 0 and shape < 4:
        parts = [
            draw(conditions(names, bare=bare, depth=depth - 1, has_windows=has_windows)) for _ in range(2)
        ]
        function = ("and", "and", "or", "not")[shape]
        return Call(function, tuple(parts[:1] if function == "not" else parts), Type.BOOLEAN)
    kind = draw(
        st.sampled_from([Type.BIGINT, Type.BIGINT, Type.BIGINT, Type.DOUBLE, Type.STRING, Type.INTERVAL])
    )
    if kind is Type.INTERVAL and not names and not bare:
        kind = Type.BIGINT

    def one() -> Expression:
        return draw(values(kind, names, bare=bare, depth=1, has_windows=has_windows))

    if shape == 9:
        return Call(draw(st.sampled_from(["is_null", "is_not_null"])), (one(),), Type.BOOLEAN)
    if shape == 8 and kind in (Type.BIGINT, Type.STRING):
        options = [draw(literals(kind)) for _ in range(2)]
        return Call("in", (one(), *options), Type.BOOLEAN)
    comparisons = ["=", "<>"] if kind is Type.STRING else COMPARISONS
    return Call(draw(st.sampled_from(comparisons)), (one(), one()), Type.BOOLEAN)


@st.composite
def _memberships(draw: st.DrawFn, names: list[str], *, has_windows: bool = True) -> Expression:
    """Draw ``x IN (v.y)`` or its opposite."""
    taken_as = draw(st.sampled_from(names))
    kind = draw(st.sampled_from([Type.BIGINT, Type.BIGINT, Type.STRING, Type.DOUBLE]))
    operand = draw(values(kind, names, bare=True, depth=0, has_windows=has_windows))
    taken_values = Aggregate("VALUES", taken_as, draw(_column(kind)), 0, kind)
    is_in = Call(IN_TAKEN, (operand, taken_values), Type.BOOLEAN)
    return Call("not", (is_in,), Type.BOOLEAN) if draw(st.booleans()) else is_in


@st.composite
def local_expressions(draw: st.DrawFn) -> Expression:
    """Draw any expression over one event, including functions of text."""
    kind = draw(st.sampled_from([Type.BOOLEAN, Type.BOOLEAN, Type.BIGINT, Type.DOUBLE, Type.STRING]))
    if kind is not Type.STRING and draw(st.booleans()):
        return draw(values(kind, [], bare=True, depth=3, has_windows=False))
    text = draw(_texts(2))
    match kind:
        case Type.BIGINT:
            return Call("length", (text,), kind)
        case Type.BOOLEAN:
            function = draw(
                st.sampled_from(["like", "rlike", "contains", "startswith", "endswith", "in", *COMPARISONS])
            )
            if function == "like":
                pattern = draw(st.text(alphabet="pq%_\\", max_size=4).filter(_is_complete))
                return Call(function, (text, Literal(pattern, Type.STRING)), kind)
            if function == "rlike":
                pattern = some_pattern(draw(st.randoms(use_true_random=False)))
                return Call(function, (text, Literal(pattern, Type.STRING)), kind)
            if function == "in":
                options = [draw(literals(Type.STRING)) for _ in range(draw(st.integers(1, 3)))]
                return Call(function, (text, *options), kind)
            return Call(function, (text, draw(_texts(1))), kind)
        case _:
            return text


def _is_complete(pattern: str) -> bool:
    """Return whether each quoting backslash is followed by the letter that it quotes."""
    return not pattern.replace("\\\\", "").endswith("\\")


@st.composite
def _texts(draw: st.DrawFn, depth: int) -> Expression:
    if depth == 0 or draw(st.booleans()):
        return draw(st.one_of(_column(Type.STRING), literals(Type.STRING)))
    if draw(st.booleans()):
        shape = draw(st.sampled_from([shape for shape in EXACT if shape[1] is Type.STRING]))
        args: list[Expression] = [
            draw(_texts(depth - 1))
            if arg is Type.STRING
            else draw(_column(arg))
            if isinstance(arg, Type)
            else constant(arg, Random(draw(st.integers(0, 99))))
            for arg in shape[2]
        ]
        return call(shape, args)
    function = draw(st.sampled_from(["lower", "upper", "coalesce", "case", "least", "greatest"]))
    parts = tuple(draw(_texts(depth - 1)) for _ in range(1 if function in ("lower", "upper") else 2))
    if function == "case":
        parts = (draw(conditions([], bare=True, depth=0, has_windows=False)), *parts)
    return Call(function, parts, Type.STRING)


def _equals(column: str, value: Any) -> Expression:
    kind = COLUMNS[column].type
    return Call("=", (COLUMNS[column], Literal(value, kind)), Type.BOOLEAN)


@st.composite
def predicates(draw: st.DrawFn, names: list[str], number: int) -> Expression | None:
    """Draw the condition of a variable: mostly a letter, often with more conditions."""
    letter = _equals("i", number)
    shape = draw(st.integers(0, 14))
    if shape <= 6:
        return letter
    if shape <= 8:
        return Call("<>", (COLUMNS["i"], Literal(number, Type.BIGINT)), Type.BOOLEAN)
    if shape == 9:
        return None
    if shape == 10:
        return draw(conditions([], bare=True, depth=1))
    if shape == 14 and names:
        return Call("and", (letter, draw(_memberships(names))), Type.BOOLEAN)
    correlated = draw(conditions(names, bare=True, depth=1))
    if shape == 11:
        return correlated
    return Call("or" if shape == 12 else "and", (letter, correlated), Type.BOOLEAN)


@st.composite
def closings(draw: st.DrawFn, names: list[str]) -> Expression:
    """Draw the condition that closes a loop: mostly a letter."""
    if draw(st.booleans()):
        return _equals("i", draw(st.integers(0, 3)))
    return draw(conditions(names, bare=True, depth=1))
