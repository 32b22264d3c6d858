"""The state in the checkpoint of a pipeline, read beside the run that writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql import SparkSession

from cep.engine.corrections.corrector import is_corrected
from cep.engine.state.codec import decode, header
from cep.engine.state.sections import StateSections
from cep.errors import SetupError
from cep.program.program import Program
from cep.rule_set import RuleSet
from cep.rulebook import compile_texts
from spark_runtime.compat.driver import pyspark_version
from spark_runtime.pipeline.checkpoint import read_checkpoint
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pieces import FOLDER
from spark_runtime.state.pointer import Kept, Pointer, is_pointer
from spark_runtime.state.snapshots import encode_state, snapshots_in
from spark_runtime.storage.checkpoint_files import HadoopFiles, LocalFiles, is_remote

_FIRST_VERSION = (4, 0)
"""The first version of Spark that reads its own state stores."""


class StoredProgram(NamedTuple):
    """The state of one program, or of several that corrections connect, in a key group.

    Parameters
    ----------
    n_bytes
        The length of its snapshot.
    program, sections
        The program and its state; None with corrections, which keep events, not open runs.
    """

    n_bytes: int
    program: Program | None
    sections: StateSections | None


class StoredGroup(NamedTuple):
    """The state of a key group.

    Parameters
    ----------
    group
        Its label.
    n_carried
        The bytes in Spark's state store.
    is_in_files
        Whether these only name files.
    programs
        The state of its programs.
    """

    group: int
    n_carried: int
    is_in_files: bool
    programs: tuple[StoredProgram, ...]


def stored_groups(spark: SparkSession, path: str) -> Iterator[StoredGroup]:
    """Yield the state of the key groups of a checkpoint after its last micro-batch.

    Raises
    ------
    SetupError
        The version of Spark does not read state stores (E0801).
    StateError
        The folder is no checkpoint of a pipeline (E0705), or of another version (E0706), or damaged (E0702).
    """
    if pyspark_version() < _FIRST_VERSION:
        raise SetupError("E0801", "PySpark 3.5 cannot read the state of a stream", "use PySpark 4.0 or later")
    checkpoint, stored = read_checkpoint(
        HadoopFiles(spark, path) if is_remote(path) else LocalFiles(path), path
    )
    rules = compile_texts(stored.texts, stored.streams).rule_set
    files = StateFiles(Kept(f"{path}/{FOLDER}", "", 0), rules, checkpoint.n_groups)
    found = spark.read.format("statestore").option("path", checkpoint.query_path).load()
    for group, value in found.selectExpr("key.*", "value.groupState.state").toLocalIterator():
        data, is_in_files = bytes(value), is_pointer(value)
        if is_in_files:
            data = encode_state(files.read(Pointer.decode(data)).matchers, checkpoint.n_groups)
        yield StoredGroup(group, len(value), is_in_files, tuple(_programs(data, rules)))


def _programs(data: bytes, rules: RuleSet) -> Iterator[StoredProgram]:
    by_fingerprint = {program.fingerprint: program for program in rules.programs}
    for snapshot in snapshots_in(data):
        if is_corrected(snapshot):
            yield StoredProgram(len(snapshot), None, None)
        else:
            program = by_fingerprint[header(snapshot).fingerprint]
            yield StoredProgram(len(snapshot), program, decode(snapshot))
