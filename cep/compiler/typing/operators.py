"""Operators: arithmetic, comparisons, LIKE, RLIKE, IN, BETWEEN, IS and CASE, typed."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from cep.compiler.typing.checker import NULL, NUMBERS, Checker, as_double, as_interval, shown
from cep.compiler.typing.regular_expressions import problem_of
from cep.errors import Span
from cep.expression import Aggregate, Call, Column, Expression, Literal, Type
from cep.language import ast

_NEVER = frozenset(("<", ">", "<>"))
_AS_TEXT = "a number becomes a text by CAST(x AS STRING)"


class OperatorChecker(Checker):
    """Types expressions with operators."""

    def negate(self, node: ast.Unary, operand: Expression | None) -> Expression | None:
        """Return ``-x``."""
        kinds = (*NUMBERS, Type.INTERVAL)
        checked = self.of_types("-", [operand], [node.operand.span], kinds)
        return None if checked is None else self.call("negate", checked, checked[0].type, node.span)

    def arithmetic(self, node: ast.Binary) -> Expression | None:  # noqa: C901, PLR0912 - a case for each pair of types
        """Return a sum, difference, product, quotient or remainder."""
        left, right = self.infer(node.left), self.infer(node.right)
        spans = (node.left.span, node.right.span)
        sides = [side.type for side in (left, right) if side is not None and side is not NULL]
        if node.operator == "+" and Type.STRING in sides:
            self._refuse_operator(node, Type.STRING, "texts are joined with ||; " + _AS_TEXT)
            return None
        if node.operator == "||" and Type.BOOLEAN in sides:
            self._refuse_operator(node, Type.BOOLEAN, "|| joins texts; between conditions write OR")
            return None
        if node.operator == "||":
            return self.call_with("||", [left, right], spans, (Type.STRING,), node.span)
        kinds = {
            "+": (*NUMBERS, Type.TIMESTAMP, Type.INTERVAL),
            "-": (*NUMBERS, Type.TIMESTAMP, Type.INTERVAL),
            "*": (*NUMBERS, Type.INTERVAL),
            "/": (*NUMBERS, Type.INTERVAL),
            "%": NUMBERS,
        }[node.operator]
        checked = self.of_types(node.operator, [left, right], spans, kinds)
        if checked is None:
            return None
        left, right = checked
        pair = (left.type, right.type)
        if set(pair) <= set(NUMBERS):
            if node.operator == "/":
                return self.call("/", [as_double(left), as_double(right)], Type.DOUBLE, node.span)
            if Type.DOUBLE in pair:
                left, right = as_double(left), as_double(right)
            return self.call(node.operator, [left, right], left.type, node.span)
        match node.operator, *pair:
            case "+" | "-", Type.INTERVAL, Type.INTERVAL:
                return self.call(node.operator, [left, right], Type.INTERVAL, node.span)
            case "+" | "-", Type.TIMESTAMP, Type.INTERVAL:
                return self.call(node.operator, [left, right], Type.TIMESTAMP, node.span)
            case "+", Type.INTERVAL, Type.TIMESTAMP:
                return self.call("+", [right, left], Type.TIMESTAMP, node.span)
            case "-", Type.TIMESTAMP, Type.TIMESTAMP:
                return self.call("-", [left, right], Type.INTERVAL, node.span)
            case "*", Type.INTERVAL, Type.BIGINT:
                return self.call("*", [left, right], Type.INTERVAL, node.span)
            case "*", Type.BIGINT, Type.INTERVAL:
                return self.call("*", [right, left], Type.INTERVAL, node.span)
            case ("*", Type.INTERVAL, Type.DOUBLE) | ("*", Type.DOUBLE, Type.INTERVAL):
                return as_interval(Call("*", (as_double(left), as_double(right)), Type.DOUBLE))
            case "/", Type.INTERVAL, Type.BIGINT | Type.DOUBLE:
                return as_interval(Call("/", (as_double(left), as_double(right)), Type.DOUBLE))
            case "/", Type.INTERVAL, Type.INTERVAL:
                return self.call("/", [as_double(left), as_double(right)], Type.DOUBLE, node.span)
        help_text = "times and durations: t + d, t - d, t - t, d + d, d - d, d * 2, d / 2, d / d"
        if Type.BIGINT in pair and node.operator in "+-":
            help_text = f"give the number a unit, for example 5 SECONDS; {help_text}"
        self.problem(
            "E0207",
            f"`{node.operator}` between {shown(left.type)} and {shown(right.type)}",
            node.operator_span,
            "these do not go together",
            help_text,
        )
        return None

    def _refuse_operator(self, node: ast.Binary, given: Type, help_text: str) -> None:
        self.problem(
            "E0206",
            f"`{node.operator}` of {shown(given)}",
            node.operator_span,
            f"not an operator of {shown(given)}",
            help_text,
        )

    def comparison(self, node: ast.Binary) -> Expression | None:
        """Return a comparison of two values."""
        sides = [self.infer(node.left), self.infer(node.right)]
        return self._compare(
            node.operator, sides, (node.left.span, node.right.span), node.operator_span, node.span
        )

    def _compare(
        self,
        operator: str,
        sides: Sequence[Expression | None],
        spans: Sequence[Span],
        place: Span,
        span: Span,
    ) -> Expression | None:
        if any(side is NULL for side in sides):
            self.problem(
                "W0502",
                "a comparison with NULL is never true",
                place,
                "NULL equals nothing, not even NULL",
                "write IS NULL or IS NOT NULL",
            )
        same = self.unify(sides, spans)
        if same is None:
            return None
        if same[0] is NULL:
            same = [Literal(None, Type.BOOLEAN), Literal(None, Type.BOOLEAN)]
        elif operator not in ("=", "<>") and same[0].type is Type.BOOLEAN:
            self.refuse_type(operator, Type.BOOLEAN, place, "a type that has an order; use = or <>")
            return None
        if same[0] == same[1] and not isinstance(same[0], Literal):
            self._warn_same(operator, same[0], place)
        return self.call(operator, same, Type.BOOLEAN, span)

    def _warn_same(self, operator: str, side: Expression, place: Span) -> None:
        help_text = "compare with something else"
        subject = self.scope.subject
        if subject is not None and subject in self.scope.taken:
            help_text = (
                f"the event under test is itself the last `{subject}`; the one before it is "
                f"LAST({subject}.{side.name if isinstance(side, Column) else self.some_column()}, 1)"
            )
        if operator in _NEVER:
            title, code = "this comparison is never true", "W0502"
        else:
            title, code = "this comparison is true of every value but NULL", "W0503"
        self.problem(code, title, place, "both sides are the same", help_text)

    def between(self, node: ast.Between) -> Expression | None:
        """Return ``x BETWEEN low AND high``."""
        operand, low, high = (self.infer(part) for part in (node.operand, node.low, node.high))
        spans = (node.operand.span, node.low.span), (node.operand.span, node.high.span)
        above = self._compare(">=", [operand, low], spans[0], node.low.span, node.span)
        below = self._compare("<=", [operand, high], spans[1], node.high.span, node.span)
        inside = self.call_of("and", [above, below], Type.BOOLEAN, node.span)
        return self.negated(inside, node.negated, node.span)

    def in_(self, node: ast.In) -> Expression | None:
        """Return ``x IN (...)``."""
        if any(isinstance(item, ast.Column) for item in node.items):
            return self.in_taken(node)
        for item in node.items:
            if isinstance(item, ast.Constant) and item.kind is ast.Kind.NULL:
                self.problem(
                    "E0206",
                    "NULL in a list",
                    item.span,
                    "equals nothing",
                    "take it out, and add OR x IS NULL if that is meant",
                )
                return None
        parts = [self.infer(part) for part in (node.operand, *node.items)]
        same = self.unify(parts, [node.operand.span, *(item.span for item in node.items)])
        if same is None:
            return None
        return self.negated(self.call("in", same, Type.BOOLEAN, node.span), node.negated, node.span)

    @abstractmethod
    def in_taken(self, node: ast.In) -> Expression | None:
        """Return ``x IN (v.y)``, typed."""

    def like(self, node: ast.Like) -> Expression | None:
        """Return ``x LIKE pattern`` or ``x RLIKE pattern``."""
        operator = node.operator
        operand = self.of_types(operator, [self.infer(node.operand)], [node.operand.span], (Type.STRING,))
        if operator == "RLIKE":
            if not self._is_regular(node.pattern):
                return None
        elif re.fullmatch(r"(?:[^\\]|\\[%_\\])*", node.pattern.text, re.DOTALL) is None:
            self.problem(
                "E0206",
                "a `\\` in the pattern that quotes nothing",
                node.pattern.span,
                "`\\` is allowed only before %, _ and \\",
                "write \\\\ for the character itself",
            )
            return None
        if operand is None:
            return None
        args = [*operand, Literal(node.pattern.text, Type.STRING)]
        call = self.call(operator.lower(), args, Type.BOOLEAN, node.span)
        return self.negated(call, node.negated, node.span)

    def _is_regular(self, pattern: ast.Text) -> bool:
        """Report what is wrong with a regular expression, at its place inside the quotes."""
        found = problem_of(pattern.text)
        if found is None:
            return True
        span, written = pattern.span, pattern.text.replace("'", "''")
        if span.end - span.start != len(written) + 2:  # the value of a parameter that was set
            self.problem(found.code, found.title, span, found.label, found.help)
            return False
        # A quote inside a text is written twice.
        start, stop = (
            pattern.span.start + 1 + at + pattern.text.count("'", 0, at) for at in (found.start, found.stop)
        )
        self.problem(found.code, found.title, Span(start, stop), found.label, found.help)
        return False

    def is_(self, node: ast.Is) -> Expression | None:
        """Return ``x IS NULL``, TRUE or FALSE."""
        if node.what is None:
            value = self.infer_any(node.operand)
            if value is None:
                return None
            function = "is_not_null" if node.negated else "is_null"
            if isinstance(value, Aggregate) and value.type is Type.OPAQUE:
                return _remembered_null(function, value)
            return self.call(function, [value], Type.BOOLEAN, node.span)
        value = self.condition(node.operand)
        if value is None:
            return None
        if not node.what:
            value = Call("not", (value,), Type.BOOLEAN)
        known = Call("coalesce", (value, Literal(False, Type.BOOLEAN)), Type.BOOLEAN)
        return self.negated(known, node.negated, node.span)

    def case(self, node: ast.Case) -> Expression | None:
        """Return a CASE."""
        conditions = [self._case_condition(node.operand, when.condition) for when in node.whens]
        values = [self.infer(when.value) for when in node.whens]
        spans = [when.value.span for when in node.whens]
        if node.otherwise is not None:
            values.append(self.infer(node.otherwise))
            spans.append(node.otherwise.span)
        else:
            values.append(NULL)
            spans.append(node.span)
        same = self.unify(values, spans)
        if same is None or any(condition is None for condition in conditions):
            return None
        if same[0] is NULL:
            return NULL
        args: list[Expression | None] = []
        for condition, value in zip(conditions, same, strict=False):  # the last value is the else
            args += [condition, value]
        return self.call_of("case", [*args, same[-1]], same[0].type, node.span)

    def _case_condition(self, operand: ast.Expression | None, condition: ast.Expression) -> Expression | None:
        if operand is None:
            return self.condition(condition)
        sides = [self.infer(operand), self.infer(condition)]
        spans = (operand.span, condition.span)
        return self._compare("=", sides, spans, condition.span, condition.span)

    def negated(self, value: Expression | None, negated: bool, span: Span) -> Expression | None:
        """Return ``NOT value`` where NOT was written."""
        if value is None or not negated:
            return value
        return self.call("not", [value], Type.BOOLEAN, span)


def _remembered_null(function: str, event: Aggregate) -> Expression:
    """Return whether a column of a remembered event is NULL: all that a run remembers of it."""
    assert event.argument is not None
    of_event = Call(function, (event.argument,), Type.BOOLEAN)
    answer = Aggregate(event.kind, event.variable, of_event, event.offset, Type.BOOLEAN)
    without_event = Literal(function == "is_null", Type.BOOLEAN)
    return Call("coalesce", (answer, without_event), Type.BOOLEAN)
