"""``make object-store-test``: pipelines on S3, as moto plays it, give the results of a local run.

Source, sinks and checkpoint are below `s3a://`. `make test` does not run this file: it needs Hadoop's file
system for S3, and each run of a pipeline starts a driver.
"""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from spark_runtime.storage.lease import SECONDS as LEASE_SECONDS
from tests.e2e.standalone import SECONDS, Driver
from tests.e2e.transactions import local_matches, write_transactions
from tests.left_out import require
from tests.servers.s3_server import BUCKET, S3Server, running_s3

pytestmark = pytest.mark.spark

JARS = Path(__file__).parents[2] / ".servers" / "object-stores"

N_BATCHES = 6
"""Files of events, one in each micro-batch."""

KILLS = [
    (r"/plan/0\.json", False),  # nothing is done yet
    (r"/query/sources/\d/1$", True),
    (r"/query/commits/1$", False),
    (r"/parquet/", False),
    (r"/parquet/", True),
    (r"/done\.json", True),
    (r"/query/state/.*\.changelog$", False),
    (r"/query/offsets/", True),
]
"""Where runs are killed, one after the other: at a request for such an object, before or after its effect."""

_STATE = r"/checkpoint/state/\d+"
KILLS_OF_STATE = [
    (rf"{_STATE}/0-", False),  # the first snapshots
    (rf"{_STATE}/0-", True),
    (r"/query/state/.*/1\.changelog$", True),  # between a file and its pointer
    (rf"{_STATE}/1-", False),  # records
    (rf"{_STATE}/1-", True),
    (r"/query/commits/1$", False),
    (rf"{_STATE}/2-", True),
    (rf"{_STATE}/3-", False),  # other snapshots
    (rf"{_STATE}/3-", True),
    (r"/query/state/.*/4\.changelog$", False),
    (r"/done\.json", True),
    (rf"{_STATE}/[012]-", False),  # files are removed
]
"""The same with all state in files, of which a key group writes a snapshot in each third micro-batch."""

FORCED = (
    "from tests.forced_state import force_files; force_files(); from cep.commands.cli import main; main()"
)


@dataclass(frozen=True)
class Lake:
    """Events in a bucket, and the matches of a local run."""

    s3: S3Server
    folder: Path
    expected: list[str]

    def settings(self, name: str, **changed: Any) -> Path:
        """Write the pipeline file of a run; its results and checkpoint are below `name` in the bucket."""
        below = f"s3a://{BUCKET}/{name}"
        events = {"stream": "transactions", "format": "json", "path": f"s3a://{BUCKET}/events"}
        spec: dict[str, Any] = {
            "rules": ["card_testing.cep"],
            "source": {**events, "max_files_per_trigger": 1},
            "sinks": [{"format": form, "path": f"{below}/{form}"} for form in ("parquet", "json")],
            "late": {"format": "json", "path": f"{below}/late"},
            "dead_letter": {"format": "json", "path": f"{below}/dead"},
            "checkpoint": f"{below}/checkpoint",
            "trigger": "available_now",
            "at_end": "finish",
            "spark": {
                "spark.master": "local[2]",
                "spark.sql.shuffle.partitions": "2",
                "spark.driver.extraClassPath": f"{JARS}/*",
                "spark.hadoop.fs.s3a.endpoint": self.s3.address,
                "spark.hadoop.fs.s3a.path.style.access": "true",
                "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
                "spark.hadoop.fs.s3a.access.key": "tests",
                "spark.hadoop.fs.s3a.secret.key": "tests",
            },
        } | changed
        spec = {name: value for name, value in spec.items() if value is not None}
        placed = self.folder / f"{name}.yaml"
        placed.write_text(yaml.safe_dump(spec, sort_keys=False))
        return placed

    @contextmanager
    def driver(self, settings: Path, *options: str) -> Iterator[Driver]:
        """Run a pipeline, with all state in files if it is `files`; end it and its Java."""
        log = settings.with_suffix(f".{time.monotonic_ns()}.txt")
        cep = ["-c", FORCED] if settings.stem == "files" else ["-m", "cep"]
        command = [sys.executable, *cep, "run", str(settings), "--allow-spark-settings", *options]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        run = Driver(process, log)
        try:
            yield run
        finally:
            if process.poll() is None:
                run.send(signal.SIGKILL)
                process.wait()

    def run(self, settings: Path) -> str:
        """Run a pipeline to its end; return its output."""
        with self.driver(settings) as run:
            assert run.wait() in (0, 3), run.said
            return run.said

    def forget_lease(self, name: str) -> None:
        """Remove the lease of a killed run, which the next one would await."""
        self.s3.remove(f"{name}/checkpoint/lease/")

    def require_right(self, name: str) -> None:
        """Check that each sink has each match of the local run once."""
        found = self.s3.objects(f"{name}/")
        tables = [pq.read_table(io.BytesIO(data)) for data in _of(found, f"{name}/parquet/", ".parquet")]
        assert sorted(_text(row) for table in tables for row in table.to_pylist()) == self.expected
        ids = sorted(json.loads(text)["match_id"] for text in self.expected)
        lines = [line for data in _of(found, f"{name}/json/", ".json") for line in data.decode().splitlines()]
        assert sorted(json.loads(line)["match_id"] for line in lines) == ids


def _of(objects: dict[str, bytes], prefix: str, ending: str) -> list[bytes]:
    return [data for key, data in objects.items() if key.startswith(prefix) and key.endswith(ending)]


def _text(row: dict[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Card transactions in a bucket."""
    require(JARS.exists(), "Hadoop's file system for S3", "make object-store-test")
    folder = tmp_path_factory.mktemp("lake")
    events = write_transactions(folder, 1_500, files=N_BATCHES)
    expected = sorted(map(_text, local_matches(folder)))
    assert len(expected) > 10
    with running_s3(folder) as s3:
        s3.put({f"events/{file.name}": file.read_bytes() for file in events})
        yield Lake(s3, folder, expected)


def test_a_stream_has_the_matches_of_a_local_run_with_few_requests(lake: Lake) -> None:
    lake.s3.counted()
    lake.run(lake.settings("plain"))
    counts = lake.s3.counted()
    print(f"requests: {counts}")
    lake.require_right("plain")
    # About 440 for each micro-batch when Spark wrote the files of six outputs.
    n = len(lake.s3.objects("plain/checkpoint/query/commits/"))
    assert sum(counts.values()) < 200 * n


def killed(lake: Lake, name: str, key: str, *, after: bool) -> None:
    """Run a pipeline and kill it at a request."""
    lake.s3.hold(f"/{name}.*{key}", after=after)
    with lake.driver(lake.settings(name)) as run:
        run.wait_for(lake.s3.is_holding)
        run.send(signal.SIGKILL)
        run.process.wait()
    lake.s3.let_go()
    lake.forget_lease(name)


@pytest.mark.parametrize(("key", "after"), KILLS)
def test_a_run_is_killed(lake: Lake, key: str, after: bool) -> None:
    """Each run continues where the one before it was killed; the next test has the outcome."""
    killed(lake, "killed", key, after=after)


def test_a_run_that_was_killed_loses_nothing_and_repeats_nothing(lake: Lake) -> None:
    lake.run(lake.settings("killed"))
    lake.require_right("killed")


@pytest.mark.parametrize(("key", "after"), KILLS_OF_STATE)
def test_a_run_with_its_state_in_files_is_killed(lake: Lake, key: str, after: bool) -> None:
    """Each run continues where the one before it was killed; the next test has the outcome."""
    killed(lake, "files", key, after=after)


def test_a_killed_run_with_its_state_in_files_loses_nothing_and_leaves_what_is_needed(lake: Lake) -> None:
    said = lake.run(lake.settings("files"))
    lake.require_right("files")
    assert " of records and " in said
    written = [key.rpartition("/")[2] for key in lake.s3.objects("files/checkpoint/state/")]
    batches = sorted(int(name.partition("-")[0]) for name in written if name)
    assert batches, said
    assert batches[-1] - batches[0] <= 6, batches  # what Spark retains, and the records before it


def test_a_second_run_is_refused_while_the_first_one_works(lake: Lake) -> None:
    settings = lake.settings("twice", trigger="1 second", at_end=None)
    with lake.driver(settings) as first:
        first.wait_for(lambda: bool(lake.s3.objects("twice/checkpoint/query/commits/0")))
        with lake.driver(settings) as second:
            assert second.wait() == 1
            assert "E0711" in second.said
            assert f"process {first.process.pid} on " in second.said
        assert first.process.poll() is None, first.said
        first.process.send_signal(signal.SIGINT)
        assert first.wait() in (0, 3), first.said
    # It ended its lease, so the next run does not wait.
    assert "waiting" not in lake.run(lake.settings("twice"))
    lake.require_right("twice")


def test_the_lease_of_a_killed_run_is_taken_over_after_its_time(lake: Lake) -> None:
    settings = lake.settings("dead")
    lake.s3.hold("/dead/.*/plan/3", after=True)
    with lake.driver(settings) as run:
        run.wait_for(lake.s3.is_holding)
        run.send(signal.SIGKILL)
        pid = run.process.pid
        run.process.wait()
    lake.s3.let_go()
    assert f"waiting {LEASE_SECONDS:g} seconds for the lease of the checkpoint: process {pid} on" in lake.run(
        settings
    )
    lake.require_right("dead")


def test_a_run_that_was_stopped_for_longer_than_its_lease_writes_no_more(lake: Lake) -> None:
    settings = lake.settings("stopped")
    lake.s3.hold("/stopped/.*/plan/3", after=True)
    with lake.driver(settings) as first:
        first.wait_for(lake.s3.is_holding)
        first.send(signal.SIGSTOP)
        try:
            lake.run(settings)
        finally:
            first.send(signal.SIGCONT)
        lake.require_right("stopped")
        lake.s3.let_go()
        assert first.wait() == 1
        assert "E0711" in first.said
        assert "did not renew its lease" in first.said
    lake.require_right("stopped")


def test_a_log_on_a_disk_is_replayed_into_sinks_on_s3_once_and_from_an_offset_on(lake: Lake) -> None:
    def cep(*words: object) -> str:
        command = [sys.executable, "-m", "cep", "replay", "--allow-spark-settings", str(settings)]
        command += map(str, words)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def replayed(name: str, form: str, *words: object) -> str:
        return cep("--into", f"{{format: {form}, path: 's3a://{BUCKET}/{name}/{form}'}}", *words)

    settings = lake.settings("logged", log=str(lake.folder / "log"))
    lake.run(settings)
    lake.require_right("logged")
    n_all = len(lake.expected)
    for form in ("parquet", "json"):
        assert replayed("again", form).startswith(f"wrote {n_all:,} rows of ")
    assert replayed("again", "json").startswith("wrote 0 rows of 0 micro-batches; ")
    lake.require_right("again")
    entries = [json.loads(line) for line in cep("--list", "--format", "json").splitlines()]
    last = [entry for entry in entries if entry["kind"] == "matches"][-2:]
    n_last = sum(entry["rows"] for entry in last)
    assert 0 < n_last < n_all
    assert replayed("of-offset", "json", "--from", last[0]["offset"]).startswith(
        f"wrote {n_last:,} rows of 2 "
    )
    assert replayed("of-time", "json", "--from", last[0]["written"]).startswith(
        f"wrote {n_last:,} rows of 2 "
    )
    found = [_of(lake.s3.objects(f"{name}/"), f"{name}/json/", ".json") for name in ("of-offset", "of-time")]
    assert found[0] == found[1]
    assert sum(len(data.splitlines()) for data in found[0]) == n_last
