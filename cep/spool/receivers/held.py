"""Batches whose senders can wait for the acknowledgement: they are held until there is room."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from cep.spool.intake import Intake, Outcome
from cep.spool.segments import ReceivedBatch

T = TypeVar("T")

RETRY_SECONDS = 0.5
"""A batch for which there is no room is offered again after this time."""


@dataclass(slots=True)
class _Held(Generic[T]):
    batch: ReceivedBatch
    what: T
    outcome: Outcome | None = None
    again_at: float = 0.0


class HeldBatches(Generic[T]):
    """Batches on their way through the intake, in order. For one thread.

    `wake`: is called from another thread when `settled` has something to yield. `clock`: returns seconds
    since some fixed time.
    """

    def __init__(
        self,
        intake: Intake,
        wake: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._intake = intake
        self._wake = wake
        self._clock = clock
        self._held: deque[_Held[T]] = deque()
        self._is_full = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def n_messages(self) -> int:
        """Messages that are on their way or are waiting for room."""
        return sum(len(held.batch) for held in self._held)

    @property
    def is_full(self) -> bool:
        """Whether a batch is waiting for room; if so, nothing more should be offered."""
        return self._is_full

    def offer(self, batch: ReceivedBatch, what: T) -> None:
        """Offer a batch; `what` is what must be acknowledged."""
        held = _Held(batch, what)
        self._held.append(held)
        self._offer(held, is_again=False)

    def settled(self) -> Iterator[tuple[T, int, Outcome]]:
        """Yield what can be acknowledged now, with its messages; offer refused batches again.

        Everything that was offered before it has been yielded before it.
        """
        while self._held:
            held = self._held[0]
            if held.outcome in (Outcome.WRITTEN, Outcome.DROPPED):
                self._held.popleft()
                yield held.what, len(held.batch), held.outcome
                continue
            if held.outcome is Outcome.REFUSED and self._clock() >= held.again_at:
                self._offer(held, is_again=True)
            break
        self._is_full = any(held.outcome is Outcome.REFUSED for held in self._held)

    def forget(self) -> None:
        """Wait for what is being written, then forget everything: a new connection sends it again."""
        self._intake.flush()
        self._held.clear()
        self._is_full = False

    def _offer(self, held: _Held[T], *, is_again: bool) -> None:
        held.outcome = None
        held.again_at = self._clock() + RETRY_SECONDS

        def told(outcome: Outcome) -> None:
            held.outcome = outcome
            self._wake()

        at_once = self._intake.offer(held.batch, told, is_again=is_again)
        if at_once is not None:
            held.outcome = at_once
        if held.outcome is Outcome.REFUSED:
            self._is_full = True
