"""With corrections the rows that stand are always the rows of a batch, in whatever order events arrive.

These are the same examples each time; `python -m tests.property.corrections` draws new ones.
"""

from __future__ import annotations

from hypothesis import given, settings

from tests.deep import n_cases
from tests.property.corrected_rules import Correction, check, corrections, lively
from tests.property.test_engine import FEW

MORE = settings(FEW, max_examples=n_cases(100))


@FEW
@given(corrections())
def test_what_stands_is_at_every_moment_what_a_batch_reports(case: Correction) -> None:
    check(case)


@MORE
@given(lively())
def test_what_stands_is_what_a_batch_reports_where_late_events_change_many_matches(case: Correction) -> None:
    check(case)
