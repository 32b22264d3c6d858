"""Source partitions: input whose events arrive in about the order of their times.

A partition is a whole source, one of its files, or the events with the same value in a column, such as those
of one device or gateway. Each partition has its own watermark (`watermarks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import Highest
from cep.errors import InputError
from cep.formats.chunks import Chunk
from cep.formats.intake import partition_name
from cep.formats.path_names import PathPattern
from cep.schema.stream import Stream

PER_SOURCE, PER_FILE = "source", "file"
"""What has its own watermark: a whole source, or each of its files; otherwise the name of a column."""

MAX_PARTITIONS = 10_000
"""Most partitions of a pipeline. The checkpoint stores them, and each micro-batch examines them."""


@dataclass(frozen=True, slots=True)
class Partition:
    """The progress of one partition.

    `latest_us`: its latest event time that was read, microseconds since 1970; None: no event was read yet.
    `place`: the place of that event in the input. `seen_s`: the wall clock when its last events arrived, or
    when it became known; seconds since 1970.
    """

    stream: str
    latest_us: int | None = None
    place: str = ""
    seen_s: float = 0.0


Partitions = Mapping[str, Partition]
"""By the name of the partition (`cep.formats.intake.partition_name`)."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The known but unread input of a partition.

    `first_us`: the event time at which it starts, judging by its first events; None: unknown.
    """

    first_us: int | None


class TimeSpan(NamedTuple):
    """Event times of some input, microseconds since 1970; None: they cannot be determined cheaply.

    `first_us` is the earliest of the first events. `last_us` is the earliest of the last events: a lower
    bound of the latest event time, which a few fast clocks do not affect.
    """

    first_us: int | None
    last_us: int | None


NO_SPAN = TimeSpan(None, None)


def check_watermark_per(watermark_per: str, stream: Stream) -> None:
    """Raise InputError unless `watermark_per` can distinguish partitions of `stream`."""
    if watermark_per in (PER_SOURCE, PER_FILE) or stream.field(watermark_per) is not None:
        return
    columns = ", ".join(field.name for field in stream.fields)
    raise InputError(
        "E0841",
        f"`watermark_per` of stream `{stream.name}` cannot be `{watermark_per}`",
        f"write {PER_SOURCE}, {PER_FILE}, or a column of the stream: {columns}",
    )


def partition_of_file(path: str, watermark_per: str, pattern: PathPattern | None) -> str | None:
    """Return the partition of all events of a file; "" if there is only one; None if it differs by event."""
    if watermark_per == PER_SOURCE:
        return ""
    if watermark_per == PER_FILE:
        return path
    if pattern is not None and watermark_per in pattern.names:
        return pattern.texts(path)[watermark_per]
    return None


def latest_by_value(chunk: Chunk, stream: Stream, column: str) -> Highest:
    """Return, by value of `column`, the latest event time in a chunk, and its file."""
    events = chunk.events
    if events.num_rows == 0:
        return {}
    texts = pc.cast(events.column(column), pa.string()).fill_null("NULL")
    table = pa.table([texts, events.column(stream.event_time)], names=["value", "time"])
    found = table.group_by("value").aggregate([("time", "max")])
    values, times = found.column("value").to_pylist(), found.column("time_max").to_pylist()
    return {
        partition_name(stream, value): (us, chunk.source) for value, us in zip(values, times, strict=True)
    }


def stream_of(partition: str) -> str:
    """Return the stream of the partition with this name."""
    return partition.partition("[")[0]


def after(partitions: Partitions, latest: Highest, now_s: float) -> Partitions:
    """Return `partitions` after events were read; `latest` contains their latest times by partition.

    A source without known partitions represented all of its partitions. A source that has become one
    partition (`watermark_per`) replaces those that it had.
    """
    found = dict(partitions)
    whole = {name for name in latest if name == stream_of(name)}
    if whole:
        found = {name: part for name, part in found.items() if name in whole or part.stream not in whole}
    for name, (us, place) in latest.items():
        if name not in whole:
            found.pop(stream_of(name), None)
        known = found.get(name, Partition(stream_of(name)))
        if known.latest_us is None or us > known.latest_us:
            known = replace(known, latest_us=us, place=place)
        found[name] = replace(known, seen_s=now_s)
    return found


def require_few(partitions: Partitions) -> None:
    """Raise InputError (E0845) if there are more partitions than a pipeline may have."""
    if len(partitions) > MAX_PARTITIONS:
        streams = Counter(partition.stream for partition in partitions.values())
        name, n = streams.most_common(1)[0]
        raise InputError(
            "E0845",
            f"the source of stream `{name}` has {n:,} partitions, a pipeline has at most {MAX_PARTITIONS:,}",
            "choose a column with fewer values for `watermark_per`, such as a gateway instead of a device",
        )


def place_text(log: str, partition: str | int) -> str:
    """Return a partition as text: ``orders[3]``."""
    return f"{log}[{partition}]"
