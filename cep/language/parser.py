"""Rule text -> syntax trees, by recursive descent over the tokens of `cep.language.grammar`.

Operator precedence is folded here, level by level, so that nesting costs a few frames and has a limit of
its own. A problem ends its clause only: the parser goes on at the next clause, and then at the next RULE, and
so reports all there is in a file. A rule with a problem is not returned.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from typing import NoReturn

from cep.errors import Diagnostic, Source, Span
from cep.language import ast
from cep.language.diagnostics import did_you_mean, suggestion
from cep.language.grammar import RESERVED, Lexeme, Token, tokens
from cep.language.time_literals import UNIT_WORDS, UNITS, parse_timestamp

MAX_BYTES = 1 << 20
"""Size of one rule file."""

MAX_NESTING = 64
"""Parentheses, calls and CASE inside each other."""

MAX_DEPTH = 100
"""Height of an expression's tree: chains such as ``a + b + c`` count too."""

SEVERITIES = ("info", "low", "medium", "high", "critical")

_FORMS = {
    "RULE": "RULE name",
    "TITLE": "TITLE 'text'",
    "SEVERITY": "SEVERITY high",
    "TAGS": "TAGS first, second",
    "FROM": "FROM stream",
    "PARTITION": "PARTITION BY column",
    "PATTERN": "PATTERN a -> b",
    "WITHIN": "WITHIN 10 MINUTES",
    "DEFINE": "DEFINE a AS amount < 5, b AS amount > 500",
    "MEASURES": "MEASURES COUNT(a.*) AS n, b.amount AS loss",
    "MATCH": "MATCH EARLIEST or MATCH ALL",
    "AFTER": "AFTER MATCH SKIP PAST LAST EVENT",
    "NO": "NO SKIP",
}
_CLAUSES_SHOWN = (
    "TITLE, SEVERITY, TAGS, FROM, PARTITION BY, PATTERN, WITHIN, DEFINE, MEASURES, MATCH, AFTER MATCH"
)

# Words that begin a clause only together with the next one: alone they are names.
_PAIRS = {
    "NO": "SKIP",
    "ALL": "ROWS",
    "ONE": "ROW",
    "ON": "TIMEOUT",
    "MAX": "RUNS",
    "ORDER": "BY",
}
_HEADS = frozenset(("TITLE", "SEVERITY", "TAGS"))
_RESERVED_CLAUSES = frozenset(
    (
        "RULE",
        "FROM",
        "PARTITION",
        "PATTERN",
        "WITHIN",
        "DEFINE",
        "MEASURES",
        "MATCH",
        "AFTER",
        "SUBSET",
        "SUPPRESS",
    )
)
CLAUSE_WORDS = _RESERVED_CLAUSES | _HEADS | frozenset(_PAIRS)
"""Words that may begin a clause; the printer quotes names that look like them."""

_LATER_CLAUSES = {
    "SUBSET": ("SUBSET", "name the variables one by one"),
    "ALL": ("ALL ROWS PER MATCH", "leave it out: one row is reported for each match"),
    "ONE": ("ONE ROW PER MATCH as a clause", "leave it out: one row for each match is what is reported"),
    "ON": ("ON TIMEOUT", "leave it out"),
    "SUPPRESS": ("SUPPRESS", "leave it out: AFTER MATCH SKIP PAST LAST EVENT limits overlapping matches"),
    "MAX": ("MAX RUNS", "leave it out: a key has at most 10,000 open runs of a rule"),
    "ORDER": (
        "ORDER BY",
        "leave it out: events are ordered by the stream's event_time and tie_break",
    ),
}

_COMPARISONS = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_QUANTIFIERS = frozenset("?*+{")
_NAMES = (Lexeme.WORD, Lexeme.QUOTED)


class _ProblemError(Exception):
    """Ends the clause that is being read."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.title)
        self.diagnostic = diagnostic


def parse(source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
    """Return the rules of `source` that are well formed, and all problems of the others."""
    size = len(source.text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        return (), [
            Diagnostic(
                "E0901",
                f"the file has {size:,} bytes; the limit is {MAX_BYTES:,}",
                source,
                help="split the rules into several files",
            )
        ]
    parser = _Parser(source)
    rules = parser.file()
    return tuple(rules), parser.diagnostics


class _Parser:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens(source.text)
        self.at = 0
        self.nesting = 0
        self.clause = "RULE"
        self.may_follow = ""  # what, besides a clause, could come after what was just read
        self.diagnostics: list[Diagnostic] = []

    # Tokens

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, by: int = 1) -> Token:
        return self.tokens[min(self.at + by, len(self.tokens) - 1)]

    def take(self) -> Token:
        token = self.now
        if token.kind is not Lexeme.END:
            self.at += 1
        return token

    def is_at_end(self) -> bool:
        return self.now.kind is Lexeme.END

    def is_sign(self, *signs: str) -> bool:
        return self.now.kind is Lexeme.SIGN and self.now.text in signs

    def accept_sign(self, *signs: str) -> Token | None:
        return self.take() if self.is_sign(*signs) else None

    def accept_word(self, *words: str) -> Token | None:
        return self.take() if self.now.word in words else None

    def expect_sign(self, sign: str, instead: str = "") -> Token:
        return self.accept_sign(sign) or self.unexpected(instead or f"`{sign}`")

    def expect_word(self, word: str) -> Token:
        return self.accept_word(word) or self.unexpected(word)

    def span_from(self, start: int) -> Span:
        return Span(start, self.tokens[self.at - 1].end)

    # Problems

    def problem(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> Diagnostic:
        return Diagnostic(code, title, self.source, span, label, help_text)

    def fail(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> NoReturn:
        raise _ProblemError(self.problem(code, title, span, label, help_text))

    def later(self, what: str, span: Span, instead: str) -> NoReturn:
        self.fail("E0150", f"{what}: not supported yet", span, "part of the language to come", instead)

    def unexpected(self, what: str, help_text: str = "") -> NoReturn:
        """Refuse the current token where `what` was expected."""
        token = self.now
        span = Span(token.start, token.end)
        if token.kind is Lexeme.BAD:
            self.bad_token(token)
        form = _FORMS.get(self.clause, "")
        if token.kind is Lexeme.END:
            title = "the file ends in the middle of a rule"
        elif token.kind is Lexeme.TEXT:
            title = "unexpected text"
        else:
            title = f"unexpected `{token.text}`"
        if (
            not help_text
            and token.word in RESERVED
            and "name" in what
            and token.word not in _RESERVED_CLAUSES
        ):
            self.reserved(token)
        self.fail("E0101", title, span, f"expected {what}", help_text or (f"write: {form}" if form else ""))

    def bad_token(self, token: Token) -> NoReturn:
        span = Span(token.start, token.end)
        if token.text[0] == "'":
            self.fail(
                "E0102",
                "this text is not closed",
                span,
                "no closing ' on this line",
                "close the text with '; a quote inside it is written twice: 'it''s'",
            )
        if token.text[0] == "`":
            self.fail(
                "E0102", "this name is not closed", span, "no closing ` on this line", "close the name with `"
            )
        helps = {
            '"': "write a text in single quotes: 'text'; a name that needs quotes goes in backticks: `name`",
            "/*": "a comment begins with -- and ends with the line",
            "||": "texts cannot be joined; in a pattern, write p | q for either",
            ";": "leave it out: a rule ends where the next RULE begins",
            ":": "leave it out",
        }
        key = token.text if token.text in helps else token.text[0]
        shown = (
            token.text
            if token.text.isprintable() and not token.text.isspace()
            else f"U+{ord(token.text):04X}"
        )
        default = (
            "replace it by an ordinary space"
            if token.text.isspace() or not token.text.isprintable()
            else "leave it out; a name with special characters goes in backticks: `name`"
        )
        self.fail(
            "E0103",
            f"`{shown}` is no part of the rule language",
            span,
            "not understood",
            helps.get(key, default),
        )

    def reserved(self, token: Token) -> NoReturn:
        self.fail(
            "E0113",
            f"`{token.text}` is a reserved word",
            Span(token.start, token.end),
            "cannot be a name as it is",
            f"put it in backticks: `{token.text}`",
        )

    # Files, rules, clauses

    def file(self) -> list[ast.Rule]:
        rules = []
        if self.is_at_end():
            self.diagnostics.append(
                Diagnostic(
                    "E0107",
                    "the file has no rule",
                    self.source,
                    help="write: RULE name FROM stream PARTITION BY column PATTERN a -> b DEFINE a AS ...",
                )
            )
        elif self.now.word != "RULE":
            self.recover(self.before_first_rule)
            while not self.is_at_end() and self.now.word != "RULE":
                self.take()
        while not self.is_at_end():
            rule = self.rule()
            if rule is not None:
                rules.append(rule)
        return rules

    def before_first_rule(self) -> NoReturn:
        token = self.now
        if token.kind is Lexeme.BAD:
            self.bad_token(token)
        self.fail(
            "E0108",
            "a rule file begins with RULE",
            Span(token.start, token.end),
            "expected RULE",
            "write RULE and a name before the clauses; a comment begins with --",
        )

    def recover(self, read: Callable[[], None]) -> bool:
        """Call `read`; at a problem note it, go to the next clause, return False."""
        before = self.at
        try:
            read()
        except _ProblemError as error:
            self.diagnostics.append(error.diagnostic)
            self.nesting = 0
            if self.at == before:
                self.take()
            while self.now.kind is not Lexeme.END and not self.starts_clause():
                self.take()
            return False
        return True

    def starts_clause(self) -> bool:
        """Say whether the current token begins a clause, wherever a name could stand instead."""
        word = self.now.word
        if self.at > 0 and self.tokens[self.at - 1].text == ".":
            return False
        return (
            word in _RESERVED_CLAUSES
            or word in _HEADS
            or (word in _PAIRS and self.ahead().word == _PAIRS[word])
        )

    def rule(self) -> ast.Rule | None:
        reader = _RuleReader(self)
        start = self.take()  # RULE
        self.clause, self.may_follow = "RULE", ""
        sound = self.recover(reader.read_name)
        while self.now.kind is not Lexeme.END and self.now.word != "RULE":
            sound = self.recover(reader.read_clause) and sound
        span = self.span_from(start.start)
        return reader.finish(span, sound)

    # Names and numbers

    def is_name(self) -> bool:
        return self.now.kind is Lexeme.QUOTED or (
            self.now.kind is Lexeme.WORD and self.now.word not in RESERVED
        )

    def name(self, what: str) -> ast.Name:
        if not self.is_name():
            self.unexpected(what)
        return _name(self.take())

    def names(self, what: str) -> list[ast.Name]:
        result = [self.name(what)]
        while self.accept_sign(","):
            result.append(self.name(what))
        return result

    def integer(self, what: str) -> int:
        if self.now.kind is not Lexeme.NUMBER:
            self.unexpected(what)
        token = self.take()
        span = Span(token.start, token.end)
        if not token.text.isdigit():
            self.fail(
                "E0104",
                f"`{token.text}` is not a whole number",
                span,
                f"expected {what}",
                "write digits only",
            )
        if len(token.text) > 18:
            self.fail("E0104", "the number is too large", span, "at most 18 digits", "use a smaller number")
        return int(token.text)

    def duration(self) -> int:
        """Read ``n UNIT``, in microseconds."""
        amount = self.integer("a number")
        return amount * self.unit()

    def unit(self) -> int:
        token = self.now
        length = UNIT_WORDS.get(token.word)
        if length is None:
            if token.kind is not Lexeme.WORD or self.starts_clause():
                self.unexpected("a unit of time", "write the unit too, for example 10 MINUTES")
            self.fail(
                "E0109",
                f"`{token.text}` is not a unit of time",
                Span(token.start, token.end),
                "expected a unit of time",
                did_you_mean(token.word, [unit.word for unit in UNITS], "units"),
            )
        self.take()
        return length

    def deeper(self, token: Token) -> None:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(
                "E0902",
                f"more than {MAX_NESTING} levels of nesting",
                Span(token.start, token.end),
                "one level too many",
                "split the expression or the pattern",
            )

    # Patterns

    def pattern(self) -> ast.Pattern:
        start = self.now.start
        branches = [self.sequence()]
        while self.accept_sign("|"):
            branches.append(self.sequence())
        if self.is_sign("&"):
            token = self.now
            self.later(
                "conjunction `&`", Span(token.start, token.end), "write both orders: (a -> b) | (b -> a)"
            )
        if len(branches) == 1:
            return branches[0]
        return ast.Alternation(tuple(branches), self.span_from(start))

    def sequence(self) -> ast.Pattern:
        start = self.now.start
        items = [ast.Item(ast.Joint.STRICT, self.element())]
        while True:
            if self.is_sign("->", "->>"):
                joint = ast.Joint(self.take().text)
                self.refuse_gap()
                items.append(ast.Item(joint, self.element()))
            elif self.begins_element():
                items.append(ast.Item(ast.Joint.STRICT, self.element()))
            else:
                break
        if len(items) == 1:
            return items[0].pattern
        return ast.Sequence(tuple(items), self.span_from(start))

    def begins_element(self) -> bool:
        return self.is_sign("(", "!", "{", "^", "$") or (self.is_name() and not self.starts_clause())

    def refuse_gap(self) -> None:
        if self.is_sign("["):
            token = self.now
            self.later(
                "a limit on one gap",
                Span(token.start, token.end),
                "compare times in DEFINE: b AS ts - a.ts <= 5 SECONDS",
            )

    def element(self) -> ast.Pattern:
        token = self.now
        span = Span(token.start, token.end)
        body: ast.Pattern
        if self.accept_sign("!"):
            return self.absence(token)
        if self.accept_sign("("):
            body = self.group(token)
        elif self.is_sign("{"):
            self.later(
                "exclusion `{- -}`", span, "leave out the braces and report what is needed in MEASURES"
            )
        elif self.is_sign("^", "$"):
            self.later(f"the anchor `{token.text}`", span, "leave it out: every event can begin a match")
        elif token.word == "PERMUTE" and self.ahead().text == "(":
            self.later("PERMUTE", span, "write the orders as alternatives: a b | b a")
        else:
            if self.is_name() and self.starts_clause():
                self.unexpected("a variable, `(` or `!`")
            name = self.name("the name of a variable, `(` or `!`")
            body = ast.Step(name, name.span)
        return self.quantified(body)

    def absence(self, bang: Token) -> ast.Pattern:
        if self.is_sign("("):
            self.later(
                "absence of a group",
                Span(bang.start, self.now.end),
                "negate one variable; its condition may combine several with OR",
            )
        name = self.name("the name of a variable")
        found = ast.Absence(name, self.span_from(bang.start))
        token = self.now
        if token.word == "FOR":
            self.later(
                "absence FOR a time",
                Span(token.start, token.end),
                "end the pattern here and use WITHIN for the time",
            )
        if self.begins_quantifier():
            self.fail(
                "E0313",
                f"`!{name.text}` cannot be repeated",
                Span(token.start, token.end),
                "an absence takes no event",
                f"remove the quantifier: !{name.text} already means none at all",
            )
        return found

    def group(self, opening: Token) -> ast.Pattern:
        self.deeper(opening)
        body = self.pattern()
        token = self.now
        if self.accept_word("WITHIN"):
            self.later(
                "WITHIN for a group", Span(token.start, token.end), "put one WITHIN after the whole pattern"
            )
        self.expect_sign(")", "`->`, `|` or `)`")
        self.nesting -= 1
        return dataclasses.replace(body, span=self.span_from(opening.start))

    def begins_quantifier(self) -> bool:
        token = self.ahead() if self.is_sign("->", "->>") else self.now
        return token.kind is Lexeme.SIGN and token.text in _QUANTIFIERS

    def quantified(self, body: ast.Pattern) -> ast.Pattern:
        token = self.now
        if self.is_sign("->", "->>") and self.ahead().text == "[":
            self.take()
            self.refuse_gap()
        if not self.begins_quantifier():
            self.refuse_until()
            return body
        joint = ast.Joint.STRICT
        if self.is_sign("->", "->>"):
            joint = ast.Joint(self.take().text)
        least, most = self.bounds()
        reluctant = self.accept_sign("?") is not None
        span = self.span_from(token.start)
        found = ast.Repetition(body, least, most, joint, reluctant, span, self.span_from(body.span.start))
        if not reluctant and self.is_sign("+"):
            sign = self.take()
            self.later(
                "a possessive quantifier",
                Span(token.start, sign.end),
                "drop the last `+` and let the conditions exclude each other in DEFINE",
            )
        if self.begins_quantifier():
            again = self.now
            self.fail(
                "E0112",
                "two quantifiers on one step",
                Span(again.start, again.end),
                "a quantifier is already there",
                "put the first one in parentheses: (a+){2}",
            )
        self.refuse_until()
        return found

    def refuse_until(self) -> None:
        if self.now.word == "UNTIL":
            token = self.now
            self.later(
                "UNTIL",
                Span(token.start, token.end),
                "put the negated condition into the loop variable's DEFINE",
            )

    def bounds(self) -> tuple[int, int | None]:
        sign = self.take().text
        if sign != "{":
            return {"?": (0, 1), "*": (0, None), "+": (1, None)}[sign]
        if self.accept_sign(","):
            most = self.integer("a number")
            self.expect_sign("}")
            return 0, most
        least = self.integer("a number, as in {3}, {3,} or {,3}")
        if self.accept_sign("}"):
            return least, least
        self.expect_sign(",", "`,` or `}`")
        if self.accept_sign("}"):
            return least, None
        most = self.integer("a number or `}`")
        self.expect_sign("}")
        return least, most

    # Expressions

    def condition(self) -> ast.Expression:
        """Read a whole expression of a clause; its tree has a bounded height."""
        found = self.expression()
        level: list[ast.Expression] = [found]
        for _ in range(MAX_DEPTH):
            level = [part for node in level for part in _parts(node)]
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
        return terms[0] if len(terms) == 1 else ast.Junction(operator, tuple(terms), self.span_from(start))

    def negation(self) -> ast.Expression:
        starts = []
        while token := self.accept_word("NOT"):
            starts.append(token.start)
        found = self.predicate()
        for start in reversed(starts):
            found = ast.Unary("not", found, self.span_from(start))
        return found

    def predicate(self) -> ast.Expression:
        start = self.now.start
        found = self.arithmetic()
        compared = False
        while True:
            token = self.now
            if self.is_sign(*_COMPARISONS):
                if compared:
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
            elif token.word in ("BETWEEN", "IN", "LIKE", "RLIKE"):
                found = self.membership(found, start, negated=False)
            elif token.word == "NOT" and self.ahead().word in ("BETWEEN", "IN", "LIKE", "RLIKE"):
                self.take()
                found = self.membership(found, start, negated=True)
            else:
                return found

    def truth(self, operand: ast.Expression, start: int) -> ast.Expression:
        self.take()  # IS
        negated = self.accept_word("NOT") is not None
        token = self.accept_word("NULL", "TRUE", "FALSE")
        if token is None:
            self.unexpected("NULL, TRUE or FALSE", "write IS NULL, IS NOT NULL, IS TRUE or IS FALSE")
        what = {"NULL": None, "TRUE": True, "FALSE": False}[token.word]
        return ast.Is(operand, what, negated, self.span_from(start))

    def membership(self, operand: ast.Expression, start: int, *, negated: bool) -> ast.Expression:
        token = self.take()
        if token.word == "BETWEEN":
            low = self.arithmetic()
            self.accept_word("AND") or self.unexpected("AND", "write: x BETWEEN 1 AND 9")
            high = self.arithmetic()
            return ast.Between(operand, low, high, negated, self.span_from(start))
        if token.word == "IN":
            self.expect_sign("(")
            items = [self.constant()]
            while self.accept_sign(","):
                items.append(self.constant())
            self.expect_sign(")", "`,` or `)`")
            return ast.In(operand, tuple(items), negated, self.span_from(start))
        if token.word == "RLIKE":
            self.later(
                "RLIKE",
                Span(token.start, token.end),
                "use LIKE, CONTAINS(x, 'text'), STARTSWITH(x, 'text') or ENDSWITH(x, 'text')",
            )
        if self.now.kind is not Lexeme.TEXT:
            self.unexpected("a text", "write: x LIKE 'ab%'; the pattern is a constant")
        return ast.Like(operand, _text(self.take()), negated, self.span_from(start))

    def constant(self) -> ast.Expression:
        token = self.now
        found = self.unary()
        if not isinstance(found, ast.Constant):
            self.fail(
                "E0101",
                "IN takes constants",
                Span(token.start, self.tokens[self.at - 1].end),
                "expected a constant",
                "write: x = a.y OR x = 5",
            )
        return found

    def arithmetic(self) -> ast.Expression:
        """Sums of products: products are folded into the last summand, then sums from the left."""
        summands = [self.unary()]
        signs: list[Token] = []
        while token := self.accept_sign("+", "-", "*", "/", "%"):
            right = self.unary()
            if token.text in "+-":
                signs.append(token)
                summands.append(right)
            else:
                summands[-1] = _binary(token, summands[-1], right)
        found = summands[0]
        for sign, right in zip(signs, summands[1:], strict=True):
            found = _binary(sign, found, right)
        return found

    def unary(self) -> ast.Expression:
        starts = []
        while token := self.accept_sign("-"):
            starts.append(token.start)
        if starts and self.now.kind is Lexeme.NUMBER and self.ahead().word not in UNIT_WORDS:
            found: ast.Expression = self.number(starts.pop(), negative=True)
        else:
            found = self.primary()
        for start in reversed(starts):
            found = ast.Unary("-", found, self.span_from(start))
        return found

    def number(self, start: int, *, negative: bool = False) -> ast.Constant:
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

    def primary(self) -> ast.Expression:
        token = self.now
        if token.kind is Lexeme.NUMBER:
            if self.ahead().word in UNIT_WORDS:
                return ast.Constant(ast.Kind.INTERVAL, self.duration(), self.span_from(token.start))
            return self.number(token.start)
        if token.kind is Lexeme.TEXT:
            text = _text(self.take())
            return ast.Constant(ast.Kind.TEXT, text.text, text.span)
        if self.accept_sign("("):
            self.deeper(token)
            found = self.expression()
            self.expect_sign(")", "an operator or `)`")
            self.nesting -= 1
            return dataclasses.replace(found, span=self.span_from(token.start))
        match token.word:
            case "TRUE" | "FALSE":
                self.take()
                return ast.Constant(ast.Kind.BOOLEAN, token.word == "TRUE", self.span_from(token.start))
            case "NULL":
                self.take()
                return ast.Constant(ast.Kind.NULL, None, self.span_from(token.start))
            case "CASE":
                return self.case()
            case "TIMESTAMP" if self.ahead().kind is Lexeme.TEXT:
                return self.timestamp()
            case "INTERVAL" if self.ahead().kind in (Lexeme.TEXT, Lexeme.NUMBER):
                return self.interval()
        if token.kind is Lexeme.WORD and token.word not in RESERVED and self.ahead().text == "(":
            return self.function()
        if not self.is_name():
            self.unexpected("a value")
        name = _name(self.take())
        if not self.accept_sign("."):
            return ast.Column(None, name, name.span)
        if self.accept_sign("*"):
            return ast.Events(name, self.span_from(token.start))
        if self.now.kind not in _NAMES:
            self.unexpected("the name of a column", f"write a column after the dot: {name.text}.amount")
        return ast.Column(name, _name(self.take()), self.span_from(token.start))

    def timestamp(self) -> ast.Expression:
        start = self.take().start
        text = _text(self.take())
        value = parse_timestamp(text.text)
        if value is None:
            self.fail(
                "E0111",
                f"'{text.text}' is not a point in time",
                text.span,
                "not a date with or without a time of day",
                "write: TIMESTAMP '2020-01-31 23:59:00' (UTC) or TIMESTAMP '2020-01-31T23:59:00+01:00'",
            )
        return ast.Constant(ast.Kind.TIMESTAMP, value, self.span_from(start))

    def interval(self) -> ast.Expression:
        start = self.take().start
        if self.now.kind is Lexeme.NUMBER:
            return ast.Constant(ast.Kind.INTERVAL, self.duration(), self.span_from(start))
        text = _text(self.take())
        if not re.fullmatch(r"[0-9]{1,18}", text.text):
            self.fail(
                "E0104",
                f"'{text.text}' is not a whole number",
                text.span,
                "expected a whole number",
                "write: INTERVAL '5' MINUTE or 5 MINUTES",
            )
        return ast.Constant(ast.Kind.INTERVAL, int(text.text) * self.unit(), self.span_from(start))

    def function(self) -> ast.Expression:
        name = _name(self.take())
        self.deeper(self.take())
        args: list[ast.Expression] = []
        if self.is_sign("*"):
            self.unexpected("a value", f"say of which variable: {name.text.upper()}(v.*)")
        if not self.is_sign(")"):
            args.append(self.expression())
            while self.accept_sign(","):
                args.append(self.expression())
        self.expect_sign(")", "an operator, `,` or `)`")
        self.nesting -= 1
        return ast.Function(name, tuple(args), self.span_from(name.span.start))

    def case(self) -> ast.Expression:
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


_CASE_HELP = "write: CASE WHEN amount > 5 THEN 1 ELSE 0 END"


class _RuleReader:
    """Collects the clauses of one rule; each is there at most once, in any order."""

    def __init__(self, parser: _Parser) -> None:
        self.parser = parser
        self.name: ast.Name | None = None
        self.title: ast.Text | None = None
        self.severity: str | None = None
        self.tags: tuple[str, ...] = ()
        self.stream: ast.Name | None = None
        self.key: tuple[ast.Name, ...] = ()
        self.pattern: ast.Pattern | None = None
        self.window: ast.Window | None = None
        self.definitions: tuple[ast.Definition, ...] = ()
        self.measures: tuple[ast.Measure, ...] = ()
        self.mode: ast.Mode | None = None
        self.skip: ast.Skip | None = None
        self.seen: dict[str, Span] = {}
        self.clauses: dict[str, Callable[[], None]] = {
            "TITLE": self.read_title,
            "SEVERITY": self.read_severity,
            "TAGS": self.read_tags,
            "FROM": self.read_stream,
            "PARTITION": self.read_key,
            "PATTERN": self.read_pattern,
            "WITHIN": self.read_window,
            "DEFINE": self.read_definitions,
            "MEASURES": self.read_measures,
            "MATCH": self.read_mode,
            "AFTER": self.read_after,
            "NO": self.read_no_skip,
        }

    def read_name(self) -> None:
        self.name = self.parser.name("the rule's name")

    def read_clause(self) -> None:
        parser = self.parser
        token = parser.now
        span = Span(token.start, token.end)
        if token.word in _LATER_CLAUSES and token.word not in self.clauses:
            parser.take()
            parser.later(_LATER_CLAUSES[token.word][0], span, _LATER_CLAUSES[token.word][1])
        if token.word not in self.clauses:
            self.refuse(token)
        parser.take()
        parser.clause, parser.may_follow = token.word, ""
        place = "AFTER" if token.word == "NO" else token.word
        if place in self.seen:
            parser.diagnostics.append(
                parser.problem(
                    "E0105",
                    f"{_spelled(place)} is there twice",
                    span,
                    f"the first one is in line {self.line_of(self.seen[place])}",
                    "keep one of them",
                )
            )
        else:
            self.seen[place] = span
        self.clauses[token.word]()

    def line_of(self, span: Span) -> int:
        return self.parser.source.text.count("\n", 0, span.start) + 1

    def refuse(self, token: Token) -> NoReturn:
        parser = self.parser
        if parser.clause == "PATTERN":
            self.refuse_misspelled_clause()
        near = suggestion(token.word, self.clauses) if token.word else None
        expected = f"{parser.may_follow} or a clause" if parser.may_follow else "a clause"
        help_text = f"clauses: {_CLAUSES_SHOWN}"
        if parser.ahead().word == "AS" and parser.clause == "DEFINE":
            help_text = "put a comma between two definitions"
        elif near is not None:
            help_text = f"did you mean {_spelled(near)}? {help_text}"
        parser.unexpected(expected, help_text)

    def refuse_misspelled_clause(self) -> None:
        """Refuse ``PATTERN a b DEFIN c AS ...`` at DEFIN, which was read as one more variable."""
        for token in self.parser.tokens[max(0, self.parser.at - 2) : self.parser.at]:
            near = suggestion(token.word, self.clauses) if token.kind is Lexeme.WORD else None
            if near is not None:
                self.parser.fail(
                    "E0101",
                    f"`{token.text}` is not a clause",
                    Span(token.start, token.end),
                    "read as a variable of the pattern",
                    f"did you mean {_spelled(near)}? clauses: {_CLAUSES_SHOWN}",
                )

    def read_title(self) -> None:
        if self.parser.now.kind is not Lexeme.TEXT:
            self.parser.unexpected("a text")
        self.title = _text(self.parser.take())

    def read_severity(self) -> None:
        token = self.parser.now
        if token.kind is not Lexeme.WORD or token.word in RESERVED:
            self.parser.unexpected("a severity")
        if token.text.lower() not in SEVERITIES:
            self.parser.fail(
                "E0109",
                f"`{token.text}` is not a severity",
                Span(token.start, token.end),
                "expected a severity",
                did_you_mean(token.text, SEVERITIES, "severities"),
            )
        self.severity = self.parser.take().text.lower()

    def read_tags(self) -> None:
        parser = self.parser
        tags = []
        while True:
            if parser.now.kind is Lexeme.TEXT:
                tags.append(_text(parser.take()).text)
            else:
                tags.append(parser.name("a tag: a name or a text").text)
            if not parser.accept_sign(","):
                break
        self.tags = tuple(tags)
        parser.may_follow = "`,`"

    def read_stream(self) -> None:
        self.stream = self.parser.name("the name of a stream")
        token = self.parser.now
        if self.parser.is_sign(","):
            self.parser.later(
                "a rule over several streams",
                Span(token.start, token.end),
                "write one stream that holds the events of both, with a column for their kind",
            )

    def read_key(self) -> None:
        parser = self.parser
        parser.expect_word("BY")
        self.key = tuple(parser.names("the name of a column"))
        token = parser.now
        if parser.is_sign(".", "="):
            parser.later(
                "a key over several streams",
                Span(token.start, token.end),
                "write the names of columns of the stream in FROM",
            )
        parser.may_follow = "`,`"

    def read_pattern(self) -> None:
        self.pattern = self.parser.pattern()
        self.parser.may_follow = "`->`, `|`, a variable"

    def read_window(self) -> None:
        parser = self.parser
        sign = parser.accept_sign("<=", "<")
        start = parser.now
        if start.kind is Lexeme.NUMBER and parser.ahead().word in ("EVENT", "EVENTS", "ROW", "ROWS"):
            unit = parser.ahead()
            parser.later(
                "WITHIN a number of events",
                Span(start.start, unit.end),
                "bound the match in time: WITHIN 10 MINUTES",
            )
        length = parser.duration()
        inclusive = sign is None or sign.text == "<="
        self.window = ast.Window(length, inclusive, parser.span_from(start.start))

    def read_definitions(self) -> None:
        parser = self.parser
        found = []
        while True:
            variable = parser.name("the name of a variable")
            token = parser.now
            if token.word in ("ON", "BY"):
                what = "a variable ON a stream" if token.word == "ON" else "a variable's key with BY"
                instead = "write one stream that holds the events of both, with a column for their kind"
                parser.later(what, Span(token.start, token.end), instead)
            parser.expect_word("AS")
            found.append(ast.Definition(variable, parser.condition()))
            if not parser.accept_sign(","):
                break
        self.definitions = tuple(found)
        parser.may_follow = "an operator, `,`"

    def read_measures(self) -> None:
        parser = self.parser
        found = []
        while True:
            expression = parser.condition()
            if not parser.accept_word("AS"):
                parser.unexpected("an operator or AS", "give every measure a name: b.amount AS loss")
            found.append(ast.Measure(expression, parser.name("the measure's name")))
            if not parser.accept_sign(","):
                break
        self.measures = tuple(found)
        parser.may_follow = "`,`"

    def read_mode(self) -> None:
        parser = self.parser
        token = parser.now
        if token.word == "PREFERRED":
            parser.later("MATCH PREFERRED", Span(token.start, token.end), "use MATCH EARLIEST or MATCH ALL")
        if not parser.accept_word("EARLIEST", "ALL"):
            parser.unexpected("EARLIEST or ALL")
        self.mode = ast.Mode(token.word)

    def read_after(self) -> None:
        parser = self.parser
        start = parser.tokens[parser.at - 1].start
        parser.expect_word("MATCH")
        if parser.accept_word("NO"):
            self.skip_to(ast.SkipTarget.NO_SKIP, None, start, "SKIP")
            return
        parser.expect_word("SKIP")
        if parser.accept_word("PAST"):
            self.skip_to(ast.SkipTarget.PAST_LAST_EVENT, None, start, "LAST", "EVENT")
        elif not parser.accept_word("TO"):
            parser.unexpected("PAST LAST EVENT or TO", _SKIP_HELP)
        elif parser.accept_word("NEXT"):
            self.skip_to(ast.SkipTarget.TO_NEXT_EVENT, None, start, "EVENT")
        elif word := parser.accept_word("FIRST", "LAST"):
            variable = parser.name("the name of a variable")
            target = ast.SkipTarget.TO_FIRST if word.word == "FIRST" else ast.SkipTarget.TO_LAST
            self.skip_to(target, variable, start)
        else:
            parser.unexpected("NEXT EVENT, FIRST or LAST", _SKIP_HELP)

    def read_no_skip(self) -> None:
        start = self.parser.tokens[self.parser.at - 1].start
        self.skip_to(ast.SkipTarget.NO_SKIP, None, start, "SKIP")

    def skip_to(self, target: ast.SkipTarget, variable: ast.Name | None, start: int, *words: str) -> None:
        for word in words:
            if not self.parser.accept_word(word):
                self.parser.unexpected(word, _SKIP_HELP)
        self.skip = ast.Skip(target, variable, self.parser.span_from(start))

    def finish(self, span: Span, sound: bool) -> ast.Rule | None:
        """Return the rule, or None; say which clauses are missing."""
        if self.name is not None:
            for clause, need in (
                ("FROM", "which stream it reads"),
                ("PARTITION", "which events belong together"),
                ("PATTERN", "what to look for"),
            ):
                if clause not in self.seen:
                    self.parser.diagnostics.append(
                        self.parser.problem(
                            "E0106",
                            f"rule `{self.name.text}` has no {_spelled(clause)}",
                            self.name.span,
                            f"does not say {need}",
                            f"add: {_FORMS[clause]}",
                        )
                    )
        if not sound or self.name is None or self.stream is None or not self.key or self.pattern is None:
            return None
        return ast.Rule(
            self.name,
            self.title,
            self.severity,
            self.tags,
            self.stream,
            self.key,
            self.pattern,
            self.window,
            self.definitions,
            self.measures,
            self.mode,
            self.skip,
            self.parser.source,
            span,
        )


_SKIP_HELP = "write AFTER MATCH NO SKIP, or SKIP PAST LAST EVENT, TO NEXT EVENT, TO FIRST v, TO LAST v"


def _spelled(clause: str) -> str:
    return {"PARTITION": "PARTITION BY", "AFTER": "AFTER MATCH", "NO": "NO SKIP"}.get(clause, clause)


def _name(token: Token) -> ast.Name:
    text = token.text[1:-1].replace("``", "`") if token.kind is Lexeme.QUOTED else token.text
    return ast.Name(text, Span(token.start, token.end))


def _text(token: Token) -> ast.Text:
    return ast.Text(token.text[1:-1].replace("''", "'"), Span(token.start, token.end))


def _binary(sign: Token, left: ast.Expression, right: ast.Expression) -> ast.Binary:
    place = Span(sign.start, sign.end)
    return ast.Binary(sign.text, left, right, place, Span(left.span.start, right.span.end))


def _parts(node: ast.Expression) -> tuple[ast.Expression, ...]:
    """Return the expressions directly inside `node`."""
    match node:
        case ast.Constant() | ast.Column() | ast.Events():
            return ()
        case ast.Function(args=args):
            return args
        case (
            ast.Unary(operand=operand)
            | ast.In(operand=operand)
            | ast.Like(operand=operand)
            | ast.Is(operand=operand)
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
