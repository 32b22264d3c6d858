"""Corrections of rules over rules: what stands after each call is what a batch reports."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deep import n_cases
from tests.property.chained_corrections import check, linked, lively
from tests.property.corrected_rules import Correction
from tests.property.test_engine import SLOW


@settings(
    max_examples=n_cases(40), deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
@given(st.one_of(linked(), lively(), lively()))
def test_what_stands_is_what_a_batch_reports(case: Correction) -> None:
    check(case)
