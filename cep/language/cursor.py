"""A cursor over tokens: every part of the parser reads and reports problems through it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from cep.diagnostics.diagnostic import did_you_mean, suggestion
from cep.diagnostics.limits import Problems
from cep.errors import Diagnostic, Source, Span
from cep.language import ast
from cep.language.brackets import CLOSING, innermost_open
from cep.language.foreign import Foreign, Syntax, foreign_piece
from cep.language.grammar import (
    HEAD_CLAUSES,
    JOIN_WORDS,
    PAIRED_CLAUSES,
    RESERVED,
    RESERVED_CLAUSES,
    STATUSES,
    VIEW_CLAUSES,
    WINDOW_CLAUSES,
    WINDOW_KINDS,
    Lexeme,
    Token,
    tokens,
)
from cep.schema.time_literals import SHORT_UNITS, UNIT_WORDS, UNITS, is_amount, parse_duration, times_unit

T = TypeVar("T")

MAX_NESTING = 64
"""Parentheses, calls and CASE inside each other."""

_CURLY_QUOTES = "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\xab\xbb\xb4"
_LONG_UNITS = frozenset(("MONTH", "MONTHS", "QUARTER", "QUARTERS", "YEAR", "YEARS"))
_OF_STREAMS = frozenset(("WINDOW", "TIME", "TIME_BATCH", "LENGTH", "LENGTH_BATCH", "UNIQUE", "KEEPALL"))
"""What Siddhi and Esper write behind a stream and ``#``."""

_COMMENT_HELP = "a comment begins with -- and ends with the line"
_DURATION_HELP = (
    "a duration is a constant: 10 MINUTES; only a condition can compare a time with a value: "
    "ts - a.ts < a.x * 1 SECOND"
)

PARAMETER = re.compile(r"\$\{\w{1,60}\}|\{\{? ?\w{1,60} ?\}?\}|[$:@]\w{1,60}|%\(\w{1,60}\)s|\?")
"""A parameter as other languages and templates write it, where a value is expected."""

_SURE_PARAMETER = re.compile(r"\$\w{1,60}|\$\{\w{1,60}\}|\{\{ ?\w{1,60} ?\}\}")
"""A parameter wherever it is."""

_FOREIGN_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]{1,9}(?:\.[0-9]{1,9})?(?P<percent>%)")

_BEHIND_VIEW = VIEW_CLAUSES | {"FROM", "JOIN", "TITLE", "SEVERITY", "TAGS", "STATUS", "PARAM"}
"""First words of clauses that may stand behind the name of a view."""


KIND_WORDS = {
    ast.Kind.BOOLEAN: "TRUE or FALSE",
    ast.Kind.INTEGER: "a whole number",
    ast.Kind.DECIMAL: "a number",
    ast.Kind.TEXT: "a text",
    ast.Kind.TIMESTAMP: "a time: TIMESTAMP '2024-05-01 10:00:00'",
    ast.Kind.INTERVAL: "a duration: 10 MINUTES",
}
"""Kind of the value of a parameter -> what it is, with an example where that is not obvious."""

_EXAMPLES = {ast.Kind.INTEGER: "5", ast.Kind.TEXT: "'ab%'", ast.Kind.INTERVAL: "10 MINUTES"}


class ProblemError(Exception):
    """Ends the clause that is being read; `diagnostic` says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.title)
        self.diagnostic = diagnostic


class Cursor:
    """A place in the tokens of a source. A method that cannot continue raises `ProblemError`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens(source.text)
        self.at = 0
        self.keywords: set[int] = set()  # places in the text of words that were read as keywords
        self.nesting = 0
        self.form = ""  # the form of the clause that is being read
        self.syntax = Syntax.CLAUSE
        self.diagnostics = Problems()
        self.reserved_words: set[str] = set()  # that were refused as names in this rule
        self.window_at: int | None = None  # of the rule that is being read, if it has one: its clause WINDOW
        self.has_pattern = False  # whether this rule has the clause PATTERN
        self.clause_at = 0  # after the first word of the clause that is being read
        self.is_view = False  # whether what is being read is a view
        self.parameters: dict[str, ast.Constant] = {}  # of the rule that is being read, as declared

    @property
    def is_window_rule(self) -> bool:
        """Whether the rule that is being read has the clause WINDOW."""
        return self.window_at is not None

    # Tokens

    @property
    def now(self) -> Token:
        """The token at the cursor."""
        return self.tokens[self.at]

    def ahead(self, by: int = 1) -> Token:
        """Return the token `by` places after the cursor."""
        return self.tokens[min(self.at + by, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the token at the cursor and continue; the end is never passed."""
        token = self.now
        if token.kind is not Lexeme.END:
            self.at += 1
        return token

    def is_at_end(self) -> bool:
        """Return whether no token is left."""
        return self.now.kind is Lexeme.END

    def is_sign(self, *signs: str) -> bool:
        """Return whether one of `signs` is next."""
        return self.now.kind is Lexeme.SIGN and self.now.text in signs

    def accept_sign(self, *signs: str) -> Token | None:
        """Take one of `signs` if it is next."""
        return self.take() if self.is_sign(*signs) else None

    def take_word(self) -> Token:
        """Take the next word as a keyword."""
        self.keywords.add(self.now.start)
        return self.take()

    def accept_word(self, *words: str) -> Token | None:
        """Take one of the keywords `words` if it is next."""
        return self.take_word() if self.now.word in words else None

    def expect_sign(self, sign: str, instead: str = "", help_text: str = "") -> Token:
        """Take `sign`, or refuse the next token; `instead` says what is allowed here."""
        return self.accept_sign(sign) or self.unexpected(instead or f"`{sign}`", help_text)

    def expect_word(self, word: str) -> Token:
        """Take the keyword `word`, or refuse the next token."""
        return self.accept_word(word) or self.unexpected(word)

    def span_from(self, start: int) -> Span:
        """Return the place from `start` to the token taken last."""
        return Span(start, self.tokens[self.at - 1].end)

    # Problems

    def problem(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> Diagnostic:
        """Return a diagnostic about this source."""
        return Diagnostic(code, title, self.source, span, label, help_text)

    def fail(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> NoReturn:
        """Stop reading with a problem."""
        raise ProblemError(self.problem(code, title, span, label, help_text))

    def later(self, what: str, span: Span, instead: str) -> NoReturn:
        """Refuse a part of the language that is not supported yet; `instead` says what to write now."""
        self.fail("E0150", f"{what}: not supported yet", span, "part of the language to come", instead)

    def unexpected(self, what: str, help_text: str = "") -> NoReturn:
        """Refuse the current token where `what` was expected."""
        token = self.now
        span = Span(token.start, token.end)
        self.refuse_comment()
        foreign = foreign_piece(self.tokens, self.at, self.syntax)
        if foreign is not None:
            self.foreign(foreign)
        self.refuse_parameter(_SURE_PARAMETER)
        if token.kind is Lexeme.BAD:
            self.bad_token(token)
        if self.is_like_unit():
            self.unit()
        self.refuse_number()
        self.refuse_open_bracket()
        if token.kind is Lexeme.END:
            title = "the file ends in the middle of a rule"
        elif token.kind is Lexeme.TEXT:
            title = "unexpected text"
        else:
            title = f"unexpected `{token.text}`"
        self.fail(
            "E0101",
            title,
            span,
            f"expected {what}",
            help_text or (f"write: {self.form}" if self.form else ""),
        )

    def refuse_number(self) -> None:
        """Refuse ``10,000`` and ``10%`` in an expression, if the cursor is in them or after them."""
        if self.syntax is not Syntax.EXPRESSION:
            return
        for at in range(max(self.at - 2, 0), self.at):
            found = _FOREIGN_NUMBER.match(self.source.text, self.tokens[at].start)
            if (
                self.tokens[at].kind is not Lexeme.NUMBER
                or found is None
                or found.end() < self.tokens[self.at - 1].end
            ):
                continue
            is_part = found["percent"] is not None
            value = f"{float(found[0][:-1]) / 100:g}" if is_part else found[0].replace(",", "")
            self.fail(
                "E0101",
                f"`{found[0]}` is not a number",
                Span(*found.span()),
                "`%` is the remainder of a division" if is_part else "a comma separates two items",
                f"write {value}",
            )

    def refuse_parameter(self, form: re.Pattern[str]) -> None:
        """Refuse a parameter of this form, such as ``$limit``, at the cursor."""
        found = form.match(self.source.text, self.now.start)
        if found is not None:
            self.later(
                f"parameters such as `{found[0]}`",
                Span(*found.span()),
                "write the value itself, for example 500",
            )

    def refuse_open_bracket(self) -> None:
        """Refuse the innermost open bracket of the clause, if no later sign closes it."""
        opening = innermost_open(self.tokens, self.clause_at, self.at)
        if opening is None:
            return
        here = self.at
        self.at = opening + 1
        while not (self.is_at_end() or self._ends_brackets()):
            self.at += 1
        end, self.at = self.at, here
        if innermost_open(self.tokens, opening, end) is None:
            return
        bracket, closing, behind = self.tokens[opening], CLOSING[self.tokens[opening].text], self.tokens[end]
        line = self.source.text.count("\n", 0, behind.start) + 1
        where = "the file ends" if behind.kind is Lexeme.END else f"`{behind.text}` in line {line}"
        self.fail(
            "E0116",
            f"`{bracket.text}` is not closed",
            Span(bracket.start, bracket.end),
            f"no `{closing}` before {where}",
            f"write `{closing}` where it ends",
        )

    def refuse_closing_bracket(self) -> None:
        """Refuse a closing bracket without an opening one, where a clause could start."""
        if not self.is_sign(*CLOSING.values()):
            return
        self.fail(
            "E0116",
            f"`{self.now.text}` closes no bracket",
            Span(self.now.start, self.now.end),
            "none is open here",
            "leave it out, or write the one that opens",
        )

    def _ends_brackets(self) -> bool:
        """Return whether no bracket that was opened before the cursor is closed after it."""
        if self.now.text == "," and self.ahead(2).word == "AS" and self.ahead().kind is not Lexeme.NUMBER:
            return True  # another definition
        if self.now.word == "WITHIN" and self.syntax is Syntax.PATTERN:  # groups also have it
            return False
        return self.starts_clause() and (self.is_first_of_line() or self.begins_clause())

    def foreign(self, piece: Foreign) -> NoReturn:
        """Refuse a sign or a word of another language; in a pattern also report what else belongs to it."""
        help_text = piece.help
        if self.syntax is Syntax.PATTERN:
            words = {token.text for token in self.tokens[self.clause_at : self.at] if token.word == "EVERY"}
            help_text += "".join(
                f"\nleave `{word}` out, too: every event can begin a match" for word in words
            )
        self.fail(
            "E0114", f"{self.syntax} has no `{piece.text}`", piece.span, "of another language", help_text
        )

    def refuse_comment(self) -> None:
        """Refuse ``// text`` at its first sign."""
        for at in (self.at - 1, self.at):
            first, second = self.tokens[at], self.ahead(at + 1 - self.at)
            if first.text == second.text == "/" and first.end == second.start:
                self.fail(
                    "E0103",
                    "`//` is no part of the rule language",
                    Span(first.start, second.end),
                    "not understood",
                    _COMMENT_HELP,
                )

    def bad_token(self, token: Token) -> NoReturn:
        """Refuse text that is not a token."""
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
        if token.text == "#" and self.ahead().word in _OF_STREAMS and self.ahead().start == token.end:
            self.fail(
                "E0114",
                f"a stream has no `#{self.ahead().text}`",
                Span(token.start, self.ahead().end),
                "of another language",
                "write WINDOW TUMBLING 10 MINUTES for a row about each ten minutes, "
                "COUNT(*) OVER LAST 10 MINUTES for a value at each event",
            )
        helps = {
            '"': "write a text in single quotes: 'text'; a name that needs quotes goes in backticks: `name`",
            "/*": _COMMENT_HELP,
            "#": _COMMENT_HELP,
            **dict.fromkeys(_CURLY_QUOTES, "write a text in plain single quotes: 'text'"),
            ";": "leave it out: a rule ends where the next RULE begins",
            ":": "leave it out",
        }
        text = token.text.split("\n")[0][:40]
        invisible = len(text) == 1 and (text.isspace() or not text.isprintable())
        default = (
            "replace it by an ordinary space"
            if invisible
            else "leave it out; a name with special characters goes in backticks: `name`"
        )
        shown = f"U+{ord(text):04X}" if invisible else text
        key = text[:2] if text[:2] in helps else text[0]
        self.fail(
            "E0103",
            f"`{shown}` is no part of the rule language",
            span,
            "not understood",
            helps.get(key, default),
        )

    def reserved_name(self) -> ast.Name:
        """Take a reserved word as a name; refuse it, once in a rule."""
        token = self.take()
        if token.word not in self.reserved_words:
            self.reserved_words.add(token.word)
            self.diagnostics.append(
                self.problem(
                    "E0113",
                    f"`{token.text}` is a reserved word",
                    Span(token.start, token.end),
                    "cannot be a name as it is",
                    f"put it in backticks wherever it stands: `{token.text}`",
                )
            )
        return name_of(token)

    def begins_clause(self) -> bool:
        """Return whether a clause is next; its word alone may be intended as a name."""
        return self.starts_clause() and goes_on(self.now, self.ahead())

    def starts_clause(self) -> bool:
        """Return whether the current token starts a clause, wherever a name could be instead."""
        word = self.now.word
        if self.at > 0 and self.tokens[self.at - 1].text == ".":
            return False
        return (
            word in RESERVED_CLAUSES
            or word in HEAD_CLAUSES
            or (word in PAIRED_CLAUSES and self.ahead().word == PAIRED_CLAUSES[word])
            or (word == "STATUS" and self.ahead().word in STATUSES)
            or (word == "JOIN" and self.ahead(2).word == "ON")
            or (self.is_window_rule and self._starts_window_clause())
            or (self.is_view and self._starts_view_clause())
            or self.begins_view()
            or (word == "GROUP" and self.ahead().word == "BY" and self.is_first_of_line())
        )

    def is_first_of_line(self) -> bool:
        """Return whether no other token precedes the current one on its line."""
        return self.begins_line(self.at)

    def begins_line(self, at: int) -> bool:
        """Return whether the token at the place `at` is the first of its line."""
        return at == 0 or "\n" in self.source.text[self.tokens[at - 1].end : self.tokens[at].start]

    def begins_view(self) -> bool:
        """Return whether a view starts here: elsewhere VIEW is a name."""
        if self.now.word != "VIEW" or self.ahead().kind not in (Lexeme.QUOTED, Lexeme.WORD):
            return False
        return self.at == 0 or (self.is_first_of_line() and self.ahead(2).word in _BEHIND_VIEW)

    def _starts_view_clause(self) -> bool:
        after = self.ahead()
        match self.now.word:
            case "KEY":
                return after.kind is Lexeme.QUOTED or (
                    after.kind is Lexeme.WORD and after.word not in RESERVED
                )
            case word if word in JOIN_WORDS:
                is_outer = after.word == "OUTER" and word != "INNER"
                return (self.ahead(2) if is_outer else after).word == "JOIN"
            case word:
                return word in VIEW_CLAUSES

    def _starts_window_clause(self) -> bool:
        if self.now.word == "WINDOW":
            return (
                self.at == self.window_at
                or self.ahead().word in WINDOW_KINDS
                or self.ahead().kind is Lexeme.NUMBER
            )
        return self.now.word in WINDOW_CLAUSES

    # Names and numbers

    def is_name(self) -> bool:
        """Return whether a name is next."""
        return self.now.kind is Lexeme.QUOTED or (
            self.now.kind is Lexeme.WORD and self.now.word not in RESERVED
        )

    def name(self, what: str) -> ast.Name:
        """Read a name; `what` says which."""
        if not self.is_name():
            is_word = self.now.kind is Lexeme.WORD and not self.begins_clause()
            if self.now.word == "AS" and self.ahead().word != "AS":  # there is no name
                is_word = False
            if not is_word or foreign_piece(self.tokens, self.at, self.syntax) is not None:
                self.unexpected(what)
            return self.reserved_name()
        found = name_of(self.take())
        if self.syntax is not Syntax.PATTERN:
            self.refuse_joined("-")
        return found

    def refuse_joined(self, *signs: str) -> None:
        """Refuse ``user-id``: one of `signs` between the name taken last and another, without blanks."""
        first, end = self.at - 1, self.at
        while (
            self.tokens[end].text in signs
            and self.tokens[end - 1].end == self.tokens[end].start
            and self.tokens[end].end == self.tokens[end + 1].start
            and self.tokens[end + 1].kind in (Lexeme.WORD, Lexeme.NUMBER)
        ):
            end += 2
        if end == self.at or self.tokens[first].kind is not Lexeme.WORD:
            return
        span = Span(self.tokens[first].start, self.tokens[end - 1].end)
        name = self.source.text[span.start : span.end]
        self.at = end
        self.fail(
            "E0101",
            f"`{name}` cannot be a name as it is",
            span,
            f"a name has no `{self.tokens[first + 1].text}`",
            f"put it in backticks wherever it stands: `{name}`",
        )

    def name_after_dot(self, instead: str) -> ast.Name:
        """Read the name of a column after a dot, where reserved words are names."""
        if self.now.kind not in (Lexeme.WORD, Lexeme.QUOTED):
            self.unexpected("the name of a column", instead)
        return name_of(self.take())

    def names(self, what: str) -> list[ast.Name]:
        """Read names separated by commas."""
        return self.listed(lambda: self.name(what))

    def listed(self, read: Callable[[], T]) -> list[T]:
        """Read items separated by commas."""
        found = [read()]
        while comma := self.accept_sign(","):
            self.refuse_comma(comma)
            found.append(read())
        return found

    def refuse_comma(self, comma: Token) -> None:
        """Refuse a comma that no item follows."""
        if not (self.begins_clause() or self.is_sign(",", ")") or self.is_at_end()):
            return
        if not self.is_sign(")"):
            self.refuse_open_bracket()
        self.fail(
            "E0101", "a comma too many", Span(comma.start, comma.end), "nothing follows it", "leave it out"
        )

    def integer(self, what: str, help_text: str = "") -> int:
        """Read a whole number, or the parameter that has it."""
        if (named := self.parameter(ast.Kind.INTEGER)) is not None:
            return self._of_parameter(named)
        if self.now.kind is not Lexeme.NUMBER:
            self.unexpected(what, help_text)
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

    def parameter(self, kind: ast.Kind, example: str = "") -> tuple[ast.Name, ast.Constant] | None:
        """Take a parameter in the place of a constant of this kind; None: something else is next."""
        if not self.is_name():
            return None
        name = name_of(self.now)
        value = self.parameters.get(name.text)
        if value is None:
            return None
        if value.kind is not kind:
            self.fail(
                "E0250",
                f"parameter `{name.text}` is {_title(value.kind)}",
                name.span,
                f"expected {_title(kind)}",
                f"write: PARAM {name.text} = {example or _EXAMPLES[kind]}",
            )
        self.take()
        return name, value

    def parameters_help(self) -> str:
        """Return which parameter may be meant by a name where a constant is expected, if the rule has
        parameters.
        """
        is_name = self.is_name() and not self.starts_clause()
        return (
            did_you_mean(self.now.text, self.parameters, "parameters") if is_name and self.parameters else ""
        )

    def _of_parameter(self, named: tuple[ast.Name, ast.Constant]) -> int:
        name, constant = named
        assert isinstance(constant.value, int)
        if constant.value < 0:
            title = f"parameter `{name.text}` is {constant.value}"
            self.fail("E0104", title, name.span, "expected 0 or more", "declare it without a minus sign")
        return ast.ParameterValue.of(constant.value, name)

    def begins_span(self) -> bool:
        """Return whether a number with a unit of time is next."""
        return self.now.kind is Lexeme.NUMBER and (
            self.ahead().word in UNIT_WORDS or parse_duration(self._compact()) is not None
        )

    def _compact(self) -> str:
        """Return the number at the cursor and the word directly after it: ``1h30m`` is these two tokens."""
        word = self.ahead()
        if word.kind is not Lexeme.WORD or word.start != self.now.end:
            return ""
        return self.now.text + word.text

    def duration(self) -> int:
        """Read ``10 MINUTES``, ``1 HOUR 30 MINUTES`` or ``INTERVAL '10' MINUTE``, in microseconds.

        A parameter with such a value may be in its place.
        """
        if (named := self.parameter(ast.Kind.INTERVAL)) is not None:
            return self._of_parameter(named)
        if self.now.word == "INTERVAL" and self.ahead().kind in (Lexeme.TEXT, Lexeme.NUMBER):
            self.take_word()
            if self.now.kind is Lexeme.TEXT:
                return self.interval_text()
        length_us = self.span()
        while self.begins_span():
            length_us += self.span()
        return length_us

    def span(self) -> int:
        """Read a number and a unit of time, in microseconds."""
        token = self.now
        if token.kind is not Lexeme.NUMBER:
            is_name = self.is_name() and not self.starts_clause()
            help_text = _DURATION_HELP if is_name else "write a number and a unit: 10 MINUTES"
            self.unexpected("a duration", self.parameters_help() or help_text)
        compact_us = parse_duration(self._compact())
        if compact_us is not None:
            self.take()
            self.take()
            return compact_us
        self.take()
        return self._exact(token.text, Span(token.start, token.end))

    def interval_text(self) -> int:
        """Read what follows INTERVAL: ``'10' MINUTE`` or ``'10 minutes'``, in microseconds."""
        text = text_of(self.take())
        length_us = parse_duration(text.text)
        return self._exact(text.text, text.span) if length_us is None else length_us

    def _exact(self, amount: str, span: Span) -> int:
        """Read the unit of `amount`; return the microseconds."""
        if not is_amount(amount):
            self.fail(
                "E0104",
                f"`{amount[:40]}` is not allowed before a unit of time",
                span,
                "expected at most 18 digits, and a point if need be",
                "write for example 10 MINUTES, 1.5 HOURS or INTERVAL '10' MINUTE",
            )
        unit = self.now
        length_us = times_unit(amount, self.unit())
        if length_us is None:
            self.fail(
                "E0104",
                f"`{amount} {unit.text}` is not a whole number of microseconds",
                Span(span.start, unit.end),
                "finer than time is measured",
                "round it to microseconds",
            )
        return length_us

    def is_like_unit(self) -> bool:
        """Return whether a word that is nearly a unit of time follows a number."""
        word = self.now.word
        if self.tokens[self.at - 1].kind is not Lexeme.NUMBER or not self.is_name() or self.starts_clause():
            return False
        if self.is_first_of_line():
            return False
        return word in _LONG_UNITS or suggestion(word, [unit.word for unit in UNITS]) is not None

    def unit(self) -> int:
        """Read a unit of time, in microseconds."""
        token = self.now
        length = UNIT_WORDS.get(token.word)
        if length is None:
            if token.kind is not Lexeme.WORD or self.starts_clause():
                self.unexpected("a unit of time", "write the unit too, for example 10 MINUTES")
            shown = f"{', '.join(unit.word for unit in UNITS)}; short: {', '.join(SHORT_UNITS).lower()}"
            near = suggestion(token.word, UNIT_WORDS)
            if token.word in _LONG_UNITS:
                help_text = f"{token.word.removesuffix('S').lower()}s differ in length: write DAYS"
            else:
                help_text = f"did you mean {near}? units: {shown}" if near else f"units: {shown}"
            self.fail(
                "E0109",
                f"`{token.text}` is not a unit of time",
                Span(token.start, token.end),
                "expected a unit of time",
                help_text,
            )
        if self.take().word not in SHORT_UNITS:
            self.keywords.add(token.start)
        return length

    def deeper(self, token: Token) -> None:
        """Enter one more level of nesting at `token`."""
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            self.fail(
                "E0902",
                f"more than {MAX_NESTING} levels of nesting",
                Span(token.start, token.end),
                "one level too many",
                "split the expression or the pattern",
            )


def goes_on(word: Token, after: Token) -> bool:
    """Return whether the tokens after `word` could be the rest of the clause that it starts."""
    is_name = after.kind is Lexeme.QUOTED or (after.kind is Lexeme.WORD and after.word not in RESERVED)
    match word.word:
        case "RULE" | "FROM" | "SUBSET" | "DEFINE":
            return is_name
        case "PARTITION":
            return after.word == "BY"
        case "PATTERN":
            return is_name or after.text in ("(", "!", "^", "{", "[")
        case "WITHIN":
            return after.kind is Lexeme.NUMBER or after.text in ("<", "<=") or after.word == "INTERVAL"
        case "MEASURES":
            return (
                after.kind in (Lexeme.QUOTED, Lexeme.NUMBER, Lexeme.TEXT)
                or after.text in ("(", "-")
                or (after.kind is Lexeme.WORD and after.word != "AS")
            )
        case "MATCH":
            return after.word in ("EARLIEST", "ALL", "PREFERRED")
        case "AFTER":
            return after.word == "MATCH"
        case "SUPPRESS":
            return after.word in ("FOR", "AFTER")
        case "TITLE":
            return after.kind is Lexeme.TEXT
        case "SEVERITY" | "LET" | "PARAM" | "JOIN":
            return is_name
        case "TAGS":
            return is_name or after.kind is Lexeme.TEXT
        case _:
            return True  # both words are present


def _title(kind: ast.Kind) -> str:
    return KIND_WORDS[kind].partition(":")[0]


def name_of(token: Token) -> ast.Name:
    """Return the name a token stands for."""
    text = token.text[1:-1].replace("``", "`") if token.kind is Lexeme.QUOTED else token.text
    return ast.Name(text, Span(token.start, token.end))


def text_of(token: Token) -> ast.Text:
    """Return the text a token stands for."""
    return ast.Text(token.text[1:-1].replace("''", "'"), Span(token.start, token.end))
