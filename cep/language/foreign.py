"""Signs and words of other languages, and what to write instead.

Authors come from SQL, Flink, Esper, Siddhi, Python and C, and first write what they know.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from cep.errors import Span
from cep.language.brackets import innermost_open
from cep.language.grammar import RESERVED, Lexeme, Token


class Syntax(StrEnum):
    """What is being read: the meaning of a sign depends on it."""

    CLAUSE = "a clause"
    PATTERN = "a pattern"
    EXPRESSION = "an expression"


class Foreign(NamedTuple):
    """A piece of another language: its text, its place, what to write."""

    text: str
    span: Span
    help: str


_SEQUENCE = "write {a} -> {b} if other events may come between, {a} {b} if {b} is the very next event"

_PATTERN_SIGNS = {
    **dict.fromkeys(("=>", "==>", "~>", ">", ">>", "..", "...", "-", "+>", "<-", "<=", ">="), _SEQUENCE),
    "- >": "write the arrow as one sign: {a} -> {b}",
    ",": f"{_SEQUENCE}; {{a}} & {{b}} for both in any order",
    "&&": "write {a} & {b}: both, in any order",
    "||": "write {a} | {b}: either of them",
    **dict.fromkeys(
        ("=", "=="), "write the variable alone here and its condition in DEFINE: DEFINE {a} AS amount > 500"
    ),
    ":": "write the name of the variable alone, and its condition in DEFINE: DEFINE {a} AS amount > 500",
}
"""Sign in a pattern -> what to write; ``{a}`` and ``{b}`` are what stands before and after it."""

_PATTERN_WORDS = {
    "AND": "write {a} & {b}: both, in any order",
    "OR": "write {a} | {b}: either of them",
    "NOT": "write !{b}: no such event",
    "THEN": _SEQUENCE,
}
"""Reserved word in a pattern -> what to write."""

_EXPRESSION_SIGNS = {
    **dict.fromkeys(("&", "&&"), "between conditions write AND"),
    "|": "between conditions write OR",
    "!": "write NOT {b}",
    **dict.fromkeys(("=~", "~", "~=", "~*"), "write {a} RLIKE {b}"),
    **dict.fromkeys(("!~", "!~*"), "write {a} NOT RLIKE {b}"),
    "===": "write =",
    "!==": "write <>",
    "<=>": "write {a} = {b} OR ({a} IS NULL AND {b} IS NULL)",
    "**": "write POWER({a}, {b})",
    "^": "write POWER({a}, {b})",
    "?": "write IF(condition, x, y), or CASE WHEN condition THEN x ELSE y END",
    "::": "write CAST({a} AS BIGINT)",
    "->": "an arrow is allowed in PATTERN only",
    "[": "the events of a variable are read by FIRST({a}.x), FIRST({a}.x, 1), LAST({a}.x) and LAST({a}.x, 1)",
}
"""Sign in an expression -> what to write."""

_EXPRESSION_WORDS = {
    "AT": "write FROM_UTC_TIMESTAMP({a}, 'Europe/Berlin') for what the clocks of a zone show",
    "ILIKE": "write LOWER({a}) LIKE {lower}",
    "ISNULL": "write {a} IS NULL",
    "NOTNULL": "write {a} IS NOT NULL",
    "SIMILAR": "write {a} RLIKE '^ab+$'",
    "MATCHES": "write {a} RLIKE {b}",
    "GLOB": "write {a} LIKE 'ab%'",
    "CONTAINS": "write CONTAINS({a}, {b})",
    "EQUALS": "write {a} = {b}",
    "MOD": "write {a} % {b}",
    "DIV": "write FLOOR({a} / {b})",
    "XOR": "compare the conditions: (amount > 5) <> (amount > 9)",
    "WHERE": "join conditions with AND",
}
"""Word behind a value -> what to write."""

VARIABLE_WORDS = {
    "followedby": "write {a} -> {b}: anything may come between",
    "followed": "write {a} -> {b}: anything may come between",
    "followedbyany": "write {a} ->> {b}",
    "next": "write {a} {b}: {b} is the very next event",
    "notnext": "write {a} !{b}: the very next event is no {b}",
    "notfollowedby": "write {a} -> !{b}: no {b} comes",
    "every": "leave it out: every event can begin a match, and AFTER MATCH says which matches overlap",
    "timer": "write a ->[>= 5 SECONDS] b for a gap, a -> !b FOR 5 SECONDS if no b may come",
    "interval": "write WITHIN 5 SECONDS after the pattern, or -> !{b} FOR 5 SECONDS",
    "where": "write conditions in DEFINE: DEFINE {a} AS amount > 500",
    "oneormore": "write {a}+ directly one after the other, {a}->+ otherwise",
    "timesormore": "write {a}{{2,}} directly one after the other, {a}->{{2,}} otherwise",
    "times": "write {a}{{2}} directly one after the other, {a}->{{2}} otherwise",
    "optional": "write {a}?",
    "greedy": "leave it out: a loop prefers more events; write {a}+? for fewer",
    "consecutive": "leave it out: {a}{{2}} has its events directly one after the other",
    "allowcombinations": "write {a}->>{{2}}",
}
"""Name of a variable, in lower case -> what to write, if the name is a word of another language."""


OF_RANKS = ("RANK", "DENSE_RANK", "PERCENT_RANK", "ROW_NUMBER", "NTILE", "CUME_DIST", "TOPK", "TOP_K")
"""Functions that rank."""

NO_RANKS = "a rule does not compare keys with each other; rank the matches where they go"


def foreign_name(name: str, a: str, b: str) -> str | None:
    """Return what to write for a variable `name` between `a` and `b`, if it is a word of another language."""
    times = re.fullmatch(r"[xX](\d{1,3})", name)
    if times is not None:
        bounds = f"{{{times[1]}}}"
        return f"write {a}{bounds} directly one after the other, {a}->{bounds} otherwise"
    found = VARIABLE_WORDS.get(name.casefold().replace("_", ""))
    return None if found is None else found.format(a=a, b=b)


def foreign_piece(tokens: Sequence[Token], at: int, syntax: Syntax) -> Foreign | None:
    """Return the piece of another language that the misplaced token at `at` belongs to."""
    token = tokens[at]
    if syntax is Syntax.CLAUSE or token.kind is Lexeme.END:
        return None
    if syntax is Syntax.PATTERN:
        for before in range(max(1, at - 3), at):
            if tokens[before].word == "WHERE":
                return _piece(tokens, before, before + 1, VARIABLE_WORDS["where"])
    if syntax is Syntax.PATTERN and token.word == "AND" and tokens[at + 1].word == "NOT":
        return _piece(tokens, at, at + 2, "write !{b} -> {a}: {a}, and no {b} before it")
    words = _PATTERN_WORDS if syntax is Syntax.PATTERN else _EXPRESSION_WORDS
    if token.word in words and tokens[at + 1].word != "AS":
        return _piece(tokens, at, at + 1, words[token.word])
    if syntax is Syntax.PATTERN and (condition := _condition(tokens, at)) is not None:
        return condition
    special = _counted(tokens, at) if syntax is Syntax.PATTERN else _indexed(tokens, at)
    if special is not None:
        return special
    signs = _PATTERN_SIGNS if syntax is Syntax.PATTERN else _EXPRESSION_SIGNS
    for first in range(max(1, at - 2), at + 1):
        for end in (at + 3, at + 2, at + 1):
            instead = signs.get(_adjacent(tokens[first:end]))
            if instead is not None and (instead != _SEQUENCE or _ends_element(tokens[first - 1])):
                return _piece(tokens, first, end, instead)
    return None


def _condition(tokens: Sequence[Token], at: int) -> Foreign | None:
    """Return ``[amount > 3]`` or ``(amount > 3)`` next to a step, in which the token at `at` cannot be."""
    opening = next((place for place in (at, at - 1, at - 2) if tokens[place].text in ("[", "(")), None)
    end = None if opening is None else closing(tokens, opening)
    if opening is None or end is None:
        return None
    inside = tokens[opening + 1 : end]
    if inside[0].kind not in _NAMES or inside[0].word == "INTERVAL":
        return None
    place = next((n for n, token in enumerate(inside) if _compares(token)), len(inside))
    with_value = inside[place + 1 : place + 3]
    if not with_value or not (tokens[opening].text == "[" or _is_value(with_value)):
        return None
    if inside[1].word == "WHERE":
        inside = inside[2:]
    step = _shown(tokens[opening - 1]) or "a"
    text = _text_of(inside)
    define = f": DEFINE {step} AS {text}" if len(text) <= _MAX_CONDITION else ""
    span = Span(tokens[opening].start, tokens[end].end)
    return Foreign(
        "[...]" if tokens[opening].text == "[" else "(...)", span, f"write conditions in DEFINE{define}"
    )


def closing(tokens: Sequence[Token], opening: int) -> int | None:
    """Return the place of the bracket that closes the one at `opening`, if it is close."""
    for end in range(opening + 1, min(opening + _MAX_CONDITION, len(tokens))):
        if innermost_open(tokens, opening, end + 1) is None:
            return end if end > opening + 1 else None
    return None


def _compares(token: Token) -> bool:
    return token.text in _COMPARING or token.word in ("BETWEEN", "IN", "LIKE", "RLIKE", "IS")


def _is_value(tokens: Sequence[Token]) -> bool:
    """Return whether tokens after a comparison are a value, and not a step of a pattern."""
    if tokens[0].kind in (Lexeme.NUMBER, Lexeme.TEXT) or tokens[0].text in ("-", "("):
        return True
    return tokens[0].word in ("TRUE", "FALSE", "NULL", "NOT") or tokens[-1].text == "."


def _counted(tokens: Sequence[Token], at: int) -> Foreign | None:
    """Return a piece whose first sign does not show it: ``- >``, ``a<2:5>``, ``[2] a``,
    ``a.followedBy``.
    """
    token, after = tokens[at], tokens[at + 1]
    if token.text == "-" and after.text == ">":
        return _piece(tokens, at, at + 2, _PATTERN_SIGNS["- >"])
    if token.text == "<":
        text = "".join(piece.text for piece in tokens[at : at + 5])
        counts = re.match(r"<(\d{0,9})(:?)(\d{0,9})>", text)
        if counts is not None and (counts[1] or counts[3]):
            least, colon, most = counts.groups()
            n_tokens = 2 + sum(bool(part) for part in counts.groups())
            return _piece(tokens, at, at + n_tokens, _times("{a}", least + ("," if colon else "") + most))
    for first in (at, at - 2):
        count = tokens[min(first + 1, len(tokens) - 1)]
        if tokens[first].text == "[" and count.kind is Lexeme.NUMBER and tokens[first + 2].text == "]":
            return _piece(tokens, first, first + 3, _times("{b}", count.text))
    if token.text == ":" and tokens[at - 1].word == "TIMER":
        return _piece(tokens, at - 1, at + 2, VARIABLE_WORDS["timer"])
    if token.text == "." and after.kind is Lexeme.WORD:
        known = VARIABLE_WORDS.get(after.text.casefold(), VARIABLE_WORDS["where"])
        count = tokens[min(at + 3, len(tokens) - 1)]
        if after.word == "TIMES" and count.kind is Lexeme.NUMBER:
            known = _times("{a}", count.text)
        return _piece(tokens, at, at + 2, known)
    return None


def _times(name: str, bounds: str) -> str:
    """Return a template of what to write for `name` with a quantifier."""
    braces = f"{{{{{bounds}}}}}"
    return f"write {name}{braces} directly one after the other, {name}->{braces} otherwise"


def _indexed(tokens: Sequence[Token], at: int) -> Foreign | None:
    """Return ``a[0].x`` or ``a[last].x``: the events of a variable as a list."""
    if tokens[at].text != "[":
        return None
    if tokens[at - 2].text == ".":
        return _piece(tokens, at, at + 1, "a rule does not look into arrays: take the value out before")
    text = "".join(token.text for token in tokens[at : at + 7])
    index = re.match(r"\[(?:(\d{1,9})|last(?:-(\d{1,9}))?)\]\.(\w+)", text, re.IGNORECASE)
    if index is None:
        return None
    first, back, column = index.groups()
    function, offset = ("LAST", back) if first is None else ("FIRST", first)
    place = f", {int(offset)}" if offset and int(offset) else ""
    end = next(n for n in range(at, len(tokens)) if tokens[n].text == "]") + 1
    return _piece(tokens, at, end, f"write {function}({{a}}.{column}{place})")


def _ends_element(token: Token) -> bool:
    return bool(_shown(token)) or token.text in (")", "+", "*", "?", "}")


def _adjacent(tokens: Sequence[Token]) -> str:
    """Return the text of signs that follow each other directly; empty if they are anything else."""
    if any(token.kind not in (Lexeme.SIGN, Lexeme.BAD) for token in tokens):
        return ""
    if any(left.end != right.start for left, right in pairwise(tokens)):
        return ""
    return "".join(token.text for token in tokens)


def _piece(tokens: Sequence[Token], first: int, end: int, instead: str) -> Foreign:
    """Return the tokens from `first` to `end` with what to write, including the names around them."""
    end = min(end, len(tokens) - 1)
    a = _shown(tokens[first - 1]) or ("(...)" if tokens[first - 1].text == ")" else "a")
    if tokens[first - 2].text == "." and (of := _shown(tokens[first - 3])):
        a = f"{of}.{a}"
    b = _shown(tokens[end]) or ("b" if a != "b" else "c")
    if tokens[end].text == "(":
        only = _shown(tokens[end + 1]) if tokens[min(end + 2, len(tokens) - 1)].text == ")" else ""
        b = only or "(...)"
    help_text = instead.format(a=a, b=b, lower=b.lower())
    return Foreign(_text_of(tokens[first:end]), Span(tokens[first].start, tokens[end - 1].end), help_text)


def _text_of(tokens: Sequence[Token]) -> str:
    """Return tokens as they are written, with one blank where there is white space."""
    return "".join(
        token.text if n == 0 or token.start == tokens[n - 1].end else f" {token.text}"
        for n, token in enumerate(tokens)
    )


def _shown(token: Token) -> str:
    """Return a name or a constant as it is written; empty if it is neither, or long."""
    is_shown = token.kind in _SHOWN and token.word not in RESERVED
    return token.text if is_shown and len(token.text) < 40 else ""


_NAMES = frozenset((Lexeme.WORD, Lexeme.QUOTED))
_COMPARING = frozenset(("<", "<=", ">", ">=", "=", "==", "!=", "<>"))
_MAX_CONDITION = 80
"""Tokens, and characters, of a condition in brackets that is looked at, and shown."""

_SHOWN = frozenset((Lexeme.WORD, Lexeme.QUOTED, Lexeme.NUMBER, Lexeme.TEXT))
