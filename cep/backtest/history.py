"""Rules over events of the past: the alerts of a range of dates and of a sample of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.backtest.sampling import Sample
from cep.counts import Counts
from cep.formats.chunks import Chunk
from cep.local.match_file import match_chunks
from cep.rule_set import KIND, RETRACT, RuleSet
from cep.schema.stream import Stream

DAY_US = 86_400_000_000

Chunks: TypeAlias = Mapping[str, Iterable[Chunk]]
"""The events of each stream, by its name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which alerts count.

    `from_us` and `to_us`: those that end at or after the one time, before the other, in microseconds since
    1970; None: no bound. `margin_us`: events that are further outside of the range are not read; None: all
    are read. `sample`: those of these keys; None: of all keys.
    """

    from_us: int | None = None
    to_us: int | None = None
    margin_us: int | None = None
    sample: Sample | None = None

    @property
    def share(self) -> float:
        """The share of all keys that are in the sample."""
        return 1.0 if self.sample is None else self.sample.share

    def within(self, times_us: I64, margin_us: int = 0) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which times are in the range, or outside of it by at most `margin_us`."""
        found = np.ones(len(times_us), np.bool_)
        if self.from_us is not None:
            found &= times_us >= self.from_us - margin_us
        if self.to_us is not None:
            found &= times_us < self.to_us + margin_us
        return found


@dataclass(slots=True)
class Extent:
    """The number of events in the range, and the times of the first and the last, counted during reading."""

    scope: Scope
    n_events: int = 0
    first_us: int | None = None
    last_us: int | None = None
    read: tuple[int, int] | None = None

    def add(self, times_us: I64) -> None:
        """Count those of these times that are in the range."""
        if len(times_us):
            first, last = self.read or (times_us[0], times_us[0])
            self.read = min(int(times_us.min()), first), max(int(times_us.max()), last)
            times_us = times_us[self.scope.within(times_us)]
        self.n_events += len(times_us)
        if len(times_us):
            first, last = int(times_us.min()), int(times_us.max())
            self.first_us = first if self.first_us is None else min(first, self.first_us)
            self.last_us = last if self.last_us is None else max(last, self.last_us)


@dataclass(frozen=True, slots=True)
class Backtest:
    """The alerts of `rules` over history.

    - `matches`: the matches that count (`RuleSet.match_schema`), in order.
    - `n_events`: the events of the sample in the range of dates.
    - `from_us`, `to_us`: the range; without bounds, the times of the first and the last event.
    - `share`: the share of the keys in the sample.
    - `read`: the times of the first and the last event of the files, in the range or not; None: not known.
    """

    rules: RuleSet
    matches: pa.Table
    counts: Counts
    n_events: int
    from_us: int
    to_us: int
    share: float
    read: tuple[int, int] | None = None

    @property
    def has_range(self) -> bool:
        """Whether the range is known: without events and bounds there is none."""
        return bool(self.n_events or self.from_us or self.to_us)

    @property
    def days(self) -> float:
        """The length of the range in days; less than a day counts as one."""
        return max((self.to_us - self.from_us) / DAY_US, 1.0)

    @property
    def names(self) -> tuple[str, ...]:
        """The rules, in the order in which they are written."""
        return tuple(rule.name for rule in self.rules.rules)

    @property
    def alerts(self) -> pa.Table:
        """See `alerts_of`."""
        return alerts_of(self.rules, self.matches)

    def a_day(self, n_alerts: float) -> float:
        """Return how many alerts a day all keys would give if those of the sample give `n_alerts`."""
        return n_alerts / self.days / self.share


def backtest(rules: RuleSet, chunks: Chunks, scope: Scope) -> Backtest:
    """Return the alerts of `rules` over all events of `chunks` that are in `scope`.

    The input is complete, as in `match_chunks`, and shadow rules count like other rules. Rules also see the
    events before and after the range of dates, so the alerts are those of a run over everything that end in
    the range.
    """
    of_events, of_versions = Extent(scope), Extent(scope)
    wanted = {
        name: _scoped(rules.inputs[name], of, scope, of_events if name in rules.streams else of_versions)
        for name, of in chunks.items()
    }
    result = match_chunks(rules.without_shadow(), wanted)
    extent = of_events if rules.streams else of_versions  # views alone read no events
    from_us = scope.from_us if scope.from_us is not None else extent.first_us
    to_us = scope.to_us if scope.to_us is not None else extent.last_us
    return Backtest(
        rules=rules,
        matches=in_scope(rules, result.matches, scope),
        counts=result.counts,
        n_events=extent.n_events,
        from_us=from_us if from_us is not None else to_us or 0,
        to_us=to_us if to_us is not None else from_us or 0,
        share=scope.share,
        read=extent.read,
    )


def in_scope(rules: RuleSet, matches: pa.Table, scope: Scope) -> pa.Table:
    """Return the matches that count."""
    if scope.from_us is not None or scope.to_us is not None:
        matches = matches.filter(pa.array(scope.within(times_us(matches, "match_end"))))
    if scope.sample is not None:
        matches = matches.filter(pa.array(scope.sample.has_matches(matches)))
    return matches


def _scoped(stream: Stream, chunks: Iterable[Chunk], scope: Scope, extent: Extent) -> Iterator[Chunk]:
    """Yield the chunks of a stream with the events that are read. A table is read as a whole."""
    for chunk in chunks:
        events = chunk.events
        if stream.table is not None:
            times = np.asarray(events.column(stream.event_time), np.int64)
            extent.add(times)
            yield chunk
            continue
        if scope.sample is not None:
            keep = scope.sample.has(events, scope.sample.of_streams[stream.name])
            events = events.filter(pa.array(keep))
        times = np.asarray(events.column(stream.event_time), np.int64)
        extent.add(times)
        if scope.margin_us is not None:
            events = events.filter(pa.array(scope.within(times, scope.margin_us)))
        yield chunk if events is chunk.events else replace(chunk, events=events)


def alerts_of(rules: RuleSet, matches: pa.Table) -> pa.Table:
    """Return one row for each match: rule, key, match_id, start_us, end_us.

    `key` is a string: the values of the key, separated by commas; in one of several values, a comma is
    `\\,`. A match with a row for each event has one row here. Timeouts are alerts, too, and so is each new or
    changed row of a view. Withdrawn rows are left out.
    """
    if KIND in matches.column_names:
        matches = matches.filter(pc.fill_null(pc.not_equal(matches.column(KIND), RETRACT), True))
    found = pa.table(
        {
            "rule": matches.column("rule"),
            "key": _keys(rules, matches),
            "match_id": matches.column("match_id"),
            "start_us": times_us(matches, "match_start"),
            "end_us": times_us(matches, "match_end"),
        }
    )
    if not any(rule.all_rows for rule in rules.rules):
        return found
    alerts = found.select(["match_id", "end_us"]).append_column("row", pa.array(np.arange(len(found))))
    first = alerts.group_by(["match_id", "end_us"]).aggregate([("row", "min")]).column("row_min")
    return found.take(pa.array(np.sort(first.to_numpy())))


def _keys(rules: RuleSet, matches: pa.Table) -> pa.Array:
    """Return the key of each match as text, in the order of its PARTITION BY."""
    key = pa.array([""] * len(matches), pa.string())
    for program in rules.programs:
        names = pa.array([rule.name for rule in program.rules])
        parts = [matches.column(name).cast(pa.string()) for name in program.key]
        if len(parts) > 1:  # ("a,b", "c") and ("a", "b,c") are two keys
            parts = [pc.replace_substring_regex(part, r"([\\,])", r"\\\1") for part in parts]
        if parts:  # "skip" leaves out the rows of other rules if there is one column
            texts = pc.binary_join_element_wise(*parts, ",", null_handling="replace", null_replacement="")
            key = pc.if_else(pc.is_in(matches.column("rule"), names), texts, key)
    return key


def times_us(table: pa.Table, name: str) -> I64:
    """Return a column of timestamps as microseconds since 1970."""
    times: I64 = table[name].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return times


def day_of(time_us: int) -> str:
    """Return the date of a time in UTC: ``2024-05-01``."""
    return (date(1970, 1, 1) + timedelta(days=time_us // DAY_US)).isoformat()


def kept(chunks: Chunks) -> dict[str, list[Chunk]]:
    """Return all events in memory, to be matched several times."""
    return {name: list(of_stream) for name, of_stream in chunks.items()}
