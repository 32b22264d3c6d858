"""Checks what precedes `detect` in a streaming DataFrame: watermarks, and operators with state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T  # noqa: N812

from cep.errors import InputError
from cep.schema.time_literals import print_duration
from spark_runtime.compat.driver import streaming_nodes

_DELAY_MS = "spark.watermarkDelayMs"
"""The key of the delay in the metadata of a column with a watermark."""

_WATERMARKS = ("EventTimeWatermark", "UpdateEventTimeWatermarkColumn")

_STATE = {
    "FlatMapGroupsInPandasWithState": "another `detect`, or `applyInPandasWithState`",
    "FlatMapGroupsWithState": "`flatMapGroupsWithState`",
    "Aggregate": "an aggregation",
}
"""Node of a plan -> what its user wrote.

`detect` is an `applyInPandasWithState`, which Spark does not allow after these.
"""


@dataclass(frozen=True)
class Upstream:
    """What is known about a DataFrame.

    `nodes`: the streaming nodes of its plan, by name; none if Spark was not asked.
    """

    schema: T.StructType
    is_streaming: bool
    nodes: frozenset[str]


def upstream(frame: DataFrame, schema: T.StructType | None, is_streaming: bool | None) -> Upstream:
    """Return what is known about `frame`. Spark is asked unless both arguments are given.

    Raises InputError: Spark was asked, and `is_streaming` is wrong (E0827).
    """
    if schema is not None and is_streaming is not None:
        return Upstream(schema, is_streaming, frozenset())
    streams = frame.isStreaming
    if is_streaming is not None and is_streaming != streams:
        kinds = {True: "streams", False: "batches"}
        raise InputError(
            "E0827",
            f"streaming is {is_streaming}, but the events are {kinds[streams]}",
            f"leave it out, or give {kinds[is_streaming]}",
        )
    return Upstream(schema or frame.schema, streams, _streaming_nodes(frame) if streams else frozenset())


def watermark_delay_ms(events: Mapping[str, Upstream], event_times: Mapping[str, str]) -> int | None:
    """Return the delay of the watermark that all streams already have, or None if none has one.

    `event_times` names each stream's event time. Raises InputError: Spark cannot run `detect` after the
    operators of the streams: watermarks that differ or are on other columns, or an operator with state; or
    streams and batches are mixed.
    """
    _require_one_kind(events)
    delays = {name: _delay_ms(name, frame, event_times[name]) for name, frame in events.items()}
    if len(set(delays.values())) == 1:
        return next(iter(delays.values()))
    found = ", ".join(
        f"`{name}` has none" if delay is None else f"`{name}` has {print_duration(delay * 1000)}"
        for name, delay in delays.items()
    )
    raise InputError(
        "E0824",
        f"the streams have different watermarks: {found}",
        "leave withWatermark out, since detect sets one; or give each the same, of the largest lateness",
    )


def _require_one_kind(events: Mapping[str, Upstream]) -> None:
    """Refuse a mix of streaming and other DataFrames, for which Spark has no union."""
    streams = [name for name, frame in events.items() if frame.is_streaming]
    batches = [name for name in events if name not in streams]
    if streams and batches:
        raise InputError(
            "E0826",
            f"`{streams[0]}` is a stream and `{batches[0]}` is a batch",
            f"read `{batches[0]}` with readStream, or `{streams[0]}` with read",
        )


def _delay_ms(name: str, frame: Upstream, column: str) -> int | None:
    passed = [word for node, word in _STATE.items() if node in frame.nodes]
    if passed:
        raise InputError(
            "E0825",
            f"stream `{name}` has passed {passed[0]}: Spark runs no `detect` behind it in the same query",
            "write its result to a table or a topic, and read this as a stream in a second query; "
            "a batch needs no detour",
        )
    if not frame.is_streaming or column not in frame.schema.names:  # reported elsewhere
        return None
    delay = frame.schema[column].metadata.get(_DELAY_MS)
    if delay is not None:
        return int(delay)
    if frame.nodes.intersection(_WATERMARKS):
        raise InputError(
            "E0824",
            f"stream `{name}` has a watermark, but not on its event time `{column}`",
            f"leave withWatermark out, since detect sets one; or set it on `{column}`, as the last step",
        )
    return None


def require_delay(delay_ms: int, lateness_us: int) -> None:
    """Refuse a watermark whose delay differs from the lateness of the rules."""
    if delay_ms != -(-lateness_us // 1000):
        given, declared = print_duration(delay_ms * 1000), print_duration(lateness_us)
        raise InputError(
            "E0824",
            f"the watermark of the events stays {given} behind, their lateness is {declared}",
            "leave withWatermark out, since detect sets one; or make the two equal",
        )


def _streaming_nodes(frame: DataFrame) -> frozenset[str]:
    """Return the names of the nodes in a streaming DataFrame's plan."""
    asked: Any = frame
    if hasattr(type(asked), "_explain_string"):  # Spark Connect
        text = asked._explain_string(extended=True).partition("== Optimized Logical Plan ==")[0]
    else:
        text = asked._jdf.queryExecution().analyzed().toString()
    return streaming_nodes(text)
