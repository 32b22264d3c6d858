"""Views have the changes of the oracle, however the versions are delivered.

The examples are the same each time; `python -m tests.property --only views` draws new ones.
"""

from __future__ import annotations

from hypothesis import given, settings

from tests.deep import n_cases
from tests.property.test_engine import GATE
from tests.property.views import (
    ViewCase,
    by_instant,
    deliver,
    engine_rows,
    in_time,
    oracle_rows,
    programs_of,
    smaller,
    view_cases,
)

SOME = settings(GATE, max_examples=n_cases(30))


@SOME
@given(view_cases())
def test_a_view_has_the_changes_of_the_oracle(case: ViewCase) -> None:
    for programs in (programs_of(case), programs_of(case, optimize=False)):
        if engine_rows(case, programs) != oracle_rows(case):
            case = smaller(case, lambda less: engine_rows(less, programs) != oracle_rows(less))  # noqa: B023
            assert engine_rows(case, programs) == oracle_rows(case), case


@SOME
@given(view_cases())
def test_it_has_the_same_rows_with_the_same_ids_at_once_and_instant_by_instant(case: ViewCase) -> None:
    for program in programs_of(case):
        rows = [repr(row) for row in deliver(program, case).to_pylist()]
        for other in (in_time(case), by_instant(case)):
            assert [repr(row) for row in deliver(program, other).to_pylist()] == rows
