"""What a matcher counts."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cep.program.program import COUNTED_COLUMN
from cep.program.tables import VERSION_COLUMN


@dataclass(slots=True)
class Counters:
    """The counts so far: every pushed event is counted once as accepted, late or duplicate.

    Matches, timeouts, suppressed matches, and runs dropped at the limit are counted by rule. `keys` is the
    sum of the numbers of keys with events in each `advance`; snapshots do not contain it.
    """

    events: int = 0
    late: int = 0
    duplicates_of: list[int] = field(default_factory=lambda: [0])  # by stream
    matches: dict[str, int] = field(default_factory=dict)
    timeouts: dict[str, int] = field(default_factory=dict)
    suppressed: dict[str, int] = field(default_factory=dict)
    dropped_runs: dict[str, int] = field(default_factory=dict)
    retracted: dict[str, int] = field(default_factory=dict)  # by a `Corrector`, like the following fields
    uncorrected: int = 0
    keys: int = field(default=0, compare=False)

    @property
    def duplicates(self) -> int:
        """Repeated deliveries of all streams."""
        return sum(self.duplicates_of)


def n_counted(events: pa.Table) -> int:
    """Return the number of events; an event in several partitions counts once, a version does not count."""
    counts = np.ones(events.num_rows, np.bool_)
    if VERSION_COLUMN in events.column_names:
        counts &= np.asarray(events.column(VERSION_COLUMN)) == 0
    if COUNTED_COLUMN in events.column_names:
        counts &= np.asarray(events.column(COUNTED_COLUMN))
    return int(counts.sum())
