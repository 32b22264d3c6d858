"""The functions of windows: one table entry each, read by the compiler, the engine and `cep explain`.

A new function is a member of `Function`. Kernels compute the functions of a `Family`. So a function needs
only a branch in the kernel of its family, or another kernel, in the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cep.expression import Type

NUMBERS = (Type.BIGINT, Type.DOUBLE)
ORDERED = (*NUMBERS, Type.TIMESTAMP, Type.INTERVAL)
ANY_VALUE = (*ORDERED, Type.BOOLEAN, Type.STRING)
"""Types of values that rules look into."""


class Family(Enum):
    """Functions that the same kernels compute from the same kept state."""

    SUMS = "sums"
    EXTREMES = "extremes"
    PLACES = "places"  # the value of one event, by its place in the window; NULL counts
    SETS = "sets"
    VALUES = "values"


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state that a key keeps of a window.

    - `family`: the family of the kernels that read it.
    - `of_whole`: words for what is kept of a window that ends as a whole or never; empty: all of its events,
      and then there is no OVER ALL or BY.
    - `in_steps`: words for what is kept of a window that moves in steps: of its `panes`, for `function`, or
      of its last `n` values.
    - `of_events`: words for what is kept of a window that events leave one by one.
    """

    family: Family
    of_whole: str
    in_steps: str
    of_events: str = "events"


class Kept(Enum):
    """The kinds of state that a key keeps of a window."""

    COUNTS = KeptState(Family.SUMS, "a few numbers", "the counts of at most {panes}, 16 bytes each")
    SUMS = KeptState(
        Family.SUMS, "a few numbers", "the sums of at most {panes}, 32 bytes each for values of similar size"
    )
    SQUARES = KeptState(  # and sums
        Family.SUMS, "a few numbers", "the sums of at most {panes}, 64 bytes each for values of similar size"
    )
    EXTREMES = KeptState(
        Family.EXTREMES,
        "a few numbers",
        "the values of at most {panes} that can still be the {function}, 16 bytes each",
    )
    FIRST = KeptState(Family.PLACES, "a few numbers", "the first values of at most {panes}, 16 bytes each")
    LAST = KeptState(Family.PLACES, "a few numbers", "the last {n} values, 16 bytes each")
    SETS = KeptState(
        Family.SETS,
        "each value",
        "each value's last pane, of at most {panes}, 16 bytes each",
        "each value's last event",
    )
    VALUES = KeptState(Family.VALUES, "", "")


class Parameter(Enum):
    """The meaning of the second argument of a function, and an example."""

    EVENTS = ("a whole number of events from 1", "1")
    PART = ("a number from 0 to 1", "0.95")


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """The definition of a window function, except for its kernel.

    - `number`: its number in kernels.
    - `kept`: the state that a key keeps for it. This also determines its kernels and its frames.
    - `takes`: the types of its argument.
    - `gives`: its type; None: that of its argument.
    - `parameter`: its second argument; None: it has none.
    - `default`: the second argument if none is written; None: one must be written.
    - `shorthands`: its other names, each with the second argument that the name implies.
    - `call`: how it is written, if not as ``NAME(argument)``: `x` is the argument, `p` the second one.
    - `of_nothing`: its value over a window without events; None: NULL.
    """

    number: int
    kept: Kept
    takes: tuple[Type, ...]
    gives: Type | None = None
    parameter: Parameter | None = None
    default: float | None = None
    shorthands: tuple[tuple[str, float], ...] = ()
    call: str = "{name}({x})"
    of_nothing: int | None = None


class Function(Enum):
    """What is computed from the events of a window. Stored state contains the names of members: keep them."""

    # Of rows, or of the values of an argument that are not NULL.
    COUNT = WindowFunction(0, Kept.COUNTS, (*ANY_VALUE, Type.OPAQUE), Type.BIGINT, of_nothing=0)
    SUM = WindowFunction(1, Kept.SUMS, (*NUMBERS, Type.INTERVAL))
    AVG = WindowFunction(2, Kept.SUMS, NUMBERS, Type.DOUBLE)
    MIN = WindowFunction(3, Kept.EXTREMES, ORDERED)
    MAX = WindowFunction(4, Kept.EXTREMES, ORDERED)
    VARIANCE = WindowFunction(5, Kept.SQUARES, NUMBERS, Type.DOUBLE)  # of a sample
    STDDEV = WindowFunction(6, Kept.SQUARES, NUMBERS, Type.DOUBLE)  # of a sample
    DISTINCT = WindowFunction(7, Kept.SETS, ANY_VALUE, Type.BIGINT, call="COUNT(DISTINCT {x})", of_nothing=0)
    # Whether the argument of this event is among those of the window.
    SEEN = WindowFunction(8, Kept.SETS, ANY_VALUE, Type.BOOLEAN)
    FIRST_VALUE = WindowFunction(9, Kept.FIRST, ANY_VALUE)
    LAST_VALUE = WindowFunction(10, Kept.LAST, ANY_VALUE)
    # The value this many events before this one.
    LAG = WindowFunction(
        11, Kept.LAST, ANY_VALUE, parameter=Parameter.EVENTS, default=1.0, call="LAG({x}, {p:g})"
    )
    # Interpolated linearly between two values.
    PERCENTILE = WindowFunction(
        12,
        Kept.VALUES,
        NUMBERS,
        Type.DOUBLE,
        parameter=Parameter.PART,
        shorthands=(("MEDIAN", 0.5),),
        call="PERCENTILE({x}, {p:g})",
    )

    @property
    def kept(self) -> KeptState:
        """The state that a key keeps for it."""
        return self.value.kept.value

    def shown(self, argument: str, parameter: float) -> str:
        """Return the function as written in a rule, without its window."""
        return self.value.call.format(name=self.name, x=argument, p=parameter)


WINDOW_FUNCTIONS: dict[str, Function] = {
    name: function
    for function in Function
    if function is not Function.DISTINCT
    for name in (function.name, *(other for other, _ in function.value.shorthands))
}
"""Every function that can be written before OVER, by its name in rules."""
