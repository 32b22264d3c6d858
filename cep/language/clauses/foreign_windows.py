"""WINDOW as Flink, Spark and ksqlDB write it, and what to write instead."""

from __future__ import annotations

from typing import NoReturn

from cep.diagnostics.diagnostic import suggestion
from cep.errors import Span
from cep.language.cursor import Cursor
from cep.language.grammar import CLAUSE_WORDS, WINDOW_KINDS, Lexeme, Token
from cep.schema.time_literals import UNIT_WORDS, is_amount, parse_duration, print_duration, times_unit

STEP_WORDS = frozenset(("EVERY", "SLIDE", "SLIDING", "SLIDES", "ADVANCE", "HOP", "STEP", "BY"))
"""Words that other languages have where a rule says EVERY."""

WINDOW_KIND_WORDS = {
    "TUMBLE": "TUMBLING",
    "TUMBLING": "TUMBLING",
    "FIXED": "TUMBLING",
    "HOP": "HOPPING",
    "HOPPING": "HOPPING",
    "SLIDE": "SLIDING",
    "SLIDING": "SLIDING",
    "SESSION": "SESSION",
    "SESSION_WINDOW": "SESSION",
    "CUMULATE": "CUMULATE",
    "CUMULATING": "CUMULATE",
}
"""Word for a kind of window in any language -> the kind."""

_MAX_READ = 60
"""Tokens behind WINDOW in which durations are looked for."""


def refuse_kind(cursor: Cursor, forms: str, every_help: str) -> NoReturn:
    """Refuse the kind of window at the cursor; `forms` are the existing kinds."""
    token = cursor.now
    kind = WINDOW_KIND_WORDS.get(token.word)
    if kind is not None:
        refuse_form(cursor, token, kind)
    if token.kind in (Lexeme.NUMBER, Lexeme.TEXT) or token.word == "INTERVAL":
        length = _print(max(_durations(cursor), default=None), "1 HOUR")
        cursor.unexpected(
            "TUMBLING, HOPPING or SESSION",
            f"write WINDOW TUMBLING {length}; a pattern has its length in WITHIN {length}",
        )
    is_kind = bool(token.word) and not cursor.starts_clause()
    near = suggestion(token.word, WINDOW_KINDS - {"EVERY"}) if is_kind else None
    help_text = every_help if token.word == "EVERY" else forms
    cursor.unexpected(
        "TUMBLING, HOPPING or SESSION", f"did you mean {near}? {help_text}" if near else help_text
    )


def refuse_form(cursor: Cursor, first: Token, kind: str) -> NoReturn:
    """Refuse a window of `kind` in the form of another language, from `first` to the next token."""
    lengths = _durations(cursor)
    is_call = cursor.is_sign("(") or cursor.ahead().text == "("
    is_without_gap = first.word == "SESSION" and not is_call
    cursor.fail(
        "E0114",
        "SESSION without GAP"
        if is_without_gap
        else f"WINDOW has no `{first.text}{'(...)' if is_call else ''}`",
        Span(first.start, first.end),
        "of another language",
        f"write {_instead(kind, lengths)}",
    )


def refuse_elsewhere(cursor: Cursor) -> None:
    """Refuse ``TUMBLE(...)`` or ``TUMBLING 1 HOUR`` around the cursor, where WINDOW is not before it."""
    here = cursor.at
    for at in (here - 1, here, here + 1):
        token, after = cursor.tokens[at], cursor.tokens[min(at + 1, len(cursor.tokens) - 1)]
        if token.word not in WINDOW_KIND_WORDS or not (after.text == "(" or after.kind is Lexeme.NUMBER):
            continue
        cursor.at = at + 1
        lengths, cursor.at = _durations(cursor), here
        cursor.fail(
            "E0114",
            f"a rule has no `{token.text}{'(...)' if after.text == '(' else ''}` without WINDOW",
            Span(token.start, token.end),
            "of another language",
            f"write {_instead(WINDOW_KIND_WORDS[token.word], lengths)}",
        )


def _instead(kind: str, lengths: list[int]) -> str:
    longest, shortest = max(lengths, default=None), min(lengths, default=None)
    length = _print(longest, "10 MINUTES")
    step = _print(shortest if len(set(lengths)) > 1 else None, "1 MINUTE")
    match kind:
        case "TUMBLING" if len(set(lengths)) > 1:
            return (
                f"WINDOW HOPPING {length} EVERY {step}; windows that do not overlap: WINDOW TUMBLING {length}"
            )
        case "TUMBLING":
            return f"WINDOW TUMBLING {length}"
        case "HOPPING":
            return f"WINDOW HOPPING {length} EVERY {step}"
        case "SLIDING":
            return (
                f"WINDOW HOPPING {length} EVERY {step}; "
                f"a value at each event is written COUNT(*) OVER LAST {length}"
            )
        case "SESSION":
            return f"WINDOW SESSION GAP {length}"
        case _:
            return (
                f"WINDOW TUMBLING {length} for its end; "
                f"the value so far is written SUM(amount) OVER TUMBLING {length} at each event"
            )


def _print(length_us: int | None, default: str) -> str:
    return default if not length_us else print_duration(length_us)


def _durations(cursor: Cursor) -> list[int]:
    """Return the durations from the cursor to the end of the clause, in microseconds."""
    found = []
    for by in range(_MAX_READ):
        token, after = cursor.ahead(by), cursor.ahead(by + 1)
        if token.kind is Lexeme.END or (by > 0 and token.word in CLAUSE_WORDS):
            break
        text = token.text.strip("'")
        if token.kind not in (Lexeme.NUMBER, Lexeme.TEXT):
            continue
        length_us = parse_duration(text if after.start != token.end else text + after.text)
        if length_us is None and is_amount(text) and after.word in UNIT_WORDS:
            length_us = times_unit(text, UNIT_WORDS[after.word])
        if length_us:
            found.append(length_us)
    return found
