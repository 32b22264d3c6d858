"""State in files: a stream with forced files gives the matches of a batch, over restarts and lost owners."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cep.local.match_file import match_file
from tests.forced_state import force_files, force_nothing
from tests.spark.events import RULES, comparable, compiled
from tests.spark.test_pipeline import keyed_events, quiet_run, read, write_json, write_pipeline


@pytest.fixture
def _forced() -> Iterator[None]:
    force_files()
    yield
    force_nothing()


def owners() -> list[int]:
    """Return the processes that are owners: forks of workers without a parent."""
    found = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    rows = (line.split(None, 2) for line in found.splitlines()[1:])
    return [int(pid) for pid, parent, command in rows if parent == "1" and "pyspark.daemon" in command]


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
    local = match_file(compiled(RULES), tmp_path / "events")
    assert comparable(read(tmp_path / "out/matches")) == comparable(local.matches.to_pylist())
    groups = list((tmp_path / "out/checkpoint/state").iterdir())
    assert len(groups) == 2
    for group in groups:
        batches = sorted(int(file.name.partition("-")[0]) for file in group.iterdir())
        assert batches[-1] - batches[0] <= 6, batches  # what Spark retains, and the records before it
        assert {file.stat().st_mode & 0o777 for file in group.iterdir()} == {0o600}
