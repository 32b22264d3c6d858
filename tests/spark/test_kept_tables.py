"""State in files with a static table that changes while a pipeline runs: as state in Spark's store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from rich.console import Console

from cep.commands.cli import main
from cep.counts import Counts
from cep.settings.schema_file import load_streams
from spark_runtime import detect, run_pipeline
from spark_runtime.operator.daily import Days
from spark_runtime.pipeline.checkpoint import KEPT_BATCHES
from spark_runtime.pipeline.micro_batches import MicroBatches
from spark_runtime.pipeline.restoring import restore
from spark_runtime.pipeline.saving import save
from spark_runtime.pipeline.stored_state import stored_state
from spark_runtime.state.pointer import Kept
from spark_runtime.tables import static
from tests.forced_state import force_files, force_nothing
from tests.spark.events import comparable
from tests.spark.test_tables import FINISH, Rows, drawn, read, write, write_pipeline

N_FILES, N_RUNS = 12, 4
LANDS = (
    "iso,risk\nDE,1\nFR,2\nNG,3\n",
    "iso,risk\nDE,7\nFR,0\nNG,4\n",
    "iso,risk\nDE,5\nNG,0\nXX,2\n",
    "iso,risk\nFR,9\nXX,1\n",
)


@dataclass
class Stream:
    """A pipeline whose static table is another one after each hundred events.

    Parameters
    ----------
    valid
        By micro-batch, the content of the table.
    stored
        By micro-batch, the contents in the checkpoint after it.
    """

    folder: Path
    rows: Rows
    n_events: int = 0
    valid: dict[int, str] = field(default_factory=dict)
    stored: dict[int, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        write(self.folder / "all", self.rows, N_FILES)
        self.lands()

    @property
    def checkpoint(self) -> Path:
        return self.folder / "out/checkpoint"

    def lands(self) -> None:
        number = self.n_events // 100
        file = self.folder / "lands.csv"
        file.write_text(f"{LANDS[number % len(LANDS)]}Z{number},0\n")  # each content has its own name
        os.utime(file, (1_700_000_000 + number,) * 2)

    def run(self, number: int, checkpoint: str = "checkpoint") -> None:
        """Do a run over the next files."""
        for name in self.rows:
            for place in sorted((self.folder / "all" / name).iterdir())[number * 3 : number * 3 + 3]:
                (self.folder / name).mkdir(exist_ok=True)
                shutil.copy2(place, self.folder / name)
        pipeline = write_pipeline(self.folder, FINISH if number == N_RUNS - 1 else "")
        text = pipeline.read_text().replace("path: rates}", "path: rates, max_files_per_trigger: 1}")
        pipeline.write_text(text.replace("checkpoint: out/checkpoint", f"checkpoint: out/{checkpoint}"))
        usual = MicroBatches.complete

        def completing(batches: MicroBatches, batch: int, counts: Counts, reported: Days | None) -> None:
            usual(batches, batch, counts, reported)
            (self.valid[batch],) = batches._plans.last.tables.values()
            places = (self.folder / "out" / checkpoint / "tables").iterdir()
            self.stored[batch] = {place.stem for place in places}
            self.n_events += counts.events
            self.lands()

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(MicroBatches, "complete", completing)
            accepts = checkpoint != "checkpoint"
            console = Console(file=StringIO())
            run_pipeline(pipeline, console=console, quiet=True, accept_older_checkpoint=accepts)


@pytest.fixture(scope="module")
def rows() -> Rows:
    return drawn(11, 900)


@pytest.fixture(scope="module")
def expected(spark: SparkSession, rows: Rows, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The matches of a pipeline with all state in Spark's store."""
    stream = Stream(tmp_path_factory.mktemp("inline"), rows)
    for number in range(N_RUNS):
        stream.run(number)
    assert not (stream.checkpoint / "state").exists()
    found = read(stream.folder / "out/matches")
    assert len(found) > 40
    last = max(stream.stored)
    assert stream.stored[last] == {stream.valid[batch] for batch in range(last - KEPT_BATCHES + 1, last + 1)}
    assert {row["risk"] for row in found} >= {2, 3, 4, 5, 7, 9}, "a content was not used"
    return comparable(found)


@pytest.fixture
def _forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(static, "_LOOKS", 2)
    force_files(most_records=4)
    yield
    force_nothing()


@pytest.mark.usefixtures("_forced")
def test_a_stream_with_files_of_state_goes_on_after_restarts_with_what_its_table_contained(
    spark: SparkSession, tmp_path: Path, rows: Rows, expected: list[Any]
) -> None:
    stream = Stream(tmp_path, rows)
    for number in range(N_RUNS):
        stream.run(number)
        contents = stored_state(str(stream.checkpoint))
        stored = list(contents.groups)
        assert len(stored) == 2
        assert all(group.is_in_files and group.n_carried < 2000 for group in stored)
    assert comparable(read(tmp_path / "out/matches")) == expected
    used = set(stream.valid.values())
    assert len(used) >= 8
    assert max(map(len, stream.stored.values())) > KEPT_BATCHES + 1, "only plans counted"
    batches = {int(file.name.partition("-")[0]) for file in (stream.checkpoint / "state").rglob("*-*")}
    last = stream.stored[max(stream.valid)]
    assert {stream.valid[batch] for batch in batches} <= last < used


def listed(place: Path) -> list[dict[str, Any]]:
    """Return what `cep state ls` shows, but for the place of the state."""
    found = CliRunner().invoke(main, ["state", "ls", str(place), "--format", "json"])
    assert found.exit_code == 0, found.output
    rows = [json.loads(line) for line in found.output.splitlines()]
    assert sum("group" in row for row in rows) == 2, rows
    return [
        {name: value for name, value in row.items() if name not in ("carried", "in_files")} for row in rows
    ]


@pytest.mark.usefixtures("_forced")
def test_a_savepoint_of_files_of_state_contains_what_static_tables_led_to(
    spark: SparkSession, tmp_path: Path, rows: Rows, expected: list[Any]
) -> None:
    stream = Stream(tmp_path, rows)
    for number in range(N_RUNS - 1):
        stream.run(number)
    save(str(stream.checkpoint), str(tmp_path / "saved"))
    restore(str(tmp_path / "saved"), str(tmp_path / "out/other"), 3)
    assert listed(stream.checkpoint) == listed(tmp_path / "saved")
    stream.run(N_RUNS - 1, "other")
    assert comparable(read(tmp_path / "out/matches")) == expected


RULE = """
RULE r FROM events JOIN risks ON kind PARTITION BY k PATTERN a ->+ b WITHIN 1 DAY
DEFINE a AS risks.risk > 0, b AS kind = 'b' MEASURES ARRAY_AGG(a.risks.risk) AS risks
"""
STREAMS = """
streams:
  events: {event_time: ts, lateness: 1 second, schema: {ts: timestamp, k: bigint, kind: string}}
tables:
  risks: {key: [kind], static: true, schema: {kind: string, risk: bigint}}
"""


@pytest.mark.deep
def test_detect_repeats_what_a_static_dataframe_contained_in_earlier_runs(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Kept.of_run
    monkeypatch.setattr(Kept, "of_run", partial(usual, inline_bytes=0))
    (tmp_path / "streams.yaml").write_text(STREAMS)
    streams = load_streams(tmp_path / "streams.yaml")
    second = 0
    for number, risk in enumerate((1, 2, 3)):
        for kind in ("a", "a", "b" if number == 2 else "a", "end"):
            second += 10
            file = tmp_path / f"in/{second}.json"
            file.parent.mkdir(exist_ok=True)
            ts = f"2026-01-01T00:{second // 60:02}:{second % 60:02}Z"
            file.write_text("".join(json.dumps({"ts": ts, "k": k, "kind": kind}) + "\n" for k in range(20)))
            os.utime(file, (1_700_000_000 + second,) * 2)
        reader = spark.readStream.schema("ts timestamp, k bigint, kind string")
        events = reader.option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
        risks = spark.createDataFrame([("a", risk), ("b", -risk)], "kind string, risk bigint")
        matches = detect(
            {"events": events, "risks": risks},
            RULE,
            streams=streams,
            key_groups=2,
            state_folder=str(tmp_path / "state"),
        )
        writer = matches.writeStream.format("json").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
        query.awaitTermination()
    found = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.json")
        for line in file.read_text().splitlines()
    ]
    assert {row["k"]: row["risks"] for row in found} == dict.fromkeys(range(20), [1] * 3 + [2] * 3 + [3] * 2)
    assert len(found) == 20
    assert len(list((tmp_path / "state" / str(query.id) / "tables").iterdir())) == 3
