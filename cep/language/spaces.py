"""Which tokens of a rule have a space between them in the usual layout."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from cep.language.brackets import CLOSING
from cep.language.grammar import RESERVED, Lexeme, Token

_BEFORE_PARENTHESIS = RESERVED | {"BY", "DISTINCT", "FILTER", "ON", "OVER"}
"""Words that have a space before a parenthesis: other words in an expression are names of functions."""

_JOINTS = ("->", "->>")
_QUANTIFIERS = ("{", "*", "+", "?")
_OPENING = (*CLOSING, ".")
_CLOSED = (*CLOSING.values(), ",", ".")


class _Sides(NamedTuple):
    """Whether a token wants a space before it and one after it."""

    before: bool = True
    after: bool = True


def spaces(tokens: Sequence[Token], *, is_pattern: bool) -> list[int]:
    """Return the number of spaces before each token of a clause, 0 or 1; `is_pattern`: of PATTERN."""
    sides: list[_Sides] = []
    until_depth = depth = 0  # of the parenthesis after UNTIL, in which a pattern has an expression
    for at, token in enumerate(tokens):
        if token.text == "(":
            depth += 1
            if is_pattern and until_depth == 0 and tokens[at - 1].word == "UNTIL":
                until_depth = depth
        in_pattern = is_pattern and until_depth == 0
        sides.append(_in_pattern(tokens, at) if in_pattern else _in_expression(tokens, at))
        if token.text == ")":
            if depth == until_depth:
                until_depth = 0
            depth -= 1
    return [0] + [int(one.after and two.before) for one, two in pairwise(sides)]


def _in_expression(tokens: Sequence[Token], at: int) -> _Sides:
    token, last = tokens[at], tokens[at - 1] if at else None
    if last is None or token.kind is not Lexeme.SIGN:
        # `1h30m` is a number and a word.
        is_joined = last is not None and last.kind is Lexeme.NUMBER and last.end == token.start
        return _Sides(before=not is_joined)
    match token.text:
        case "(" if at > 1 and _is_called(last, tokens[at - 2]):
            return _Sides(before=False, after=False)
        case "(":
            return _Sides(after=False)
        case sign if sign in _OPENING or sign in _CLOSED:
            return _Sides(before=False, after=sign not in _OPENING)
        case "-" if _is_operand_due(last, tokens[at - 2] if at > 1 else None):
            return _Sides(after=tokens[at + 1].text == "-")  # two of them would begin a comment
        case _:
            return _Sides()


def _is_called(name: Token, before: Token) -> bool:
    if name.kind is Lexeme.QUOTED or before.text == ".":
        return True
    return name.kind is Lexeme.WORD and name.word not in _BEFORE_PARENTHESIS


def _is_operand_due(last: Token, before: Token | None) -> bool:
    """Return whether a minus after `last` is a sign rather than an operator."""
    after_dot = before is not None and before.text == "."
    if last.kind is Lexeme.SIGN:
        return last.text not in CLOSING.values() and not (last.text == "*" and after_dot)
    return last.word in RESERVED - {"NULL", "TRUE", "FALSE"} and not after_dot


def _in_pattern(tokens: Sequence[Token], at: int) -> _Sides:
    token, last = tokens[at], tokens[at - 1] if at else None
    if last is None or token.kind is not Lexeme.SIGN:
        return _in_expression(tokens, at)
    match token.text:
        case "->" | "->>":
            if _is_quantified(tokens, at + 1):
                return _Sides(before=False, after=False)
            return _Sides(after=tokens[at + 1].text != "[")
        case "[":
            return _Sides(before=not _is_quantified(tokens, at) and last.text not in _JOINTS, after=False)
        case "(":
            return _Sides(before=last.word != "PERMUTE", after=False)
        case "{":
            return _Sides(before=False, after=False)
        case "+" | "*" | "?":
            return _Sides(before=False)
        case ",":
            return _Sides(before=False, after=not _is_in_braces(tokens, at))
        case "!":
            return _Sides(after=False)
        case _:
            return _in_expression(tokens, at)


def _is_in_braces(tokens: Sequence[Token], at: int) -> bool:
    return "{" in (tokens[at - 1].text, tokens[at - 2].text)


def _is_quantified(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a quantifier is at the place `at`, or after the gap that begins there."""
    if tokens[at].text == "[":
        at = next((place for place in range(at, len(tokens)) if tokens[place].text == "]"), at) + 1
    return at < len(tokens) and tokens[at].kind is Lexeme.SIGN and tokens[at].text in _QUANTIFIERS
