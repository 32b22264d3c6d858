"""New rules that begin with the past report what they would have reported had they always run.

The examples are the same each time.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings

from cep.engine.event_time.watermark import START_OF_TIME_US
from tests.property.changed_rules import Changed, ChangedRules, changed_sets, compiled
from tests.property.test_engine import GATE
from tests.property.variants import Pool, fill
from tests.property.warm_rules import TALLY, both

KIND = ChangedRules(changed_sets())


def test_new_rules_with_a_past_report_what_they_would_have_reported_had_they_always_run() -> None:
    TALLY.clear()

    @settings(GATE, max_examples=10)
    @given(changed_sets())
    def compare(case: Changed) -> None:
        sets = compiled(case)
        pool: Pool = {}
        fill(pool, case.case)
        random = Random(len(case.case.events))
        for one in (case, *KIND.derived(case, pool, random, 6)):
            times_us = [START_OF_TIME_US, *(event["ts"] for event in one.case.events)]
            from_us = random.choice(times_us) if random.random() < 0.5 else START_OF_TIME_US
            expected, found = both(one, sets, random.choice((1, 2, 5)), from_us)
            assert found == expected, (one, from_us)

    compare()
    # Rules that report nothing in the past, or nothing afterwards, test little.
    assert TALLY["past"] > 10, TALLY
    assert TALLY["live"] > 10, TALLY
