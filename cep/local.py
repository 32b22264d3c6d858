"""Rules over a file, without Spark: the same engine, in this process.

The matches, their ids and their order are those of a Spark run over the same events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from cep.arrival import arrive
from cep.dead_letter import DEAD_LETTER_SCHEMA, json_text
from cep.engine.matcher import START_OF_TIME_US, Matcher
from cep.engine.predicates import prepare
from cep.errors import InputError
from cep.expression import Type
from cep.files import Chunk, Format, read_events
from cep.program import EVENT_COLUMNS, EVENT_NUMBER, OUTCOME, Program, missing_column
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
    timeouts: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    dropped_runs: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """Matches in order (`match_schema` of the programs), what was refused, what came too late, and counts.

    `late` has the stream's columns, times as timestamps; of several streams it has the stream, the event time
    and the event as JSON.
    """

    matches: pa.Table
    dead_letters: pa.Table
    late: pa.Table
    counts: Counts


def match_file(
    programs: Sequence[Program],
    path: str | Path | Mapping[str, str | Path],
    file_format: Format | None = None,
    *,
    as_stream: bool = False,
) -> Result:
    """Return the matches of `programs` over the events of a file or directory, or of one for each stream.

    See `match_chunks` for `as_stream`, `cep.files.read_events` for the errors.
    """
    streams = streams_of(programs)
    paths = path if isinstance(path, Mapping) else {only_stream(programs).name: path}
    check_inputs(programs, paths)
    chunks = {
        name: read_events(paths[name], stream, file_format, keys=keys_of(programs, stream))
        for name, stream in streams.items()
    }
    return match_chunks(programs, chunks, as_stream=as_stream)


def match_chunks(
    programs: Sequence[Program],
    chunks: Iterable[Chunk] | Mapping[str, Iterable[Chunk]],
    *,
    as_stream: bool = False,
) -> Result:
    """Return the matches of `programs` over all events of `chunks`: of their stream, or by stream.

    The input counts as complete: no event is late, whatever the order, and every window closes at the end.
    With `as_stream` the events are taken as arriving in this order, one by one (`cep.arrival`): an event that
    lies the largest lateness of the streams or more behind the latest one before it is late, and left out.
    """
    streams = streams_of(programs)
    by_stream = chunks if isinstance(chunks, Mapping) else {only_stream(programs).name: chunks}
    matchers = [Matcher(program) for program in programs]
    counts = Counts()
    matches: list[pa.Table] = []
    letters = [DEAD_LETTER_SCHEMA.empty_table()]
    late: dict[str, list[pa.Table]] = {
        name: [event_table_schema(stream).empty_table()] for name, stream in streams.items()
    }

    def events_of(name: str) -> Iterator[pa.Table]:
        for chunk in by_stream[name]:
            letters.append(chunk.dead_letters)
            counts.events += len(chunk.events)
            counts.malformed += len(chunk.dead_letters)
            yield chunk.events

    def push(stream: Stream, events: pa.Table) -> None:
        for matcher in matchers:
            if stream in matcher.program.streams:
                matcher.push(prepare(matcher.program, events, stream))

    lateness_us = max(stream.lateness_us for stream in streams.values())
    inputs = {stream: events_of(name) for name, stream in streams.items()}
    if as_stream:
        for arrived in arrive(inputs, lateness_us, START_OF_TIME_US):
            for part in arrived:
                late[part.stream.name].append(part.events.filter(pa.array(part.is_late)))
                push(part.stream, part.events.filter(pa.array(~part.is_late)))
            watermark_us = arrived[-1].latest_us - lateness_us
            matches += [matcher.advance(watermark_us) for matcher in matchers]
    else:
        for stream, tables in inputs.items():
            for events in tables:
                push(stream, events)
    matches += [matcher.finish() for matcher in matchers]
    late_events = _late_events(streams, {name: pa.concat_tables(tables) for name, tables in late.items()})
    counts.late = len(late_events)
    counts.duplicates = count_once(programs, [matcher.counters.duplicates_of for matcher in matchers])
    for matcher in matchers:
        counts.matches |= matcher.counters.matches
        counts.timeouts |= matcher.counters.timeouts
        counts.suppressed |= matcher.counters.suppressed
        counts.dropped_runs |= matcher.counters.dropped_runs
    return Result(in_order(programs, matches), pa.concat_tables(letters), late_events, counts)


def streams_of(programs: Sequence[Program]) -> dict[str, Stream]:
    """Return the streams that `programs` read, by name."""
    return {stream.name: stream for program in programs for stream in program.streams}


def only_stream(programs: Sequence[Program]) -> Stream:
    """Return the one stream that all of `programs` read; raises InputError if there are several."""
    streams = streams_of(programs)
    if len(streams) != 1:
        raise InputError(
            "E0607",
            f"the rules read {len(streams)} streams, the input has the events of one: {', '.join(streams)}",
            "name the stream of each input, or choose the rules of one stream",
        )
    return next(iter(streams.values()))


def check_inputs(programs: Sequence[Program], given: Iterable[str]) -> None:
    """Raise InputError unless the streams `given` are those that `programs` read."""
    streams = streams_of(programs)
    given = list(given)
    for name in given:
        if name not in streams:
            known = ", ".join(streams)
            raise InputError("E0610", f"no rule reads a stream `{name}`", f"streams of these rules: {known}")
    for program in programs:
        for stream in program.streams:
            if stream.name not in given:
                raise InputError(
                    "E0607",
                    f"rule `{program.rules[0].name}` reads stream `{stream.name}`, there is no input for it",
                    f"give the events of `{stream.name}`, too, or leave the rule out",
                )


def keys_of(programs: Sequence[Program], stream: Stream) -> list[tuple[str, ...]]:
    """Return all columns by which `programs` partition the events of `stream`."""
    return [role.key for program in programs for role in program.roles_of(stream).values()]


def count_once(programs: Sequence[Program], numbers: Sequence[Sequence[int]]) -> int:
    """Return how many events there are if program p met `numbers[p][s]` of its stream s.

    The programs of one stream meet the same events, those of one program alone a part of them.
    """
    most: dict[str, int] = {}
    for program, of_streams in zip(programs, numbers, strict=True):
        for stream, number in zip(program.streams, of_streams, strict=True):
            most[stream.name] = max(most.get(stream.name, 0), number)
    return sum(most.values())


def match_schema(programs: Sequence[Program]) -> pa.Schema:
    """Return the columns of the matches of all of `programs`: rule, keys, id, start, end, measures."""
    fields = {item.name: item for item in programs[0].match_schema}
    for program in programs[1:]:
        for item in program.match_schema:
            known = fields.setdefault(item.name, item)
            if known.type == item.type:
                continue
            if {known.type, item.type} != {pa.int64(), pa.float64()}:
                raise InputError(
                    "E0615",
                    f"the rules give the column `{item.name}` different types",
                    "run the rules of different streams one after the other, or rename a measure",
                )
            fields[item.name] = pa.field(item.name, pa.float64())
    keys = {name for program in programs for name in program.key}
    outcome = [OUTCOME] if OUTCOME in fields else []
    of_event = [name for name in EVENT_COLUMNS if name in fields]
    fields |= {name: fields.pop(name) for name in of_event}  # the last
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
    order += [EVENT_NUMBER] if EVENT_NUMBER in schema.names else []
    return table.take(pc.sort_indices(table, [(name, "ascending") for name in order]))


def _with_timestamps(events: pa.Table, stream: Stream) -> pa.Table:
    time = pa.timestamp("us", tz="UTC")
    for number, item in enumerate(stream.fields):
        if item.type is Type.TIMESTAMP:
            events = events.set_column(number, item.name, events.column(number).cast(time))
    return events


def _late_events(streams: Mapping[str, Stream], late: Mapping[str, pa.Table]) -> pa.Table:
    """Return late events as `Result` has them."""
    if len(streams) == 1:
        ((name, stream),) = streams.items()
        return _with_timestamps(late[name], stream)
    time = pa.timestamp("us", tz="UTC")
    tables = []
    for name, stream in streams.items():
        events = _with_timestamps(late[name], stream)
        texts = [json_text(row) for row in events.to_pylist()]
        columns = [pa.array([name] * len(events), pa.string()), events.column(stream.event_time), texts]
        tables.append(
            pa.table(
                columns,
                schema=pa.schema([("stream", pa.string()), ("event_time", time), ("event", pa.string())]),
            )
        )
    return pa.concat_tables(tables)
