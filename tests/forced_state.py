"""State in files at once, however small it is; for tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_runtime.pipeline.checkpoint import Checkpoint
from spark_runtime.pipeline.runs import StreamRun
from spark_runtime.state.pointer import Kept

N_RETAINED = 3

_usual = StreamRun._kept


def force_files(
    most_records: int = 2, n_retained: int = N_RETAINED, changed: Callable[[Kept], Kept] = lambda kept: kept
) -> None:
    """Keep all state of this process's streams in files, with a snapshot after a few records.

    `changed` returns what is used in place of where it is kept.
    """

    def forced(run: StreamRun, checkpoint: Checkpoint) -> Kept | None:
        run.pipeline = replace(run.pipeline, keeps_files=True)
        kept = _usual(run, checkpoint)
        if kept is None:
            return None
        return changed(replace(kept, inline_bytes=0, most_records=most_records, n_retained=n_retained))

    setattr(StreamRun, "_kept", forced)  # noqa: B010 - mypy knows no other way


def force_nothing() -> None:
    """Keep state as usual again."""
    setattr(StreamRun, "_kept", _usual)  # noqa: B010
