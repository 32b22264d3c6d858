"""A copy of a checkpoint that is put back: it is refused, and the way on gives what it promises."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from rich.console import Console

from cep.errors import StateError
from spark_runtime import run_pipeline
from spark_runtime.pipeline.progress import Summary
from tests.kills.written import files_of

STREAMS = """
streams:
  s: {event_time: ts, lateness: 1 second, schema: {id: bigint, ts: timestamp, k: string}}
"""
RULE = "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS id >= 0 MEASURES a.id AS id"
N = 20


FOLDERS = ("json", "csv")


class Place:
    """A pipeline over files of 20 events, and its sinks: a file of Spark's, two of the workers', a table."""

    def __init__(self, folder: Path, sinks: tuple[str, ...] = (*FOLDERS, "delta")) -> None:
        self.folder, self.copy, self.sinks = folder, folder / "copy", sinks
        (folder / "rules.cep").write_text(RULE)
        (folder / "streams.yaml").write_text(STREAMS)
        (folder / "in").mkdir()
        self.write()

    def write(self, *more: str) -> None:
        sinks = [f"  - {{format: {name}, path: {name}}}" for name in self.sinks]
        lines = ["rules: [rules.cep]", "source: {stream: s, format: json, path: in}", "sinks:", *sinks]
        lines += ["dead_letter: {format: json, path: dead}", "checkpoint: checkpoint", *more]
        (self.folder / "p.yaml").write_text("\n".join(lines) + "\n")

    def feed(self, *files: int) -> None:
        for number in files:
            of_file = range(number * N, number * N + N)
            lines = [
                json.dumps({"id": i, "ts": f"2024-05-01T{i // 60:02}:{i % 60:02}:00Z", "k": "k"})
                for i in of_file
            ]
            (self.folder / "in" / f"{number}.json").write_text("\n".join([*lines, f"bad {number}"]) + "\n")

    def run(self, *, accept: bool = False) -> Summary:
        console = Console(file=StringIO())
        return run_pipeline(
            self.folder / "p.yaml", console=console, quiet=True, accept_older_checkpoint=accept
        )

    def refusal(self) -> str:
        with pytest.raises(StateError) as caught:
            self.run()
        assert caught.value.code == "E0849"
        return str(caught.value)

    def keep(self) -> None:
        shutil.copytree(self.folder / "checkpoint", self.copy)

    def put_back(self) -> None:
        shutil.rmtree(self.folder / "checkpoint")
        shutil.copytree(self.copy, self.folder / "checkpoint")

    def in_json(self) -> list[int]:
        return sorted(
            json.loads(line)["id"]
            for f in files_of(self.folder / "json")
            for line in f.read_text().splitlines()
        )

    def in_csv(self) -> list[int]:
        texts = [file.read_text().splitlines() for file in files_of(self.folder / "csv")]
        return sorted(int(line.split(",")[-1]) for lines in texts for line in lines[1:])

    def dead(self) -> list[str]:
        found = [line for f in files_of(self.folder / "dead") for line in f.read_text().splitlines()]
        return sorted(json.loads(line)["raw"] for line in found)

    def in_delta(self) -> Counter[int]:
        return Counter(DeltaTable(self.folder / "delta").to_pyarrow_table().column("id").to_pylist())


@pytest.mark.parametrize("n_more", [1, 2])
def test_it_is_refused_and_accepted_files_have_each_row_once(
    spark: SparkSession, tmp_path: Path, n_more: int
) -> None:
    place = Place(tmp_path)
    place.feed(0)
    place.run()
    place.keep()
    for number in range(1, n_more + 1):
        place.feed(number)
        place.run()
    place.put_back()
    place.feed(3, 4)  # the next micro-batch has other rows than the one of its number before
    before = {file: file.stat().st_mtime_ns for file in files_of(tmp_path)}
    said = place.refusal()
    assert {file: file.stat().st_mtime_ns for file in files_of(tmp_path)} == before
    last = max(int(f.parent.name.rpartition("-")[2]) for f in files_of(tmp_path / "json"))
    assert f"folder `{tmp_path}/json` has micro-batch {last}" in said
    assert f"the Delta table `{tmp_path}/delta` has micro-batch {last}" in said
    assert place.refusal() == said
    place.write("at_end: finish")
    place.run(accept=True)
    ids = [i for number in (*range(n_more + 1), 3, 4) for i in range(number * N, number * N + N)]
    assert place.in_json() == place.in_csv() == ids
    assert place.dead() == sorted(f"bad {number}" for number in (*range(n_more + 1), 3, 4))
    found = place.in_delta()
    assert sorted(found) == ids
    # The last event of a run is reported by the next one. What came after the copy occurs twice.
    assert {i for i, n in found.items() if n > 1} == set(range(N - 1, N * (n_more + 1) - 1))
    place.run(accept=True)  # the word is harmless where nothing is to be accepted
    assert place.in_json() == ids


def test_the_same_copy_put_back_once_more_is_refused_and_files_have_each_row_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(tmp_path, FOLDERS)  # no other sink keeps what the first run wrote after the copy
    place.feed(0)
    place.run()
    place.keep()
    place.feed(1)
    place.run()
    later = tmp_path / "later"
    shutil.copytree(tmp_path / "checkpoint", later)
    for more in (2, 3):
        place.put_back()
        place.feed(more)
        place.refusal()
        place.run(accept=True)
    place.put_back()
    assert "has what another run wrote that continued an older copy" in place.refusal()
    shutil.rmtree(tmp_path / "checkpoint")
    shutil.copytree(later, tmp_path / "checkpoint")
    with pytest.raises(StateError, match="no longer has the micro-batches"):
        place.run(accept=True)
    place.put_back()
    place.write("at_end: finish")
    place.run(accept=True)
    assert place.in_json() == place.in_csv() == list(range(4 * N))
    assert place.dead() == [f"bad {number}" for number in range(4)]


def test_two_copies_that_go_on_side_by_side_do_not_take_each_others_micro_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.feed(0)
    place.run()
    place.keep()
    place.feed(1)
    place.run()
    other = tmp_path / "other"
    shutil.copytree(place.copy, other)
    text = (tmp_path / "p.yaml").read_text()
    (tmp_path / "p.yaml").write_text(text.replace("checkpoint: checkpoint", "checkpoint: other"))
    place.feed(2)
    assert "is not the latest of its stream" in place.refusal()


def test_what_was_planned_before_a_copy_was_made_is_repeated(spark: SparkSession, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.feed(0)
    place.run()
    place.feed(1)
    place.run()
    # As if the run had been killed after its sinks were written: of the last micro-batch the plan is there.
    commits = tmp_path / "checkpoint" / "query" / "commits"
    last = max(int(file.name) for file in commits.iterdir() if file.name.isdigit())
    for log, number in (("commits", last), ("offsets", last + 1)):
        for name in (f"{number}", f".{number}.crc"):
            (tmp_path / "checkpoint" / "query" / log / name).unlink(missing_ok=True)
    place.write("at_end: finish")
    place.run()
    assert place.in_json() == place.in_csv() == sorted(place.in_delta()) == list(range(2 * N))
    assert set(place.in_delta().values()) == {1}
