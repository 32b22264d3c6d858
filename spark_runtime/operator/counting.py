"""The counters of matchers, as the `Counts` of one call of the operator.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

import copy

from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.matching.counters import Counters


class MatcherCounts:
    """The counters of the matchers of `chain`, relative to their current values."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._before = [copy.deepcopy(matcher.counters) for matcher in chain.matchers]
        self._duplicates = chain.duplicates_of()

    def added(self) -> Counts:
        """Return what was added to the counters since."""
        new_duplicates = [
            [n - n_before for n, n_before in zip(new, old, strict=True)]
            for old, new in zip(self._duplicates, self._chain.duplicates_of(), strict=True)
        ]
        counts = Counts(duplicates_of=self._chain.rules.met_by_program(new_duplicates))
        uncorrected = []
        for old, matcher in zip(self._before, self._chain.matchers, strict=True):
            new = matcher.counters
            counts.add(_by_rule(old, new))
            uncorrected.append(new.uncorrected - old.uncorrected)
        counts.uncorrected = max(uncorrected)
        counts.corrected = -max(uncorrected)  # the reader counted them, not knowing that they were too late
        return counts


def _by_rule(old: Counters, new: Counters) -> Counts:
    """Return what was added to counters of a matcher that are split by rule."""

    def added(name: str) -> dict[str, int]:
        before: dict[str, int] = getattr(old, name)
        after: dict[str, int] = getattr(new, name)
        return {rule: n - before[rule] for rule, n in after.items() if n != before[rule]}

    return Counts(
        matches=added("matches"),
        timeouts=added("timeouts"),
        suppressed=added("suppressed"),
        dropped_runs=added("dropped_runs"),
        retracted=added("retracted"),
    )
