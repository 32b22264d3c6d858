"""How long the phases of micro-batches took, as Spark reports them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from py4j.protocol import Py4JError

from spark_runtime.pipeline.runs import PipelineRun

WAIT = "wait"
"""The phase in which a micro-batch waits until there is something to do. Spark counts it as `addBatch`."""

_WHOLE, _COMPUTED = "triggerExecution", "addBatch"
_PHASE = re.compile(r"(\w+)=(\d+)")


class Phases:
    """Sums the durations of phases. Spark remembers the last 1,000 micro-batches.

    Micro-batches between two calls that Spark no longer remembers are missing from the sums.
    """

    def __init__(self) -> None:
        self._ms: dict[str, float] = {}
        self._query: Any = None
        self._last = -1  # the last micro-batch in the sums

    def seconds(self, run: PipelineRun) -> dict[str, float]:
        """Return the seconds of each phase so far."""
        query, batches = run.query, run.batches
        if query is None or batches is None:
            return {}
        if query is not self._query:
            self._query, self._last = query, -1
        with suppress(Py4JError, OSError):  # Java is ending
            self._add_new(query, dict(batches.waits))
        return {name: max(ms, 0.0) / 1000 for name, ms in self._ms.items()}

    def _add_new(self, query: Any, waits: dict[int, float]) -> None:
        known, found = query._jsq.recentProgress(), []
        for at in reversed(range(len(known))):
            progress = known[at]
            number = int(progress.batchId())
            if number <= self._last:
                break
            found.append((number, progress.durationMs().toString()))
        for number, text in found:
            phases = {name: float(ms) for name, ms in _PHASE.findall(text) if name != _WHOLE}
            if _COMPUTED in phases:
                wait_ms = min(1000 * waits.get(number, 0.0), phases[_COMPUTED])
                phases[_COMPUTED] -= wait_ms
                phases[WAIT] = wait_ms
            for name, ms in phases.items():
                self._ms[name] = self._ms.get(name, 0.0) + ms
        if found:
            self._last = found[0][0]
