"""Key groups whose state moves to another number of groups, beside groups that stay: the same matches.

As in a stream on Spark, a key group is called when it gets rows or its deadline is reached, so groups reach
different event times. The state goes through files, as a restored checkpoint has them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from cep.counts import Counts
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.formats.chunks import Chunk
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.local.given_events import event_table
from cep.rule_set import KIND, RETRACT, REVISION, RuleSet
from spark_runtime.operator.call import Moment
from spark_runtime.operator.operator import KeyGroups
from spark_runtime.state.restored import Restored, add_part
from spark_runtime.state.snapshots import divided_state
from spark_runtime.wire.packer import Packer, groups_of
from spark_runtime.wire.parcels import GROUP, Contents, Parcel, of_batch
from tests.property.cases import try_cases
from tests.property.kept_state import Input, inputs_of
from tests.property.strategies.late import PLENTY, Arrival, Late


class Groups:
    """The key groups of a stream, and what they reported."""

    def __init__(self, rules: RuleSet, n_groups: int) -> None:
        self.rules = rules
        self.watermark_us: int | None = None
        self.found: Counter[str] = Counter()  # what was reported and not withdrawn
        self._begin(n_groups, None)

    def _begin(self, n_groups: int, restored: Restored | None) -> None:
        self.packer = Packer(self.rules, tuple(range(n_groups)))
        self.operator = KeyGroups(self.rules, n_groups, restored=restored)
        self.values: dict[int, bytes] = {}
        self.deadlines: dict[int, int | None] = {}

    def call(self, given: Input) -> None:
        """Do a micro-batch."""
        rows_of, reached_us = given
        of_group: dict[int, list[Parcel]] = {}
        for name, rows in rows_of:
            stream = self.rules.inputs[name]
            chunk = Chunk(event_table(stream, rows), DEAD_LETTER_SCHEMA.empty_table())
            for batch in self.packer.chunk(chunk, stream, self.watermark_us, Counts()):
                for group, parcel in zip(batch.column(GROUP).to_pylist(), of_batch(batch), strict=True):
                    of_group.setdefault(group, []).append(parcel)
        if reached_us == END_OF_TIME_US:
            for group in self.packer.labels:
                of_group.setdefault(group, []).append(Parcel(Contents.END_OF_INPUT, None, None, None))
        for group, deadline_us in self.deadlines.items():
            if deadline_us is not None and self.watermark_us is not None and deadline_us <= self.watermark_us:
                of_group.setdefault(group, [])
        for group, parcels in of_group.items():
            self._call(group, parcels, self.watermark_us, None)
        # As in a pipeline, no key group has passed the watermark after a micro-batch.
        times_us = [row[self.rules.inputs[name].event_time] for name, rows in rows_of for row in rows]
        reached = [int(str(us)) - self.rules.lateness_us for us in times_us]
        self.watermark_us = max((us for us in (self.watermark_us, *reached) if us is not None), default=None)

    def _call(self, group: int, parcels: Sequence[Parcel], spark_us: int | None, cap_us: int | None) -> None:
        moment = Moment(group, spark_us, cap_us, None)
        results, self.values[group] = self.operator._call_inline(self.values.get(group), moment, parcels)
        self.deadlines[group] = results.deadline_us
        for table in results.found.matches:
            for row in table.to_pylist():
                sign = -1 if row.pop(KIND, None) == RETRACT else 1
                row.pop(REVISION, None)
                self.found[repr(sorted(row.items()))] += sign

    def rescale(self, n_groups: int, folder: Path, tally: Counter[str]) -> None:
        """Write the state as that of `n_groups` groups; do the first micro-batch of a restored checkpoint."""
        groups = set()
        is_first = True
        for _, value in sorted(self.values.items()):
            parts = divided_state(value, self.rules, groups_of(self.rules, n_groups), n_groups)
            for group, part in enumerate(parts):
                tally["empty parts" if part.is_empty else "parts"] += 1
                if is_first or not part.is_empty:
                    add_part(folder, group, part.data)
                    groups.add(group)
            is_first = False
        restored = Restored(str(folder), frozenset(groups))
        tally["joined"] += sum(len(restored.parts(group)) > 1 for group in groups)
        self._begin(n_groups, restored)
        for group in self.packer.labels:
            self._call(group, (), None, self.watermark_us)


def with_more_keys(case: Late, random: Random) -> Late:
    """Return a case over more keys."""

    def changed(row: dict[str, object]) -> dict[str, object]:
        more: dict[str, object] = {}
        if isinstance(row.get("k"), int):
            more["k"] = int(str(row["k"])) + 2 * random.randrange(4)
        if isinstance(row.get("g"), str):
            more["g"] = str(row["g"]) + random.choice(["", "", "ü", "zz"])
        return row | more

    return replace(case, arrivals=tuple(Arrival(of.name, changed(of.row)) for of in case.arrivals))


def check(case: Late, folder: Path, random: Random, tally: Counter[str]) -> None:
    """Compare all matches of groups that stay, and of groups that move now and then."""
    case = with_more_keys(case, random)
    rules = case.rule_set()
    bound = None if random.random() < 0.6 else replace(case.bound, max_retained=PLENTY)
    rules = rules.with_corrections(bound)
    stay, move = Groups(rules, random.randint(1, 5)), Groups(rules, random.randint(1, 5))
    for number, given in enumerate(inputs_of(case, rules)):
        if number and random.random() < 0.3:
            move.rescale(random.randint(1, 6), folder / str(number), tally)
            tally["moves"] += 1
        stay.call(given)
        move.call(given)
    assert move.found == stay.found
    tally["matches"] += stay.found.total()
    tally["corrected"] += bound is not None


if __name__ == "__main__":
    sys.exit(try_cases("tests.property.rescaled", check))
