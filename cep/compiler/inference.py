"""Names and types of expressions: ``ast.Expression`` -> `cep.expression.Expression`.

Whatever reads one event only ends up as plain columns: ``v.x`` inside v's own condition is the event under
test, and string functions over the columns of one remembered event move into the aggregate, so that runs
remember their result. A subtree with a problem is reported and becomes None; the rest is still checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from cep.errors import Diagnostic, Source, Span
from cep.expression import Aggregate, Call, Column, Expression, Literal, Type, is_local
from cep.language import ast
from cep.language.diagnostics import did_you_mean
from cep.language.time_literals import MAX_DURATION_US
from cep.schema import Stream

MAX_OFFSET = 63
"""Of LAST: each event back is a register of every run."""

AGGREGATES = ("FIRST", "LAST", "COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV")

_NUMBERS = (Type.BIGINT, Type.DOUBLE)
_SUMMABLE: dict[str, tuple[Type, ...]] = {
    "SUM": (*_NUMBERS, Type.INTERVAL),
    "AVG": _NUMBERS,
    "STDDEV": _NUMBERS,
    "MIN": (*_NUMBERS, Type.TIMESTAMP, Type.INTERVAL),
    "MAX": (*_NUMBERS, Type.TIMESTAMP, Type.INTERVAL),
}

_ARITY: dict[str, tuple[int, int | None]] = {
    "ABS": (1, 1),
    "CEIL": (1, 1),
    "COALESCE": (1, None),
    "CONTAINS": (2, 2),
    "DOUBLE": (1, 1),
    "ENDSWITH": (2, 2),
    "FLOOR": (1, 1),
    "GREATEST": (2, None),
    "LEAST": (2, None),
    "LENGTH": (1, 1),
    "LOWER": (1, 1),
    "SQRT": (1, 1),
    "STARTSWITH": (2, 2),
    "UPPER": (1, 1),
}
"""Functions of values and how many arguments they take."""

_LATER_FUNCTIONS = {
    "PREV": "LAST(v.x, 1) is the event before the last one taken as v",
    "NEXT": "give the next event a variable of its own",
    "CLASSIFIER": "COUNT(v.*) > 0 says whether v was taken",
    "MATCH_NUMBER": "every match has its own match_id",
}

# NULL as soon as one argument is: f(LAST(v.x)) is LAST(v.(f(x))).
_STRICT_IN_NULL = frozenset(
    (
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "in",
        "like",
        "lower",
        "upper",
        "length",
        "contains",
        "startswith",
        "endswith",
    )
)
_EQUALITY = frozenset(("=", "<>", "is_null", "is_not_null"))
_NEVER = frozenset(("<", ">", "<>"))

_NULL = Literal(None, Type.BOOLEAN)
"""NULL before its type is known; told apart by identity."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression may refer to. `subject` is the variable whose condition it is; None in a measure."""

    source: Source
    stream: Stream
    taken: tuple[str, ...]
    absent: tuple[str, ...]
    subject: str | None


@dataclass(frozen=True, slots=True)
class Read:
    """A variable an expression reads, and where."""

    variable: str
    span: Span


class Inference:
    """Types the expressions of one scope; problems go to `report`."""

    def __init__(self, scope: Scope, report: Callable[[Diagnostic], None]) -> None:
        self.scope = scope
        self.report = report
        self.reads: list[Read] = []
        self._inside: list[Read] | None = None  # variables met in the aggregate being read

    def condition(self, node: ast.Expression) -> Expression | None:
        """Return `node` as a BOOLEAN expression."""
        found = self._infer(node)
        if found is None:
            return None
        if found is _NULL:
            return Literal(None, Type.BOOLEAN)
        if found.type is not Type.BOOLEAN:
            self._problem(
                "E0208",
                f"this condition is {_shown(found.type)}",
                node.span,
                "expected BOOLEAN",
                "compare it with something, for example `> 0`",
            )
            return None
        return found

    def value(self, node: ast.Expression) -> Expression | None:
        """Return `node` as an expression that has a type."""
        found = self._infer(node)
        if found is _NULL:
            self._problem(
                "E0212",
                "NULL alone has no type",
                node.span,
                "the output column would have no type",
                "give it one: COALESCE with a column, or leave the measure out",
            )
            return None
        return found

    def _problem(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> None:
        self.report(Diagnostic(code, title, self.scope.source, span, label, help_text))

    def _infer(self, node: ast.Expression) -> Expression | None:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Column(variable=None):
                return self._bare_column(node)
            case ast.Column(variable=variable) if variable is not None:
                return self._column_of(variable, node)
            case ast.Events(variable=variable):
                self._problem(
                    "E0210",
                    f"`{variable.text}.*` stands only in COUNT",
                    node.span,
                    "all events of a variable are not a value",
                    f"write COUNT({variable.text}.*) or a column: {variable.text}.{self._some_column()}",
                )
                return None
            case ast.Function():
                return self._function(node)
            case ast.Unary(operator="not", operand=operand):
                inner = self.condition(operand)
                return None if inner is None else self._call("not", [inner], Type.BOOLEAN, node.span)
            case ast.Unary(operand=operand):
                return self._negate(node, self._infer(operand))
            case ast.Binary(operator="+" | "-" | "*" | "/" | "%"):
                return self._arithmetic(node)
            case ast.Binary():
                return self._comparison(node)
            case ast.Junction(operator=operator, terms=terms):
                parts = [self.condition(term) for term in terms]
                return self._call_of(operator, parts, Type.BOOLEAN, node.span)
            case ast.Between():
                return self._between(node)
            case ast.In():
                return self._in(node)
            case ast.Like():
                return self._like(node)
            case ast.Is():
                return self._is(node)
            case ast.Case():
                return self._case(node)
            case _:
                raise AssertionError(node)

    # Leaves

    def _constant(self, node: ast.Constant) -> Expression | None:
        match node.kind:
            case ast.Kind.NULL:
                return _NULL
            case ast.Kind.BOOLEAN:
                return Literal(node.value, Type.BOOLEAN)
            case ast.Kind.INTEGER:
                return Literal(node.value, Type.BIGINT)
            case ast.Kind.DECIMAL:
                return Literal(node.value, Type.DOUBLE)
            case ast.Kind.TEXT:
                return Literal(node.value, Type.STRING)
            case ast.Kind.TIMESTAMP:
                return Literal(node.value, Type.TIMESTAMP)
            case ast.Kind.INTERVAL:
                assert isinstance(node.value, int)
                if node.value > MAX_DURATION_US:
                    self.report(too_long(self.scope.source, node.span))
                    return None
                return Literal(node.value, Type.INTERVAL)
            case _:
                assert_never(node.kind)

    def _some_column(self) -> str:
        return self.scope.stream.fields[0].name

    def _field(self, name: ast.Name) -> Column | None:
        stream = self.scope.stream
        field = stream.field(name.text)
        if field is not None:
            return Column(field.name, field.type)
        names = [field.name for field in stream.fields]
        help_text = did_you_mean(name.text, names, "columns")
        if name.text in (*self.scope.taken, *self.scope.absent):
            help_text = f"`{name.text}` is a variable: write {name.text}.{self._some_column()}"
        self._problem(
            "E0203",
            f"stream `{stream.name}` has no column `{name.text}`",
            name.span,
            f"not a column of `{stream.name}`",
            help_text,
        )
        return None

    def _bare_column(self, node: ast.Column) -> Expression | None:
        found = self._field(node.name)
        if found is None:
            return None
        names = ", ".join(f"{variable}.{found.name}" for variable in self.scope.taken[:5])
        if self._inside is not None:
            self._problem(
                "E0210",
                f"`{found.name}` of which variable?",
                node.span,
                "an aggregate is over the events of one variable",
                f"write one of: {names}",
            )
            return None
        if self.scope.subject is None:
            self._problem(
                "E0209",
                f"`{found.name}` of which variable?",
                node.span,
                "a measure has no event of its own",
                f"write one of: {names}",
            )
            return None
        return found

    def _variable(self, name: ast.Name) -> bool:
        """Check that events are taken as `name`."""
        scope = self.scope
        if name.text in scope.taken or name.text == scope.subject:
            return True
        if name.text in scope.absent:
            self._problem(
                "E0202",
                f"no event is ever taken as `{name.text}`",
                name.span,
                f"stands only as `!{name.text}` in the pattern",
                f"use a variable that takes events: {', '.join(scope.taken)}",
            )
            return False
        help_text = did_you_mean(name.text, scope.taken, "variables")
        if name.text == scope.stream.name:
            help_text = "leave out the stream's name: a column of the event under test stands alone"
        self._problem(
            "E0202",
            f"the pattern has no variable `{name.text}`",
            name.span,
            "not a variable of the pattern",
            help_text,
        )
        return False

    def _column_of(self, variable: ast.Name, node: ast.Column) -> Expression | None:
        known = self._variable(variable)
        found = self._field(node.name)
        if not known or found is None:
            return None
        if self._inside is not None:
            self._inside.append(Read(variable.text, node.span))
            return found
        if variable.text == self.scope.subject:
            return found
        self.reads.append(Read(variable.text, node.span))
        return Aggregate("LAST", variable.text, found, 0, found.type)

    # Functions

    def _function(self, node: ast.Function) -> Expression | None:
        name = node.name.text
        if name in AGGREGATES:
            return self._aggregate(name, node)
        if name not in _ARITY:
            self._unknown_function(name, node)
            return None
        least, most = _ARITY[name]
        if not least <= len(node.args) <= (len(node.args) if most is None else most):
            self._wrong_count(node, f"{least} or more" if most is None else str(least))
            return None
        args = [self._infer(arg) for arg in node.args]
        spans = [arg.span for arg in node.args]
        match name:
            case "COALESCE" | "LEAST" | "GREATEST":
                same = self._unify(args, spans)
                if same is None or same[0] is _NULL:
                    return None if same is None else _NULL
                if name != "COALESCE" and same[0].type is Type.BOOLEAN:
                    self._refuse_type(name, same[0].type, spans[0], "a type that has an order")
                    return None
                return self._call(name.lower(), same, same[0].type, node.span)
            case "CONTAINS" | "STARTSWITH" | "ENDSWITH":
                return self._call_with(name, args, spans, (Type.STRING,), Type.BOOLEAN, node.span)
            case "LOWER" | "UPPER":
                return self._call_with(name, args, spans, (Type.STRING,), Type.STRING, node.span)
            case "LENGTH":
                return self._call_with(name, args, spans, (Type.STRING,), Type.BIGINT, node.span)
            case "ABS":
                kinds = (*_NUMBERS, Type.INTERVAL)
                return self._call_with(name, args, spans, kinds, None, node.span)
            case _:
                return self._numeric(name, args, spans, node.span)

    def _numeric(
        self, name: str, args: Sequence[Expression | None], spans: Sequence[Span], span: Span
    ) -> Expression | None:
        checked = self._of_types(name, args, spans, _NUMBERS)
        if checked is None:
            return None
        (value,) = checked
        match name:
            case "DOUBLE":
                return _as_double(value)
            case "SQRT":
                return self._call("sqrt", [_as_double(value)], Type.DOUBLE, span)
            case _:  # FLOOR, CEIL: a BIGINT is its own
                return (
                    value
                    if value.type is Type.BIGINT
                    else self._call(name.lower(), [value], Type.BIGINT, span)
                )

    def _unknown_function(self, name: str, node: ast.Function) -> None:
        if name in _LATER_FUNCTIONS:
            self._problem(
                "E0150",
                f"{name}: not supported yet",
                node.name.span,
                "part of the language to come",
                _LATER_FUNCTIONS[name],
            )
            return
        known = (*_ARITY, *AGGREGATES)
        help_text = did_you_mean(name, known, "functions")
        if name in ("IF", "IIF", "NVL", "IFNULL"):
            other = "CASE WHEN c THEN x ELSE y END" if name in ("IF", "IIF") else "COALESCE(x, y)"
            help_text = f"write {other}"
        self._problem(
            "E0204",
            f"there is no function `{node.name.text}`",
            node.name.span,
            "not a function of the rule language",
            help_text,
        )

    def _wrong_count(self, node: ast.Function, needs: str) -> None:
        name = node.name.text
        plural = "" if needs == "1" else "s"
        self._problem(
            "E0205",
            f"{name} takes {needs} argument{plural}, not {len(node.args)}",
            node.span,
            f"{len(node.args)} given",
            f"give {name} {needs} argument{plural}",
        )

    def _aggregate(self, name: str, node: ast.Function) -> Expression | None:
        if self._inside is not None:
            self._problem(
                "E0210",
                f"{name} inside another aggregate",
                node.span,
                "cannot be nested",
                "compute it outside: an aggregate's argument is an expression over columns of one variable",
            )
            return None
        has_offset = name in ("FIRST", "LAST")
        if not 1 <= len(node.args) <= (2 if has_offset else 1):
            self._wrong_count(node, "1 or 2" if has_offset else "1")
            return None
        argument = node.args[0]
        if name == "COUNT" and isinstance(argument, ast.Events):
            if not self._variable(argument.variable) or not self._counts(
                argument.variable.text, argument.span
            ):
                return None
            self.reads.append(Read(argument.variable.text, argument.span))
            return Aggregate("COUNT", argument.variable.text, None, 0, Type.BIGINT)
        offset = self._offset(name, node.args[1]) if len(node.args) == 2 else 0
        read = self._argument(name, argument)
        if read is None or offset is None:
            return None
        variable, value = read
        if name == "LAST" and offset == 0 and variable == self.scope.subject:
            return value
        if not self._counts(variable, argument.span):
            return None
        if name in _SUMMABLE and value.type not in _SUMMABLE[name]:
            kinds = ", ".join(_shown(kind) for kind in _SUMMABLE[name])
            self._refuse_type(name, value.type, argument.span, kinds)
            return None
        kind = {"COUNT": Type.BIGINT, "AVG": Type.DOUBLE, "STDDEV": Type.DOUBLE}.get(name, value.type)
        return Aggregate(name, variable, value, offset, kind)

    def _argument(self, name: str, node: ast.Expression) -> tuple[str, Expression] | None:
        """Return the one variable `node` is about, and its value for one event of it."""
        self._inside = []
        value = self._infer(node)
        inside, self._inside = self._inside, None
        if value is None:
            return None
        variables = dict.fromkeys(read.variable for read in inside)
        if len(variables) != 1 or value is _NULL:
            what = " and ".join(f"`{variable}`" for variable in variables) or "no variable"
            self._problem(
                "E0210",
                f"{name} is over the events of one variable",
                node.span,
                f"mentions {what}",
                f"write {name}(v.{self._some_column()}) with one variable v",
            )
            return None
        self.reads.append(inside[0])
        return next(iter(variables)), value

    def _counts(self, variable: str, span: Span) -> bool:
        """Check that events of `variable` are kept: those of an absence are not, not even its own."""
        if variable in self.scope.taken:
            return True
        self._problem(
            "E0202",
            f"no event is ever taken as `{variable}`",
            span,
            f"stands only as `!{variable}` in the pattern",
            "use columns of the event under test, without an aggregate",
        )
        return False

    def _offset(self, name: str, node: ast.Expression) -> int | None:
        if (
            not isinstance(node, ast.Constant)
            or not isinstance(node.value, int)
            or node.kind is not ast.Kind.INTEGER
        ):
            self._problem(
                "E0206",
                f"the offset of {name} is not a number",
                node.span,
                "expected a whole number from 0",
                f"write {name}(v.{self._some_column()}, 1)",
            )
            return None
        limit = MAX_OFFSET if name == "LAST" else (1 << 31) - 1
        if not 0 <= node.value <= limit:
            self._problem(
                "E0906",
                f"the offset of {name} is {node.value:,}; it must be between 0 and {limit:,}",
                node.span,
                "out of range",
                "use a smaller offset",
            )
            return None
        return node.value

    # Operators

    def _negate(self, node: ast.Unary, operand: Expression | None) -> Expression | None:
        kinds = (*_NUMBERS, Type.INTERVAL)
        checked = self._of_types("-", [operand], [node.operand.span], kinds)
        return None if checked is None else self._call("negate", checked, checked[0].type, node.span)

    def _arithmetic(self, node: ast.Binary) -> Expression | None:
        left, right = self._infer(node.left), self._infer(node.right)
        spans = (node.left.span, node.right.span)
        kinds = (*_NUMBERS, Type.TIMESTAMP, Type.INTERVAL) if node.operator in "+-" else _NUMBERS
        checked = self._of_types(node.operator, [left, right], spans, kinds)
        if checked is None:
            return None
        left, right = checked
        pair = (left.type, right.type)
        if set(pair) <= set(_NUMBERS):
            if node.operator == "/":
                return self._call("/", [_as_double(left), _as_double(right)], Type.DOUBLE, node.span)
            if Type.DOUBLE in pair:
                left, right = _as_double(left), _as_double(right)
            return self._call(node.operator, [left, right], left.type, node.span)
        match node.operator, *pair:
            case "+" | "-", Type.INTERVAL, Type.INTERVAL:
                return self._call(node.operator, [left, right], Type.INTERVAL, node.span)
            case "+" | "-", Type.TIMESTAMP, Type.INTERVAL:
                return self._call(node.operator, [left, right], Type.TIMESTAMP, node.span)
            case "+", Type.INTERVAL, Type.TIMESTAMP:
                return self._call("+", [right, left], Type.TIMESTAMP, node.span)
            case "-", Type.TIMESTAMP, Type.TIMESTAMP:
                return self._call("-", [left, right], Type.INTERVAL, node.span)
        help_text = "times and durations: t + d, t - d, t - t, d + d, d - d"
        if Type.BIGINT in pair:
            help_text = f"give the number a unit, for example 5 SECONDS; {help_text}"
        self._problem(
            "E0207",
            f"`{node.operator}` between {_shown(left.type)} and {_shown(right.type)}",
            node.operator_span,
            "these do not go together",
            help_text,
        )
        return None

    def _comparison(self, node: ast.Binary) -> Expression | None:
        sides = [self._infer(node.left), self._infer(node.right)]
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
        if any(side is _NULL for side in sides):
            self._problem(
                "W0502",
                "a comparison with NULL is never true",
                place,
                "NULL equals nothing, not even NULL",
                "write IS NULL or IS NOT NULL",
            )
        same = self._unify(sides, spans)
        if same is None:
            return None
        if same[0] is _NULL:
            same = [Literal(None, Type.BOOLEAN), Literal(None, Type.BOOLEAN)]
        elif operator not in ("=", "<>") and same[0].type is Type.BOOLEAN:
            self._refuse_type(operator, Type.BOOLEAN, place, "a type that has an order; use = or <>")
            return None
        if same[0] == same[1] and not isinstance(same[0], Literal):
            self._warn_same(operator, same[0], place)
        return self._call(operator, same, Type.BOOLEAN, span)

    def _warn_same(self, operator: str, side: Expression, place: Span) -> None:
        help_text = "compare with something else"
        subject = self.scope.subject
        if subject is not None and subject in self.scope.taken:
            help_text = (
                f"the event under test is itself the last `{subject}`; the one before it is "
                f"LAST({subject}.{side.name if isinstance(side, Column) else self._some_column()}, 1)"
            )
        if operator in _NEVER:
            title, code = "this comparison is never true", "W0502"
        else:
            title, code = "this comparison is true of every value but NULL", "W0503"
        self._problem(code, title, place, "both sides are the same", help_text)

    def _between(self, node: ast.Between) -> Expression | None:
        operand, low, high = (self._infer(part) for part in (node.operand, node.low, node.high))
        spans = (node.operand.span, node.low.span), (node.operand.span, node.high.span)
        above = self._compare(">=", [operand, low], spans[0], node.low.span, node.span)
        below = self._compare("<=", [operand, high], spans[1], node.high.span, node.span)
        inside = self._call_of("and", [above, below], Type.BOOLEAN, node.span)
        return self._negated(inside, node.negated, node.span)

    def _in(self, node: ast.In) -> Expression | None:
        for item in node.items:
            if isinstance(item, ast.Constant) and item.kind is ast.Kind.NULL:
                self._problem(
                    "E0206",
                    "NULL in a list",
                    item.span,
                    "equals nothing",
                    "take it out, and add OR x IS NULL if that is meant",
                )
                return None
        parts = [self._infer(part) for part in (node.operand, *node.items)]
        same = self._unify(parts, [node.operand.span, *(item.span for item in node.items)])
        if same is None:
            return None
        return self._negated(self._call("in", same, Type.BOOLEAN, node.span), node.negated, node.span)

    def _like(self, node: ast.Like) -> Expression | None:
        operand = self._of_types("LIKE", [self._infer(node.operand)], [node.operand.span], (Type.STRING,))
        if re.fullmatch(r"(?:[^\\]|\\[%_\\])*", node.pattern.text, re.DOTALL) is None:
            self._problem(
                "E0206",
                "a `\\` in the pattern that quotes nothing",
                node.pattern.span,
                "`\\` stands only before %, _ and \\",
                "write \\\\ for the character itself",
            )
            return None
        if operand is None:
            return None
        call = self._call(
            "like", [*operand, Literal(node.pattern.text, Type.STRING)], Type.BOOLEAN, node.span
        )
        return self._negated(call, node.negated, node.span)

    def _is(self, node: ast.Is) -> Expression | None:
        if node.what is None:
            value = self._infer(node.operand)
            if value is None:
                return None
            return self._call("is_not_null" if node.negated else "is_null", [value], Type.BOOLEAN, node.span)
        value = self.condition(node.operand)
        if value is None:
            return None
        if not node.what:
            value = Call("not", (value,), Type.BOOLEAN)
        known = Call("coalesce", (value, Literal(False, Type.BOOLEAN)), Type.BOOLEAN)
        return self._negated(known, node.negated, node.span)

    def _case(self, node: ast.Case) -> Expression | None:
        conditions = [self._case_condition(node.operand, when.condition) for when in node.whens]
        values = [self._infer(when.value) for when in node.whens]
        spans = [when.value.span for when in node.whens]
        if node.otherwise is not None:
            values.append(self._infer(node.otherwise))
            spans.append(node.otherwise.span)
        else:
            values.append(_NULL)
            spans.append(node.span)
        same = self._unify(values, spans)
        if same is None or any(condition is None for condition in conditions):
            return None
        if same[0] is _NULL:
            return _NULL
        args: list[Expression | None] = []
        for condition, value in zip(conditions, same, strict=False):  # the last value is the else
            args += [condition, value]
        return self._call_of("case", [*args, same[-1]], same[0].type, node.span)

    def _case_condition(self, operand: ast.Expression | None, condition: ast.Expression) -> Expression | None:
        if operand is None:
            return self.condition(condition)
        sides = [self._infer(operand), self._infer(condition)]
        spans = (operand.span, condition.span)
        return self._compare("=", sides, spans, condition.span, condition.span)

    def _negated(self, value: Expression | None, negated: bool, span: Span) -> Expression | None:
        if value is None or not negated:
            return value
        return self._call("not", [value], Type.BOOLEAN, span)

    # Types

    def _unify(self, values: Sequence[Expression | None], spans: Sequence[Span]) -> list[Expression] | None:
        """Return `values` in one type: BIGINT beside DOUBLE becomes DOUBLE, NULL takes the others' type."""
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return None
        typed = [(value, span) for value, span in zip(known, spans, strict=True) if value is not _NULL]
        if not typed:
            return known
        first = typed[0][0]
        common = first.type
        for value, span in typed[1:]:
            if value.type is common:
                continue
            if {value.type, common} == set(_NUMBERS):
                common = Type.DOUBLE
                continue
            self._problem(
                "E0207",
                f"{_shown(first.type)} and {_shown(value.type)} do not go together",
                span,
                f"this is {_shown(value.type)}, the other is {_shown(first.type)}",
                _mixed_help({first.type, value.type}),
            )
            return None
        return [_coerce(value, common) for value in known]

    def _of_types(
        self,
        name: str,
        values: Sequence[Expression | None],
        spans: Sequence[Span],
        kinds: Sequence[Type],
    ) -> list[Expression] | None:
        """Return `values` if each has one of the types `kinds`."""
        sound: list[Expression] = []
        for value, span in zip(values, spans, strict=True):
            if value is _NULL:
                self._problem(
                    "E0206", f"{name} of NULL", span, "has no type", "leave it out: the result is always NULL"
                )
            elif value is not None and value.type not in kinds:
                self._refuse_type(name, value.type, span, ", ".join(_shown(kind) for kind in kinds))
            elif value is not None:
                sound.append(value)
        return sound if len(sound) == len(values) else None

    def _refuse_type(self, name: str, given: Type, span: Span, needs: str) -> None:
        self._problem(
            "E0206",
            f"{f'`{name}`' if not name.isalpha() else name} of {_shown(given)}",
            span,
            f"this is {_shown(given)}",
            f"it takes {needs}",
        )

    # Calls

    def _call_with(
        self,
        name: str,
        values: Sequence[Expression | None],
        spans: Sequence[Span],
        kinds: Sequence[Type],
        result: Type | None,
        span: Span,
    ) -> Expression | None:
        checked = self._of_types(name, values, spans, kinds)
        if checked is None:
            return None
        return self._call(name.lower(), checked, checked[0].type if result is None else result, span)

    def _call_of(
        self, function: str, values: Sequence[Expression | None], kind: Type, span: Span
    ) -> Expression | None:
        known = [value for value in values if value is not None]
        return self._call(function, known, kind, span) if len(known) == len(values) else None

    def _call(self, function: str, args: Sequence[Expression], kind: Type, span: Span) -> Expression | None:
        """Return the call. Runs hold strings as codes: a condition can only compare them for equality."""
        call = Call(function, tuple(args), kind)
        if (
            self.scope.subject is None
            or self._inside is not None
            or not any(arg.type is Type.STRING for arg in args)
            or is_local(call)
        ):
            return call
        moved = _move_inside(call)
        if moved is not None:
            return moved
        if function in _EQUALITY:
            return call
        self._problem(
            "E0211",
            "strings of other events can only be compared with = and <>",
            span,
            "does more with the string of another event",
            "compare the strings themselves with = or <>; functions may read the columns of one event",
        )
        return None


def too_long(source: Source, span: Span) -> Diagnostic:
    """Return the error for a duration beyond the limit."""
    return Diagnostic(
        "E0907",
        "a duration of more than 36,500 days",
        source,
        span,
        "too long",
        "use 36,500 DAYS or less",
    )


def _move_inside(call: Call) -> Expression | None:
    """Return ``f(LAST(v.x), LAST(v.y), 'text')`` as ``LAST(v.(f(x, y, 'text')))``; None: not of this form."""
    if call.function not in _STRICT_IN_NULL:
        return None
    events = {
        (arg.kind, arg.variable, arg.offset)
        for arg in call.args
        if isinstance(arg, Aggregate) and arg.argument
    }
    if len(events) != 1:
        return None
    ((kind, variable, offset),) = events
    if kind not in ("FIRST", "LAST"):
        return None
    inner: list[Expression] = []
    for arg in call.args:
        match arg:
            case Aggregate(argument=argument) if argument is not None:
                inner.append(argument)
            case Literal():
                inner.append(arg)
            case _:
                return None
    return Aggregate(kind, variable, Call(call.function, tuple(inner), call.type), offset, call.type)


def _as_double(value: Expression) -> Expression:
    match value:
        case Literal(value=int() as number):
            return Literal(float(number), Type.DOUBLE)
        case _ if value.type is Type.DOUBLE:
            return value
        case _:
            return Call("double", (value,), Type.DOUBLE)


def _coerce(value: Expression, kind: Type) -> Expression:
    if value is _NULL:
        return Literal(None, kind)
    return _as_double(value) if kind is Type.DOUBLE else value


def _shown(kind: Type) -> str:
    return kind.value.upper()


def _mixed_help(kinds: set[Type]) -> str:
    match sorted(kinds):
        case [Type.BIGINT | Type.DOUBLE, Type.STRING]:
            return "compare numbers with numbers and texts with texts: 5 is a number, '5' a text"
        case [Type.STRING, Type.TIMESTAMP]:
            return "write the point in time as TIMESTAMP '2020-01-31 00:00:00'"
        case [Type.BIGINT | Type.DOUBLE, Type.INTERVAL]:
            return "give the number a unit, for example 5 SECONDS"
        case [Type.INTERVAL, Type.TIMESTAMP]:
            return "subtract two points in time first: ts - a.ts < 5 SECONDS"
        case [Type.BOOLEAN, _]:
            return "a BOOLEAN is a condition by itself: write x or NOT x"
        case _:
            return "use values of one type"
