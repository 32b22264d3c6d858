"""`spark_runtime.detect`: rules of any form and a DataFrame -> a DataFrame of matches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cep.arguments import flag_of, several_texts, type_name, wrong_argument
from cep.diagnostics.diagnostic import did_you_mean
from cep.errors import Diagnostic, InputError, RuleError, Source
from cep.language import ast
from cep.language.ast import stream_names
from cep.language.front_ends import read_rules
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_rulebook, compile_texts, is_rules, load_rulebook
from cep.schema.stream import Stream
from cep.schema.time_literals import MAX_DURATION_US, parse_duration
from cep.settings.schema_file import declared_streams
from spark_runtime.compat.driver import condition_of, is_stopped
from spark_runtime.dataflow.dataflow import Dataflow, drop_unusable, observed
from spark_runtime.dataflow.message_frames import MessageFrame
from spark_runtime.dataflow.schema import left_out, stream_of_schema, typed_events
from spark_runtime.dataflow.table_frames import frame_content
from spark_runtime.event_time.upstream import Upstream, require_delay, upstream, watermark_delay_ms
from spark_runtime.operator.limits import Limits
from spark_runtime.sessions.worker_python import workers_python
from spark_runtime.sinks.delivery import Delivery
from spark_runtime.state.pointer import Kept
from spark_runtime.storage.checkpoint_files import is_remote
from spark_runtime.tables.content import static_tables, timed_inputs
from spark_runtime.wire.key_groups import require_few
from spark_runtime.wire.output import DEAD, MATCH, late_kind

Rules = str | Path | RuleSet | Sequence[str | Path | RuleSet]
Streams = str | Path | Mapping[str, Stream] | Stream


Frame = DataFrame | MessageFrame
Events = Frame | Mapping[str, Frame]


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of `spark_runtime.detect`."""

    events: Events
    rules: Rules
    streams: Streams | None
    event_time: str | Mapping[str, str] | None
    tie_break: str | Sequence[str] | Mapping[str, str | Sequence[str]]
    lateness: str | None
    deduplicate: bool
    key_groups: int | None
    correct_within: str | None = None
    only: str | Sequence[str] = ()
    parameters: Mapping[str, str] | None = None
    state_folder: str | Path | None = None
    limits: Mapping[str, Mapping[str, int | str]] | None = None
    events_schema: StructType | Mapping[str, StructType] | None = None
    streaming: bool | None = None

    def upstream(self, name: str, events: Frame) -> Upstream:
        """Return what is known about the events of a stream."""
        return upstream(_frame_of(events), _of_stream(self.events_schema, name), self.streaming)

    @property
    def asks_nothing(self) -> bool:
        """Whether the arguments say all that Spark would be asked."""
        return self.events_schema is not None and self.streaming is not None


def detect_matches(call: Call) -> DataFrame:
    """Return the matches; see `spark_runtime.detect`."""
    flow, typed = _plan(call)
    usable = {
        stream: frame if isinstance(frame, MessageFrame) or stream.table else drop_unusable(frame, stream)
        for stream, frame in typed.items()
    }
    with workers_python(_frame_of(next(iter(usable.values()))).sparkSession, checks=not call.asks_nothing):
        output = flow.output(flow.prepared(usable))
        if not flow.is_batch:
            has_files = call.state_folder is not None
            output = observed(output, is_limited=bool(flow.limits), has_files=has_files)
        return flow.matches(output)


def detect_findings(call: Call) -> DataFrame:
    """Return the matches, late events, dead letters and counts; see `spark_runtime.detect_all`."""
    flow, typed = _plan(call)
    kinds = frozenset((MATCH, DEAD, *(late_kind(stream.name) for stream in typed)))
    flow = replace(flow, delivery=Delivery(kinds=kinds))
    with workers_python(_frame_of(next(iter(typed.values()))).sparkSession, checks=not call.asks_nothing):
        return flow.findings(flow.output(flow.prepared(typed, of_all=True)))


def _frame_of(events: Frame) -> DataFrame:
    return events.frame if isinstance(events, MessageFrame) else events


def _plan(call: Call) -> tuple[Dataflow, dict[Stream, Frame]]:
    """Return the plan and the typed events, or the messages, of each stream that the rules read."""
    try:
        return _plan_for(call, *_checked(call))
    except PySparkException as error:
        if condition_of(error) != "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION":
            raise
        asked = (
            "call detect outside it, as static tables and `messages` need it"
            if call.asks_nothing
            else "give events_schema and streaming=True or False, or call detect outside it"
        )
        raise InputError(
            "E0837", "Spark answers no questions within a query function of a pipeline", asked
        ) from None


def _plan_for(
    call: Call, events: Mapping[str, Frame], rules: RuleSet
) -> tuple[Dataflow, dict[Stream, Frame]]:
    streams = timed_inputs(rules)
    read = {name: call.upstream(name, events[name]) for name in streams}
    delay_ms = watermark_delay_ms(read, {name: stream.event_time for name, stream in streams.items()})
    typed: dict[Stream, Frame] = {}
    for name, stream in streams.items():
        given, schema = events[name], read[name].schema
        _require_event_time(schema, stream)
        if isinstance(given, MessageFrame):
            _require_declaration(given, stream)
            typed[stream] = given
        else:
            _require_single_columns(given, schema, stream)
            typed[stream] = typed_events(given, stream, schema=schema)
    spark = _frame_of(next(iter(events.values()))).sparkSession
    flow = _dataflow(spark, rules, call.key_groups, delay_ms is not None)
    static = static_tables(rules.programs)
    flow = replace(
        flow,
        is_batch=not any(frame.is_streaming for frame in read.values()),
        tables={name: frame_content(events[name], table) for name, table in static.items()},
        kept=None if call.state_folder is None else _kept(call.state_folder, spark),
        limits=_limits(call, rules),
    )
    if delay_ms is not None:
        require_delay(delay_ms, rules.lateness_us)
    return flow, typed


def _kept(folder: str | Path, spark: SparkSession) -> Kept:
    """Return where state is kept. Raises InputError: that is not possible (E0827)."""
    if not isinstance(folder, str | Path) or not str(folder) or is_remote(str(folder)):
        raise wrong_argument("state_folder", folder, "the path of a folder that all workers share")
    retained = spark.conf.get("spark.sql.streaming.minBatchesToRetain")
    return Kept.of_run(str(Path(folder).absolute()), retained, by_query=True)


def _require_single_columns(frame: DataFrame, schema: StructType, stream: Stream) -> None:
    """Refuse a declared column that occurs twice, as after a join: for Spark it would be ambiguous."""
    is_exact = frame.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
    names = [name if is_exact else name.lower() for name in schema.names]
    double = [
        f"`{field.name}`"
        for field in stream.fields
        if names.count(field.name if is_exact else field.name.lower()) > 1
    ]
    if double:
        raise InputError(
            "E0604",
            f"the events have column {', '.join(dict.fromkeys(double))} more than once",
            "drop or rename one of them first: events.drop(other[name])",
        )


def _require_declaration(given: MessageFrame, stream: Stream) -> None:
    """Refuse messages whose declared stream differs from the one for which the rules were compiled."""
    if given.stream != stream:
        raise InputError(
            "E0828",
            f"the rules know stream `{stream.name}` by another declaration than `messages` was given",
            "give both the same: streams=load_streams(...), and messages(df, streams[name])",
        )


def _require_event_time(schema: StructType, stream: Stream) -> None:
    """Refuse a DataFrame if the event times of its stream follow from the order of the records."""
    if stream.device_clock is not None and stream.event_time not in schema.names:
        raise InputError(
            "E0829",
            f"stream `{stream.name}` estimates `{stream.event_time}` from records in the order of their "
            "receipt, and a DataFrame has no order",
            f"add a column `{stream.event_time}` to the DataFrame, or run the rules as a pipeline",
        )


def _dataflow(spark: SparkSession, rules: RuleSet, key_groups: int | None, has_watermark: bool) -> Dataflow:
    """Return the plan for `rules`."""
    if key_groups is None:
        name = "spark.sql.shuffle.partitions"
        key_groups = require_few(int(spark.conf.get(name) or 1), name)
    policy = spark.conf.get("spark.sql.streaming.multipleWatermarkPolicy")
    return Dataflow(
        rules,
        key_groups,
        has_watermark=has_watermark,
        by_own_events=len(timed_inputs(rules)) == 1 or policy == "max",
    )


# ------------------------------------------------------------ arguments


def _checked(call: Call) -> tuple[Mapping[str, Frame], RuleSet]:
    """Check all arguments; return the events by stream and the compiled rules."""
    if isinstance(call.events, Mapping) and not call.events:
        raise InputError("E0823", "the events are an empty dictionary", _GIVE_FRAMES)
    for name, frame in call.events.items() if isinstance(call.events, Mapping) else [("", call.events)]:
        if not isinstance(name, str):
            raise wrong_argument("a key of events", name, "the name of a stream")
        _require_frame(name, frame)
    _require_kinds(call)
    schemas = call.events_schema.values() if isinstance(call.events_schema, Mapping) else [call.events_schema]
    if call.events_schema is not None and not all(isinstance(schema, StructType) for schema in schemas):
        raise wrong_argument("events_schema", call.events_schema, "a StructType, or one for each stream")
    rules = _corrected(_rules(call), call.correct_within)
    events = call.events
    if not isinstance(events, Mapping):
        events = {rules.only_stream().name: events}
    rules.require_streams(events)
    _require_names("events_schema", call.events_schema, events)
    return events, rules


def _require_kinds(call: Call) -> None:
    """Refuse arguments of other types than documented (E0827)."""
    groups = call.key_groups
    if groups is not None:
        if not isinstance(groups, int) or isinstance(groups, bool) or groups < 1:
            raise wrong_argument("key_groups", groups, "a positive number of groups")
        require_few(groups, "key_groups")
    times = call.event_time.values() if isinstance(call.event_time, Mapping) else [call.event_time]
    if not all(isinstance(time, str) for time in times) and call.event_time is not None:
        wanted = "the name of a column, or a dictionary of them by stream"
        raise wrong_argument("event_time", call.event_time, wanted)
    flag_of("deduplicate", call.deduplicate)
    if call.streaming is not None:
        flag_of("streaming", call.streaming)


def _require_names(argument: str, value: object, streams: Collection[str]) -> None:
    """Refuse the name of another stream in an argument by stream: it would have no effect."""
    for name in value if isinstance(value, Mapping) else ():
        if name not in streams:
            raise InputError(
                "E0610",
                f"{argument} names a stream `{name}`, which is none of the events",
                did_you_mean(str(name), streams, "streams of the events"),
            )


def _corrected(rules: RuleSet, correct_within: str | None) -> RuleSet:
    """Return the rules with the requested corrections; a RuleSet may have its own."""
    if correct_within is None:
        return rules
    length_us = parse_duration(correct_within) if isinstance(correct_within, str) else None
    if not length_us or length_us > MAX_DURATION_US:
        wanted = 'a duration above 0 and up to 36,500 days, such as "1 hour"'
        raise wrong_argument("correct_within", correct_within, wanted)
    return rules.with_corrections(Corrections(length_us))


def _limits(call: Call, rules: RuleSet) -> Limits:
    """Return the limits of a stream. Raises RuleError or InputError: they are wrong, or not possible here."""
    if call.limits is None:
        return Limits()
    from spark_runtime.pipeline.limit_settings import not_with_corrections, read_limits, text_of

    text = text_of(call.limits)
    if text is None:
        wanted = 'a dictionary as in a pipeline file: {"open_runs": {"at_most": 1000, "then": "drop_oldest"}}'
        raise wrong_argument("limits", call.limits, wanted)
    for name, why in _ONLY_IN_PIPELINES.items():
        if name in call.limits:
            raise InputError("E0828", f"`{name}` cannot be among the limits of detect: {why}", _AS_PIPELINE)
    found = replace(read_limits(text), hot_percent=None)
    for fact, why, advice in () if rules.corrections is None else not_with_corrections(found):
        raise InputError("E0828", f"{fact}: {why}", advice)
    return found


_ONLY_IN_PIPELINES = {
    "alerts_per_day": "one process must see the matches of all keys before they are written",
    "hot_key_percent": "it reports no hot keys",
}
_AS_PIPELINE = "leave it out, or run the rules as a pipeline: cep run"


_INSTEAD = {
    "pandas.": "write spark.createDataFrame(events); without Spark: cep.find_matches",
    "pyarrow.": "write spark.createDataFrame(events); without Spark: cep.match_file reads files",
    "pyspark.pandas.": "write events.to_spark()",
    "str": "read it first: spark.read.json(path), spark.read.parquet(path), spark.table(name)",
    "pathlib.": "read it first: spark.read.json(path), spark.read.parquet(path), spark.table(name)",
    "list": "write spark.createDataFrame(events)",
    "NoneType": "show() and the methods of a writer return None; give the DataFrame itself",
    "pyspark.sql.group.": "leave groupBy out: the rules say PARTITION BY, and detect groups by it",
    "pyspark.sql.streaming.": "give the DataFrame that readStream returns after load()",
    "pyspark.sql.dataframe.": "Spark Connect needs PySpark 4.0 or later",
    "pyspark.core.rdd.": "write spark.createDataFrame(events, schema)",
}
"""Prefix of a type's name -> what to write instead."""


_GIVE_FRAMES = "give a DataFrame, or a dictionary of them: {'logins': logins, 'payments': payments}"


def _require_frame(stream: str, events: object) -> None:
    if isinstance(events, DataFrame | MessageFrame):
        if is_stopped(_frame_of(events).sparkSession):
            raise InputError(
                "E0823",
                "the Spark session of the events was stopped",
                "read them again with a running session",
            )
        return
    kind = type_name(events)
    plain = kind.replace("pyspark.sql.connect.", "pyspark.sql.")
    instead = [text for beginning, text in _INSTEAD.items() if plain.startswith(beginning)]
    raise InputError(
        "E0823",
        f"the events{f' of `{stream}`' if stream else ''} are of type {kind}, not a DataFrame of Spark",
        instead[0] if instead else _GIVE_FRAMES,
    )


def _rules(call: Call) -> RuleSet:
    given = [call.rules] if isinstance(call.rules, str | Path | RuleSet) else call.rules
    wanted = "rule text, a .cep file, a directory of them, a RuleSet, or several of these in a list"
    if not isinstance(given, Sequence) or not given:
        raise wrong_argument("rules", call.rules, wanted)
    for item in given:
        if not isinstance(item, str | Path | RuleSet):
            raise wrong_argument("rules", item, wanted)
    compiled = [item for item in given if isinstance(item, RuleSet)]
    texts = [item for item in given if not isinstance(item, RuleSet)]
    if compiled and texts:
        raise InputError("E0822", "a RuleSet and rule texts cannot be mixed", "compile the texts, too")
    if compiled:
        _require_none_beside(call, "a RuleSet has it in it")
        for name, is_given in (("only", bool(call.only)), ("parameters", bool(call.parameters))):
            if is_given:
                raise InputError(
                    "E0828", f"{name} cannot be given here", "give it to load_rules, or rule texts here"
                )
        return _combined(compiled)
    told = _streams_of_messages(call)
    if call.streams is None and told:
        _require_none_beside(call, "the stream of `messages` says it")
        return compile_texts(_sources(texts, told), told, call.only, call.parameters).rule_set
    if call.streams is not None:
        _require_none_beside(call, "`streams` says it already")
        declared = declared_streams(call.streams)
        return compile_texts(_sources(texts, declared), declared, call.only, call.parameters).rule_set
    return _compile_for_frames(call, texts)


def _combined(rule_sets: Sequence[RuleSet]) -> RuleSet:
    """Return the rules of all sets; a set that is given twice counts once.

    Raises RuleError: two rules have one name (E0301), or a stream is declared in two ways (E0614).
    """
    distinct = list({id(rules): rules for rules in rule_sets}.values())
    problems: list[Diagnostic] = []
    names, inputs = set[str](), dict[str, Stream]()
    together = "give the texts to load_rules together"
    for rules in distinct:
        for rule in rules.rules:
            if rule.name in names:
                problems.append(
                    Diagnostic(
                        "E0301",
                        f"there are two rules `{rule.name}`, in two of the rule sets",
                        help=f"give one of them another name; if it is the same rule, {together}",
                    )
                )
            names.add(rule.name)
        for name, stream in rules.inputs.items():
            if inputs.setdefault(name, stream) != stream:
                problems.append(
                    Diagnostic(
                        "E0614",
                        f"stream `{name}` is declared in two ways by the streams of these rule sets",
                        help="give load_rules the same streams for all of them",
                    )
                )
    if problems:
        raise RuleError(problems)
    programs = tuple(program for rules in distinct for program in rules.programs)
    tells_version = any(rules.tells_version for rules in distinct)
    return RuleSet(programs, distinct[0].corrections, tells_version=tells_version)


def _streams_of_messages(call: Call) -> dict[str, Stream]:
    """Return the streams that the messages declare, if all events are messages; otherwise none."""
    given = call.events.values() if isinstance(call.events, Mapping) else [call.events]
    found = {frame.stream.name: frame.stream for frame in given if isinstance(frame, MessageFrame)}
    return found if len(found) == len(given) else {}


def _require_none_beside(call: Call, reason: str) -> None:
    """Refuse arguments that would have no effect."""
    given = {
        "event_time": call.event_time is not None,
        "tie_break": bool(call.tie_break),
        "lateness": call.lateness is not None,
        "deduplicate": call.deduplicate,
    }
    unused = [name for name, is_given in given.items() if is_given]
    if unused:
        raise InputError("E0828", f"{', '.join(unused)} cannot be given here", f"{reason}; leave it out")


def duration_us(text: str) -> int:
    """Return the microseconds of a duration such as ``10 seconds``."""
    length = parse_duration(text) if isinstance(text, str) else None
    if length is None:
        raise InputError(
            "E0821", f"lateness `{text}` is not a duration", "write a number and a unit: 10 seconds"
        )
    if length > MAX_DURATION_US:
        raise InputError("E0821", f"lateness `{text}` is more than 36,500 days", "use 36,500 days or less")
    return length


def _sources(items: Sequence[str | Path], streams: Mapping[str, Stream]) -> list[Source]:
    """Return the sources of the texts and files, in their order."""
    sources = [Source("rules", str(item)) for item in items if is_rules(item)]
    paths = [item for item in items if not is_rules(item)]
    return sources + (list(load_rulebook(paths, streams).sources) if paths else [])


def _compile_for_frames(call: Call, items: Sequence[str | Path]) -> RuleSet:
    """Compile rules over streams that the DataFrames declare; rule files may also have a streams file."""
    if call.event_time is None:
        if not any(is_rules(item) for item in items):
            _require_none_beside(call, "the streams file beside the rules says it")
            return compile_rulebook(load_rulebook(items), call.only, call.parameters).rule_set
        raise InputError(
            "E0820",
            "nothing says which column is the event time",
            "give event_time='...', or streams='streams.yaml'",
        )
    sources = _sources(items, {})
    given = call.events
    if not isinstance(given, Mapping):
        given = dict.fromkeys(_stream_names(sources), given)
    for argument, value in (("event_time", call.event_time), ("tie_break", call.tie_break)):
        _require_names(argument, value, given)
    events = {name: call.upstream(name, frame) for name, frame in given.items()}
    times = {name: _of_stream(call.event_time, name) for name in events}
    for name, time in times.items():
        if time is None:
            raise InputError(
                "E0820", f"nothing says which column of `{name}` is the event time", "add it to event_time"
            )
    lateness_us = _lateness_us(call, events, times)
    streams = {
        name: stream_of_schema(
            frame.schema,
            name,
            times[name],
            tie_break=_tie_break(call, name),
            lateness_us=lateness_us,
            deduplicate=call.deduplicate,
        )
        for name, frame in events.items()
    }
    try:
        return compile_texts(sources, streams, call.only, call.parameters).rule_set
    except RuleError as error:
        schemas = {name: frame.schema for name, frame in events.items()}
        raise RuleError([_of_left_out(problem, schemas) for problem in error.diagnostics]) from None


def _of_left_out(problem: Diagnostic, schemas: Mapping[str, StructType]) -> Diagnostic:
    """Return a problem of a rule. If it is about a column that a DataFrame has and its stream lacks, add the
    reason.
    """
    for name, schema in schemas.items():
        for column in schema:
            found = left_out(column)
            if found is not None and problem.title == f"stream `{name}` has no column `{column.name}`":
                return replace(problem, title=found.args[0], help=found.help)
    return problem


def _of_stream(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else value


def _tie_break(call: Call, name: str) -> Sequence[str]:
    columns = _of_stream(call.tie_break, name) or ()
    found = several_texts("tie_break", columns, "a column, or several in a list")
    if call.deduplicate and not found:
        raise InputError(
            "E0411",
            f"deduplicate needs tie_break: nothing tells two events of `{name}` at one time apart",
            "give tie_break the column that identifies an event",
        )
    return found


def _lateness_us(call: Call, events: Mapping[str, Upstream], times: Mapping[str, str]) -> int:
    """Return the given lateness, or the delay of the events' watermark."""
    if call.lateness is not None:
        return duration_us(call.lateness)
    return (watermark_delay_ms(events, times) or 0) * 1000


def _stream_names(sources: Sequence[Source]) -> list[str]:
    """Return the streams that rules name."""
    rules: list[ast.Rule] = []
    for source in sources:
        parsed, problems = read_rules(source)
        if any(problem.is_error for problem in problems):
            raise RuleError(problems)
        rules += parsed
    return stream_names(rules)
