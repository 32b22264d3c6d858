"""Checks that a checkpoint is the latest of its stream: its sinks must not contain more than it records.

The plan of a micro-batch is in the checkpoint before any sink gets its first row. So however a run ends, no
sink contains a micro-batch without a plan. If one does, the checkpoint is a restored older copy, or another
copy is in use. It would reuse numbers that exactly-once sinks have recorded for other rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cep.errors import StateError
from spark_runtime.pipeline.checkpoint import Checkpoint, Origin, new_name, planned, renamed
from spark_runtime.pipeline.delivering import NamedSink
from spark_runtime.sinks.protocol import Mark, RevocableSink

_HELP = (
    "put the latest copy back; or run once with --accept-older-checkpoint: micro-batches from {number} on "
    "are written again. Their files are removed before; other sinks may have rows twice, under one match_id"
)


@dataclass(frozen=True, slots=True)
class History:
    """A checkpoint, and the sinks of its stream.

    `sinks`: all sinks, after their `check`. `done`: number of the last micro-batch that will not be repeated.
    """

    checkpoint: Checkpoint
    sinks: Sequence[NamedSink]
    done: int

    def require(self) -> None:
        """Raise StateError (E0849) if a sink contains a micro-batch that is not in the checkpoint."""
        after = self._after_savepoint()
        if after is not None:
            number, has = after.batch, "; ".join(map(_said, self._marks_after(after)))
            raise StateError(
                "E0849",
                f"the savepoint from which `{self.checkpoint.path}` was restored is not the latest state of "
                f"its stream: it is of micro-batch {number}, {has}",
                _HELP.format(number=number + 1),
            )
        unknown = self._unknown()
        if not unknown:
            return
        last = self._last_planned()
        knows = f"its last micro-batch is {last}" if last >= 0 else "it has no micro-batch yet"
        has = "; ".join(_said(mark) for mark in unknown)
        if all(mark.number <= last and not mark.is_continued for mark in unknown):
            has += ", of another run"
        raise StateError(
            "E0849",
            f"the checkpoint `{self.checkpoint.path}` is not the latest of its stream: {knows}, {has}",
            _HELP.format(number=self.done + 1),
        )

    def accepted(self, say: Callable[[str], None]) -> Checkpoint:
        """Return the checkpoint; an older copy gets a new name, which no sink has recorded.

        `say` is called with a message about each sink.
        """
        after = self._after_savepoint()
        if after is None and not self._unknown():
            return self.checkpoint
        run, done, by = self.checkpoint.run_id, self.done, new_name()
        if after is not None:
            run, done = after.run, after.batch
        begin = done + 1
        for sink in (item.sink for item in self.sinks):
            mark = sink.last(run)
            if isinstance(sink, RevocableSink):
                sink.take_back(run, done, by, anew=after is not None)
            if mark is not None and mark.is_continued:
                say(f"{mark.place}: what another run wrote after micro-batch {done} is removed")
            elif mark is not None and mark.number >= begin:
                removed = "removed, and " if isinstance(sink, RevocableSink) else ""
                say(f"{mark.place}: micro-batches {begin} to {mark.number} are {removed}written again")
        return renamed(self.checkpoint, by)

    def begin(self) -> None:
        """Let sinks know that this run continues its savepoint: another restore of it is then refused."""
        origin, own = self._savepoint(), self.checkpoint.run_id
        if origin is None:
            return
        for sink in (item.sink for item in self.sinks):
            if isinstance(sink, RevocableSink):
                mark = sink.last(origin.run)
                if mark is None or mark.by != own:  # else an earlier attempt has noted it
                    sink.take_back(origin.run, origin.batch, own, anew=True)

    def _savepoint(self) -> Origin | None:
        """Return the savepoint of a restored checkpoint before its first micro-batch."""
        origin = self.checkpoint.origin
        return None if origin is None or not origin.run or self.done >= 0 else origin

    def _after_savepoint(self) -> Origin | None:
        """Return the savepoint of a restored checkpoint before its first run, if sinks contain more."""
        origin = self._savepoint()
        return origin if origin is not None and self._marks_after(origin) else None

    def _marks_after(self, origin: Origin) -> list[Mark]:
        """Return what sinks contain of the stream that was saved, after the savepoint."""
        marks = [mark for item in self.sinks if (mark := item.sink.last(origin.run)) is not None]
        own = self.checkpoint.run_id  # which an attempt to run may have noted
        return [
            mark for mark in marks if mark.number > origin.batch or (mark.is_continued and mark.by != own)
        ]

    def _last_planned(self) -> int:
        names = (name.removesuffix(".json") for name in self.checkpoint.files.names("plan"))
        return max([self.done, *(int(name) for name in names if name.isdigit())])

    def _unknown(self) -> list[Mark]:
        """Return the micro-batches of sinks that the checkpoint does not know."""
        last = self._last_planned()
        marks = (item.sink.last(self.checkpoint.run_id) for item in self.sinks)
        return [mark for mark in marks if mark is not None and self._is_foreign(mark, last)]

    def _is_foreign(self, mark: Mark, last: int) -> bool:
        if mark.number > last or mark.is_continued:
            return True
        plan = planned(self.checkpoint, mark.number) if mark.plan else None
        return plan is not None and bool(plan.identity) and plan.identity != mark.plan


def _said(mark: Mark) -> str:
    if mark.is_continued:
        return f"{mark.place} has what another run wrote that continued an older copy"
    return f"{mark.place} has micro-batch {mark.number}"
