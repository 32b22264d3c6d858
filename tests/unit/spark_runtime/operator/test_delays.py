"""How long after their end matches were found, counted by rule."""

from __future__ import annotations

import pyarrow as pa

from cep.counts import DELAYS_S, Counts, delay_name
from spark_runtime.operator.delays import count_delays

NOW_US = 1_700_000_000_000_000
TIME = pa.timestamp("us", tz="UTC")


def matches(rules: list[str], delays_s: list[float], **more: list[object]) -> pa.Table:
    ends = pa.array([NOW_US - round(delay * 1e6) for delay in delays_s], pa.int64()).cast(TIME)
    return pa.table({"rule": rules, "match_end": ends, **more})


def test_a_match_is_counted_at_the_first_bound_that_is_not_below_its_delay() -> None:
    counts = Counts()
    count_delays(matches(["a", "b", "a", "a"], [0.1, 0.2, 0.1001, 1e6]), NOW_US, counts)
    count_delays(matches(["a"], [0.05]), NOW_US, counts)
    n = len(DELAYS_S)
    assert counts.delays == {
        delay_name("a", 0): 2, delay_name("a", 1): 1, delay_name("a", n): 1, delay_name("b", 1): 1
    }  # fmt: skip
    assert counts.delay_us == {"a": 1_000_000_250_100, "b": 200_000}


def test_a_match_that_ends_in_the_future_has_no_delay() -> None:
    counts = Counts()
    count_delays(matches(["a"], [-5.0]), NOW_US, counts)
    assert (counts.delays, counts.delay_us) == ({delay_name("a", 0): 1}, {"a": 0})


def test_timeouts_rows_that_withdraw_and_further_rows_of_a_match_do_not_count() -> None:
    counts = Counts()
    found = matches(
        ["a"] * 5,
        [1.0] * 5,
        outcome=["match", "timeout", "match", "match", "match"],
        kind=["match", "match", "retract", "match", None],
        event_number=[1, 1, 1, 2, None],
    )
    count_delays(found, NOW_US, counts)
    assert counts.delays == {delay_name("a", 2): 2}
    assert counts.delay_us == {"a": 2_000_000}


def test_counts_of_delays_and_open_runs_travel_and_add_up() -> None:
    one = Counts(delays={"a: 1": 2}, delay_us={"a": 5}, open_runs={"0": {"a": 1}, "1": {"a": 7}})
    total = Counts.of_json(one.to_json())
    total.add(Counts(delays={"a: 1": 1}, delay_us={"a": 6}, open_runs={"1": {}}))
    assert (total.delays, total.delay_us) == ({"a: 1": 3}, {"a": 11})
    assert total.open_runs == {"0": {"a": 1}, "1": {}}
