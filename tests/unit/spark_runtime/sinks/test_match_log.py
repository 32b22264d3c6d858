"""The log of matches: what is appended, removed at its beginning, and cut at its end, leaves no hole."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from cep.commands.cli import main
from cep.errors import RuleError, StateError
from spark_runtime.connectors.files.sink import FolderSink
from spark_runtime.connectors.files.writers import ParquetWriter
from spark_runtime.sinks.log_sink import LogSink
from spark_runtime.sinks.match_log import Entry, MatchLog
from spark_runtime.sinks.protocol import MicroBatch, Output, Rows
from spark_runtime.wire.output import MATCH
from tests.unit.spark_runtime.pipeline.test_state_setting import pipeline

OUTPUT = Output(MATCH, pa.schema([("rule", pa.string()), ("match_id", pa.string())]))


def sink(folder: Path, version: str = "one", keep_us: int | None = None, most: int | None = None) -> LogSink:
    rows = FolderSink(OUTPUT, str(folder), ParquetWriter())
    opened = LogSink(rows, MatchLog(str(folder)), version, "{}", keep_us, most)
    opened.check()
    return opened


def write(opened: LogSink, number: int, n_rows: int = 1, run: str = "a", *, until: str = "end") -> None:
    batch = MicroBatch(run, number, f"{number:016x}")
    ids = [f"{run}-{number}-{at}" for at in range(n_rows)]
    opened.begin(batch)
    if n_rows:
        table = pa.table({"rule": ["r"] * n_rows, "match_id": ids})
        opened.write_part(batch, "0", Rows(OUTPUT, [table]))
    if until == "folder":
        opened.folder.commit(batch)
    elif until == "end":
        opened.commit(batch)


def entries(folder: Path) -> list[Entry]:
    return list(MatchLog(str(folder)).entries())


def ids(folder: Path) -> list[str]:
    log = MatchLog(str(folder))
    tables = [log.table(entry, name) for entry in log.entries() for name in entry.files]
    return [match_id for table in tables for match_id in table.column("match_id").to_pylist()]


def test_rows_and_rules_are_entries_and_a_micro_batch_without_rows_is_none(tmp_path: Path) -> None:
    opened = sink(tmp_path)
    for number, n_rows in enumerate((0, 2, 0, 3)):
        write(opened, number, n_rows)
    write(sink(tmp_path, "two"), 4, 0)
    write(sink(tmp_path, "two"), 5)
    found = entries(tmp_path)
    assert [(entry.offset, entry.micro_batch, entry.n_rows, entry.rules) for entry in found] == [
        (0, 0, 0, "one"),
        (1, 1, 2, "one"),
        (2, 3, 3, "one"),
        (3, 4, 0, "two"),
        (4, 5, 1, "two"),
    ]
    assert [entry.bytes_before for entry in found[1:]] == [entry.bytes_after for entry in found[:-1]]
    assert {file.name for file in (tmp_path / "_rules").iterdir()} == {"one.json", "two.json"}
    assert ids(tmp_path) == ["a-1-0", "a-1-1", "a-3-0", "a-3-1", "a-3-2", "a-5-0"]


@pytest.mark.parametrize("seed", range(10))
def test_however_runs_end_each_micro_batch_is_in_the_log_once(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    opened = sink(tmp_path)
    for number in range(20):
        n_rows = drawn.choice([0, 1, 3])
        while drawn.random() < 0.4:
            write(opened, number, n_rows, until=drawn.choice(["rows", "folder", "end"]))
            opened = sink(tmp_path)
        write(opened, number, n_rows)
    found = entries(tmp_path)
    assert [entry.offset for entry in found] == list(range(len(found)))
    assert [entry.bytes_before for entry in found[1:]] == [entry.bytes_after for entry in found[:-1]]
    assert len(set(ids(tmp_path))) == len(ids(tmp_path)) == sum(entry.n_rows for entry in found)
    for entry in found:
        MatchLog(str(tmp_path)).require_files(entry)


def test_the_oldest_entries_are_removed_by_size_and_the_newest_remains(tmp_path: Path) -> None:
    write(sink(tmp_path), 0)
    (size,) = (entry.bytes_after for entry in entries(tmp_path) if entry.run)
    opened = sink(tmp_path, most=3 * size)
    for number in range(1, 10):
        write(opened, number)
        assert sum(file.stat().st_size for file in tmp_path.rglob("part-*")) <= 3 * size
    assert ids(tmp_path) == ["a-7-0", "a-8-0", "a-9-0"]
    write(sink(tmp_path, most=1), 10)
    assert ids(tmp_path) == ["a-10-0"]
    assert len(list(tmp_path.glob("batch=*"))) == 1


def test_a_crash_while_the_oldest_entries_are_removed_leaves_no_hole(tmp_path: Path) -> None:
    opened = sink(tmp_path)
    for number in range(6):
        write(opened, number)
    (tmp_path / "_begin.json").write_text('{"first": 4}')  # and then the run was killed
    assert ids(tmp_path) == ["a-3-0", "a-4-0", "a-5-0"]
    write(sink(tmp_path, most=1_000_000), 6)
    assert len(list(tmp_path.glob("batch=*"))) == 4
    assert len(list((tmp_path / "_entries").iterdir())) == 4


def test_what_a_run_wrote_after_an_older_checkpoint_is_cut_with_what_followed(tmp_path: Path) -> None:
    opened = sink(tmp_path)
    for number in range(4):
        write(opened, number)
    opened.take_back("a", 1, "b")
    write(sink(tmp_path, "two"), 2, run="b")
    assert ids(tmp_path) == ["a-0-0", "a-1-0", "b-2-0"]
    opened = sink(tmp_path)
    opened.take_back("a", 0, "c")
    write(opened, 1, run="c")
    assert ids(tmp_path) == ["a-0-0", "c-1-0"]
    found = entries(tmp_path)
    assert [entry.offset for entry in found] == [0, 1, 2]
    assert found[-1].rules == "one"
    opened.take_back("unknown", 0, "d")
    assert ids(tmp_path) == ["a-0-0", "c-1-0"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "1", '{"format": 2, "offset": 1}', '{"format": 1, "offset": 7}']
)
def test_a_damaged_entry_is_named(tmp_path: Path, text: str) -> None:
    write(sink(tmp_path), 0)
    (file,) = (tmp_path / "_entries").glob("*1.json")
    file.write_text(text)
    with pytest.raises(StateError, match=rf"E0720.*`{file}` of the log of matches is damaged"):
        entries(tmp_path)
    with pytest.raises(StateError, match="E0720"):
        sink(tmp_path)


def test_every_damaged_byte_of_the_rows_is_noticed(tmp_path: Path) -> None:
    write(sink(tmp_path), 0, 40)
    (file,) = tmp_path.rglob("part-*")
    data = file.read_bytes()
    for at in range(0, len(data), 3):
        file.write_bytes(data[:at] + bytes([data[at] ^ 8]) + data[at + 1 :])
        with pytest.raises(StateError, match=rf"E0720.*`{file}` of the log of matches is damaged"):
            ids(tmp_path)


# ---------------------------------------------------------------- the setting


def test_the_setting_is_a_folder_or_says_what_is_kept(tmp_path: Path) -> None:
    assert pipeline(tmp_path, "checkpoint: c").log is None
    log = pipeline(tmp_path, "checkpoint: c", "log: l").log
    assert log is not None
    assert (log.path, log.keep_us, log.at_most_mb) == (str(tmp_path / "l"), None, None)
    more = "log: {path: l, keep: 30 days, at_most_mb: 5}"
    day_us = 86_400_000_000
    log = pipeline(tmp_path, "checkpoint: c", more).log
    assert log is not None
    assert (log.path, log.keep_us, log.at_most_mb) == (str(tmp_path / "l"), 30 * day_us, 5)


@pytest.mark.parametrize(
    ("settings", "code", "title"),
    [
        (["mode: batch", "log: l"], "E0843", "`log` with `mode: batch`"),
        (["checkpoint: c", "log: s3a://lake/l"], "E0843", "`log` on remote storage"),
        (["checkpoint: c", "log: {keep: 1 day}"], "E0404", "`log` has no `path`"),
        (["checkpoint: c", "log: {path: l, keep: 1}"], "E0409", "`1` is not a duration"),
        (["checkpoint: c", "log: {path: l, kept: 1}"], "E0403", "`log` has no setting `kept`"),
        (["checkpoint: c", "log: {path: l, at_most_mb: 0}"], "E0402", "`at_most_mb` must be at least 1"),
        (["checkpoint: c", "log: l", "late: {format: json, path: l/late}"], "E0843", "is inside folder"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_place(
    tmp_path: Path, settings: list[str], code: str, title: str
) -> None:
    with pytest.raises(RuleError) as caught:
        pipeline(tmp_path, *settings)
    (problem,) = caught.value.diagnostics
    assert (problem.code, title in problem.title, problem.span is not None) == (code, True, True), problem


@pytest.mark.parametrize("words", [["replay", "--into", "json"], ["backfill", "--gaps"], ["run"]])
def test_a_log_on_an_object_store_is_refused_by_each_command_that_needs_it(
    tmp_path: Path, words: list[str]
) -> None:
    with pytest.raises(RuleError):
        pipeline(tmp_path, "checkpoint: c", "log: s3a://lake/l")
    file = next(tmp_path.glob("*.yaml"))
    result = CliRunner().invoke(main, [words[0], str(file), *words[1:]])
    assert result.exit_code == 1
    assert result.output.startswith("error[E0843]: `log` on remote storage\n")
    where, help_text = result.output.splitlines()[-3::2]
    assert where.endswith("^ `cep replay` and `cep backfill --gaps` read it from a disk, without Spark")
    assert help_text == (
        "help: write a folder that this machine and the workers share; for the same rows on remote storage, "
        "add a sink, or replay the log into one: cep replay PIPELINE --into '{format: parquet, path: s3a://...}'"
    )


def test_a_replay_starts_spark_only_with_settings_that_run_no_code(tmp_path: Path) -> None:
    write(sink(tmp_path / "l"), 0)
    pipeline(tmp_path, "checkpoint: c", "log: l", "spark: {spark.driver.extraClassPath: evil.jar}")
    words = ["replay", str(tmp_path / "p.yaml"), "--into", "{format: json, path: s3a://lake/matches}"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert result.output == (
        "error[E0838]: this sink needs Spark, and a pipeline file may not set `spark.driver.extraClassPath`: "
        "it can run code, or nobody has checked that it cannot\n"
        "help: if you trust the file, add --allow-spark-settings\n"
    )
