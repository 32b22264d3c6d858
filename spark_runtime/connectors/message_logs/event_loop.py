"""An event loop in its own thread, for clients that are written for asyncio.

It runs all the time, so an unused connection still answers its server.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class EventLoop:
    """A loop that runs until it is closed."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_pass_over)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Return the result of a coroutine.

        Raises TimeoutError: it takes longer than `seconds`; it is cancelled.
        """
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except (FutureTimeoutError, KeyboardInterrupt):
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop, and all tasks that are still running in it."""
        if self._loop.is_closed():
            return
        with suppress(FutureTimeoutError):
            self.run(_end_others(), 5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


def keep_quiet(package: str) -> None:
    """Keep a package's log off standard error; a program that sets up logging still gets it."""
    logger = logging.getLogger(package)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())


async def _end_others() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _pass_over(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore the failure of a task: the caller that waits for its result gets it."""
