"""The events of one key, matched again under observation, next to the matches that a run reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64, Mask
from cep.compiler.automaton.build import Built
from cep.compiler.lowering.parts import WatchedRule, lower_watched
from cep.diagnostics.diagnostic import suggestion
from cep.engine.chains.chain import Chain
from cep.engine.chains.fed_matchers import events_of_matches
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.order.ordering import order_events
from cep.engine.prepare.columns import plain_table
from cep.engine.prepare.predicates import prepare_rows
from cep.engine.prepare.versions import prepared_versions
from cep.engine.tables.tables import GivenTable
from cep.errors import InputError
from cep.expression import Type
from cep.formats.chunks import Chunk
from cep.language import ast
from cep.program.match_stream import MatchStream
from cep.program.program import TIME_COLUMN, Program
from cep.rule_set import RuleSet
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema

_MOST_KEYS = 5
"""Keys that an error lists."""

_MOST_LETTERS = 60
"""Of a key that an error lists."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A rule with its input.

    Parameters
    ----------
    watched
        The rule, lowered to be watched.
    suppress_us
        How long it suppresses matches after one, in microseconds; 0: it does not.
    n_per_day
        How many matches of a key and a day it reports at most; 0: all.
    tree
        Its syntax tree; None: it has no text.
    program
        What a run has: the program of the rule, maybe with others.
    typed
        The events of each stream of the rule.
    events
        The prepared events of all keys (`Program.event_schema`). sources : (2, events) int64 The number of
        the stream of each of these events, and its row in `typed`.
    versions
        The prepared versions of joined tables.
    static
        The static tables.
    matches
        The matches of the rule that a run reports, of all keys.
    tables
        The typed versions of joined tables, and their declarations, by name.
    last_us
        The event time of the last event of the input, of any key and stream.
    """

    watched: WatchedRule
    suppress_us: int
    n_per_day: int
    tree: ast.Rule | None
    program: Program
    typed: tuple[pa.Table, ...]
    events: pa.Table
    sources: I64
    versions: tuple[pa.Table, ...]
    static: Mapping[str, GivenTable]
    matches: pa.Table
    tables: Mapping[str, tuple[pa.Table, Stream]]
    last_us: int

    def identities(self, key: Sequence[Any], keep: Mask) -> tuple[I64, Mask]:
        """Return the identities by which ids of matches represent the events of a key that are in `keep`.

        Events that a run drops before matching have none: the second array says which have one.
        """
        names = self.program.key_columns
        parts, places = [self.program.event_schema.empty_table()], [np.zeros(0, np.int64)]
        of_stream, rows = self.sources[:, keep]
        for number, stream in enumerate(self.program.streams):
            wanted = np.flatnonzero(of_stream == number)
            prepared, kept = prepare_rows(
                self.program, self.typed[number].take(pa.array(rows[wanted])), stream
            )
            is_of_key = rows_of_key(prepared, key, names)
            parts.append(prepared.filter(pa.array(is_of_key)))
            places.append(wanted[kept[is_of_key]])
        order = order_events(self.program, pa.concat_tables(parts).combine_chunks())
        found, known = np.zeros(int(keep.sum()), np.int64), np.zeros(int(keep.sum()), np.bool_)
        place = np.concatenate(places)[order.rows]
        if len(order.identity):  # the ids of windows have no events
            found[place], known[place] = order.identity.view(np.int64), True
        return found, known

    def of_key(self, table: pa.Table, key: Sequence[Any], names: Sequence[str]) -> pa.Table:
        """Return the rows of a table with this key in the columns `names`."""
        return table.filter(pa.array(rows_of_key(table, key, names)))

    @property
    def keys(self) -> Keys:
        """The keys of the events."""
        program = self.watched.program
        kinds = tuple(program.type_of(name) for name in program.key_columns)
        return Keys(self.events.select(list(program.key_columns)), program.key, kinds)

    def key_of(self, texts: Sequence[str], *, is_option: bool = True) -> tuple[Any, ...]:
        """Return the key that is written as `texts`. See `Keys.find`."""
        return replace(self.keys, is_option=is_option).find(texts)


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys.

    Parameters
    ----------
    table
        The columns of the key, a row for each event.
    names, kinds
        The names and types of these columns.
    is_option
        Whether a key is asked for as ``--key``, not as an argument of a function.
    """

    table: pa.Table
    names: tuple[str, ...]
    kinds: tuple[Type, ...]
    is_option: bool = True

    def find(self, texts: Sequence[str]) -> tuple[Any, ...]:
        """Return the key that is written as `texts`: the values of the key columns.

        A single string contains all values, separated by commas. Without strings, there must be only one key.
        Raises InputError (E0898): no event has this key.
        """
        if not texts:
            known = self._known(2)
            if len(known) == 1:
                return known[0]
            raise self._which_key("say of which key", "")
        if len(texts) == 1 and len(self.names) > 1:
            texts = texts[0].split(",")
        shown = ",".join(texts)
        if len(texts) != len(self.names):
            raise self._which_key(f"`{shown}` has {len(texts)} of {len(self.names)} values of a key", shown)
        try:
            key = tuple(_value(text, kind) for text, kind in zip(texts, self.kinds, strict=True))
            is_known = rows_of_key(self.table, key, self.table.column_names).any()
        except (KeyError, ValueError, OverflowError):  # no value of its type, or not UTF-8
            raise self._which_key(f"`{shown}` is no key", shown) from None
        if not is_known:
            raise self._which_key(f"no event has the key `{shown}`", shown)
        return key

    def _known(self, most: int) -> list[tuple[Any, ...]]:
        """Return the keys with the most events."""
        names = self.table.column_names
        counts = self.table.group_by(names).aggregate([([], "count_all")])
        order = pc.sort_indices(
            counts, [("count_all", "descending"), *((name, "ascending") for name in names)]
        )
        found = counts.take(order[:most]).select(names).to_pylist()
        return [tuple(key.values()) for key in found]

    def _which_key(self, message: str, text: str) -> InputError:
        columns = ", ".join(self.names)
        known = [",".join(map(key_text, key, self.kinds)) for key in self._known(1000)]
        if text and text in known:  # a value has a comma
            advice = "write --key once for each value" if self.is_option else "give a list with each value"
            return InputError("E0898", f"{message} ({columns})", f"{advice} of the key")
        near = suggestion(text, known[:200]) if text else None
        sign, ask = ("--key ", "write --key") if self.is_option else ("", "give `key`")
        listed = (
            f"keys with the most events: {'; '.join(map(_short, known[:_MOST_KEYS]))}"
            if known
            else "there are no events"
        )
        return InputError(
            "E0898",
            f"{message} ({columns})",
            f"did you mean {sign}{near}? {listed}" if near else f"{ask}; {listed}",
        )


def _short(key: str) -> str:
    return key if len(key) <= _MOST_LETTERS else f"{key[:_MOST_LETTERS]}..."


def rows_of_key(table: pa.Table, key: Sequence[Any], names: Sequence[str]) -> Mask:
    """Return which rows of a table have this key in the columns `names`."""
    keep = np.ones(len(table), np.bool_)
    for name, value in zip(names, key, strict=True):
        column = table.column(name)
        keep &= np.asarray(pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False))
    return keep


def key_text(value: Any, kind: Type) -> str:
    """Return a value of a key as it is written on the command line."""
    return time_text(value) if kind is Type.TIMESTAMP and value is not None else word(value)


def word(value: Any) -> str:
    """Return a value in a line of text."""
    if value is None:
        return "NULL"
    return str(value).lower() if isinstance(value, bool) else str(value)


def in_line(values: Mapping[str, Any]) -> str:
    """Return names with their values, in one line."""
    return ", ".join(f"{name} {word(value)}" for name, value in values.items())


def _value(text: str, kind: Type) -> Any:
    match kind:
        case Type.STRING | Type.OPAQUE:
            return text
        case Type.BOOLEAN:
            return {"true": True, "false": False}[text.casefold()]
        case Type.DOUBLE:
            return float(text)
        case Type.TIMESTAMP:
            return time_of(text)
        case _:
            return int(text)


def time_of(text: str) -> int:
    """Return a point in time, in ISO 8601, as microseconds since 1970; without a zone it is UTC."""
    time = datetime.fromisoformat(text)
    time = time.replace(tzinfo=UTC) if time.tzinfo is None else time
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def time_text(us: int) -> str:
    """Return a point in time in ISO 8601, in UTC, in its shortest exact form."""
    text = str(np.datetime64(us, "us"))
    return (text.rstrip("0").rstrip(".") if "." in text else text) + "Z"


def replay(
    built: Sequence[Built],
    rules: RuleSet,
    name: str,
    tables: Mapping[str, pa.Table],
    tree: ast.Rule | None = None,
) -> Replay:
    """Return rule `name` with its input, and the matches of a run over it.

    Parameters
    ----------
    built, rules
        The rule and those whose matches it reads, built and compiled.
    tables
        The typed events of each stream, and the versions of each table, by its name.
    tree
        The syntax tree of the rule; None: it has no text.
        For a window rule, it contains the events that count as runs of one event (`cep.why.rows`).
    """
    rule = next(one.rule for one in built if one.rule.name == name)
    watched = lower_watched(
        [_of_events(one) if one.rule.name == name else one for one in built], name, rules.inputs
    )
    found, static = run_once(rules, tables)
    program = watched.program
    typed = tuple(
        _matches_of(stream, found) if isinstance(stream, MatchStream) else tables[stream.name]
        for stream in program.streams
    )
    events, sources = [program.event_schema.empty_table()], [np.zeros((2, 0), np.int64)]
    versions: list[pa.Table] = []
    for number, stream in enumerate(program.streams):
        prepared, rows = prepare_rows(program, typed[number], stream)
        events.append(prepared)
        sources.append(np.stack((np.full(len(rows), number), rows)))
    for stream in rules.tables.values():
        versions += prepared_versions(program, stream, tables[stream.name])
    matches = rules.in_order(found)
    return Replay(
        watched=watched,
        suppress_us=rule.report.suppress_us,
        n_per_day=rule.report.n_per_day,
        tree=tree,
        program=next(one for one in rules.programs if name in [of.name for of in one.rules]),
        typed=typed,
        events=pa.concat_tables(events).combine_chunks(),
        sources=np.concatenate(sources, axis=1),
        versions=tuple(versions),
        static=static,
        matches=matches.filter(pc.equal(matches.column("rule"), name)),
        tables={table.name: (tables[table.name], table) for table in rules.tables.values()},
        last_us=_last_us(rules, tables),
    )


def _last_us(rules: RuleSet, tables: Mapping[str, pa.Table]) -> int:
    """Return the last event time of the streams of rules; if they read only tables, of the tables."""
    timed = (stream for stream in (rules.streams or rules.tables).values() if not stream.is_static)
    times = (np.asarray(tables[stream.name].column(stream.event_time)) for stream in timed)
    return max((int(of.max(initial=START_OF_TIME_US)) for of in times), default=START_OF_TIME_US)


def run_once(
    rules: RuleSet, tables: Mapping[str, pa.Table]
) -> tuple[list[pa.Table], Mapping[str, GivenTable]]:
    """Return the matches of rules over the events and versions in `tables`, and the static tables."""
    static = {
        table.name: GivenTable(table, tables[table.name])
        for table in rules.tables.values()
        if table.is_static
    }
    chain = Chain(rules, tables=static)
    for stream in rules.inputs.values():
        if not stream.is_static:
            chain.push_events(stream, tables[stream.name])
    found: list[pa.Table] = []
    chain.finish(found.append, in_parts=False)
    return found, static


def _of_events(one: Built) -> Built:
    """Return a rule. For a window rule, return a rule whose matches are the events that count: those that
    WHERE accepts.
    """
    rule = one.rule
    if rule.windowing is None:
        return one
    (variable,) = rule.variables
    events = replace(
        rule,
        windowing=None,
        measures=(),
        variables=(replace(variable, predicate=rule.windowing.where),),
    )
    return Built(events, one.automaton)


def typed_tables(rules: RuleSet, chunks: Mapping[str, Iterable[Chunk]]) -> dict[str, pa.Table]:
    """Return the events and versions in `chunks` as one table for each stream."""
    return {
        stream: pa.concat_tables([event_table_schema(rules.inputs[stream]).empty_table(), *_plain(of_stream)])
        for stream, of_stream in chunks.items()
    }


def _plain(chunks: Iterable[Chunk]) -> Iterable[pa.Table]:
    return (plain_table(chunk.events) for chunk in chunks)


def _matches_of(stream: MatchStream, found: Iterable[pa.Table]) -> pa.Table:
    names = set(event_table_schema(stream).names)
    parts = [events_of_matches(stream, table) for table in found if names <= set(table.column_names)]
    return pa.concat_tables([event_table_schema(stream).empty_table(), *parts])


def times_of(table: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the event times of prepared rows, in microseconds."""
    times: np.ndarray[Any, np.dtype[np.int64]] = np.asarray(table.column(TIME_COLUMN))
    return times
