"""Two rule sets over the same events: which matches are new and which disappear, by rule, key and day.

compared = compare(before, matches_before, now, matches_now)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from cep.rule_set import KIND, RETRACT, REVISION, RuleSet

Key: TypeAlias = tuple[tuple[str, Any], ...]
"""Names and values of the columns of PARTITION BY."""


@dataclass(frozen=True, slots=True)
class Fired:
    """The matches of one rule and key that end on one day (UTC), before and now.

    `same`: matches of both, with the same `match_id`. `moved`: matches of both that overlap in time, but
    consist of other events: as many pairs as possible, on the day of the match that exists now. `newly`: the
    other matches that exist only now. `no_longer`: the other matches that existed only before.
    """

    rule: str
    key: Key
    day: str
    same: int = 0
    moved: int = 0
    newly: int = 0
    no_longer: int = 0

    @property
    def is_same(self) -> bool:
        """Whether nothing differs."""
        return not (self.moved or self.newly or self.no_longer)


class _Match(NamedTuple):
    start: datetime
    end: datetime
    id: str


def compare(
    before: RuleSet, matches_before: pa.Table, now: RuleSet, matches_now: pa.Table
) -> tuple[Fired, ...]:
    """Return what two rule sets report for the same events, by rule, key and day, in this order.

    `matches_before` and `matches_now`: their matches (`RuleSet.match_schema`), in any order. A row that was
    withdrawn does not count. If a match has a row for each event, only one row counts.
    """
    then, after = _by_key(before, matches_before), _by_key(now, matches_now)
    counts: dict[tuple[str, Key, str], Counter[str]] = {}
    for rule, key in dict.fromkeys((*then, *after)):
        for word, match in _judged(then.get((rule, key), set()), after.get((rule, key), set())):
            day = match.end.astimezone(UTC).date().isoformat()
            counts.setdefault((rule, key, day), Counter())[word] += 1
    return tuple(Fired(*place, *_in_order(counts[place])) for place in sorted(counts, key=repr))


def by_rule(compared: Iterable[Fired]) -> dict[str, Fired]:
    """Return the sums over all keys and days, by rule."""
    sums: dict[str, Counter[str]] = {}
    for item in compared:
        of_rule = sums.setdefault(item.rule, Counter())
        of_rule.update(same=item.same, moved=item.moved, newly=item.newly, no_longer=item.no_longer)
    return {rule: Fired(rule, (), "", *_in_order(found)) for rule, found in sums.items()}


def _in_order(counts: Counter[str]) -> tuple[int, int, int, int]:
    return counts["same"], counts["moved"], counts["newly"], counts["no_longer"]


def _by_key(rules: RuleSet, matches: pa.Table) -> Mapping[tuple[str, Key], set[_Match]]:
    """Return the matches of each rule and key that were not withdrawn."""
    keys = {rule.name: program.key for program in rules.programs for rule in program.rules}
    names = {"rule", "match_id", "match_start", "match_end", *(name for key in keys.values() for name in key)}
    has_kinds = {KIND, REVISION} <= set(matches.column_names)
    names |= {KIND, REVISION} if has_kinds else set()
    latest: dict[tuple[str, Key, _Match], tuple[int, bool]] = {}
    for batch in matches.select(sorted(names)).to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            rule = row["rule"]
            key = tuple((name, row[name]) for name in keys[rule])
            match = _Match(row["match_start"], row["match_end"], row["match_id"])
            state = (row[REVISION] or 0, row[KIND] == RETRACT) if has_kinds else (0, False)
            place = (rule, key, match)
            latest[place] = max(latest.get(place, state), state)
    found: dict[tuple[str, Key], set[_Match]] = {}
    for (rule, key, match), (_, is_withdrawn) in latest.items():
        if not is_withdrawn:
            found.setdefault((rule, key), set()).add(match)
    return found


def _judged(then: set[_Match], now: set[_Match]) -> Iterator[tuple[str, _Match]]:
    """Yield the matches of one rule and key, each with the count of `Fired` that it belongs to.

    As many of those that differ as possible are pairs that overlap. In the order of their ends, each match is
    paired with the waiting one of the other side that ends first: those that end later overlap all later
    matches that this one overlaps.
    """
    yield from (("same", match) for match in then & now)
    gone, new = _Waiting("no_longer"), _Waiting("newly")
    sides = [(match, gone, new) for match in then - now] + [(match, new, gone) for match in now - then]
    for match, own, other in sorted(sides, key=lambda side: (side[0].end, side[0], side[1].word)):
        partner = other.take(match.start)
        if partner is None:
            own.add(match)
        else:
            yield "moved", match if own is new else partner
    for side in (gone, new):
        yield from ((side.word, match) for match in side.left)


class _Waiting:
    """Matches of one side, in the order of their ends, that may still be paired.

    `word`: the count of those that remain.
    """

    def __init__(self, word: str) -> None:
        self.word = word
        self._matches: list[_Match] = []
        self._next = [0]  # by place: itself if its match waits or is yet to come, else a later place

    @property
    def left(self) -> list[_Match]:
        """The matches that were not taken."""
        return [match for place, match in enumerate(self._matches) if self._next[place] == place]

    def add(self, match: _Match) -> None:
        """Add a match that ends no earlier than all others."""
        self._matches.append(match)
        self._next.append(len(self._matches))

    def take(self, start: datetime) -> _Match | None:
        """Remove and return the match that ends first of those that end at `start` or later; None: none."""
        place = self._waits(bisect_left(self._matches, start, key=lambda match: match.end))
        if place == len(self._matches):
            return None
        self._next[place] = place + 1
        return self._matches[place]

    def _waits(self, place: int) -> int:
        """Return the first place from `place` on whose match was not taken; shorten the way to it."""
        while (after := self._next[place]) != place:
            self._next[place] = self._next[after]
            place = self._next[place]
        return place
