"""``PREV(x, n)``, typed: a value of the n-th event of the key before an event, taken or not.

It is the windowed value ``LAG(x, n) OVER ALL`` of that event. ``PREV(v.x)`` is its value for the event taken
last as v.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from cep.compiler.aggregates import AggregateFunction
from cep.compiler.typing.checker import NULL, Read
from cep.compiler.typing.functions import FunctionChecker
from cep.compiler.typing.windows import MAX_EVENTS, WindowChecker
from cep.errors import Span
from cep.expression import Aggregate, Expression, Frame, Window, Windowed, is_windowed
from cep.language import ast
from cep.language.expressions import parts_of
from cep.program.window_functions import ANY_VALUE

PREVIOUS = "PREV"

_OF_ONE_VARIABLE = AggregateFunction(PREVIOUS, ANY_VALUE, None, read=None)


class PreviousChecker(FunctionChecker, WindowChecker):
    """Types PREV."""

    @abstractmethod
    def argument_of_variable(
        self, function: AggregateFunction, node: ast.Expression
    ) -> tuple[str, Expression] | None:
        """Return the one variable of `node`, and its value for one event of it."""

    @abstractmethod
    def counts_events_of(self, variable: str, span: Span) -> bool:
        """Check that runs record the events of `variable`."""

    @abstractmethod
    def refuse_nested(self, name: str, span: Span) -> None:
        """Report an aggregate inside another one."""

    @abstractmethod
    def at_last_event(self, value: Expression, span: Span) -> Expression | None:
        """Return a value of single events in the form of a measure: that of the last event of the match."""

    def previous(self, node: ast.Function) -> Expression | None:
        """Return the windowed value, or that of the event taken as a variable; None after a report."""
        if self._in_window:
            self.problem(
                "E0218",
                "PREV inside a window or PREV",
                node.span,
                "cannot be nested",
                "write PREV(x, 2) for the event before the previous one",
            )
            return None
        if not 1 <= len(node.args) <= 2:
            self.wrong_count(node, "1 or 2")
            return None
        back = self._back(node.args[1]) if len(node.args) == 2 else 1
        argument = node.args[0]
        if back is None:
            return None
        if self._inside is not None:
            n_before = len(self._inside)
            return self._lag(self.infer(argument), back, self._inside[n_before:], argument.span)
        is_chosen = isinstance(argument, ast.Function) and argument.name.text in ("FIRST", "LAST")
        if is_chosen or self._names_another(argument):
            return self._of_taken(argument, back, chosen=is_chosen)
        found = self._lag(self.in_window(self.infer, argument), back, [], argument.span)
        if found is None or self.scope.subject is not None:
            return found
        return self.at_last_event(found, node.span)

    def _of_taken(self, argument: ast.Expression, back: int, *, chosen: bool) -> Expression | None:
        """Return PREV at an event taken before: the last one of a variable, or the one of FIRST or LAST."""
        if chosen:
            found = self.infer(argument)
            if not isinstance(found, Aggregate) or found.argument is None:  # the event under test
                return self._lag(found, back, [], argument.span)
        else:
            read = self.argument_of_variable(_OF_ONE_VARIABLE, argument)
            if read is None:
                return None
            found = Aggregate("LAST", read[0], read[1], 0, read[1].type)
        lag = self._lag(found.argument, back, [Read(found.variable, argument.span)], argument.span)
        return None if lag is None else replace(found, argument=lag)

    def _names_another(self, node: ast.Expression) -> bool:
        """Return whether `node` names a variable other than that of the event under test."""
        if isinstance(node, ast.Column):
            return node.variable is not None and not self.scope.is_of_subject(node.variable.text)
        return any(map(self._names_another, parts_of(node)))

    def _lag(self, value: Expression | None, back: int, reads: list[Read], span: Span) -> Expression | None:
        """Return the value of the event this far back, in the stream of the variables that are read."""
        if value is None:
            return None
        if value is NULL or value.type not in ANY_VALUE:
            self.of_types(PREVIOUS, [value], [span], ANY_VALUE)
            return None
        if is_windowed(value):
            self.refuse_inside("a window", span)
            return None
        names = [name for read in reads for name in self.scope.subsets.get(read.variable, (read.variable,))]
        streams = {self.scope.stream_of.get(name, self.scope.stream).name for name in names}
        streams = streams or {self.scope.stream.name}
        if self.scope.is_qualified and len(streams) > 1:
            self.problem(
                "E0315",
                f"PREV of a subset over several streams: {', '.join(sorted(streams))}",
                span,
                "the event before an event is one of its own stream",
                "write PREV of each variable, and choose by COALESCE",
            )
            return None
        stream = min(streams) if self.scope.is_qualified else ""
        return Windowed("LAG", value, None, Window(Frame.ALL), float(back), stream, value.type)

    def _back(self, node: ast.Expression) -> int | None:
        if (
            isinstance(node, ast.Constant)
            and node.kind is ast.Kind.INTEGER
            and isinstance(node.value, int)
            and 1 <= node.value <= MAX_EVENTS
        ):
            return node.value
        self.problem(
            "E0206",
            f"PREV needs a whole number of events from 1 to {MAX_EVENTS:,} as its second argument",
            node.span,
            "not such a number",
            "write PREV(x, 1), or PREV(x)",
        )
        return None
