"""When a micro-batch begins and what it reads, without Spark."""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep.counts import Counts
from cep.errors import InputError
from cep.formats.files import Format, Reading
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import Partition
from spark_runtime.event_time.reached import Reached
from spark_runtime.event_time.watermarks import WaitingLimit, WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done, planned
from spark_runtime.pipeline.gaps import Ledger, all_gaps
from spark_runtime.pipeline.generations import Generation, write_generation
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.next_plan import Turn
from spark_runtime.sources.protocol import Planner
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.plan import Plan
from tests.sample_plugin.sample_kv.counter import Counter, CounterSource
from tests.unit.spark_runtime.pipeline.test_checkpoint import rule, stored

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
START = Done(-1, Reached(), {}, ended=False)


def batches(
    folder: Path,
    done: Done = START,
    *,
    finishes: bool = False,
    interval_s: float | None = None,
    by_spark: tuple[str, ...] = (),
    max_files: int | None = 1,
    turn: Turn | None = None,
) -> MicroBatches:
    checkpoint = Checkpoint(str(folder / "checkpoint"), "run", 2, LocalFiles(str(folder / "checkpoint")))
    source = FolderSource(
        STREAM, str(folder / "in"), Format.JSON, Reading(), checkpoint.file_log("s"), max_files
    )
    return MicroBatches(
        checkpoint=checkpoint,
        sources={"s": source},
        n_tasks=2,
        rule=WatermarkRule(10),
        done=done,
        interval_s=interval_s,
        finishes=finishes,
        by_spark=by_spark,
        turn=turn or Turn(),
    )


def put(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / "in" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps({"id": 1, "ts": "2024-05-01"}) + "\n")


def files(plan: Plan | None) -> list[str]:
    assert plan is not None
    return sorted(Path(part[0]).name for share in plan.shares for _, part in share)


def test_a_run_reads_what_is_there_and_ends(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "b.json")
    run = batches(tmp_path)
    for number in (0, 1):
        plan = run.next(number)
        assert (len(files(plan)), plan is not None and plan.ends) == (1, False)
        run.complete(number, Counts())
    put(tmp_path, "c.json")
    assert run.next(2) is None
    assert (run.done.batch, run.done.offsets, run.seconds.n) == (1, {"s": 2}, 2)


@pytest.mark.parametrize("interval_s", [None, 0.0, 3600.0])
def test_rules_that_others_follow_call_each_key_group_once_more_and_read_nothing(
    tmp_path: Path, interval_s: float | None
) -> None:
    put(tmp_path, "a.json", "b.json")
    turn = Turn()
    run = batches(tmp_path, interval_s=interval_s, turn=turn)
    run.next(0)
    run.complete(0, Counts(latest={"s": (100, "a.json:1")}))
    turn.leaves.set()
    reached_us = run.done.watermark_us
    plan = run.next(1)
    assert plan is not None
    assert (files(plan), plan.asks, plan.cap_us) == ([], True, reached_us)
    run.complete(1, Counts())
    assert run.next(2) is None
    # Those that follow take the state over without input, and then read.
    run = batches(tmp_path, run.done, turn=Turn(takes_over=2))
    plan = run.next(2)
    assert plan is not None
    assert (files(plan), plan.asks, plan.cap_us) == ([], True, reached_us)
    again = batches(tmp_path, run.done, turn=Turn(takes_over=2)).next(2)  # after a kill
    assert again is not None
    assert again.identity == plan.identity
    run.complete(2, Counts())
    assert files(run.next(3)) == ["b.json"]


def test_rules_that_have_read_nothing_end_at_once_when_others_follow(tmp_path: Path) -> None:
    turn = Turn()
    turn.leaves.set()
    assert batches(tmp_path, interval_s=3600.0, turn=turn).next(0) is None


def test_partitions_of_a_stream_that_is_not_read_any_more_hold_nothing_back(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    gone = Partition("gone", 5, "x:1", 0.0)
    done = replace(START, batch=0, partitions={"gone": gone, "s": Partition("s", 100, "a.json:1", 0.0)})
    assert set(batches(tmp_path, done).done.partitions) == {"s"}


def test_when_time_has_moved_the_operator_is_called_once_more(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    run = batches(tmp_path)
    run.next(0)
    run.complete(0, Counts(latest={"s": (100, "a.json:1")}))
    plan = run.next(1)
    assert plan is not None
    assert (files(plan), plan.reached.watermark_us, plan.ends) == ([], 90, False)
    run.complete(1, Counts())
    assert run.next(2) is None


def test_a_run_that_finishes_ends_the_input_once(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    run = batches(tmp_path, finishes=True)
    run.next(0)
    run.complete(0, Counts(latest={"s": (100, "a.json:1")}))
    plan = run.next(1)
    assert plan is not None
    assert (files(plan), plan.ends) == ([], True)
    run.complete(1, Counts())
    assert run.done.ended
    assert run.next(2) is None
    assert batches(tmp_path, run.done, finishes=True).next(2) is None


def test_a_micro_batch_that_is_repeated_has_its_plan(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    run = batches(tmp_path)
    plan = run.next(0)
    put(tmp_path, "b.json", "c.json")
    again = batches(tmp_path, max_files=None)
    assert again.next(0) == plan == planned(run.checkpoint, 0)
    again.complete(0, Counts())
    assert files(again.next(1)) == ["b.json", "c.json"]


def test_what_was_chosen_before_a_crash_and_not_planned_comes_next(tmp_path: Path) -> None:
    put(tmp_path, "b.json")
    run = batches(tmp_path)
    run.next(0)
    (tmp_path / "checkpoint/plan/0.json").unlink()  # as if the crash had come between the two
    put(tmp_path, "a.json")
    again = batches(tmp_path)
    assert files(again.next(0)) == ["b.json"]
    again.complete(0, Counts())
    assert files(again.next(1)) == ["a.json"]


def test_plans_of_the_past_are_removed(tmp_path: Path) -> None:
    put(tmp_path, *(f"{number}.json" for number in range(9)))
    run = batches(tmp_path)
    for number in range(9):
        run.next(number)
        run.complete(number, Counts())
    assert sorted(run.checkpoint.files.names("plan")) == ["6.json", "7.json", "8.json"]


def test_a_stream_that_goes_on_waits_until_it_is_stopped(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    run = batches(tmp_path, interval_s=0.0)
    assert files(run.next(0)) == ["a.json"]
    run.complete(0, Counts())
    put(tmp_path, "b.json")
    assert files(run.next(1)) == ["b.json"]
    run.complete(1, Counts())
    run.stop()
    assert run.next(2) is None


def test_beside_other_sources_no_micro_batch_waits_and_the_first_has_all(tmp_path: Path) -> None:
    put(tmp_path, "a.json", "b.json", "c.json")
    run = batches(tmp_path, by_spark=("other",), finishes=True)
    plan = run.next(0)
    assert plan is not None
    assert (files(plan), plan.ends) == (["a.json", "b.json", "c.json"], True)
    run.complete(0, Counts())
    later = run.next(1)
    assert later is not None
    assert (files(later), later.ends) == ([], False)


def test_a_long_plan_is_read_from_its_file(tmp_path: Path) -> None:
    from spark_runtime.pipeline.checkpoint import plan_for_tasks

    put(tmp_path, *(f"{'x' * 100}{number}.json" for number in range(200)))
    run = batches(tmp_path, max_files=None)
    plan = run.next(0)
    assert plan is not None
    told = plan_for_tasks(run.checkpoint, 0, plan)
    assert Plan.of_json(Path(told).read_text()) == plan
    assert len(plan.shares) == 2
    short = Plan(plan.shares[:0], plan.offsets, plan.reached)
    assert Plan.of_json(plan_for_tasks(run.checkpoint, 0, short)) == short
    # Tasks would open the name of a remote file on their own disk.
    remote = dataclasses.replace(run.checkpoint, path="s3a://lake/checkpoint")
    assert Plan.of_json(plan_for_tasks(remote, 0, plan)) == plan


# ---------------------------------------------------------------- time

START_S = 1_714_521_600  # 2024-05-01


class Clock:
    """A wall clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def two_sources(
    folder: Path,
    clock: Clock,
    limit: WaitingLimit | None = None,
    *,
    names: tuple[str, ...] = ("a", "b"),
    idle_after_s: Mapping[str, float] | None = None,
    finishes: bool = False,
    done: Done = START,
    watermark_per: str = "source",
) -> MicroBatches:
    checkpoint = Checkpoint(str(folder / "checkpoint"), "run", 2, LocalFiles(str(folder / "checkpoint")))
    sources = {
        name: FolderSource(
            Stream(name, STREAM.fields, "ts"),
            str(folder / name),
            Format.JSON,
            Reading(),
            checkpoint.file_log(name),
            1,
            watermark_per=watermark_per,
        )
        for name in names
    }
    return MicroBatches(
        checkpoint=checkpoint,
        sources=sources,
        n_tasks=2,
        rule=WatermarkRule(1_000_000, idle_after_s={"b": 60} if idle_after_s is None else idle_after_s),
        done=done,
        interval_s=None if finishes else 0.0,
        finishes=finishes,
        clock=clock,
        limit=limit or WaitingLimit(),
    )


def write(folder: Path, name: str, *seconds: int) -> None:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    times = (f"2024-05-01T00:{second // 60:02}:{second % 60:02}Z" for second in seconds)
    file.write_text("".join(json.dumps({"id": 1, "ts": time}) + "\n" for time in times))


def seconds_of(us: int | None) -> float | None:
    return None if us is None else us / 1e6 - START_S


def of_two(a: int | None = None, b: int | None = None, c: int | None = None, waiting: int = 0) -> Counts:
    found = {"a": a, "b": b, "c": c}
    latest = {n: ((START_S + s) * 1_000_000, n) for n, s in found.items() if s is not None}
    return Counts(latest=latest, waiting={"0": waiting} if waiting else {})


def after_restart(run: MicroBatches, number: int) -> Done:
    """Return what a run finds that is started after micro-batch `number` was complete."""
    for folder in ("offsets", "commits"):
        run.checkpoint.files.write(f"query/{folder}/{number}", "")
    return last_done(run.checkpoint, is_live=True)


def released(run: MicroBatches, number: int) -> int:
    """Compute the micro-batches that release what the watermark has passed; return the number after them.

    Six events still wait.
    """
    for empty in (number, number + 1):
        assert files(run.next(empty)) == []
        run.complete(empty, of_two(waiting=6))
    return number + 2


def test_the_slower_of_two_sources_decides_and_its_last_events_show_how_far(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 10, 50, 59)
    write(tmp_path, "b/1.json", 1, 20)
    run = two_sources(tmp_path, Clock())
    plan = run.next(0)
    assert plan is not None
    # The earliest of the last events tells a bound: those of b are 1 and 20.
    assert (seconds_of(plan.reached.watermark_us), seconds_of(plan.cap_us)) == (0, 0)
    run.complete(0, of_two(59, 20))
    assert seconds_of(run.done.reached.watermark_us) == 19
    plan = run.next(1)  # so that what waits up to there is reported
    assert plan is not None
    assert (files(plan), seconds_of(plan.cap_us)) == ([], 19)
    status = run.status()
    assert (status.holder, [(part.name, part.behind_us) for part in status.partitions]) == (
        "b",
        [("b", 39_000_000), ("a", 0)],
    )


def test_files_that_wait_are_read_by_their_times_and_hold_the_watermark_back(tmp_path: Path) -> None:
    write(tmp_path, "in/1.json", 30, 40)
    write(tmp_path, "in/2.json", 5, 50)
    write(tmp_path, "in/3.json", 10, 20)
    run = batches(tmp_path)
    caps, names = [], []
    for number, latest in enumerate((50, 20, 40)):
        plan = run.next(number)
        assert plan is not None
        names += files(plan)
        caps.append(plan.cap_us if plan.cap_us is None else seconds_of(plan.cap_us))
        run.complete(number, Counts(latest={"s": ((START_S + latest) * 1_000_000, "x")}))
    assert names == ["2.json", "3.json", "1.json"]
    # The lateness, 10 microseconds, before what is known: the earliest of the last events that are read, then
    # the first event that is not read. The last file does not tell how far the stream came: the first did.
    assert caps == [pytest.approx(5 - 1e-5), pytest.approx(30 - 1e-5), pytest.approx(50 - 1e-5)]


def test_a_silent_source_holds_nothing_back_after_its_time(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    clock = Clock()
    run = two_sources(tmp_path, clock)
    run.next(0)
    run.complete(0, of_two(59, 20))
    run.next(1)
    run.complete(1, Counts())
    clock.now_s += 60
    plan = run.next(2)
    assert plan is not None
    assert (files(plan), seconds_of(plan.cap_us), run.status().holder) == ([], 58, "")
    assert [part.is_idle for part in run.status().partitions] == [True, False]


def test_a_source_that_wakes_up_is_not_late_by_being_silent_until_then(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    clock = Clock()
    run = two_sources(tmp_path, clock)
    for number, counts in enumerate((of_two(59, 20), Counts())):
        run.next(number)
        run.complete(number, counts)
    clock.now_s += 60
    write(tmp_path, "b/2.json", 25)
    plan = run.next(2)
    assert plan is not None
    assert (files(plan), seconds_of(plan.reached.watermark_us)) == (["2.json"], 19)


@pytest.mark.parametrize("is_compressed", [True, False])
def test_a_source_of_unknown_times_that_wakes_up_does_not_advance_its_own_micro_batch(
    tmp_path: Path, *, is_compressed: bool
) -> None:
    write(tmp_path, "a/1.json", 59)
    clock = Clock()
    run = two_sources(tmp_path, clock)
    if is_compressed:
        (tmp_path / "b").mkdir()
        (tmp_path / "b/1.json.gz").write_bytes(gzip.compress(b""))
    else:
        counter = CounterSource(run.sources["b"].stream, Counter(8))
        run = replace(run, sources={**run.sources, "b": counter})
    run.next(0)
    run.complete(0, of_two(59, 20))
    clock.now_s += 60
    write(tmp_path, "a/2.json", 90)
    (tmp_path / "b").mkdir(exist_ok=True)
    (tmp_path / "b/2.json.gz").write_bytes(gzip.compress(b"{}"))
    plan = run.next(1)
    assert plan is not None
    assert set(plan.offsets) == {"a", "b"}
    assert plan.cap_us == plan.reached.watermark_us


def test_when_too_many_events_wait_only_the_slow_source_is_read(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5))
    run.next(0)
    run.complete(0, replace(of_two(59, 20), waiting={"0": 4, "1": 2}))
    write(tmp_path, "a/2.json", 70)
    write(tmp_path, "b/2.json", 55)
    assert files(run.next(1)) == ["2.json"]
    assert [part.is_paused for part in run.status().partitions] == [False, True]
    run.complete(1, replace(of_two(b=55), waiting={"0": 1}))
    plan = run.next(2)
    assert plan is not None
    assert [part for share in plan.shares for part, _ in share] == ["a"]


def test_or_the_watermark_goes_on_without_it(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5, goes_on=True))
    run.next(0)
    run.complete(0, replace(of_two(59, 20), waiting={"0": 6}))
    assert seconds_of(run.done.reached.watermark_us) == 58


def test_a_run_that_is_started_again_knows_that_too_many_events_wait(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5))
    run.next(0)
    run.complete(0, of_two(59, 20, waiting=6))
    write(tmp_path, "a/2.json", 70)
    write(tmp_path, "b/2.json", 55)
    again = two_sources(tmp_path, Clock(), WaitingLimit(5), done=after_restart(run, 0))
    assert again.status().waiting == 6
    assert files(again.next(released(again, 1))) == ["2.json"]
    assert again.held_line().endswith("all others are paused")


def test_what_is_unread_of_a_source_that_is_paused_from_the_start_holds_the_watermark_back(
    tmp_path: Path,
) -> None:
    write(tmp_path, "a/1.json", 25, 59)
    write(tmp_path, "a/2.json", 30, 70)  # the same times again, as in files of several devices
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5))
    run.next(0)
    run.complete(0, of_two(59, 20, waiting=6))
    write(tmp_path, "b/2.json", 55)
    again = two_sources(tmp_path, Clock(), WaitingLimit(5), done=after_restart(run, 0))
    number = released(again, 1)
    assert files(again.next(number)) == ["2.json"]
    again.complete(number, of_two(b=55, waiting=6))
    assert seconds_of(again.done.reached.watermark_us) == 29


def test_after_a_crash_in_a_micro_batch_what_is_unread_holds_the_watermark_back(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        write(tmp_path, f"in/{name}.json", 10, 50)
    run = batches(tmp_path)
    run.next(0)  # it was planned, and then the process died
    again = batches(tmp_path)
    plan = again.next(0)
    assert plan is not None
    again.complete(0, Counts(latest={"s": ((START_S + 50) * 1_000_000, "x")}))
    assert seconds_of(again.done.reached.watermark_us) == pytest.approx(10 - 1e-5)


def test_a_source_that_is_paused_does_not_count_as_silent(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    clock = Clock()
    run = two_sources(tmp_path, clock, WaitingLimit(5), idle_after_s={"a": 60})
    run.next(0)
    run.complete(0, of_two(59, 20, waiting=6))
    for number, second in ((1, 40), (2, 80)):
        write(tmp_path, f"b/{number + 1}.json", second)
        assert files(run.next(number)) == [f"{number + 1}.json"]
        clock.now_s += 61  # the micro-batch takes so long
        run.complete(number, of_two(b=second, waiting=6))
    assert (seconds_of(run.done.reached.watermark_us), run.status().holder) == (58, "a")
    write(tmp_path, "a/2.json", 60)
    assert files(run.next(3)) == ["2.json"]  # of the source that was paused, and now holds the others back


def test_silence_is_counted_up_to_the_last_look_at_the_source(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    clock = Clock()
    run = two_sources(tmp_path, clock)  # b is idle after 60 s
    run.next(0)
    run.complete(0, of_two(59, 20))
    run.next(1)
    run.complete(1, Counts())
    write(tmp_path, "a/2.json", 70)
    clock.now_s += 30
    assert files(run.next(2)) == ["2.json"]
    clock.now_s += 50  # in this time b may have got events; nobody has looked
    run.complete(2, of_two(a=70))
    assert seconds_of(run.done.reached.watermark_us) == 19


def test_nothing_is_left_unread_of_a_paused_source_when_the_input_is_complete(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, f"a/{number}.json", 50 + number)
    write(tmp_path, "b/0.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(1), finishes=True)
    read: list[str] = []
    number = 0
    while (plan := run.next(number)) is not None:
        names = [(stream, Path(part[0]).name) for share in plan.shares for stream, part in share]
        read += [f"{stream}/{name}" for stream, name in names]
        latest = {stream: int(name[0]) for stream, name in names}
        a = 50 + latest["a"] if "a" in latest else None
        run.complete(number, of_two(a, 20 if "b" in latest else None, waiting=2))
        number += 1
    assert (sorted(read), run.done.ended) == (
        ["a/0.json", "a/1.json", "a/2.json", "a/3.json", "b/0.json"],
        True,
    )


def test_only_the_files_of_the_partition_that_is_behind_are_read(tmp_path: Path) -> None:
    write(tmp_path, "a/fast.json", 59)
    write(tmp_path, "a/slow.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5), names=("a",), watermark_per="file")
    slow, fast = f"a[{tmp_path}/a/slow.json]", f"a[{tmp_path}/a/fast.json]"
    latest = {slow: 20, fast: 59}
    for number, name in enumerate((slow, fast)):  # the earliest first
        run.next(number)
        partitions = {name: ((START_S + latest[name]) * 1_000_000, "x")}
        run.complete(number, Counts(latest=partitions, waiting={"0": 6}))
    assert (run.status().holder, seconds_of(run.done.reached.watermark_us)) == (slow, 19)
    for name, second in (("fast", 70), ("slow", 40)):
        file = tmp_path / f"a/{name}.json"
        file.write_text(
            file.read_text() + json.dumps({"id": 2, "ts": f"2024-05-01T00:00:{second % 60}Z"}) + "\n"
        )
    assert files(run.next(2)) == ["slow.json"]
    status = run.status()
    assert {part.name: part.is_paused for part in status.partitions} == {slow: False, fast: True}


def test_where_the_events_of_all_partitions_come_together_no_pause_helps(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 20, 59)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5), names=("a",), watermark_per="id")
    run.next(0)
    latest = {f"a[{n}]": ((START_S + second) * 1_000_000, "x") for n, second in ((1, 20), (2, 59))}
    run.complete(0, Counts(partitions=latest, waiting={"0": 6}))
    write(tmp_path, "a/2.json", 70)
    with pytest.raises(InputError, match=r"too many events wait for a\[1\], 6, and no source") as raised:
        run.next(1)
    assert raised.value.code == "E0847"


def test_the_watermark_goes_on_without_the_slowest_and_no_other(tmp_path: Path) -> None:
    for name, second in (("a", 59), ("b", 50), ("c", 20)):
        write(tmp_path, f"{name}/1.json", second)
    run = two_sources(
        tmp_path, Clock(), WaitingLimit(5, goes_on=True), names=("a", "b", "c"), idle_after_s={}
    )
    run.next(0)
    run.complete(0, of_two(59, 50, 20, waiting=6))
    assert (seconds_of(run.done.reached.watermark_us), run.status().holder) == (49, "b")
    status = run.status()
    assert {part.name: part.is_given_up for part in status.partitions} == {"a": False, "b": False, "c": True}
    assert status.line() == ("watermark 2024-05-01T00:00:49Z, held by b for 0 s, 6 events wait, without c")
    assert next(status.summary_lines()) == ("given up", "c: too many events waited")
    assert (status.to_json()["given_up"], status.to_json()["partitions"][0]["is_given_up"]) == (["c"], True)
    released(run, 1)  # what is at 49 and before is reported; it was not enough
    assert (seconds_of(run.done.reached.watermark_us), run.status().holder) == (58, "")


@pytest.mark.parametrize("goes_on", [False, True])
def test_what_the_watermark_has_passed_does_not_wait(tmp_path: Path, *, goes_on: bool) -> None:
    write(tmp_path, "a/1.json", *range(60))
    write(tmp_path, "b/1.json", 57, 58, 55)  # the last event is not the latest one
    run = two_sources(tmp_path, Clock(), WaitingLimit(5, goes_on=goes_on), idle_after_s={})
    run.next(0)
    run.complete(0, of_two(59, 58, waiting=6))
    write(tmp_path, "a/2.json", 70)
    assert files(run.next(1)) == []
    run.complete(1, of_two(waiting=6))
    assert files(run.next(2)) == []
    run.complete(2, of_two(waiting=2))
    assert (files(run.next(3)), run.done.waiting.given_up) == (["2.json"], ())


def test_a_partition_that_was_given_up_counts_again_when_it_has_caught_up(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    limit = WaitingLimit(5, goes_on=True)
    run = two_sources(tmp_path, Clock(), limit, idle_after_s={})
    run.next(0)
    run.complete(0, of_two(59, 20, waiting=6))
    run = two_sources(tmp_path, Clock(), limit, idle_after_s={}, done=after_restart(run, 0))
    write(tmp_path, "b/2.json", 40)
    run.next(1)
    run.complete(1, of_two(b=40, waiting=1))
    assert (run.done.waiting.given_up, seconds_of(run.done.reached.watermark_us)) == (("b",), 58)
    write(tmp_path, "b/3.json", 65)
    run.next(2)
    run.complete(2, of_two(b=65))
    assert run.done.waiting.given_up == ()
    write(tmp_path, "a/2.json", 90)
    run.next(3)
    run.complete(3, of_two(a=90, waiting=1))
    assert (run.status().holder, seconds_of(run.done.reached.watermark_us)) == ("b", 64)
    assert run.status().given_up == ("b",)  # in this run


def test_a_source_that_was_given_up_before_its_partitions_were_known_is_none_of_them(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    run = two_sources(tmp_path, Clock(), WaitingLimit(5, goes_on=True), idle_after_s={}, watermark_per="id")
    run.next(0)
    run.complete(0, replace(Counts(waiting={"0": 6}), partitions={"a[1]": (START_S * 1_000_000, "a")}))
    released(run, 1)
    assert run.done.waiting.given_up == ("b",)
    write(tmp_path, "b/1.json", 58)
    run.next(3)
    run.complete(3, Counts(partitions={"b[1]": (START_S * 1_000_000, "b")}))
    assert not run.done.waiting.given_up


def test_a_source_that_has_become_one_partition_replaces_those_that_it_had(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 20)
    known = {f"a[{name}]": Partition("a", START_S * 1_000_000) for name in ("1", "2")}
    done = replace(START, partitions=known)
    run = two_sources(tmp_path, Clock(), names=("a",), done=done)
    run.next(0)
    run.complete(0, of_two(20))
    assert (list(run.done.partitions), seconds_of(run.done.reached.watermark_us)) == (["a"], 19)


def test_nothing_waits_when_no_partition_is_behind(tmp_path: Path) -> None:
    for name in ("1", "2"):
        write(tmp_path, f"in/{name}.json", 10, 50)
    run = batches(tmp_path)
    run.next(0)
    run.complete(0, Counts(latest={"s": ((START_S + 50) * 1_000_000, "x")}, waiting={"0": 3}))
    assert run.status().waiting == 3
    run.next(1)
    run.complete(1, Counts(latest={"s": ((START_S + 50) * 1_000_000, "x")}))
    assert run.status().waiting == 3  # in a key group that no event of the last file belongs to
    assert files(run.next(2)) == []
    run.complete(2, Counts())
    assert run.status().waiting == 0
    assert run.next(3) is None


def test_few_events_are_too_many_if_they_are_large(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock(), WaitingLimit(100, n_bytes=1000))  # two tasks
    run.next(0)
    run.complete(0, replace(of_two(59, 20), waiting_bytes={"0": 300, "1": 600, "2": 400}))
    write(tmp_path, "a/2.json", 70)
    write(tmp_path, "b/2.json", 55)
    assert files(run.next(1)) == ["2.json", "2.json"]
    run.complete(1, replace(of_two(70, 55), waiting_bytes={"0": 401}))
    write(tmp_path, "a/3.json", 75)
    write(tmp_path, "b/3.json", 60)
    assert files(run.next(2)) == ["3.json"]
    assert run.status().is_paused


def test_what_was_reached_by_each_partition_is_known_after_a_restart(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    run = two_sources(tmp_path, Clock())
    run.next(0)
    run.complete(0, of_two(59, 20))
    for folder in ("offsets", "commits"):
        run.checkpoint.files.write(f"query/{folder}/0", "")
    assert last_done(run.checkpoint, is_live=False).partitions == run.done.partitions
    assert set(run.done.partitions) == {"a", "b"}


def test_a_source_of_too_many_partitions_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "a.json")
    run = batches(tmp_path)
    run.next(0)
    found = {f"s[{number}]": (number, "x") for number in range(10_001)}
    with pytest.raises(InputError, match="stream `s` has 10,001 partitions, a pipeline has at most"):
        run.complete(0, Counts(partitions=found))


def test_the_status_as_text_and_as_json(tmp_path: Path) -> None:
    write(tmp_path, "a/1.json", 59)
    write(tmp_path, "b/1.json", 20)
    clock = Clock()
    run = two_sources(tmp_path, clock)
    run.next(0)
    run.complete(0, replace(of_two(59, 20), waiting={"0": 1200}))
    clock.now_s += 5
    status = run.status()
    assert run.held_line() == status.line()
    assert run.shown == ("b: 2024-05-01T00:00:20Z; 39 seconds behind", "a: 2024-05-01T00:00:59Z")
    assert status.line() == "watermark 2024-05-01T00:00:19Z, held by b for 5 s, 1,200 events wait"
    assert list(status.summary_lines()) == [
        ("watermark", "2024-05-01T00:00:19Z, held back by b"),
        ("", "1,200 events wait for it in the state"),
        ("", "b: 2024-05-01T00:00:20Z; 39 seconds behind"),
        ("", "a: 2024-05-01T00:00:59Z"),
    ]
    found = status.to_json()
    assert found["partitions"][0] == {
        "name": "b",
        "latest": "2024-05-01T00:00:20Z",
        "behind_seconds": 39.0,
        "silent_s": 5.0,
        "is_idle": False,
        "has_unread": False,
        "is_paused": False,
        "is_given_up": False,
    }
    assert (found["held_by"], found["held_seconds"], found["waiting_events"]) == ("b", 5.0, 1200)


class Losing:
    """A planner that finds out that input is gone."""

    def __init__(self, planner: Planner) -> None:
        self.planner = planner
        self.n = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.planner, name)

    def lost(self) -> int:
        return self.n


def test_what_planning_found_removed_is_in_one_plan_and_in_the_ledger_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a.json", "b.json", "c.json")
    losing: list[Losing] = []
    usual = FolderSource.planner

    def planner(source: FolderSource) -> Losing:
        losing.append(Losing(usual(source)))
        return losing[-1]

    monkeypatch.setattr(FolderSource, "planner", planner)
    run = batches(tmp_path)
    files = run.checkpoint.files
    run.ledger = Ledger(files)
    found = []
    for number, n_lost in enumerate((0, 3, 5)):
        losing[0].n = n_lost
        plan = run.next(number)
        assert plan is not None
        found.append(dict(plan.lost))
        again = batches(tmp_path, run.done)  # a run that was killed here has the same plan
        again.ledger = Ledger(files)
        assert again.next(number) == replace(plan, shares=[list(share) for share in plan.shares])
        again.complete(number, Counts())
        run.complete(number, Counts())
    assert found == [{}, {"s": 3}, {"s": 2}]
    write_generation(files, Generation(0, stored(rule("one"))))
    assert sum(gap.n or 0 for gap in all_gaps(files, str(tmp_path))) == 5
