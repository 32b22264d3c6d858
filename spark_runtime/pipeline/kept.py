"""Where a pipeline keeps large state."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.state.far import FarStorage, is_on_s3, options_of, reason
from spark_runtime.state.pieces import FOLDER
from spark_runtime.state.pointer import Kept
from spark_runtime.storage.checkpoint_files import HadoopFiles
from spark_runtime.tables.static import FOLDER as TABLES

_INLINE_BYTES_OF_STORES = 1 << 20
"""Spark carries as many bytes in the time that one more request takes."""


def kept_of(
    pipeline: Pipeline, checkpoint: Checkpoint, n_retained: str | None, say: Callable[[str], None]
) -> Kept | None:
    """Return where large state is kept; None: in Spark's state store.

    `n_retained`: for how many micro-batches Spark retains state, as its setting says. `say`: shows a warning.
    """
    folder, tables = f"{checkpoint.path}/{FOLDER}", f"{checkpoint.path}/{TABLES}"
    memory = pipeline.state_memory_mb
    most_bytes = None if memory is None else memory << 20
    if isinstance(checkpoint.files, HadoopFiles):
        # Records name the contents of static tables, which workers find only on a disk.
        is_s3 = is_on_s3(folder)
        keeps_files = pipeline.keeps_files if is_s3 else pipeline.asks_for_files
        has_files = is_s3 or keeps_files or bool(checkpoint.files.names(FOLDER))
        if not has_files or pipeline.tables:
            return None
        options = options_of(checkpoint.files) if is_s3 else {}
        if keeps_files:
            try:
                FarStorage(folder, options).try_out()
            except OSError as error:
                why = f"`{folder}` cannot be written: {reason(error)}"
                say(f"warning: all state is in Spark's store, because {why}")
                return None
        kept = Kept.of_run(
            folder, n_retained, most_bytes=most_bytes, inline_bytes=_INLINE_BYTES_OF_STORES, options=options
        )
    else:
        keeps_files = pipeline.keeps_files
        kept = Kept.of_run(folder, n_retained, most_bytes=most_bytes, tables=tables)
    # If state is to be inline, files of an earlier run are read, and their next snapshot is inline.
    return kept if keeps_files else replace(kept, inline_bytes=sys.maxsize)
