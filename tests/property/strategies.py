"""Strategies of hypothesis: rules as `ir.Rule`, streams of events, and ways to deliver them.

A stream has at most 12 events, so that engine and oracle have few runs even under MATCH ALL. There are only a
few different values, so that predicates hold often and ties, repeats and NULLs are common.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from cep.compiler import ir
from cep.compiler.automaton import nfa
from cep.compiler.rewrite import repeat_absences
from cep.compiler.typing.checker import as_interval
from cep.expression import (
    ALL_EVENTS,
    IN_TAKEN,
    Aggregate,
    Call,
    Column,
    Expression,
    Frame,
    Literal,
    Type,
    Window,
    Windowed,
)
from cep.schema.stream import Field, Stream
from tests.function_calls import EXACT, call, constant
from tests.regular_expressions import some_pattern

SECOND_US = 1_000_000
MAX_EVENTS = 12
MAX_SIZE = 6
"""Steps of a pattern, before its loops are unrolled."""

HUGE = 2**62
"""The sum of two of these does not fit into 64 bits."""

FIELDS = (
    Field("k", "bigint"),
    Field("g", "string"),
    Field("ts", "timestamp"),
    Field("t", "int"),
    Field("w", "bigint"),  # a power of two for each event, so SUM(v.w) tells which events were taken
    Field("i", "bigint"),
    Field("d", "double"),
    Field("s", "string"),
    Field("b", "boolean"),
)
COLUMNS = {field.name: Column(field.name, field.type) for field in FIELDS}


@dataclass(frozen=True, slots=True)
class Step:
    """One delivery of `n_events` events. After it the watermark may advance and the matcher be restored.

    The watermark advances as far as the events so far allow. With `ahead` it advances to just before the
    smallest time of all later events.
    """

    n_events: int
    advances: bool
    restores: bool
    ahead: bool = False


@dataclass(frozen=True, slots=True)
class Case:
    """Rules, a stream, its events in order of arrival, and how they are delivered."""

    rules: tuple[ir.Rule, ...]
    stream: Stream
    events: tuple[dict[str, Any], ...]
    steps: tuple[Step, ...]


# ---------------------------------------------------------------- expressions


def _literal(kind: Type) -> st.SearchStrategy[Expression]:
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


_WINDOWED: dict[Type, list[tuple[str, tuple[str, ...]]]] = {
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


@st.composite
def windowed(draw: st.DrawFn, kind: Type, approximate: bool = False) -> Expression:
    """Draw a windowed value of type `kind`. `approximate`: its last bits may be compared with mercy."""
    functions = _WINDOWED[kind]
    if approximate and kind is Type.DOUBLE:
        functions = [*functions, ("STDDEV", ("i", "t", "d")), ("VARIANCE", ("i", "t", "d"))]
    function, columns = draw(st.sampled_from(functions))
    column = draw(st.sampled_from(columns))
    condition = draw(conditions([], bare=True, depth=0, has_windows=False)) if draw(st.booleans()) else None
    over = draw(_overs())
    if function == "PERCENTILE" and over.frame is Frame.ALL:
        over = Window(Frame.EVENTS, 3)
    parameter = {
        "LAG": float(draw(st.integers(1, 3))),
        "PERCENTILE": draw(st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0])),
    }.get(function, 0.0)
    return Windowed(function, COLUMNS.get(column), condition, over, parameter, "", kind)


@st.composite
def _whole_windows(draw: st.DrawFn) -> Window:
    """Draw the windows of a window rule."""
    frame = draw(st.sampled_from([Frame.TUMBLING, Frame.HOPPING, Frame.HOPPING, Frame.SESSION]))
    offset_us = draw(st.sampled_from([0, 0, 0, SECOND_US, 1]))
    length_us = draw(st.sampled_from([1, 2, 3, 5, 10])) * SECOND_US
    match frame:
        case Frame.TUMBLING:
            return Window(frame, length_us, offset_us=offset_us % length_us, is_whole=True)
        case Frame.HOPPING:
            every_us = draw(st.sampled_from([1, 2, 3, 4])) * SECOND_US
            offset_us %= every_us
            return Window(frame, length_us, offset_us=offset_us, is_whole=True, every_us=every_us)
        case _:
            gap_us = draw(st.sampled_from([1, 1, 2, 3])) * SECOND_US - draw(st.sampled_from([0, 0, 1]))
            most_us = draw(st.sampled_from([0, 0, 1, 3, 5])) * SECOND_US
            return Window(frame, gap_us, is_whole=True, most_us=most_us)


@st.composite
def _of_window(
    draw: st.DrawFn, kind: Type, window: Window, where: Expression | None, *, approximate: bool
) -> Expression:
    """Draw a value over the events of a window."""
    functions = [function for function in _WINDOWED[kind] if function[0] not in ("LAG", "SEEN")]
    if approximate and kind is Type.DOUBLE:
        functions += [("STDDEV", ("i", "t", "d")), ("VARIANCE", ("i", "t", "d"))]
    function, columns = draw(st.sampled_from(functions))
    condition = draw(conditions([], bare=True, depth=0, has_windows=False)) if draw(st.booleans()) else None
    parts = [part for part in (where, condition) if part is not None]
    counted = Call("and", tuple(parts), Type.BOOLEAN) if len(parts) > 1 else next(iter(parts), None)
    parameter = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0])) if function == "PERCENTILE" else 0.0
    argument = COLUMNS.get(draw(st.sampled_from(columns)))
    return Windowed(function, argument, counted, window, parameter, "", kind)


@st.composite
def _havings(draw: st.DrawFn, window: Window, where: Expression | None, depth: int = 1) -> Expression:
    """Draw a condition of a window."""
    shape = draw(st.integers(0, 5))
    if depth > 0 and shape < 3:
        parts = tuple(draw(_havings(window, where, depth - 1)) for _ in range(2))
        function = ("and", "or", "not")[shape]
        return Call(function, parts[:1] if function == "not" else parts, Type.BOOLEAN)
    kind = draw(st.sampled_from([Type.BIGINT, Type.BIGINT, Type.BIGINT, Type.DOUBLE]))
    value = draw(_of_window(kind, window, where, approximate=False))
    if shape == 3:
        return Call(draw(st.sampled_from(["is_null", "is_not_null"])), (value,), Type.BOOLEAN)
    other = draw(st.one_of(_literal(kind), _of_window(kind, window, where, approximate=False)))
    return Call(draw(st.sampled_from(_COMPARISONS)), (value, other), Type.BOOLEAN)


@st.composite
def window_rules(draw: st.DrawFn, name: str, windows: st.SearchStrategy[Window] | None = None) -> ir.Rule:
    """Draw a window rule."""
    window = draw(_whole_windows() if windows is None else windows)
    where = draw(st.sampled_from([None, None, 0]))
    counted = None if where is None else draw(conditions([], bare=True, depth=1, has_windows=False))
    having = draw(st.one_of(st.none(), _havings(window, counted)))
    kinds = [Type.BIGINT, Type.BIGINT, Type.DOUBLE, Type.STRING, Type.TIMESTAMP]
    measures = [
        ir.Measure(f"m{number}_{kind}", draw(_of_window(kind, window, counted, approximate=True)))
        for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=4)))
    ]
    return ir.Rule(
        name=name,
        title="",
        severity="info",
        tags=(),
        streams=("events",),
        key=draw(st.sampled_from([("k",)] * 4 + [("g",), ("k", "g")])),
        pattern=ir.Take(""),
        window=None,
        variables=(ir.Variable("", None),),
        measures=tuple(measures),
        selection=ir.Selection.EARLIEST,
        skip=ir.Skip(ir.SkipKind.NO_SKIP),
        report=ir.Report(suppress_us=draw(st.sampled_from([0, 0, 0, 2, 4])) * SECOND_US),
        windowing=ir.Windowing(window, counted, having),
    )


@st.composite
def _argument(draw: st.DrawFn, kind: Type) -> Expression:
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
    argument: Expression | None = draw(_argument(kind))
    if function == "DISTINCT":
        return Aggregate(function, name, COLUMNS[draw(st.sampled_from("isdtb"))], 0, kind)
    if function == "COUNT":
        argument = draw(st.sampled_from([None, COLUMNS["i"], COLUMNS["s"], COLUMNS["d"]]))
        if argument is None and draw(st.booleans()):
            name = ALL_EVENTS
    elif function in ("AVG", "STDDEV") and draw(st.booleans()):
        argument = draw(_argument(Type.BIGINT))
    offset = draw(st.sampled_from([0, 0, 1, 2])) if function in ("FIRST", "LAST") else 0
    return Aggregate(function, name, argument, offset, kind)


def _leaf(
    kind: Type, names: list[str], *, bare: bool, approximate: bool, has_windows: bool = True
) -> st.SearchStrategy[Expression]:
    """Draw a value without an operator, of the event under test (`bare`) or of the variables `names`."""
    leaves = [_literal(kind)]
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

_COMPARISONS = ["=", "<>", "<", "<=", ">", ">="]


@st.composite
def conditions(
    draw: st.DrawFn, names: list[str], *, bare: bool, depth: int, has_windows: bool = True
) -> Expression:
    """Draw a predicate over the event under test and over the events taken as the variables `names`."""
    shape = draw(st.integers(0, 9))
    if shape == 7 and bare and has_windows:
        return draw(windowed(Type.BOOLEAN))
    if shape == 6 and bare and names and draw(st.booleans()):
        taken_as = draw(st.sampled_from(names))
        of_kind = draw(st.sampled_from([Type.BIGINT, Type.BIGINT, Type.STRING, Type.DOUBLE]))
        operand = draw(values(of_kind, names, bare=True, depth=0, has_windows=has_windows))
        taken_values = Aggregate("VALUES", taken_as, draw(_column(of_kind)), 0, of_kind)
        is_in = Call(IN_TAKEN, (operand, taken_values), Type.BOOLEAN)
        return Call("not", (is_in,), Type.BOOLEAN) if draw(st.booleans()) else is_in
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
        options = [draw(_literal(kind)) for _ in range(2)]
        return Call("in", (one(), *options), Type.BOOLEAN)
    comparisons = ["=", "<>"] if kind is Type.STRING else _COMPARISONS
    return Call(draw(st.sampled_from(comparisons)), (one(), one()), Type.BOOLEAN)


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
                st.sampled_from(["like", "rlike", "contains", "startswith", "endswith", "in", *_COMPARISONS])
            )
            if function == "like":
                pattern = draw(st.text(alphabet="pq%_\\", max_size=4).filter(_is_complete))
                return Call(function, (text, Literal(pattern, Type.STRING)), kind)
            if function == "rlike":
                pattern = some_pattern(draw(st.randoms(use_true_random=False)))
                return Call(function, (text, Literal(pattern, Type.STRING)), kind)
            if function == "in":
                options = [draw(_literal(Type.STRING)) for _ in range(draw(st.integers(1, 3)))]
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
        return draw(st.one_of(_column(Type.STRING), _literal(Type.STRING)))
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
    shape = draw(st.integers(0, 13))
    if shape <= 6:
        return letter
    if shape <= 8:
        return Call("<>", (COLUMNS["i"], Literal(number, Type.BIGINT)), Type.BOOLEAN)
    if shape == 9:
        return None
    if shape == 10:
        return draw(conditions([], bare=True, depth=1))
    correlated = draw(conditions(names, bare=True, depth=1))
    if shape == 11:
        return correlated
    return Call("or" if shape == 12 else "and", (letter, correlated), Type.BOOLEAN)


@st.composite
def _closings(draw: st.DrawFn, names: list[str]) -> Expression:
    """Draw the condition that closes a loop: mostly a letter."""
    if draw(st.booleans()):
        return _equals("i", draw(st.integers(0, 3)))
    return draw(conditions(names, bare=True, depth=1))


# ---------------------------------------------------------------- patterns

_JOINTS = st.sampled_from(list(ir.Contiguity))
_ARROWS = st.sampled_from([ir.Contiguity.NEXT, ir.Contiguity.ANY])


@st.composite
def _gaps(draw: st.DrawFn) -> ir.Gap | None:
    """Draw bounds of the time between two events. Mostly there are none."""
    if draw(st.integers(0, 4)):
        return None
    low_us = draw(st.sampled_from([0, 0, 1, SECOND_US, 2 * SECOND_US]))
    more_us = draw(st.sampled_from([None, 0, 2 * SECOND_US, 4 * SECOND_US]))
    if more_us is None:
        return ir.Gap(low_us, None)
    return ir.Gap(low_us, low_us + more_us, inclusive=low_us > 0 or draw(st.booleans()))


@st.composite
def _periods(draw: st.DrawFn) -> ir.Window:
    """Draw the period of a timed absence."""
    return ir.Window(draw(st.sampled_from([1, 2, 2, 3, 5])) * SECOND_US, draw(st.booleans()))


@st.composite
def _group_windows(draw: st.DrawFn) -> ir.Window | ir.EventWindow:
    if draw(st.integers(0, 3)) == 0:
        return ir.EventWindow(draw(st.integers(1, 5)))
    return ir.Window(draw(st.sampled_from([1, 2, 3, 4, 6])) * SECOND_US, draw(st.booleans()))


def _item(draw: st.DrawFn, node: ir.Node) -> ir.Item:
    """Draw the joint of `node`. The joint of a timed absence is always an arrow."""
    if isinstance(node, ir.Absent):
        return ir.Item(draw(_JOINTS), node)
    if isinstance(node, ir.TimedAbsence):
        return ir.Item(draw(_ARROWS), node)
    return ir.Item(draw(_JOINTS), node, draw(_gaps()))


@st.composite
def _absences(draw: st.DrawFn, names: list[str]) -> ir.Absent | ir.TimedAbsence:
    """Draw an absence of one variable, or a timed absence of one or two variables."""
    if draw(st.integers(0, 2)):
        return ir.Absent(draw(st.sampled_from(names)))
    several = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    return ir.TimedAbsence(tuple(several), draw(_periods()))


_QUANTIFIERS: list[tuple[int, int | None]] = [
    (0, 1),
    (0, 1),
    (0, None),
    (1, None),
    (1, None),
    (2, 2),
    (1, 2),
    (0, 2),
    (2, 3),
    (2, None),
    (1, 1),
]


@st.composite
def nodes(draw: st.DrawFn, names: list[str], size: int) -> ir.Node:
    """Draw a pattern of about `size` steps."""
    shape = draw(st.integers(0, 8))
    if shape == 7:
        return ir.Group(draw(nodes(names, size)), draw(_group_windows()))
    if shape == 8:
        return draw(_without(names, draw(nodes(names, size))))
    if size <= 1:
        take = ir.Take(draw(st.sampled_from(names)))
        return draw(_repeated(take)) if shape >= 4 else take
    if shape <= 2:
        n_parts = draw(st.integers(2, min(size, 4)))
        return ir.Sequence(tuple(_items(draw, names, size, n_parts)))
    if shape == 3:
        left = draw(st.integers(1, size - 1))
        return ir.Alternation((draw(nodes(names, left)), draw(nodes(names, size - left))))
    if shape == 6:
        parts = [draw(nodes(names, size // 2)) for _ in range(draw(st.sampled_from([2, 2, 3])))]
        return ir.Permutation(tuple(parts), draw(st.sampled_from([ir.Contiguity.STRICT, ir.Contiguity.NEXT])))
    return draw(_repeated(draw(nodes(names, size - 1))))


@st.composite
def _without(draw: st.DrawFn, names: list[str], body: ir.Node) -> ir.Node:
    """Draw a pattern in which some events must be nowhere."""
    others = [name for name in (*names, "m", "n") if name not in taken_variables(body)]
    several = draw(st.lists(st.sampled_from(others), min_size=1, max_size=2, unique=True))
    return ir.Without(body, tuple(several))


def _items(draw: st.DrawFn, names: list[str], size: int, n_parts: int) -> list[ir.Item]:
    items = [ir.Item(draw(_JOINTS), draw(nodes(names, max(1, size // n_parts))))]
    while len(items) < n_parts:
        if draw(st.integers(0, 3)) == 0:
            items.append(_item(draw, draw(_absences(names))))
        else:
            items.append(_item(draw, draw(nodes(names, max(1, size // n_parts)))))
    return items


@st.composite
def _repeated(draw: st.DrawFn, body: ir.Node) -> ir.Node:
    least, most = draw(st.sampled_from(_QUANTIFIERS))
    greed = draw(st.sampled_from([ir.Greed.GREEDY, *ir.Greed]))
    until = None
    if (most is None or most > 1) and draw(st.integers(0, 3)) == 0:
        until = draw(st.sampled_from(["until#1", "until#2"]))
    return ir.Repeat(body, least, most, draw(_JOINTS), greed, draw(_gaps()), until)


def untils_of(node: ir.Node) -> set[str]:
    """Return the variables that close loops of a pattern."""
    match node:
        case ir.Take() | ir.Absent() | ir.TimedAbsence():
            return set()
        case ir.Sequence(items=items):
            return set().union(*(untils_of(item.node) for item in items))
        case ir.Alternation(branches=parts) | ir.Permutation(parts=parts):
            return set().union(*(untils_of(part) for part in parts))
        case ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return untils_of(body)
        case ir.Repeat(body=body, until=until):
            return untils_of(body) | ({until} if until is not None else set())


def variables_of(node: ir.Node) -> set[str]:
    """Return the variables of a pattern."""
    match node:
        case ir.Take(variable=name) | ir.Absent(variable=name):
            return {name}
        case ir.TimedAbsence(variables=names):
            return set(names)
        case ir.Sequence(items=items):
            return set().union(*(variables_of(item.node) for item in items))
        case ir.Alternation(branches=branches):
            return set().union(*(variables_of(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return set().union(*(variables_of(part) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body):
            return variables_of(body)
        case ir.Without(body=body, variables=several):
            return variables_of(body) | set(several)


def taken_variables(node: ir.Node) -> set[str]:
    match node:
        case ir.Take(variable=name):
            return {name}
        case ir.Absent() | ir.TimedAbsence():
            return set()
        case ir.Sequence(items=items):
            return set().union(*(taken_variables(item.node) for item in items))
        case ir.Alternation(branches=branches):
            return set().union(*(taken_variables(branch) for branch in branches))
        case ir.Permutation(parts=parts):
            return set().union(*(taken_variables(part) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return taken_variables(body)


@st.composite
def _plain_sequences(draw: st.DrawFn) -> ir.Node:
    """Draw a typical pattern: different steps one after another, with an absence and a loop among them."""
    names = list("abcd"[: draw(st.integers(3, 4))])
    absent = draw(st.sampled_from([None, *names[1:]]))
    items = [ir.Item(draw(_JOINTS), ir.Take(names[0]))]
    for name in names[1:]:
        step: ir.Node = draw(_absences([name])) if name == absent else ir.Take(name)
        if name != absent and draw(st.integers(0, 2)) == 0:
            step = draw(_repeated(step))
        items.append(_item(draw, step))
    return ir.Sequence(tuple(items))


@st.composite
def patterns(draw: st.DrawFn, max_size: int) -> ir.Node:
    """Draw a pattern that takes at least one event."""
    names = list("abcd"[: draw(st.integers(1, 4))])
    if max_size > 2 and draw(st.booleans()):
        pattern = draw(_plain_sequences())
    else:
        pattern = draw(nodes(names, draw(st.integers(1, max_size))))
    if ir.summary(pattern).nullable:
        first = ir.Item(ir.Contiguity.STRICT, ir.Take(draw(st.sampled_from(names))))
        pattern = ir.Sequence((first, ir.Item(draw(_JOINTS), pattern)))
    if draw(st.integers(0, 9)) == 0:
        pattern = _after_absence(draw, names, pattern)
    if draw(st.integers(0, 4)) == 0:
        pattern = _with_distinct(draw, pattern)
    if draw(st.integers(0, 9)) == 0:
        pattern = ir.Anchored(pattern)
    if draw(st.integers(0, 9)) == 0:
        pattern = draw(_without(names, pattern))
    return pattern


def _with_distinct(draw: st.DrawFn, pattern: ir.Node) -> ir.Node:
    """Draw a value for a loop whose variables stand nowhere else, and that is in no other loop."""
    n_takes = Counter(node.variable for node in ir.walk(pattern) if isinstance(node, ir.Take))

    def is_apart(loop: ir.Repeat) -> bool:
        own = Counter(node.variable for node in ir.walk(loop.body) if isinstance(node, ir.Take))
        return all(own[name] == n_takes[name] for name in own)

    loops = [loop for loop in _outer_loops(pattern) if loop.max != 1 and is_apart(loop)]
    if not loops:
        return pattern
    loop = draw(st.sampled_from(loops))
    column = COLUMNS[draw(st.sampled_from(["i", "i", "t", "s", "d"]))]
    return _replaced(pattern, loop, replace(loop, distinct=column))


def _outer_loops(node: ir.Node) -> Iterator[ir.Repeat]:
    if isinstance(node, ir.Repeat):
        yield node
        if node.max != 1:
            return
    for child in ir.children(node):
        yield from _outer_loops(child)


def _replaced(node: ir.Node, old: ir.Node, new: ir.Node) -> ir.Node:
    if node is old:
        return new
    match node:
        case ir.Sequence(items=items):
            return ir.Sequence(tuple(replace(item, node=_replaced(item.node, old, new)) for item in items))
        case ir.Alternation(branches=parts):
            return ir.Alternation(tuple(_replaced(part, old, new) for part in parts))
        case ir.Permutation(parts=parts):
            return replace(node, parts=tuple(_replaced(part, old, new) for part in parts))
        case ir.Repeat(body=body) | ir.Group(body=body) | ir.Anchored(body=body) | ir.Without(body=body):
            return replace(node, body=_replaced(body, old, new))
        case _:
            return node


def _after_absence(draw: st.DrawFn, names: list[str], pattern: ir.Node) -> ir.Node:
    """Draw one or two absences before the first event, rarely in only one branch."""
    first = ir.Item(ir.Contiguity.STRICT, draw(_absences(names)))
    more = [_item(draw, draw(_absences(names)))] if draw(st.booleans()) else []
    found = ir.Sequence((first, *more, ir.Item(draw(_JOINTS), pattern)))
    return ir.Alternation((found, pattern)) if draw(st.integers(0, 3)) == 0 else found


# ---------------------------------------------------------------- rules


@st.composite
def windows(draw: st.DrawFn) -> ir.Window | ir.EventWindow:
    """Draw a window that is too short for some streams."""
    if draw(st.integers(0, 4)) == 0:
        return ir.EventWindow(draw(st.integers(1, 8)))
    length_us = draw(st.sampled_from([2, 4, 8, 12, 20])) * SECOND_US
    return ir.Window(length_us, draw(st.booleans()))


@st.composite
def rules(draw: st.DrawFn, name: str, max_size: int) -> ir.Rule:
    """Draw a rule."""
    pattern = repeat_absences(draw(patterns(max_size)))
    names = sorted(variables_of(pattern))
    taken = sorted(taken_variables(pattern))
    subsets: tuple[ir.Subset, ...] = ()
    if draw(st.integers(0, 2)) == 0:
        members = draw(st.lists(st.sampled_from(taken), min_size=1, max_size=3, unique=True))
        subsets = (ir.Subset("u", tuple(members)),)
    unions = ["u" for _ in subsets]
    automaton = nfa.build(pattern)
    needs_window = any(state.closes and state.not_followed_by for state in automaton.states) or any(
        look_behind.period is None for edge in automaton.states[0].takes for look_behind in edge.look_behinds
    )
    looked_for = {
        look_behind.variable for edge in automaton.states[0].takes for look_behind in edge.look_behinds
    }
    variables = tuple(
        ir.Variable(name, draw(predicates([] if name in looked_for else [*names, *unions], number)))
        for number, name in enumerate(names)
    )
    variables += tuple(
        ir.Variable(name, draw(_closings([*names, *unions])), closes=True)
        for name in sorted(untils_of(pattern))
    )
    window = draw(windows()) if needs_window or draw(st.integers(0, 2)) > 0 else None
    measures = [
        ir.Measure(f"took_{name}", Aggregate("SUM", name, COLUMNS["w"], 0, Type.BIGINT)) for name in taken
    ]
    kinds = [Type.BIGINT, Type.DOUBLE, Type.STRING, Type.BOOLEAN, Type.TIMESTAMP, Type.INTERVAL]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3, unique=True)):
        expression = draw(values(kind, [*taken, *unions], bare=False, depth=1, approximate=True))
        measures.append(ir.Measure(f"m_{kind}", expression))
    for kind in draw(st.lists(st.sampled_from(kinds[:-1]), max_size=2, unique=True)):
        listed = Aggregate(
            "ARRAY_AGG", draw(st.sampled_from([*taken, *unions])), draw(_argument(kind)), 0, kind
        )
        measures.append(ir.Measure(f"list_{kind}", listed))
    selection = draw(st.sampled_from(list(ir.Selection)))
    kind_of_skip = draw(st.sampled_from(list(ir.SkipKind)))
    target = None
    if kind_of_skip in (ir.SkipKind.TO_FIRST, ir.SkipKind.TO_LAST):
        target = draw(st.sampled_from([*taken, *(subset.name for subset in subsets)]))
    return ir.Rule(
        name=name,
        title="",
        severity="info",
        tags=(),
        streams=("events",),
        key=draw(st.sampled_from([("k",)] * 4 + [("g",), ("k", "g")])),
        pattern=pattern,
        window=window,
        variables=variables,
        measures=tuple(measures),
        selection=selection,
        skip=ir.Skip(kind_of_skip, target, subsets[0].members if target == "u" else ()),
        subsets=subsets,
        report=draw(
            reports(
                may_time_out=(window is not None or _has_limits(automaton))
                and selection is not ir.Selection.PREFERRED
            )
        ),
    )


def _has_limits(automaton: nfa.Nfa) -> bool:
    gaps = [state.gap for state in automaton.states]
    return bool(automaton.groups) or any(gap is not None and gap.high_us is not None for gap in gaps)


@st.composite
def reports(draw: st.DrawFn, *, may_time_out: bool) -> ir.Report:
    """Draw the report clauses: mostly none. (There are too few runs to reach a limit.)"""
    timeouts = may_time_out and draw(st.integers(0, 2)) == 0
    suppress_us = draw(st.sampled_from([0, 0, 0, 1, 2, 4, 8])) * SECOND_US
    return ir.Report(timeouts, suppress_us, all_rows=draw(st.integers(0, 4)) == 0)


# ---------------------------------------------------------------- streams


def _or_null(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*[strategy] * 8, st.none())


@st.composite
def event_lists(draw: st.DrawFn, max_events: int = MAX_EVENTS) -> list[dict[str, Any]]:
    """Draw events in order of time, with ties, NULLs and a few keys."""
    events: list[dict[str, Any]] = []
    now_us = draw(st.sampled_from([0, 5 * SECOND_US]))
    letter = draw(st.integers(0, 3))
    few_keys = draw(st.sampled_from([[1], [1], [1], [1, 1, 1, 2], [1, 1, 2, None]]))
    for number in range(draw(st.integers(min(6, max_events), max_events))):
        now_us += draw(st.sampled_from([0, 1, 1, 1, 1, 2, 4])) * SECOND_US
        letter = (
            letter + draw(st.sampled_from([0, 1, 1, 1, 2, 3]))
        ) % 4  # patterns mostly have the letters in this order
        event = {
            "k": draw(st.sampled_from(few_keys)),
            "g": draw(st.sampled_from(["x"] * 6 + ["y"])),
            "ts": now_us,
            "t": draw(_or_null(st.integers(0, 3))),
            "w": 1 << number,
            "i": letter if draw(st.integers(0, 15)) else draw(st.sampled_from([None, -1, HUGE])),
            "d": draw(_or_null(st.sampled_from([0.0, 0.5, 1.5, -2.0, float("nan"), float("inf")]))),
            "s": draw(_or_null(st.sampled_from(["p", "q", "r", "", "STRASSE", "Straße"]))),
            "b": draw(_or_null(st.booleans())),
        }
        events.append(event)
    return events


@st.composite
def crowds(draw: st.DrawFn, n_keys: int) -> Case:
    """Draw a case with many different strings and many keys that come and go. Most keys have few events."""
    random = Random(draw(st.integers(0, 2**32)))
    rule = replace(draw(rules("rule_0", 3)), key=("k",), window=draw(windows()))
    events = []
    for number in range(3 * n_keys):
        key = number // 3 + random.randrange(n_keys // 10)  # young keys replace old ones
        event = {"k": key, "g": "x", "ts": number // 4 * SECOND_US, "t": number, "w": number * number}
        event |= {"i": random.randrange(4), "d": random.random(), "b": None}
        events.append(event | {"s": str(random.randrange(20) + number // 40)})
    stream = Stream("events", FIELDS, "ts", ("t",), SECOND_US)
    size = len(events) // 12
    steps = [Step(size, advances=True, restores=number % 3 == 0) for number in range(12)]
    return Case((rule,), stream, tuple(events), tuple(steps))


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Draw a stream: the order of events of equal time, and its lateness."""
    tie_break = draw(st.sampled_from([(), (), ("t",), ("s", "t")]))
    return Stream(
        name="events",
        fields=FIELDS,
        event_time="ts",
        tie_break=tie_break,
        lateness_us=draw(st.sampled_from([0, 1, 3])) * SECOND_US,
        deduplicate=bool(tie_break) and draw(st.booleans()),
    )


def copies_agree(events: list[dict[str, Any]], stream: Stream) -> list[dict[str, Any]]:
    """Give equal values to the copies of an event, because the stream promises that copies are equal."""
    first: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        first.setdefault(tuple(event[name] for name in (stream.event_time, *stream.tie_break)), event)
    return [
        {**first[tuple(event[name] for name in (stream.event_time, *stream.tie_break))], **_keys_of(event)}
        for event in events
    ]


def _keys_of(event: dict[str, Any]) -> dict[str, Any]:
    return {"k": event["k"], "g": event["g"]}


@st.composite
def cases(
    draw: st.DrawFn,
    max_rules: int = 2,
    max_events: int = MAX_EVENTS,
    max_size: int = MAX_SIZE,
    *,
    has_window_rules: bool = True,
) -> Case:
    """Draw a case. Each event is delayed by less than the lateness, so no event is late."""
    stream = draw(streams())
    drawn = tuple(
        draw(
            window_rules(name) if has_window_rules and draw(st.integers(0, 5)) == 0 else rules(name, max_size)
        )
        for name in (f"rule_{number}" for number in range(draw(st.integers(1, max_rules))))
    )
    return draw(deliveries_of(drawn, stream, draw(event_lists(max_events))))


@st.composite
def cases_of_windows(draw: st.DrawFn, max_events: int = 2 * MAX_EVENTS) -> Case:
    """Draw a case of window rules alone."""
    stream = draw(streams())
    drawn = tuple(draw(window_rules(f"rule_{number}")) for number in range(draw(st.integers(1, 3))))
    return draw(deliveries_of(drawn, stream, draw(event_lists(max_events))))


_ZONES = {
    "Europe/Berlin": 1_711_746_000,
    "America/New_York": 1_730_592_000,
    "Australia/Lord_Howe": 1_712_340_000,
}
"""Zones, and a time in seconds, a day or less before their clocks are set."""


@st.composite
def cases_of_zones(draw: st.DrawFn) -> Case:
    """Draw a case of tumbling windows in zones, over hours in which clocks are set."""
    zone, base = draw(st.sampled_from(list(_ZONES.items())))
    hours = draw(st.sampled_from([1, 2, 5, 24, 24, 48]))
    offset_us = draw(st.sampled_from([0, 0, 90 * 60])) * SECOND_US
    length_us = hours * 3600 * SECOND_US
    window = Window(Frame.TUMBLING, length_us, offset_us=offset_us % length_us, zone=zone, is_whole=True)
    events = draw(event_lists(2 * MAX_EVENTS))
    scale = draw(st.sampled_from([600, 1800, 3600]))
    for event in events:
        event["ts"] = base * SECOND_US + event["ts"] * scale
    stream = replace(draw(streams()), lateness_us=scale * SECOND_US)
    return draw(deliveries_of((draw(window_rules("rule_0", st.just(window))),), stream, events))


@st.composite
def deliveries_of(
    draw: st.DrawFn, drawn: tuple[ir.Rule, ...], stream: Stream, events: list[dict[str, Any]]
) -> Case:
    """Draw how events are delivered. Each is delayed by less than the lateness, so no event is late."""
    if stream.deduplicate:
        events = copies_agree(events, stream)
        events += [dict(event) for event in draw(st.lists(st.sampled_from(events), max_size=3))]
    if stream.lateness_us:
        held_us = [draw(st.integers(0, stream.lateness_us - 1)) for _ in events]
        arrival = [event["ts"] + delay for event, delay in zip(events, held_us, strict=True)]
    else:
        arrival = [event["ts"] for event in events]
    order = sorted(range(len(events)), key=lambda number: arrival[number])
    return Case(drawn, stream, tuple(events[number] for number in order), draw(_deliveries(len(events))))


@st.composite
def _deliveries(draw: st.DrawFn, n_events: int) -> tuple[Step, ...]:
    steps = []
    while n_events:
        size = draw(st.integers(1, n_events))
        steps.append(Step(size, draw(st.booleans()), draw(st.booleans()), draw(st.booleans())))
        n_events -= size
    return tuple(steps)
