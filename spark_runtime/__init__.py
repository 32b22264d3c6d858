"""Rules on Apache Spark: `detect` for any DataFrame, `run_pipeline` for a pipeline file.

The names in `__all__` are stable; everything else may move.

Executors import this package, so it imports PySpark and the compiler only when they are needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from cep.rule_set import RuleSet
    from cep.schema.stream import Stream
    from spark_runtime.dataflow.message_frames import MessageFrame
    from spark_runtime.event_time.listener import TimeListener
    from spark_runtime.operator.findings import Findings
    from spark_runtime.pipeline.pipeline import run_pipeline
    from spark_runtime.sessions.local_session import session

__all__ = ["TimeListener", "detect", "detect_all", "messages", "run_pipeline", "session", "split"]

_MODULES = {
    "TimeListener": "spark_runtime.event_time.listener",
    "run_pipeline": "spark_runtime.pipeline.pipeline",
    "session": "spark_runtime.sessions.local_session",
}
"""Public name -> the module that defines it, which is loaded when the name is first used."""


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module `spark_runtime` has no `{name}`")
    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def detect(  # noqa: PLR0913 - all but two have a default
    events: DataFrame | MessageFrame | Mapping[str, DataFrame | MessageFrame],
    rules: str | Path | RuleSet | Sequence[str | Path | RuleSet],
    *,
    streams: str | Path | Mapping[str, Stream] | Stream | None = None,
    event_time: str | Mapping[str, str] | None = None,
    tie_break: str | Sequence[str] | Mapping[str, str | Sequence[str]] = (),
    lateness: str | None = None,
    deduplicate: bool = False,
    key_groups: int | None = None,
    correct_within: str | None = None,
    only: str | Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    state_folder: str | Path | None = None,
    limits: Mapping[str, Mapping[str, int | str]] | None = None,
    events_schema: StructType | Mapping[str, StructType] | None = None,
    streaming: bool | None = None,
) -> DataFrame:
    """Return the matches of `rules` in `events`, batch or streaming DataFrames.

    The first call in an application runs a job of one row to check that the workers have this package.

    Parameters
    ----------
    events
        Events of one stream, or of several by name: ``{"logins": df1, "payments": df2}``. Each is a DataFrame
        with a column for each field, or a result of `messages`. Events whose time is NULL or outside the
        stream's ``valid_time``, events without a key and, in a stream, late events are silently dropped;
        `detect_all` returns them as well. A timestamp without a zone is in the session's time zone. A
        streaming DataFrame may already have a watermark, on its event time and with the stream's lateness.
    rules
        Rule text, a ``.cep`` file, a directory of them, a `cep.RuleSet`, or several of these, all with
        different names of rules. What is given twice counts once.
    streams
        The declaration of the streams: a streams file, or the result of reading one. Without it, the columns
        of `events` and the next four arguments declare the stream, under the name that the rules use. Columns
        whose names begin with ``_`` or ``#``, or whose type rules do not know (intervals, variants), are not
        part of it.
    event_time
        Column of the event time; required without `streams`, and not allowed with it. A mapping by stream
        if the columns differ.
    tie_break
        Columns that order events of equal time; a mapping by stream if they differ. Without them the order
        is Spark's, which may vary.
    lateness
        How much older than the latest event an event may be, such as ``"10 seconds"``; for streaming
        DataFrames. Default: the delay of the events' watermark, or zero.
    deduplicate
        Whether events of one key that agree in time and in all of `tie_break` are one event. It needs
        `tie_break`.
    key_groups
        Number of groups into which keys are divided, at most 10,000; fixed for the life of a checkpoint.
        Default: ``spark.sql.shuffle.partitions``.
    correct_within
        How late an event may arrive and still count, such as ``"1 hour"``; for streaming DataFrames. Matches
        that were reported without it are corrected: the rows have the columns ``revision`` and ``kind``.
    only
        Names of the rules or views to run; the rules whose matches they read run as well. Default: all.
    parameters
        Other values of parameters (`PARAM`), as they are written in rules: ``{"small": "4"}``.
    state_folder
        A folder on a disk that all workers share, for large state of a stream: a micro-batch then writes only
        what it changed. Each checkpoint has its own subfolder. Default: in Spark's state store.
    limits
        How much a stream may have over all keys, as in a pipeline file: ``{"open_runs": {"at_most": 1000,
        "then": "drop_oldest"}}``. `detect_all` counts what is dropped. Default: there are no limits.
    events_schema, streaming
        The schema of `events`, by stream if they differ, and whether they are streams. With both, `detect`
        does not ask Spark anything, so that it works in a query function of Declarative Pipelines. In that
        case, the workers are not checked, and streams must have no watermark.

    Returns
    -------
    DataFrame
        One row per match: rule, key columns, match_id, match_start, match_end, and the measures of all rules.

    Raises
    ------
    RuleError
        The rules are wrong; the error lists every problem.
    InputError
        The events do not fit the rules or the declaration, or an argument is wrong.
    SetupError
        Spark's workers cannot run this package.
    """
    from spark_runtime.detection import Call, detect_matches

    call = Call(
        events=events,
        rules=rules,
        streams=streams,
        event_time=event_time,
        tie_break=tie_break,
        lateness=lateness,
        deduplicate=deduplicate,
        key_groups=key_groups,
        correct_within=correct_within,
        only=only,
        parameters=parameters,
        state_folder=state_folder,
        limits=limits,
        events_schema=events_schema,
        streaming=streaming,
    )
    return detect_matches(call)


def detect_all(  # noqa: PLR0913 - all but two have a default
    events: DataFrame | MessageFrame | Mapping[str, DataFrame | MessageFrame],
    rules: str | Path | RuleSet | Sequence[str | Path | RuleSet],
    *,
    streams: str | Path | Mapping[str, Stream] | Stream | None = None,
    event_time: str | Mapping[str, str] | None = None,
    tie_break: str | Sequence[str] | Mapping[str, str | Sequence[str]] = (),
    lateness: str | None = None,
    deduplicate: bool = False,
    key_groups: int | None = None,
    correct_within: str | None = None,
    only: str | Sequence[str] = (),
    parameters: Mapping[str, str] | None = None,
    state_folder: str | Path | None = None,
    limits: Mapping[str, Mapping[str, int | str]] | None = None,
    events_schema: StructType | Mapping[str, StructType] | None = None,
    streaming: bool | None = None,
) -> DataFrame:
    """Return the matches of `rules` in `events`, and late events, dead letters and counts.

    The parameters are those of `detect`. `split` returns a DataFrame for each kind of row.

    Returns
    -------
    DataFrame
        The column ``kind`` names the column that has a value:

        - ``match``: the columns of `detect`;
        - ``late``: an event of a streaming DataFrame that some rule could have used but that came too late:
          ``stream``, and the whole ``event`` as JSON;
        - ``dead_letter``: an event that no rule can use: ``stream``, ``reason``, ``raw`` as JSON. With
          `messages`, also a value that is not an event; ``stream`` is then the partition, ``orders[3]``, and
          ``position`` the offset, if the messages have one;
        - ``count``: ``name``, ``of`` (what it is split by, or NULL) and ``n``. The rows must be summed,
          because each call of the operator counts separately: ``events``, ``duplicates``; ``late`` by stream;
          ``dead_letters`` by reason; ``matches``, ``timeouts``, ``suppressed``, ``dropped_runs`` by rule;
          with `limits` also ``dropped_matches`` by rule, ``dropped_events`` by stream, ``dropped_keys`` by
          rule and key, and ``beyond`` by limit;
          with corrections also ``retracted`` by rule, ``corrected`` and ``uncorrected``.
    """
    from spark_runtime.detection import Call, detect_findings

    call = Call(
        events=events,
        rules=rules,
        streams=streams,
        event_time=event_time,
        tie_break=tie_break,
        lateness=lateness,
        deduplicate=deduplicate,
        key_groups=key_groups,
        correct_within=correct_within,
        only=only,
        parameters=parameters,
        state_folder=state_folder,
        limits=limits,
        events_schema=events_schema,
        streaming=streaming,
    )
    return detect_findings(call)


def split(found: DataFrame) -> Findings:
    """Return the `matches`, `late`, `dead_letters` and `counts` of a DataFrame of `detect_all`.

    In `foreachBatch`, persist the micro-batch first (``batch.persist()``); otherwise Spark computes it again
    for each part that is written.

    Raises
    ------
    InputError
        `found` is none of `detect_all` (E0827).
    """
    from spark_runtime.operator import findings

    return findings.split(found)


def messages(
    frame: DataFrame,
    stream: Stream,
    value: str = "json",
    *,
    column: str = "value",
    columns: Mapping[str, str] | None = None,
    tombstones: str = "pass_over",
    **settings: str,
) -> MessageFrame:
    """Return a DataFrame of messages for `detect`, whose values the workers decode.

    This is cheaper than parsing them with Spark first: events become columns only once, and a value that is
    not an event is a dead letter of `detect_all`. `frame` is a batch or a stream, such as Spark's own Kafka
    source.

    Parameters
    ----------
    frame
        A DataFrame with a binary column. If it has ``topic``, ``partition`` and ``offset``, dead letters
        name them.
    stream
        The declaration of the stream whose events the values are.
    value
        The format of the values: ``json``, ``csv``, ``avro``, ``protobuf``, or a format of a plug-in.
    column
        The column that contains the values.
    columns
        Columns of `frame` that are columns of the stream: ``{"key": "card_id"}``. The values need not contain
        them.
    tombstones
        What happens to rows without a value: ``pass_over``, or ``dead_letter``.
    settings
        The settings of the format: ``schema``, ``descriptor``, ``message``, ``framing``, ``registry``,
        ``user``, ``password``; see docs/connectors/payloads.md.

    Raises
    ------
    InputError
        An argument is wrong, or the schema of the values does not match the stream.
    """
    from spark_runtime.dataflow.message_frames import message_frame

    return message_frame(
        frame, stream, value, column=column, columns=columns, tombstones=tombstones, settings=settings
    )
