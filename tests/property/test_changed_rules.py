"""Rules that keep their state report what they would have reported had they always run.

The examples are the same each time; `python -m tests.property --only "changed rules"` draws new ones.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings

from tests.property.changed_rules import TALLY, Changed, ChangedRules, both, changed_sets, compiled
from tests.property.test_engine import GATE
from tests.property.variants import Pool, fill

KIND = ChangedRules(changed_sets())


def test_rules_that_change_report_what_new_and_old_rules_would() -> None:
    TALLY.clear()

    @settings(GATE, max_examples=30)
    @given(changed_sets())
    def compare(case: Changed) -> None:
        sets = compiled(case)
        pool: Pool = {}
        fill(pool, case.case)
        for one in (case, *KIND.derived(case, pool, Random(len(case.case.events)), 6)):
            expected, found = both(one, sets)
            assert found == expected, one

    compare()
    # Verdicts without matches test nothing.
    for verdict in ("same", "words", "measures", "changed", "new"):
        assert TALLY[f"matches of {verdict}"] > 10, TALLY
