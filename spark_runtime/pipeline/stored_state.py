"""The state in the checkpoint of a pipeline, read beside the run that writes it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from pyspark.sql import SparkSession

from cep.errors import SetupError
from cep.rule_set import RuleSet
from cep.rulebook import compile_texts
from spark_runtime.compat.driver import pyspark_version
from spark_runtime.event_time.reached import Reached
from spark_runtime.pipeline.checkpoint import Checkpoint, last_done, read_checkpoint
from spark_runtime.state.contents import StoredGroup, programs_in
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pieces import FOLDER
from spark_runtime.state.pointer import Kept, Pointer, is_pointer
from spark_runtime.state.snapshots import encode_state
from spark_runtime.storage.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles, is_remote
from spark_runtime.tables.content import tables_in
from spark_runtime.tables.static import FOLDER as TABLES

_FIRST_VERSION = (4, 0)
"""The first version of Spark that reads its own state stores."""


class StoredValue(NamedTuple):
    """The state of a key group.

    Parameters
    ----------
    group
        Its label.
    n_carried
        The bytes in Spark's state store.
    is_in_files
        Whether these only name files.
    data
        The state (`snapshots.encode_state`).
    """

    group: int
    n_carried: int
    is_in_files: bool
    data: bytes


def files_of(spark: SparkSession, path: str) -> CheckpointFiles:
    """Return the files of a checkpoint, which may be on remote storage.

    Raises SetupError: the version of Spark does not read state stores (E0801).
    """
    if pyspark_version() < _FIRST_VERSION:
        raise SetupError("E0801", "PySpark 3.5 cannot read the state of a stream", "use PySpark 4.0 or later")
    return HadoopFiles(spark, path) if is_remote(path) else LocalFiles(path)


def stored_groups(spark: SparkSession, path: str) -> tuple[RuleSet, Reached, Iterator[StoredGroup]]:
    """Return the rules of a checkpoint, the event time, and the state after its last micro-batch.

    Raises
    ------
    SetupError
        The version of Spark does not read state stores (E0801).
    StateError
        The folder is no checkpoint of a pipeline (E0705), or of another version (E0706), or damaged (E0702).
    """
    checkpoint, stored = read_checkpoint(files_of(spark, path), path)
    rules = compile_texts(stored.texts, stored.streams).rule_set

    def groups() -> Iterator[StoredGroup]:
        for group, n_carried, is_in_files, data in stored_values(spark, checkpoint, rules):
            yield StoredGroup(group, n_carried, is_in_files, tuple(programs_in(data, rules)))

    return rules, last_done(checkpoint, is_live=False).reached, groups()


def stored_values(
    spark: SparkSession, checkpoint: Checkpoint, rules: RuleSet, batch: int | None = None
) -> Iterator[StoredValue]:
    """Yield the state of the key groups of a checkpoint after a micro-batch, by default its last one."""
    kept = Kept(f"{checkpoint.path}/{FOLDER}", "", 0)
    tables_of = partial(tables_in, f"{checkpoint.path}/{TABLES}", rules.programs)
    files = StateFiles(kept, rules, checkpoint.n_groups, tables_of)
    reader = spark.read.format("statestore").option("path", checkpoint.query_path)
    found = (reader if batch is None else reader.option("batchId", batch)).load()
    for group, value in found.selectExpr("key.*", "value.groupState.state").toLocalIterator():
        data, is_in_files = bytes(value), is_pointer(value)
        if is_in_files:
            data = encode_state(files.read(Pointer.decode(data)).matchers, checkpoint.n_groups)
        yield StoredValue(group, len(value), is_in_files, data)
