"""Expressions: tokens -> syntax trees.

Operator precedence is folded here, level by level, so a pair of parentheses costs only a few frames. The
depth and height of expressions have separate limits.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import re
from contextlib import suppress
from typing import NoReturn, assert_never

from cep.diagnostics.limits import Problems
from cep.errors import Span
from cep.language import ast
from cep.language.cursor import PARAMETER, Cursor, ProblemError, goes_on, name_of, text_of
from cep.language.foreign import NO_RANKS, OF_RANKS, Foreign, Syntax, closing
from cep.language.grammar import RESERVED, Lexeme, Token
from cep.schema.time_literals import UNIT_WORDS, parse_timestamp

MAX_DEPTH = 100
"""Height of an expression's tree: chains such as ``a + b + c`` count too."""

_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MEMBERSHIPS = ("BETWEEN", "IN", "LIKE", "RLIKE", "REGEXP")
_OVER_HELP = (
    "write OVER LAST 10 MINUTES, OVER PREVIOUS 100 EVENTS, OVER TUMBLING 1 DAY, OVER SESSION 5 MINUTES "
    "or OVER ALL"
)
_FRAME_HELP = (
    "events are those of the rule's key, in order: for ROWS BETWEEN 9 PRECEDING AND CURRENT ROW "
    "write OVER LAST 10 EVENTS, for RANGE INTERVAL '1' HOUR PRECEDING write OVER LAST 1 HOUR"
)
_FILTER_HELP = "write: COUNT(*) FILTER (WHERE amount > 5) OVER LAST 10 MINUTES"
_OF_ROWS = {
    "FINAL": "leave it out: a measure is over the whole match",
    "RUNNING": "leave it out: a condition is over the match so far, a measure over the whole match",
}
"""Word of SQL before an aggregate -> what to write."""

_QUERY_HELP = (
    "write JOIN {table} ON column = {column} after FROM; in the condition {column} IS NOT NULL says that the "
    "table has a row, IS NULL that it has none"
)
_PARTS_OF_TIME = frozenset(
    ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "DAYOFWEEK", "DAYOFYEAR", "UNIX_SECONDS")
)
_COLUMNS = RESERVED - {
    *("AND", "AS", "BETWEEN", "ELSE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "RLIKE"),
    *("THEN", "TRUE", "WHEN"),
}
"""Reserved words that are never right where a value is expected, so a column of that name is intended."""

_BEHIND_VALUE = frozenset(
    ("AND", "AS", "BETWEEN", "ELSE", "IN", "IS", "LIKE", "NOT", "OR", "RLIKE", "THEN", "WHEN")
)
_SIGNS_BEHIND_VALUE = frozenset((*_COMPARISONS, "+", "-", "*", "/", "%", "||", ",", ")"))

_CASE_HELP = "write: CASE WHEN amount > 5 THEN 1 ELSE 0 END"


class ExpressionReader(Cursor):
    """Reads expressions, the loosest operators first."""

    def declared_parameters(self) -> dict[str, ast.Constant]:
        """Return the parameters of the rule at the cursor: a clause may name them before PARAM."""
        reader = copy.copy(self)  # it only looks ahead: what it reports is reported again
        reader.diagnostics, reader.keywords, reader.reserved_words = Problems(), set(), set()
        found: dict[str, ast.Constant] = {}
        for reader.at in range(self.at + 1, len(self.tokens) - 3):
            token, name = self.tokens[reader.at], self.tokens[reader.at + 1]
            if (token.word == "RULE" and goes_on(token, name)) or reader.begins_view():
                break
            if token.word == "PARAM" and self.tokens[reader.at + 2].text == "=":
                with suppress(ProblemError):
                    while not found or reader.is_sign(","):
                        reader.take()
                        of = reader.name("the name of a parameter")
                        reader.expect_sign("=")
                        value = reader.unary()
                        if isinstance(value, ast.Constant):
                            found[of.text] = value
                break
        return found

    def condition(self) -> ast.Expression:
        """Read a whole expression of a clause; its tree has a bounded height."""
        self.syntax = Syntax.EXPRESSION
        found = self.expression()
        level: list[ast.Expression] = [found]
        for _ in range(MAX_DEPTH):
            level = [part for node in level for part in parts_of(node)]
            if not level:
                return found
        self.fail(
            "E0902",
            f"an expression more than {MAX_DEPTH} levels high",
            found.span,
            "too many operations on one another",
            "split it with parentheses or over several variables",
        )

    def expression(self) -> ast.Expression:
        """Read terms joined by OR and AND."""
        start = self.now.start
        either: list[ast.Expression] = []
        both: list[ast.Expression] = []
        while True:
            both.append(self.negation())
            if self.accept_word("AND"):
                continue
            either.append(self.junction("and", both, both[0].span.start))
            both = []
            if not self.accept_word("OR"):
                return self.junction("or", either, start)

    def junction(self, operator: str, terms: list[ast.Expression], start: int) -> ast.Expression:
        """Return `terms` as one expression."""
        return terms[0] if len(terms) == 1 else ast.Junction(operator, tuple(terms), self.span_from(start))

    def negation(self) -> ast.Expression:
        """Read a predicate after any number of NOTs."""
        starts = []
        while token := self.accept_word("NOT"):
            starts.append(token.start)
        found = self.predicate()
        for start in reversed(starts):
            found = ast.Unary("not", found, self.span_from(start))
        return found

    def predicate(self) -> ast.Expression:
        """Read one comparison or test; IS may follow each of them."""
        start = self.now.start
        found = self.arithmetic()
        compared = False
        while True:
            token = self.now
            if self.is_sign(*_COMPARISONS):
                if compared:
                    self.refuse_or(found)
                    self.fail(
                        "E0110",
                        "comparisons cannot be chained",
                        Span(token.start, token.end),
                        "second comparison",
                        "join two comparisons: a < b AND b < c",
                    )
                self.take()
                right = self.arithmetic()
                compared = True
                place = Span(token.start, token.end)
                found = ast.Binary(_COMPARISONS[token.text], found, right, place, self.span_from(start))
            elif token.word == "IS":
                found = self.truth(found, start)
            elif token.word in _MEMBERSHIPS:
                found = self.membership(found, start, negated=False)
            elif token.word == "NOT" and self.ahead().word in _MEMBERSHIPS:
                self.take()
                found = self.membership(found, start, negated=True)
            else:
                return found

    def refuse_or(self, found: ast.Expression) -> None:
        """Refuse ``x > 1 || y > 2``, read as ``x > (1 || y) > 2``, at the sign that was intended as OR."""
        inner = found.right if isinstance(found, ast.Binary) else None
        if isinstance(inner, ast.Binary) and inner.operator == "||":
            self.fail(
                "E0114",
                "conditions are not joined by `||`",
                inner.operator_span,
                "of another language",
                "|| joins texts; between conditions write OR",
            )

    def truth(self, operand: ast.Expression, start: int) -> ast.Expression:
        """Read what follows IS."""
        self.take()  # IS
        negated = self.accept_word("NOT") is not None
        token = self.accept_word("NULL", "TRUE", "FALSE")
        if token is None:
            self.unexpected("NULL, TRUE or FALSE", "write IS NULL, IS NOT NULL, IS TRUE or IS FALSE")
        what = {"NULL": None, "TRUE": True, "FALSE": False}[token.word]
        return ast.Is(operand, what, negated, self.span_from(start))

    def membership(self, operand: ast.Expression, start: int, *, negated: bool) -> ast.Expression:
        """Read what follows BETWEEN, IN, LIKE or RLIKE."""
        token = self.take_word()
        if token.word == "BETWEEN":
            low = self.arithmetic()
            self.accept_word("AND") or self.unexpected("AND", "write: x BETWEEN 1 AND 9")
            high = self.arithmetic()
            return ast.Between(operand, low, high, negated, self.span_from(start))
        if token.word == "IN":
            self.refuse_query()
            self.expect_sign("(", help_text="write the list in parentheses: x IN ('a', 'b')")
            of_variable = self.column_of_variable()
            items = [of_variable or self.constant()]
            while of_variable is None and (comma := self.accept_sign(",")):
                self.refuse_comma(comma)
                items.append(self.constant())
            self.expect_sign(")", "`,` or `)`")
            return ast.In(operand, tuple(items), negated, self.span_from(start))
        operator = "LIKE" if token.word == "LIKE" else "RLIKE"
        if (pattern := self.text_parameter()) is not None:
            return ast.Like(operand, operator, pattern, negated, self.span_from(start))
        if self.now.kind is not Lexeme.TEXT:
            example = "'ab%'" if operator == "LIKE" else "'^a+b'"
            self.unexpected(
                "a text",
                self.parameters_help()
                or f"write: x {operator} {example}; the pattern is a constant, read once for all events",
            )
        return ast.Like(operand, operator, text_of(self.take()), negated, self.span_from(start))

    def text_parameter(self, example: str = "") -> ast.Text | None:
        """Read the name of a parameter where a text is expected; None: something else is next."""
        named = self.parameter(ast.Kind.TEXT, example)
        return None if named is None else ast.Text(str(named[1].value), named[0].span, named[0])

    def zone(self) -> ast.Text:
        """Read the time zone after ZONE."""
        if (named := self.text_parameter("'Europe/Berlin'")) is not None:
            return named
        if self.now.kind is not Lexeme.TEXT:
            advice = self.parameters_help() or "write: ZONE 'Europe/Berlin'"
            self.unexpected("the name of a time zone as a text", advice)
        return text_of(self.take())

    def column_of_variable(self) -> ast.Expression | None:
        """Read ``v.y`` or ``v.table.y`` as the only item of an IN list; None: something else is next."""
        behind = 3 if self.ahead(3).text != "." else 5
        is_column = self.ahead().text == "." and self.ahead(behind).text in (")", ",")
        if not is_column or not self.is_name():
            return None
        found = self.column(name_of(self.take()))
        if self.is_sign(","):
            self.fail(
                "E0101",
                "IN takes constants, or the events of one variable",
                self.span_from(found.span.start),
                "a list of both",
                "write: x IN (a.y) OR x IN (5, 6)",
            )
        return found

    def constant(self) -> ast.Expression:
        """Read an item of an IN list."""
        token = self.now
        found = self.unary()
        if isinstance(found, ast.Column) and found.variable is None and found.name.text in self.parameters:
            return found
        if not isinstance(found, ast.Constant):
            self.fail(
                "E0101",
                "IN takes constants",
                Span(token.start, self.tokens[self.at - 1].end),
                "expected a constant",
                "write: x = LAST(a.y) OR x = 5; x IN (a.y) looks at all events taken as a",
            )
        return found

    def arithmetic(self) -> ast.Expression:
        """Read a sum of products: products are folded into the last summand, then sums from the left."""
        summands = [self.unary()]
        signs: list[Token] = []
        while token := self.accept_sign("+", "-", "||", "*", "/", "%"):
            right = self.unary()
            if token.text in ("+", "-", "||"):
                signs.append(token)
                summands.append(right)
            else:
                summands[-1] = _binary(token, summands[-1], right)
        found = summands[0]
        for sign, right in zip(signs, summands[1:], strict=True):
            found = _binary(sign, found, right)
        return found

    def unary(self) -> ast.Expression:
        """Read a value after any number of minus signs; one before a number belongs to the number."""
        starts = []
        while token := self.accept_sign("-"):
            starts.append(token.start)
        if starts and self.now.kind is Lexeme.NUMBER and not self.begins_span():
            found: ast.Expression = self.number(starts.pop(), negative=True)
        else:
            found = self.primary()
        for start in reversed(starts):
            found = ast.Unary("-", found, self.span_from(start))
        return found

    def number(self, start: int, *, negative: bool = False) -> ast.Constant:
        """Read a number that is not part of a duration."""
        token = self.take()
        sign = "-" if negative else ""
        if token.text.isdigit():
            if len(token.text) > 40 or not -(1 << 63) <= int(sign + token.text) < 1 << 63:
                self.fail(
                    "E0104",
                    f"`{token.text[:40]}` does not fit into 64 bits",
                    Span(token.start, token.end),
                    "too large for BIGINT",
                    "write it as a DOUBLE, for example 1e20",
                )
            return ast.Constant(ast.Kind.INTEGER, int(sign + token.text), self.span_from(start))
        value = float(sign + token.text)
        if math.isinf(value):
            self.fail(
                "E0104",
                f"`{token.text[:40]}` is beyond every DOUBLE",
                Span(token.start, token.end),
                "too large",
                "use a number below 1.8e308",
            )
        return ast.Constant(ast.Kind.DECIMAL, value, self.span_from(start))

    def primary(self) -> ast.Expression:  # noqa: C901, PLR0912 - a case for each first token
        """Read a constant, a column, a call, CASE, or an expression in parentheses."""
        token = self.now
        if token.kind is Lexeme.NUMBER:
            if self.begins_span():
                return ast.Constant(ast.Kind.INTERVAL, self.duration(), self.span_from(token.start))
            return self.number(token.start)
        if token.kind is Lexeme.TEXT:
            text = text_of(self.take())
            return ast.Constant(ast.Kind.TEXT, text.text, text.span)
        self.refuse_query()
        if self.accept_sign("("):
            self.deeper(token)
            found = self.expression()
            self.expect_sign(")", "an operator or `)`")
            self.nesting -= 1
            return dataclasses.replace(found, span=self.span_from(token.start))
        if token.word in RESERVED and self.ahead().text == ".":  # intended as a variable
            return self.column(self.reserved_name())
        match token.word:
            case "TRUE" | "FALSE":
                self.take()
                return ast.Constant(ast.Kind.BOOLEAN, token.word == "TRUE", self.span_from(token.start))
            case "NULL":
                self.take()
                return ast.Constant(ast.Kind.NULL, None, self.span_from(token.start))
            case "CASE" if not self._is_reserved_column():
                return self.case()
            case "CAST" | "TRY_CAST" if self.ahead().text == "(":
                return self.cast()
            case "DATE" if self.ahead().kind is Lexeme.TEXT:
                return self.date()
            case "TIMESTAMP" if self.ahead().kind is Lexeme.TEXT:
                return self.timestamp()
            case "INTERVAL" if self.ahead().kind in (Lexeme.TEXT, Lexeme.NUMBER):
                return ast.Constant(ast.Kind.INTERVAL, self.duration(), self.span_from(token.start))
        if token.kind is Lexeme.WORD and token.word not in RESERVED and self.ahead().text == "(":
            return self.function()
        after = self.ahead()
        is_followed = after.kind is Lexeme.WORD and after.word not in RESERVED
        if token.word in _OF_ROWS and is_followed and self.ahead(2).text in ("(", "."):
            self.foreign(Foreign(token.text, Span(token.start, token.end), _OF_ROWS[token.word]))
        if self._is_reserved_column():
            return self.column(self.reserved_name())
        if not self.is_name():
            self.refuse_parameter(PARAMETER)
            self.unexpected("a value")
        return self.column(name_of(self.take()))

    def _is_reserved_column(self) -> bool:
        """Return whether a reserved word is intended as a column: ``from = 'x'``, ``x > match``."""
        token, after = self.now, self.ahead()
        if token.word == "CASE" and (after.text == "-" or after.word in ("NOT", "WHEN")):
            return False
        is_value = (
            after.kind is Lexeme.END or after.word in _BEHIND_VALUE or after.text in _SIGNS_BEHIND_VALUE
        )
        is_length = token.word == "WITHIN" and self.ahead(3).word not in (*UNIT_WORDS, "EVENT", "EVENTS")
        is_clause = self.begins_clause() and not (is_length and self.ahead(2).kind is Lexeme.NUMBER)
        return token.word in _COLUMNS and is_value and not is_clause

    def refuse_query(self) -> None:
        """Refuse ``(SELECT x FROM table)`` at the cursor, and ``EXISTS`` before it."""
        opening = self.at + (self.now.word == "EXISTS")
        if [token.word or token.text for token in self.tokens[opening : opening + 2]] != ["(", "SELECT"]:
            return
        end = closing(self.tokens, opening) or opening
        words = [token.word for token in self.tokens[opening:end]]
        if "FROM" not in words:
            return
        start, self.at = self.now.start, end + 1
        table = self.tokens[opening + words.index("FROM") + 1]
        name = table.text if table.kind in (Lexeme.WORD, Lexeme.QUOTED) else "table"
        is_column = words[3:4] == ["FROM"] and self.tokens[opening + 2].kind in (Lexeme.WORD, Lexeme.QUOTED)
        column = self.tokens[opening + 2].text if is_column else "key"
        self.fail(
            "E0114",
            "a condition has no query",
            self.span_from(start),
            "of another language",
            _QUERY_HELP.format(column=f"{name}.{column}", table=name),
        )

    def column(self, name: ast.Name) -> ast.Expression:
        """Read what follows a name: nothing, or a dot and a column or ``*``."""
        if not self.accept_sign("."):
            return ast.Column(None, name, name.span)
        if self.accept_sign("*"):
            return ast.Events(name, self.span_from(name.span.start))
        column = self.name_after_dot(f"write a column after the dot: {name.text}.amount")
        if self.now.text != ".":
            return ast.Column(name, column, self.span_from(name.span.start))
        self.take()
        of_table = self.name_after_dot(f"write a column of the table: {name.text}.{column.text}.segment")
        return ast.Column(name, of_table, self.span_from(name.span.start), column)

    def cast(self) -> ast.Expression:
        """Read ``CAST(x AS type)``."""
        token = self.take_word()
        self.deeper(self.take())
        operand = self.expression()
        self.accept_word("AS") or self.unexpected("an operator or AS", "write: CAST(x AS DOUBLE)")
        kind = self.name("a type")
        self.expect_sign(")")
        self.nesting -= 1
        self.keywords.add(kind.span.start)
        return ast.Cast(operand, ast.Name(kind.text.lower(), kind.span), self.span_from(token.start))

    def date(self) -> ast.Expression:
        """Read ``DATE 'text'``: its midnight in UTC."""
        return self._point_in_time(
            re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
            "a date",
            "not a day of the calendar",
            "write: DATE '2020-01-31', or TIMESTAMP with a time of day",
        )

    def timestamp(self) -> ast.Expression:
        """Read ``TIMESTAMP 'text'``."""
        return self._point_in_time(
            re.compile(".*"),
            "a point in time",
            "not a date with or without a time of day",
            "write: TIMESTAMP '2020-01-31 23:59:00' (UTC) or TIMESTAMP '2020-01-31T23:59:00+01:00'",
        )

    def _point_in_time(self, form: re.Pattern[str], what: str, label: str, help_text: str) -> ast.Expression:
        start = self.take_word().start
        text = text_of(self.take())
        value = parse_timestamp(text.text) if form.fullmatch(text.text) else None
        if value is None:
            self.fail("E0111", f"'{text.text}' is not {what}", text.span, label, help_text)
        return ast.Constant(ast.Kind.TIMESTAMP, value, self.span_from(start))

    def function(self) -> ast.Expression:
        """Read ``NAME(args)``."""
        token = self.take_word()
        name = ast.Name(token.word, Span(token.start, token.end))
        self.deeper(self.take())
        self._refuse_part_of_time(token)
        args: list[ast.Expression] = []
        distinct: Token | None = None
        if self.is_sign("*"):
            star = self.take()
            if name.text != "COUNT":
                self.at -= 1
                self.unexpected("a value", f"only COUNT takes *; write {name.text}(v.x)")
            args.append(ast.Events(None, Span(star.start, star.end)))
        elif not self.is_sign(")"):
            if self.now.word == "DISTINCT" and (
                self.ahead().kind in (Lexeme.WORD, Lexeme.QUOTED, Lexeme.NUMBER, Lexeme.TEXT)
                or self.ahead().text in ("(", "-")
            ):
                distinct = self.take_word()
            args += self.listed(self.expression)
        self.expect_sign(")", "an operator, `,` or `)`")
        self.nesting -= 1
        is_filtered = self.now.word == "FILTER" and self.ahead().text == "("
        if self.now.word == "OVER" or is_filtered or (distinct is not None and self.is_window_rule):
            return self.windowed(name, tuple(args), is_distinct=distinct is not None)
        if distinct is not None and name.text != "COUNT":
            self.refuse_distinct(name.text, distinct)
        span = self.span_from(name.span.start)
        return ast.Function(name, tuple(args), span, is_distinct=distinct is not None)

    def _refuse_part_of_time(self, function: Token) -> None:
        """Refuse ``EXTRACT(HOUR FROM ts)`` after its parenthesis."""
        part, after = self.now, self.ahead()
        if function.word != "EXTRACT" or part.kind is not Lexeme.WORD or after.word != "FROM":
            return
        end = closing(self.tokens, self.at - 1)
        if end is None:
            return
        self.at = end + 1
        value = " ".join(self.source.text[after.end : self.tokens[end].start].split())
        parts = {"DOW": "DAYOFWEEK", "DOY": "DAYOFYEAR", "EPOCH": "UNIX_SECONDS"}
        name = parts.get(part.word, part.word)
        self.fail(
            "E0114",
            f"an expression has no `{function.text}`",
            self.span_from(function.start),
            "of another language",
            f"write {name}({value})"
            if name in _PARTS_OF_TIME
            else f"write YEAR({value}), HOUR({value}) and so on",
        )

    def windowed(
        self, name: ast.Name, args: tuple[ast.Expression, ...], *, is_distinct: bool
    ) -> ast.Expression:
        """Read ``[FILTER (WHERE condition)] OVER window`` after a function; window rules have no OVER."""
        condition = None
        if self.accept_word("FILTER"):
            self.deeper(self.take())
            self.accept_word("WHERE") or self.unexpected("WHERE", _FILTER_HELP)
            condition = self.expression()
            self.expect_sign(")", "an operator or `)`")
            self.nesting -= 1
        over = None
        if self.accept_word("OVER"):
            over = self.over(name.text)
        elif not self.is_window_rule:
            self.unexpected("OVER", _FILTER_HELP)
        return ast.Windowed(name, args, is_distinct, condition, over, self.span_from(name.span.start))

    def over(self, function: str) -> ast.Over:
        """Read the text after OVER, which follows a call of `function`."""
        start = self.now.start
        word = self.accept_word(*ast.OverKind)
        if self.is_sign("("):
            self.skip_parentheses()
            self.fail(
                "E0114",
                "a window is not written in parentheses",
                self.span_from(start),
                "SQL's frame of rows",
                NO_RANKS if function in OF_RANKS else _FRAME_HELP,
            )
        if word is None:
            self.unexpected("LAST, PREVIOUS, TUMBLING, SESSION or ALL", _OVER_HELP)
        kind = ast.OverKind(word.word)
        length_us = count = offset_us = zone = None
        if kind in (ast.OverKind.LAST, ast.OverKind.PREVIOUS) and self.ahead().word in ("EVENT", "EVENTS"):
            count = self.integer("a number of events")
            self.take_word()
        elif kind is not ast.OverKind.ALL:
            length_us = self.duration()
        if kind is ast.OverKind.TUMBLING and self.accept_word("OFFSET"):
            offset_us = self.duration()
        if kind is ast.OverKind.TUMBLING and self.accept_word("ZONE"):
            zone = self.zone()
        step_us, step_span = None, Span(0, 0)
        if by := self.accept_word("BY"):  # the type check reports windows that cannot have it
            step_us = self.duration()
            step_span = self.span_from(by.start)
        span = self.span_from(start)
        return ast.Over(kind, span, length_us, count, offset_us, zone, step_us=step_us, step_span=step_span)

    def skip_parentheses(self) -> None:
        """Take everything up to the parenthesis that closes the next one."""
        depth = 0
        while not self.is_at_end():
            token = self.take()
            depth += (token.text == "(") - (token.text == ")")
            if depth == 0:
                return

    def refuse_distinct(self, function: str, token: Token) -> NoReturn:
        """Refuse ``SUM(DISTINCT v.x)``."""
        self.fail(
            "E0114",
            f"{function} has no DISTINCT",
            Span(token.start, token.end),
            "only COUNT counts distinct values",
            f"write COUNT(DISTINCT v.x); for {function} a loop can take each value once: v->+ DISTINCT BY x",
        )

    def case(self) -> ast.Expression:
        """Read ``CASE ... END``."""
        token = self.take()
        self.deeper(token)
        operand = None if self.now.word == "WHEN" else self.expression()
        whens = []
        while self.accept_word("WHEN"):
            condition = self.expression()
            self.accept_word("THEN") or self.unexpected("an operator or THEN", _CASE_HELP)
            whens.append(ast.When(condition, self.expression()))
        if not whens:
            self.unexpected("an operator or WHEN", _CASE_HELP)
        otherwise = self.expression() if self.accept_word("ELSE") else None
        self.accept_word("END") or self.unexpected("an operator or END", _CASE_HELP)
        self.nesting -= 1
        return ast.Case(operand, tuple(whens), otherwise, self.span_from(token.start))


def _binary(sign: Token, left: ast.Expression, right: ast.Expression) -> ast.Binary:
    place = Span(sign.start, sign.end)
    return ast.Binary(sign.text, left, right, place, Span(left.span.start, right.span.end))


def parts_of(node: ast.Expression) -> tuple[ast.Expression, ...]:
    """Return the expressions directly inside `node`."""
    match node:
        case ast.Constant() | ast.Column() | ast.Events():
            return ()
        case ast.Function(args=args):
            return args
        case ast.Windowed(args=args, condition=condition):
            return args if condition is None else (*args, condition)
        case ast.In(operand=operand, items=items):
            return (operand, *(item for item in items if not isinstance(item, ast.Constant)))
        case (
            ast.Unary(operand=operand)
            | ast.Like(operand=operand)
            | ast.Is(operand=operand)
            | ast.Cast(operand=operand)
        ):
            return (operand,)
        case ast.Binary(left=left, right=right):
            return (left, right)
        case ast.Junction(terms=terms):
            return terms
        case ast.Between(operand=operand, low=low, high=high):
            return (operand, low, high)
        case ast.Case(operand=operand, whens=whens, otherwise=otherwise):
            inner = tuple(part for when in whens for part in (when.condition, when.value))
            return tuple(part for part in (operand, *inner, otherwise) if part is not None)
        case _:
            assert_never(node)
