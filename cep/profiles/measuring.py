"""Events -> the profile of their stream, chunk by chunk, with Arrow's kernels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.expression import Type
from cep.formats.chunks import Chunk
from cep.profiles.profile import MAX_VALUES, ColumnProfile, Profile, value_text
from cep.schema.stream import Field, Stream

_COUNTED = (Type.STRING, Type.BOOLEAN, Type.BIGINT, Type.DOUBLE)
_RANGED = (Type.BIGINT, Type.DOUBLE, Type.TIMESTAMP)


class _Column:
    """What is known of a column so far."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.n_null = 0
        self.counts: dict[object, int] | None = {} if field.type in _COUNTED else None
        self.least: float | None = None
        self.greatest: float | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        """Add the values of more events."""
        self.n_null += values.null_count
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

    def profile(self) -> ColumnProfile:
        """Return what is known so far."""
        counts = None
        if self.counts is not None:
            ordered = sorted(self.counts.items(), key=lambda item: (-item[1], str(item[0])))
            counts = {value_text(value): n for value, n in ordered}
        return ColumnProfile(self.field.declared, self.n_null, counts, self.least, self.greatest)


def measured(stream: Stream, chunks: Iterable[Chunk]) -> Profile:
    """Return the profile of the events of a stream, in the order in which they arrive."""
    columns = {field.name: _Column(field) for field in stream.fields}
    n_events = n_malformed = n_disordered = most_late_us = gap_us = 0
    first_us = gap_from_us = None
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
        steps = np.diff(reached[1:] if latest_us == START_OF_TIME_US else reached)
        if len(steps) and int(steps.max()) > gap_us:
            place = int(steps.argmax())
            gap_us = int(steps[place])
            gap_from_us = int((reached[1:] if latest_us == START_OF_TIME_US else reached)[place])
        latest_us = int(reached[-1])
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
