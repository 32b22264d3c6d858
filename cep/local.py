"""Rules over a file, without Spark: the same engine, in this process.

The matches, their ids and their order are those of a Spark run over the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.dead_letter import DEAD_LETTER_SCHEMA
from cep.engine.matcher import START_OF_TIME_US, Matcher
from cep.engine.predicates import prepare
from cep.errors import InputError
from cep.expression import Type
from cep.files import Chunk, Format, read_events
from cep.program import OUTCOME, Program, missing_column
from cep.schema import Stream
from cep.text_values import event_table_schema

MATCH_COLUMNS = ("match_id", "match_start", "match_end")
"""What every match has between its key and its measures."""


@dataclass(slots=True)
class Counts:
    """What happened to the input. Every line or row is an event or malformed; empty lines are neither."""

    events: int = 0
    malformed: int = 0
    late: int = 0
    duplicates: int = 0
    matches: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    dropped_runs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Matches in order (`match_schema` of the programs), what was refused, what came too late, and counts.

    `late` has the stream's columns, times as timestamps.
    """

    matches: pa.Table
    dead_letters: pa.Table
    late: pa.Table
    counts: Counts


def match_file(
    programs: Sequence[Program],
    path: str | Path,
    file_format: Format | None = None,
    *,
    as_stream: bool = False,
) -> Result:
    """Return the matches of `programs`, which read one stream, over the events of a file or directory.

    See `match_chunks` for `as_stream`, `cep.files.read_events` for the errors.
    """
    stream = stream_of(programs)
    keys = [program.key for program in programs]
    return match_chunks(programs, read_events(path, stream, file_format, keys=keys), as_stream=as_stream)


def match_chunks(programs: Sequence[Program], chunks: Iterable[Chunk], *, as_stream: bool = False) -> Result:
    """Return the matches of `programs`, which read one stream, over all events of `chunks`.

    The input counts as complete: no event is late, whatever the order, and every window closes at the end.
    With `as_stream` the events are taken as arriving in this order, one by one: an event that lies the
    stream's lateness or more behind the latest one before it is late, and left out.
    """
    stream = stream_of(programs)
    matchers = [Matcher(program) for program in programs]
    counts = Counts()
    matches: list[pa.Table] = []
    letters = [DEAD_LETTER_SCHEMA.empty_table()]
    late = [event_table_schema(stream).empty_table()]
    latest_us = START_OF_TIME_US
    for chunk in chunks:
        events = chunk.events
        letters.append(chunk.dead_letters)
        counts.events += len(events)
        counts.malformed += len(chunk.dead_letters)
        if as_stream and len(events):
            is_late, latest_us = _arrive(events, stream, latest_us)
            late.append(events.filter(pa.array(is_late)))
            events = events.filter(pa.array(~is_late))
        for matcher in matchers:
            matcher.push(prepare(matcher.program, events))
            if as_stream:
                matches.append(matcher.advance(latest_us - stream.lateness_us))
    matches += [matcher.finish() for matcher in matchers]
    late_events = _with_timestamps(pa.concat_tables(late), stream)
    counts.late = len(late_events)
    # A copy is a duplicate for the rules of every key: count it once.
    counts.duplicates = max(matcher.counters.duplicates for matcher in matchers)
    for matcher in matchers:
        counts.matches |= matcher.counters.matches
        counts.suppressed |= matcher.counters.suppressed
        counts.dropped_runs |= matcher.counters.dropped_runs
    return Result(in_order(programs, matches), pa.concat_tables(letters), late_events, counts)


def stream_of(programs: Sequence[Program]) -> Stream:
    """Return the one stream that all of `programs` read; raises InputError if there are several."""
    streams = {program.stream.name: program.stream for program in programs}
    if len(streams) != 1:
        raise InputError(
            "E0607",
            f"the rules read {len(streams)} streams, the input has the events of one: {', '.join(streams)}",
            "choose the rules of one stream",
        )
    return next(iter(streams.values()))


def match_schema(programs: Sequence[Program]) -> pa.Schema:
    """Return the columns of the matches of all of `programs`: rule, keys, id, start, end, measures."""
    fields = {item.name: item for item in programs[0].match_schema}
    for program in programs[1:]:
        for item in program.match_schema:
            known = fields.setdefault(item.name, item)
            if known.type != item.type:
                fields[item.name] = pa.field(item.name, pa.float64())
    keys = {name for program in programs for name in program.key}
    outcome = [OUTCOME] if OUTCOME in fields else []
    first = ["rule", *(name for name in fields if name in keys), *MATCH_COLUMNS, *outcome]
    return pa.schema([fields[name] for name in dict.fromkeys((*first, *fields))])


def in_order(programs: Sequence[Program], tables: Iterable[pa.Table]) -> pa.Table:
    """Return all matches as one table, ordered by end, start, rule, key and id."""
    schema = match_schema(programs)
    keys = [name for name in schema.names[1:] if any(name in program.key for program in programs)]
    widened = [
        pa.Table.from_arrays(
            [
                table.column(item.name).cast(item.type)
                if item.name in table.column_names
                else missing_column(item, len(table))
                for item in schema
            ],
            schema=schema,
        )
        for table in tables
        if len(table)
    ]
    if not widened:
        return schema.empty_table()
    table = pa.concat_tables(widened)
    order = ["match_end", "match_start", "rule", *keys, "match_id"]
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in order]))


def _with_timestamps(events: pa.Table, stream: Stream) -> pa.Table:
    time = pa.timestamp("us", tz="UTC")
    for number, item in enumerate(stream.fields):
        if item.type is Type.TIMESTAMP:
            events = events.set_column(number, item.name, events.column(number).cast(time))
    return events


def _arrive(
    events: pa.Table, stream: Stream, latest_us: int
) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], int]:
    """Return which events are late, given the latest time before them, and the latest time after them."""
    times = events.column(stream.event_time).to_numpy()
    reached = np.maximum.accumulate(np.concatenate(([latest_us], times)))
    return times <= reached[:-1] - stream.lateness_us, int(reached[-1])
