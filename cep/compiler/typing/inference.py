"""Names and types of expressions: ``ast.Expression`` -> `cep.expression.Expression`.

What reads one event only becomes plain columns. ``v.x`` inside v's own condition is a column of the event
under test. String functions over the columns of one remembered event move into the aggregate, so runs
remember their result. A subtree with a problem is reported and becomes None; the rest is still checked.
"""

from __future__ import annotations

from typing import assert_never

from cep.compiler.aggregates import AGGREGATES, AggregateFunction, is_list
from cep.compiler.typing.checker import NULL, Read, shown, too_long
from cep.compiler.typing.joins import JoinChecker
from cep.compiler.typing.previous import PREVIOUS
from cep.compiler.typing.taken_values import TakenValuesChecker
from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Span
from cep.expression import ALL_EVENTS, Aggregate, Call, Column, Expression, Literal, Type, is_windowed
from cep.language import ast
from cep.schema.stream import Stream, qualified
from cep.schema.time_literals import MAX_DURATION_US

MAX_OFFSET = 63
"""Of LAST: each event back is a register of every run."""


class Inference(TakenValuesChecker, JoinChecker):
    """Types the expressions of one scope."""

    def value(self, node: ast.Expression) -> Expression | None:
        """Return `node` as an expression that has a type."""
        found = self.infer(node)
        if found is NULL:
            self.problem(
                "E0212",
                "NULL alone has no type",
                node.span,
                "the output column would have no type",
                "give it one: COALESCE with a column, or leave the measure out",
            )
            return None
        return found

    def infer_any(self, node: ast.Expression) -> Expression | None:  # noqa: C901, PLR0912 - a case for each kind of node
        """Return `node` typed."""
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Column(variable=ast.Name() as name) if self.is_of_table(node):
                return self.joined_of_event(name, node) if node.table is None else self._column_of(name, node)
            case ast.Column(variable=variable):
                return self._bare_column(node) if variable is None else self._column_of(variable, node)
            case ast.Events():
                self._refuse_events(node)
                return None
            case ast.Function() if is_list(node.name.text):
                self._refuse_list(node)
                return None
            case ast.Function() if node.name.text == PREVIOUS:
                return self.previous(node)
            case ast.Function() if node.name.text in AGGREGATES and self._in_window:
                self.refuse_inside(node.name.text, node.span)
                return None
            case ast.Function(is_distinct=True):
                return self.count_distinct(node)
            case ast.Function() if node.name.text in AGGREGATES:
                return self._aggregate(AGGREGATES[node.name.text], node)
            case ast.Function():
                return self.function(node)
            case ast.Windowed():
                found = self.windowed(node)
                if found is None or self.scope.subject is not None or self._inside is not None:
                    return found
                return self.at_last_event(found, node.span)
            case ast.Unary(operator="not", operand=operand):
                inner = self.condition(operand)
                return None if inner is None else self.call("not", [inner], Type.BOOLEAN, node.span)
            case ast.Unary(operand=operand):
                return self.negate(node, self.infer(operand))
            case ast.Binary(operator="+" | "-" | "||" | "*" | "/" | "%"):
                return self.arithmetic(node)
            case ast.Binary():
                return self.comparison(node)
            case ast.Junction(operator=operator, terms=terms):
                parts = [self.condition(term) for term in terms]
                return self.call_of(operator, parts, Type.BOOLEAN, node.span)
            case ast.Between():
                return self.between(node)
            case ast.In():
                return self.in_(node)
            case ast.Like():
                return self.like(node)
            case ast.Is():
                return self.is_(node)
            case ast.Case():
                return self.case(node)
            case ast.Cast():
                return self.cast(node)
            case _:
                assert_never(node)

    def measure(self, node: ast.Expression) -> Expression | None:
        """Return `node` as a measure: a value, or the list of ARRAY_AGG."""
        if isinstance(node, ast.Function) and is_list(node.name.text):
            return self._aggregate(AGGREGATES[node.name.text], node)
        return self.value(node)

    def _refuse_events(self, node: ast.Events) -> None:
        if node.variable is None:
            self.problem(
                "E0210",
                "`*` is allowed only in COUNT",
                node.span,
                "all events are not a value",
                "write COUNT(*)",
            )
            return
        name = node.variable.text
        self.problem(
            "E0210",
            f"`{name}.*` is allowed only in COUNT",
            node.span,
            "all events of a variable are not a value",
            f"write COUNT({name}.*) or a column: {name}.{self.some_column()}",
        )

    def _refuse_list(self, node: ast.Function) -> None:
        if self.scope.subject is None:
            label, instead = "a list is no single value", "give the list a measure of its own"
        else:
            label = "a condition remembers single values only"
            instead = "compare COUNT, MIN, MAX, FIRST or LAST; report the list in MEASURES"
        self.problem("E0216", "ARRAY_AGG is allowed only alone in MEASURES", node.span, label, instead)

    # Leaves

    def _constant(self, node: ast.Constant) -> Expression | None:
        match node.kind:
            case ast.Kind.NULL:
                return NULL
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

    def _streams_of(self, variable: ast.Name) -> list[Stream]:
        """Return the streams of the columns of a variable, or of the members of a subset."""
        if not self.scope.is_qualified:
            return [self.scope.stream]
        names = self.scope.subsets.get(variable.text, (variable.text,))
        unknown = next((name for name in names if name not in self.scope.stream_of), None)
        if unknown is not None:
            self.problem(
                "E0232",
                f"`{unknown}` is an event of which stream?",
                variable.span,
                "may be an event of any stream of the rule",
                f"write {unknown} ON stream in DEFINE",
            )
            return []
        return list({self.scope.stream_of[name].name: self.scope.stream_of[name] for name in names}.values())

    def at_last_event(self, value: Expression, span: Span) -> Expression | None:
        """Return a value of single events in the form of a measure: that of the last event of the match."""
        if not self.scope.is_qualified:
            return Aggregate("LAST", ALL_EVENTS, value, 0, value.type)
        self.problem(
            "E0209",
            "a window of which event?",
            span,
            "the last event of a match may be of any stream",
            "name it by LET, and write the name with its variable",
        )
        return None

    def _field_of_any(self, name: ast.Name, streams: list[Stream]) -> Expression | None:
        """Return COALESCE over the column in each of `streams`: an event has only those of its own stream."""
        fields = [self._field(name, stream) for stream in streams]
        if len(fields) == 1:
            return fields[0]
        values = self.unify(fields, [name.span] * len(fields))
        return None if not values else Call("coalesce", tuple(values), values[0].type)

    def _field(self, name: ast.Name, stream: Stream, *, is_bare: bool = False) -> Expression | None:
        field = stream.field(name.text)
        if field is not None:
            is_qualified = self.scope.is_qualified
            return Column(qualified(stream.name, field.name) if is_qualified else field.name, field.type)
        if (stream.name, name.text) in self.scope.lets:
            return self.scope.lets[stream.name, name.text]  # None: its problem was reported
        names = [field.name for field in stream.fields]
        names += [other for of, other in self.scope.lets if of == stream.name]
        help_text = did_you_mean(name.text, names, "columns")
        if is_bare and (measure := self.scope.measure(name.text)) is not None:
            help_text = f"`{name.text}` is a measure: write {measure}"
        if name.text in (*self.scope.taken, *self.scope.absent):
            help_text = f"`{name.text}` is a variable: write {name.text}.{self.some_column()}"
        self.problem(
            "E0203",
            f"stream `{stream.name}` has no column `{name.text}`",
            name.span,
            f"not a column of `{stream.name}`",
            help_text,
        )
        return None

    def _bare_column(self, node: ast.Column) -> Expression | None:
        stream = self.scope.stream
        if self.scope.subject is None:  # of any stream: refused below with the right message
            streams = (stream, *self.scope.stream_of.values())
            stream = next((other for other in streams if other.field(node.name.text) is not None), stream)
        found = self._field(node.name, stream, is_bare=True)
        if found is None or self._in_window:
            return found
        variables = self.scope.variables_with(node.name.text)
        names = ", ".join(f"{variable}.{node.name.text}" for variable in variables[:5])
        if self._inside is not None:
            self.problem(
                "E0210",
                f"`{node.name.text}` of which variable?",
                node.span,
                "an aggregate is over the events of one variable",
                f"write one of: {names}",
            )
            return None
        if self.scope.subject is None and is_windowed(found):
            return self.at_last_event(found, node.span)
        if self.scope.subject is None:
            self.problem(
                "E0209",
                f"`{node.name.text}` of which variable?",
                node.span,
                "a measure has no event of its own",
                f"write one of: {names}",
            )
            return None
        return found

    def _variable(self, name: ast.Name, dotted: str | None = None) -> bool:
        """Check that events are taken as `name`. If they are not, the column `dotted` was intended."""
        scope = self.scope
        if name.text in scope.taken or name.text == scope.subject or name.text in scope.subsets:
            return True
        if name.text in scope.absent:
            self.problem(
                "E0202",
                f"no event is ever taken as `{name.text}`",
                name.span,
                "is allowed only after `!` or WITHOUT in the pattern",
                f"use a variable that takes events: {', '.join(scope.taken)}",
            )
            return False
        help_text = did_you_mean(name.text, (*scope.taken, *scope.subsets), "variables")
        if name.text == scope.stream.name:
            help_text = "leave out the stream's name: a column of the event under test stands alone"
        if dotted is not None:
            help_text = f"put the column in backticks: `{dotted}`"
        self.problem(
            "E0202",
            f"the pattern has no variable `{name.text}`",
            name.span,
            "not a variable of the pattern",
            help_text,
        )
        return False

    def _column_of(self, variable: ast.Name, node: ast.Column) -> Expression | None:
        if self._in_window and not self.scope.is_of_subject(variable.text):
            self._refuse_variable(variable.text, node.span)
            return None
        dotted = f"{variable.text}.{node.name.text}"
        is_dotted = node.table is None and self.scope.stream.field(dotted) is not None
        known = self._variable(variable, dotted if is_dotted else None)
        if not known and (self.scope.is_qualified or is_dotted):
            return None  # a column of which stream?
        found = self._read(variable, node, known=known)
        if not known or found is None:
            return None
        if self._inside is not None:
            self._inside.append(Read(variable.text, node.span))
            return found
        if self.scope.is_of_subject(variable.text):
            return found
        self.reads.append(Read(variable.text, node.span))
        return Aggregate("LAST", variable.text, found, 0, found.type)

    def _read(self, variable: ast.Name, node: ast.Column, *, known: bool) -> Expression | None:
        """Return ``v.x`` or ``v.table.x`` for a single event of v."""
        if node.table is not None:
            return self.of_table(node.table, node.name)
        streams = self._streams_of(variable) if known else [self.scope.stream]
        if self._inside is None and self.scope.is_of_subject(variable.text):
            streams = [self.scope.stream]
        return self._field_of_any(node.name, streams)

    def _refuse_variable(self, variable: str, span: Span) -> None:
        self.problem(
            "E0218",
            f"`{variable}` inside a window",
            span,
            "a window is over the events of the key, taken or not",
            "name columns of its events alone; compare its value with the variable's outside",
        )

    def _aggregate(self, function: AggregateFunction, node: ast.Function) -> Expression | None:
        name = function.name
        if self._inside is not None:
            self.refuse_nested(name, node.span)
            return None
        if not 1 <= len(node.args) <= (2 if function.has_offset else 1):
            self.wrong_count(node, "1 or 2" if function.has_offset else "1")
            return None
        argument = node.args[0]
        if name == "COUNT" and isinstance(argument, ast.Events):
            if argument.variable is None:
                return Aggregate("COUNT", ALL_EVENTS, None, 0, Type.BIGINT)
            if not self._variable(argument.variable) or not self.counts_events_of(
                argument.variable.text, argument.span
            ):
                return None
            self.reads.append(Read(argument.variable.text, argument.span))
            return Aggregate("COUNT", argument.variable.text, None, 0, Type.BIGINT)
        offset = self._offset(name, node.args[1]) if len(node.args) == 2 else 0
        read = self.argument_of_variable(function, argument)
        if read is None or offset is None:
            return None
        variable, value = read
        if name == "LAST" and offset == 0 and self.scope.is_of_subject(variable):
            return value
        if not self.counts_events_of(variable, argument.span):
            return None
        if function.takes is not None and value.type not in function.takes:
            kinds = ", ".join(shown(kind) for kind in function.takes)
            if value.type is Type.INTERVAL and function.of_durations:
                kinds += f"; {function.of_durations}"
            self.refuse_type(name, value.type, argument.span, kinds)
            return None
        if name == "COUNT" and value.type is Type.OPAQUE:
            value = _whether_known(value)
        return Aggregate(name, variable, value, offset, function.gives or value.type)

    def refuse_nested(self, name: str, span: Span) -> None:
        """Report an aggregate inside another one."""
        self.problem(
            "E0210",
            f"{name} inside another aggregate",
            span,
            "cannot be nested",
            "compute it outside: an aggregate's argument is an expression over columns of one variable",
        )

    def argument_of_variable(
        self, function: AggregateFunction, node: ast.Expression
    ) -> tuple[str, Expression] | None:
        """Return the one variable of `node`, and its value for one event of it."""
        self._inside = []
        value = self.infer_any(node) if function.takes is None else self.infer(node)
        inside, self._inside = self._inside, None
        if value is None:
            return None
        variables = dict.fromkeys(read.variable for read in inside)
        if len(variables) != 1 or value is NULL:
            what = " and ".join(f"`{variable}`" for variable in variables) or "no variable"
            self.problem(
                "E0210",
                f"{function.name} is over the events of one variable",
                node.span,
                f"mentions {what}",
                f"write {function.name}(v.{self.some_column()}) with one variable v",
            )
            return None
        self.reads.append(inside[0])
        return next(iter(variables)), value

    def counts_events_of(self, variable: str, span: Span) -> bool:
        """Check that runs record the events of `variable`. They never record events of a negated variable."""
        if variable in self.scope.taken or variable in self.scope.subsets:
            return True
        self.problem(
            "E0202",
            f"no event is ever taken as `{variable}`",
            span,
            "is allowed only after `!` or WITHOUT in the pattern",
            "use columns of the event under test, without an aggregate",
        )
        return False

    def _offset(self, name: str, node: ast.Expression) -> int | None:
        if (
            not isinstance(node, ast.Constant)
            or not isinstance(node.value, int)
            or node.kind is not ast.Kind.INTEGER
        ):
            self.problem(
                "E0206",
                f"the offset of {name} is not a number",
                node.span,
                "expected a whole number from 0",
                f"write {name}(v.{self.some_column()}, 1)",
            )
            return None
        limit = MAX_OFFSET if name == "LAST" else (1 << 31) - 1
        if not 0 <= node.value <= limit:
            self.problem(
                "E0906",
                f"the offset of {name} is {node.value:,}; it must be between 0 and {limit:,}",
                node.span,
                "out of range",
                "use a smaller offset",
            )
            return None
        return node.value


def _whether_known(value: Expression) -> Expression:
    """Return something that a run can count and that is NULL where `value` is."""
    known = Call("is_not_null", (value,), Type.BOOLEAN)
    return Call("case", (known, Literal(1, Type.BIGINT), Literal(None, Type.BIGINT)), Type.BIGINT)
