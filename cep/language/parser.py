"""Rule text -> syntax trees, by recursive descent over the tokens of `cep.language.grammar`.

A problem ends only its clause. The parser continues with the next clause, so it reports every problem of a
file. A rule with a problem is not returned.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, NoReturn

from cep.diagnostics.limits import (
    MAX_BYTES,
    MAX_NAME,
    MAX_RULES,
    MAX_TEXT,
    MAX_TOKENS,
    TooManyErrorsError,
    too_large,
)
from cep.errors import Diagnostic, Source, Span
from cep.language import ast
from cep.language.clauses.forms import FORMS
from cep.language.clauses.rule_reader import RuleReader
from cep.language.clauses.view import ViewReader
from cep.language.clauses.window import find_window
from cep.language.cursor import ProblemError
from cep.language.foreign import Syntax
from cep.language.grammar import Lexeme
from cep.language.patterns import PatternReader

_MAX_PARENTHESES = 80
"""Tokens in parentheses that are skipped at once after a problem."""


def parse(source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic]]:
    """Return the well-formed rules of `source`, and all problems of the others."""
    rules, problems, _ = parse_with_places(source)
    return rules, problems


class Places(NamedTuple):
    """Offsets in a text: where rules and clauses begin, and the other keywords."""

    clauses: frozenset[int] = frozenset()
    keywords: frozenset[int] = frozenset()


def parse_with_places(source: Source) -> tuple[tuple[ast.Rule, ...], list[Diagnostic], Places]:
    """Return the result of `parse`, and the places of clauses and keywords."""
    if len(source.text.encode(errors="surrogatepass")) > MAX_BYTES:
        return (), [too_large(source, MAX_BYTES)], Places()
    parser = _Parser(source)
    excess = parser.excess()
    if excess is not None:
        return (), [excess], Places()
    rules: list[ast.Rule] = []
    with suppress(TooManyErrorsError):  # the last diagnostic says so
        parser.file(rules)
    places = Places(frozenset(parser.clauses), frozenset(parser.keywords))
    return tuple(rules), list(parser.diagnostics), places


class _Parser(PatternReader):
    """Reads files and rules; `clauses` are the offsets of the first words of rules and clauses."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.clauses: list[int] = []

    def excess(self) -> Diagnostic | None:
        """Return the problem if there are too many tokens, or one of them is too long."""
        last = self.tokens[-1]
        if last.text:
            return self.problem(
                "E0910",
                f"the file has more than {MAX_TOKENS:,} words and signs",
                Span(last.start, last.end),
                "one too many",
                "split the rules into several files",
            )
        for token in self.tokens:
            limit = {Lexeme.TEXT: MAX_TEXT, Lexeme.WORD: MAX_NAME, Lexeme.QUOTED: MAX_NAME}.get(token.kind)
            if limit is not None and token.end - token.start > limit:
                what = "text" if token.kind is Lexeme.TEXT else "name"
                return self.problem(
                    "E0912",
                    f"a {what} of more than {limit:,} characters",
                    Span(token.start, token.end),
                    "too long",
                    f"write a shorter {what}",
                )
        return None

    def file(self, rules: list[ast.Rule]) -> None:
        """Read all rules and add those without a problem to `rules`."""
        if self.is_at_end():
            self.diagnostics.append(
                Diagnostic(
                    "E0107",
                    "the file has no rule",
                    self.source,
                    help="write: RULE name FROM stream PARTITION BY column PATTERN a -> b DEFINE a AS ...",
                )
            )
        elif not self.begins_rule() and self.is_other_language():
            return
        elif not self.begins_rule():
            self.recover(self.before_first_rule)
            while not self.is_at_end() and not self.begins_rule():
                self.take()
        n_rules = 0
        while not self.is_at_end():
            n_rules += 1
            if n_rules > MAX_RULES:
                self.diagnostics.append(
                    self.problem(
                        "E0911",
                        f"the file has more than {MAX_RULES} rules",
                        Span(self.now.start, self.now.end),
                        "one too many",
                        "split the rules into several files",
                    )
                )
                return
            rule = self.rule()
            if rule is not None:
                rules.append(rule)

    def is_other_language(self) -> bool:
        """Return whether the text is in another language; report which, and the equivalent rule."""
        from cep.language.other_languages.recognize import other_language  # valid rules do not need it

        found = other_language(self.source.text)
        if found is None:
            return False
        help_text = found.help
        if found.rule is not None and not parse(Source("rule", found.rule))[1]:
            help_text += ", for example:\n" + found.rule
        self.diagnostics.append(self.problem("E0117", found.title, found.span, "not a rule", help_text))
        return True

    def before_first_rule(self) -> NoReturn:
        token = self.now
        self.refuse_comment()
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
        """Call `read`. Add its problem, if any, and go to the next clause. Return whether it had none."""
        before, n_reserved = self.at, len(self.reserved_words)
        try:
            read()
        except ProblemError as error:
            if len(self.reserved_words) == n_reserved:  # otherwise it follows from a reported problem
                self.diagnostics.append(error.diagnostic)
            self.nesting = 0
            if self.at == before:
                self.take()
            while not self.is_at_end() and not (
                self.starts_clause() and (self.is_first_of_line() or self.begins_clause())
            ):
                self.at = self._end_of_parentheses()
                self.take()
            return False
        return len(self.reserved_words) == n_reserved

    def _end_of_parentheses(self) -> int:
        """Return the place of the parenthesis on this line that closes the one at the cursor, if it is near.

        Words of clauses in parentheses, ``(SELECT x FROM t)``, do not begin a clause.
        """
        depth = 0
        for end in range(self.at, min(self.at + _MAX_PARENTHESES, len(self.tokens))):
            if end > self.at and self.begins_line(end):
                break
            depth += (self.tokens[end].text == "(") - (self.tokens[end].text == ")")
            if depth <= 0:
                return end
        return self.at

    def begins_rule(self) -> bool:
        """Return whether a rule or a view starts here."""
        return self.now.word == "RULE" or self.begins_view()

    def rule(self) -> ast.Rule | None:
        self.is_view = self.now.word == "VIEW"
        self.window_at, self.has_pattern = (
            (None, False) if self.is_view else find_window(self.tokens, self.at + 1)
        )
        self.parameters = self.declared_parameters()
        reader = ViewReader(self) if self.is_view else RuleReader(self)
        self.reserved_words.clear()
        self.syntax = Syntax.CLAUSE
        start = self.take()  # RULE or VIEW
        self.clauses.append(start.start)
        self.form, self.clause_at = FORMS[start.word], self.at
        sound = self.recover(reader.read_name)
        while self.now.kind is not Lexeme.END and not self.begins_rule():
            self.clauses.append(self.now.start)
            sound = self.recover(reader.read_clause) and sound
        span = self.span_from(start.start)
        return reader.finish(span, sound)
