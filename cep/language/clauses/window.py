"""The clauses of window rules: WINDOW, WHERE and HAVING, and the clauses that cannot occur with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

from cep.errors import Diagnostic, Span
from cep.language import ast
from cep.language.clauses.foreign_windows import STEP_WORDS, WINDOW_KIND_WORDS, refuse_form, refuse_kind
from cep.language.grammar import WINDOW_KINDS, Lexeme, Token
from cep.language.patterns import PatternReader
from cep.schema.time_literals import print_duration

WINDOW_FORMS = {
    "WINDOW": "WINDOW TUMBLING 1 HOUR, HOPPING 10 MINUTES EVERY 1 MINUTE or SESSION GAP 30 MINUTES",
    "WHERE": "WHERE amount > 5",
    "HAVING": "HAVING COUNT(*) > 100",
}
"""First word of a clause -> how it is written."""

_OF_PATTERNS = {
    "PATTERN": "PATTERN",
    "WITHIN": "WITHIN",
    "SUBSET": "SUBSET",
    "DEFINE": "DEFINE",
    "MATCH": "MATCH",
    "AFTER": "AFTER MATCH",
    "ONE": "ROWS PER MATCH",
    "ON": "ON TIMEOUT",
    "MAX": "MAX RUNS",
}
"""First word of a clause about patterns -> the clause."""

_INSTEAD = {
    "DEFINE": "say which events count in WHERE: WHERE amount > 5",
    "WITHIN": "the window has its length in WINDOW: leave WITHIN out",
}
_LEAVE_OUT = "leave it out; or leave WINDOW out and write a PATTERN"

_INSIDE = frozenset((".", ",", "=", "(", "<", ">"))
"""Signs before a word that is not a clause."""

_EVERY_HELP = (
    "WINDOW TUMBLING 1 HOUR reports each hour, WINDOW HOPPING 1 DAY EVERY 1 HOUR each hour about the last day"
)


def find_window(tokens: list[Token], at: int) -> tuple[int | None, bool]:
    """Return the place of WINDOW in the rule whose tokens start at `at`, and whether it has a PATTERN.

    In a rule without a PATTERN the word is always the clause: a rule has one of the two.
    """
    likely: int | None = None
    has_pattern = False
    for place in range(at, len(tokens) - 1):
        token, after = tokens[place], tokens[place + 1]
        if token.word == "RULE" and after.kind in (Lexeme.WORD, Lexeme.QUOTED) and after.word != "AS":
            break
        has_pattern = has_pattern or (token.word == "PATTERN" and tokens[place - 1].text != ".")
        if token.word in WINDOW_KIND_WORDS and (after.text == "(" or after.kind is Lexeme.NUMBER):
            likely = place if likely is None else likely
        if token.word != "WINDOW":
            continue
        if after.word in WINDOW_KINDS or after.kind is Lexeme.NUMBER:
            return place, has_pattern
        before = tokens[place - 1]
        is_name = before.text in _INSIDE or before.word in ("BY", "FROM", "ON", "AS")
        if likely is None and not is_name and after.kind in (Lexeme.WORD, Lexeme.TEXT):
            likely = place
    return None if has_pattern else likely, has_pattern


class WindowClauses:
    """Reads these clauses, each after its first word."""

    def __init__(self, parser: PatternReader) -> None:
        self.parser = parser
        self.windowing: ast.Windowing | None = None
        self.where: ast.Expression | None = None
        self.having: ast.Expression | None = None
        self.readers: dict[str, Callable[[], None]] = {
            "WINDOW": self.read_window,
            "WHERE": self.read_where,
            "HAVING": self.read_having,
        }

    def read_window(self) -> None:
        """Read the clause WINDOW."""
        parser = self.parser
        start = parser.now.start
        word = parser.accept_word("TUMBLING", "HOPPING", "SESSION")
        if word is None:
            refuse_kind(parser, WINDOW_FORMS["WINDOW"], _EVERY_HELP)
        kind = ast.WindowKind(word.word)
        every_us = offset_us = most_us = zone = table = None
        if parser.is_sign("("):
            refuse_form(parser, word, kind)
        if kind is ast.WindowKind.SESSION and not parser.accept_word("GAP"):
            if not parser.begins_span():
                parser.unexpected("GAP", "write WINDOW SESSION GAP 30 MINUTES")
            refuse_form(parser, word, kind)
        length_us = parser.duration()
        if kind is ast.WindowKind.HOPPING:
            if not parser.accept_word("EVERY"):
                self._refuse_step(word, length_us)
            every_us = parser.duration()
        elif kind is ast.WindowKind.TUMBLING and parser.now.word in STEP_WORDS:
            self._refuse_step(word, length_us)
        if kind is ast.WindowKind.SESSION and parser.now.word == "MAX" and parser.ahead().word != "RUNS":
            parser.take_word()
            most_us = parser.duration()
        if kind is not ast.WindowKind.SESSION and parser.accept_word("OFFSET"):
            offset_us = parser.duration()
        if kind is ast.WindowKind.TUMBLING and parser.accept_word("ZONE"):
            zone = parser.zone()
        self._refuse_zone(word, kind)
        if parser.now.word == "FOR" and parser.ahead().word == "EACH":
            parser.take_word()
            parser.take_word()
            table = parser.name("the name of a table")
        self.windowing = ast.Windowing(
            kind=kind,
            length_us=length_us,
            span=parser.span_from(start),
            every_us=every_us,
            offset_us=offset_us,
            most_us=most_us,
            zone=zone,
            table=table,
        )

    def _refuse_zone(self, word: Token, kind: ast.WindowKind) -> None:
        """Refuse ZONE after HOPPING and SESSION, and OFFSET after SESSION."""
        token = self.parser.now
        if token.word not in ("ZONE", "OFFSET") or kind is ast.WindowKind.TUMBLING:
            return
        is_session = kind is ast.WindowKind.SESSION
        instead = (
            "leave it out: a session begins with its first event"
            if is_session
            else "leave it out: these windows begin at whole steps of UTC, which OFFSET 30 MINUTES moves; "
            "WINDOW TUMBLING 1 DAY ZONE 'Europe/Berlin' has a zone"
        )
        only = "TUMBLING" if token.word == "ZONE" else "TUMBLING and HOPPING"
        self.parser.fail(
            "E0101",
            f"{word.word} has no {token.word}",
            Span(token.start, token.end),
            f"only {only} {'have' if is_session and token.word == 'OFFSET' else 'has'} it",
            instead,
        )

    def _refuse_step(self, kind: Token, length_us: int) -> NoReturn:
        """Refuse ``TUMBLING 10 MINUTES SLIDE 1 MINUTE``, and HOPPING without EVERY."""
        parser = self.parser
        length, step = print_duration(length_us), "1 MINUTE"
        is_step = parser.now.word in STEP_WORDS
        if is_step:
            parser.take()
            parser.accept_word("BY")
            if parser.begins_span():
                step = print_duration(parser.duration())
        if not is_step:
            parser.unexpected("EVERY", f"write WINDOW HOPPING {length} EVERY {step}, or TUMBLING {length}")
        text = " ".join(parser.source.text[kind.start : parser.tokens[parser.at - 1].end].split())
        parser.fail(
            "E0114",
            f"WINDOW has no `{text}`",
            parser.span_from(kind.start),
            "of another language",
            f"write WINDOW HOPPING {length} EVERY {step}; windows that do not overlap: TUMBLING {length}",
        )

    def read_where(self) -> None:
        """Read which events count."""
        self.where = self.parser.condition()

    def read_having(self) -> None:
        """Read which windows have a row."""
        self.having = self.parser.condition()

    def problems(self, seen: Mapping[str, Span]) -> Iterator[Diagnostic]:
        """Yield the problems of a rule's clauses, by their first words."""
        if "WINDOW" not in seen:
            return
        for word, clause in _OF_PATTERNS.items():
            if word in seen:
                yield self.parser.problem(
                    "E0243",
                    f"{clause} beside WINDOW",
                    seen[word],
                    "a clause about patterns; a window rule has none",
                    _INSTEAD.get(word, _LEAVE_OUT),
                )
