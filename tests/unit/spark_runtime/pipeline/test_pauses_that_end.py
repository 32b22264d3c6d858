"""A pause in a run over the present input: it ends, or the run does not call itself a success."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cep.counts import Counts
from cep.errors import InputError
from spark_runtime.event_time.watermarks import WaitingLimit
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.wire.plan import Plan
from tests.sample_plugin.sample_kv.counter import Counter, CounterSource
from tests.unit.spark_runtime.pipeline.test_micro_batches import (
    START,
    Clock,
    after_restart,
    of_two,
    two_sources,
    write,
)

FEW = WaitingLimit(events=5)


def run_of(
    folder: Path,
    *,
    is_timed: bool,
    finishes: bool = False,
    by_spark: tuple[str, ...] = (),
    done: object = START,
) -> MicroBatches:
    """Return a run over the present input; `b` has little, and may not tell the times of what is unread."""
    made = two_sources(folder, Clock(), FEW, idle_after_s={}, finishes=True)
    sources = dict(made.sources)
    if not is_timed:
        sources["b"] = CounterSource(sources["b"].stream, Counter(1, 1))
    return replace(made, sources=sources, finishes=finishes, by_spark=by_spark, done=done)  # type: ignore[arg-type]


def read_of(plan: Plan, stream: str) -> list[str]:
    return [Path(part[0]).name for share in plan.shares for name, part in share if name == stream]


def go(run: MicroBatches, first: int, counts: Counts) -> list[Plan]:
    """Let a run come to its end: what each micro-batch gives are `counts`."""
    plans: list[Plan] = []
    while (plan := run.next(first + len(plans))) is not None:
        run.complete(first + len(plans), counts)
        plans.append(plan)
        assert len(plans) < 20
    return plans


def write_input(folder: Path) -> None:
    for number in range(4):
        write(folder, f"a/{number}.json", 10 * number + 10, 10 * number + 19)
    write(folder, "b/1.json", 1)


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_run_that_a_pause_keeps_from_reading_is_no_success(tmp_path: Path, is_timed: bool) -> None:
    write_input(tmp_path)
    first = run_of(tmp_path, is_timed=is_timed)
    plans = go(first, 0, of_two(19, 1, waiting=9))
    assert [name for plan in plans for name in read_of(plan, "a")] == ["0.json"]
    first.close(Counts(events=3))
    first.require_progress()  # it has read what the limit lets it
    second = run_of(tmp_path, is_timed=is_timed, done=after_restart(first, first.done.batch))
    assert not any(plan.shares for plan in go(second, first.done.batch + 1, Counts()))
    second.close(Counts())
    with pytest.raises(InputError) as caught:
        second.require_progress()
    assert caught.value.code == "E0847"
    assert "too many events wait for b, 9: the other sources are paused" in str(caught.value)
    third = run_of(tmp_path, is_timed=is_timed, done=after_restart(second, second.done.batch))
    go(third, second.done.batch + 1, Counts())
    third.close(Counts(versions={"b": 1}))
    third.require_progress()  # a version is progress, too


def test_a_run_without_new_input_is_a_success_though_events_wait(tmp_path: Path) -> None:
    write(tmp_path, "a/0.json", 10, 19)
    write(tmp_path, "b/1.json", 1)
    first = run_of(tmp_path, is_timed=True)
    go(first, 0, of_two(19, 1, waiting=9))
    first.close(Counts(events=3))
    second = run_of(tmp_path, is_timed=True, done=after_restart(first, first.done.batch))
    go(second, first.done.batch + 1, Counts())
    second.close(Counts())
    second.require_progress()


@pytest.mark.parametrize("is_timed", [True, False])
def test_all_is_read_before_the_input_is_declared_complete(tmp_path: Path, is_timed: bool) -> None:
    write_input(tmp_path)
    run = run_of(tmp_path, is_timed=is_timed, finishes=True)
    plans = go(run, 0, of_two(19, 1, waiting=9))
    assert [name for plan in plans for name in read_of(plan, "a")] == [
        f"{number}.json" for number in range(4)
    ]
    (last,) = (number for number, plan in enumerate(plans) if plan.ends)
    assert not any(plan.shares for plan in plans[last:])
    run.close(Counts())
    run.require_progress()


def test_the_micro_batch_that_ends_the_input_beside_a_source_of_spark_reads_all(tmp_path: Path) -> None:
    write_input(tmp_path)
    done = replace(START, waiting=replace(START.waiting, by_group={"0": 9}))
    run = run_of(tmp_path, is_timed=True, finishes=True, by_spark=("other",), done=done)
    plan = run.next(0)
    assert plan is not None
    assert plan.ends
    assert sorted(read_of(plan, "a")) == [f"{number}.json" for number in range(4)]
