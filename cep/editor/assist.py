"""What an editor shows at a place of a rule: completions, and what a word means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cep.compiler.compile import check_sources
from cep.diagnostics.safe_text import in_short
from cep.editor.functions import HELP
from cep.editor.keywords import CONSTANTS, KEYWORDS, UNITS
from cep.editor.outline import Outline, name_of, outline_at
from cep.editor.project import Surroundings
from cep.errors import Span
from cep.language.clauses.forms import FORMS
from cep.language.grammar import Lexeme, Token, tokens
from cep.language.printer import print_name
from cep.profiles.profile import ColumnProfile, number_text
from cep.program.opcodes import SEVERITIES
from cep.schema.stream import Field, Stream


class Shown(StrEnum):
    """Kinds of completions."""

    COLUMN = "column"
    FUNCTION = "function"
    STEP = "step"
    VALUE = "value"
    STREAM = "stream"
    KEYWORD = "keyword"


@dataclass(frozen=True, slots=True)
class Completion:
    """A word that may follow. `detail` is its type or form, `about` what it means."""

    label: str
    kind: Shown
    detail: str = ""
    about: str = ""


_EXPRESSIONS = frozenset(("LET", "DEFINE", "WHERE", "HAVING", "MEASURES", "SELECT", "PATTERN"))
_OF_AMOUNTS = frozenset(("PATTERN", "WITHIN", "WINDOW", "SUPPRESS", "MAX"))
"""Clauses with numbers and durations, in whose places parameters may be."""

_AMOUNT = re.compile(r"\d+$|[\d.]+\s*[A-Za-z]|INTERVAL\b", re.IGNORECASE)
"""The text of a value that is a whole number or a duration."""

_OPERATORS = (
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "IS",
    "LIKE",
    "RLIKE",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
)
_WINDOWS = ("OVER", "LAST", "PREVIOUS", "TUMBLING", "SESSION", "ALL", "FILTER", "DISTINCT", "AS", "ON")
_BEHIND: Mapping[str, tuple[str, ...]] = {
    "SEVERITY": SEVERITIES,
    "STATUS": ("live", "shadow"),
    "MATCH": ("EARLIEST", "ALL", "PREFERRED"),
    "AFTER": ("MATCH", "SKIP", "NO", "PAST LAST EVENT", "TO NEXT EVENT", "TO FIRST", "TO LAST"),
    "WINDOW": ("TUMBLING", "HOPPING", "SESSION", "EVERY", "GAP", "OFFSET", "ZONE", "FOR EACH"),
    "SUPPRESS": ("FOR",),
    "PATTERN": ("PERMUTE", "WITHIN", "WITHOUT", "UNTIL", "FOR", "DISTINCT BY"),
    "PARTITION": ("BY",),
    "FROM": ("MATCHES OF",),
}
"""First word of a clause -> words that may follow in it."""

_MOST_VALUES = 8
"""Values of a column that are shown, the most frequent ones."""


def completions(text: str, offset: int, around: Surroundings) -> tuple[Completion, ...]:
    """Return what may be written at an offset of a rule text, the likeliest first."""
    before = [token for token in tokens(text, with_comments=True)[:-1] if token.start < offset]
    if before and before[-1].end >= offset:
        last = before[-1]
        if last.kind in (Lexeme.COMMENT, Lexeme.TEXT, Lexeme.NUMBER):
            return ()
        if last.kind in (Lexeme.WORD, Lexeme.QUOTED):
            before.pop()  # the word that is being written
    words = [token for token in before if token.kind is not Lexeme.COMMENT]
    rule = outline_at(text, words[-1].start) if words else None
    if rule is None:
        return tuple(_clauses(frozenset(("VIEW",)) - {"RULE"}, only=("RULE", "VIEW")))
    if words[-1].text == "." and len(words) > 1:
        return tuple(_behind_dot(rule, name_of(words[-2]), around))
    clause = rule.clause_at(words[-1].end)
    word = "" if clause is None else clause.word
    if words[-1].kind is Lexeme.NUMBER:
        units = [unit for unit in UNITS if unit.endswith("S") and len(unit) > 2]
        return tuple(Completion(unit, Shown.KEYWORD) for unit in sorted(units))
    found = [*_in_clause(rule, word, words, around)]
    found += [Completion(after, Shown.KEYWORD) for after in _BEHIND.get(word, ())]
    return (*found, *_clauses(rule.words, is_view=text[rule.start : rule.start + 4].upper() == "VIEW"))


def _in_clause(rule: Outline, word: str, words: list[Token], around: Surroundings) -> Iterator[Completion]:
    if word == "FROM":
        yield from (_stream(name, stream) for name, stream in around.streams.items())
        return
    if word in ("JOIN", "INNER", "LEFT", "RIGHT", "FULL") and words[-1].word == "JOIN":
        tables = (item for item in around.streams.items() if item[1].table is not None)
        yield from (_stream(name, stream) for name, stream in tables)
        return
    if word in ("PARTITION", "KEY", "JOIN", "LEFT"):
        yield from _columns(rule, around)
    if word in ("PATTERN", "AFTER", "SUBSET", *_EXPRESSIONS):
        yield from (Completion(print_name(name), Shown.STEP, "step") for name in rule.steps)
        yield from (Completion(print_name(name), Shown.STEP, "subset") for name in rule.subsets)
    if word in _OF_AMOUNTS:
        for name, value in rule.parameters.items():
            if _AMOUNT.match(value):
                yield Completion(print_name(name), Shown.VALUE, value)
    if word == "DEFINE" and words[-1].word == "ON":
        yield from (_stream(name, stream) for name, stream in around.streams.items())
    if word in _EXPRESSIONS - {"PATTERN"}:
        yield from _columns(rule, around)
        for name, value in (*rule.lets.items(), *rule.parameters.items()):
            yield Completion(print_name(name), Shown.VALUE, value)
        for name, about in HELP.items():
            yield Completion(name, Shown.FUNCTION, about.signature, about.meaning)
        yield from (Completion(each, Shown.KEYWORD) for each in (*_OPERATORS, *_WINDOWS, *sorted(CONSTANTS)))


def _behind_dot(rule: Outline, name: str, around: Surroundings) -> Iterator[Completion]:
    streams = [rule.steps[name]] if rule.steps.get(name) else list(rule.streams)
    if name in around.streams and name not in rule.steps:
        streams = [name]
    for stream in streams:
        yield from _of_stream(stream, around)
    if name in rule.steps or name in rule.subsets:
        yield from (Completion(print_name(let), Shown.VALUE, value) for let, value in rule.lets.items())
        yield from (Completion(print_name(table), Shown.STREAM, "table") for table in rule.tables)


def _columns(rule: Outline, around: Surroundings) -> Iterator[Completion]:
    for stream in rule.streams:
        yield from _of_stream(stream, around)
    yield from (Completion(print_name(name), Shown.STREAM, "table") for name in rule.tables)


def _of_stream(name: str, around: Surroundings) -> Iterator[Completion]:
    stream = around.streams.get(name)
    for column in () if stream is None else stream.fields:
        about = f"column of {name}{_values(around, name, column.name)}"
        yield Completion(print_name(column.name), Shown.COLUMN, column.declared, about)


def _stream(name: str, stream: Stream) -> Completion:
    columns = ", ".join(column.name for column in stream.fields)
    return Completion(print_name(name), Shown.STREAM, "stream" if stream.table is None else "table", columns)


def _clauses(has: frozenset[str], only: tuple[str, ...] = (), is_view: bool = False) -> Iterator[Completion]:
    of_views = ("KEY", "SELECT", "INNER", "LEFT", "RIGHT", "FULL", "VIEW")
    for word, form in FORMS.items():
        is_due = word in only if only else word not in has and (is_view or word not in of_views)
        if is_due:
            yield Completion(word, Shown.KEYWORD, form)


def hover(text: str, offset: int, around: Surroundings) -> tuple[str, Span] | None:
    """Return what the word at an offset means, as Markdown, and its place; None: there is nothing to say."""
    words = tokens(text)[:-1]
    at = next((at for at, token in enumerate(words) if token.start <= offset <= token.end), None)
    if at is not None and words[at].end == offset and at + 1 < len(words) and words[at + 1].start == offset:
        at += words[at].kind not in (Lexeme.WORD, Lexeme.QUOTED)
    if at is None or words[at].kind not in (Lexeme.WORD, Lexeme.QUOTED):
        return None
    rule = outline_at(text, words[at].start)
    told = None if rule is None else _told(rule, words, at, around)
    return None if told is None else (told, Span(words[at].start, words[at].end))


def _told(rule: Outline, words: list[Token], at: int, around: Surroundings) -> str | None:
    token, name = words[at], name_of(words[at])
    is_call = at + 1 < len(words) and words[at + 1].text == "("
    if is_call and token.word in HELP:
        about = HELP[token.word]
        return f"```\n{about.signature}\n```\n{about.meaning}"
    if at > 1 and words[at - 1].text == ".":
        return _told_column(rule, name_of(words[at - 2]), name, around)
    clause = rule.clause_at(token.end)
    if clause is not None and clause.tokens[0].start == token.start and token.word in FORMS:
        return f"```cep\n{FORMS[token.word]}\n```"
    if name in rule.measures and words[at - 1].word == "AS":
        return _told_measure(rule, name, around)
    for what, values in (("parameter", rule.parameters), ("value of LET", rule.lets)):
        if name in values:
            return f"```cep\n{print_name(name)} = {values[name]}\n```\n{what} of `{rule.name}`"
    if name in rule.steps:
        return _told_step(rule, name)
    if name in around.streams and clause is not None and clause.word in ("FROM", "JOIN", "DEFINE", "LEFT"):
        stream = _stream(name, around.streams[name])
        return f"{stream.detail} `{name}`: {stream.about}"
    return None if token.word in KEYWORDS and token.text.isupper() else _told_column(rule, "", name, around)


def _told_column(rule: Outline, variable: str, name: str, around: Surroundings) -> str | None:
    of_step = rule.steps.get(variable)
    streams = [of_step] if of_step else [variable] if variable in around.streams else [*rule.streams]
    for each in streams:
        stream = around.streams.get(each)
        found = None if stream is None else next((one for one in stream.fields if one.name == name), None)
        if stream is not None and found is not None:
            return _field(each, stream, found, around)
    return None


def _field(name: str, stream: Stream, column: Field, around: Surroundings) -> str:
    lines = [f"```\n{column.name}: {column.declared}\n```", f"column of {name}; {column.type.name} in rules"]
    if column.name == stream.event_time:
        lines[1] += "; the event time"
    if column.column != column.name:
        lines[1] += f"; `{column.column}` in the data"
    return "\n".join(lines) + _values(around, name, column.name)


def _values(around: Surroundings, stream: str, column: str) -> str:
    """Return which values the profile of a stream has of a column; nothing without a profile."""
    profile = around.profiles.get(stream)
    found: ColumnProfile | None = None if profile is None else profile.columns.get(column)
    if found is None:
        return ""
    if found.counts:
        common = [f"{in_short(value)} ({count:,})" for value, count in [*found.counts.items()][:_MOST_VALUES]]
        more = len(found.counts) - len(common)
        return f"; values: {', '.join(common)}" + (f" and {more:,} more" if more else "")
    if found.least is not None and found.greatest is not None and not found.is_time:
        return f"; from {number_text(found.least)} to {number_text(found.greatest)}"
    return ""


def _told_step(rule: Outline, name: str) -> str:
    clause = next((clause for clause in rule.clauses if clause.word == "DEFINE"), None)
    stream = f" of {rule.steps[name]}" if rule.steps[name] else ""
    is_defined = clause is not None and any(name_of(token) == name for token in clause.tokens)
    return f"step of `{rule.name}`: an event{stream} " + (
        "for which its condition in DEFINE is TRUE" if is_defined else "without a condition: any event"
    )


def _told_measure(rule: Outline, name: str, around: Surroundings) -> str:
    typed, _ = check_sources(around.sources, around.streams)
    found = next(
        (one for each in typed if each.name == rule.name for one in each.measures if one.name == name), None
    )
    kind = f": {found.expression.type.name}" if found is not None else ""
    return f"```cep\n{print_name(name)}{kind}\n```\nmeasure of `{rule.name}`: `{rule.measures[name]}`"
