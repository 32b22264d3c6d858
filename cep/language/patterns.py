"""Patterns: tokens -> syntax trees."""

from __future__ import annotations

import dataclasses
from typing import NoReturn

from cep.errors import Span
from cep.language import ast
from cep.language.clauses.misplaced import refuse_without_window
from cep.language.expressions import ExpressionReader
from cep.language.foreign import Syntax
from cep.language.grammar import Lexeme, Token

_BEHIND_ELEMENT = frozenset(("->", "->>", "|", "&", ")", "?", "*", "+", "{", "["))
"""Signs that a clause does not have behind its first word: before them it is meant as a name."""

_QUANTIFIERS = frozenset("?*+{")
_OF_DURATIONS = frozenset((Lexeme.NUMBER, Lexeme.WORD, Lexeme.TEXT, Lexeme.QUOTED))
_BOUNDS_HELP = "bounds are constants; a condition can say it: DEFINE b AS COUNT(a.*) = c.x"
_IN_GAP = frozenset(("[", "<", "<=", ">", ">=", ","))


class PatternReader(ExpressionReader):
    """Reads patterns: alternatives of conjunctions of sequences of quantified elements."""

    def pattern(self) -> ast.Pattern:
        """Read branches separated by ``|``."""
        start = self.now.start
        branches = [self.conjunction()]
        while self.accept_sign("|"):
            branches.append(self.conjunction())
        if len(branches) == 1:
            return branches[0]
        return ast.Alternation(tuple(branches), self.span_from(start))

    def guarded_pattern(self) -> ast.Pattern:
        """Read a pattern, and WITHOUT with its variables."""
        start = self.now.start
        found = self.pattern()
        while self.accept_word("WITHOUT"):
            names = self.absent_names() if self.is_sign("(") else [self.name("the name of a variable or `(`")]
            found = ast.Without(found, tuple(names), self.span_from(start))
        return found

    def conjunction(self) -> ast.Pattern:
        """Read sequences separated by ``&``."""
        start = self.now.start
        parts = [self.sequence()]
        while self.accept_sign("&"):
            parts.append(self.sequence())
        if len(parts) == 1:
            return parts[0]
        return ast.Permutation(tuple(parts), ast.Joint.NEXT, self.span_from(start))

    def sequence(self) -> ast.Pattern:
        """Read an anchor, if there is one, then elements and the joints between them."""
        start = self.now.start
        if self.accept_sign("^"):
            if self.is_sign("->", "->>", "["):
                self.fail(
                    "E0316",
                    "a joint after the anchor `^`",
                    Span(self.now.start, self.now.end),
                    "the anchor is no event",
                    "write ^ a: the first event of the match is the first event of the key",
                )
            return ast.Anchored(self.sequence(), self.span_from(start))
        items = [ast.Item(ast.Joint.STRICT, self.element())]
        while True:
            if self.is_sign("->", "->>", "["):
                joint, gap = self.joint()
                items.append(ast.Item(joint, self.element(), gap))
            elif self.begins_element():
                items.append(ast.Item(ast.Joint.STRICT, self.element()))
            else:
                break
        if len(items) == 1:
            return items[0].pattern
        return ast.Sequence(tuple(items), self.span_from(start))

    def begins_element(self) -> bool:
        """Return whether an element is next."""
        if self.starts_clause():
            return self.ahead().kind is Lexeme.SIGN and self.ahead().text in _BEHIND_ELEMENT
        return self.is_sign("(", "!", "{", "^", "$") or self.is_name()

    def joint(self) -> tuple[ast.Joint, ast.Gap | None]:
        """Read an arrow, if there is one, and the limit on its gap, if there is one."""
        joint = ast.Joint(self.take().text) if self.is_sign("->", "->>") else ast.Joint.STRICT
        opening = self.accept_sign("[")
        if opening is None:
            return joint, None
        sign = self.accept_sign("<=", "<", ">=", ">")
        first = self.duration()
        second = None
        if sign is None:
            if not self.accept_sign(","):
                self.unexpected("`,`", "write [<= 5 SECONDS], [>= 5 SECONDS] or [1 SECOND, 5 SECONDS]")
            second = self.duration()
        elif self.is_sign(","):
            help_text = "write [1 SECOND, 5 SECONDS] for the shortest and the longest gap"
            span = Span(self.now.start, self.now.end)
            self.fail("E0101", "unexpected `,`", span, "expected `]`", help_text)
        self.expect_sign("]")
        span = self.span_from(opening.start)
        return joint, ast.Gap(sign.text if sign is not None else ",", first, second, span)

    def joint_size(self) -> int:
        """Return the number of tokens of a joint at the cursor."""
        size = 1 if self.is_sign("->", "->>") else 0
        if self.ahead(size).text != "[":
            return size
        while self.ahead(size).kind in _OF_DURATIONS or self.ahead(size).text in _IN_GAP:
            size += 1
        return size + 1

    def window(self) -> ast.Window | ast.EventWindow:
        """Read what follows WITHIN: a duration or a number of events."""
        sign = self.accept_sign("<=", "<")
        start = self.now
        if (start.kind is Lexeme.NUMBER or self.is_name()) and self.ahead().word in ("EVENT", "EVENTS"):
            count = self.integer("a number of events")
            self.take_word()
            span = self.span_from(start.start)
            if sign is not None and sign.text == "<":
                self.fail(
                    "E0104",
                    "a number of events is a limit that is still inside",
                    Span(sign.start, span.end),
                    "events are counted, not measured",
                    f"write WITHIN {max(count - 1, 1)} EVENTS",
                )
            return ast.EventWindow(count, span)
        length = self.duration()
        return ast.Window(length, sign is None or sign.text == "<=", self.span_from(start.start))

    def element(self) -> ast.Pattern:
        """Read an absence, a variable or a group, with its quantifier."""
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
        elif self.is_sign("^"):
            self.fail(
                "E0316",
                "the anchor `^` is allowed only at the beginning",
                span,
                "no first event of a match can be here",
                "write it before the first step of the pattern: ^ a -> b",
            )
        elif self.is_sign("$"):
            self.later("the anchor `$`", span, "leave it out: every event can end a match")
        elif token.word == "PERMUTE" and self.ahead().text == "(":
            body = self.permutation(self.take_word())
        else:
            if self.starts_clause() and self.begins_clause():
                self.unexpected("a variable, `(` or `!`")
            if token.word == "HAVING" and self.ahead(2).text == "(":
                refuse_without_window(self, token)
            is_clause = self.is_name() and self.starts_clause()
            name = self.reserved_name() if is_clause else self.name("the name of a variable, `(` or `!`")
            body = ast.Step(name, name.span)
        return self.quantified(body)

    def absence(self, bang: Token) -> ast.Pattern:
        """Read what follows ``!``."""
        names = self.absent_names() if self.is_sign("(") else [self.name("the name of a variable or `(`")]
        found = ast.Absence(tuple(names), self.span_from(bang.start))
        token = self.now
        if self.accept_word("FOR"):
            sign = self.accept_sign("<=", "<")
            start = self.now
            length = self.duration()
            period = ast.Window(length, sign is None or sign.text == "<=", self.span_from(start.start))
            found = ast.Absence(tuple(names), self.span_from(bang.start), period)
            token = self.now
        if self.begins_quantifier():
            self.fail(
                "E0313",
                f"`{found.text}` cannot be repeated",
                Span(token.start, token.end),
                "an absence takes no event",
                f"remove the quantifier: {found.text} already means none at all",
            )
        return found

    def absent_names(self) -> list[ast.Name]:
        """Read ``(v | w)`` after ``!``: one event must decide, so it contains only variables."""
        self.take()
        names = [self.name("the name of a variable")]
        while self.accept_sign("|"):
            names.append(self.name("the name of a variable"))
        token = self.now
        if self.is_sign("->", "->>", "&", "!", "(", "[") or self.begins_element() or self.begins_quantifier():
            self.fail(
                "E0313",
                "only variables can be absent together",
                Span(token.start, token.end),
                "whether it is absent is not decided by one event",
                "write !(a | b): none of these events; for a sequence, say what may come instead of it",
            )
        self.expect_sign(")", "`|` or `)`")
        return names

    def permutation(self, word: Token) -> ast.Pattern:
        """Read what follows ``PERMUTE``."""
        self.deeper(word)
        self.expect_sign("(")
        parts = self.listed(self.pattern)
        self.expect_sign(")", "`,` or `)`")
        self.nesting -= 1
        return ast.Permutation(tuple(parts), ast.Joint.STRICT, self.span_from(word.start))

    def group(self, opening: Token) -> ast.Pattern:
        """Read what follows ``(``."""
        self.deeper(opening)
        body = self.guarded_pattern()
        window = self.window() if self.accept_word("WITHIN") else None
        self.expect_sign(")", "`->`, `|`, `&` or `)`")
        self.nesting -= 1
        span = self.span_from(opening.start)
        return dataclasses.replace(body, span=span) if window is None else ast.Group(body, window, span)

    def begins_quantifier(self) -> bool:
        """Return whether a quantifier is next; a joint directly before it belongs to it."""
        by = self.joint_size()
        token = self.ahead(by)
        if token.text == "{" and self.ahead(by + 1).text == "-":  # exclusion
            return False
        return token.kind is Lexeme.SIGN and token.text in _QUANTIFIERS

    def quantified(self, body: ast.Pattern) -> ast.Pattern:
        """Read the quantifier of `body`, if there is one."""
        token = self.now
        if not self.begins_quantifier():
            if self.now.word == "UNTIL":
                self.until_without_loop("there is no quantifier here")
            return body
        joint, gap = self.joint()
        least, most = self.bounds()
        sign = self.accept_sign("?", "+")
        greed = ast.Greed(sign.text if sign is not None else "")
        span = self.span_from(token.start)
        distinct = self.distinct()
        until = None
        if self.now.word == "UNTIL":
            if most is not None and most <= 1:
                self.until_without_loop("this quantifier allows one repetition only")
            until = self.until()
            distinct = distinct or self.distinct()
        whole = self.span_from(body.span.start)
        found = ast.Repetition(
            body=body,
            least=least,
            most=most,
            joint=joint,
            greed=greed,
            quantifier_span=span,
            span=whole,
            gap=gap,
            until=until,
            distinct=distinct,
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
        return found

    def distinct(self) -> ast.Name | None:
        """Read ``DISTINCT BY column``, if it is next."""
        if self.now.word != "DISTINCT" or self.ahead().word != "BY":
            return None
        self.take_word()
        self.take_word()
        return self.name("the name of a column")

    def until(self) -> ast.Expression:
        """Read ``UNTIL (condition)``."""
        self.take()
        self.deeper(self.expect_sign("("))
        condition = self.condition()
        self.expect_sign(")")
        self.nesting -= 1
        self.syntax = Syntax.PATTERN
        return condition

    def until_without_loop(self, label: str) -> NoReturn:
        """Refuse UNTIL where nothing repeats."""
        token = self.now
        self.fail(
            "E0314",
            "UNTIL closes a loop, and there is none",
            Span(token.start, token.end),
            label,
            "put a quantifier before it: a->+ UNTIL (amount > 500)"
            if self.ahead().text == "("
            else "write a->* -> b for each a until a b comes; write a condition that closes a loop in "
            "parentheses: a->+ UNTIL (amount > 500)",
        )

    def bounds(self) -> tuple[int, int | None]:
        """Read ``?``, ``*``, ``+`` or bounds in braces."""
        sign = self.take().text
        if sign != "{":
            return {"?": (0, 1), "*": (0, None), "+": (1, None)}[sign]
        if self.accept_sign(","):
            most = self.integer("a number")
            self.expect_sign("}")
            return 0, most
        least = self.integer("a number, as in {3}, {3,} or {,3}", self.bounds_help())
        if self.accept_sign("}"):
            return least, least
        self.expect_sign(",", "`,` or `}`")
        if self.accept_sign("}"):
            return least, None
        most = self.integer("a number or `}`", self.bounds_help())
        self.expect_sign("}")
        return least, most

    def bounds_help(self) -> str:
        """Return what to write instead of a name in a quantifier."""
        return self.parameters_help() or (_BOUNDS_HELP if self.is_name() else "")
