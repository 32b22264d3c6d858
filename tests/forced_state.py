"""State in files at once, however small it is; for tests."""

from __future__ import annotations

from dataclasses import replace

from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.runs import StreamRun
from spark_runtime.state.pointer import Kept

_usual = StreamRun._kept
_most_records = 2


def _forced(run: StreamRun, checkpoint: Checkpoint) -> Kept | None:
    run.pipeline = replace(run.pipeline, keeps_files=True)
    found = _usual(run, checkpoint)
    return None if found is None else replace(found, inline_bytes=0, most_records=_most_records, n_retained=3)


def force_files(most_records: int = 2) -> None:
    """Keep all state of this process's streams in files, with a snapshot after a few records."""
    global _most_records
    _most_records = most_records
    setattr(StreamRun, "_kept", _forced)  # noqa: B010 - mypy knows no other way


def force_nothing() -> None:
    """Keep state as usual again."""
    setattr(StreamRun, "_kept", _usual)  # noqa: B010
