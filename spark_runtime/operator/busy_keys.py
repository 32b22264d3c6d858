"""The key with the most events, and the keys with the most open runs, of a call of a key group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cep.counts import Busy
from cep.engine.matching.matcher import Matcher

FEW = 1000
"""A key with fewer events of a micro-batch, or open runs, is not hot, whatever its share is."""

RUNS = "open runs of "


def watch_keys(matchers: Iterable[object]) -> None:
    """Let matchers record which keys are busy. Matchers with corrections do not."""
    for matcher in matchers:
        if isinstance(matcher, Matcher):
            matcher.busy_from = FEW


def busy_keys(matchers: Iterable[object], open_runs: Mapping[str, int], percent: int) -> Busy:
    """Return what matchers have recorded since the last call: for all events of a program, and for each rule
    with a key that has more than `percent` of the rule's open runs in the key group (`open_runs`).

    The key is empty if it cannot be hot.
    """
    found: Busy = {}
    for matcher in matchers:
        if not isinstance(matcher, Matcher):
            continue
        noted, matcher.busiest = matcher.busiest, {}
        for name, (n, total, key) in noted.items():
            if name.startswith(RUNS):
                if key and 100 * n > percent * open_runs.get(name.removeprefix(RUNS), 0):
                    found[name] = [n, 0, key]
            elif n > found.get(name, [-1])[0]:  # several programs may read the same streams by the same key
                found[name] = [n, total, key]
    return found
