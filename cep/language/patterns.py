"""Patterns: tokens -> syntax trees."""

from __future__ import annotations

import dataclasses

from cep.errors import Span
from cep.language import ast
from cep.language.cursor import Cursor
from cep.language.grammar import Lexeme, Token

_QUANTIFIERS = frozenset("?*+{")


class PatternReader(Cursor):
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
        """Read elements and the joints between them."""
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
        """Say whether an element is next."""
        return self.is_sign("(", "!", "{", "^", "$") or (self.is_name() and not self.starts_clause())

    def refuse_gap(self) -> None:
        """Refuse ``[`` after an arrow."""
        if self.is_sign("["):
            token = self.now
            self.later(
                "a limit on one gap",
                Span(token.start, token.end),
                "compare times in DEFINE: b AS ts - a.ts <= 5 SECONDS",
            )

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
        elif self.is_sign("^", "$"):
            self.later(f"the anchor `{token.text}`", span, "leave it out: every event can begin a match")
        elif token.word == "PERMUTE" and self.ahead().text == "(":
            body = self.permutation(self.take())
        else:
            if self.is_name() and self.starts_clause():
                self.unexpected("a variable, `(` or `!`")
            name = self.name("the name of a variable, `(` or `!`")
            body = ast.Step(name, name.span)
        return self.quantified(body)

    def absence(self, bang: Token) -> ast.Pattern:
        """Read what follows ``!``."""
        names = self.absent_names() if self.is_sign("(") else [self.name("the name of a variable or `(`")]
        found = ast.Absence(tuple(names), self.span_from(bang.start))
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
                f"`{found.text}` cannot be repeated",
                Span(token.start, token.end),
                "an absence takes no event",
                f"remove the quantifier: {found.text} already means none at all",
            )
        return found

    def absent_names(self) -> list[ast.Name]:
        """Read ``(v | w)`` after ``!``: one event must decide, so there are only variables in it."""
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
        parts = [self.pattern()]
        while self.accept_sign(","):
            parts.append(self.pattern())
        self.expect_sign(")", "`,` or `)`")
        self.nesting -= 1
        return ast.Permutation(tuple(parts), ast.Joint.STRICT, self.span_from(word.start))

    def group(self, opening: Token) -> ast.Pattern:
        """Read what follows ``(``."""
        self.deeper(opening)
        body = self.pattern()
        token = self.now
        if self.accept_word("WITHIN"):
            self.later(
                "WITHIN for a group", Span(token.start, token.end), "put one WITHIN after the whole pattern"
            )
        self.expect_sign(")", "`->`, `|`, `&` or `)`")
        self.nesting -= 1
        return dataclasses.replace(body, span=self.span_from(opening.start))

    def begins_quantifier(self) -> bool:
        """Say whether a quantifier is next; an arrow right before it is the joint inside it."""
        by = 1 if self.is_sign("->", "->>") else 0
        token = self.ahead(by)
        if token.text == "{" and self.ahead(by + 1).text == "-":  # exclusion
            return False
        return token.kind is Lexeme.SIGN and token.text in _QUANTIFIERS

    def quantified(self, body: ast.Pattern) -> ast.Pattern:
        """Read the quantifier of `body`, if there is one."""
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
        """Refuse UNTIL."""
        if self.now.word == "UNTIL":
            token = self.now
            self.later(
                "UNTIL",
                Span(token.start, token.end),
                "put the negated condition into the loop variable's DEFINE",
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
        least = self.integer("a number, as in {3}, {3,} or {,3}")
        if self.accept_sign("}"):
            return least, least
        self.expect_sign(",", "`,` or `}`")
        if self.accept_sign("}"):
            return least, None
        most = self.integer("a number or `}`")
        self.expect_sign("}")
        return least, most
