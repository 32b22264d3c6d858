"""What each sink promises, whoever wrote it (`spark_runtime.sinks.protocol`)."""

from __future__ import annotations

import csv
import json
import pickle
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from cep import load_rules
from cep.errors import InputError, StateError
from cep.formats.dead_letter import DEAD_LETTER_SCHEMA
from cep.formats.late_events import declared_schema, late_events
from cep.rule_set import RuleSet
from cep.schema.stream import Field, Stream
from cep.schema.text_values import event_table_schema
from spark_runtime.connectors.console.sink import ConsoleSpec
from spark_runtime.connectors.files.sink import FolderSink, FolderSinkOfSpark, ObjectSink
from spark_runtime.connectors.files.sink_settings import FilesSpec
from spark_runtime.connectors.files.writers import CsvWriter, JsonWriter, ParquetWriter
from spark_runtime.dataflow.schema import spark_schema
from spark_runtime.sinks.owner import Owner
from spark_runtime.sinks.protocol import (
    AnySink,
    BatchRows,
    Collected,
    DriverSink,
    Guarantee,
    Mark,
    MicroBatch,
    Output,
    RevocableSink,
    Rows,
    TableSink,
    WorkerSink,
)
from spark_runtime.sinks.registry import SINKS, SinkContext, SinkSpec, sink_names
from spark_runtime.storage.checkpoint_files import LocalFiles
from spark_runtime.wire.output import DEAD, LATE, MATCH, Matches, carried, carried_schema, late_kind
from spark_runtime.wire.plan import IDENTITY_DIGITS
from tests.sample_plugin.sample_kv.sqlite_sink import SqliteSpec

STREAM = Stream("s", (Field("id", "bigint"), Field("ts", "timestamp"), Field("k", "string")), "ts")
RULES: RuleSet = load_rules(
    "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS id >= 0 MEASURES a.id AS id", STREAM
)
CONSOLE = StringIO()
CONTEXT = SinkContext(RULES, Console(file=CONSOLE, width=200))
OUTPUTS = {
    MATCH: Output(MATCH, RULES.match_schema),
    LATE: Output(late_kind("s"), declared_schema(STREAM), STREAM, "stream=s"),
    DEAD: Output(DEAD, DEAD_LETTER_SCHEMA),
}
RUN = "run"
A1, A2, B1 = (f"{number:0{IDENTITY_DIGITS}x}" for number in (0xA1, 0xA2, 0xB1))  # of plans


def table(kind: str, ids: list[int]) -> pa.Table:
    """Return rows of a kind, as the output's schema has them."""
    if kind == DEAD:
        rows = [{"reason": "no", "source": "f", "position": i, "raw": None} for i in ids]
        return pa.Table.from_pylist(rows, DEAD_LETTER_SCHEMA)
    if kind == LATE:
        rows = [{"id": i, "ts": pa.scalar(i, pa.timestamp("us", "UTC")).as_py(), "k": "k"} for i in ids]
        named = [{**row, "_late_seconds": 1.0} for row in rows]
        return pa.Table.from_pylist(named, OUTPUTS[LATE].schema)
    columns = {
        field.name: pa.array([_match_value(field, i) for i in ids]).cast(field.type)
        for field in RULES.match_schema
    }
    return pa.table(columns, RULES.match_schema)


def _match_value(field: pa.Field, number: int) -> Any:
    if pa.types.is_timestamp(field.type):
        return pa.scalar(number, pa.int64()).as_py()
    return (
        number if pa.types.is_integer(field.type) else {"rule": "r", "k": "k"}.get(field.name, f"m{number}")
    )


def found(kind: str, ids: list[int]) -> Rows:
    """Return rows of a kind as the operator has them."""
    if kind == DEAD:
        return Rows(OUTPUTS[DEAD], [json.dumps(row) for row in table(DEAD, ids).to_pylist()])
    if kind == LATE:
        events = pa.Table.from_pylist([{"id": i, "ts": i, "k": "k"} for i in ids], event_table_schema(STREAM))
        return Rows(OUTPUTS[LATE], [late_events(events, np.full(len(ids), 1_000_000), STREAM)])
    matches = Matches(carried_schema(RULES.match_schema))
    exact = table(MATCH, ids)
    columns = [carried(exact.column(name)) for name in exact.column_names]
    matches.append(pa.Table.from_arrays(columns, schema=matches.schema))
    return Rows(OUTPUTS[MATCH], matches)


def collected(kind: str, ids: list[int]) -> Collected:
    """Return rows of a kind as they are on the driver."""
    rows = found(kind, ids)
    if kind == LATE:
        rows = Rows(rows.output, list(rows.lines()))
    return Collected(len(ids), rows, lambda texts: typed(OUTPUTS[LATE], texts))


def typed(output: Output, texts: Sequence[str]) -> pa.Table:
    """Return late events from their texts."""
    times = [datetime.fromisoformat(json.loads(text)["ts"]) for text in texts]
    rows = [json.loads(text) | {"ts": ts} for text, ts in zip(texts, times, strict=True)]
    return pa.Table.from_pylist(rows, output.schema)


def write(spark: SparkSession | None, sink: AnySink, kind: str, batch: MicroBatch, ids: list[int]) -> None:
    """Write the rows of a micro-batch, in two parts if it is done in workers. A table needs no Spark."""
    if isinstance(sink, WorkerSink):
        there: WorkerSink = pickle.loads(pickle.dumps(sink))
        for part in (0, 1):
            if ids[part::2]:
                there.write_part(batch, str(part), found(kind, ids[part::2]))
    elif isinstance(sink, TableSink):
        sink.write_rows(batch, collected(kind, ids))
    else:
        rows = table(kind, ids).to_pylist()
        assert spark is not None
        frame = spark.createDataFrame(rows, spark_schema(OUTPUTS[kind].schema))
        sink.write_batch(batch, BatchRows(len(ids), frame))


def in_json(kind: str, folder: Path) -> list[int]:
    name = "position" if kind == DEAD else "id"
    visible = [file for file in folder.rglob("part-*") if "/." not in str(file)]
    return sorted(json.loads(line)[name] for file in visible for line in file.read_text().splitlines())


def in_parquet(kind: str, folder: Path) -> list[int]:
    name = "position" if kind == DEAD else "id"
    files = [str(file) for file in folder.rglob("part-*.parquet") if "/." not in str(file)]
    tables = pyarrow.dataset.dataset(files, partitioning=None).to_table() if files else {name: []}
    return sorted(pa.chunked_array(tables[name], pa.int64()).to_pylist() if files else [])


def in_csv(kind: str, folder: Path) -> list[int]:
    name = "position" if kind == DEAD else "id"
    found = []
    for file in folder.rglob("part-*.csv"):
        if "/." not in str(file):
            with file.open(newline="", encoding="utf-8") as lines:
                found += [int(row[name]) for row in csv.DictReader(lines)]
    return sorted(found)


def in_sqlite(kind: str, file: Path) -> list[int]:
    name = "position" if kind == DEAD else "id"
    with closing(sqlite3.connect(file)) as database:
        lines = database.execute("SELECT line FROM found").fetchall()
    return sorted(json.loads(line)[name] for (line,) in lines)


def on_console(kind: str, place: Path) -> list[int]:
    rows = (line.split() for line in CONSOLE.getvalue().splitlines())
    return sorted(int(row[-1]) for row in rows if row and row[-1].isdigit())


Read = Callable[[str, Path], list[int]]
SPECS: dict[str, tuple[Callable[[Path], SinkSpec], Read]] = {
    "json": (lambda place: FilesSpec(str(place), JsonWriter()), in_json),
    "parquet": (lambda place: FilesSpec(str(place), ParquetWriter()), in_parquet),
    "csv": (lambda place: FilesSpec(str(place), CsvWriter()), in_csv),
    "console": (lambda place: ConsoleSpec(100), on_console),
    "sqlite": (lambda place: SqliteSpec(str(place)), in_sqlite),
    "remote": (lambda place: FilesSpec(f"file://{place}", ParquetWriter()), in_parquet),
}
CASES = [
    *(
        (name, kind)
        for name in SINKS.built_in
        if name in SPECS
        for kind in (MATCH, LATE, DEAD)
        if kind in SINKS.get(name).kinds
    ),
    *((name, kind) for name in ("sqlite", "remote") for kind in (MATCH, LATE, DEAD)),
]
EACH = pytest.mark.parametrize(("name", "kind"), CASES)


def opened(name: str, kind: str, place: Path) -> tuple[AnySink, Callable[[], list[int]]]:
    """Return a sink, and what reads it."""
    CONSOLE.seek(0)
    CONSOLE.truncate()
    made, read = SPECS[name]
    sink = made(place).open(OUTPUTS[kind], CONTEXT)
    sink.check()
    return sink, lambda: read(kind, place)


def test_each_sink_of_this_package_is_tried_here() -> None:
    # These are tried where their servers are: tests/servers/test_..._sink.py.
    of_servers = {"kafka", "postgres", "webhook", "rabbitmq"}
    of_disks = {"delta"}  # tests/unit/spark_runtime/sinks
    assert {*SINKS.built_in, "sqlite", "remote"} == {*SPECS, *of_servers, *of_disks}
    assert sink_names(MATCH) == SINKS.built_in
    assert sink_names(LATE) == sink_names(DEAD) == tuple(n for n in SINKS.built_in if n != "console")


@EACH
def test_what_was_committed_is_there(spark: SparkSession, tmp_path: Path, name: str, kind: str) -> None:
    sink, read = opened(name, kind, tmp_path / "out")
    assert sum(isinstance(sink, kind) for kind in (WorkerSink, TableSink, DriverSink)) == 1
    for number, ids in enumerate(([1, 2, 3], [], [4])):
        batch = MicroBatch(RUN, number)
        sink.begin(batch)
        write(spark, sink, kind, batch, ids)
        sink.commit(batch)
    sink.close()
    assert read() == [1, 2, 3, 4]


@EACH
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("is_committed", [False, True])
def test_a_micro_batch_that_comes_again_after_a_crash_is_there_as_the_guarantee_says(
    spark: SparkSession, tmp_path: Path, name: str, kind: str, is_written: bool, is_committed: bool
) -> None:
    sink, read = opened(name, kind, tmp_path / "out")
    batch = MicroBatch(RUN, 1)
    sink.begin(batch)
    if is_written:
        write(spark, sink, kind, batch, [1, 2, 3])
    if is_committed:
        sink.commit(batch)
    again = SPECS[name][0](tmp_path / "out").open(OUTPUTS[kind], CONTEXT)  # in a new process
    again.check()
    again.begin(batch)
    write(spark, again, kind, batch, [3, 2, 1])
    again.commit(batch)
    if sink.guarantee is Guarantee.EXACTLY_ONCE:
        assert read() == [1, 2, 3]
    else:
        assert set(read()) == {1, 2, 3}
        assert len(read()) == (6 if is_written else 3)


def tell_what_they_have(
    spark: SparkSession | None, open_sink: Callable[[], AnySink], kind: str, run: str = RUN
) -> None:
    """Try what sinks in one place tell of the micro-batches that they have, each in a new process."""

    def put(number: int, plan: str, ids: list[int], of: str = run) -> None:
        with closing(open_sink()) as sink:
            batch = MicroBatch(of, number, plan)
            sink.begin(batch)
            write(spark, sink, kind, batch, ids)
            sink.commit(batch)

    def last(of: str = run) -> tuple[int, str] | None:
        with closing(open_sink()) as sink:
            mark = sink.last(of)
            return None if mark is None else (mark.number, mark.plan)

    def refusal(number: int, plan: str) -> str:
        with pytest.raises(StateError) as caught:
            put(number, plan, [7])
        return caught.value.code

    assert last() is None
    put(2, A1, [1])
    put(2, A1, [1])  # after a crash
    with closing(open_sink()) as sink:
        if sink.guarantee is Guarantee.AT_LEAST_ONCE:
            assert last() is None
            put(1, B1, [2])
            return
    assert (last(), last("another")) == ((2, A1), None)
    assert refusal(2, A2) == "E0849"
    put(3, B1, [2])
    assert last() == (3, B1)
    with closing(open_sink()) as sink:
        if isinstance(sink, RevocableSink):
            sink.take_back(run, 2, "c")
            mark = sink.last(run)
            assert mark == Mark(mark.place if mark else "", 2, A1, is_continued=True)
            put(3, B1, [3], "c")
            with pytest.raises(StateError, match="no longer has the micro-batches 3 to 3") as caught:
                sink.take_back(run, 3, "d")
            assert (caught.value.code, last("c")) == ("E0849", (3, B1))
            sink.take_back(run, -1, "d")  # what was written by the run that had continued it goes, too
            for of in (run, "c"):
                mark = sink.last(of)
                assert mark is not None
                assert (mark.number, mark.is_continued) == (-1, True)
            assert sink.last("d") is None
            saved = f"{run}s"
            put(0, A1, [4], saved)
            sink.take_back(saved, 0, "e", anew=True)
            put(0, B1, [5], "e")
            sink.take_back(saved, 0, "f")  # the first micro-batch of a run that counts anew goes, too
            mark = sink.last("e")
            assert mark is not None
            assert (mark.number, mark.is_continued) == (-1, True)
            return
    assert refusal(2, A1) == "E0849"


@EACH
def test_what_a_sink_has_of_a_stream_is_told(
    spark: SparkSession, tmp_path: Path, name: str, kind: str
) -> None:
    tell_what_they_have(spark, lambda: opened(name, kind, tmp_path / "out")[0], kind)


def test_a_folder_that_spark_writes_tells_what_it_has(spark: SparkSession, tmp_path: Path) -> None:
    def open_sink() -> AnySink:
        sink = FolderSinkOfSpark(OUTPUTS[MATCH], str(tmp_path / "out"), ParquetWriter())
        sink.check()
        return sink

    tell_what_they_have(spark, open_sink, MATCH)


def test_a_crash_while_micro_batches_are_taken_back_leaves_none_of_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = FilesSpec(str(tmp_path / "out"), ParquetWriter()).open(OUTPUTS[DEAD], CONTEXT)
    assert isinstance(sink, RevocableSink)

    def put(run: str, number: int) -> None:
        batch = MicroBatch(run, number, A1)
        sink.begin(batch)
        write(None, sink, DEAD, batch, [number])
        sink.commit(batch)

    put(RUN, 2)
    sink.take_back(RUN, 2, "c")
    put("c", 3)
    with monkeypatch.context() as patched:
        patched.setattr(LocalFiles, "remove", lambda files, name: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises((OSError, InputError)):
            sink.take_back(RUN, 2, "d")
    sink.take_back(RUN, 2, "e")
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [f"batch={RUN}-2"]


def test_a_damaged_note_of_a_continued_stream_is_an_error_that_names_it(tmp_path: Path) -> None:
    sink = FilesSpec(f"{tmp_path}/out", JsonWriter()).open(OUTPUTS[DEAD], CONTEXT)
    assert isinstance(sink, FolderSink)
    (tmp_path / "out").mkdir()
    for text in ('{"after": 3', '{"after": 3}', "[3]"):
        (tmp_path / "out" / f".continued-{RUN}").write_text(text)
        with pytest.raises(
            StateError, match=f"out/.continued-{RUN}`, which names the run .* is damaged"
        ) as caught:
            sink.last(RUN)
        assert caught.value.code == "E0849"


def test_a_folder_that_only_spark_reaches_tells_its_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = FilesSpec(f"file://{tmp_path}/out", ParquetWriter()).open(OUTPUTS[DEAD], CONTEXT)
    assert isinstance(sink, ObjectSink)
    assert sink.last(RUN) is None
    for number in (0, 10, 9):
        sink.begin(MicroBatch(RUN, number, A1))
        write(spark, sink, DEAD, MicroBatch(RUN, number, A1), [number])
        sink.commit(MicroBatch(RUN, number, A1))
    assert sink.last(RUN) == Mark(f"folder `file://{tmp_path}/out`", 10, A1)
    sink.take_back(RUN, 8, "c")
    assert sink.last(RUN) == Mark(f"folder `file://{tmp_path}/out`", 8, is_continued=True)
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir()) == [f"batch={RUN}-0"]


@EACH
def test_micro_batches_of_other_streams_do_not_meet(
    spark: SparkSession, tmp_path: Path, name: str, kind: str
) -> None:
    sink, read = opened(name, kind, tmp_path / "out")
    for run, ids in (("a", [1]), ("b", [2])):
        sink.begin(MicroBatch(run, 0))
        write(spark, sink, kind, MicroBatch(run, 0), ids)
        sink.commit(MicroBatch(run, 0))
    assert read() == [1, 2]


@pytest.mark.parametrize("name", ["json", "parquet", "csv"])
def test_rows_of_a_task_that_failed_do_not_count(tmp_path: Path, name: str) -> None:
    sink, read = opened(name, DEAD, tmp_path / "out")
    assert isinstance(sink, FolderSink)
    batch = MicroBatch(RUN, 0)
    sink.begin(batch)
    sink.write_part(batch, "0", found(DEAD, [1, 2]))
    sink.write_part(batch, "0", found(DEAD, [1, 2, 3]))  # the second attempt
    assert read() == []
    sink.commit(batch)
    assert read() == [1, 2, 3]


def test_a_folder_that_cannot_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InputError) as caught:
        opened("json", DEAD, tmp_path / "out")
    assert caught.value.code == "E0618"


@pytest.mark.parametrize(
    ("path", "owner", "kind"),
    [
        ("s3a://b/out", None, ObjectSink),
        ("s3a://b/out", Owner("p", {}), FolderSinkOfSpark),
        ("/out", None, FolderSink),
    ],
)
def test_what_workers_do_not_reach_is_written_by_the_driver_or_spark(
    path: str, owner: Owner | None, kind: type
) -> None:
    context = SinkContext(RULES, CONTEXT.console, owner)
    sink = FilesSpec(path, ParquetWriter()).open(OUTPUTS[LATE], context)
    assert type(sink) is kind
    assert isinstance(sink, ObjectSink | FolderSinkOfSpark | FolderSink)
    assert sink.path == f"{path}/stream=s"
    if not isinstance(sink, ObjectSink):  # its workers write nothing
        assert sink.shared_folder == ("" if "://" in path else sink.path)


def test_csv_that_spark_writes_has_the_fields_that_workers_write(spark: SparkSession, tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("a, b", pa.string()),
            ("ts", pa.timestamp("us", "UTC")),
            ("flag", pa.bool_()),
            ("list", pa.list_(pa.int64())),
            ("event", pa.struct([("t", pa.timestamp("us", "UTC")), ("x", pa.string())])),
        ]
    )
    noon = datetime(2024, 5, 1, 12, tzinfo=UTC)
    texts = ["x", ' "q"\n', "", None, "=1+1", "c,d"]
    rows = [(text, noon, True, [1, 2], {"t": noon, "x": None}) for text in texts] + [(None,) * 5]
    table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
    output = Output(MATCH, schema)
    matches = Matches(carried_schema(schema))
    matches.append(pa.Table.from_arrays([carried(c) for c in table.columns], schema=matches.schema))
    sinks: dict[str, FolderSink | FolderSinkOfSpark] = {
        "ours": FolderSink(output, str(tmp_path / "ours"), CsvWriter()),
        "of spark": FolderSinkOfSpark(output, str(tmp_path / "of spark"), CsvWriter()),
    }
    batch = MicroBatch(RUN, 0)
    frame = spark.createDataFrame(table.to_pylist(), spark_schema(schema)).coalesce(1)
    found = {}
    for name, sink in sinks.items():
        sink.begin(batch)
        if isinstance(sink, FolderSink):
            sink.write_part(batch, "0", Rows(output, matches))
        else:
            sink.write_batch(batch, BatchRows(len(rows), frame))
        sink.commit(batch)
        (file,) = (tmp_path / name).rglob("part-*.csv")
        with file.open(newline="", encoding="utf-8") as lines:
            found[name] = list(csv.reader(lines))
    assert found["ours"] == found["of spark"]
    head, first, *others = found["ours"]
    time = "2024-05-01T12:00:00.000000Z"
    assert head == ["a, b", "ts", "flag", "list", "event"]
    assert first == ["x", time, "true", "[1,2]", f'{{"t":"{time}"}}']
    assert [row[0] for row in others] == [' "q"\n', "", "", "=1+1", "c,d", ""]
    assert others[-1] == [""] * 5
