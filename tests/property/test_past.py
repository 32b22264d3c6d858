"""The past that is read again gives the matches of a stream that has read it once, late events included.

Rules over two streams and a table, rules over rules and window rules. A stream is divided into micro-
batches at random, and its course is noted as a run notes it.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.engine.chains.chain import Chain
from cep.engine.event_time.watermark import late_by_us, split_late
from cep.errors import Source
from cep.formats.ahead import AheadGuard
from cep.formats.files import Reading
from cep.program.changes import BEGINNING, changes_of
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline import course
from spark_runtime.pipeline.course import CourseLog, Mark, read_course
from spark_runtime.pipeline.past import Past, Position, Throttle, first_matchers, needed_programs
from spark_runtime.state.snapshots import Past as PastOfGroup
from spark_runtime.state.snapshots import changed_state, decode_state, encode_state
from spark_runtime.wire.plan import Plan

START = datetime(2026, 1, 1, tzinfo=UTC)
LATENESS_US = 5_000_000
FIELDS = (Field("id", "bigint"), Field("ts", "timestamp"), Field("key", "string"))
STREAMS = {name: Stream(name, FIELDS, "ts", ("id",), LATENESS_US) for name in ("opens", "moves")}
STREAMS["owners"] = Stream(
    "owners", FIELDS, "ts", ("id",), LATENESS_US, table=TableSettings(("key",), TableKind.CHANGELOG)
)
RULES = """
RULE pair
FROM opens, moves
PARTITION BY key
PATTERN one -> two -> three
WITHIN 60 SECONDS
DEFINE one ON opens AS id > 0, two ON moves AS id > one.id, three ON opens AS id > 0
MEASURES three.id AS id

RULE quiet
FROM moves
PARTITION BY key
PATTERN one -> !two FOR 7 SECONDS
DEFINE one AS id > 0, two AS id > 0
MEASURES one.id AS id

RULE handed_over
FROM moves
JOIN owners ON key
PARTITION BY key
PATTERN one -> two
WITHIN 90 SECONDS
DEFINE one AS owners.id IS NOT NULL, two AS owners.id <> one.owners.id
MEASURES one.owners.id AS was, COUNT(*) OVER LAST 30 SECONDS AS moves

RULE twice
FROM MATCHES OF pair
PARTITION BY key
PATTERN one -> two
WITHIN 2 MINUTES
DEFINE two AS id <> one.id
MEASURES two.id AS id

RULE busy
FROM moves
PARTITION BY key
WINDOW TUMBLING 20 SECONDS
HAVING COUNT(*) > 2
MEASURES COUNT(*) AS id
"""


class Live:
    """A stream over two folders, micro-batch by micro-batch."""

    def __init__(
        self, folder: Path, draw: random.Random, *, has_late: bool = True, max_files: int = 3
    ) -> None:
        self.folder, self.draw, self.has_late = folder, draw, has_late
        self.rules = compiled(RULES)
        self.sources = {
            name: FolderSource(
                stream, str(folder / name), "json", Reading(), str(folder / f"{name}.log"), max_files
            )
            for name, stream in STREAMS.items()
        }
        self.planners = {name: source.planner() for name, source in self.sources.items()}
        self.chain = Chain(self.rules)
        self.others = Chain(compiled(_chosen(draw)))  # some of the rules, until the others are added
        self.of_others: list[dict[str, Any]] = []
        self.course = CourseLog(str(folder))
        self.done = Done(-1, Reached(), {}, ended=False)
        self.rows: list[tuple[int, dict[str, Any]]] = []  # by micro-batch
        self.n_late, self._n_files, self._at_s = 0, 0, 0.0

    def write(self) -> None:
        """Add files with events about the present time, of which a few are old."""
        for name in STREAMS:
            for _ in range(self.draw.randrange(3)):
                place = self.folder / name / f"{self._n_files:04}.json"
                place.parent.mkdir(exist_ok=True)
                self._n_files += 1
                with place.open("w") as file:
                    for at in range(self.draw.randrange(1, 12)):
                        self._at_s += self.draw.random() * 2
                        back_s = self.draw.choice((0, 0, 1, 3, 30 if self.has_late and at % 2 else 0))
                        time = START + timedelta(seconds=self._at_s - back_s)
                        event = {"id": self.draw.randrange(1, 1 << 40), "ts": time.isoformat()}
                        file.write(json.dumps({**event, "key": f"k{self.draw.randrange(3)}"}) + "\n")

    def micro_batch(self) -> None:
        """Read what is new, as a run does."""
        before = self.done
        starts = {name: before.offsets.get(name, 0) for name in STREAMS}
        offsets = {name: planner.latest(starts[name]) for name, planner in self.planners.items()}
        counts = Counts()
        latest: dict[str, tuple[int, str]] = {}
        # A stream that was idle holds nothing back: the watermark moves before events are read.
        told = before.reached
        if self.has_late and told.watermark_us is not None and self.draw.random() < 0.2:
            told = told.after({}, told.watermark_us + self.draw.choice((3_000_000, 9_000_000)))
        parts = [(name, part) for name in STREAMS
                 for _, part in self.planners[name].ranges(starts[name], offsets[name])]  # fmt: skip
        self.draw.shuffle(parts)
        for name, part in parts:
            stream, guard = STREAMS[name], AheadGuard(STREAMS[name].max_ahead_us)
            for chunk in self.sources[name].read(part, guard, Counts()):
                events = chunk.events
                times_us = events.column("ts").to_numpy()
                latest[name] = max(latest.get(name, (0, "")), (int(times_us.max()), ""))
                if told.watermark_us is not None:
                    events, late = split_late(events, late_by_us(times_us, told.watermark_us), stream)
                    counts.late_of[name] = counts.late_of.get(name, 0) + late.num_rows
                counts.events += chunk.events.num_rows
                self.chain.push_events(stream, events)
                self.others.push_events(stream, events)
        reached = told.after(latest, None)
        known = [us for us, _ in reached.latest.values()]
        watermark_us = min(known) - LATENESS_US if len(known) == len(STREAMS) else None
        self.done = Done(before.batch + 1, reached.after({}, watermark_us), offsets, ended=False)
        self.n_late += counts.late
        plan = Plan([[(name, tuple(part)) for name, part in parts]], offsets, told)
        self.course.note(before, plan, self.done, counts)
        if self.done.watermark_us is not None:
            self.chain.advance(self.done.watermark_us, self._put)
            self.others.advance(self.done.watermark_us, self._put_of_others)

    def _put(self, matches: pa.Table) -> None:
        self.rows += [(self.done.batch, row) for row in matches.to_pylist()]

    def _put_of_others(self, matches: pa.Table) -> None:
        self.of_others += matches.to_pylist()

    def add_rules(self) -> None:
        """Let the other rules begin with the past."""
        before = self.others.rules
        changes = changes_of(before.programs, self.rules.programs)
        new = frozenset(name for name, verdict in changes.verdicts.items() if verdict in BEGINNING)
        marks, until = read_course(str(self.folder)), Mark.of(self.done)
        needed = needed_programs(self.rules, new)
        begin = first_matchers(needed, None, {})
        past = Past(needed, self.sources, {}, begin, Position.before(marks, None, until, is_live=False))

        def put(matches: pa.Table) -> None:
            self.of_others += [row for row in matches.to_pylist() if row["rule"] in new]

        past.read(marks, until, put)
        read_until_us = self.done.reached.read_until_us
        assert read_until_us is not None
        of_past = PastOfGroup(past.snapshot(), new)
        data = encode_state(self.others.matchers, 1)
        data = changed_state(data, before, self.rules, 1, read_until_us, of_past)
        self.others = Chain(self.rules, decode_state(data, self.rules, 1))


def compiled(text: str) -> RuleSet:
    return compile_sources([Source("rules.cep", text)], STREAMS).rule_set


def _chosen(draw: random.Random) -> str:
    """Return some of the rules; one of them joins the table, whose versions a new rule would miss."""
    texts = {part.split()[0]: f"RULE {part}" for part in RULES.split("RULE ")[1:]}
    chosen = {"handed_over", *draw.sample(sorted(texts), draw.randrange(3))}
    chosen |= {"pair"} if "twice" in chosen else set()
    return "".join(text for name, text in texts.items() if name in chosen)


def ids(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(f"{row['rule']} {row['match_id']}" for row in rows)


@pytest.mark.parametrize("seed", range(12))
def test_the_past_read_again_gives_the_matches_of_the_stream(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    live = Live(tmp_path, draw)
    between: list[Done] = []
    added = draw.randrange(8, 25)
    with mock.patch.object(course, "MARK_EVENTS", draw.choice((1, 40, 10_000))):
        for number in range(30):
            if number == 15:  # the run starts again
                live.course = CourseLog(str(tmp_path))
            live.write()
            live.micro_batch()
            between.append(live.done)
            if number == added:
                live.add_rules()
    assert live.n_late
    assert {row["rule"] for _, row in live.rows} >= {"pair", "quiet", "handed_over", "busy"}
    assert ids(live.of_others) == ids([row for _, row in live.rows])
    cut = draw.choice(between[5:-1])
    past = Past(live.rules, live.sources, {}, first_matchers(live.rules, None, {}), Position())
    found: list[dict[str, Any]] = []
    marks = read_course(str(tmp_path))

    def put(matches: pa.Table) -> None:
        found.extend(matches.to_pylist())

    past.position = Position.before(marks, None, Mark.of(cut), is_live=False)
    past.read(marks, Mark.of(cut), put)
    assert ids(found) == ids([row for batch, row in live.rows if batch <= cut.batch])
    stored = json.loads(json.dumps(past.position.to_json()))
    rest = Past(live.rules, live.sources, {}, past.snapshot(), Position.of_json(stored))
    rest.read(marks, Mark.of(live.done), put)
    assert ids(found) == ids([row for _, row in live.rows])
    assert past.counts.late + rest.counts.late == live.n_late
    assert past.counts.read + rest.counts.read == sum(
        len(file.read_text().splitlines()) for name in STREAMS for file in (tmp_path / name).iterdir()
    )
    for one, other in zip(rest._chain.matchers, live.chain.matchers, strict=True):
        assert one.open_runs == other.open_runs
        assert one.n_waiting == other.n_waiting


@pytest.mark.parametrize("seed", range(6))
def test_where_the_course_is_unknown_the_slowest_stream_holds_the_watermark_back(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    live = Live(tmp_path, draw, has_late=False)
    monkeypatch.setattr(course, "MARK_EVENTS", 20)
    for _ in range(30):
        live.write()
        live.micro_batch()
    assert not live.n_late
    marks = read_course(str(tmp_path))
    for known in ([], marks[len(marks) // 2 :], marks):
        position = Position.before(known, None, Mark.of(live.done), is_live=False)
        past = Past(live.rules, live.sources, {}, first_matchers(live.rules, None, {}), position)
        found: list[dict[str, Any]] = []
        n_parts: list[int] = []

        def put(matches: pa.Table, found: list[Any] = found, n_parts: list[int] = n_parts) -> None:
            found.extend(matches.to_pylist())
            n_parts.append(1)

        past.read(known, Mark.of(live.done), put)
        assert ids(found) == ids([row for _, row in live.rows])
        assert past.counts.late == 0
        assert len(n_parts) > 10  # what the watermark has passed does not wait for the end
        assert (past.n_unknown > 0) is (known is not marks)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_files_makes_no_event_late_where_the_course_is_unknown(
    tmp_path: Path, seed: int
) -> None:
    live = Live(tmp_path, random.Random(seed), has_late=False, max_files=100)
    for _ in range(30):
        live.write()
    files = [file for name in STREAMS for file in (tmp_path / name).iterdir()]
    live.draw.shuffle(files)
    for number, file in enumerate(files):
        os.utime(file, (number, number))
    live.micro_batch()
    position = Position.before([], None, Mark.of(live.done), is_live=False)
    past = Past(live.rules, live.sources, {}, first_matchers(live.rules, None, {}), position)
    found: list[dict[str, Any]] = []
    past.read([], Mark.of(live.done), lambda matches: found.extend(matches.to_pylist()))
    n_events = sum(len(file.read_text().splitlines()) for file in files)
    assert (past.counts.read, past.counts.late) == (n_events, 0)
    assert past.n_unknown == past.counts.events
    assert ids(found) == ids([row for _, row in live.rows])
    assert found


def test_a_rate_lets_only_so_many_events_pass_in_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 6))
        now_s[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now_s[0])
    monkeypatch.setattr("time.sleep", sleep)
    throttle = Throttle(1000)
    throttle.passed(500)
    throttle.passed(250)
    now_s[0] += 10
    throttle.passed(100)
    Throttle(None).passed(10_000)
    assert slept == [0.5, 0.25, 0]
