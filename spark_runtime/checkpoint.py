"""The checkpoint directory of a pipeline: Spark's own part, what it was started with, the mark of its end.

    <checkpoint>/pipeline.json   written at the first start: key groups, rules
    <checkpoint>/query           Spark's checkpoint of the query
    <checkpoint>/end             a second source of the query; a file in it says that the input is complete

Paths may be of any file system that Spark's Hadoop library knows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cep.errors import StateError
from cep.program import Program

CODES: dict[str, str] = {
    "E0701": "a checkpoint of other rules",
    "E0706": "a checkpoint that this version cannot read",
}
"""Code -> meaning of what can be wrong with a checkpoint directory."""

_FORMAT = 2  # of 1 the key groups were others


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An opened checkpoint directory."""

    path: str
    run_id: str  # names the directories that sinks write; the same after a restart
    n_groups: int

    @property
    def query_path(self) -> str:
        """Spark's part."""
        return f"{self.path}/query"

    @property
    def end_path(self) -> str:
        """Where the mark of the end is put."""
        return f"{self.path}/end"


def open_checkpoint(spark: SparkSession, path: str, programs: Sequence[Program], n_groups: int) -> Checkpoint:
    """Return the checkpoint at `path`, made if it is not there.

    Raises
    ------
    StateError
        It belongs to other rules, or to another version.
    """
    rules = [program.fingerprint.hex() for program in programs]
    file = f"{path}/pipeline.json"
    text = _read(spark, file)
    if text is None:
        found: dict[str, Any] = {"format": _FORMAT, "rules": rules}
        found |= {"run": uuid.uuid4().hex[:8], "key_groups": n_groups}
        _make_folder(spark, f"{path}/end")
        _write(spark, file, json.dumps(found))
    else:
        try:
            found = json.loads(text)
            known = found["format"] == _FORMAT
        except (ValueError, KeyError, TypeError):
            known = False
        if not known:
            raise StateError(
                "E0706",
                f"the checkpoint `{path}` was not written by this version",
                "start with an empty checkpoint directory",
            )
    if found["rules"] != rules:
        raise StateError(
            "E0701",
            f"the checkpoint `{path}` was written by other rules",
            "give the changed rules a checkpoint directory of their own; their matching starts anew",
        )
    return Checkpoint(path, str(found["run"]), int(found["key_groups"]))


def is_ended(spark: SparkSession, checkpoint: Checkpoint) -> bool:
    """Say whether the input was declared complete."""
    return _read(spark, f"{checkpoint.end_path}/end.json") is not None


def mark_end(spark: SparkSession, checkpoint: Checkpoint, group_labels: Sequence[int]) -> None:
    """Declare the input complete: one line for each key group, which finishes when it reads it."""
    lines = "".join(json.dumps({"group": label}) + "\n" for label in group_labels)
    _write(spark, f"{checkpoint.end_path}/end.json", lines)


def _hadoop_path(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark._jvm  # the only way to a Hadoop file system from Python
    place = jvm.org.apache.hadoop.fs.Path(path)
    return place.getFileSystem(spark._jsc.hadoopConfiguration()), place


def _make_folder(spark: SparkSession, path: str) -> None:
    files, place = _hadoop_path(spark, path)
    files.mkdirs(place)


def _read(spark: SparkSession, path: str) -> str | None:
    files, place = _hadoop_path(spark, path)
    if not files.exists(place):
        return None
    stream = files.open(place)
    try:
        return bytes(stream.readAllBytes()).decode()
    finally:
        stream.close()


def _write(spark: SparkSession, path: str, text: str) -> None:
    """Write a file in one step: no reader sees half of it."""
    folder, _, name = path.rpartition("/")
    files, place = _hadoop_path(spark, f"{folder}/.{name}.tmp")
    stream = files.create(place, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    files.rename(place, _hadoop_path(spark, path)[1])
