"""The slopes of `make soak`: a leak is found, noise and restarts are none."""

from __future__ import annotations

import random

import pytest

from tests.soak.slopes import GROWS, STEADY, TOO_SHORT, Measure, Sample, fit, verdict, warmed_up

MEMORY = Measure("memory", "MB", bound=10, warm_up=300)
DISK = Measure("files", "", bound=10, warm_up=300, of_each_run=False)


def samples(
    minutes: int, per_hour: float, *, start: float = 0, level: float = 500, noise: float = 0
) -> list[Sample]:
    drawn = random.Random(7)
    times = [start + 5 * number for number in range(minutes * 12)]
    return [(at, level + per_hour * (at - start) / 3600 + drawn.gauss(0, noise)) for at in times]


def says(measure: Measure, *runs: list[Sample]) -> str:
    return verdict(fit(warmed_up(runs, measure)), measure)


def test_a_line_has_the_slope_of_its_samples() -> None:
    line = fit([samples(30, 60)])
    assert line is not None
    assert line.slope == pytest.approx(60)
    assert line.error == pytest.approx(0, abs=1e-6)
    assert line.minutes == 30
    assert line.mean == pytest.approx(515, abs=0.1)


def test_a_planted_leak_is_found_in_noise() -> None:
    assert says(MEMORY, samples(60, 40, noise=5)) == GROWS
    assert says(MEMORY, samples(60, 0, noise=5)) == STEADY
    assert says(MEMORY, samples(60, -40, noise=5)) == STEADY


def test_a_leak_is_found_across_restarts_which_set_memory_back() -> None:
    runs = [samples(15, 40, start=900 * number, level=500 - 30 * number, noise=1) for number in range(4)]
    assert says(MEMORY, *runs) == GROWS
    line = fit(warmed_up(runs, MEMORY))
    assert line is not None
    assert line.slope == pytest.approx(40, abs=5)


def test_levels_of_runs_that_rise_are_no_slope_of_memory_but_one_of_files() -> None:
    runs = [samples(15, 0, start=900 * number, level=500 + 30 * number, noise=1) for number in range(4)]
    assert says(MEMORY, *runs) == STEADY
    assert says(DISK, *runs) == GROWS


def test_what_fills_while_a_run_warms_up_does_not_count() -> None:
    run = [(at, min(value, 505)) for at, value in samples(30, 100)]
    assert says(MEMORY, run) == STEADY
    assert says(Measure("memory", "MB", bound=10, warm_up=0), run) != TOO_SHORT


def test_a_slope_beyond_its_bound_counts_only_if_its_error_is_small() -> None:
    line = fit([samples(20, 20, noise=60)])
    assert line is not None
    assert line.error > 5
    assert (
        says(Measure("memory", "MB", bound=line.slope - line.error, warm_up=0), samples(20, 20, noise=60))
        == STEADY
    )


@pytest.mark.parametrize("runs", [[], [[]], [[(0.0, 1.0)]], [samples(1, 5)], [samples(12, 4000)]])
def test_a_short_run_says_nothing(runs: list[list[Sample]]) -> None:
    assert says(MEMORY, *runs) == TOO_SHORT
