"""The rules that `cep new` writes, with their tests: a few kinds of rules, over the columns of a stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import InputError, Source
from cep.expression import Type
from cep.language.layout import laid_out
from cep.language.printer import print_name
from cep.schema.stream import Field, Stream

_KEYS = (Type.STRING, Type.BIGINT)
_KEY_VALUES: Mapping[Type, object] = {
    Type.STRING: "k1",
    Type.BIGINT: 1,
    Type.BOOLEAN: True,
    Type.TIMESTAMP: "2024-01-01T00:00:00Z",
}
"""Types that a key can have, and the key of the tests."""

_VALUES = (Type.DOUBLE, Type.BIGINT, Type.STRING, Type.BOOLEAN)
_SEEN = (Type.STRING, Type.BIGINT)
_OF_MATCHES = frozenset(("rule", "match_id", "match_start", "match_end"))
"""Columns that every match has, so they cannot be a key. `cep.rule_set` has the list, and loads NumPy."""

YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True, slots=True)
class Value:
    """How a rule distinguishes two kinds of events by a column.

    `low` and `high` are the conditions, `parameters` the constants that they name; `is_low` and `is_high` are
    values for which they hold. `edge` is the value nearest to `high` for which that does not hold.
    """

    low: str
    high: str
    parameters: tuple[str, str] | None
    is_low: object
    is_high: object
    edge: object


@dataclass(frozen=True, slots=True)
class Columns:
    """The stream of a new rule, its key, and the columns that its conditions read; None: it has none."""

    stream: Stream
    key: Field
    value: Field | None
    seen: Field | None

    def name(self, word: str) -> str:
        """Return a name of the rule that no column has."""
        return self.name(f"{word}_") if self.stream.field(word) is not None else word


def columns_of(
    stream: Stream, key: str | None = None, value: str | None = None, empty: Collection[str] = ()
) -> Columns:
    """Return the columns for a rule; `key` and `value` are chosen by their types if they are None.

    `empty`: columns of only NULLs; with one of them as the key, no event would be used.

    Raises InputError: the stream has no such column, or none that can be the key (E0662).
    """
    by_key = _chosen(stream, key, _KEYS, [value, *_taken(stream), *empty])
    help_text = "choose one: --key COLUMN"
    if by_key is None:
        said = f"stream `{stream.name}` has no column of text for the key"
        raise InputError("E0662", said, help_text + _passed_over(stream, _KEYS, value=value, empty=empty))
    reason = _no_key(stream, by_key, value)
    if reason:
        raise InputError("E0662", f"`{by_key.name}` of stream `{stream.name}` {reason}: no key", help_text)
    others = [by_key.name]
    full = [*others, *empty]
    by_value = _chosen(stream, value, _VALUES, full) or _chosen(stream, None, _VALUES, others)
    seen = _chosen(stream, None, _SEEN, full) or _chosen(stream, None, _SEEN, others)
    seen = by_value if value is not None else seen
    return Columns(stream, by_key, by_value, seen)


def _taken(stream: Stream) -> list[str]:
    """Return the columns whose names every match has."""
    return [one.name for one in stream.fields if one.name.casefold() in _OF_MATCHES]


def _no_key(stream: Stream, field: Field, value: str | None) -> str:
    """Return why a column cannot be the key of a rule with such a value; empty: it can."""
    if field.name == stream.event_time:
        return "is the time, another one for each event"
    if field.name == value:
        return "is the value, which is to change within a key"
    if field.name in _taken(stream):
        return "has the name of a column of every match"
    return "" if field.type in _KEY_VALUES else f"is {field.ddl.upper()}"


def _chosen(
    stream: Stream, name: str | None, types: tuple[Type, ...], without: Collection[str | None]
) -> Field | None:
    if name is not None:
        found = stream.field(name)
        if found is None:
            advice = did_you_mean(name, [field.name for field in stream.fields], "columns")
            raise InputError("E0662", f"stream `{stream.name}` has no column `{name}`", advice)
        return found
    left = [one for one in stream.fields if one.name not in (stream.event_time, *stream.tie_break, *without)]
    return next((one for kind in types for one in left if one.type is kind), None)


def _passed_over(
    stream: Stream,
    types: tuple[Type, ...],
    *,
    key: str | None = None,
    value: str | None = None,
    empty: Collection[str] = (),
) -> str:
    """Return a part of a help text: the columns of these types that are taken only if they are chosen."""
    reasons: dict[str | None, str] = dict.fromkeys(empty, "only NULLs")
    reasons |= dict.fromkeys(stream.tie_break, "tie_break")
    reasons |= {key: "the key", value: "the value"}
    left = [one for one in stream.fields if one.name in reasons and one.type in types]
    listed = ", ".join(f"`{one.name}` ({reasons[one.name]})" for one in left)
    return f"; not taken: {listed}" if listed else ""


def _value(columns: Columns) -> Value:
    """Return how the rule distinguishes events. Raises InputError: by no column (E0662)."""
    field = columns.value
    if field is None or field.type not in _VALUES:
        said = "no column of numbers, texts or BOOLEAN" if field is None else f"`{field.name}`, {field.ddl}"
        help_text = "choose another column: --value COLUMN; or another template: --template count"
        help_text += _passed_over(columns.stream, _VALUES, key=columns.key.name)
        raise InputError("E0662", f"stream `{columns.stream.name}` has {said}: no condition", help_text)
    name = print_name(field.name)
    match field.type:
        case Type.BOOLEAN:
            return Value(f"NOT {name}", name, None, is_low=False, is_high=True, edge=False)
        case Type.STRING:
            usual, odd = columns.name("usual"), columns.name("odd")
            constants = f"{usual} = 'ok'", f"{odd} = 'bad'"
            conditions = f"{name} = {usual}", f"{name} = {odd}"
            return Value(*conditions, constants, is_low="ok", is_high="bad", edge="ok")
        case kind:
            small, large = columns.name("small"), columns.name("large")
            tail = ".0" if kind is Type.DOUBLE else ""
            constants = f"{small} = 2{tail}", f"{large} = 5{tail}"
            conditions = f"{name} < {small}", f"{name} > {large}"
            return Value(*conditions, constants, is_low=1, is_high=9, edge=5)


Event = tuple[str, dict[str, object]]
"""When an event of a test happens, and its values apart from the key."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a template says: a comment, a title, the clauses, and the events of both tests.

    `match` and `expected` are a case that matches and the values of its match, `miss` just does not match.
    """

    about: str
    title: str
    parameters: tuple[str, ...]
    clauses: str
    match: tuple[str, list[Event]]
    expected: dict[str, object]
    miss: tuple[str, list[Event]]


def _sequence(columns: Columns) -> Written:
    value, (probe, hit) = _value(columns), map(columns.name, ("probe", "hit"))
    column, probes, last = _of(columns.value), columns.name("probes"), columns.name("last_value")
    low, high = {_name(columns.value): value.is_low}, {_name(columns.value): value.is_high}
    three = [("0 seconds", low), ("1 minute", low), ("2 minutes", low)]
    return Written(
        "Events of one kind, then one of another kind.",
        "Three events of one kind, then one of another",
        value.parameters or (),
        f"PATTERN {probe}->{{3,}} -> {hit}\nWITHIN 10 MINUTES\n"
        f"DEFINE\n  {probe} AS {value.low},\n  {hit} AS {value.high}\n"
        f"MEASURES\n  COUNT({probe}.*) AS {probes},\n  {hit}.{column} AS {last}\n",
        ("three, then the other", [*three, ("4 minutes", high)]),
        {probes: 3, last: value.is_high},
        ("the other comes a second too late", [*three, ("10 minutes 1 second", high)]),
    )


def _absence(columns: Columns) -> Written:
    value, (asked, answered) = _value(columns), map(columns.name, ("asked", "answered"))
    column, of = _of(columns.value), columns.name("asked_value")
    low, high = {_name(columns.value): value.is_low}, {_name(columns.value): value.is_high}
    return Written(
        "An event that another one does not follow in time.",
        "An event without the one that should follow",
        value.parameters or (),
        f"PATTERN {asked} -> !{answered}\nWITHIN 10 MINUTES\n"
        f"DEFINE\n  {asked} AS {value.low},\n  {answered} AS {value.high}\n"
        f"MEASURES {asked}.{column} AS {of}\n",
        ("nothing follows", [("0 seconds", low)]),
        {of: value.is_low},
        ("it follows at the last moment", [("0 seconds", low), ("10 minutes", high)]),
    )


def _count(columns: Columns) -> Written:
    many, least, n_events = map(columns.name, ("many", "least", "n_events"))
    four: list[Event] = [("0 seconds", {}), ("1 minute", {}), ("2 minutes", {}), ("3 minutes", {})]
    return Written(
        "Many events in a short time. To count only some, write COUNT(*) FILTER (WHERE condition) OVER ...",
        "Five events in ten minutes",
        (f"{least} = 5",),
        f"PATTERN {many}\nLET {n_events} = COUNT(*) OVER LAST 10 MINUTES\n"
        f"DEFINE {many} AS {n_events} >= {least}\nMEASURES {many}.{n_events} AS {n_events}\n"
        "SUPPRESS FOR 10 MINUTES\n",
        ("five in ten minutes", [*four, ("4 minutes", {})]),
        {n_events: 5},
        ("the fifth is too late", [*four, ("10 minutes 1 second", {})]),
    )


def _threshold(columns: Columns) -> Written:
    value, high, of = _value(columns), columns.name("high"), columns.name("found")
    name = _name(columns.value)
    return Written(
        "A value that is out of bounds. To report one of many in a row, add SUPPRESS FOR 10 MINUTES.",
        "A value that is out of bounds",
        (value.parameters or ())[1:],
        f"PATTERN {high}\nDEFINE {high} AS {value.high}\nMEASURES {high}.{_of(columns.value)} AS {of}\n",
        ("out of bounds", [("0 seconds", {name: value.is_high})]),
        {of: value.is_high},
        ("just within bounds", [("0 seconds", {name: value.edge})]),
    )


def _first_seen(columns: Columns) -> Written:
    if columns.seen is None or columns.seen.type not in _SEEN:
        help_text = "choose a column of texts or whole numbers: --value COLUMN"
        help_text += _passed_over(columns.stream, _SEEN, key=columns.key.name)
        said = f"stream `{columns.stream.name}` has no column whose values can be known"
        if columns.seen is not None:
            said = f"the values of `{columns.seen.name}`, {columns.seen.ddl}, cannot be known"
        raise InputError("E0662", said, help_text)
    fresh, of, name = columns.name("fresh"), columns.name("new_value"), columns.seen.name
    known, new = (1, 2) if columns.seen.type is Type.BIGINT else ("known", "new")
    return Written(
        "A value that the key did not have before. The first event of a key has no past, so it is none.",
        "A value that is new to the key",
        (),
        f"PATTERN {fresh}\nDEFINE\n  {fresh} AS NOT SEEN({print_name(name)}) OVER PREVIOUS 90 DAYS\n"
        f"           AND COUNT(*) OVER PREVIOUS 90 DAYS >= 1\nMEASURES {fresh}.{print_name(name)} AS {of}\n",
        ("a new value", [("0 seconds", {name: known}), ("1 day", {name: new})]),
        {of: new},
        ("a value that is known", [("0 seconds", {name: known}), ("89 days", {name: known})]),
    )


TEMPLATES: dict[str, Callable[[Columns], Written]] = {
    "sequence": _sequence,
    "absence": _absence,
    "count": _count,
    "threshold": _threshold,
    "first-seen": _first_seen,
}
"""The kinds of rules, by the words of `--template`."""


def new_rule(name: str, template: str, columns: Columns) -> tuple[str, str]:
    """Return the text of a rule of a kind, in the usual layout, and the text of its test file.

    Raises InputError: the stream has no column for its conditions (E0662).
    """
    written = TEMPLATES[template](columns)
    parameters = f"PARAM {', '.join(written.parameters)}\n" if written.parameters else ""
    rule = (
        f"-- {written.about}\nRULE {print_name(name)}\n  TITLE '{written.title}'\n  SEVERITY medium\n"
        f"{parameters}FROM {print_name(columns.stream.name)}\n"
        f"PARTITION BY {print_name(columns.key.name)}\n{written.clauses}"
    )
    key = {columns.key.name: _KEY_VALUES[columns.key.type]}
    time = "at" if columns.stream.field("at") is None else columns.stream.event_time
    tests = f"defaults: {_flow(key)}\ncases:\n"
    for (title, events), expected in ((written.match, written.expected), (written.miss, None)):
        tests += f"  {title}:\n    events:\n"
        tests += "".join(f"      - {_flow({time: at} | values)}\n" for at, values in events)
        tests += "    expect: none\n" if expected is None else f"    expect:\n      - {_flow(expected)}\n"
    return laid_out(Source(name, rule)), tests


def _flow(values: Mapping[str, object]) -> str:
    """Return a mapping in YAML, in braces; texts without quotes where YAML needs none."""
    return "{" + ", ".join(f"{_scalar(name)}: {_scalar(value)}" for name, value in values.items()) + "}"


def _scalar(value: object) -> str:
    is_plain = isinstance(value, str) and re.fullmatch(r"\w[\w ]*", value) is not None
    return (
        str(value)
        if is_plain and str(value).lower() not in YAML_WORDS
        else json.dumps(value, ensure_ascii=False)
    )


def _name(field: Field | None) -> str:
    return "" if field is None else field.name


def _of(field: Field | None) -> str:
    return print_name(_name(field))
