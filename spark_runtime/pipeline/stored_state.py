"""The state in the checkpoint of a pipeline, which a run may be writing meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, cast

from cep.errors import CepError, StateError
from cep.rule_set import RuleSet
from spark_runtime.pipeline.checkpoint import Checkpoint, last_committed, last_done, read_checkpoint
from spark_runtime.state.contents import StoredGroup, StoredState, programs_in
from spark_runtime.state.far import S3Files, is_on_s3, options_of_environment, reason
from spark_runtime.state.files import StateFiles
from spark_runtime.state.pieces import FOLDER
from spark_runtime.state.pointer import Kept, Pointer, is_pointer
from spark_runtime.state.snapshots import encode_state
from spark_runtime.state.spark_store import SparkStore
from spark_runtime.storage.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles, is_remote
from spark_runtime.tables.content import tables_in
from spark_runtime.tables.static import FOLDER as TABLES


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


def files_of(path: str) -> CheckpointFiles:
    """Return the files of a checkpoint, for reading.

    For remote storage other than S3, Spark is started.
    """
    if not is_remote(path):
        return LocalFiles(path)
    if is_on_s3(path):
        return cast("CheckpointFiles", S3Files(path))
    from spark_runtime.sessions.local_session import session

    return HadoopFiles(session(is_short=True), path)


@contextmanager
def errors_of_storage(path: str) -> Iterator[None]:
    """Turn the exceptions of remote storage into errors that a user can act on."""
    try:
        yield
    except Exception as error:
        if not is_remote(path) or isinstance(error, CepError):
            raise
        if is_on_s3(path):
            if not isinstance(error, OSError):
                raise
            raise StateError(
                "E0705",
                f"`{path}` cannot be read: {reason(error)}",
                "let this process find region, endpoint and credentials as the AWS SDK does, such as in "
                "AWS_REGION, AWS_ENDPOINT_URL and AWS_ACCESS_KEY_ID",
            ) from error
        from spark_runtime.pipeline.failures import as_cep_error

        raise as_cep_error(error) from error


def stored_state(path: str) -> StoredState:
    """Return what a checkpoint contains after its last micro-batch.

    Raises StateError: the folder is not a checkpoint of a pipeline (E0705), or of a different version
    (E0706), or damaged (E0702).
    """
    with errors_of_storage(path):
        checkpoint, stored = read_checkpoint(files_of(path), path)
        reached = last_done(checkpoint, is_live=False).reached
    rules = stored.rule_set()

    def groups() -> Iterator[StoredGroup]:
        with errors_of_storage(path):
            for group, n_carried, is_in_files, data in stored_values(checkpoint, rules):
                yield StoredGroup(group, n_carried, is_in_files, tuple(programs_in(data, rules)))

    return StoredState(stored.texts, rules, reached, groups())


def stored_values(checkpoint: Checkpoint, rules: RuleSet, batch: int | None = None) -> Iterator[StoredValue]:
    """Yield the state of the key groups of a checkpoint after a micro-batch, by default its last one.

    Raises StateError: what Spark or we wrote is missing or damaged (E0702).
    """
    options = options_of_environment() if is_on_s3(checkpoint.path) else {}
    kept = Kept(f"{checkpoint.path}/{FOLDER}", "", 0, options=options)
    tables_of = partial(tables_in, f"{checkpoint.path}/{TABLES}", rules.programs)
    files = StateFiles(kept, rules, checkpoint.n_groups, tables_of)
    store = SparkStore.after(checkpoint.files, last_committed(checkpoint) if batch is None else batch)
    for group, value in store.values():
        is_in_files = is_pointer(value)
        data = value
        if is_in_files:
            data = encode_state(files.read(Pointer.decode(value)).matchers, checkpoint.n_groups)
        yield StoredValue(group, len(value), is_in_files, data)
