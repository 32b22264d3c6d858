"""The clauses of one rule, read one by one.

A clause with its own words has a module next to this one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise, takewhile
from typing import NoReturn

from cep.diagnostics.diagnostic import did_you_mean, suggestion
from cep.errors import Span
from cep.language import ast
from cep.language.clauses.foreign_clauses import FOREIGN_CLAUSES, foreign_clause
from cep.language.clauses.foreign_windows import refuse_elsewhere
from cep.language.clauses.forms import FORMS, clauses_shown
from cep.language.clauses.joins import JoinClauses
from cep.language.clauses.misplaced import refuse_without_window
from cep.language.clauses.report import ReportClauses
from cep.language.clauses.window import WindowClauses
from cep.language.cursor import goes_on, text_of
from cep.language.foreign import Syntax, foreign_piece
from cep.language.grammar import JOIN_WORDS, RESERVED, Lexeme, Token
from cep.language.patterns import PatternReader
from cep.program.opcodes import SEVERITIES
from cep.schema.time_literals import SHORT_UNITS

STATUSES = ("live", ast.SHADOW)

_LATER_CLAUSES = {
    "ORDER": (
        "ORDER BY",
        "leave it out: events are ordered by the stream's event_time and tie_break",
    ),
}


class RuleReader:
    """Collects the clauses of one rule; each occurs at most once, in any order."""

    def __init__(self, parser: PatternReader) -> None:
        self.parser = parser
        self.name: ast.Name | None = None
        self.title: ast.Text | None = None
        self.severity: str | None = None
        self.tags: tuple[str, ...] = ()
        self.status: str | None = None
        self.parameters: tuple[ast.Parameter, ...] = ()
        self.streams: tuple[ast.Name, ...] = ()
        self.matches: tuple[int, ...] = ()
        self.key: tuple[ast.KeyPart, ...] = ()
        self.pattern: ast.Pattern | None = None
        self.window: ast.Window | ast.EventWindow | None = None
        self.subsets: tuple[ast.Subset, ...] = ()
        self.lets: tuple[ast.Let, ...] = ()
        self.definitions: tuple[ast.Definition, ...] = ()
        self.measures: tuple[ast.Measure, ...] = ()
        self.mode: ast.Mode | None = None
        self.skip: ast.Skip | None = None
        self.report = ReportClauses(parser)
        self.joins = JoinClauses(parser)
        self.windowed = WindowClauses(parser)
        self.seen: dict[str, Span] = {}
        self.meant: set[str] = set()  # refused clauses, for which a report said what to write
        self.last_places: dict[str, int] | None = None  # of clauses that a rule needs, before the next RULE
        self.clause = "RULE"  # the one read last
        self.may_follow = ""  # what, apart from a clause, could come after what was just read
        self.clauses: dict[str, Callable[[], None]] = {
            "TITLE": self._read_title,
            "SEVERITY": self._read_severity,
            "TAGS": self._read_tags,
            "STATUS": self._read_status,
            "PARAM": self._read_parameters,
            "FROM": self._read_streams,
            "JOIN": self._read_join,
            "PARTITION": self._read_key,
            "PATTERN": self._read_pattern,
            "WITHIN": self._read_window,
            "SUBSET": self._read_subsets,
            "LET": self._read_lets,
            "DEFINE": self._read_definitions,
            "MEASURES": self._read_measures,
            "MATCH": self._read_mode,
            "AFTER": self._read_after,
            "NO": self._read_no_skip,
            **self.report.readers,
            **(self.windowed.readers if parser.is_window_rule else {}),
        }

    def read_name(self) -> None:
        """Read the name of the rule."""
        self.name = self.parser.name("the rule's name")
        self.parser.refuse_joined(".", "-")

    def read_clause(self) -> None:
        """Read the clause that starts now."""
        parser = self.parser
        token = parser.now
        span = Span(token.start, token.end)
        if self._begins_second_rule():
            self._refuse_second_rule()
        if token.word in _LATER_CLAUSES and token.word not in self.clauses:
            parser.take()
            parser.later(_LATER_CLAUSES[token.word][0], span, _LATER_CLAUSES[token.word][1])
        if token.word not in self.clauses:
            self._refuse(token)
        parser.take()
        parser.syntax = Syntax.CLAUSE
        self.clause, self.may_follow, parser.clause_at = token.word, "", parser.at
        parser.form = FORMS[token.word]
        place = _SAME_CLAUSE.get(token.word, token.word)
        if place in self.seen and place not in _REPEATED:
            parser.diagnostics.append(
                parser.problem(
                    "E0105",
                    f"{_spelled(place)} occurs twice",
                    span,
                    f"the first one is in line {self._line_of(self.seen[place])}",
                    "keep one of them",
                )
            )
        else:
            self.seen[place] = span
        self.clauses[token.word]()

    def _begins_second_rule(self) -> bool:
        """Return whether a second rule starts here: its clauses follow, now or some words later."""
        if not self.seen.keys() >= _NECESSARY:
            return False
        parser = self.parser
        first = parser.now.word
        if first in self.clauses and _SAME_CLAUSE.get(first, first) not in self.seen:
            return False
        if first not in self.clauses and not any(parser.ahead(by).word in self.seen for by in (1, 2, 3)):
            return False
        if self.last_places is None:
            self.last_places = {}
            for at, (token, after) in enumerate(pairwise(parser.tokens[parser.at :]), parser.at):
                if token.word == "RULE" and goes_on(token, after):
                    break
                if token.word in _NECESSARY and goes_on(token, after):
                    self.last_places[token.word] = at
        return sum(place >= parser.at for place in self.last_places.values()) > 1

    def _refuse_second_rule(self) -> NoReturn:
        parser = self.parser
        start = parser.now
        while not parser.is_at_end() and parser.now.word != "RULE" and not parser.begins_view():
            parser.take()
        parser.fail(
            "E0115",
            "a second rule begins here, without RULE",
            Span(start.start, start.end),
            f"`{self.name.text}` has all its clauses" if self.name else "the rule has all its clauses",
            "write RULE and a name before the clauses of each rule",
        )

    def _warn_of_comments(self) -> None:
        """Warn of the first ``a --> b``: from the sign on it is a comment."""
        parser = self.parser
        text = parser.source.text
        for left, right in pairwise((*parser.tokens[self.parser.clause_at - 1 : parser.at], parser.now)):
            until = right.start if right.kind is not Lexeme.END else len(text)
            for comment in re.finditer(r"--[^\n]*", text[left.end : until]):
                if re.match(r"--+ ?>", comment[0]):
                    place = left.end + comment.start()
                    parser.diagnostics.append(
                        parser.problem(
                            "W0510",
                            "a comment begins in the pattern",
                            Span(place, left.end + comment.end()),
                            "`--` begins a comment, which ends with the line",
                            "write -> for an arrow; a comment has a blank after its `--`",
                        )
                    )
                    return

    def _line_of(self, span: Span) -> int:
        return self.parser.source.text.count("\n", 0, span.start) + 1

    def _refuse(self, token: Token) -> NoReturn:
        parser = self.parser
        parser.refuse_comment()
        if not parser.has_pattern and (parser.is_window_rule or token.word in ("WHERE", "HAVING")):
            self.meant.add("PATTERN")
        refuse_without_window(parser, token, self.clause)
        if not parser.has_pattern:
            refuse_elsewhere(parser)
        foreign = foreign_clause(parser, self.clause)
        if foreign is not None:
            self.meant.add(foreign.instead.meant)
            parser.fail("E0114", foreign.title, foreign.span, "of another language", foreign.instead.help)
        if foreign_piece(parser.tokens, parser.at, parser.syntax) is not None:
            parser.unexpected("a clause")
        parser.refuse_closing_bracket()
        if self.clause == "PATTERN":
            self._refuse_misspelled_clause()
        near = suggestion(token.word, self.clauses) if token.word else None
        expected = f"{self.may_follow} or a clause" if self.may_follow else "a clause"
        help_text = self._clauses_help()
        before = parser.tokens[parser.at - 1]
        if self.clause == "DEFINE" and token.word == "AS" and before.word in SHORT_UNITS:
            help_text = f"put a comma between two definitions: , {before.text} AS ..."
        elif self.clause == "DEFINE" and parser.ahead().word == "AS":
            help_text = "put a comma between two definitions"
        elif (items := self._without_comma()) and near is None:
            help_text = f"put a comma between two {items}"
        elif near is not None:
            self.meant.add(near)
            help_text = f"did you mean {_spelled(near)}? {help_text}"
        parser.unexpected(expected, help_text)

    def _without_comma(self) -> str:
        """Return what the clause read last is a list of, if another item seems to follow; else nothing."""
        parser = self.parser
        match self.clause:
            case "MEASURES" if parser.tokens[parser.at - 2].word == "AS":
                behind = (parser.ahead(by).word for by in range(_MAX_ITEM))
                is_item = any(word == "AS" for word in takewhile(lambda word: word not in _NECESSARY, behind))
                return "measures" if is_item else ""
            case "LET" | "PARAM" if parser.ahead().text == "=":
                return "values"
            case "PARTITION" if parser.is_name():
                return "columns of the key"
        return ""

    def _clauses_help(self) -> str:
        shown = clauses_shown(has_window=self.parser.is_window_rule, has_pattern=self.parser.has_pattern)
        return f"clauses: {shown}"

    def _refuse_misspelled_clause(self) -> None:
        """Refuse ``PATTERN a b DEFIN c AS ...`` at DEFIN, which was read as another variable."""
        parser = self.parser
        for place in range(max(parser.clause_at, parser.at - 2), parser.at):
            token = parser.tokens[place]
            if token.word in FOREIGN_CLAUSES and parser.begins_line(place):
                refused, instead = Span(token.start, token.end), FOREIGN_CLAUSES[token.word]
                parser.fail(
                    "E0114", f"a rule has no `{token.text}`", refused, "of another language", instead.help
                )
            near = suggestion(token.word, self.clauses) if token.kind is Lexeme.WORD else None
            if near is not None:
                self.parser.fail(
                    "E0101",
                    f"`{token.text}` is not a clause",
                    Span(token.start, token.end),
                    "read as a variable of the pattern",
                    f"did you mean {_spelled(near)}? {self._clauses_help()}",
                )

    def _read_title(self) -> None:
        if self.parser.now.kind is not Lexeme.TEXT:
            self.parser.unexpected("a text")
        self.title = text_of(self.parser.take())

    def _read_severity(self) -> None:
        self.severity = self._one_of(SEVERITIES, "severity", "severities")

    def _read_status(self) -> None:
        self.status = self._one_of(STATUSES, "status", "statuses")

    def _one_of(self, words: Sequence[str], what: str, plural: str) -> str:
        """Read one of some words, in any case."""
        token = self.parser.now
        if token.kind is not Lexeme.WORD or token.word in RESERVED:
            self.parser.unexpected(f"a {what}")
        if token.text.lower() not in words:
            self.parser.fail(
                "E0109",
                f"`{token.text}` is not a {what}",
                Span(token.start, token.end),
                f"expected a {what}",
                did_you_mean(token.text, words, plural),
            )
        return self.parser.take().text.lower()

    def _read_tags(self) -> None:
        self.tags = tuple(self.parser.listed(self._tag))
        self.may_follow = "`,`"

    def _tag(self) -> str:
        if self.parser.now.kind is Lexeme.TEXT:
            return text_of(self.parser.take()).text
        return self.parser.name("a tag: a name or a text").text

    def _read_parameters(self) -> None:
        self.parameters = tuple(self.parser.listed(self._parameter))
        self.may_follow = "`,`"

    def _parameter(self) -> ast.Parameter:
        parser = self.parser
        name = parser.name("the name of a parameter")
        parser.expect_sign("=")
        value = parser.unary()
        if not isinstance(value, ast.Constant) or value.kind is ast.Kind.NULL:
            parser.fail(
                "E0101",
                "the value of a parameter is a constant",
                value.span,
                "not a constant",
                "write a number, a text, TRUE, FALSE, a duration or a TIMESTAMP: PARAM small = 5",
            )
        return ast.Parameter(name, value)

    def _read_streams(self) -> None:
        """Read ``logins, MATCHES OF scan, ...``. MATCHES is also a name of streams."""
        found = self.parser.listed(self._source)
        self.streams = tuple(name for name, _ in found)
        self.matches = tuple(at for at, (_, is_rule) in enumerate(found) if is_rule)
        self.may_follow = "`,`"

    def _source(self) -> tuple[ast.Name, bool]:
        """Read the name of a stream or, after MATCHES OF, of a rule; return whether it is that of a rule."""
        parser = self.parser
        if parser.now.word == "MATCHES" and parser.ahead().word == "OF":
            parser.take_word()
            parser.take_word()
            return parser.name("the name of a rule"), True
        return parser.name("the name of a stream"), False

    def _read_join(self) -> None:
        self.joins.read()
        self.may_follow = "AND"

    def _read_key(self) -> None:
        self.parser.expect_word("BY")
        self.key = tuple(self.parser.listed(self._key_part))
        self.may_follow = "`,`"

    def _key_part(self) -> ast.KeyPart:
        """Read ``c``, or ``s.c = t.d``."""
        start = self.parser.now.start
        columns = [self._key_column()]
        while self.parser.accept_sign("="):
            columns.append(self._key_column())
        span = self.parser.span_from(start)
        if len(columns) > 1:
            for column in columns:
                if column.variable is None:
                    self.parser.fail(
                        "E0233",
                        f"`{column.name.text}` of which stream?",
                        column.name.span,
                        "columns that make up one key are named with their stream",
                        f"write stream.{column.name.text}",
                    )
        return ast.KeyPart(tuple(columns), span)

    def _key_column(self) -> ast.Column:
        name = self.parser.name("the name of a column")
        if not self.parser.accept_sign("."):
            return ast.Column(None, name, name.span)
        column = self.parser.name_after_dot(f"write a column after the dot: {name.text}.account")
        return ast.Column(name, column, Span(name.span.start, column.span.end))

    def _read_pattern(self) -> None:
        self.parser.syntax = Syntax.PATTERN
        self.pattern = self.parser.guarded_pattern()
        self._warn_of_comments()
        self.may_follow = "`->`, `|`, a variable"

    def _read_window(self) -> None:
        self.window = self.parser.window()

    def _read_subsets(self) -> None:
        self.subsets = tuple(self.parser.listed(self._subset))
        self.may_follow = "`,`"

    def _subset(self) -> ast.Subset:
        parser = self.parser
        name = parser.name("the name of a subset")
        parser.expect_sign("=")
        parser.expect_sign("(")
        members = tuple(parser.names("the name of a variable"))
        parser.expect_sign(")", "`,` or `)`")
        return ast.Subset(name, members)

    def _read_lets(self) -> None:
        self.lets = tuple(self.parser.listed(self._let))
        self.may_follow = "an operator, `,`"

    def _let(self) -> ast.Let:
        parser = self.parser
        name = parser.name("the name of a value")
        stream = parser.name("the name of a stream") if parser.accept_word("ON") else None
        parser.expect_sign("=")
        return ast.Let(name, parser.condition(), stream)

    def _read_definitions(self) -> None:
        self.definitions = tuple(self.parser.listed(self._definition))
        self.may_follow = "an operator, `,`"

    def _definition(self) -> ast.Definition:
        parser = self.parser
        variable = parser.name("the name of a variable")
        stream, key = self._read_role()
        condition = None
        if (stream is None and not key) or parser.now.word == "AS":
            parser.expect_word("AS")
            condition = parser.condition()
        return ast.Definition(variable, condition, stream, key)

    def _read_role(self) -> tuple[ast.Name | None, tuple[ast.Name, ...]]:
        """Read what a variable's events are: ``[ON stream] [BY column | BY (column, ...)]``."""
        parser = self.parser
        stream: ast.Name | None = None
        key: tuple[ast.Name, ...] = ()
        if not parser.starts_clause() and parser.accept_word("ON"):
            stream = parser.name("the name of a stream")
        if parser.accept_word("BY"):
            if parser.accept_sign("("):
                key = tuple(parser.names("the name of a column"))
                parser.expect_sign(")")
            else:
                key = (parser.name("the name of a column"),)
        return stream, key

    def _read_measures(self) -> None:
        self.measures = tuple(self.parser.listed(self._measure))
        self.may_follow = "`,`"

    def _measure(self) -> ast.Measure:
        parser = self.parser
        expression = parser.condition()
        if not parser.accept_word("AS"):
            parser.unexpected("an operator or AS", "give every measure a name: b.amount AS loss")
        return ast.Measure(expression, parser.name("the measure's name"))

    def _read_mode(self) -> None:
        parser = self.parser
        token = parser.now
        if not parser.accept_word("EARLIEST", "ALL", "PREFERRED"):
            parser.unexpected("EARLIEST, ALL or PREFERRED")
        self.mode = ast.Mode(token.word)

    def _read_after(self) -> None:
        parser = self.parser
        start = parser.tokens[parser.at - 1].start
        parser.expect_word("MATCH")
        if parser.accept_word("NO"):
            self._skip_to(ast.SkipTarget.NO_SKIP, None, start, "SKIP")
            return
        parser.expect_word("SKIP")
        if parser.accept_word("PAST"):
            self._skip_to(ast.SkipTarget.PAST_LAST_EVENT, None, start, "LAST", "EVENT")
        elif not parser.accept_word("TO"):
            parser.unexpected("PAST LAST EVENT or TO", _SKIP_HELP)
        elif parser.accept_word("NEXT"):
            self._skip_to(ast.SkipTarget.TO_NEXT_EVENT, None, start, "EVENT")
        elif word := parser.accept_word("FIRST", "LAST"):
            variable = parser.name("the name of a variable")
            target = ast.SkipTarget.TO_FIRST if word.word == "FIRST" else ast.SkipTarget.TO_LAST
            self._skip_to(target, variable, start)
        elif parser.now.word == "CURRENT":
            token = parser.now
            parser.fail(
                "E0114",
                "a skip has no CURRENT",
                Span(token.start, token.end),
                "matching would begin again where it began",
                "write SKIP TO NEXT EVENT; or NO SKIP, so that every event can begin a match",
            )
        else:
            name = parser.now.text if parser.is_name() and not parser.starts_clause() else ""
            help_text = f"write SKIP TO FIRST {name}, or SKIP TO LAST {name}" if name else _SKIP_HELP
            parser.unexpected("NEXT EVENT, FIRST or LAST", help_text)

    def _read_no_skip(self) -> None:
        start = self.parser.tokens[self.parser.at - 1].start
        self._skip_to(ast.SkipTarget.NO_SKIP, None, start, "SKIP")

    def _skip_to(self, target: ast.SkipTarget, variable: ast.Name | None, start: int, *words: str) -> None:
        for word in words:
            if not self.parser.accept_word(word):
                is_row = word == "EVENT" and self.parser.now.word == "ROW"
                self.parser.unexpected(word, "write EVENT" if is_row else _SKIP_HELP)
        self.skip = ast.Skip(target, variable, self.parser.span_from(start))

    def finish(self, span: Span, sound: bool) -> ast.Rule | None:
        """Return the rule, or None after reporting missing clauses."""
        problems = list(self.windowed.problems(self.seen))
        for problem in problems:
            self.parser.diagnostics.append(problem)
        pattern = self.pattern
        if self.windowed.windowing is not None:
            pattern = ast.Step(ast.Name("", self.windowed.windowing.span), self.windowed.windowing.span)
        if self.name is not None:
            for clause, need in (
                ("FROM", "which stream it reads"),
                ("PARTITION", "which events belong together"),
                ("PATTERN", "what to look for"),
            ):
                if clause in self.seen or clause in self.meant:
                    continue
                if clause != "PATTERN" or "WINDOW" not in self.seen:
                    self._lacks("rule", clause, need, _MISSING.get(clause, FORMS[clause]))
        if not sound or problems or self.name is None or not self.streams or not self.key or pattern is None:
            return None
        return self._rule(self.name, pattern, span)

    def _lacks(self, kind: str, clause: str, need: str, form: str) -> None:
        """Report a clause that is missing."""
        assert self.name is not None
        message = f"{kind} `{self.name.text}` has no {_spelled(clause)}"
        found = self.parser.problem("E0106", message, self.name.span, f"does not say {need}", f"add: {form}")
        self.parser.diagnostics.append(found)

    def _rule(self, name: ast.Name, pattern: ast.Pattern, span: Span) -> ast.Rule:
        """Return what was read."""
        return ast.Rule(
            name=name,
            title=self.title,
            severity=self.severity,
            tags=self.tags,
            streams=self.streams,
            matches=self.matches,
            key=self.key,
            pattern=pattern,
            window=self.window,
            definitions=self.definitions,
            measures=self.measures,
            mode=self.mode,
            skip=self.skip,
            source=self.parser.source,
            span=span,
            report=self.report.report,
            subsets=self.subsets,
            lets=self.lets,
            joins=tuple(self.joins.joins),
            windowing=self.windowed.windowing,
            where=self.windowed.where,
            having=self.windowed.having,
            parameters=self.parameters,
            status=self.status,
        )


_MISSING = {"PATTERN": "PATTERN a -> b, or WINDOW TUMBLING 1 HOUR"}

_NECESSARY = {"FROM", "PARTITION", "PATTERN"}

_MAX_ITEM = 20
"""Tokens of a measure in which AS is looked for."""

_REPEATED = {"JOIN"}
"""Clauses that a rule may have several of."""

_SAME_CLAUSE = {"NO": "AFTER", "ALL": "ONE", **dict.fromkeys(JOIN_WORDS, "JOIN")}

_SKIP_HELP = "write AFTER MATCH NO SKIP, or SKIP PAST LAST EVENT, TO NEXT EVENT, TO FIRST v, TO LAST v"


_SPELLED = {
    "PARTITION": "PARTITION BY",
    "AFTER": "AFTER MATCH",
    "NO": "NO SKIP",
    "ALL": "ALL ROWS PER MATCH",
    "ONE": "ROWS PER MATCH",
    "ON": "ON TIMEOUT",
    "SUPPRESS": "SUPPRESS FOR",
    "MAX": "MAX RUNS",
}


def _spelled(clause: str) -> str:
    return _SPELLED.get(clause, clause)
