"""Late events and versions, in one call of the operator.

The readers of a pipeline decide which events are late. For DataFrames, only the operator knows the watermark.
It gets their events twice: prepared, so that the matchers drop late ones, and complete.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import Mask
from cep.counts import Counts, Loss, Unseen, together, unseen_name
from cep.engine.event_time.watermark import is_late, late_by_us, split_late
from cep.formats.intake import count_late
from cep.program.program import COUNTED_COLUMN, STREAM_COLUMN, TIME_COLUMN
from cep.program.tables import VERSION_COLUMN
from cep.rule_set import RuleSet
from cep.schema.stream import Stream


class Late:
    """Late events and versions of one call.

    `gets_whole`: whether late events are an output, so that complete events arrive, too. `is_first`: whether
    this key group counts the input that all key groups get.
    """

    def __init__(self, rules: RuleSet, *, gets_whole: bool, is_first: bool) -> None:
        self._rules = rules
        self._gets_whole = gets_whole
        self._is_first = is_first
        self._events = [np.zeros(len(program.streams), np.int64) for program in rules.programs]
        self._versions: Counter[str] = Counter()  # by table
        self._of_whole = Counts()
        self._times: dict[str, Unseen] = {}  # by stream or table, without numbers
        self.whole: dict[str, list[pa.Table]] = {}
        """Late events by stream, of those that came whole."""

    def note(self, number: int, late: pa.Table, watermark_us: int) -> None:
        """Record prepared events and versions of program `number` that the watermark had passed."""
        if VERSION_COLUMN in late.column_names:
            late = self._note_versions(number, late)
        if late.num_rows and COUNTED_COLUMN in late.column_names:  # once, even if in several partitions
            late = late.filter(late.column(COUNTED_COLUMN))
        if late.num_rows and self._gets_whole:  # `judge` counts all but those within the correction time
            final_us = watermark_us - self._rules.counted_us
            late = late.filter(pc.greater(late.column(TIME_COLUMN), final_us))
        if late.num_rows:
            n_streams = len(self._rules.programs[number].streams)
            stream = (
                np.asarray(late.column(STREAM_COLUMN)) if n_streams > 1 else np.zeros(len(late), np.int64)
            )
            self._events[number] += np.bincount(stream, minlength=n_streams)
            for at in np.unique(stream).tolist():
                self._note_times(self._rules.programs[number].streams[at].name, late, stream == at)

    def _note_versions(self, number: int, late: pa.Table) -> pa.Table:
        """Count the late versions of tables; return the late events."""
        version = np.asarray(late.column(VERSION_COLUMN))
        tables = self._rules.programs[number].joins.tables
        counts = np.bincount(np.abs(version), minlength=len(tables) + 1)
        found: Counter[str] = Counter()
        for joined, n in zip(tables, counts[1:].tolist(), strict=True):
            # A version that all key groups get counts once, however many key groups and rules there are.
            if n and not self._gets_whole and (joined.is_co_partitioned or self._is_first):
                found[joined.table.name] = max(found[joined.table.name], n)
        for at in np.unique(np.abs(version)).tolist():
            if at and found[tables[at - 1].table.name]:
                self._note_times(tables[at - 1].table.name, late, np.abs(version) == at)
        self._versions |= found
        return late.filter(pa.array(version == 0))

    def _note_times(self, name: str, late: pa.Table, rows: Mask) -> None:
        times_us = np.asarray(late.column(TIME_COLUMN))[rows]
        span = 0, int(times_us.min()), int(times_us.max())
        self._times[name] = together(self._times.get(name, span), span)

    def judge(self, stream: Stream, events: pa.Table, watermark_us: int) -> None:
        """Keep and count the late ones among the complete `events`."""
        time_us = np.asarray(events.column(stream.event_time))
        late_us = late_by_us(time_us, watermark_us)
        _, late = split_late(events, late_us, stream, self._rules.counted_us)
        self._of_whole.corrected += int(is_late(late_us).sum()) - late.num_rows
        if late.num_rows:
            self.whole.setdefault(stream.name, []).append(late)
            self._of_whole.add(count_late(late, stream, self._rules.keys_of(stream)))

    def counts(self) -> Counts:
        """Return the counts of late rows. An event that rules with different keys miss counts once."""
        counts = Counts(late_of=dict(self._versions))
        met = self._rules.events_met([late.tolist() for late in self._events])
        counts.add(Counts(late_of={stream: n for stream, n in met.items() if n}))
        for name, n in counts.late_of.items():
            counts.unseen[unseen_name(Loss.LATE, name)] = together(self._times[name], (n, None, None))
        counts.add(self._of_whole)
        return counts
