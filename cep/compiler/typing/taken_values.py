"""The values that a run has taken as a set, typed: ``COUNT(DISTINCT v.x)`` and ``x IN (v.y)``."""

from __future__ import annotations

from cep.compiler.aggregates import AggregateFunction
from cep.compiler.typing.operators import OperatorChecker
from cep.compiler.typing.previous import PreviousChecker
from cep.expression import IN_TAKEN, Aggregate, Expression, Type
from cep.language import ast
from cep.program.window_functions import ANY_VALUE

_DISTINCT = AggregateFunction("COUNT(DISTINCT ...)", ANY_VALUE, None, read=None)
_VALUES = AggregateFunction("IN (v.x)", ANY_VALUE, None, read=None)


class TakenValuesChecker(PreviousChecker, OperatorChecker):
    """Types expressions that need the different values of a variable."""

    def count_distinct(self, node: ast.Function) -> Expression | None:
        """Return ``COUNT(DISTINCT v.x)``, typed."""
        if self._inside is not None:
            self.refuse_nested("COUNT(DISTINCT ...)", node.span)
            return None
        if len(node.args) != 1:
            self.wrong_count(node, "1")
            return None
        found = self._values_of(_DISTINCT, node.args[0])
        return None if found is None else Aggregate("DISTINCT", *found, 0, Type.BIGINT)

    def in_taken(self, node: ast.In) -> Expression | None:
        """Return ``x IN (v.y)``, typed."""
        item = node.items[0]
        if self.scope.subject is None or self._inside is not None or self._in_window:
            where = "a measure" if self.scope.subject is None else "a window or an aggregate"
            self.problem(
                "E0318",
                f"IN over the events of a variable is allowed only in conditions, not in {where}",
                item.span,
                "the values that a run has taken are no list of constants",
                "ask for it in DEFINE, or report the values: ARRAY_AGG(v.x)",
            )
            return None
        operand = self.infer(node.operand)
        found = self._values_of(_VALUES, item)
        if operand is None or found is None:
            return None
        variable, value = found
        if self.scope.is_of_subject(variable) and operand == value:
            self.problem(
                "W0519",
                "this event is itself one of the events it is compared with",
                node.span,
                f"always {'FALSE' if node.negated else 'TRUE'}: the event under test counts as taken",
                f"for an event whose value is new write COUNT(DISTINCT {self._shown(item)}) = COUNT"
                f"({variable}.*), or a loop {variable}->+ DISTINCT BY a column",
            )
        same = self.unify([operand, value], [node.operand.span, item.span])
        if same is None:
            return None
        values = Aggregate("VALUES", variable, same[1], 0, same[1].type)
        return self.negated(
            self.call(IN_TAKEN, [same[0], values], Type.BOOLEAN, node.span), node.negated, node.span
        )

    def _values_of(self, function: AggregateFunction, node: ast.Expression) -> tuple[str, Expression] | None:
        """Return the variable, and the value for each of its events."""
        read = self.argument_of_variable(function, node)
        if read is None or not self.counts_events_of(read[0], node.span):
            return None
        if read[1].type not in ANY_VALUE:
            self.of_types(function.name, [read[1]], [node.span], ANY_VALUE)
            return None
        return read

    def _shown(self, node: ast.Expression) -> str:
        return self.scope.source.text[node.span.start : node.span.end]
