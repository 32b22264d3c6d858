"""``python -m tests.property.source_partitions --examples N``: streams over source partitions equal batches.

Random events over random sources: one or two streams, each with a watermark for the source, for each file or
for each value of a column; files of any span and density, which appear and grow between random micro-batches.
The plans are the real ones, and so are the readers and the operator; only Spark is played, by `Played`.
Runs pause fast sources at a random limit of waiting events, and some die after a micro-batch was planned.
Nothing of known partitions may be late, and then the matches must be those of a batch over all events. The
operator is never ahead of the watermark that decides which events are late.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa

from cep.compiler.compile import compile_sources
from cep.counts import Counts
from cep.errors import Source
from cep.formats.files import Format, Reading, pattern_of
from cep.local.given_events import event_table
from cep.local.match_file import match_chunks
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.dataflow.dataflow import Dataflow
from spark_runtime.dataflow.share_reader import TICKS, ShareReader
from spark_runtime.event_time.partitions import PER_FILE, PER_SOURCE
from spark_runtime.event_time.watermarks import WaitingLimit, WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.output import COUNTS, KIND, MATCH, MATCHES_COLUMN, TEXT, carried_schema
from spark_runtime.wire.parcels import GROUP, LATEST, PARCEL_COLUMNS, table_of_bytes
from spark_runtime.wire.plan import CAP_PROPERTY, CLOCK_PROPERTY, PROPERTY, Plan

SECOND_US = 1_000_000
LATENESS_S = 3
N_GROUPS = 2

_FIELDS = (
    Field("ts", "timestamp"),
    Field("id", "bigint"),
    Field("k", "bigint"),
    Field("n", "bigint"),
    Field("g", "string"),
    Field("d", "bigint"),
)
STREAMS = {
    name: Stream(name, _FIELDS, "ts", ("id",), LATENESS_S * SECOND_US, max_ahead_us=10**15)
    for name in ("s", "t")
}

ONE = """
RULE rising FROM s PARTITION BY k PATTERN a b+ c WITHIN 20 SECONDS
DEFINE b AS n > a.n, c AS n < a.n MEASURES COUNT(b.*) AS bs, SUM(b.n) AS total
RULE silent FROM s PARTITION BY k PATTERN a -> !b FOR 4 SECONDS
DEFINE a AS n = 1, b AS n = 2 MEASURES a.id AS a
RULE ended FROM s PARTITION BY k PATTERN a -> b WITHIN 5 SECONDS DEFINE a AS n = 3, b AS n = 0
MEASURES a.id AS a ON TIMEOUT
"""
TWO = """
RULE both FROM s, t PARTITION BY s.k = t.k PATTERN a -> b -> c WITHIN 30 SECONDS
DEFINE a ON s AS n > 1, b ON t AS n > 1, c ON s AS n < 2 MEASURES a.id AS a, b.id AS b
AFTER MATCH SKIP TO NEXT EVENT
RULE missing FROM s, t PARTITION BY s.k = t.k PATTERN a -> !b FOR 6 SECONDS
DEFINE a ON s AS n = 1, b ON t AS n = 1 MEASURES a.id AS a
"""


@cache
def rule_set(text: str) -> RuleSet:
    """Return the rules of a text over `STREAMS`."""
    return compile_sources([Source("rules", text)], STREAMS).rule_set


@dataclass
class Feed:
    """One source: files in `folder`, and what is still to come of each."""

    stream: Stream
    folder: Path
    watermark_per: str
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # in order of delivery
    events: list[dict[str, Any]] = field(default_factory=list)

    def source(self, log: str, max_files: int | None) -> FolderSource:
        """Return the source as a pipeline has it."""
        path = str(self.folder)
        if self.watermark_per == "g":
            path = f"{self.folder}/{{g}}.jsonl"
        reading = Reading(((("k",)),), pattern=pattern_of(path))
        return FolderSource(
            self.stream, path, Format.JSON, reading, log, max_files, watermark_per=self.watermark_per
        )

    def begin(self) -> None:
        """Write what makes all partitions known: the first line of each file, or of each device."""
        for name, waiting in self.files.items():
            n = len({event["d"] for event in waiting}) if self.watermark_per == "d" else 1
            (self.folder / name).write_text("".join(json.dumps(event) + "\n" for event in waiting[:n]))
            del waiting[:n]

    def deliver(self, random: Random, *, everything: bool) -> None:
        """Write more lines of some files."""
        # Several files with one watermark are in no order: only what is there at once is caught up.
        everything = everything or (self.watermark_per == PER_SOURCE and len(self.files) > 1)
        for name, waiting in self.files.items():
            n = len(waiting) if everything else random.randint(0, len(waiting))
            with (self.folder / name).open("a") as file:
                for event in waiting[:n]:
                    file.write(json.dumps(event) + "\n")
            del waiting[:n]


def feed(stream: Stream, folder: Path, random: Random) -> Feed:
    """Return a source with random events; those of a partition come at most the lateness out of order."""
    folder.mkdir()
    made = Feed(stream, folder, random.choice((PER_SOURCE, PER_FILE, "g", "d")))
    start = random.choice((0, 0, 50))
    for number in range(random.randint(1, 4)):
        now = start + random.choice((0, 0, 20, 60))
        events = []
        for _ in range(random.randint(1, 25)):
            now += random.choice((0, 1, 1, 2, 5))
            event = {
                "id": random.getrandbits(40),
                "k": random.randrange(3),
                "n": random.randrange(5),
                "d": number,
            }
            events.append((now, event | ({} if made.watermark_per == "g" else {"g": f"g{number}"})))
        held = sorted(events, key=lambda item: item[0] + random.random() * (LATENESS_S - 0.01))
        lines = [event | {"ts": _text(now)} for now, event in held]
        name = f"g{number}.jsonl"
        made.files[name] = lines
        made.events += [event | {"g": f"g{number}", "ts": now} for now, event in held]
    if made.watermark_per == "d":  # the devices of one file, each in order
        made.files = {"all.jsonl": list(_interleaved(list(made.files.values()), random))}
    return made


def _interleaved(lists: list[list[dict[str, Any]]], random: Random) -> Iterator[dict[str, Any]]:
    """Yield the items of all lists, those of each in order, the first ones first."""
    yield from (items.pop(0) for items in lists)
    while lists := [items for items in lists if items]:
        yield random.choice(lists).pop(0)


def _text(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + seconds))


class _State:
    """Spark's state of one key group."""

    def __init__(self) -> None:
        self.value: tuple[bytes] | None = None
        self.timeout_ms: int | None = None
        self.watermark_ms = 0
        self.hasTimedOut = False

    @property
    def exists(self) -> bool:
        return self.value is not None

    @property
    def get(self) -> tuple[bytes]:
        assert self.value is not None
        return self.value

    def update(self, value: tuple[bytes]) -> None:
        self.value = value

    def getCurrentWatermarkMs(self) -> int:
        return self.watermark_ms

    def setTimeoutTimestamp(self, timeout_ms: int) -> None:
        assert timeout_ms > self.watermark_ms or timeout_ms == self.watermark_ms
        self.timeout_ms = timeout_ms


class Played:
    """What Spark does with a query: micro-batches, the shuffle by key group, state, watermark, timeouts."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.flow = Dataflow(rules, N_GROUPS)
        self.states: dict[int, _State] = {label: _State() for label in self.flow.labels}
        self.watermark_ms = 0
        self.matches: list[pa.Table] = []
        self.counts = Counts()

    def micro_batch(self, sources: dict[str, FolderSource], plan: Plan) -> Counts:
        """Compute a micro-batch; return its counts."""
        times = {CAP_PROPERTY: plan.cap_us, CLOCK_PROPERTY: plan.clock_us}
        properties = {name: "" if us is None else str(us) for name, us in times.items()}
        properties[PROPERTY] = plan.to_json()
        context = mock.Mock(getLocalProperty=properties.get)
        with mock.patch("pyspark.TaskContext", mock.Mock(get=lambda: context)):
            slots = pa.record_batch([pa.array(range(TICKS), pa.int64())], names=["value"])
            reader = ShareReader(sources, self.flow.packer)
            parcels = pa.Table.from_batches(list(reader([slots])), None) if _has_any(plan) else None
            return self._operate(parcels)

    def _operate(self, parcels: pa.Table | None) -> Counts:
        counts = Counts()
        rows = [] if parcels is None else parcels.to_pylist()
        latest_ms = [row[LATEST] // 1000 for row in rows if row[LATEST] is not None]
        for label, state in self.states.items():
            mine = [row for row in rows if row[GROUP] == label]
            state.watermark_ms = self.watermark_ms
            has_expired = state.timeout_ms is not None and state.timeout_ms < self.watermark_ms
            if not mine and not has_expired:
                continue
            state.hasTimedOut = not mine
            state.timeout_ms = None
            frame = pa.table(
                {name: pa.array([row[name] for row in mine]) for name in PARCEL_COLUMNS}
            ).to_pandas()
            for out in self.flow.operator((label,), [frame] if mine else [], state):  # type: ignore[arg-type]
                self._take(out, counts)
        delay_ms = -(-self.rules.lateness_us // 1000)
        self.watermark_ms = max([self.watermark_ms, *(ms - delay_ms for ms in latest_ms)])
        self.counts.add(counts)
        return counts

    def _take(self, out: Any, counts: Counts) -> None:
        schema = carried_schema(self.rules.match_schema)
        for kind, text, data in zip(out[KIND], out[TEXT], out[MATCHES_COLUMN], strict=True):
            if kind == COUNTS:
                counts.add(Counts.of_json(text))
            elif kind == MATCH:
                self.matches.append(table_of_bytes(data, schema))

    def require_not_ahead(self, plan: Plan, watermark_us: int | None) -> None:
        """Raise AssertionError if the operator is ahead of the watermark that decides which events are late.

        It would drop events that the reader has let pass.
        """
        if plan.cap_us is not None and watermark_us is not None:
            assert plan.cap_us <= watermark_us, f"the operator is {plan.cap_us - watermark_us} us ahead"

    def require_told(self, watermark_us: int | None) -> None:
        """Raise AssertionError if a key group waits for a watermark that the stream has reached."""
        reached_ms = 0 if watermark_us is None else watermark_us // 1000
        assert self.watermark_ms >= reached_ms, f"Spark is {reached_ms - self.watermark_ms} ms behind"
        due = [label for label, state in self.states.items() if (state.timeout_ms or reached_ms) < reached_ms]
        assert not due, f"key groups {due} were not called"

    def found(self) -> Counter[tuple[Any, ...]]:
        """Return the matches: rule, id, end."""
        return Counter(
            (row["rule"], row["match_id"], row["match_end"])
            for table in self.matches
            for row in table.to_pylist()
        )


def _has_any(plan: Plan) -> bool:
    return bool(plan.shares) or plan.ends or plan.asks or plan.cap_us is not None


def in_batch(rules: RuleSet, feeds: list[Feed]) -> Counter[tuple[Any, ...]]:
    """Return the matches of a batch over all events."""
    from cep.formats.chunks import Chunk
    from cep.formats.dead_letter import DEAD_LETTER_SCHEMA

    chunks = {}
    for item in feeds:
        rows = [event | {"ts": (1_700_000_000 + event["ts"]) * SECOND_US} for event in item.events]
        chunks[item.stream.name] = [Chunk(event_table(item.stream, rows), DEAD_LETTER_SCHEMA.empty_table())]
    found = match_chunks(rules, chunks).matches
    return Counter(
        (row["rule"], row["match_id"], round(row["match_end"].timestamp() * 1e6)) for row in found.to_pylist()
    )


def check(seed: int, folder: Path, watermark: Callable[[int], WatermarkRule] = WatermarkRule) -> Counter[str]:
    """Compare a stream with a batch on one random case; return what was in it.

    Raises
    ------
    AssertionError
        They differ, or an event was late.
    """
    random = Random(seed)
    text = random.choice((ONE, TWO))
    rules = rule_set(text)
    feeds = [feed(rules.streams[name], folder / name, random) for name in rules.streams]
    played = Played(rules)
    checkpoint = Checkpoint(str(folder / "ck"), "run", N_GROUPS, LocalFiles(str(folder / "ck")))
    number, n_runs = 0, random.randint(1, 4)
    n_crashes = random.choice((0, 0, 1, 2))
    # A pause is impossible, and refused, where the events of all partitions come together.
    may_pause = all(item.watermark_per != "d" for item in feeds)
    limit = WaitingLimit(random.choice((1, 10, 10_000)) if may_pause else 10_000)
    early: Counter[str] = Counter()
    is_known = random.random() < 0.7  # a partition that nobody knows of cannot hold the watermark back
    for item in feeds if is_known else ():
        item.begin()
    run = 0
    while run < n_runs:
        is_last = run == n_runs - 1
        for item in feeds:
            item.deliver(random, everything=is_last)
        most = random.choice((None, 1, 1, 2))
        sources = {i.stream.name: i.source(checkpoint.file_log(i.stream.name), most) for i in feeds}
        done = last_done_of(checkpoint, number)
        batches = MicroBatches(
            checkpoint=checkpoint,
            sources=sources,
            n_tasks=random.randint(1, 3),
            rule=watermark(rules.lateness_us),
            done=done,
            interval_s=None,
            finishes=is_last,
            limit=limit,
        )
        run += 1
        while (plan := batches.next(number)) is not None:
            early["paused"] += batches.status().is_paused
            if n_crashes and random.random() < 0.2:  # the next run repeats the micro-batch
                n_crashes, run = n_crashes - 1, run - 1
                early["crashes"] += 1
                break
            n_before = played.found().total()
            batches.complete(number, played.micro_batch(sources, plan))
            played.require_not_ahead(plan, batches.done.watermark_us)
            if not plan.ends:
                modes = "+".join(sorted(item.watermark_per for item in feeds))
                early[f"before the end, {modes}"] += played.found().total() - n_before
            number += 1
            assert number < 500, "the run does not end"
        else:
            if not batches.done.ended:  # at the end all is reported, whatever the watermark
                played.require_told(batches.done.watermark_us)
    expected, found = in_batch(rules, feeds), played.found()
    if is_known:
        assert played.counts.late == 0, f"{played.counts.late_of} late"
    if not played.counts.late:
        assert found == expected, f"missing {expected - found}, too many {found - expected}"
    early["late"] += played.counts.late
    return Counter({"matches": found.total(), "micro-batches": number, "cases": 1}) + early


def last_done_of(checkpoint: Checkpoint, number: int) -> Any:
    """Return what was reached with the micro-batches before `number`."""
    for folder in ("offsets", "commits"):
        if number:
            checkpoint.files.write(f"query/{folder}/{number - 1}", "")
    return last_done(checkpoint, is_live=False)


def run(seeds: range) -> Iterator[tuple[int, str | None, Counter[str]]]:
    """Check each seed; yield it with what is wrong."""
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            try:
                yield seed, None, check(seed, Path(folder))
            except AssertionError as error:
                yield seed, str(error), Counter()


def _run_all(seeds: range) -> list[tuple[int, str | None, Counter[str]]]:
    return list(run(seeds))


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    total: Counter[str] = Counter()
    portions = [
        range(first, min(first + 50, given.seed + given.examples))
        for first in range(given.seed, given.seed + given.examples, 50)
    ]
    with multiprocessing.Pool(given.jobs) as pool:
        for results in pool.imap(_run_all, portions):
            for seed, wrong, found in results:
                if wrong is not None:
                    print(f"seed {seed}: {wrong}")
                    return 1
                total += found
    seconds = time.monotonic() - begun
    print(f"{dict(total)} in {seconds:.0f} s: streams equal batches, nothing of known partitions late")
    return 0


if __name__ == "__main__":
    sys.exit(main())
