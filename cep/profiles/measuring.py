"""Events -> the profile of their stream, chunk by chunk, with Arrow's kernels."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.expression import Type
from cep.formats.chunks import Chunk
from cep.profiles.profile import MAX_VALUES, ColumnProfile, Profile
from cep.schema.stream import Field, Stream
from cep.schema.text_values import word_of

_COUNTED = (Type.STRING, Type.BOOLEAN, Type.BIGINT, Type.DOUBLE)
_RANGED = (Type.BIGINT, Type.DOUBLE, Type.TIMESTAMP)

MOST_GAPS = 1 << 18
"""Gaps between events that are kept while events are read: 4 MiB."""


class _Column:
    """What is known about a column so far."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.n_null = self.n_nan = 0
        self.counts: dict[object, int] | None = {} if field.type in _COUNTED else None
        self.least: float | None = None
        self.greatest: float | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        """Add the values of more events."""
        self.n_null += values.null_count
        if self.field.type is Type.DOUBLE:
            values = self._numbers(values)
        if self.field.type in _RANGED:
            ends = pc.min_max(values).as_py()
            if ends["min"] is not None:
                self.least = ends["min"] if self.least is None else min(self.least, ends["min"])
                self.greatest = ends["max"] if self.greatest is None else max(self.greatest, ends["max"])
        if self.counts is None:
            return
        found = pc.value_counts(values.drop_null())
        if len(found) <= MAX_VALUES:
            counts = self.counts
            for value, n in zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True):
                counts[value] = counts.get(value, 0) + n
        if len(found) > MAX_VALUES or len(self.counts) > MAX_VALUES:
            self.counts = None

    def _numbers(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the values that are not NaN, which are counted, with one zero: for rules, -0.0 is 0."""
        is_nan = pc.is_nan(values)
        n_nan = pc.sum(is_nan).as_py()
        if n_nan:
            self.n_nan += n_nan
            values = values.filter(pc.invert(is_nan))
        return pc.add(values, 0.0)

    def profile(self) -> ColumnProfile:
        """Return the profile of the values read so far."""
        counts = None
        if self.counts is not None:
            known = self.counts | ({math.nan: self.n_nan} if self.n_nan else {})
            ordered = sorted(known.items(), key=lambda item: (-item[1], str(item[0])))
            if len(known) <= MAX_VALUES:
                counts = {_text(value): n for value, n in ordered}
        return ColumnProfile(self.field.declared, self.n_null, counts, self.least, self.greatest, self.n_nan)


def _text(value: object) -> str:
    """Return the text by which a value is counted."""
    if isinstance(value, float) and not math.isfinite(value):
        return word_of(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Gaps:
    """The times of events, in spans that are ordered and apart; between two of them there is no event.

    Where there are too many gaps, the longest half is kept, and earlier ones of equal length. Of `n` kept
    gaps, the shortest is at most the n-th part of the whole time; a shorter one may be missed if events of
    later chunks divide all longer ones.
    """

    def __init__(self) -> None:
        self.starts = np.empty(0, np.int64)
        self.ends = np.empty(0, np.int64)

    def add(self, times: I64) -> None:
        """Add the times of more events."""
        times = np.unique(times)
        starts, ends = np.concatenate((self.starts, times)), np.concatenate((self.ends, times))
        order = np.argsort(starts, kind="stable")
        starts, reached = starts[order], np.maximum.accumulate(ends[order])
        self._divide(starts, reached, np.flatnonzero(starts[1:] > reached[:-1]))
        gaps = self.starts[1:] - self.ends[:-1]
        if len(gaps) > MOST_GAPS:
            longest = np.argsort(-gaps, kind="stable")[: MOST_GAPS // 2]
            self._divide(self.starts, self.ends, np.sort(longest))

    def _divide(self, starts: I64, ends: I64, gaps: I64) -> None:
        """Take the spans between some gaps; each is after the span of its number."""
        self.starts = np.concatenate((starts[:1], starts[gaps + 1]))
        self.ends = np.concatenate((ends[gaps], ends[-1:]))

    def longest(self) -> tuple[int, int | None]:
        """Return the length of the longest gap, and its beginning; None: there is no gap."""
        gaps = self.starts[1:] - self.ends[:-1]
        if not len(gaps):
            return 0, None
        place = int(gaps.argmax())
        return int(gaps[place]), int(self.ends[place])


def measured(stream: Stream, chunks: Iterable[Chunk]) -> Profile:
    """Return the profile of the events of a stream, in the order in which they arrive."""
    columns = {field.name: _Column(field) for field in stream.fields}
    n_events = n_malformed = n_disordered = most_late_us = 0
    first_us, gaps = None, _Gaps()
    latest_us = START_OF_TIME_US
    for chunk in chunks:
        n_events += chunk.events.num_rows
        n_malformed += chunk.dead_letters.num_rows
        for name, column in columns.items():
            column.add(chunk.events.column(name))
        if stream.is_static or not chunk.events.num_rows:
            continue
        times = np.asarray(chunk.events.column(stream.event_time), np.int64)
        reached = np.maximum.accumulate(np.concatenate(([latest_us], times)))
        late_us = reached[:-1] - times
        n_disordered += int((late_us > 0).sum())
        most_late_us = max(most_late_us, int(late_us.max()))
        first_us = int(times.min()) if first_us is None else min(first_us, int(times.min()))
        gaps.add(times)
        latest_us = int(reached[-1])
    gap_us, gap_from_us = gaps.longest()
    return Profile(
        stream=stream.name,
        n_events=n_events,
        n_malformed=n_malformed,
        first_us=first_us,
        last_us=None if first_us is None else latest_us,
        n_disordered=n_disordered,
        most_late_us=most_late_us,
        gap_us=gap_us,
        gap_from_us=gap_from_us,
        columns={name: column.profile() for name, column in columns.items()},
    )
