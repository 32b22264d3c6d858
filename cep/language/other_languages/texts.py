"""Pieces of texts in any language: brackets, lists, durations, conditions."""

from __future__ import annotations

import re

from cep.schema.time_literals import parse_duration, print_duration

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\"`"

_INTERVAL = re.compile(
    r"(?:INTERVAL\s{0,9}'(?P<amount>\d{1,9})'\s{0,9}(?P<unit>[A-Za-z]{1,12})"
    r"|(?P<plain>\d{1,9}\s{0,9}(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?|days?|ms|s|m|h|d))\b)",
    re.IGNORECASE,
)
_DOUBLE_QUOTED = re.compile(r'"([^"\'\\\n]{0,200})"')


def end_of_bracket(text: str, at: int) -> int | None:
    """Return the place of the bracket that closes the one at `at`; brackets in quotes do not count."""
    closing: list[str] = []
    quote = ""
    for place in range(at, len(text)):
        sign = text[place]
        if quote:
            quote = "" if sign == quote else quote
        elif sign in _QUOTES:
            quote = sign
        elif sign in _CLOSING:
            closing.append(_CLOSING[sign])
        elif closing and sign == closing[-1]:
            closing.pop()
            if not closing:
                return place
    return None


def split_outside(text: str, sign: str) -> list[str]:
    """Return the pieces of `text` between occurrences of `sign` outside brackets and quotes."""
    pieces, begin, depth, quote, place = [], 0, 0, "", 0
    while place < len(text):
        letter = text[place]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif depth == 0 and text.startswith(sign, place):
            pieces.append(text[begin:place].strip())
            begin = place + len(sign)
            place = begin - 1
        place += 1
    return [*pieces, text[begin:].strip()]


def durations(text: str) -> list[int]:
    """Return the durations in `text`, in microseconds."""
    found = []
    for item in _INTERVAL.finditer(text):
        length_us = parse_duration(item["plain"] or f"{item['amount']} {item['unit']}")
        if length_us:
            found.append(length_us)
    return found


def first_duration(text: str) -> str:
    """Return the first duration in `text` in the form of rules; empty: none."""
    found = durations(text)
    return print_duration(found[0]) if found else ""


def one_line(text: str) -> str:
    """Return `text` with a blank for each stretch of white space."""
    return " ".join(text.split())


def condition_of(text: str) -> str:
    """Return a condition in the form of rules: strings in single quotes, AND, OR, =."""
    text = _DOUBLE_QUOTED.sub(r"'\1'", one_line(text))
    text = text.replace("&&", "AND").replace("||", "OR").replace("==", "=")
    return re.sub(r"\b(?:and|or|not|in|like|is|null)\b", lambda word: word[0].upper(), text)
