"""A listener that reports the event time of queries that contain `detect`.

spark.streams.addListener(TimeListener(print))
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from spark_runtime.event_time.time_status import PartitionStatus, TimeStatus


class TimeListener(StreamingQueryListener):
    """Reports the event time after each micro-batch of the queries of a session.

    Spark reports one watermark for a query, and the number of rows from each source. So `partitions` are the
    sources by their descriptions, without their own event times.

    Parameters
    ----------
    told
        Called with the name of the query (or its id) and its status.
    clock
        The wall clock, in seconds.
    """

    def __init__(
        self, told: Callable[[str, TimeStatus], Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.told = told
        self.clock = clock
        self._moved: dict[str, tuple[int | None, float]] = {}  # query: watermark, when it last moved
        self._seen: dict[tuple[str, str], float] = {}  # query and source: when it last gave rows

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the next progress shows how long no rows have arrived."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query."""
        query = str(event.id)
        self._moved.pop(query, None)
        self._seen = {key: seen for key, seen in self._seen.items() if key[0] != query}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the status."""
        progress, now = event.progress, self.clock()
        query = str(progress.id)
        watermark_us = watermark_of(dict(progress.eventTime))
        before_us, moved = self._moved.get(query, (None, now))
        if before_us != watermark_us:
            moved = now
        self._moved[query] = (watermark_us, moved)
        parts = []
        for source in progress.sources:
            key = (query, source.description)
            if source.numInputRows or key not in self._seen:
                self._seen[key] = now
            parts.append(PartitionStatus(source.description, None, 0, now - self._seen[key]))
        status = TimeStatus(watermark_us, "", now - moved, 0, tuple(parts))
        self.told(progress.name or query, status)


def watermark_of(event_time: dict[str, str]) -> int | None:
    """Return the watermark in Spark's progress, microseconds since 1970; None if there is none yet."""
    text = event_time.get("watermark")
    if text is None:
        return None
    us = round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)
    return us or None  # Spark's watermark starts at 1970
