"""Whether a running pipeline is working: its state, and why it is stuck or has failed."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_runtime.event_time.time_status import TimeStatus
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.runs import PipelineRun

HELD_SHOWN = ("watermark", "held_by", "held_seconds", "waiting_events")
"""What the health of a pipeline says of its event time."""


class State(StrEnum):
    """The states of a pipeline. Only the last two are bad."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"
    ENDED = "ended"
    STUCK = "stuck"
    FAILED = "failed"


@dataclass(slots=True)
class Watched:
    """A pipeline that is watched, from before its session starts until its end.

    `started`: when it was started (`time.monotonic`). `run`: None while its session is starting. `failure`:
    the error with which it ends.
    """

    pipeline: Pipeline
    started: float = field(default_factory=time.monotonic)
    run: PipelineRun | None = None
    failure: Exception | None = None
    has_ended: bool = False


@dataclass(frozen=True, slots=True)
class Health:
    """The health of a pipeline.

    - `reason`: why it is stuck, or how it failed; otherwise empty.
    - `micro_batch`: the number of the last complete micro-batch; None: there is none.
    - `age_s`: how long ago it was complete, in seconds; None: not in this run.
    - `time`: the status of event time of a stream.
    """

    state: State
    reason: str = ""
    micro_batch: int | None = None
    age_s: float | None = None
    time: TimeStatus | None = None

    @property
    def is_good(self) -> bool:
        """Whether it is neither stuck nor failed."""
        return self.state not in (State.STUCK, State.FAILED)

    def to_json(self) -> dict[str, Any]:
        """Return the health as JSON values."""
        status = {} if self.time is None else self.time.to_json()
        return {
            "state": self.state.value,
            "reason": self.reason or None,
            "last_micro_batch": self.micro_batch,
            "last_micro_batch_age_seconds": None if self.age_s is None else round(self.age_s, 3),
            **{name: status.get(name) for name in HELD_SHOWN},
        }


def health_of(watched: Watched) -> Health:
    """Return the health of a pipeline. It asks neither a source nor Spark, so it does not wait."""
    run, limit_s = watched.run, watched.pipeline.stuck_after_s
    failure = watched.failure or (None if run is None else run.failure)
    batches = None if run is None else run.batches
    if batches is None:
        if failure is not None:
            return Health(State.FAILED, _first_line(failure))
        if watched.has_ended:
            return Health(State.ENDED)
        if run is not None and not watched.pipeline.is_stream:
            return Health(State.RUNNING)
        age_s = time.monotonic() - watched.started
        if age_s > limit_s:
            return Health(State.STUCK, f"it has been starting for {age_s:.0f} seconds")
        return Health(State.STARTING)
    state, reason = _state(watched, batches.running_s, batches.unlooked_s, failure)
    completed, number = batches.completed, batches.done.batch
    return Health(
        state,
        reason,
        number if number >= 0 else None,
        None if completed is None else time.monotonic() - completed,
        batches.known_status(),
    )


def _state(
    watched: Watched, running_s: float | None, unlooked_s: float, failure: Exception | None
) -> tuple[State, str]:
    """Return the state of a stream, and the reason if it is bad."""
    limit_s = watched.pipeline.stuck_after_s
    if failure is not None:
        return State.FAILED, _first_line(failure)
    if watched.has_ended:
        return State.ENDED, ""
    if running_s is not None:
        if running_s > limit_s:
            return State.STUCK, f"a micro-batch has been running for {running_s:.0f} seconds"
        return State.RUNNING, ""
    if unlooked_s > limit_s + (watched.pipeline.interval_s or 0):
        return State.STUCK, f"the sources have not been checked for {unlooked_s:.0f} seconds"
    if watched.run is not None and watched.run.query is None:
        return State.STARTING, ""
    return State.WAITING, ""


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
