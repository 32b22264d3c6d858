"""How many alerts a rule may have in a day, over all keys: the first ones of the day.

A key group has only its own matches, so it keeps the first of each day among them. The driver has those of
all key groups, and knows how many were reported before (`Days`): it keeps the first of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.arrays import I64
from cep.counts import Counts
from cep.engine.matching.shedding import Dropped
from cep.errors import StateError
from cep.rule_set import RuleSet, of_rules
from cep.schema.time_literals import time_for_people
from spark_runtime.operator.limits import Limit, Then, count_dropped, limited_rows, note, numbered

Days = Mapping[str, Mapping[int, int]]
"""How many matches were reported by rule and day. A day is a number of days since 1970, in UTC."""

KEPT_DAYS = 100
"""Days of a rule whose numbers are kept, the latest. A match of an earlier day counts on the first one."""

NAME = "alerts_per_day"

_DAY_US = 86_400_000_000
_FEW_ROWS = 4096


class FirstOfDays:
    """The matches of a micro-batch within the limit of each rule and day, by their `match_end` in UTC.

    The matches of a day that end first remain; if ends are equal, the `match_id` decides. So the choice does
    not depend on the order of the matches. A match has one row or more. Rows of views are not limited.

    Parameters
    ----------
    limit
        How many matches of a rule and day may be reported.
    before
        How many were reported before. A key group, which has some of the matches of the micro-batch, gives
        None.
    """

    def __init__(self, limit: Limit, rules: RuleSet, before: Days | None = None) -> None:
        self._limit = limit
        self._rules = rules
        self._is_part = before is None
        # With one too many, the driver knows that there are too many.
        self._most = limit.at_most + (self._is_part and limit.then is Then.FAIL)
        self._before: Days = before or {}
        self._tables: list[pa.Table] = []
        self._n_rows = 0
        self._n_last = 0
        self._n_dropped_rows = [0, 0]
        self._days = self._before
        self.dropped = Dropped()

    def add(self, matches: pa.Table) -> None:
        """Add a table (`carried_schema`)."""
        self._tables.append(matches)
        self._n_rows += matches.num_rows
        if self._n_rows > 2 * self._n_last + _FEW_ROWS:
            self._drop()

    def tables(self) -> Iterator[pa.Table]:
        """Yield the matches that remain, in the order in which they were added.

        Raises StateError (E0722): there are too many, and the pipeline should fail.
        """
        if self._n_rows:
            self._drop()
        yield from self._tables

    def days(self) -> Days:
        """Return how many matches were reported by rule and day, with those that remain."""
        return {name: _latest(of_rule) for name, of_rule in self._days.items()}

    def counts(self) -> Counts:
        """Return what was dropped from rows that were counted as reported."""
        found = Counts()
        note(NAME, self.dropped, found)
        found.rows, found.shadow_rows = (-n for n in self._n_dropped_rows)
        return found

    def _drop(self) -> None:
        found = pa.concat_tables(self._tables).combine_chunks()
        rows = limited_rows(found, self._rules)
        matches = found.take(pa.array(rows))
        codes, first_rows = numbered(matches)
        firsts = matches.take(pa.array(first_rows))
        drops = self._beyond(firsts)
        if drops.any():
            if self._limit.then is Then.FAIL and not self._is_part:
                raise self._too_many(firsts.filter(pa.array(drops)))
            count_dropped(firsts.filter(pa.array(drops)), self._rules, self.dropped)
            keeps = np.ones(found.num_rows, np.bool_)
            keeps[rows[drops[codes]]] = False
            gone = found.filter(pa.array(~keeps))
            n_shadow = of_rules(gone, self._rules.shadow, gone.schema).num_rows if self._rules.shadow else 0
            self._n_dropped_rows[0] += gone.num_rows - n_shadow
            self._n_dropped_rows[1] += n_shadow
            found = found.filter(pa.array(keeps))
        self._tables, self._n_rows, self._n_last = [found], found.num_rows, found.num_rows

    def _beyond(self, firsts: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return which matches, one row each, are beyond the limit (bool[n]); note the numbers of days."""
        names = firsts.column("rule").combine_chunks().dictionary_encode()
        known = [self._before.get(name, {}) for name in names.dictionary.to_pylist()]
        of_rule = np.asarray(names.indices)
        ends_us = np.asarray(firsts.column("match_end").cast(pa.int64()))
        earliest = np.array([min(days) if len(days) >= KEPT_DAYS else _NEVER for days in known], np.int64)
        days = np.maximum(ends_us // _DAY_US, earliest[of_rule])
        order: I64 = np.asarray(pc.sort_indices(firsts.column("match_id"))).astype(np.int64)
        order = order[np.lexsort((ends_us[order], days[order], of_rule[order]))]
        starts = np.flatnonzero(np.diff(of_rule[order], prepend=-1) | np.diff(days[order], prepend=_NEVER))
        sizes = np.diff(starts, append=len(order))
        reported = {name: dict(of_days) for name, of_days in self._before.items()}
        drops = np.zeros(len(order), np.bool_)
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
            number, day = int(of_rule[order[start]]), int(days[order[start]])
            n_before = known[number].get(day, 0)
            n_more = min(max(self._most - n_before, 0), size)
            drops[order[start + n_more : start + size]] = True
            reported.setdefault(names.dictionary[number].as_py(), {})[day] = n_before + n_more
        self._days = reported
        return drops

    def _too_many(self, beyond: pa.Table) -> StateError:
        """Return the error for matches beyond the limit (E0722)."""
        rule, end_us = beyond.column("rule")[0].as_py(), beyond.column("match_end")[0].as_py()
        day = (time_for_people(end_us) or "")[:10]
        return StateError(
            "E0722",
            f"rule `{rule}` has more than {self._limit.at_most:,} matches of {day} (UTC) over all keys, "
            f"beyond `limits: {NAME}`",
            "raise the limit, let the rule report less, or say what is lost: then: drop_newest",
        )


_NEVER = -(1 << 62)


def _latest(days: Mapping[int, int]) -> dict[int, int]:
    return {day: days[day] for day in sorted(days)[-KEPT_DAYS:]}
