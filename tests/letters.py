"""Letters to try a pattern without a schema.

Events are capital letters, a second apart. The variable ``a`` takes the events ``A``, the variable ``b``
takes the events ``B``, and so on:

    assert match_letters(LetterRule("a -> b -> c"), "A X B B C") == ["A B1 C"]
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from cep.compiler.pattern_shape import summary, variable_names
from cep.errors import Source
from cep.language import ast
from cep.language.front_ends import read_rules
from cep.local.find_matches import find_matches
from cep.program.program import EVENT, EVENT_COLUMNS, EVENT_NUMBER, EVENT_VARIABLE, OUTCOME, TIMEOUT
from cep.schema.stream import Field, Stream, TableSettings

LETTERS = Stream(
    name="letters",
    fields=(
        Field("key", "string"),
        Field("ts", "timestamp"),
        Field("letter", "string"),
        Field("seq", "bigint"),  # number of the letter among all letters, from 0
        Field("x", "bigint"),
        Field("y", "double"),
        Field("s", "string"),
    ),
    event_time="ts",
)
"""The stream of letters. If a rule has several streams, each has these columns. Predicates can read ``x``,
``y`` and ``s``."""

KEYS = replace(LETTERS, name="keys", table=TableSettings(("key",), op="letter"), min_valid_us=-1_000_000_000)
"""A table for FOR EACH, whose versions are letters, too: C creates the row of a key, D deletes it.

Versions may be older than all events, which begin at 0."""

_TOKEN = re.compile(r"\s*([A-Z])([0-9]*)(?:@(-?[0-9]+(?:\.[0-9]+)?))?(?:\(([^()]*)\))?(?=\s|$)")
_ATTRIBUTE = re.compile(
    r"\s*(key|x|y|s|on)\s*=\s*(?:(?P<null>NULL)|(?P<number>-?[0-9.]+)|'(?P<text>[^']*)')\s*(?:,|$)"
)
_MAX_SHOWN = 48  # most events of a match that are shown: a run has room for few more
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class LetterEvents:
    """Letters as events: rows of `LETTERS` in order of arrival, with their names and stream numbers."""

    rows: tuple[dict[str, Any], ...]
    names: tuple[str, ...]
    streams: tuple[int, ...]

    def by_stream(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of each stream."""
        numbered = list(zip(self.streams, self.rows, strict=True))
        return {name: [row for of, row in numbered if of == number] for number, name in enumerate(names)}


def read_letters(text: str, streams: Sequence[str] = (LETTERS.name,)) -> LetterEvents:
    """Return the events that `text` describes, of one stream of letters or of several.

    ``A`` is an event one second after the event before it; the first event is at 0 s. ``A@5`` is an event at
    5 s, and ``A(x=3)`` is an event with a value. A column without a value is NULL, but ``key`` is ``'k'``.
    ``A(on='right')`` is an event of the stream ``right``; other events are of the first stream. A digit is
    only a part of the name: ``B1 B2`` are two events B. Several equal letters without digits are numbered:
    ``A B B`` are A, B1, B2.
    """
    rows: list[dict[str, Any]] = []
    numbers: list[int] = []
    given: list[tuple[str, str]] = []
    at, time_us = 0, -_SECOND_US
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"not a letter event: {text[at:].split()[0]!r}")
        at = token.end()
        letter, number, seconds, attributes = token.groups()
        time_us = time_us + _SECOND_US if seconds is None else round(float(seconds) * _SECOND_US)
        row = {"key": "k", "ts": time_us, "letter": letter, "seq": len(rows), "x": None, "y": None, "s": None}
        values = _attributes(attributes or "")
        numbers.append(list(streams).index(values.pop("on", streams[0])))
        rows.append(row | values)
        given.append((letter, number))
    return LetterEvents(tuple(rows), _names(given), tuple(numbers))


def _attributes(text: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    at = 0
    while at < len(text):
        attribute = _ATTRIBUTE.match(text, at)
        if attribute is None:
            raise ValueError(f"not a value of a letter event: {text[at:]!r}")
        at = attribute.end()
        name, number = attribute[1], attribute["number"]
        if number is not None:
            values[name] = float(number) if name == "y" else int(number)
        else:
            values[name] = None if attribute["null"] else attribute["text"]
    return values


def _names(given: list[tuple[str, str]]) -> tuple[str, ...]:
    names: list[str] = []
    bare = [letter for letter, number in given if not number]
    seen: dict[str, int] = {}
    for letter, number in given:
        if not number and bare.count(letter) > 1:
            seen[letter] = seen.get(letter, 0) + 1
            number = str(seen[letter])
        names.append(letter + number)
    if doubled := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two events are called {', '.join(doubled)}")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class LetterRule:
    """A rule over letters. Each clause is written as in the text of a rule.

    A variable takes the events of its letter: ``b`` and ``b2`` take B. A condition in `where` restricts the
    variable to the events for which the condition is true. A condition in `define` replaces both. `on` names
    the stream of a variable, and `by` the columns of its key.

    With a `window` it is a window rule: `pattern` is empty, `counted` is its WHERE and `having` its HAVING.
    `keys` are versions of the table `KEYS`, which FOR EACH may name.
    """

    pattern: str
    within: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    define: Mapping[str, str] = field(default_factory=dict)
    measures: str = ""
    match: str = ""
    skip: str = ""
    report: str = ""
    partition_by: str = "key"
    subset: str = ""
    streams: tuple[str, ...] = (LETTERS.name,)
    on: Mapping[str, str] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)
    let: str = ""
    window: str = ""
    counted: str = ""
    having: str = ""
    keys: str = ""

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the pattern, in order of appearance."""
        pattern = self._parsed()
        return () if pattern is None else tuple(variable_names(pattern))

    @property
    def taken(self) -> tuple[str, ...]:
        """The variables that take events: each occurs somewhere without a ``!``."""
        pattern = self._parsed()
        return () if pattern is None else summary(pattern).taken

    def _parsed(self) -> ast.Pattern | None:
        """Return the tree of the pattern, or None if the pattern is wrong. Compiling the rule reports why."""
        if self.window:
            return None
        text = f"RULE letters FROM letters PARTITION BY key PATTERN {self.pattern}"
        rules, _ = read_rules(Source("pattern", text))
        return rules[0].pattern if rules else None

    def text(self, measures: Sequence[str] = ()) -> str:
        """Return the rule's text, with more `measures`."""
        wanted = [*([self.measures] if self.measures else []), *measures]
        clauses = [
            "RULE letters",
            f"FROM {', '.join(self.streams)}",
            f"PARTITION BY {self.partition_by}",
            f"WINDOW {self.window}" if self.window else f"PATTERN {self.pattern}",
            f"WITHIN {self.within}" if self.within else "",
            f"SUBSET {self.subset}" if self.subset else "",
            f"LET {self.let}" if self.let else "",
            f"WHERE {self.counted}" if self.counted else "",
            f"HAVING {self.having}" if self.having else "",
            "DEFINE " + ",\n  ".join(map(self._definition, self.variables)) if self.variables else "",
            "MEASURES " + ", ".join(wanted) if wanted else "",
            f"MATCH {self.match}" if self.match else "",
            self.skip,
            self.report,
        ]
        return "\n".join(clause for clause in clauses if clause)

    def _definition(self, name: str) -> str:
        condition = self.define.get(name) or f"letter = '{name[0].upper()}'"
        if name in self.where and name not in self.define:
            condition += f" AND ({self.where[name]})"
        on = f" ON {self.on[name]}" if name in self.on else ""
        by = f" BY {self.by[name]}" if name in self.by else ""
        return f"{name}{on}{by} AS {condition}"


def match_letters(rule: LetterRule, letters: str, stream: Stream = LETTERS) -> list[str]:
    """Return the matches of `rule` in a stream of letters, in order, each as `show_match` writes it.

    A timeout that ON TIMEOUT reports begins with the word ``timeout``. Under ALL ROWS PER MATCH a row ends
    with its number, variable and event: ``A B #1 b=B``.

    Rows of a window rule are as `show_window` writes them.

    `stream` is `LETTERS`, perhaps with tie breakers. Each stream of the rule has its columns and settings.
    """
    events = read_letters(letters, rule.streams)
    streams = {name: replace(stream, name=name) for name in rule.streams}
    rows = events.by_stream(rule.streams)
    if rule.keys:
        streams[KEYS.name] = KEYS
        rows = {**rows, KEYS.name: list(read_letters(rule.keys).rows)}
    n_shown = _MAX_SHOWN // max(len(rule.taken), 1)  # a wrong pattern has no variables
    shown_by = [f"COUNT({name}.*) AS n_{name}" for name in rule.taken]
    for name in rule.taken:
        shown_by += [f"FIRST({name}.seq, {number}) AS p{number}_{name}" for number in range(n_shown)]
    extra = {clause.rpartition(" ")[2] for clause in shown_by}
    shown = []
    for match in find_matches(rule.text(shown_by), streams, rows):
        taken = []
        for name in rule.taken:
            if match[f"n_{name}"] > n_shown:
                raise ValueError(f"more than {n_shown} events are taken as `{name}`: too many to show")
            taken += [match[f"p{number}_{name}"] for number in range(match[f"n_{name}"])]
        own = [name for name in list(match)[list(match).index("match_end") + 1 :] if name not in extra]
        measures = {name: match[name] for name in own if name not in (OUTCOME, *EVENT_COLUMNS)}
        if rule.window:
            start_us, end_us = _since_1970(match["match_start"]), _since_1970(match["match_end"])
            shown.append(show_window(start_us, end_us, measures))
            continue
        text = show_match(events, taken, _since_1970(match["match_end"]), measures, stream)
        if match.get(EVENT) is not None:
            event = match[EVENT]
            if len(rule.streams) > 1:
                event = next(of_stream for of_stream in event.values() if of_stream is not None)
            name = events.names[event["seq"]]
            text += f" #{match[EVENT_NUMBER]} {match[EVENT_VARIABLE]}={name}"
        shown.append(f"timeout {text}" if match.get(OUTCOME) == TIMEOUT else text)
    return shown


def _since_1970(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def show_match(
    events: LetterEvents,
    taken: Sequence[int],
    end_us: int,
    measures: Mapping[str, Any],
    stream: Stream = LETTERS,
) -> str:
    """Return a match as text: its events, its end, its measures.

    The end is written as ``@seconds``, but only if the match does not end at its last event. For example
    ``A B1 B2``, ``A @10``, ``A B (n=2, top=NULL)``.
    """

    def place(number: int) -> list[Any]:
        row = events.rows[number]
        ties = [row[name] for name in stream.tie_break]
        known = ((value is not None, value) for value in ties)
        return [row[stream.event_time], events.streams[number], *known, number]

    in_time = sorted(taken, key=place)
    words = [events.names[number] for number in in_time]
    if end_us != events.rows[in_time[-1]]["ts"]:
        words.append(f"@{end_us / _SECOND_US:g}")
    return " ".join([*words, *_shown_measures(measures)])


def show_window(start_us: int, end_us: int, measures: Mapping[str, Any]) -> str:
    """Return a row of a window rule as text: its start, its end, its measures: ``0..10 (n=2)``."""
    return " ".join([f"{start_us / _SECOND_US:g}..{end_us / _SECOND_US:g}", *_shown_measures(measures)])


def _shown_measures(measures: Mapping[str, Any]) -> list[str]:
    values = ", ".join(f"{name}={_show(value)}" for name, value in measures.items())
    return [f"({values})"] if values else []


def _show(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return str(value).upper()
        case float():
            return f"{value:g}"
        case str():
            return f"'{value}'"
        case list():
            return f"[{', '.join(map(_show, value))}]"
        case _:
            return str(value)
