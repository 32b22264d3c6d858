"""Windowed aggregates of a program: columns that each event gets from earlier events of its key.

The compiler writes them; `cep.engine.windows` computes them once events are in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from cep.expression import Expression, Frame, Type, Window
from cep.program.window_functions import Function

__all__ = ["COUNT_ALL", "Frame", "Function", "Window", "WindowColumn", "WindowRule"]


COUNT_ALL = frozenset((Frame.EVENTS, Frame.SESSION))
"""Frames that depend on events whose argument does not count (FILTER), too."""


@dataclass(frozen=True, slots=True)
class WindowColumn:
    """A column that is computed from a window.

    - `argument`: column of a prepared batch; None: ``COUNT(*)``.
    - `argument_type`: the type of `argument`.
    - `parameter`: the second argument of the function, if it has one.
    - `within`: word and bit of the predicate of the events that windows contain; None: all events of the key.
      Only these events form a session or count for EVENTS.
    - `counts`: word and bit of the predicate of those whose argument counts (FILTER); None: all of `within`.
    """

    name: str
    type: Type
    function: Function
    argument: str | None
    argument_type: Type | None
    window: Window
    parameter: float = 0
    within: tuple[int, int] | None = None
    counts: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class WindowRule:
    """What makes a compiled rule a window rule: it has a row at each window's end.

    - `window`: its windows (`Window.is_whole`), those of all columns that it reads.
    - `where`: word and bit of the predicate of the events that count; None: all.
    - `having`: over windowed columns: which windows have a row; None: all.
    - `columns`: the windowed column that each register holds.
    - `table`: index in `Joins.tables` of the table whose keys also have windows without events; None: no
      table.
    """

    window: Window
    where: tuple[int, int] | None
    having: Expression | None
    columns: tuple[str, ...]
    table: int | None = None
