"""The simulator of micro-batches, without measurements."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from spark_runtime.dataflow.share_reader import TICKS
from tests.bench.sizing import (
    BUSY,
    MOST_READING_TASKS,
    RUNS_OF_GROUP,
    Costs,
    Layout,
    Load,
    Measured,
    cpu_seconds,
    fitted,
    needed,
    seconds,
)

COSTS = Costs(batch=0.2, task=0.001, group=0.02, read=4e-7, call=3e-7, run=5e-7)


def test_a_micro_batch_is_the_sum_of_what_is_done_one_after_another() -> None:
    got = seconds(COSTS, Load(1e6, runs=1e6), Layout(2, 4))
    assert got == pytest.approx(0.2 + 0.001 * 6 + 0.02 * 2 + 0.2 + 0.15 + 0.25)


def test_key_groups_that_do_not_fill_the_cores_wait_for_the_last_ones() -> None:
    calls_only = Costs(0, 0, 0, 0, 1e-6, 0)
    assert seconds(calls_only, Load(3e6), Layout(2, 3)) == pytest.approx(2)
    assert seconds(calls_only, Load(3e6), Layout(2, 2)) == pytest.approx(1.5)
    assert seconds(calls_only, Load(3e6), Layout(8, 2)) == pytest.approx(1.5)


def test_more_cores_do_not_help_a_key_with_half_of_all_events() -> None:
    calls_only = Costs(0, 0, 0, 0, 1e-6, 0)
    few, many = (seconds(calls_only, Load(1e6, hot=0.5), Layout(n, n)) for n in (2, 1000))
    assert few == pytest.approx(0.75)
    assert many == pytest.approx(0.5, rel=0.01)


def measured(load: Load, layout: Layout, cpu: float) -> Measured:
    return Measured("", load, layout, seconds(COSTS, load, layout), cpu)


def test_the_processor_time_counts_what_is_done_side_by_side() -> None:
    got = cpu_seconds(COSTS, Load(1e6, runs=1e6, hot=0.5), Layout(2, 4))
    assert got == pytest.approx(0.2 + 0.001 * 6 + 0.02 * 4 + 0.4 + 0.3 + 0.5)


def test_the_costs_are_found_again_in_times_that_they_give() -> None:
    layouts = [Layout(2, 2), Layout(2, 32)]
    loads = [Load(1e5), Load(1e6), Load(1e5, runs=1e6)]
    found = [
        measured(load, layout, cpu_seconds(COSTS, load, layout)) for load, layout in product(loads, layouts)
    ]
    again = fitted(found, COSTS.task, COSTS.call)
    for name in Costs.__slots__:
        assert getattr(again, name) == pytest.approx(getattr(COSTS, name), rel=1e-6), name


def test_no_cost_is_negative() -> None:
    faster_with_more = [
        measured(Load(1e6), Layout(2, 2), 1.1),
        measured(Load(1e5), Layout(2, 2), 0.3),
        measured(Load(1e5), Layout(2, 32), 0.2),
        measured(Load(1e5, runs=1e6), Layout(2, 32), 0.9),
    ]
    got = fitted(faster_with_more, 0.0, 1e-7)
    assert (got.group, got.task, got.call) == (0, 0, 1e-7)
    assert min(got.batch, got.read, got.run) > 0


def test_what_is_needed_keeps_pace_and_a_core_less_does_not() -> None:
    layout = needed(COSTS, 1e6, 1e8, 10)
    assert layout is not None
    assert layout.groups >= 1e8 / RUNS_OF_GROUP
    assert layout.groups % layout.cores == 0
    load = Load(1e7, 1e8)
    assert seconds(COSTS, load, layout) <= BUSY * 10
    fewer = layout.cores - max(1, layout.cores // 8)
    assert seconds(COSTS, load, Layout(fewer, fewer * -(-layout.groups // fewer))) > BUSY * 10


def test_where_the_driver_alone_needs_the_whole_interval_no_number_of_cores_does() -> None:
    assert needed(replace(COSTS, batch=2), 1e6, 0, 1) is None


def test_the_number_of_reading_tasks_is_that_of_the_source() -> None:
    assert MOST_READING_TASKS == TICKS
