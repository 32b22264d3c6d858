"""`cep why` on random rules: it agrees with the engine, and what it says was missing makes the run go on."""

from __future__ import annotations

from tests.property.why import run


def test_what_was_missing_takes_the_attempt_further() -> None:
    counts = run(examples=60, first_seed=1)
    assert counts["cases"] >= 60
    assert counts["conditions"] > 500
    assert counts["matches"] > 50
    assert counts["candidates for which a run waited"] > 10
    assert counts["value, a step further"] + counts["value, match"] > 30
    assert counts["late, a step further"] + counts["late, match"] > 3
    assert counts["order, a step further"] + counts["order, match"] > 3
