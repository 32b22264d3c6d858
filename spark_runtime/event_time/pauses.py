"""Pauses: while too many events wait for a slow partition, only that partition is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from spark_runtime.event_time.partitions import Partition, Partitions, stream_of
from spark_runtime.event_time.remaining import StreamKinds
from spark_runtime.event_time.waiting import Waiting, cannot_pause
from spark_runtime.event_time.watermarks import WaitingLimit


class Pauses:
    """The paused sources and partitions of a run.

    `limit`: how many events may wait, and what happens if more do.
    """

    def __init__(self, kinds: StreamKinds, limit: WaitingLimit, n_tasks: int) -> None:
        self.kinds = kinds
        self.limit = limit
        self.n_tasks = n_tasks
        self.only = ""
        """The partition that alone is read; "": none, all are."""
        self._until_s: dict[str, float] = {}  # by partition, the end of its last pause

    def is_needed(self, waiting: Waiting) -> bool:
        """Return whether all partitions but the slowest must pause, because too many events wait."""
        return not self.limit.goes_on and self.is_beyond(waiting)

    def is_beyond(self, waiting: Waiting) -> bool:
        """Return whether too many events wait."""
        return waiting.is_too_much(self.limit, self.n_tasks)

    @property
    def is_useful(self) -> bool:
        """Return whether there is a pause, in which the events of one partition can be read alone."""
        return bool(self.only) and not self._is_mixed(self.only)

    def _is_mixed(self, partition: str) -> bool:
        return partition != stream_of(partition) and stream_of(partition) in self.kinds.mixed

    def begin(self, only: str, waiting: Waiting, partitions: Iterable[str], now_s: float) -> None:
        """Read only the partition `only` for one micro-batch; "": read all.

        Raises InputError: its events arrive mixed with others, so even more events would have to wait.
        """
        self.only = only
        if not only:
            return
        if self._is_mixed(only):
            limit = self.limit
            # Pausing the other sources may suffice, so twice as many events may wait.
            twice = replace(limit, events=2 * limit.events, n_bytes=limit.n_bytes and 2 * limit.n_bytes)
            if len(self.kinds.all) == 1 or waiting.is_too_much(twice, self.n_tasks):
                raise cannot_pause(only, waiting.total)
        self._until_s |= {name: now_s for name in partitions if self.is_paused(stream_of(name), name)}

    def is_paused(self, stream: str, partition: str | None = None) -> bool:
        """Return whether a stream, or one of its partitions, is paused."""
        if not self.only or stream not in self.kinds.ours:
            return False
        if stream != stream_of(self.only):
            return True
        is_apart = stream in self.kinds.selective
        return partition is not None and is_apart and self.only not in (stream, partition)

    def not_silent(self, partitions: Partitions) -> dict[str, Partition]:
        """Return `partitions`; the silence of a paused one starts at the end of its pause."""
        known = dict(partitions)
        for name, until_s in self._until_s.items():
            if name in known and until_s > known[name].seen_s:
                known[name] = replace(known[name], seen_s=until_s)
        return known
