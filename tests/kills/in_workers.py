"""A point in the processes that have the state of key groups: Spark's workers, and those that they start."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from spark_runtime.state.pointer import Kept
from tests.kills.points import Call, plant


@dataclass(frozen=True, slots=True)
class KilledAt:
    """Where a worker kills its driver, and itself.

    Parameters
    ----------
    call, nth
        As `plant` takes them.
    driver
        The process.
    with_java
        Whether the driver's Java dies, too.
    """

    call: Call
    nth: int
    driver: int
    with_java: bool

    def die(self) -> None:
        """Kill the driver and this process; a driver that is killed with its Java has a group of its own."""
        with suppress(ProcessLookupError):
            (os.killpg if self.with_java else os.kill)(self.driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def with_point(kept: Kept, at: KilledAt) -> Kept:
    """Return where state is kept; the process of a worker that is sent it has the point."""
    return _WithPoint(**{name: getattr(kept, name) for name in Kept.__dataclass_fields__}, at=at)


@dataclass(frozen=True, slots=True)
class _WithPoint(Kept):
    at: KilledAt | None = None

    def __reduce__(self) -> tuple[Callable[..., Kept], tuple[Any, ...]]:
        assert self.at is not None
        kept = {name: getattr(self, name) for name in Kept.__dataclass_fields__}
        return _sent, (kept, asdict(self.at.call), self.at.nth, self.at.driver, self.at.with_java)


_planted: set[KilledAt] = set()


def _sent(kept: dict[str, Any], call: dict[str, Any], nth: int, driver: int, with_java: bool) -> Kept:
    at = KilledAt(Call(**call), nth, driver, with_java)
    if at not in _planted and os.getpid() != driver:
        _planted.add(at)
        plant(at.call, at.nth, at.die)
    return with_point(Kept(**kept), at)
