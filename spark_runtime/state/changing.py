"""A change of rules, in the micro-batch that takes the state over."""

from __future__ import annotations

from dataclasses import dataclass

from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import changed_state


@dataclass(frozen=True, slots=True)
class ChangedRules:
    """What the operator must know to continue with state of other rules.

    Parameters
    ----------
    before
        The rules whose state it is.
    begins_us
        See `snapshots.changed_state`.
    batch
        The micro-batch in which each key group is called and takes its state over.
    """

    before: RuleSet
    begins_us: int
    batch: int

    def state(self, data: bytes | None, now: RuleSet, n_groups: int) -> bytes:
        """Return the state of a key group as that of the rules `now`; see `snapshots.changed_state`."""
        return changed_state(data, self.before, now, n_groups, self.begins_us)
