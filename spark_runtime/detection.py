"""`spark_runtime.detect`: rules of any form and a DataFrame -> a DataFrame of matches."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame

from cep.compiler.compile import compile_sources
from cep.errors import InputError, RuleError, Source
from cep.language.parser import parse
from cep.language.time_literals import parse_duration
from cep.local import check_inputs, match_schema, only_stream, streams_of
from cep.program import Program
from cep.schema import Stream
from cep.schema_file import load_streams
from rules.rulebook import compile_rulebook, load_rulebook
from spark_runtime.dataflow import Dataflow, drop_unusable
from spark_runtime.schema import stream_of_frame, typed_events

CODES: dict[str, str] = {
    "E0820": "events without a declared event time",
    "E0821": "a lateness that is not a duration",
    "E0822": "programs together with rule texts",
}
"""Code -> meaning of what can be wrong with a call of `detect`."""

Rules = str | Path | Program | Sequence[str | Path | Program]
Streams = str | Path | Mapping[str, Stream] | Stream


Events = DataFrame | Mapping[str, DataFrame]


def detect_matches(
    events: Events,
    rules: Rules,
    *,
    streams: Streams | None,
    event_time: str | Mapping[str, str] | None,
    tie_break: Sequence[str] | Mapping[str, Sequence[str]],
    lateness: str,
    deduplicate: bool,
    key_groups: int | None,
) -> DataFrame:
    """Return the matches; see `spark_runtime.detect`."""
    given = [rules] if isinstance(rules, str | Path | Program) else list(rules)
    programs = tuple(item for item in given if isinstance(item, Program))
    if not programs:
        texts = [item for item in given if not isinstance(item, Program)]
        declared = _declared(streams)
        if declared is None:
            programs = _compile_for_frames(
                events, texts, event_time, tie_break, duration_us(lateness), deduplicate
            )
        else:
            programs = _compile(texts, declared)
    elif len(programs) != len(given):
        raise InputError(
            "E0822", "compiled programs and rule texts cannot be mixed", "compile the texts, too"
        )
    if not isinstance(events, Mapping):
        events = {only_stream(programs).name: events}
    check_inputs(programs, events)
    flow = dataflow(next(iter(events.values())), programs, key_groups)
    typed = {
        stream: drop_unusable(typed_events(events[name], stream), stream)
        for name, stream in streams_of(programs).items()
    }
    return flow.matches(flow.output(flow.prepared(typed)))


def dataflow(events: DataFrame, programs: tuple[Program, ...], key_groups: int | None = None) -> Dataflow:
    """Return the plan for `programs`."""
    partitions = events.sparkSession.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None
    return Dataflow(programs, match_schema(programs), key_groups or int(partitions))


def duration_us(text: str) -> int:
    """Return the microseconds of a duration such as ``10 seconds``."""
    length = parse_duration(text)
    if length is None:
        raise InputError(
            "E0821", f"lateness `{text}` is not a duration", "write a number and a unit: 10 seconds"
        )
    return length


def _declared(streams: Streams | None) -> Mapping[str, Stream] | None:
    if streams is None or isinstance(streams, Mapping):
        return streams
    if isinstance(streams, Stream):
        return {streams.name: streams}
    return load_streams(streams)


def _is_text(item: str | Path) -> bool:
    """Tell rule text from a path: text has white space between its clauses and says PATTERN."""
    return isinstance(item, str) and re.search(r"\bPATTERN\b", item, re.IGNORECASE) is not None


def _sources(items: Sequence[str | Path], streams: Mapping[str, Stream]) -> list[Source]:
    """Return the sources of texts and files, in this order."""
    sources = [Source("rules", str(item)) for item in items if _is_text(item)]
    paths = [item for item in items if not _is_text(item)]
    return sources + (list(load_rulebook(paths, streams).sources) if paths else [])


def _compile(items: Sequence[str | Path], streams: Mapping[str, Stream]) -> tuple[Program, ...]:
    return compile_sources(_sources(items, streams), streams).programs


def _compile_for_frames(
    events: Events,
    items: Sequence[str | Path],
    event_time: str | Mapping[str, str] | None,
    tie_break: Sequence[str] | Mapping[str, Sequence[str]],
    lateness_us: int,
    deduplicate: bool,
) -> tuple[Program, ...]:
    """Compile rules over streams that the DataFrames declare; rule files may have a streams file."""
    if event_time is None:
        if items and not any(_is_text(item) for item in items):
            return compile_rulebook(load_rulebook(items)).programs
        raise InputError(
            "E0820",
            "nothing says which column is the event time",
            "give event_time='...', or streams='streams.yaml'",
        )
    sources = _sources(items, {})
    if not isinstance(events, Mapping):
        events = dict.fromkeys(_stream_names(sources), events)
    streams = {}
    for name, frame in events.items():
        time = event_time.get(name) if isinstance(event_time, Mapping) else event_time
        if time is None:
            raise InputError(
                "E0820", f"nothing says which column of `{name}` is the event time", "add it to event_time"
            )
        ties = tie_break.get(name, ()) if isinstance(tie_break, Mapping) else tie_break
        streams[name] = stream_of_frame(
            frame, name, time, tie_break=ties, lateness_us=lateness_us, deduplicate=deduplicate
        )
    return compile_sources(sources, streams).programs


def _stream_names(sources: Sequence[Source]) -> list[str]:
    """Return the streams that rules name."""
    names: dict[str, None] = {}
    for source in sources:
        parsed, problems = parse(source)
        if any(problem.is_error for problem in problems):
            raise RuleError(problems)
        names |= dict.fromkeys(name.text for rule in parsed for name in rule.streams)
    return list(names)
