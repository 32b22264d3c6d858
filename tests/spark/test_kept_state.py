"""State in files: a stream with forced files gives the matches of a batch, over restarts and lost owners."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Row, SparkSession

from cep.engine.state.open_runs import runs_of_rules
from cep.errors import CepError, StateError
from cep.local.match_file import match_file
from spark_runtime import detect
from spark_runtime.compat.driver import pyspark_version
from spark_runtime.operator import operator
from spark_runtime.pipeline.checkpoint import read_checkpoint
from spark_runtime.pipeline.stored_state import stored_state
from spark_runtime.storage.checkpoint_files import LocalFiles
from tests.forced_state import force_files, force_nothing
from tests.left_out import require
from tests.spark.events import RULES, comparable, compiled, observed, stream_of_files
from tests.spark.test_pipeline import keyed_events, quiet_run, read, write_json, write_pipeline


@pytest.fixture
def _forced() -> Iterator[None]:
    force_files()
    yield
    force_nothing()


def owners() -> list[int]:
    """Return the processes that are owners of this run's tests: forks of workers without a parent."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in found.splitlines()[1:])
    pids = [int(pid) for pid, parent, command in rows if parent == "1" and "sessions.daemon" in command]
    return [pid for pid in pids if is_of_this_run(pid)]


def is_of_this_run(pid: int) -> bool:
    """Return whether a process has inherited the name that this process of tests has beside others."""
    names = ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER")
    variables = [f"{name}={os.environ[name]}".encode() for name in names if name in os.environ]
    try:
        inherited = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return not variables
    return set(variables) <= set(inherited)


@pytest.mark.usefixtures("_forced")
def test_a_stream_with_its_state_in_files_goes_on_after_restarts_and_after_its_owners_were_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = keyed_events(5, 1500)
    for number in range(3):
        part = events[number * 500 : (number + 1) * 500]
        write_json(tmp_path / f"all/{number}", part, 2)
    known = set(owners())
    started: set[int] = set()
    for number in range(3):
        folder = tmp_path / "events"
        folder.mkdir(exist_ok=True)
        for file in sorted((tmp_path / f"all/{number}").iterdir()):
            place = folder / f"{number}-{file.name}"
            os.link(file, place)
            os.utime(place, (1_700_000_000 + len(list(folder.iterdir())),) * 2)
        more = "at_end: finish" if number == 2 else ""
        pipeline = write_pipeline(tmp_path, "format: json, path: events, max_files_per_trigger: 1", more)
        quiet_run(pipeline)
        new = set(owners()) - known - started
        assert new, "no owner was started"
        started |= new
        if number == 0:
            for pid in new:
                os.kill(pid, signal.SIGKILL)
        contents = stored_state(str(tmp_path / "out/checkpoint"))
        stored = list(contents.groups)
        assert len(stored) == 2
        assert all(group.is_in_files and group.n_carried < 2000 for group in stored)
        parts = [part for group in stored for part in group.programs]
        open_runs = [runs for part in parts if part.program and part.sections
                     for runs in runs_of_rules(part.program, part.sections)]  # fmt: skip
        n_open = sum(len(runs.rows) for runs in open_runs)
        assert (n_open == 0) == (number == 2), "at_end: finish ends all runs"
    local = match_file(compiled(RULES), tmp_path / "events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    groups = list((tmp_path / "out/checkpoint/state").iterdir())
    assert len(groups) == 2
    for group in groups:
        batches = sorted(int(file.name.partition("-")[0]) for file in group.iterdir())
        assert batches[-1] - batches[0] <= 6, batches  # what Spark retains, and the records before it
        assert {file.stat().st_mode & 0o777 for file in group.iterdir()} == {0o600}


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """Put a disk of a megabyte at a folder."""
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    can_mount = subprocess.run(mount, capture_output=True).returncode == 0
    require(can_mount, "the right to mount a disk", "running the tests as root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.usefixtures("_forced")
def test_a_full_disk_is_named_and_the_next_run_goes_on_when_there_is_room(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = keyed_events(8, 900)
    write_json(tmp_path / "events", events[:600], 2)
    source = "format: json, path: events, max_files_per_trigger: 1"
    checkpoint = tmp_path / "out/checkpoint"
    with small_disk(checkpoint / "state"):
        quiet_run(write_pipeline(tmp_path, source))
        write_json(tmp_path / "rest", events[600:], 1)
        (tmp_path / "rest/part-000.json").rename(tmp_path / "events/part-900.json")
        filler = checkpoint / "state/filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1024))
        with pytest.raises(CepError) as caught:
            quiet_run(write_pipeline(tmp_path, source))
        assert caught.value.code == "E0616"
        assert "\n" not in caught.value.args[0]
        assert f"no space is left to write `{checkpoint}/state/" in str(caught.value)
        filler.unlink()
        quiet_run(write_pipeline(tmp_path, source, "at_end: finish"))
        local = match_file(compiled(RULES), tmp_path / "events")
        assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())


RULE = "RULE r FROM events PARTITION BY k PATTERN a -> b WITHIN 1 DAY DEFINE a AS n > 0, b AS n = 0"


def test_the_state_of_a_checkpoint_without_a_finished_micro_batch_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text('{"format": 4, "sources": {}, "run": "r", "key_groups": 1}')
    (tmp_path / "rules.json").write_text("{}")
    with pytest.raises(StateError, match=r"E0705.*is not the checkpoint of a pipeline that has finished"):
        read_checkpoint(LocalFiles(str(tmp_path)), str(tmp_path))


def test_a_worker_warns_once_of_large_state(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator, "_warned", [])
    for n_bytes in (20 << 20, 30 << 20):
        operator._warn_once(n_bytes)
    assert capsys.readouterr().err.count("the state of a key group has 20 MB") == 1
    operator._warn_once(40 << 20)
    assert capsys.readouterr().err == ""


def test_detect_keeps_state_in_a_folder_of_each_query(spark: SparkSession, tmp_path: Path) -> None:
    n_keys = 30_000  # 13 bytes of each are more than a small state
    start = datetime(2026, 1, 1, tzinfo=UTC)
    whole: list[tuple[datetime, int, int]] = []
    found: list[Row] = []
    for number, folder in enumerate([str(tmp_path / "state"), str(tmp_path / "state"), None]):
        rows = [(start + timedelta(minutes=number, milliseconds=k), number == 0, k) for k in range(n_keys)]
        rows = rows[:: 1 + 299 * number]  # later ones end runs of the first
        whole += rows
        frame = spark.createDataFrame(rows, "ts timestamp, n boolean, k bigint").selectExpr(
            "ts", "int(n) n", "k"
        )
        frame.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        events = stream_of_files(spark, tmp_path / "in")
        matches = detect(
            events, RULE, event_time="ts", lateness="1 second", key_groups=2, state_folder=folder
        )
        writer = matches.writeStream.format("parquet").option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        if folder is None:
            with pytest.raises(StreamingQueryException, match=r"E0702.*no folder of state is given"):
                query.awaitTermination()
            break
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out")).collect()
        metrics = observed(query)
        assert 0 < max(row["state_bytes"] for row in metrics) < 2000, metrics  # pointers
        # PySpark 3.5 tells nothing about a last micro-batch without events.
        is_told = pyspark_version() >= (4, 0)
        assert sum(row["groups_warm"] + row["groups_cold"] for row in metrics) > 0 or not (is_told or number)
        assert metrics[0]["groups_warm"] == 0  # the query has just started
        assert sum(row["state_recorded"] + row["state_written"] for row in metrics) > 0
        assert (sum(row["snapshots_written"] for row in metrics) > 0) == (number == 0), metrics
        touched = sum(row["keys_touched"] for row in metrics)
        # The last second waits until the next events arrive: 1,000 of the first, 4 of the later ones.
        untold = 0 if is_told else (1, 4)[number]
        assert touched == (n_keys - 1000 if number == 0 else 1000 + 100 - 4) - untold, metrics
    assert [place.name for place in (tmp_path / "state").iterdir()] == [query.id]
    assert 70 < len(found) <= 100
    all_of = spark.createDataFrame(whole[: n_keys + 100], "ts timestamp, n boolean, k bigint")
    batch = detect(all_of.selectExpr("ts", "int(n) n", "k"), RULE, event_time="ts")
    assert {row.match_id for row in found} <= {row.match_id for row in batch.collect()}
