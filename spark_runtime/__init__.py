"""The rules on Apache Spark: `detect` for any DataFrame, `pipeline` for a file that names source and sinks.

Executors import this package, so it imports PySpark and the compiler only when called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cep.program import Program
from cep.schema import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["detect"]


def detect(
    events: DataFrame | Mapping[str, DataFrame],
    rules: str | Path | Program | Sequence[str | Path | Program],
    *,
    streams: str | Path | Mapping[str, Stream] | Stream | None = None,
    event_time: str | Mapping[str, str] | None = None,
    tie_break: Sequence[str] | Mapping[str, Sequence[str]] = (),
    lateness: str = "0 seconds",
    deduplicate: bool = False,
    key_groups: int | None = None,
) -> DataFrame:
    """Return the matches of `rules` in `events`, batch or streaming DataFrames.

    Parameters
    ----------
    events
        Events of one stream, or of several by name: ``{"logins": df1, "payments": df2}``. Those whose time
        is NULL or outside the stream's ``valid_time``, and those without a key, are left out. A timestamp
        without a zone is taken in the session's time zone.
    rules
        Rule text, a ``.cep`` file, a directory of them, compiled programs, or several of these.
    streams
        The stream's declaration: a streams file, or what was read from one. Without it the columns of
        `events` are the stream, under whatever name the rules give it, with the next four arguments.
    event_time
        Column of the event time; only without `streams`, and then required. By stream if it differs.
    tie_break
        Columns that order events of equal time, by stream if they differ. Without them Spark's order decides,
        which may change.
    lateness
        How far events may arrive behind the latest one, such as ``"10 seconds"``; for a stream.
    deduplicate
        Whether events of one key that agree in time and all of `tie_break` are one event.
    key_groups
        Number of groups in which keys are brought together; a checkpoint keeps the first.
        Default: ``spark.sql.shuffle.partitions``.

    Returns
    -------
    DataFrame
        One row per match: rule, key columns, match_id, match_start, match_end, the measures of all rules.

    Raises
    ------
    RuleError
        With every problem of the rules.
    InputError
        The events are not what the rules or the declaration say.
    """
    from spark_runtime.detection import detect_matches

    return detect_matches(
        events,
        rules,
        streams=streams,
        event_time=event_time,
        tie_break=tie_break,
        lateness=lateness,
        deduplicate=deduplicate,
        key_groups=key_groups,
    )
