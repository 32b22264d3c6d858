"""`cep why` on random rules: it agrees with the engine, and what it says was missing makes the run go on."""

from __future__ import annotations

from cep.why.reasons import Reason
from tests.property import why_rows
from tests.property.why import run, taken


def test_what_was_missing_takes_the_attempt_further() -> None:
    counts = run(examples=60, first_seed=1, plain=True)
    assert counts["cases"] >= 60
    assert counts["conditions"] > 500
    assert counts["matches"] > 50
    assert counts["candidates for which a run waited"] > 10
    assert counts["value, a step further"] + counts["value, match"] > 30
    assert counts["late, a step further"] + counts["late, match"] > 3
    assert counts["order, a step further"] + counts["order, match"] > 3


def test_rows_of_tables_nearly_equal_texts_and_limits_are_what_was_missing() -> None:
    counts = run(examples=60, first_seed=4)
    tried = {reason for reason in Reason if set(taken(counts, reason)) - {"not tried"}}
    assert tried >= {Reason.ROW, Reason.ABSENCE, Reason.STRICT}
    assert len(tried) >= 8


def test_windows_and_rows_are_reported_as_by_a_run_and_refused_by_the_parts_that_are_not_true() -> None:
    counts = why_rows.run(examples=25, first_seed=1)
    assert counts["windows"] > 200
    assert counts["parts of HAVING"] > 5
    assert counts["refused by WHERE"] > 10
    assert counts["rows"] > 20
    assert counts["times without a row"] > 20
    assert min(counts[reason] for reason in (Reason.VALUE, Reason.NULL, Reason.ROW)) > 5
