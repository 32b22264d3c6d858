"""Where a run is killed. There are three ways, and each has a name:

- a *call* of ours, before it begins or after it has returned; the process kills itself there;
- a *file*, which Spark's Java or a worker writes; whoever started the process kills it at the sight of it;
- a *moment*, so many milliseconds after the first micro-batch was planned.

A call may be one of the workers, which have the state of key groups: the worker kills the driver and itself.
"""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

BEFORE, HALFWAY, AFTER = "before", "halfway", "after"


@dataclass(frozen=True, slots=True)
class Call:
    """A call.

    Parameters
    ----------
    module, name
        Where the function or method is: ``Class.method``.
    moment
        `BEFORE`, `AFTER`, or `HALFWAY`: the call is made with the first half of the last argument, which is
        a collection.
    in_workers
        Whether it is a call of a worker, or of a process that a worker has started.
    """

    module: str
    name: str
    moment: str
    in_workers: bool = False


@dataclass(frozen=True, slots=True)
class File:
    """Files that appear below the folder of a pipeline: a pattern."""

    pattern: str


_CONNECTORS = "spark_runtime.connectors"
_BATCHES = "spark_runtime.pipeline.micro_batches"
_PLANS = "spark_runtime.pipeline.plans"

OF_THE_RUN: Mapping[str, Call | File] = {
    "before the plan": Call(_PLANS, "write_plan", BEFORE),
    "after the plan": Call(_PLANS, "write_plan", AFTER),
    "after Spark's offsets": File("checkpoint/query/offsets/[0-9]*"),
    "before Spark's offsets": File("checkpoint/query/commits/[0-9]*"),
    "before the state": File("*/.batch=*/part-*"),
    "files of state": File("checkpoint/state/*/[0-9]*"),
    "state of one group": File("checkpoint/query/state/0/[0-9]*/[0-9]*.*"),
    "after the state": Call("spark_runtime.pipeline.delivering", "Delivering._collected", AFTER),
    "a sink is noted": Call("spark_runtime.pipeline.delivering", "Notes.add", AFTER),
    "before the checkpoint": Call(_BATCHES, "write_done", BEFORE),
    "after the checkpoint": Call(_BATCHES, "write_done", AFTER),
}
"""In the order of a micro-batch; `state` is that of the rules."""


def _around(says: str, module: str, name: str) -> dict[str, Call | File]:
    return {f"{moment} {says}": Call(module, name, moment) for moment in (BEFORE, AFTER)}


def _in_workers(says: str, module: str, name: str) -> dict[str, Call | File]:
    moments = (BEFORE, HALFWAY, AFTER)
    return {
        f"{moment} {says}": Call(f"spark_runtime.state.{module}", name, moment, True) for moment in moments
    }


OF_STATE: Mapping[str, Call | File] = {
    **_in_workers("a file of state", "pieces", "LocalStorage.write"),
    **_in_workers("the removal of files of state", "pieces", "LocalStorage.remove"),
    "after a snapshot": Call("spark_runtime.state.files", "StateFiles._whole", AFTER, True),
    **{
        f"{moment} a snapshot is written ahead": Call(
            "spark_runtime.state.files", "StateFiles.ahead", moment, True
        )
        for moment in (BEFORE, AFTER)
    },
}
"""Spark's store gets the pointer to a file last. Files are removed before a snapshot is written. One that is
written ahead is one that is due between two calls: no pointer names it before the second call.
"""

_FOLDER_APPEARS = _around("its folder appears", "pathlib", "Path.rename")

OF_A_SAVEPOINT: Mapping[str, Call | File] = {
    "after a file": Call("spark_runtime.pipeline.saving", "saved_file", AFTER),
    "before the manifest": Call("spark_runtime.pipeline.savepoint", "Manifest.to_json", BEFORE),
    **_FOLDER_APPEARS,
}

OF_A_RESTORE: Mapping[str, Call | File] = {
    "after the state of a group": Call("spark_runtime.pipeline.restoring", "add_part", AFTER),
    "before the last file": Call("spark_runtime.pipeline.restoring", "pipeline_json", BEFORE),
    **_FOLDER_APPEARS,
}


OF_A_CHANGE: Mapping[str, Call | File] = _around(
    "changed rules are recorded", "spark_runtime.pipeline.reloading", "write_generation"
)


def _of_rows(name: str, module: str, kind: str) -> dict[str, Call | File]:
    """Return the points of a sink that is written on the driver."""
    where = f"{_CONNECTORS}.{module}"
    return {
        **_around(f"the write of {name}", where, f"{kind}.write_rows"),
        **_around(f"the commit of {name}", where, f"{kind}.commit"),
    }


_OF_FOLDERS: Mapping[str, Call | File] = {
    **_around("the commit of a folder", f"{_CONNECTORS}.files.sink", "FolderSink.commit"),
    "a folder is removed": Call(f"{_CONNECTORS}.files.sink", "shutil.rmtree", AFTER),
}

OF_SINKS: Mapping[str, Mapping[str, Call | File]] = {
    "json": {
        "after the write of json": Call(f"{_CONNECTORS}.files.sink", "FolderSinkOfSpark.write_batch", AFTER)
    },
    "parquet": _OF_FOLDERS,
    "csv": _OF_FOLDERS,
    "kafka": {
        **_of_rows("kafka", "kafka.sink", "TopicSink"),
        "in the commit of kafka": Call(f"{_CONNECTORS}.kafka.sink", "TopicSink._repeated", AFTER),
    },
    "postgres": _of_rows("postgres", "postgres.sink", "PostgresSink"),
    "delta": _of_rows("delta", "delta.sink", "DeltaSink"),
    "webhook": _of_rows("webhook", "webhook.sink", "WebhookSink"),
    "rabbitmq": _of_rows("rabbitmq", "rabbitmq.sink", "RabbitSink"),
}

_OF_LOGS = _around("the commit of the source", f"{_CONNECTORS}.message_logs.planner", "MessagePlanner.commit")

OF_SOURCES: Mapping[str, Mapping[str, Call | File]] = {
    "files": _around("the commit of the source", f"{_CONNECTORS}.files.source", "FolderPlanner.commit"),
    "kafka": _OF_LOGS,
    "nats": _OF_LOGS,
    "kinesis": _OF_LOGS,
    "rabbitmq_stream": _OF_LOGS,
    "postgres": {
        **_around("the commit of the source", f"{_CONNECTORS}.postgres.planner", "PostgresPlanner.commit"),
        "in the first copy": Call(f"{_CONNECTORS}.postgres.first_copy", "onto_disk", AFTER),
        "before the slot is noted": Call(f"{_CONNECTORS}.postgres.planner", "_write", BEFORE),
        **_around("the slot moves on", f"{_CONNECTORS}.postgres.server", "advance"),
    },
    "spool": _around("the commit of the source", f"{_CONNECTORS}.spool.planner", "SpoolPlanner.commit"),
}

MOMENT = "any moment"


def points_of(source: str, sinks: tuple[str, ...], *, changes: bool = False) -> dict[str, Call | File]:
    """Return the points of a pipeline, whose rules may change, by name, without `MOMENT`."""
    found = {**OF_THE_RUN, **OF_SOURCES.get(source, {}), **(OF_A_CHANGE if changes else {})}
    for sink in sinks:
        found |= OF_SINKS.get(sink, {})
    return found


def plant(call: Call, nth: int, die: Callable[[], None] | None = None) -> None:
    """Let this process kill itself when it comes to a call for the `nth` time; `die`: do this instead."""
    owner: Any = importlib.import_module(call.module)
    *path, name = call.name.split(".")
    for part in path:
        owner = getattr(owner, part)
    is_static = isinstance(vars(owner).get(name), staticmethod)
    planted = _planted(getattr(owner, name), call.moment, nth, die or _die)
    setattr(owner, name, staticmethod(planted) if is_static else planted)


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _planted(call: Callable[..., Any], moment: str, nth: int, die: Callable[[], None]) -> Callable[..., Any]:
    n_visits = 0

    def planted(*arguments: Any, **more: Any) -> Any:
        nonlocal n_visits
        n_visits += 1
        if n_visits != nth:
            return call(*arguments, **more)
        if moment == BEFORE:
            die()
        if moment == HALFWAY:
            *first, last = arguments
            items = list(last)
            arguments = (*first, items[: (len(items) + 1) // 2])
        found = call(*arguments, **more)
        if moment != BEFORE:
            die()
        return found

    return planted
