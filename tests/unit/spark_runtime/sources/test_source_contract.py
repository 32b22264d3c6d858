"""What each source that we read promises, whoever wrote it (`spark_runtime.sources.protocol`)."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cep.counts import Counts
from cep.errors import CepError
from cep.formats.ahead import AheadGuard
from cep.formats.files import Reading
from cep.formats.intake import count_chunk
from cep.formats.registry import FORMATS
from cep.schema.stream import Field, Stream
from cep.spool.segments import ReceivedBatch
from cep.spool.writer import Limits, writer_at
from spark_runtime.connectors.files.source import FolderSource
from spark_runtime.connectors.spool.reading import SpoolReading
from spark_runtime.connectors.spool.source import SpoolSource
from spark_runtime.event_time.done import Done
from spark_runtime.event_time.reached import Reached
from spark_runtime.event_time.watermarks import WatermarkRule
from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.sources.protocol import Offset, Range, Source
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.sample_plugin.sample_kv.counter import Counter, CounterSource

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
START = datetime(2024, 5, 1, tzinfo=UTC)


def folder(file_format: str) -> Callable[[Path], Source]:
    def made(place: Path) -> Source:
        for number in range(5):
            ids = [2 * number, 2 * number + 1]
            write(place / "in" / f"{number}.{file_format}", file_format, ids)
        log = str(place / "log" / "s.log")
        return FolderSource(STREAM, str(place / "in"), file_format, Reading(), log, max_files=2)

    return made


def write(file: Path, file_format: str, ids: list[int]) -> None:
    file.parent.mkdir(exist_ok=True)
    rows = [{"id": number, "ts": (START + timedelta(seconds=number)).isoformat()} for number in ids]
    if file_format == "parquet":
        times = pa.array([START] * len(ids), pa.timestamp("us", "UTC"))
        pq.write_table(pa.table({"id": ids, "ts": times}), file)
    elif file_format == "csv":
        file.write_text("id,ts\n" + "".join(f"{row['id']},{row['ts']}\n" for row in rows))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, "no event"]))


def counter(place: Path) -> Source:
    return CounterSource(STREAM, Counter(10, 2), log=str(place / "log" / "s.log"))


def spool(place: Path) -> Source:
    """Return a spool of three segments, with two blocks each."""
    with closing(writer_at(place / "in", Limits(), lambda: 1e9)) as writer:
        for number in range(6):
            rows = [{"id": 2 * number + i, "ts": (START + timedelta(seconds=i)).isoformat()} for i in (0, 1)]
            values = [*(json.dumps(row).encode() for row in rows), b"no event"]
            writer.append([ReceivedBatch(values, np.zeros(3, np.int64))])
            if number % 2:
                writer.roll()
    return SpoolSource(
        SpoolReading(STREAM, str(place / "in"), max_events=4, log=str(place / "log" / "s.log"))
    )


SOURCES: dict[str, Callable[[Path], Source]] = {
    **{name: folder(name) for name in FORMATS.built_in},
    "counter": counter,
    "spool": spool,
}
EACH = pytest.mark.parametrize("made", SOURCES.values(), ids=SOURCES)


class Seen:
    """What was read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.ids: list[int] = []
        self.places: list[str] = []
        self.counts = Counts()

    def read(self, part: Range) -> None:
        through_json: Range = tuple(json.loads(json.dumps(part)))
        for chunk in self.source.read(through_json, AheadGuard(STREAM.max_ahead_us), self.counts):
            self.ids += chunk.events.column("id").to_pylist()
            dead = chunk.dead_letters.to_pylist()
            self.places += [self.source.position_text(row["source"], row["position"]) for row in dead]


def planned(source: Source) -> list[tuple[Offset, list[Range]]]:
    """Return the micro-batches of a run that reads what is there: where each ends, and its ranges."""
    planner = source.planner()
    planner.stop_at_now()
    start, found = planner.start(), []
    while (end := planner.latest(start)) != start:
        found.append((end, [part for _, part in planner.ranges(start, end)]))
        planner.commit(end)
        start = end
    planner.close(Counts())
    return found


@EACH
def test_micro_batches_cover_everything_once(made: Callable[[Path], Source], tmp_path: Path) -> None:
    source = made(tmp_path)
    source.check()
    assert isinstance(source, Source)
    in_batches, at_once = Seen(source), Seen(source)
    found = planned(source)
    for _, ranges in found:
        for part in ranges:
            in_batches.read(part)
    for _, part in source.everything():
        at_once.read(part)
    assert len(found) > 1
    assert sorted(in_batches.ids) == sorted(at_once.ids)
    assert len(set(at_once.ids)) == len(at_once.ids) > 0
    assert sorted(in_batches.places) == sorted(at_once.places)
    assert in_batches.counts == Counts()


@EACH
def test_offsets_are_json_and_a_range_is_planned_and_read_again_as_it_was(
    made: Callable[[Path], Source], tmp_path: Path
) -> None:
    source = made(tmp_path)
    found = planned(source)
    again: Source = pickle.loads(pickle.dumps(source))  # as in a worker
    start = again.planner().start()
    for end, ranges in found:
        parts = again.planner().ranges(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
        assert [list(part) for _, part in parts] == [list(part) for part in ranges]
        first, second = Seen(source), Seen(again)
        for part in ranges:
            first.read(part)
            second.read(part)
        assert (first.ids, first.places) == (second.ids, second.places)
        start = end


@EACH
def test_a_range_lies_in_one_partition_and_has_its_size(
    made: Callable[[Path], Source], tmp_path: Path
) -> None:
    source = made(tmp_path)
    assert all(size > 0 for size, _ in source.everything())
    names = {source.partition(part) for _, part in source.everything()}
    assert names == {source.partition(part) for _, ranges in planned(source) for part in ranges}


def test_a_position_is_a_text_in_the_form_of_its_source(tmp_path: Path) -> None:
    texts = {}
    for name, made in SOURCES.items():
        (tmp_path / name).mkdir()
        source = made(tmp_path / name)
        texts[name] = source.position_text("in/a", 12)
        seen = Seen(source)
        seen.read(source.everything()[0][1])
        texts[name] += " " + " ".join(place.replace(str(tmp_path), "") for place in seen.places)
    assert texts == {
        "json": "in/a:12 /json/in/0.json:3",
        "csv": "in/a:12 ",
        "parquet": "in/a:12 ",
        "counter": "in/a@12 counter[0]@6",
        "spool": "in/a@12 in/00000000000000000000.segment@2 in/00000000000000000000.segment@5",
    }


@pytest.mark.parametrize(
    "empty",
    [FolderSource(STREAM, "/dev/null", "json", Reading()), CounterSource(STREAM, Counter(0, 1))],
    ids=["files", "counter"],
)
def test_a_source_without_anything_is_refused_before_the_run(empty: Source) -> None:
    with pytest.raises(CepError) as caught:
        empty.check()
    assert caught.value.code == "E0603"


def test_a_micro_batch_is_committed_once_its_output_is_written_and_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    committed = tmp_path / "log" / "s.log"  # where this source notes it

    def run(done: Done) -> MicroBatches:
        root = str(tmp_path / "checkpoint")
        return MicroBatches(
            checkpoint=Checkpoint(root, "run", 2, LocalFiles(root)),
            sources={"s": counter(tmp_path)},
            n_tasks=2,
            rule=WatermarkRule(0),
            done=done,
            interval_s=None,
            finishes=False,
        )

    first = run(Done(-1, Reached(), {}, ended=False))
    plan = first.next(0)
    assert plan is not None
    assert plan.offsets == {"s": [4, 4]}
    assert not committed.exists()
    first.complete(0, Counts())
    assert committed.read_text() == "[4, 4]\n"
    run(first.done)  # the process died before it could say so, perhaps
    assert committed.read_text() == "[4, 4]\n[4, 4]\n"


def test_the_latest_event_time_is_noted_by_partition() -> None:
    source = CounterSource(STREAM, Counter(5, 2))
    counts = Counts()
    for _, part in source.everything():
        for chunk in source.read(part, AheadGuard(STREAM.max_ahead_us), Counts()):
            place = source.position_text(chunk.source, chunk.latest)
            counts.add(count_chunk(replace(chunk, partition=source.partition(part), place=place), STREAM))
    us = int(START.timestamp()) * 1_000_000 + 4_000_000
    assert counts.latest == {"s[0]": (us, "counter[0]@4"), "s[1]": (us, "counter[1]@4")}
    reached = Reached().after(counts.latest, us - 1_000_000)
    assert reached.watermark_us == us - 1_000_000
    assert reached.guard(STREAM, "1").latest_us == us
    assert reached.guard(STREAM).latest_us is None
