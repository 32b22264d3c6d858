"""The result of a batch: its own pipeline replaces it, no other one does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cep.errors import InputError
from spark_runtime.connectors.files.sink import FolderSink
from spark_runtime.connectors.files.sink_settings import FilesSpec
from spark_runtime.connectors.files.writers import CsvWriter, JsonWriter
from spark_runtime.sinks.owner import Owner
from spark_runtime.sinks.protocol import MicroBatch
from spark_runtime.wire.output import DEAD, LATE
from tests.spark.test_sink_contract import CONTEXT, OUTPUTS, found, in_csv, in_json

ALL = MicroBatch(None, 0)


def put(folder: Path, owner: Owner | None, ids: list[int], kind: str = DEAD) -> None:
    sink = FilesSpec(f"{folder}/out", JsonWriter()).open(OUTPUTS[kind], replace(CONTEXT, owner=owner))
    assert isinstance(sink, FolderSink)
    sink.check()
    sink.begin(ALL)
    sink.write_part(ALL, "0", found(kind, ids))
    sink.commit(ALL)


def owner(folder: Path, pipeline: str = "p.yaml", **sources: str) -> Owner:
    named = {name: ("json", place) for name, place in (sources or {"s": f"{folder}/in"}).items()}
    return Owner(f"{folder}/{pipeline}", named)


def refusal(folder: Path, of: Owner, kind: str = DEAD) -> str:
    with pytest.raises(InputError) as caught:
        put(folder, of, [9], kind)
    assert caught.value.code == "E0887"
    return str(caught.value.args[0])


def test_a_pipeline_replaces_its_own_result(tmp_path: Path) -> None:
    put(tmp_path, owner(tmp_path), [1, 2])
    put(tmp_path, owner(tmp_path), [3])
    assert in_json(DEAD, tmp_path / "out") == [3]


def test_another_pipeline_and_another_input_are_refused(tmp_path: Path) -> None:
    put(tmp_path, owner(tmp_path), [1])
    said = (
        f"`{tmp_path}/out/batch=all` is the result of another batch, which would be replaced: of `../p.yaml`"
    )
    assert refusal(tmp_path, owner(tmp_path, "q.yaml")) == f"{said}, which read s: json ../in"
    assert refusal(tmp_path, owner(tmp_path, s=f"{tmp_path}/in2")).startswith(said)
    assert refusal(tmp_path, owner(tmp_path, s=f"{tmp_path}/in", t="/other")).startswith(said)
    assert in_json(DEAD, tmp_path / "out") == [1]


def test_another_output_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "out/stream=s"
    put(tmp_path, owner(tmp_path), [1], LATE)
    text = json.loads((place / "batch=all/_written_by").read_text())
    assert text == {"pipeline": "../../p.yaml", "output": "late: s", "sources": {"s": "json ../../in"}}
    (tmp_path / "out").rename(tmp_path / "out2")
    (tmp_path / "out2/stream=s").rename(tmp_path / "out")
    assert refusal(tmp_path, owner(tmp_path)).startswith(f"`{tmp_path}/out/batch=all` is the result of")


def test_what_is_moved_together_is_still_its_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    put(tmp_path / "a", owner(tmp_path / "a"), [1])
    (tmp_path / "a").rename(tmp_path / "b")
    put(tmp_path / "b", owner(tmp_path / "b"), [2])
    assert in_json(DEAD, tmp_path / "b" / "out") == [2]


def test_a_result_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    put(tmp_path, owner(tmp_path), [1])
    (tmp_path / "out/batch=all/_written_by").unlink()
    put(tmp_path, owner(tmp_path, "q.yaml"), [2])
    assert in_json(DEAD, tmp_path / "out") == [2]


def test_streams_do_not_meet_a_batch(tmp_path: Path) -> None:
    put(tmp_path, owner(tmp_path), [1])
    sink = FilesSpec(f"{tmp_path}/out", CsvWriter()).open(OUTPUTS[DEAD], CONTEXT)
    sink.check()
    sink.begin(MicroBatch("run", 0))
    sink.commit(MicroBatch("run", 0))
    assert in_csv(DEAD, tmp_path / "out") == []
    assert in_json(DEAD, tmp_path / "out" / "batch=all") == [1]
