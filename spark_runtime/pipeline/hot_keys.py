"""Hot keys: those that have a large share of the events of a micro-batch, or of the open runs of a rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cep.counts import Counts, Split
from cep.diagnostics.safe_text import in_short
from spark_runtime.operator.busy_keys import RUNS


@dataclass(frozen=True, slots=True)
class HotKey:
    """A key that has `n` of `total` items, such as the ``events of payments by card``."""

    of: str
    key: str
    n: int
    total: int
    batch: int

    @property
    def share(self) -> float:
        """The share of the key, from 0 to 1."""
        return self.n / self.total

    def __str__(self) -> str:
        return f"{in_short(self.key)} has {self.n:,} of {self.total:,} {self.of}, micro-batch {self.batch}"


def hot_keys(batch: int, counts: Counts, open_runs: Split, percent: int) -> Iterator[HotKey]:
    """Yield the hot keys of micro-batch `batch`, which has `counts`: at most one for each kind of items.

    `open_runs` are all open runs after it, by rule. A key with more than `percent` is hot.
    """
    groups = counts.busy.values()
    for name in dict.fromkeys(name for group in groups for name in group):
        found = [group[name] for group in groups if name in group]
        n, _, key = max(found)
        total = sum(total for _, total, _ in found)
        if name.startswith(RUNS):
            total = open_runs.get(name.removeprefix(RUNS), 0)
        if key and 100 * n > percent * total:
            yield HotKey(name, key, n, max(total, n), batch)
