"""Rules over a file, without Spark: the same engine, in this process.

A Spark run over the same events has the same matches, with the same ids, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as chained
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from cep.arguments import choice_of, flag_of, path_of, wrong_argument
from cep.arrays import I64
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.corrections.corrector import Corrector
from cep.engine.event_time.watermark import START_OF_TIME_US, is_late, split_late
from cep.engine.matching.counters import Counters
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.columns import plain_table
from cep.engine.prepare.device_clocks import first_guard
from cep.engine.tables.tables import GivenTable
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.files import BadFile, read_events
from cep.formats.intake import count_chunk, count_late, count_uncorrected
from cep.formats.late_events import late_schema
from cep.local.arrival import Arrived, arrive
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import load_rules
from cep.schema.html_table import MOST_ROWS, html_table
from cep.schema.stream import Stream
from cep.schema.text_values import event_table_schema


@dataclass(frozen=True, slots=True, repr=False)
class Result:
    """Matches (`RuleSet.schema_of`), dead letters, late events, counts, and the matches of shadow rules.

    Matches are in order (`RuleSet.in_order`). With corrections, they are in the order in which a stream
    writes them.

    `late` has the late events of each stream (`cep.formats.late_events.late_schema`).
    """

    matches: pa.Table
    dead_letters: pa.Table
    late: dict[Stream, pa.Table]
    counts: Counts
    shadow: pa.Table

    def __repr__(self) -> str:
        n_late = sum(table.num_rows for table in self.late.values())
        n_dead = self.dead_letters.num_rows
        return f"Result(matches: {self.matches.num_rows}, dead letters: {n_dead}, late: {n_late})"

    def _repr_html_(self) -> str:
        """Return the matches for a notebook, without columns that are NULL in all of them."""
        found = self.matches
        names = [name for name in found.column_names if found[name].null_count < found.num_rows]
        rows = found.slice(0, MOST_ROWS).select(names).to_pylist()
        listed = [[row[name] for name in names] for row in rows]
        return html_table(repr(self), names, listed, found.num_rows)


def match_file(
    rules: RuleSet | str | Path,
    path: str | Path | Mapping[str, str | Path],
    file_format: str | None = None,
    *,
    as_stream: bool = False,
    on_bad_file: BadFile | str = BadFile.FAIL,
    on_chunk: Callable[[Chunk], None] | None = None,
) -> Result:
    """Return the matches of `rules` over the events of a file or directory, or of one for each stream.

    `rules` are the result of `load_rules`, or a rule file or a folder of rule files, with the nearest
    ``streams.yaml``. See `match_chunks` for `as_stream`, `cep.formats.files` for the errors and
    `on_bad_file`, a `BadFile` or its text. `on_chunk` is called with what has been read, before it is
    matched.

    Raises RuleError: the rules are wrong. InputError: the input cannot be read, or an argument is of another
    type (E0827).
    """
    flag_of("as_stream", as_stream)
    on_bad_file = choice_of("on_bad_file", on_bad_file, BadFile)
    if file_format is not None and not isinstance(file_format, str):
        raise wrong_argument("file_format", file_format, "the name of a format, or None")
    if on_chunk is not None and not callable(on_chunk):
        raise wrong_argument("on_chunk", on_chunk, "a function, or None")
    rules = rules if isinstance(rules, RuleSet) else load_rules(rules)
    chunks = read_inputs(rules, path, file_format, on_bad_file=on_bad_file, on_chunk=on_chunk)
    return match_chunks(rules, chunks, as_stream=as_stream)


def read_inputs(
    rules: RuleSet,
    path: str | Path | Mapping[str, str | Path],
    file_format: str | Mapping[str, str] | None = None,
    *,
    on_bad_file: BadFile = BadFile.FAIL,
    on_chunk: Callable[[Chunk], None] | None = None,
) -> Mapping[str, Iterator[Chunk]]:
    """Return the events of the files of each stream, read on demand; see `match_file`.

    `file_format`: of all files, or of the files of each stream.
    """
    paths = path if isinstance(path, Mapping) else {rules.only_stream().name: path}
    rules.require_streams(paths)
    for of_stream in paths.values():
        path_of("path", of_stream)
    chunks = {
        name: read_events(
            paths[name],
            stream,
            file_format[name] if isinstance(file_format, Mapping) else file_format,
            keys=rules.keys_of(stream),
            on_bad_file=on_bad_file,
            ahead=first_guard(stream),
        )
        for name, stream in rules.inputs.items()
    }
    return chunks if on_chunk is None else _told(chunks, on_chunk)


@dataclass
class LocalRun:
    """A run in this process: rules over inputs, with the result passed to `deliver`.

    `chunks`: the events of each stream, by its name. `deliver`: receives the result, once. `as_stream`: see
    `match_chunks`.
    """

    rules: RuleSet
    chunks: Mapping[str, Iterable[Chunk]]
    deliver: Callable[[Result], None]
    as_stream: bool = False

    was_stopped = False

    def run(self) -> Counts:
        """Match all events and deliver the result; return the counts."""
        result = match_chunks(self.rules, self.chunks, as_stream=self.as_stream)
        self.deliver(result)
        return result.counts


def _told(
    chunks: Mapping[str, Iterator[Chunk]], on_chunk: Callable[[Chunk], None]
) -> dict[str, Iterator[Chunk]]:
    """Return `chunks`, each passed to `on_chunk`; the first of each stream is read now."""

    def told(chunk: Chunk) -> Chunk:
        on_chunk(chunk)
        return chunk

    first = {name: list(islice(of_stream, 1)) for name, of_stream in chunks.items()}
    for chunk in chained.from_iterable(first.values()):
        on_chunk(chunk)
    return {name: chained(first[name], map(told, of_stream)) for name, of_stream in chunks.items()}


def match_chunks(
    rules: RuleSet,
    chunks: Iterable[Chunk] | Mapping[str, Iterable[Chunk]],
    *,
    as_stream: bool = False,
) -> Result:
    """Return the matches of `rules` over all events of `chunks`: of their stream, or by stream.

    The input is treated as complete: no event is late, whatever the order, and every window closes at the
    end. With `as_stream`, the events arrive in this order, one by one (`arrival`). An event is late if it
    precedes the latest earlier event by at least the largest lateness of the streams. A late event is omitted
    or, with `RuleSet.corrections`, immediately corrects earlier matches. The same holds for versions of
    tables. Static tables are read first.
    """
    by_stream = chunks if isinstance(chunks, Mapping) else {rules.only_stream().name: chunks}
    counts = Counts()
    matches: list[pa.Table] = []
    dead = [DEAD_LETTER_SCHEMA.empty_table()]
    moving = [stream for stream in rules.inputs.values() if not stream.is_static]
    late = {stream: [late_schema(stream).empty_table()] for stream in moving}

    def events_of(stream: Stream) -> Iterator[pa.Table]:
        for chunk in by_stream[stream.name]:
            if chunk.dead_letters.num_rows:  # kept, an empty one splits the memory that its chunk returns
                dead.append(chunk.dead_letters)
            counts.add(count_chunk(chunk, stream))
            yield chunk.events

    chain = Chain(rules, tables=_static_tables(rules, events_of))
    matchers = chain.matchers
    inputs = {stream: events_of(stream) for stream in moving}
    if as_stream:
        cuts = rules.corrections is not None
        for arrived in arrive(inputs, rules.lateness_us, START_OF_TIME_US, cuts=cuts):
            for part in arrived:
                in_time, found = split_late(
                    part.events, part.late_us, part.stream, _counted_us(part, matchers, rules.corrections)
                )
                late[part.stream].append(found)
                counts.add(count_late(found, part.stream, rules.keys_of(part.stream)))
                counts.uncorrected += count_uncorrected(found, rules.corrections)
                counts.corrected += int(is_late(part.late_us).sum()) - found.num_rows
                chain.push_events(part.stream, in_time)
            watermark_us = arrived[-1].latest_us - rules.lateness_us
            chain.advance(watermark_us, matches.append, in_parts=False)
    else:
        for stream, tables in inputs.items():
            for events in tables:
                chain.push_events(stream, events)
    chain.finish(matches.append, in_parts=False)
    counts.duplicates_of = rules.met_by_program(chain.duplicates_of())
    for matcher in matchers:
        _count_rules(counts, matcher.counters)
    late_tables = {stream: pa.concat_tables(tables) for stream, tables in late.items()}
    # Corrections have a meaning only in their order.
    comes_in_order = as_stream and rules.corrections is not None
    ordered = rules.together(matches) if comes_in_order else rules.in_order(matches)
    live, shadow = (rules.matches_of(ordered, shadow=of) for of in (False, True))
    return Result(live, pa.concat_tables(dead), late_tables, counts, shadow)


def _static_tables(rules: RuleSet, rows_of: Callable[[Stream], Iterable[pa.Table]]) -> dict[str, GivenTable]:
    """Return the tables that are read as a whole."""
    found = {}
    for name, table in rules.tables.items():
        if table.is_static:
            rows = [event_table_schema(table).empty_table(), *map(plain_table, rows_of(table))]
            found[name] = GivenTable(table, pa.concat_tables(rows))
    return found


def _counted_us(
    part: Arrived, matchers: Sequence[Matcher | Corrector], corrections: Corrections | None
) -> int | I64:
    """Return how late events may be and still be counted: what is final cannot be corrected."""
    if corrections is None:
        return 0
    final_us = max(matcher.final_us for matcher in matchers if isinstance(matcher, Corrector))
    watermark_us = part.late_us + np.asarray(part.events.column(part.stream.event_time), np.int64)
    counted_us: I64 = np.minimum(corrections.within_us, watermark_us - final_us)
    return counted_us


def _count_rules(counts: Counts, counters: Counters) -> None:
    """Add the counts by rule."""
    for name in ("matches", "timeouts", "suppressed", "dropped_runs", "retracted"):
        setattr(counts, name, getattr(counts, name) | getattr(counters, name))
