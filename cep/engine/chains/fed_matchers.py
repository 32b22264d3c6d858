"""The matchers of programs, some of which read the matches of others, without corrections.

A match becomes an event at its end. When event time has reached w, `Matcher.advance` has returned every match
that ends at or before w, so the readers can be advanced to w right after it. Some rules hold matches back
(`MatchStream.held_us`), so their readers lag by that much (`Chains.lags_us`). A reader gets each match before
its own event time reaches the end of the match, and orders it like any event. Its results depend only on the
events, not on how they were divided into batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.engine.event_time.watermark import END_OF_TIME_US, is_late, late_by_us
from cep.engine.matching.counters import n_counted
from cep.engine.matching.matcher import Emit, Matcher
from cep.engine.prepare.predicates import prepare
from cep.program.chains import Chains, Feed
from cep.program.match_stream import MatchStream
from cep.program.program import EVENT_NUMBER, MATCH, OUTCOME, TIME_COLUMN
from cep.schema.text_values import event_table_schema

Forward = Callable[[int, pa.Table], None]
"""Takes in prepared events of a program, by its number."""


class FedMatchers:
    """The matchers of all programs, in the order in which they read each other.

    `stage`: only the programs of this stage (`Chains.stages`) run; None: all of them. `forward`: receives the
    events for programs of later stages, if `stage` is given.
    """

    def __init__(
        self,
        chains: Chains,
        matchers: Sequence[Matcher],
        stage: int | None = None,
        forward: Forward | None = None,
    ) -> None:
        self.programs = chains.programs
        self.matchers = matchers
        self._lags_us = chains.lags_us
        self._numbers = [number for number in range(len(matchers)) if stage in (None, chains.stages[number])]
        self._feeds = [
            tuple(feed for feed in chains.feeds if feed.source == number) for number in range(len(matchers))
        ]
        self._forward = forward

    @property
    def watermark_us(self) -> int:
        """The event time that the inputs have reached."""
        return max(matcher.watermark_us for matcher in self.matchers)

    def push(self, number: int, events: pa.Table) -> pa.Table:
        """Add prepared events of program `number` in any order; return those that come too late."""
        matcher = self.matchers[number]
        if not self._lags_us[number]:
            return matcher.push(events)
        # The matcher lags, and would accept what is late for all others.
        time_us = np.asarray(events.column(TIME_COLUMN))
        too_late = is_late(late_by_us(time_us, self.watermark_us))
        late = events.slice(0, 0)
        if too_late.any():
            late, events = events.filter(pa.array(too_late)), events.filter(pa.array(~too_late))
        matcher.counters.late += n_counted(late)
        matcher.take_in(events)
        return late

    def advance(self, watermark_us: int, put: Emit, *, in_parts: bool = True) -> None:
        """Advance event time to `watermark_us`; `put` receives the matches, one or more tables of each
        program.

        With `in_parts` a rule emits its matches in large parts (`Matcher.advance`).
        """
        for number in self._numbers:
            take = self._feeding(number, put)
            reach_us = watermark_us
            if watermark_us < END_OF_TIME_US:
                reach_us -= self._lags_us[number]
            take(self.matchers[number].advance(reach_us, take if in_parts else None))

    def next_deadline_us(self) -> int | None:
        """Return the first time at which `advance` has something to do, or None."""
        deadlines = (matcher.next_deadline_us() for matcher in self.matchers)
        found = [us + lag for us, lag in zip(deadlines, self._lags_us, strict=True) if us is not None]
        return min(found, default=None)

    def _feeding(self, number: int, put: Emit) -> Emit:
        """Return a receiver of the matches of program `number`: `put`, and the programs that read them."""
        feeds = self._feeds[number]
        if not feeds:
            return put

        def take(matches: pa.Table) -> None:
            for feed in feeds:
                self._feed(feed, matches)
            put(matches)

        return take

    def _feed(self, feed: Feed, matches: pa.Table) -> None:
        events = events_of_matches(feed.stream, matches)
        if not events.num_rows:
            return
        prepared = prepare(self.programs[feed.target], events, feed.stream)
        if feed.target in self._numbers:
            late = self.matchers[feed.target].push(prepared)
            assert not late.num_rows, f"a match of `{feed.stream.name}` came after its time"
        elif self._forward is not None:
            self._forward(feed.target, prepared)


def events_of_matches(stream: MatchStream, matches: pa.Table) -> pa.Table:
    """Return the matches of the rule `stream.name` as typed events of `stream`.

    Timeouts are not matches. A match that has a row for each of its events is one event.
    """
    keep = pc.equal(matches.column("rule"), stream.name)
    if OUTCOME in matches.column_names:
        keep = pc.and_(keep, pc.equal(matches.column(OUTCOME), MATCH))
    if EVENT_NUMBER in matches.column_names:
        keep = pc.and_(keep, pc.equal(pc.fill_null(matches.column(EVENT_NUMBER), 0), 0))
    found = matches.filter(keep)
    return pa.Table.from_arrays(
        [found.column(item.name).cast(item.type) for item in event_table_schema(stream)],
        schema=event_table_schema(stream),
    )
