"""What rows with corrections come to, for two readers that must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cep.program.program import MATCH
from cep.rule_set import KIND, RETRACT, REVISION

Values = tuple[Any, ...]


class Standing:
    """What two readers of the rows hold to be true.

    One adds up rows, as a sum over a table of all rows does. The other keeps the last revision of each match,
    as a table with a key does.
    """

    def __init__(self, comparable: Callable[[Any], Any] = repr) -> None:
        self.sum: Counter[Values] = Counter()
        self.last: dict[str, tuple[int, list[Values]]] = {}
        self.n_retracted = 0
        self._comparable = comparable

    def read(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in rows in the order in which they were written."""
        for row in rows:
            values = self._values(row)
            match_id, kind, revision = row["match_id"], row[KIND], row[REVISION]
            known, standing = self.last.get(match_id, (-1, []))
            assert revision >= known, "revisions only rise"
            if kind == RETRACT:
                assert self.sum[values] > 0, "what is withdrawn stands"
                assert revision > known or not standing, "a match is withdrawn with a higher revision"
                self.sum[values] -= 1
                self.last[match_id] = (revision, [])
                self.n_retracted += 1
            else:
                assert kind == MATCH
                self.sum[values] += 1
                assert revision > known or standing, "a withdrawn match comes again with a higher revision"
                self.last[match_id] = (revision, [*(standing if revision == known else []), values])

    def check(self, batch: Iterable[Mapping[str, Any]]) -> None:
        """Compare with the rows of a batch."""
        expected = Counter(map(self._values, batch))
        assert +self.sum == expected
        assert Counter(row for _, rows in self.last.values() for row in rows) == expected

    def _values(self, row: Mapping[str, Any]) -> Values:
        return tuple(
            (name, self._comparable(value))
            for name, value in sorted(row.items())
            if name not in (KIND, REVISION)
        )
