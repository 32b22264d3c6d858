"""Comments that allow a finding of a rule: ``-- lint: allow W0538 because the name says it``.

A comment belongs to the rule that contains it, or to the rule that follows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cep.diagnostics.codes import LINT, WARNINGS
from cep.errors import Diagnostic, Source, Span
from cep.language import ast
from cep.language.grammar import Lexeme, tokens

ALLOWABLE = frozenset((*LINT, *WARNINGS, "W0652")) - {"W0540", "W0541", "W0542"}
"""Codes that a comment may allow. The codes for problems with such a comment are not among them."""

_FORM = "write: -- lint: allow W0538 because the name says it"
_COMMENT = re.compile(r"--+\s*lint\s*:")
_ALLOWS = re.compile(r"\s*allow\s+(?P<codes>\w+(?:\s*,\s*\w+)*)(?P<rest>.*)", re.IGNORECASE)
_REASON = re.compile(r"\s*because\s+\S", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Allowance:
    """A code that a comment allows for one rule, at the place of the code."""

    code: str
    rule: str
    span: Span


def owner(trees: Sequence[ast.Rule], text: str, offset: int) -> str:
    """Return the name of the rule to which a place in a text belongs; the trees are those of the text."""
    for tree in trees:
        end_of_line = text.find("\n", tree.span.end)
        if offset < (len(text) if end_of_line < 0 else end_of_line):
            return tree.name.text
    return trees[-1].name.text if trees else ""


def allowances(source: Source, trees: Sequence[ast.Rule]) -> tuple[list[Allowance], list[Diagnostic]]:
    """Return what the comments of a text allow, and what is wrong with these comments."""
    found, problems = list[Allowance](), list[Diagnostic]()
    for token in tokens(source.text, with_comments=True):
        start = _COMMENT.match(token.text) if token.kind is Lexeme.COMMENT else None
        if start is None:
            continue
        whole = Span(token.start, token.start + len(token.text.rstrip()))
        allows = _ALLOWS.fullmatch(token.text.rstrip(), start.end())
        if allows is None:
            title = "a comment for `cep lint` that allows nothing"
            problems.append(Diagnostic("W0542", title, source, whole, "not understood", _FORM))
            continue
        if not _REASON.match(allows["rest"]):
            title = "a finding is allowed without a reason"
            problems.append(Diagnostic("W0540", title, source, whole, "no `because`", _FORM))
        at = token.start + allows.start("codes")
        rule = owner(trees, source.text, token.start)
        for word in re.finditer(r"\w+", allows["codes"]):
            code, span = word[0].upper(), Span(at + word.start(), at + word.end())
            if code in ALLOWABLE:
                found.append(Allowance(code, rule, span))
                continue
            help_text = f"codes of `cep lint`: {', '.join(sorted(LINT.keys() & ALLOWABLE))}"
            title = f"`{word[0]}` is not a code that can be allowed"
            problems.append(Diagnostic("W0542", title, source, span, "not such a code", help_text))
    return found, problems


def without_allowed(
    findings: Iterable[Diagnostic], source: Source, trees: Sequence[ast.Rule]
) -> tuple[list[Diagnostic], int]:
    """Return the findings of a text that no comment allows, those about comments, and how many are allowed.

    An error is never allowed.
    """
    allowed, left = allowances(source, trees)
    used: set[Allowance] = set()
    n_allowed = 0
    for finding in findings:
        rule = owner(trees, source.text, finding.span.start if finding.span else 0)
        by = [one for one in allowed if (one.code, one.rule) == (finding.code, rule)]
        used |= set(by)
        n_allowed += bool(by)
        left += [] if by else [finding]
    for one in allowed:
        if one not in used:
            title = f"rule `{one.rule}` has no finding {one.code}"
            left.append(Diagnostic("W0541", title, source, one.span, "allows nothing", "leave it out"))
    return left, n_allowed
