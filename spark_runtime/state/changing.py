"""A change of rules, in the micro-batch that takes over the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import changed_state
from spark_runtime.state.warming import WarmRules


@dataclass(frozen=True, slots=True)
class ChangedRules:
    """What the operator must know to continue with the state of other rules.

    - `before`: the rules whose state it is.
    - `begins_us`: see `snapshots.changed_state`.
    - `batch`: the micro-batch in which each key group is called and takes over its state.
    - `warm`: the new rules that begin with a past; None: all begin without one.
    """

    before: RuleSet
    begins_us: int
    batch: int
    warm: WarmRules | None = None

    @property
    def from_us(self) -> int | None:
        """The time from which on these rules know the past; None: they know all of it."""
        return None if self.warm is None else self.warm.from_us

    @property
    def warm_rules(self) -> frozenset[str]:
        """The new rules that begin with a past."""
        return frozenset() if self.warm is None else self.warm.rules

    def state(self, group: int, data: bytes | None, now: RuleSet, n_groups: int) -> bytes:
        """Convert the state of a key group to that of the rules `now`; see `snapshots.changed_state`."""
        past = None if self.warm is None else self.warm.past(group)
        return changed_state(data, self.before, now, n_groups, self.begins_us, past)

    def matches(self, group: int) -> Iterator[pa.Table]:
        """Yield the matches of the past that a key group reports."""
        if self.warm is not None:
            yield from self.warm.matches(group)
