"""The other language of a text, recognized by its first words and its shape."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from cep.errors import Span
from cep.language.other_languages.patterns import rule_of_eql, rule_of_esper, rule_of_siddhi
from cep.language.other_languages.pipes import rule_of_pipes
from cep.language.other_languages.sql import MATCH_RECOGNIZE, rule_of_match_recognize, rule_of_windows
from cep.language.other_languages.texts import without_comments

_BLANKS = re.compile(r"\s*")

PAGE = "docs/start/coming_from.md"

MAX_LOOKED_AT = 20_000
"""Characters of a text that tell its language."""

MAX_TRANSLATED = 4_000
"""Characters of a text that is translated."""


class OtherLanguage(NamedTuple):
    """The language of a text: the message, its first line, what to do, and the equivalent rule."""

    title: str
    span: Span
    help: str
    rule: str | None


class _Language(NamedTuple):
    """A language: the message for a text in it, the page that explains it, its signs, its translator."""

    title: str
    page: str
    is_it: Callable[[str, str], bool]
    rule_of: Callable[[str], str | None] | None = None


def _pattern(text: str) -> Callable[[str, str], bool]:
    """Return a test of whether a text has this pattern; ``^`` is the start of a line."""
    form = re.compile(text, re.IGNORECASE | re.MULTILINE)
    return lambda _, whole: form.search(whole) is not None


def _all_of(*texts: str) -> Callable[[str, str], bool]:
    tests = [_pattern(text) for text in texts]
    return lambda first, whole: all(test(first, whole) for test in tests)


_SQL = ("SELECT", "INSERT", "CREATE", "WITH", "EXPLAIN", "SET", "EXECUTE", "BEGIN", "DROP", "USE")
_EPL_WORDS = (
    "@NAME",
    "CREATE",
    "SELECT",
    "INSERT",
    "ON",
    "MODULE",
    "EVERY",
    "@PUBLIC",
    "@EVENTTYPE",
    "CONTEXT",
)
_PIPES = (
    r"where|extend|summarize|project(?:-away)?|join|order|sort|take|top|limit|count|distinct|make-series|evaluate"
    r"|scan|mv-expand|union|parse|stats|eval|keep|streamstats|transaction|search|table|rename|dedup"
)

_SIDDHI = _pattern(
    r"^[ \t]*@app:|^[ \t]*define\s+(?:stream|table|window|function)\b|#window\.|\bpartition\s+with\s*\("
)
_SIDDHI_QUERY = _pattern(
    r"\binsert\s+(?:\w+\s+events\s+)?into\b|\bevery\s{1,9}\(?\w{1,60}\s{0,9}=|\b\w{1,60}\s{0,9}=\s{0,9}\w{1,60}\["
)
_EPL = _pattern(
    r"\bpattern\s*\[|^[ \t]*@name\s*\(|\bcreate\s+(?:\w+\s+)?(?:schema|context)\b"
    r"|#(?:time|length|keepall|lastevent|unique|ext)"
    r"|\.(?:win|std):\w|\btimer:\w|^[ \t]*every\b"
)
_EQL = _pattern(r"\[\s*\w+\s+where\b")

_PIPED = _pattern(
    rf"^[ \t]*\|[ \t]*(?:{_PIPES})\b|^[^|\n]{{1,200}}\|[ \t]*(?:where|summarize|extend|project|stats|eval"
    r"|transaction|streamstats|eventstats|timechart|tstats|dedup|rex|lookup)\b"
)
_FLINK = _pattern(
    r"\bimport\s+(?:static\s+)?org\.apache\.flink\b|\b(?:from|import)\s+pyflink\b|\bCEP\.pattern\s*\("
    r"|\bPattern\s*\.\s*(?:<[^<>\n]{0,99}>\s*)?begin\s*\(|\b(?:Stream(?:Table|Execution)?|Table)Environment\b"
)

_LANGUAGES: tuple[_Language, ...] = (
    _Language(
        "this is a streams file",
        "docs/reference/input.md",
        lambda first, whole: bool(re.match(r"(?:streams|tables):[ \t]*(?:#.*)?\n[ \t]+\w+:", whole)),
    ),
    _Language(
        "this is a pipeline file",
        "docs/reference/pipeline.md",
        _all_of(r"^rules:", r"^(?:sources?|sinks):"),
    ),
    _Language(
        "these are events in JSON",
        "docs/reference/input.md",
        lambda first, whole: bool(re.match(r"\{\s*\"[^\"\n]{1,99}\"\s*:", whole)),
    ),
    _Language(
        "this is Sigma",
        f"{PAGE}#sigma",
        _all_of(r"^(?:detection|correlation):", r"^(?:logsource|title|id|name|correlation):"),
    ),
    _Language(
        "this is SQL with MATCH_RECOGNIZE",
        f"{PAGE}#match_recognize",
        lambda first, whole: MATCH_RECOGNIZE.search(whole) is not None,
        rule_of_match_recognize,
    ),
    _Language(
        "this is a program for Flink",
        "docs/start/flink.md",
        lambda first, whole: _FLINK(first, whole),
    ),
    _Language(
        "this is Siddhi",
        f"{PAGE}#siddhi",
        lambda first, whole: (
            _SIDDHI(first, whole) or (first in ("FROM", "@INFO") and _SIDDHI_QUERY(first, whole))
        ),
        rule_of_siddhi,
    ),
    _Language(
        "this is Esper's EPL",
        f"{PAGE}#esper",
        lambda first, whole: first in _EPL_WORDS and _EPL(first, whole),
        rule_of_esper,
    ),
    _Language(
        "this is EQL",
        f"{PAGE}#eql",
        lambda first, whole: (
            (first in ("SEQUENCE", "SAMPLE") and _EQL(first, whole))
            or bool(re.match(r"\w{1,60}\s+where\s+[\w.?]{1,99}\s*(?:[=!<>:]|in|like)", whole))
        ),
        rule_of_eql,
    ),
    _Language(
        "this is a query with pipes (KQL, ES|QL, SPL)",
        f"{PAGE}#kql",
        _PIPED,
        rule_of_pipes,
    ),
    _Language(
        "this is SQL",
        f"{PAGE}#sql",
        lambda first, whole: (
            first in _SQL and bool(re.search(r"\b(?:FROM|TABLE|VIEW)\b", whole, re.IGNORECASE))
        ),
        rule_of_windows,
    ),
)
"""In the order in which they are tried."""

_NAMED_RULE = re.compile(
    r"^[ \t]*(?:RULE|VIEW)[ \t]+[`\w]+[ \t]*(?:\n|$|--|FROM|TITLE|KEY|SEVERITY)", re.IGNORECASE | re.MULTILINE
)


def other_language(text: str) -> OtherLanguage | None:
    """Return the language of a text that does not start with RULE or VIEW; None: it is in none of these
    languages.

    A text in which a rule starts somewhere is not in another language.
    """
    start = _first_place(text)
    whole = text[start : start + MAX_LOOKED_AT]
    if not whole or _NAMED_RULE.search(whole):
        return None
    first = re.match(r"@?\w{0,30}", whole)
    word = first[0].upper() if first is not None else ""
    for language in _LANGUAGES:
        if not language.is_it(word, whole):
            continue
        end = text.find("\n", start)
        span = Span(start, len(text.rstrip()) if end < 0 else max(start + 1, end))
        translated = language.rule_of is not None and len(text) <= MAX_TRANSLATED
        rule = (
            language.rule_of(without_comments(text[start:]))
            if translated and language.rule_of is not None
            else None
        )
        help_text = (
            f"{language.page} says how to write it as a rule"
            if language.page.startswith("docs/start/")
            else f"a rule file has rules, which begin with RULE; see {language.page}"
        )
        return OtherLanguage(language.title, span, help_text, rule)
    return None


def _first_place(text: str) -> int:
    """Return where `text` starts, after white space and comments of any language."""
    at = 0
    while True:
        blanks = _BLANKS.match(text, at)
        at = at if blanks is None else blanks.end()
        if text.startswith(("--", "//", "#"), at):
            end = text.find("\n", at)
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            end = end + 1 if end >= 0 else end
        else:
            return at
        if end < 0:
            return at
        at = end + 1
