"""New rules that begin with the past: they report what they would have reported had they always run.

The others go on as if no rule had been added.
"""

from __future__ import annotations

from collections import Counter

from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.matching.changed_rules import begun
from cep.engine.matching.matcher import Matcher
from cep.errors import StateError
from cep.program.changes import KEPT, changes_of
from cep.rule_set import RuleSet
from spark_runtime.state.snapshots import (
    Past,
    changed_state,
    decode_state,
    divided_state,
    encode_state,
    joined_state,
)
from spark_runtime.wire.packer import groups_of
from tests.property.changed_rules import Changed, TwoSets, finished, ids_and_rows, stepped
from tests.property.differential import Row, in_order

TALLY: Counter[str] = Counter()
"""By kind of rule, how many matches the cases so far had before the change, and after it."""


def both(case: Changed, sets: TwoSets, n_groups: int, from_us: int) -> tuple[list[Row], list[Row]]:
    """Return what rules report that have always run, and what those report that got the past instead.

    Parameters
    ----------
    n_groups
        The number of key groups in which the state changes.
    from_us
        New rules see the events after it.
    """
    change, now = case.at + 1, sets.now
    changes = changes_of(sets.before.programs, now.programs)
    new = frozenset(name for name, verdict in changes.verdicts.items() if verdict not in KEPT)
    before, _ = stepped(case.case, [Matcher(program) for program in sets.before.programs], 0, change)
    n_events = sum(step.n_events for step in case.case.steps[:change])
    begins_us = max(event["ts"] for event in case.case.events[:n_events])
    past, tables = stepped(case.case, _begun(now, from_us), 0, change)
    try:
        groups = _changed(before, past, sets, n_groups, begins_us, new)
    except StateError:
        assert changes.refusals
        TALLY["refused"] += 1
        return [], []
    live = finished(case, groups, change)
    reported = ids_and_rows(case, tables)
    found = [row for row in live if row[0] not in new] + [row for row in (*reported, *live) if row[0] in new]
    whole, tables = stepped(case.case, _begun(now, from_us), 0, change)
    of_new = (*ids_and_rows(case, tables), *finished(case, whole, change))
    whole, _ = stepped(case.case, [Matcher(program) for program in now.programs], 0, change)
    of_others = finished(case, whole, change)
    for name in new:
        TALLY["past"] += sum(row[0] == name for row in reported)
        TALLY["live"] += sum(row[0] == name for row in live)
    expected = [row for row in of_new if row[0] in new] + [row for row in of_others if row[0] not in new]
    return in_order(expected), in_order(found)


def _begun(rules: RuleSet, from_us: int) -> list[Matcher]:
    """Return matchers of rules that see the events after a time."""
    if from_us == START_OF_TIME_US:
        return [Matcher(program) for program in rules.programs]
    return [Matcher.restore(program, begun(program, from_us)) for program in rules.programs]


def _changed(
    before: list[Matcher], past: list[Matcher], sets: TwoSets, n: int, begins_us: int, new: frozenset[str]
) -> list[Matcher]:
    """Return the matchers after the change, which happens in each of `n` key groups."""
    parts = []
    whole = [encode_state(matchers, n) for matchers in (before, past)]
    of_groups = [
        divided_state(data, rules, groups_of(rules, n), n)
        for data, rules in zip(whole, (sets.before, sets.now), strict=True)
    ]
    for stored, warm in zip(*of_groups, strict=True):
        data = changed_state(stored.data, sets.before, sets.now, n, begins_us, Past(warm.data, new))
        parts.append(decode_state(data, sets.now, n))
    return [of for of in decode_state(joined_state(parts, n), sets.now, n) if isinstance(of, Matcher)]
