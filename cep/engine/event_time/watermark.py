"""The watermark: the event time up to which events have arrived. Only this module decides which events are
late.

An event at or before the watermark is late: matches that it could have changed may already have been
reported. (Akidau et al., The Dataflow Model, VLDB 2015, section 2.3.)
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cep.arrays import I64, Mask
from cep.formats.late_events import late_events
from cep.schema.stream import Stream

START_OF_TIME_US = np.iinfo(np.int64).min // 2
"""The watermark before any event, in microseconds; half of the range, so that differences have 64 bits."""

END_OF_TIME_US = np.iinfo(np.int64).max // 2
"""A watermark beyond every event: the input is complete."""


def late_by_us(times_us: I64, watermark_us: int | I64) -> I64:
    """Return how many microseconds the watermark had passed each event by.

    Parameters
    ----------
    times_us
        int64[n], event times.
    watermark_us
        The watermark when all events arrived, or int64[n], the watermark when each of them arrived.

    Returns
    -------
    int64[n]
        At least 0: the event is late.
    """
    late_us: I64 = watermark_us - times_us
    return late_us


def is_late(late_us: I64) -> Mask:
    """Return which events are late; `late_us` is int64[n] (`late_by_us`)."""
    late: Mask = late_us >= 0
    return late


def split_late(
    events: pa.Table, late_us: I64, stream: Stream, counted_us: int | I64 = 0
) -> tuple[pa.Table, pa.Table]:
    """Return the events of `stream` that are in time, and the others as `late_schema`.

    `events`: columns of `event_table_schema`. `late_us`: int64[n] (`late_by_us`). `counted_us`: with
    corrections an event is finally late only if it is late by at least this much; int64[n] if this differs
    from event to event.
    """
    late = is_late(late_us - counted_us)
    if not late.any():  # the usual case: nothing is copied
        return events, late_events(events.slice(0, 0), late_us[:0], stream)
    return events.filter(pa.array(~late)), late_events(events.filter(pa.array(late)), late_us[late], stream)
