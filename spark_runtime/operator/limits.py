"""Limits of a pipeline over all keys, and how each key group enforces its share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.counts import Counts, Loss, largest, unseen_name
from cep.engine.matching.shedding import MOST_KEYS, DropOrder, Dropped, dropped_first
from cep.errors import StateError
from cep.program.opcodes import SEVERITIES
from cep.rule_set import KIND, RETRACT, RuleSet

if TYPE_CHECKING:
    from cep.engine.chains.chain import Chain

HOT_PERCENT = 20
"""The usual share above which a key is hot, in percent."""


_MB = 1 << 20
_OF_MATCHES = ("matches", "alerts_per_day")


class Then(StrEnum):
    """What happens beyond a limit."""

    FAIL = "fail"
    OLDEST = "drop_oldest"
    NEWEST = "drop_newest"
    SEVERITY = "drop_least_severe"


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of all key groups together, and what happens beyond it."""

    at_most: int
    then: Then = Then.FAIL

    def order(self, rules: RuleSet) -> DropOrder:
        """Return what is dropped first. Shadow rules alert nobody, so they are below every severity."""
        ranks: dict[str, int] = {}
        if self.then is Then.SEVERITY:
            ranks = {r.name: -1 if r.is_shadow else SEVERITIES.index(r.severity) for r in rules.rules}
        return DropOrder(ranks, self.then is Then.NEWEST)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a pipeline; None: there is none.

    Parameters
    ----------
    open_runs
        Open runs of all rules after a micro-batch.
    matches
        Matches and timeouts of a micro-batch, without rows of views.
    run_mb
        Megabytes of memory of these runs, with the events that they have taken.
    waiting_events
        Events that wait for the watermark after a micro-batch.
    alerts_per_day
        Matches and timeouts of a rule that end in one day (`spark_runtime.operator.daily`).
    state_mb
        Megabytes of all state, as it is stored.
    hot_percent
        A key with more of the events, or of the open runs of a rule, is hot.
    """

    open_runs: Limit | None = None
    matches: Limit | None = None
    run_mb: Limit | None = None
    waiting_events: Limit | None = None
    hot_percent: int | None = None
    alerts_per_day: Limit | None = None
    state_mb: Limit | None = None

    def __bool__(self) -> bool:
        return self != Limits(hot_percent=self.hot_percent)

    def by_name(self) -> dict[str, Limit]:
        """Return the limits that are set, by their names in a pipeline file."""
        found = {
            "open_runs": self.open_runs,
            "open_runs_mb": self.run_mb,
            "waiting_events": self.waiting_events,
            "matches": self.matches,
            "alerts_per_day": self.alerts_per_day,
            "state_mb": self.state_mb,
        }
        return {name: limit for name, limit in found.items() if limit is not None}


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The limits for key group `group` of `n_groups`: its share of each."""

    limits: Limits
    n_groups: int
    group: int
    rules: RuleSet

    def share(self, limit: Limit) -> int:
        """Return how much of a limit the key group has."""
        return max(limit.at_most // self.n_groups, 1)

    def shed(self, chain: Chain, counts: Counts) -> None:
        """Drop the open runs beyond the limits, and count them. `chain` counts them by rule.

        Raises StateError (E0722): there are more, and the pipeline should fail.
        """
        limit = self.limits.open_runs
        if limit is not None and limit.then is Then.FAIL:
            self.require("open_runs", "open runs", limit, chain.open_runs)
        elif limit is not None:
            note("open_runs", chain.shed_runs(self.share(limit), limit.order(self.rules)), counts)
        self._shed_waiting(chain, counts)
        limit = self.limits.run_mb
        if limit is None:
            return
        share = max(limit.at_most * _MB // self.n_groups, 1)
        while (n_bytes := chain.run_bytes) > share and (n := sum(chain.open_runs.values())):
            if limit.then is Then.FAIL:
                raise self.beyond(
                    "open_runs_mb", f"{n:,} open runs of {n_bytes:,} bytes", share, chain.open_runs
                )
            # Runs of different rules differ in size, so this may take several turns.
            most = min(n * share // n_bytes, n - 1)
            note("open_runs_mb", chain.shed_runs(most, limit.order(self.rules)), counts)

    def _shed_waiting(self, chain: Chain, counts: Counts) -> None:
        limit = self.limits.waiting_events
        if limit is None or sum(matcher.n_waiting for matcher in chain.matchers) <= self.share(limit):
            return
        if limit.then is Then.FAIL:
            self.require("waiting_events", "waiting events", limit, chain.waiting_events)
            return
        dropped = chain.shed_waiting(self.share(limit), limit.order(self.rules))
        of_streams = {stream: n for stream, (n, *_) in dropped.by_stream.items()}
        if of_streams:
            unseen = {unseen_name(Loss.DROPPED_EVENTS, name): at for name, at in dropped.by_stream.items()}
            beyond = {"waiting_events": sum(of_streams.values())}
            found = Counts(dropped_events=of_streams, dropped_keys=dropped.by_key, beyond=beyond)
            found.unseen.update(unseen)
            counts.add(found)

    def require_state(self, n_bytes: int, chain: Chain) -> None:
        """Raise StateError if the key group has more bytes of state than its share (E0722)."""
        limit = self.limits.state_mb
        if limit is None or n_bytes <= (share := max(limit.at_most * _MB // self.n_groups, 1)):
            return
        # Whoever reads the settings of a pipeline loads this module, and needs no engine.
        from spark_runtime.state.heaviest import heaviest
        from spark_runtime.state.snapshots import encode_state

        raise StateError(
            "E0722",
            f"key group {self.group} has {n_bytes:,} bytes of state, and its share of `limits: state_mb` is "
            f"{share:,}. {heaviest(encode_state(chain.matchers, self.n_groups), self.rules)}",
            "raise the limit, shorten the windows of the rules, or let `limits: open_runs` drop runs",
        )

    def require(self, name: str, what: str, limit: Limit, by_rule: dict[str, int]) -> None:
        """Raise StateError if the rules have more than the share (E0722)."""
        n, most = sum(by_rule.values()), self.share(limit)
        if n > most:
            raise self.beyond(name, f"{n:,} {what}", most, by_rule)

    def beyond(self, name: str, what: str, most: int, by_rule: dict[str, int]) -> StateError:
        """Return the error for a key group that has more than its share (E0722)."""
        rule, n_of_rule = next(iter(largest(by_rule, 1).items()))
        return StateError(
            "E0722",
            f"key group {self.group} has {what}, {n_of_rule:,} of them of rule `{rule}`, "
            f"and its share of `limits: {name}` is {most:,}",
            "raise the limit, shorten the windows of the rules, or say what is lost: then: drop_oldest",
        )


def note(name: str, dropped: Dropped, counts: Counts) -> None:
    """Count what was dropped beyond the limit `name`."""
    if dropped.by_rule:
        found = Counts(beyond={name: sum(dropped.by_rule.values())}, dropped_keys=dropped.by_key)
        if name in _OF_MATCHES:
            found.dropped_matches = dropped.by_rule
        counts.add(found)


class KeptMatches:
    """The matches of one call of a key group within its limit. The choice depends only on the matches.

    A match has one row or more. Rows of views are not limited, because each row depends on the one before it.
    """

    def __init__(self, of_group: GroupLimits, limit: Limit) -> None:
        self._of_group = of_group
        self._limit = limit
        self._most = of_group.share(limit)
        self._order = limit.order(of_group.rules)
        self._tables: list[pa.Table] = []
        self._n_rows = 0
        self.dropped = Dropped()

    def add(self, matches: pa.Table) -> None:
        """Add a table (`carried_schema`)."""
        self._tables.append(matches)
        self._n_rows += matches.num_rows
        if self._n_rows > 2 * self._most + _FEW_ROWS:
            self._drop()

    def tables(self) -> Iterator[pa.Table]:
        """Yield the matches that remain, in the order in which they were found."""
        if self._n_rows > self._most:
            self._drop()
        yield from self._tables

    def _drop(self) -> None:
        found = pa.concat_tables(self._tables).combine_chunks()
        rows = limited_rows(found, self._of_group.rules)
        matches = found.take(pa.array(rows))
        codes, first_rows = numbered(matches)
        excess = len(first_rows) - self._most
        if excess > 0:
            firsts = matches.select(["rule", "match_end"]).take(pa.array(first_rows))
            names = firsts.column("rule").combine_chunks().dictionary_encode()
            if self._limit.then is Then.FAIL:
                self._of_group.require("matches", "matches", self._limit, _by_name(names))
            ranks = np.array([self._order.ranks.get(name, 0) for name in names.dictionary.to_pylist()])
            of_rule = np.asarray(names.indices)
            ends_us = np.asarray(firsts.column("match_end").cast(pa.int64()))
            dropped = dropped_first(excess, ranks[of_rule], ends_us, newest=self._order.newest)
            count_dropped(matches.take(pa.array(first_rows[dropped])), self._of_group.rules, self.dropped)
            keeps = np.ones(found.num_rows, np.bool_)
            keeps[rows[dropped[codes]]] = False
            found = found.filter(pa.array(keeps))
        self._tables, self._n_rows = [found], found.num_rows


_FEW_ROWS = 4096


def limited_rows(found: pa.Table, rules: RuleSet) -> I64:
    """Return the rows of matches (`carried_schema`) that limits count.

    These are all rows, except those of views and those that withdraw matches.
    """
    views = pa.array([rule.name for rule in rules.rules if rule.is_view], pa.string())
    counts = np.asarray(pc.invert(pc.is_in(found.column("rule"), views)))
    if rules.corrections is not None:
        counts = counts & np.asarray(pc.not_equal(found.column(KIND), RETRACT))
    return np.flatnonzero(counts)


def numbered(matches: pa.Table) -> tuple[I64, I64]:
    """Return the number of the match of each row, and the first row of each match."""
    codes = np.asarray(matches.column("match_id").combine_chunks().dictionary_encode().indices)
    return codes, np.unique(codes, return_index=True)[1]


def count_dropped(matches: pa.Table, rules: RuleSet, found: Dropped) -> None:
    """Count dropped matches, one row for each, by rule and, for the keys that lose most, by key."""
    by_rule, by_key = found.by_rule, found.by_key
    for program in rules.programs:
        for rule in program.rules:
            own = matches.filter(pc.equal(matches.column("rule"), rule.name))
            if own.num_rows:
                by_rule[rule.name] = by_rule.get(rule.name, 0) + own.num_rows
                for key, n in _heaviest(own, program.key):
                    name = f"{rule.name}: {key}"
                    by_key[name] = by_key.get(name, 0) + n


def _by_name(names: pa.DictionaryArray) -> dict[str, int]:
    counted = np.bincount(np.asarray(names.indices))
    return dict(zip(names.dictionary.to_pylist(), counted.tolist(), strict=True))


def _heaviest(rows: pa.Table, key: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the keys with the most rows, in words, and how many each has."""
    found = rows.select(list(key)).group_by(list(key)).aggregate([([], "count_all")])
    for row in found.sort_by([("count_all", "descending")]).slice(0, MOST_KEYS).to_pylist():
        yield ", ".join(f"{name} = {row[name]}" for name in key), row["count_all"]
