"""Strategies of window rules."""

from __future__ import annotations

from hypothesis import strategies as st

from cep.compiler import ir
from cep.expression import Call, Expression, Frame, Type, Window, Windowed
from tests.property.strategies.events import COLUMNS, SECOND_US
from tests.property.strategies.expressions import APPROXIMATE, COMPARISONS, WINDOWED, conditions, literals

_REPORTS = (
    *[ir.Report()] * 3,
    ir.Report(suppress_us=3 * SECOND_US),
    ir.Report(n_per_day=2),
)


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
    functions = [function for function in WINDOWED[kind] if function[0] not in ("LAG", "SEEN")]
    if approximate and kind is Type.DOUBLE:
        functions += APPROXIMATE
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
    other = draw(st.one_of(literals(kind), _of_window(kind, window, where, approximate=False)))
    return Call(draw(st.sampled_from(COMPARISONS)), (value, other), Type.BOOLEAN)


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
        report=draw(st.sampled_from(_REPORTS)),
        windowing=ir.Windowing(window, counted, having),
    )
