"""Rules that change while late events correct matches report what they had reported had they always run.

These are the same cases each time; `python -m tests.property.corrections --only changes` draws new ones.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.property.changed_corrections import changing, check


def test_after_a_change_every_row_is_that_of_rules_that_always_ran() -> None:
    tally: Counter[str] = Counter()
    for number in range(25):
        check(changing(Random(number)), tally)
    # Verdicts that no case has, and rows that nothing withdraws, test nothing.
    for verdict in ("same", "words", "measures", "changed", "new", "gone"):
        assert tally[f"rules {verdict}"] > 3, tally
    assert tally["rows withdrawn going on"] > 25, tally
    assert tally["rows anew"] > 15, tally
    assert tally["rules with another HAVING"] > 0, tally
