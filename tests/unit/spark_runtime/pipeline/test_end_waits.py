"""`end_waits_after`: a quiet stream goes on by the wall clock, and its rows say so. Without Spark."""

from __future__ import annotations

import copy
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.errors import Source
from cep.formats.files import Format, Reading
from cep.rule_set import BY_CLOCK, BY_EVENT, ENDED_BY, KIND, REVISION, Corrections, RuleSet
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.event_time.clock_waits import Waits
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.partitions import PER_SOURCE
from spark_runtime.event_time.watermarks import WaitingLimit, WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.plan import Plan
from tests.property.source_partitions import N_GROUPS, Played, last_done_of

START_S = 1_700_000_000
S = 1_000_000
FIELDS = (Field("ts", "timestamp"), Field("id", "bigint"), Field("k", "bigint"), Field("n", "bigint"))
STREAMS = {name: Stream(name, FIELDS, "ts", ("id",), 10 * S, max_ahead_us=10**15) for name in ("s", "t")}

RULES = """
RULE pair FROM s PARTITION BY k PATTERN a -> b WITHIN 40 SECONDS
DEFINE a AS n = 1, b AS n = 2 MEASURES a.id AS a, b.id AS b
RULE silent FROM s PARTITION BY k PATTERN a -> !b FOR 100 SECONDS
DEFINE a AS n = 1, b AS n = 2 MEASURES a.id AS a
RULE many FROM s PARTITION BY k PATTERN a c+ WITHIN 50 SECONDS
DEFINE a AS n = 1, c AS n = 3 MEASURES COUNT(c.*) AS cs
"""


class Clock:
    """A wall clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Looks(threading.Event):
    """Ends a wait after three looks that found nothing to do."""

    n = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.n += 1
        if self.n > 3:
            self.set()
        return self.is_set()


def rules_of(text: str = RULES) -> RuleSet:
    return compile_sources([Source("rules", text)], STREAMS).rule_set.telling_end()


@dataclass
class Live:
    """A pipeline of folders that goes on; nothing but Spark and the clock are played."""

    folder: Path
    rules: RuleSet = field(default_factory=rules_of)
    after_s: float | None = 30
    clock: Clock = field(default_factory=Clock)
    limit: WaitingLimit = field(default_factory=WaitingLimit)
    max_files: int | None = None
    watermark_per: str = PER_SOURCE
    number: int = 0
    plans: list[Plan] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.played = Played(self.rules)
        self.restart()

    def restart(self) -> None:
        """Begin a run that goes on from the checkpoint."""
        files = LocalFiles(str(self.folder / "checkpoint"))
        checkpoint = Checkpoint(str(self.folder / "checkpoint"), "run", N_GROUPS, files)
        self.sources = {
            name: FolderSource(
                *(stream, str(self.folder / name), Format.JSON, Reading()),
                checkpoint.file_log(name),
                self.max_files,
                watermark_per=self.watermark_per,
            )
            for name, stream in self.rules.streams.items()
        }
        for name in self.sources:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        after_us = None if self.after_s is None else int(self.after_s * S)
        self.run = MicroBatches(
            checkpoint=checkpoint,
            sources=self.sources,
            n_tasks=2,
            rule=WatermarkRule(self.rules.lateness_us, end_waits_after_us=after_us),
            done=last_done_of(checkpoint, self.number),
            interval_s=0.0,
            finishes=False,
            clock=self.clock,
            limit=self.limit,
            ends_waits=self.after_s is not None,
            stopped=Looks(),
        )

    def write(self, *events: tuple[int, int, int], stream: str = "s", file_name: str = "events.json") -> None:
        """Append events: second, key, n."""
        with (self.folder / stream / file_name).open("a") as file:
            for second, key, n in events:
                ts = START_S + second
                file.write(json.dumps({"ts": _text(ts), "id": second, "k": key, "n": n}) + "\n")

    def go(self) -> list[tuple[Any, ...]]:
        """Compute micro-batches until nothing is to be done; return the new rows."""
        n_before = len(self.played.matches)
        self.run.stopped = Looks()
        while (plan := self.run.next(self.number)) is not None:
            self.plans.append(plan)
            self.run.complete(self.number, self.played.micro_batch(self.sources, plan))
            self.played.require_not_ahead(plan, self.run.done.watermark_us)
            self.number += 1
            assert self.number < 1_000, "micro-batches without end"
            self.run.stopped = Looks()
        return rows_of(self.played.matches[n_before:])

    def after(self, seconds: float) -> list[tuple[Any, ...]]:
        """Let the wall clock go on, then compute what is to be done."""
        self.clock.now_s += seconds
        return self.go()

    @property
    def watermark(self) -> float | None:
        us = self.run.done.reached.watermark_us
        return None if us is None else us / S - START_S


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def rows_of(tables: list[pa.Table]) -> list[tuple[Any, ...]]:
    """Return matches as rule, start and end in seconds, and what let them out."""
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted(
        (row["rule"], row["match_start"] / S - START_S, row["match_end"] / S - START_S, row[ENDED_BY])
        for row in rows
    )


# ---------------------------------------------------------------- a quiet stream


def test_the_last_match_of_a_quiet_stream_comes_out_when_the_time_is_over(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1), (105, 1, 2))
    assert live.go() == []
    assert live.watermark == 95
    assert live.after(29) == []
    assert live.after(1) == [("pair", 100, 105, BY_CLOCK)]
    assert live.watermark == 125


def test_an_absence_is_reported_when_its_time_is_over_by_the_wall_clock_and_not_before(
    tmp_path: Path,
) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    assert live.go() == []
    found = {step: rows for step in range(1, 8) if (rows := live.after(30))}
    # The 100 seconds and the lateness of 10 are over at 110; the next step is at 120.
    assert found == {4: [("silent", 100, 200, BY_CLOCK)]}
    assert live.watermark == 210


def test_a_step_costs_one_micro_batch_and_one_more_if_something_is_due(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    at = [live.number, *(live.number for _ in range(8) if live.after(30) is not None)]
    numbers = [after - before for before, after in pairwise(at)]
    # The event itself; nothing; the window of `pair` and `many`, if the key group wakes for it; the absence.
    assert numbers[0] == 2
    assert numbers[3] == 2
    assert numbers[4:] == [0, 0, 0, 0]
    assert sum(numbers) <= 7


def test_without_anything_that_waits_nothing_happens(tmp_path: Path) -> None:
    pair, _, _ = RULES.strip().split("RULE ")[1:]
    live = Live(tmp_path, rules_of(f"RULE {pair}"))
    live.write((100, 1, 4))  # of no use to any rule
    live.go()
    before = live.number
    assert [live.after(30) for _ in range(4)] == [[]] * 4
    assert (live.number, live.watermark) == (before, 90)


def test_between_two_steps_no_micro_batch_begins(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    live.after(30)
    before = live.number
    live.after(29)
    assert live.number == before
    live.after(1)
    assert live.number > before


def test_events_that_come_after_a_quiet_time_go_on_as_usual(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    live.after(60)  # to second 150
    live.write((155, 2, 1), (158, 2, 2))
    assert live.go() == []
    assert live.watermark == 150
    live.write((175, 3, 4))  # shows 165
    assert live.go() == [("pair", 155, 158, BY_EVENT)]
    live.write((300, 3, 4))
    assert live.go() == [("silent", 100, 200, BY_EVENT)]
    live.write((301, 5, 1), (302, 5, 2))
    live.go()
    assert live.after(30) == [("pair", 301, 302, BY_CLOCK)]


def test_an_event_that_the_clock_has_passed_is_late(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    live.after(60)
    live.write((150, 1, 2), (151, 1, 4))
    live.go()
    assert live.played.counts.late_of == {"s": 1}
    assert live.played.counts.events == 3


def test_what_events_show_in_the_micro_batch_is_not_marked(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1), (105, 1, 2))
    live.go()
    live.after(30)  # to second 125
    live.write((140, 2, 1), (141, 2, 2), (160, 2, 4), (171, 2, 4))
    # Events show 161: all of it in one call, or in two, but none by the clock.
    assert live.go() == [("pair", 140, 141, BY_EVENT)]


def test_without_the_setting_nothing_of_this_happens(tmp_path: Path) -> None:
    live = Live(tmp_path, after_s=None)
    live.write((100, 1, 1), (105, 1, 2))
    live.go()
    before = live.number
    assert live.after(10_000) == []
    assert live.number == before
    assert live.run.done.waits is None
    assert all((plan.clock_us, plan.asks, plan.cap_us) == (None, False, None) for plan in live.plans)


# ---------------------------------------------------------------- several sources

BOTH = """
RULE both FROM s, t PARTITION BY s.k = t.k PATTERN a -> b WITHIN 60 SECONDS
DEFINE a ON s AS n = 1, b ON t AS n = 2 MEASURES a.id AS a, b.id AS b
"""


def test_a_silent_source_holds_nothing_back_when_all_are_silent(tmp_path: Path) -> None:
    live = Live(tmp_path, rules_of(BOTH))
    live.write((100, 1, 1))
    live.write((90, 1, 4), stream="t")
    live.go()
    live.clock.now_s += 20
    live.write((105, 1, 1), stream="s")
    assert live.go() == []
    assert live.watermark == 80
    assert live.after(29) == []  # `t` is silent for 49 seconds, `s` is not
    assert live.watermark == 80
    live.write((101, 1, 2), stream="t")
    assert live.go() == []  # `t` shows 91 only
    assert live.after(30) == [("both", 100, 101, BY_CLOCK)]


def test_a_source_that_never_gave_an_event_holds_nothing_back_then(tmp_path: Path) -> None:
    live = Live(tmp_path, rules_of(BOTH))
    live.write((100, 1, 1))
    live.go()
    assert live.watermark is None
    live.after(30)
    assert live.watermark == 120


def test_input_that_is_known_and_not_read_holds_the_clock_back(tmp_path: Path) -> None:
    live = Live(tmp_path, rules_of(BOTH), limit=WaitingLimit(1))
    live.write((100, 1, 1), (101, 2, 1), (102, 3, 1))
    live.write((50, 1, 4), stream="t")
    live.go()
    live.write((103, 1, 1))  # not read before `t` has caught up
    assert live.after(300) == []
    assert live.watermark == 40
    by_clock = live.run.status().by_clock
    assert by_clock is not None
    assert not by_clock.is_ahead


def test_a_line_without_its_end_holds_nothing_back(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1), (105, 1, 2))
    with (tmp_path / "s/events.json").open("a") as file:
        file.write('{"ts": "2023-')
    live.go()
    assert live.after(30) == [("pair", 100, 105, BY_CLOCK)]


def test_beside_a_source_that_only_spark_can_read_the_clock_moves_too(tmp_path: Path) -> None:
    live = Live(tmp_path)
    run = replace(live.run, sources={}, by_spark=("s",), stopped=Looks())
    seen = []
    for number, silent_s in enumerate((0, 0, 29, 1, 30, 30)):
        live.clock.now_s += silent_s
        plan = run.next(number)
        assert plan is not None
        seen.append(None if plan.clock_us is None else plan.clock_us / S - START_S)
        counts = Counts(latest={"s": ((START_S + 100) * S, "x")}) if number == 0 else Counts()
        run.complete(number, replace(counts, deadlines={"0": (START_S + 140) * S if number < 4 else None}))
    assert seen == [None, None, None, 120, 150, 150]  # then nothing waits any more


# ---------------------------------------------------------------- runs that end and go on


def test_after_a_restart_the_last_matches_come_out_once_it_was_quiet_again(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1), (105, 1, 2))
    live.go()
    live.clock.now_s += 3_600
    live.restart()
    assert live.after(29) == []
    assert live.after(1) == [("pair", 100, 105, BY_CLOCK)]
    live.restart()
    assert live.run.done.waits is not None
    assert live.run.done.waits.events_us == (START_S + 95) * S
    assert [
        rows for _ in range(6) if (rows := live.after(30))
    ] == []  # the absence was ended by the event of second 105


def test_a_crash_between_the_clock_and_the_timers_loses_nothing(tmp_path: Path) -> None:
    live = Live(tmp_path, rules_of(RULES))
    live.write(*((100, key, 1) for key in range(20)), *((105, key, 2) for key in range(20)))
    live.go()
    live.clock.now_s += 30
    live.run.stopped = Looks()
    plan = live.run.next(live.number)
    assert plan is not None
    assert plan.clock_us is not None
    before = len(live.played.matches)
    live.run.complete(live.number, live.played.micro_batch(live.sources, plan))
    live.number += 1
    live.restart()  # nothing is known but what stands in the checkpoint
    live.go()
    assert rows_of(live.played.matches[before:]) == [("pair", 100, 105, BY_CLOCK)] * 20


def test_a_checkpoint_of_before_the_setting_is_asked_what_waits(tmp_path: Path) -> None:
    live = Live(tmp_path, after_s=None)
    live.write((100, 1, 1), (105, 1, 2))
    live.go()
    live.plans.clear()
    live.after_s = 30
    live.restart()
    assert live.go() == []
    assert live.after(30) == [("pair", 100, 105, BY_CLOCK)]
    first, *others = live.plans
    assert first.asks
    assert not any(plan.asks for plan in others)


def test_what_waits_stands_in_the_checkpoint(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    live.after(30)
    found = last_done_of(live.run.checkpoint, live.number).waits
    assert found == live.run.done.waits
    assert (found.events_us, set(found.deadlines.values())) == ((START_S + 90) * S, {(START_S + 140) * S})


def test_the_input_of_a_run_that_ends_is_not_quiet(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1), (105, 1, 2))
    live.run.interval_s = None
    live.go()
    live.clock.now_s += 1_000
    assert live.run.next(live.number) is None


# ---------------------------------------------------------------- any timeline


def timeline(random: Random) -> list[tuple[int, list[tuple[int, int, int]]]]:
    """Return what happens: the wall clock, and the events that come then."""
    now_s, steps = 0, []
    for _ in range(random.randint(5, 25)):
        now_s += random.choice((1, 1, 3, 10, 40, 200))
        n = random.choice((0, 1, 1, 2, 3))
        steps.append((now_s, [(now_s, random.randrange(4), random.randint(1, 3)) for _ in range(n)]))
    return steps


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_marked_that_events_alone_would_not_have_let_out_yet(tmp_path: Path, seed: int) -> None:
    """Beside a pipeline without the setting, which gets the same at the same time."""
    random = Random(seed)
    clock = Clock()
    rules = rules_of(random.choice((RULES, BOTH)))
    live = Live(tmp_path / "live", rules, clock=clock, after_s=random.choice((3, 15, 60)))
    plain = Live(tmp_path / "plain", rules, clock=clock, after_s=None)
    shown: list[tuple[Any, ...]] = []
    out: list[tuple[Any, ...]] = []
    steps = timeline(random)
    end_s = steps[-1][0] + 10_000
    for now_s, events in [*steps, (end_s, [])]:
        clock.now_s = now_s
        for event in events:
            stream = random.choice(list(rules.streams))
            live.write(event, stream=stream)
            plain.write(event, stream=stream)
        for stream in rules.streams if now_s == end_s else ():
            live.write((end_s, 9, 1), stream=stream)
            plain.write((end_s, 9, 1), stream=stream)
        shown += [row[:3] for row in plain.go()]
        for row in live.go():
            assert row[3] == (BY_EVENT if row[:3] in shown else BY_CLOCK), (now_s, row)
            out.append(row[:3])
        if random.random() < 0.2:
            live.restart()
    assert live.played.counts.late == 0
    assert sorted(out) == sorted(shown)


@pytest.mark.parametrize("seed", range(5))
def test_a_micro_batch_that_is_repeated_gives_the_same_rows(tmp_path: Path, seed: int) -> None:
    random = Random(1_000 + seed)
    live = Live(tmp_path, after_s=random.choice((3, 15)))
    n_repeated = 0
    for now_s, events in timeline(random):
        live.clock.now_s = now_s
        if events:
            live.write(*events)
        while True:
            live.run.stopped = Looks()
            plan = live.run.next(live.number)
            if plan is None:
                break
            saved = copy.copy(live.played)
            saved.states = {label: copy.copy(state) for label, state in live.played.states.items()}
            saved.matches, saved.counts = list(live.played.matches), copy.deepcopy(live.played.counts)
            n = len(saved.matches)
            counts = live.played.micro_batch(live.sources, plan)
            first = rows_of(live.played.matches[n:])
            if random.random() < 0.3:  # the crash comes before the output is written, and Spark's commit
                if random.random() < 0.5:
                    live.run.complete(live.number, counts)
                live.clock.now_s += random.choice((0, 100))
                live.played = saved
                live.restart()
                assert live.run.next(live.number) == plan
                counts = live.played.micro_batch(live.sources, plan)
                assert rows_of(live.played.matches[n:]) == first
                n_repeated += 1
            live.run.complete(live.number, counts)
            live.number += 1
    assert n_repeated


# ---------------------------------------------------------------- corrections


def test_what_a_late_event_adds_is_marked_by_what_lets_it_out(tmp_path: Path) -> None:
    rules = rules_of().with_corrections(Corrections(3_600 * S)).telling_end()
    live = Live(tmp_path, rules)
    live.write((100, 1, 1), (105, 2, 4))
    live.go()
    assert live.after(150) == [("silent", 100, 200, BY_CLOCK)]  # to second 240
    live.write((110, 1, 2))  # takes the absence back; the pair is not shown by events, only 95 is
    assert live.go() == [("pair", 100, 110, BY_CLOCK), ("silent", 100, 200, BY_EVENT)]
    kinds = [(row[KIND], row[REVISION], row["rule"]) for t in live.played.matches for row in t.to_pylist()]
    assert sorted(kinds) == [("match", 0, "pair"), ("match", 0, "silent"), ("retract", 1, "silent")]
    live.write((95, 7, 1), (96, 7, 2), (230, 5, 4))  # 100 was shown
    assert live.go() == [("pair", 95, 96, BY_EVENT)]


@pytest.mark.parametrize("seed", range(2))
def test_with_corrections_the_clock_changes_nothing_in_what_stands_in_the_end(
    tmp_path: Path, seed: int
) -> None:
    """Beside a pipeline without the setting; events come late, in any order."""
    random = Random(seed)
    clock = Clock()
    rules = rules_of().with_corrections(Corrections(3_600 * S))
    live = Live(tmp_path / "live", rules, clock=clock, after_s=random.choice((3, 15)))
    plain = Live(tmp_path / "plain", rules, clock=clock, after_s=None)
    coming = [(s + random.randint(0, 150), (s, k, n)) for s, events in timeline(random) for _, k, n in events]
    end_s = 20_000
    coming.append((end_s, (end_s, 9, 1)))
    marks = set()
    for now_s, event in sorted(coming):
        clock.now_s = now_s
        for pipeline in (live, plain):
            pipeline.write(event)
        marks |= {row[3] for row in live.go()}
        plain.go()
        clock.now_s += 0.5 * random.random()
        if random.random() < 0.2:
            live.restart()
    assert live.played.counts.late == plain.played.counts.late == 0
    assert standing(live) == standing(plain)
    assert marks


def standing(live: Live) -> Counter[tuple[Any, ...]]:
    """Return which matches are neither withdrawn nor written twice."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in [row for table in live.played.matches for row in table.to_pylist()]:
        found[row["rule"], row["match_id"]] += 1 if row[KIND] == "match" else -1
    assert set(found.values()) <= {0, 1}
    return +found


# ---------------------------------------------------------------- what is told


def test_the_status_says_when_the_clock_moved_the_watermark(tmp_path: Path) -> None:
    live = Live(tmp_path)
    live.write((100, 1, 1))
    live.go()
    assert live.run.held_line() == ""
    assert list(live.run.status().summary_lines()) == []
    assert live.run.status().to_json()["by_clock"] == {"is_ahead": False, "n_steps": 0}
    live.after(30)
    reached = "2023-11-14T22:15:20Z"
    assert live.run.held_line() == f"watermark {reached}, moved by the wall clock: no source gives events"
    assert list(live.run.status().summary_lines()) == [
        ("watermark", f"{reached}, moved by the wall clock"),
        ("", "the wall clock moved it once in this run (end_waits_after)"),
        ("", "s: 2023-11-14T22:15:00Z"),
    ]
    live.after(30)
    live.write((400, 1, 4))
    live.go()
    assert live.run.held_line() == ""
    status = live.run.status()
    assert status.to_json()["by_clock"] == {"is_ahead": False, "n_steps": 2}
    assert list(status.summary_lines())[1] == (
        "",
        "the wall clock moved it 2 times in this run (end_waits_after)",
    )


# ---------------------------------------------------------------- the page, the checkpoint


def test_the_times_of_the_page_are_those_of_a_pipeline(tmp_path: Path) -> None:
    absence = """RULE absence FROM s PARTITION BY k PATTERN a -> !b WITHIN 10 MINUTES
    DEFINE a AS n = 1, b AS n = 2"""
    live = Live(tmp_path, rules_of(absence))
    live.write((0, 1, 1))
    live.go()
    assert live.watermark == -10
    shown = {}
    found = []
    for step in range(1, 24):
        found += [(30 * step, row) for row in live.after(30)]
        shown[30 * step] = live.watermark
    assert (shown[30], shown[60], shown[630]) == (20, 50, 620)
    ((when, row),) = found
    assert (when, row) == (630, ("absence", 0, row[2], BY_CLOCK))


def test_plans_and_what_was_done_of_before_can_be_read(tmp_path: Path) -> None:
    plan = json.loads(Plan((), {}, cap_us=5).to_json())
    del plan["clock_us"], plan["asks"]
    assert Plan.of_json(json.dumps(plan)) == Plan([], {}, cap_us=5)
    live = Live(tmp_path, after_s=None)
    live.write((100, 1, 1))
    live.go()
    stored = json.loads((tmp_path / "checkpoint/done.json").read_text())
    assert {len(value) for value in stored.values()} == {5}  # without `waits`
    assert isinstance(replace(live.run.done, waits=Waits()), Done)
    assert Counts.of_json(Counts(deadlines={"1": None}).to_json()).deadlines == {"1": None}
