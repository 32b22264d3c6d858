"""The rules on Apache Spark: `detect` for any DataFrame, `run_pipeline` for a pipeline file.

The names in `__all__` stay; everything else may move.

Executors import this package, so it imports PySpark and the compiler only when called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
"""Public name -> the module that has it, loaded when the name is first used."""


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
) -> DataFrame:
    """Return the matches of `rules` in `events`, batch or streaming DataFrames.

    The first call in an application asks one worker whether it has this package: a job of one row.

    Parameters
    ----------
    events
        Events of one stream, or of several by name: ``{"logins": df1, "payments": df2}``. Each a DataFrame
        with a column for each field, or what `messages` returns. Events whose time
        is NULL or outside the stream's ``valid_time``, events without a key and, in a stream, late events
        are left out without a word; `detect_all` gives them, too. A timestamp without a zone is taken in
        the session's time zone. A stream may have a watermark already, on its event time and of the
        stream's lateness.
    rules
        Rule text, a ``.cep`` file, a directory of them, a `cep.RuleSet`, or several of these.
    streams
        The stream's declaration: a streams file, or what was read from one. Without it the columns of
        `events` are the stream, under whatever name the rules give it, with the next four arguments.
    event_time
        Column of the event time; only without `streams`, and then required. By stream if it differs.
    tie_break
        Columns that order events of equal time, by stream if they differ. Without them Spark's order decides,
        which may change.
    lateness
        How far events may arrive behind the latest one, such as ``"10 seconds"``; for a stream. Default: the
        delay of the events' watermark, or nothing.
    deduplicate
        Whether events of one key that agree in time and all of `tie_break` are one event.
    key_groups
        Number of groups in which keys are brought together; a checkpoint keeps the first.
        Default: ``spark.sql.shuffle.partitions``.
    correct_within
        How late an event may come and still be counted, such as ``"1 hour"``; for a stream. Matches that
        were reported without it are corrected: the rows have the columns ``revision`` and ``kind``.
    only
        Names of rules or views: these, and those whose matches they read. Default: all.

    Returns
    -------
    DataFrame
        One row per match: rule, key columns, match_id, match_start, match_end, the measures of all rules.

    Raises
    ------
    RuleError
        With every problem of the rules.
    InputError
        The events are not what the rules or the declaration say, or an argument is wrong.
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
) -> DataFrame:
    """Return the matches of `rules` in `events`, and all that did not become part of one for a reason.

    The parameters are those of `detect`. `split` gives each kind of rows its own DataFrame.

    Returns
    -------
    DataFrame
        The column ``kind`` names the one that has a value:

        - ``match``: the columns of `detect`;
        - ``late``: an event that some rule could have used but came too late, in a stream: ``stream``, and
          the whole ``event`` as JSON;
        - ``dead_letter``: an event that no rule can use: ``stream``, ``reason``, ``raw`` as JSON. Of
          `messages` also values that are no event; the stream is then the partition, ``orders[3]``, and
          ``position`` the offset, if the messages tell it;
        - ``count``: ``name``, ``of`` (what it is split by, else NULL) and ``n``, to be added up, because each
          call of the operator counts for itself: ``events``, ``duplicates``; ``late`` by stream;
          ``dead_letters`` by reason; ``matches``, ``timeouts``, ``suppressed``, ``dropped_runs`` by rule;
          with corrections ``retracted`` by rule, ``corrected`` and ``uncorrected``.
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
    )
    return detect_findings(call)


def split(found: DataFrame) -> Findings:
    """Return `matches`, `late`, `dead_letters` and `counts` of a DataFrame of `detect_all`.

    In `foreachBatch` keep the micro-batch before (``batch.persist()``): each part that is written would find
    everything anew.
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
    """Return a DataFrame of messages for `detect`: their values are decoded in the workers.

    This is cheaper than to parse them with Spark before: events become columns once, and what is no event
    is a dead letter of `detect_all`. `frame` is a batch or a stream, such as Spark's own source of Kafka.

    Parameters
    ----------
    frame
        A DataFrame with a binary column. If it has ``topic``, ``partition`` and ``offset``, dead letters tell
        them.
    stream
        The declaration of the stream that the values are events of.
    value
        The format of the values: ``json``, ``csv``, ``avro``, ``protobuf``, or a format of a plug-in.
    column
        The column with the values.
    columns
        Columns of `frame` that are columns of the stream: ``{"key": "card_id"}``. The values need not have
        them.
    tombstones
        What becomes of rows without a value: ``pass_over``, or ``dead_letter``.
    settings
        Those of the format: ``schema``, ``descriptor``, ``message``, ``framing``, ``registry``, ``user``,
        ``password``; see docs/connectors/payloads.md.

    Raises
    ------
    InputError
        An argument is wrong, or the schema of the values does not fit the stream.
    """
    from spark_runtime.dataflow.message_frames import message_frame

    return message_frame(
        frame, stream, value, column=column, columns=columns, tombstones=tombstones, settings=settings
    )
