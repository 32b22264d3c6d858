"""Windowed aggregates, typed: ``AVG(x) FILTER (WHERE c) OVER LAST 1 HOUR``."""

from __future__ import annotations

from collections.abc import Callable

from cep.compiler.typing.checker import NULL, Checker, names_zone, too_long
from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Span
from cep.expression import Expression, Frame, Type, Window, Windowed, is_windowed
from cep.language import ast
from cep.language.foreign import NO_RANKS, OF_RANKS
from cep.program.window_functions import WINDOW_FUNCTIONS, Function, Parameter
from cep.schema.time_literals import MAX_DURATION_US, print_duration

MAX_EVENTS = 1_000_000
"""The maximum for LAST n EVENTS, PREVIOUS n EVENTS and LAG: a key may have to remember this many."""

_STAR = ast.Events(None, Span(0, 0))


class WindowChecker(Checker):
    """Types windowed values: expressions with OVER."""

    def windowed(self, node: ast.Windowed) -> Expression | None:
        """Return the windowed aggregate, or None after a report."""
        if self._in_window:
            self.refuse_inside("a window", node.span)
            return None
        name = node.name.text
        function = WINDOW_FUNCTIONS.get(name)
        if function is None:
            self.problem(
                "E0204",
                f"{name} has no OVER",
                node.name.span,
                "not a function of windows",
                NO_RANKS
                if name in OF_RANKS
                else did_you_mean(name, tuple(WINDOW_FUNCTIONS), "functions of windows"),
            )
            return None
        if node.is_distinct and name != "COUNT":
            self.problem(
                "E0217",
                f"{name} has no DISTINCT",
                node.name.span,
                "only COUNT counts distinct values",
                f"write COUNT(DISTINCT x) OVER ... or {name}(x) OVER ...",
            )
            return None
        if node.is_distinct:
            function = Function.DISTINCT
        window = self._window(node.over)
        read = self._argument_of(function, node)
        condition = self._filter(node.condition)
        if window is None or read is None or (node.condition is not None and condition is None):
            return None
        argument, parameter = read
        keeps_all = not function.kept.of_whole
        if keeps_all and window.frame is Frame.ALL:
            self.problem(
                "E0217",
                f"{name} OVER ALL",
                (node.over or node).span,
                "every value of the key would have to be kept for ever",
                f"write {name}(x) OVER LAST 30 DAYS, or OVER PREVIOUS 1000 EVENTS",
            )
            return None
        if keeps_all and window.step_us and node.over is not None:
            self.problem(
                "E0327",
                f"{name} of a window with BY",
                node.over.step_span,
                "it needs every value, not a few numbers for each step",
                f"leave BY out: OVER {node.over.kind.value} {print_duration(window.length)}",
            )
            return None
        kind = function.value.gives or (argument.type if argument is not None else Type.BIGINT)
        stream = self.scope.stream.name if self.scope.is_qualified else ""
        return Windowed(function.name, argument, condition, window, parameter, stream, kind)

    def in_window(
        self, read: Callable[[ast.Expression], Expression | None], node: ast.Expression
    ) -> Expression | None:
        """Return what `read` returns for a part of a window: it reads single events of the key."""
        inside, self._inside, self._in_window = self._inside, None, True
        found = read(node)
        self._inside, self._in_window = inside, False
        if found is not None and found is not NULL and is_windowed(found):  # by a name of LET
            self.refuse_inside("a window", node.span)
            return None
        return found

    def refuse_inside(self, what: str, span: Span) -> None:
        """Report something in a window that is not a value of a single event."""
        self.problem(
            "E0218",
            f"{what} inside a window",
            span,
            "cannot be nested",
            "a window is over columns of single events",
        )

    def _filter(self, node: ast.Expression | None) -> Expression | None:
        return None if node is None else self.in_window(self.condition, node)

    def _argument_of(self, function: Function, node: ast.Windowed) -> tuple[Expression | None, float] | None:
        """Return the argument and the parameter of a window's function; ``COUNT(*)`` has no argument."""
        name, args = node.name.text, node.args
        if name == "COUNT" and not node.is_distinct and args and args[0] == _STAR and len(args) == 1:
            return None, 0.0
        default = dict(function.value.shorthands).get(name, function.value.default)
        most = 1 if function.value.parameter is None or name != function.name else 2
        needs = most if default is None else 1
        if not needs <= len(args) <= most:
            shown_needs = f"{needs} or {most}" if needs < most else str(needs)
            self.problem(
                "E0205",
                f"{name} takes {shown_needs} argument{'' if shown_needs == '1' else 's'}, not {len(args)}",
                node.span,
                f"{len(args)} given",
                f"give {name} {shown_needs} argument{'' if shown_needs == '1' else 's'}",
            )
            return None
        value = self.in_window(self.infer_any, args[0])
        if value is None:
            return None
        takes = [kind for kind in function.value.takes if kind is not Type.OPAQUE]
        if value is NULL or value.type not in function.value.takes:
            self.of_types(name, [value], [args[0].span], takes)
            return None
        if function.value.parameter is None or len(args) == 1:
            return value, default or 0.0
        parameter = self._parameter(function, function.value.parameter, args[1])
        return None if parameter is None else (value, parameter)

    def _parameter(self, function: Function, kind: Parameter, node: ast.Expression) -> float | None:
        is_number = isinstance(node, ast.Constant) and node.kind in (ast.Kind.INTEGER, ast.Kind.DECIMAL)
        value = node.value if isinstance(node, ast.Constant) and is_number else None
        if kind is Parameter.EVENTS:
            if isinstance(value, int) and 1 <= value <= MAX_EVENTS:
                return float(value)
        elif isinstance(value, int | float) and 0 <= value <= 1:
            return float(value)
        what, example = kind.value
        self.problem(
            "E0206",
            f"{function.name} needs {what} as its second argument",
            node.span,
            "not such a number",
            f"write {function.name}(x, {example})",
        )
        return None

    def _window(self, over: ast.Over | None) -> Window | None:
        assert over is not None, "only window rules have windowed values without OVER"
        if over.step_us is not None and not self._steps_fit(over, over.step_us):
            return None
        previous = over.kind is ast.OverKind.PREVIOUS
        if over.kind is ast.OverKind.ALL:
            return Window(Frame.ALL)
        if over.count is not None:
            if not 1 <= over.count <= MAX_EVENTS:
                self.problem(
                    "E0906",
                    f"a window of {over.count:,} events; it must be between 1 and {MAX_EVENTS:,}",
                    over.span,
                    "out of range",
                    "use another number, or a window in time",
                )
                return None
            return Window(Frame.EVENTS, over.count, previous)
        length_us, offset_us = over.length_us or 0, over.offset_us or 0
        if max(length_us, offset_us, over.step_us or 0) > MAX_DURATION_US:
            self.report(too_long(self.scope.source, over.span))
            return None
        if length_us == 0 and over.kind in (ast.OverKind.TUMBLING, ast.OverKind.SESSION):
            self.problem("E0217", "a window of no time", over.span, "no time at all", "write a longer time")
            return None
        match over.kind:
            case ast.OverKind.SESSION:
                return Window(Frame.SESSION, length_us)
            case ast.OverKind.TUMBLING:
                zone = "" if over.zone is None else over.zone.text
                if over.zone is not None and not names_zone(zone, over.zone.span, self.problem):
                    return None
                return Window(Frame.TUMBLING, length_us, offset_us=offset_us % length_us, zone=zone)
            case _:
                return Window(Frame.TIME, length_us, previous, step_us=over.step_us or 0)

    def _steps_fit(self, over: ast.Over, step_us: int) -> bool:
        """Check that a window can move in the steps after BY."""
        length_us, kind = over.length_us or 0, over.kind.value
        step, length = print_duration(step_us), print_duration(length_us)
        if over.kind not in (ast.OverKind.LAST, ast.OverKind.PREVIOUS):
            title, label = f"OVER {kind} has no BY", "this window does not move"
            help_text = "leave BY out, or write a window that moves: OVER LAST 30 DAYS BY 1 HOUR"
        elif over.count is not None:
            title, label = f"OVER {kind} {over.count} EVENTS has no BY", "steps are of time"
            help_text = f"leave BY out, or write a time: OVER {kind} 30 DAYS BY 1 HOUR"
        elif step_us == 0:
            title, label = "steps of no time", "no time at all"
            help_text = f"leave BY out: OVER {kind} {length} moves with each event"
        elif step_us > length_us:
            title = f"steps of {step}, longer than the window of {length}"
            label = "longer than the window"
            help_text = f"write shorter steps, or OVER TUMBLING {step}: the events since the step began"
        elif length_us % step_us:
            title = f"{length} does not divide into steps of {step}"
            label = f"{length_us // step_us} steps, and something is left"
            whole = print_duration((length_us // step_us + 1) * step_us)
            help_text = f"write a multiple: OVER {kind} {whole} BY {step}"
        else:
            return True
        self.problem("E0327", title, over.step_span, label, help_text)
        return False
