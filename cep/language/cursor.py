"""A cursor over tokens: what every part of the parser reads with, and how it refuses."""

from __future__ import annotations

from typing import NoReturn

from cep.errors import Diagnostic, Source, Span
from cep.language import ast
from cep.language.diagnostics import did_you_mean
from cep.language.grammar import (
    HEAD_CLAUSES,
    PAIRED_CLAUSES,
    RESERVED,
    RESERVED_CLAUSES,
    Lexeme,
    Token,
    tokens,
)
from cep.language.time_literals import UNIT_WORDS, UNITS

MAX_NESTING = 64
"""Parentheses, calls and CASE inside each other."""


class ProblemError(Exception):
    """Ends the clause that is being read; `diagnostic` says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.title)
        self.diagnostic = diagnostic


class Cursor:
    """A place in the tokens of a source. A method that cannot go on raises `ProblemError`."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens(source.text)
        self.at = 0
        self.nesting = 0
        self.form = ""  # how the clause that is being read is written

    # Tokens

    @property
    def now(self) -> Token:
        """The token at the cursor."""
        return self.tokens[self.at]

    def ahead(self, by: int = 1) -> Token:
        """Return the token `by` places after the cursor."""
        return self.tokens[min(self.at + by, len(self.tokens) - 1)]

    def take(self) -> Token:
        """Return the token at the cursor and go on; the end is never passed."""
        token = self.now
        if token.kind is not Lexeme.END:
            self.at += 1
        return token

    def is_at_end(self) -> bool:
        """Say whether no token is left."""
        return self.now.kind is Lexeme.END

    def is_sign(self, *signs: str) -> bool:
        """Say whether one of `signs` is next."""
        return self.now.kind is Lexeme.SIGN and self.now.text in signs

    def accept_sign(self, *signs: str) -> Token | None:
        """Take one of `signs` if it is next."""
        return self.take() if self.is_sign(*signs) else None

    def accept_word(self, *words: str) -> Token | None:
        """Take one of the keywords `words` if it is next."""
        return self.take() if self.now.word in words else None

    def expect_sign(self, sign: str, instead: str = "") -> Token:
        """Take `sign`, or refuse what is there; `instead` says what could stand here."""
        return self.accept_sign(sign) or self.unexpected(instead or f"`{sign}`")

    def expect_word(self, word: str) -> Token:
        """Take the keyword `word`, or refuse what is there."""
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
        """Stop at a part of the language that is not there yet; `instead` says what to write now."""
        self.fail("E0150", f"{what}: not supported yet", span, "part of the language to come", instead)

    def unexpected(self, what: str, help_text: str = "") -> NoReturn:
        """Refuse the current token where `what` was expected."""
        token = self.now
        span = Span(token.start, token.end)
        if token.kind is Lexeme.BAD:
            self.bad_token(token)
        if token.kind is Lexeme.END:
            title = "the file ends in the middle of a rule"
        elif token.kind is Lexeme.TEXT:
            title = "unexpected text"
        else:
            title = f"unexpected `{token.text}`"
        if not help_text and token.word in RESERVED and "name" in what and token.word not in RESERVED_CLAUSES:
            self.reserved(token)
        self.fail(
            "E0101",
            title,
            span,
            f"expected {what}",
            help_text or (f"write: {self.form}" if self.form else ""),
        )

    def bad_token(self, token: Token) -> NoReturn:
        """Refuse something that is no token."""
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

    def reserved(self, token: Token) -> NoReturn:
        """Refuse a reserved word used as a name."""
        self.fail(
            "E0113",
            f"`{token.text}` is a reserved word",
            Span(token.start, token.end),
            "cannot be a name as it is",
            f"put it in backticks: `{token.text}`",
        )

    def starts_clause(self) -> bool:
        """Say whether the current token begins a clause, wherever a name could stand instead."""
        word = self.now.word
        if self.at > 0 and self.tokens[self.at - 1].text == ".":
            return False
        return (
            word in RESERVED_CLAUSES
            or word in HEAD_CLAUSES
            or (word in PAIRED_CLAUSES and self.ahead().word == PAIRED_CLAUSES[word])
        )

    # Names and numbers

    def is_name(self) -> bool:
        """Say whether a name is next."""
        return self.now.kind is Lexeme.QUOTED or (
            self.now.kind is Lexeme.WORD and self.now.word not in RESERVED
        )

    def name(self, what: str) -> ast.Name:
        """Read a name; `what` says which."""
        if not self.is_name():
            self.unexpected(what)
        return name_of(self.take())

    def name_after_dot(self, instead: str) -> ast.Name:
        """Read the name of a column after a dot, where reserved words are names."""
        if self.now.kind not in (Lexeme.WORD, Lexeme.QUOTED):
            self.unexpected("the name of a column", instead)
        return name_of(self.take())

    def names(self, what: str) -> list[ast.Name]:
        """Read names separated by commas."""
        result = [self.name(what)]
        while self.accept_sign(","):
            result.append(self.name(what))
        return result

    def integer(self, what: str) -> int:
        """Read a whole number."""
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
        amount = self.integer("a whole number")
        return amount * self.unit()

    def unit(self) -> int:
        """Read a unit of time, in microseconds."""
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


def name_of(token: Token) -> ast.Name:
    """Return the name a token stands for."""
    text = token.text[1:-1].replace("``", "`") if token.kind is Lexeme.QUOTED else token.text
    return ast.Name(text, Span(token.start, token.end))


def text_of(token: Token) -> ast.Text:
    """Return the text a token stands for."""
    return ast.Text(token.text[1:-1].replace("''", "'"), Span(token.start, token.end))
