"""Expressions of window rules: aggregates over the events of a window, and WHERE, which reads one event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from cep.compiler.aggregates import AGGREGATES
from cep.compiler.typing.checker import Scope
from cep.compiler.typing.inference import Inference
from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Diagnostic, Span
from cep.expression import Call, Expression, Type, Window, Windowed
from cep.language import ast
from cep.program.window_functions import WINDOW_FUNCTIONS
from cep.schema.stream import Stream

_INSTEAD = {
    "FIRST": "write FIRST_VALUE(x)",
    "LAST": "write LAST_VALUE(x)",
    "ARRAY_AGG": "a window keeps no list of its events: report COUNT, MIN and MAX, or write a PATTERN",
    "LAG": "it asks from an event: write it with OVER in the rule of a pattern",
    "SEEN": "it asks for the value of an event: write COUNT(*) FILTER (WHERE x = 'a') > 0",
}
"""Functions that window rules do not have -> what to write."""


class WindowRuleInference(Inference):
    """Types the expressions of a window rule.

    `scope`: has no variables. `where`: which events count; None: all.
    """

    def __init__(
        self,
        scope: Scope,
        report: Callable[[Diagnostic], None],
        streams: Mapping[str, Stream],
        window: Window,
        where: Expression | None = None,
    ) -> None:
        super().__init__(scope, report)
        self.streams = streams
        self.window = window
        self.where = where
        self._streams_read: dict[str, Span] = {}  # by the aggregate that is being read
        self._is_where = False

    def where_condition(self, node: ast.Expression) -> Expression | None:
        """Return the condition of WHERE."""
        self._is_where = True
        found = self.in_window(self.condition, node)
        self._is_where = False
        return found

    def infer_any(self, node: ast.Expression) -> Expression | None:
        """Return `node` typed."""
        if isinstance(node, ast.Function) and node.name.text in (*WINDOW_FUNCTIONS, *AGGREGATES):
            return self._over_window(ast.Windowed(node.name, node.args, False, None, None, node.span))
        if isinstance(node, ast.Windowed):
            return self._over_window(node)
        return super().infer_any(node)

    def _over_window(self, node: ast.Windowed) -> Expression | None:
        """Return an aggregate over the events of the window that count."""
        name = node.name.text
        if self._in_window and self._is_where:
            self.problem(
                "E0246",
                f"{name} in WHERE",
                node.span,
                "WHERE says which events count, one by one",
                f"compare it in HAVING: HAVING {name}(...) > 5",
            )
            return None
        if self._in_window:
            self.refuse_inside(name, node.span)
            return None
        if node.over is not None or name in _INSTEAD:
            what, label = f"{name} in a window rule", "not a value of a whole window"
            if node.over is not None:
                what, label = "OVER in a window rule", "the window is the one of the rule"
            self.problem(
                "E0246",
                what,
                node.span if node.over is None else node.over.span,
                label,
                _INSTEAD.get(name, "leave OVER out; or write the rule with a PATTERN of one event"),
            )
            return None
        self._streams_read = {}
        starred = node.args[0] if len(node.args) == 1 else None
        if name == "COUNT" and isinstance(starred, ast.Events) and starred.variable is not None:
            if self._stream_named(starred.variable) is None:
                return None
            star = ast.Events(None, starred.span)
            node = replace(node, args=(star,))
        found = self.windowed(node)
        if not isinstance(found, Windowed):
            return None
        if len(self._streams_read) > 1:
            first, second, *_ = self._streams_read
            self.problem(
                "E0245",
                f"columns of `{first}` and of `{second}` in one aggregate",
                self._streams_read[second],
                "an event is of one stream",
                "write an aggregate for each stream, and join their values",
            )
            return None
        parts = [part for part in (self.where, found.condition) if part is not None]
        condition = Call("and", tuple(parts), Type.BOOLEAN) if len(parts) > 1 else next(iter(parts), None)
        stream = next(iter(self._streams_read), "") if self.scope.is_qualified else ""
        return replace(found, condition=condition, stream=stream)

    def _window(self, over: ast.Over | None) -> Window | None:
        return self.window if over is None else super()._window(over)

    def refuse_type(self, name: str, given: Type, span: Span, needs: str) -> None:
        """Report an operand of a type that `name` does not take; for a BOOLEAN say how to count its TRUE."""
        if given is Type.BOOLEAN and name in ("AVG", "SUM"):
            x = self.scope.source.text[span.start : span.end]
            self.problem(
                "E0206",
                f"{name} of BOOLEAN",
                span,
                "this is BOOLEAN",
                f"write {name}(IF({x}, 1, 0)), or count: COUNT(*) FILTER (WHERE {x})",
            )
            return
        super().refuse_type(name, given, span, needs)

    # Columns

    def _bare_column(self, node: ast.Column) -> Expression | None:
        if self.scope.is_qualified:
            having = [name for name, stream in self.streams.items() if stream.field(node.name.text)]
            self.problem(
                "E0232",
                f"`{node.name.text}` of which stream?",
                node.span,
                "the rule reads several streams",
                f"write {' or '.join(f'{name}.{node.name.text}' for name in having or self.streams)}",
            )
            return None
        return self._column_in(self.scope.stream, node)

    def _column_of(self, variable: ast.Name, node: ast.Column) -> Expression | None:
        stream = self._stream_named(variable, node.name.text)
        if stream is None:
            return None
        if node.table is None:
            return self._column_in(stream, node)
        join = self.scope.joins.get(node.table.text)
        if join is not None and join.stream != stream.name:
            self.problem(
                "E0231",
                f"`{stream.name}` has no rows of `{node.table.text}`",
                variable.span,
                f"joined to the events of `{join.stream}`",
                f"write {node.table.text}.{node.name.text}",
            )
            return None
        return self.joined_of_event(node.table, node)

    def joined_of_event(self, table: ast.Name, node: ast.Column) -> Expression | None:
        """Return ``table.x`` of an event of the window."""
        found = self.of_table(table, node.name)
        join = self.scope.joins.get(table.text)
        if found is None or join is None:
            return None
        self._streams_read.setdefault(join.stream, node.span)
        return self._of_one_event(f"{table.text}.{node.name.text}", found, node.span)

    def _column_in(self, stream: Stream, node: ast.Column) -> Expression | None:
        found = self._field(node.name, stream, is_bare=node.variable is None)
        if found is None:
            return None
        self._streams_read.setdefault(stream.name, node.span)
        return self._of_one_event(node.name.text, found, node.span)

    def _of_one_event(self, written: str, found: Expression, span: Span) -> Expression | None:
        """Return `found`, which has a value for each event. Outside an aggregate, report a problem and return
        None.
        """
        if self._in_window:
            return found
        self.problem(
            "E0245",
            f"`{written}` of which event?",
            span,
            "a window has many events",
            f"write an aggregate: MAX({written}), LAST_VALUE({written})",
        )
        return None

    def _stream_named(self, name: ast.Name, column: str = "") -> Stream | None:
        dotted = f"{name.text}.{column}"
        if name.text not in self.streams:
            is_dotted = any(stream.field(dotted) is not None for stream in self.streams.values())
            self.problem(
                "E0231",
                f"`{name.text}` is not a stream of this rule",
                name.span,
                "not in FROM",
                f"put the column in backticks: `{dotted}`"
                if is_dotted
                else did_you_mean(name.text, tuple(self.streams), "streams of the rule"),
            )
            return None
        self._streams_read.setdefault(name.text, name.span)
        return self.streams[name.text]
