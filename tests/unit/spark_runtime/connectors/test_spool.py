"""A spool as a source: what a stream reads of it, and what the spool may remove meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from cep.counts import Counts
from cep.errors import CepError
from cep.formats.ahead import AheadGuard
from cep.schema.stream import Field, Stream
from cep.spool.folder import Place, durable, durable_bytes, readers, segment_path, segments
from cep.spool.segments import HEADER_BYTES, ReceivedBatch
from cep.spool.writer import Limits, SegmentWriter, writer_at
from spark_runtime.connectors.spool import planner as planner_module
from spark_runtime.connectors.spool.planner import SpoolPlanner
from spark_runtime.connectors.spool.reading import LATEST, SpoolReading
from spark_runtime.connectors.spool.source import SpoolSource
from spark_runtime.sources.protocol import Offset, TimedPlanner

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp")), "ts")
START = datetime(2024, 5, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000


@contextmanager
def written(folder: Path) -> Iterator[SegmentWriter]:
    with closing(writer_at(folder / "in", Limits(keep_seconds=0), lambda: 1e9)) as writer:
        yield writer


def event(number: int) -> bytes:
    return json.dumps({"id": number, "ts": (START + timedelta(seconds=number)).isoformat()}).encode()


def append(writer: SegmentWriter, numbers: Sequence[int]) -> None:
    writer.append(
        [ReceivedBatch([event(number) for number in numbers], np.full(len(numbers), START_US, np.int64))]
    )


def reading(folder: Path) -> SpoolReading:
    return SpoolReading(STREAM, str(folder / "in"), log=str(folder / "log" / "s.log"))


def ids(source: SpoolSource, start: Offset, end: Offset, counts: Counts | None = None) -> list[int]:
    found: list[int] = []
    for _, part in source.planner().ranges(start, end):
        for chunk in source.read(part, AheadGuard(STREAM.max_ahead_us), counts or Counts()):
            assert chunk.dead_letters.num_rows == 0
            found += chunk.events.column("id").to_pylist()
    return found


def test_a_stream_reads_while_the_spool_writes_and_across_segments(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        source.check()
        planner = source.planner()
        start = planner.start()
        assert planner.latest(start) == start
        found = []
        for numbers in ([0, 1], [2], [3, 4, 5]):
            append(writer, numbers)
            end = planner.latest(start)
            found.append(ids(source, start, end))
            assert planner.latest(end) == end
            planner.commit(end)
            start = end
            writer.roll()
        assert found == [[0, 1], [2], [3, 4, 5]]
        append(writer, [6])
        assert ids(source, [0, HEADER_BYTES, 0], planner.latest(start)) == list(range(7))


def test_nothing_is_read_that_is_not_on_disk(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        append(writer, [0])
        before = durable(tmp_path / "in")
        assert before is not None
        append(writer, [1])
        writer.roll()
        append(writer, [2])
        (tmp_path / "in" / "durable").write_bytes(durable_bytes(before))
        planner = source.planner()
        assert ids(source, planner.start(), planner.latest(planner.start())) == [0]
        (tmp_path / "in" / "durable").write_bytes(b"")
        assert planner.latest(planner.start()) == planner.start()


def test_a_stream_that_is_further_than_what_is_said_to_be_on_disk_waits(tmp_path: Path) -> None:
    """After a power failure the file `durable` may be an older one, until the spool starts again."""
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        append(writer, [0])
        before = durable(tmp_path / "in")
        append(writer, [1])
        planner = source.planner()
        end = planner.latest(planner.start())
        assert before is not None
        (tmp_path / "in" / "durable").write_bytes(durable_bytes(before))
        assert planner.latest(end) == end
    with written(tmp_path) as writer:
        append(writer, [2])
        assert ids(source, end, planner.latest(end)) == [2]


def test_max_events_ends_a_micro_batch_behind_a_block(tmp_path: Path) -> None:
    source = SpoolSource(replace(reading(tmp_path), max_events=4))
    with written(tmp_path) as writer:
        for first in range(0, 12, 3):
            append(writer, [first, first + 1, first + 2])
            if first == 6:
                writer.roll()
        planner = source.planner()
        start, found = planner.start(), []
        while (end := planner.latest(start)) != start:
            found.append(ids(source, start, end))
            start = end
    assert found == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]


def test_a_large_segment_is_read_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner_module, "RANGE_BYTES", 200)
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        for number in range(20):
            append(writer, [number])
        parts = [part for _, part in source.everything()]
    assert len(parts) > 5
    assert [(part.first, part.stop) for part in parts] == [
        (first, stop)
        for first, stop in zip([0, *(p.stop for p in parts[:-1])], (p.stop for p in parts), strict=True)
    ]
    assert parts[-1].stop == 20
    assert ids(source, [0, HEADER_BYTES, 0], source.planner().latest([0, HEADER_BYTES, 0])) == list(range(20))


def test_from_latest_begins_behind_what_is_there_and_stays_there_after_a_crash(tmp_path: Path) -> None:
    source = SpoolSource(replace(reading(tmp_path), begin=LATEST))
    with written(tmp_path) as writer:
        append(writer, [0])
        start = source.planner().start()
        append(writer, [1])
        planner = source.planner()
        assert planner.start() == start
        assert ids(source, start, planner.latest(start)) == [1]


def test_the_spool_removes_what_every_pipeline_has_committed(tmp_path: Path) -> None:
    other = SpoolSource(replace(reading(tmp_path), log=str(tmp_path / "log" / "other.log"))).planner
    with written(tmp_path) as writer:
        one = SpoolSource(replace(reading(tmp_path), reader="one")).planner()
        two = other()
        one.start()
        two.start()
        assert set(readers(tmp_path / "in")) == {"one", two.name}
        append(writer, [0])
        writer.roll()
        end = one.latest(one.start())
        one.commit(end)
        one.commit(end)
        two.commit(end)
        writer.tend()
        assert segments(tmp_path / "in") == [0, 1]  # Spark may repeat the micro-batch of the other one
        two.commit(end)
        writer.tend()
        assert segments(tmp_path / "in") == [1]


def test_what_was_removed_unread_ends_the_run_or_is_counted(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        append(writer, [0, 1])
        writer.roll()
        append(writer, [2])
        writer.roll()
        append(writer, [3])
        planner = source.planner()
        start = planner.start()
        planned = planner.ranges(start, planner.latest(start))
        assert writer.remove_oldest()
        with pytest.raises(
            CepError, match=r"begins at message 2 now: 2 messages were removed unread"
        ) as raised:
            planner.latest(start)
        assert raised.value.code == "E0953"
        with pytest.raises(CepError, match="2 messages were removed unread"):  # it was planned before
            list(source.read(planned[0][1], AheadGuard(0), Counts()))
        patient = SpoolSource(replace(source.reading, goes_on_without=True))
        counts = Counts()
        assert ids(patient, start, patient.planner().latest(start), counts) == [2, 3]
        assert counts.lost == {"in/00000000000000000000.segment": 2}
        # What was read and then removed is not missed.
        assert writer.remove_oldest()
        assert planner.latest([2, 10**6, 3]) != [2, 10**6, 3]
        assert ids(source, [2, 10**6, 3], planner.latest([2, 10**6, 3])) == [3]


def test_another_spool_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path):
        source.planner().start()
    for file in (tmp_path / "in").glob("*.*"):
        file.unlink()
    with (
        written(tmp_path),
        pytest.raises(CepError, match="is not the spool that this stream has read") as raised,
    ):
        source.planner()
    assert raised.value.code == "E0953"


def test_a_folder_without_a_spool_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(CepError, match="is no folder of a spool") as raised:
        SpoolSource(reading(tmp_path)).check()
    assert raised.value.code == "E0950"


def test_a_segment_that_is_damaged_behind_the_spools_back_ends_the_run(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    with written(tmp_path) as writer:
        append(writer, [0])
        end = durable(tmp_path / "in")
        append(writer, [1])
    assert end is not None
    file = segment_path(tmp_path / "in", 0)
    data = bytearray(file.read_bytes())
    data[end.n_bytes + 50] ^= 1
    file.write_bytes(data)
    planner = source.planner()
    with pytest.raises(CepError, match=rf"is damaged at byte {end.n_bytes}") as raised:
        ids(source, planner.start(), planner.latest(planner.start()))
    assert raised.value.code == "E0952"


def test_metadata_become_columns(tmp_path: Path) -> None:
    fields = (
        ("id", "bigint"),
        ("ts", "timestamp"),
        ("t", "string"),
        ("k", "bigint"),
        ("n", "bigint"),
        ("h", "string"),
    )
    stream = Stream("s", tuple(Field(*field) for field in fields), "ts")
    columns = {"ts": "received", "t": "topic", "k": "key", "n": "number", "h": "headers"}
    source = SpoolSource(replace(reading(tmp_path), stream=stream, columns=columns))
    texts: dict[str, list[str | None]] = {
        "topic": ["a", "b"],
        "key": ["17", "no"],
        "header.x": ["1", None],
        "header.y": ["2", None],
    }
    with written(tmp_path) as writer:
        writer.append([ReceivedBatch([b'{"id": 1}'], np.array([START_US]))])
        writer.append([ReceivedBatch([b'{"id": 2}', b'{"id": 3}'], np.array([START_US, START_US]), texts)])
        rows, dead = [], []
        for _, part in source.everything():
            for chunk in source.read(part, AheadGuard(STREAM.max_ahead_us), Counts()):
                rows += chunk.events.to_pylist()
                dead += chunk.dead_letters.to_pylist()
    assert rows == [
        {"id": 1, "ts": START_US, "t": None, "k": None, "n": 0, "h": None},
        {
            "id": 2,
            "ts": START_US,
            "t": "a",
            "k": 17,
            "n": 1,
            "h": '{"header.x": "1", "header.y": "2"}'.replace("header.", ""),
        },
    ]
    (letter,) = dead
    assert (letter["position"], letter["raw"]) == (2, '{"id": 3}')


def test_event_times_of_what_is_not_read_yet_are_told(tmp_path: Path) -> None:
    source = SpoolSource(reading(tmp_path))
    ahead = AheadGuard(STREAM.max_ahead_us)
    with written(tmp_path) as writer:
        for first in range(0, 400, 100):
            append(writer, range(first, first + 100))
            writer.roll()
        planner = source.planner()
        assert isinstance(planner, TimedPlanner)
        start = planner.start()
        (unread,) = planner.unread_after(start, ahead).values()
        assert unread.first_us == START_US
        end = planner.latest(start)
        (span,) = planner.spans(start, end, ahead).values()
        assert span.last_us == START_US + 300_000_000  # the last block, whole
        assert planner.unread_after(end, ahead) == {}


def test_a_place_is_json(tmp_path: Path) -> None:
    assert json.loads(json.dumps(Place(1, 2, 3))) == [1, 2, 3]
    with written(tmp_path):
        assert isinstance(SpoolPlanner(reading(tmp_path)).start(), list)
