"""Pieces of texts in any language: brackets, lists, clauses, durations, conditions; and the rule offered."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from cep.schema.time_literals import parse_duration, print_duration

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_QUOTES = "'\"`"

_INTERVAL = re.compile(
    r"(?:INTERVAL\s{0,9}'(?P<amount>\d{1,9})'\s{0,9}(?P<unit>[A-Za-z]{1,12})"
    r"|(?P<plain>\d{1,9}\s{0,9}(?:milliseconds?|seconds?|secs?|minutes?|mins?|hours?|days?|ms|s|m|h|d))\b)",
    re.IGNORECASE,
)
_DOUBLE_QUOTED = re.compile(r'"([^"\'\\\n]{0,200})"')
_QUOTED_OR_COMMENT = re.compile(
    r"""('[^'\n]*'|"(?:[^"\\\n]|\\.)*"|`[^`\n]*`)|(?:--|//)[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL
)
_QUOTED_OR_BLANKS = re.compile(r"""('[^']*'|"[^"]*")|\s+""")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
_OF_NOW = re.compile(
    r"\b(?:ago|now|datetime)\s{0,9}\(|\b(?:CURRENT_TIMESTAMP|CURRENT_DATE|LOCALTIMESTAMP)\b", re.IGNORECASE
)
_MAX_SHOWN = 100

NEXT_QUERY = ("UNION", "EXCEPT", "INTERSECT", ";")
"""What ends a query before the end of the text."""


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


def whole_duration(text: str) -> str:
    """Return the duration that `text` is, in the form of rules; empty: it is something else."""
    return print_duration(sum(durations(text))) if not _INTERVAL.sub("", text).strip() and text else ""


def without_comments(text: str) -> str:
    """Return `text` with a blank for each comment, which would hide what follows it on the same line."""
    return _QUOTED_OR_COMMENT.sub(lambda found: found[1] or " ", text)


def without_quoted(text: str) -> str:
    """Return `text` with underscores for what is in quotes."""
    return _QUOTED.sub(lambda quoted: "_" * len(quoted[0]), text)


def clauses_of(text: str, words: re.Pattern[str]) -> list[tuple[str, str]]:
    """Return what precedes the first clause, and each clause: its words, what follows them.

    `words` are the first words of clauses. They count only outside brackets and quotes.
    """
    bare = without_quoted(text)
    places = []
    depth = at = 0
    for word in words.finditer(bare):
        depth += sum(1 if sign in "([{" else -1 for sign in bare[at : word.start()] if sign in "([{)]}")
        at = word.start()
        if depth == 0:
            places.append(word)
    ends = [*(word.start() for word in places), len(text)]
    found = [("", one_line(text[: ends[0]]))]
    for word, end in zip(places, ends[1:], strict=True):
        found.append((one_line(word[0]).upper(), text[word.end() : end].strip()))
    return found


def written(clauses: Sequence[tuple[str, str]]) -> list[str]:
    """Return the text of each clause that is not empty; everything after the query is one text."""
    ends = (n for n, (word, _) in enumerate(clauses) if word in NEXT_QUERY)
    end = next(ends, len(clauses))
    query, others = (
        [f"{word} {text}".strip() for word, text in some if text.strip(" ;")]
        for some in (clauses[:end], clauses[end:])
    )
    return [*query, " ".join(others)] if others else query


def one_line(text: str) -> str:
    """Return `text` with a blank for each stretch of white space outside quotes."""
    return _QUOTED_OR_BLANKS.sub(lambda found: found[1] or " ", text).strip()


def outside_quotes(text: str, change: Callable[[str], str]) -> str:
    """Return `text` with its pieces outside single quotes changed."""
    pieces = text.split("'")
    pieces[::2] = map(change, pieces[::2])
    return "'".join(pieces)


def with_values(text: str, values: Mapping[str, str]) -> str:
    """Return `text` with the values of names for the names."""
    names = re.compile(r"\b\w+\b")
    return outside_quotes(text, lambda piece: names.sub(lambda name: values.get(name[0], name[0]), piece))


def condition_of(text: str) -> str:
    """Return a condition in the form of rules: strings in single quotes, AND, OR, =."""
    text = _DOUBLE_QUOTED.sub(r"'\1'", one_line(text))
    return outside_quotes(text, _with_operators)


def _with_operators(text: str) -> str:
    text = text.replace("&&", "AND").replace("||", "OR").replace("==", "=")
    return re.sub(r"\b(?:and|or|not|in|like|is|null)\b", lambda word: word[0].upper(), text)


def without_now(condition: str) -> tuple[list[str], list[str]]:
    """Return the parts of a condition joined by AND, and those that depend on the time of the query."""
    is_either = len(split_outside(condition, " OR ")) > 1
    parts = [f"({condition})"] if is_either else split_outside(condition, " AND ")
    of_now = [one for one in parts if _OF_NOW.search(one)]
    return [one for one in parts if one and one not in of_now], of_now


def partition_by(keys: str, *, is_invented: bool = False) -> str:
    """Return PARTITION BY, with a comment that asks for the key if there is none or it is invented."""
    comment = "" if keys and not is_invented else "  -- every rule has a key: write its column here"
    return f"PARTITION BY {keys or 'key'}{comment}"


def offered(clauses: Iterable[str], missing: Iterable[str]) -> str:
    """Return the clauses that are not empty as a rule, after a comment for each part that it lacks."""
    remarks = []
    for one in filter(None, missing):
        remark = " ".join(one.split()).strip(" ;")
        remark = remark if len(remark) <= _MAX_SHOWN else f"{remark[:_MAX_SHOWN]}..."
        remarks.append(f"-- not translated: {remark}")
    return "\n".join((*remarks, *filter(None, clauses)))
