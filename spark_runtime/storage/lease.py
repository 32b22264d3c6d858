"""One run at a time on a remote checkpoint: a lease that its holder renews.

A lease is the file `lease/<number>` of the checkpoint. The holder of the highest number has the checkpoint,
and only it rewrites that file. A run for which the file does not change for `SECONDS` creates the next
number, which only one of several runs can do. So the clocks of machines are never compared.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from cep.errors import StateError
from spark_runtime.storage.checkpoint_files import CheckpointFiles, HadoopFiles, LocalFiles, is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 30.0
"""How long a lease is valid after it was written."""

_RENEWALS = 3
"""How often it is written in this time."""

_POLL_SECONDS = 2.0

_FOLDER = "lease"


class Lease:
    """The right to use a remote checkpoint.

    `clock`: returns seconds since some moment. `sleep`: waits for some seconds.
    """

    def __init__(
        self,
        files: HadoopFiles,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._files = files
        self._clock = clock
        self._sleep = sleep
        self._number = 0
        self._about = {
            "owner": uuid.uuid4().hex,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        }
        self._renewed = 0
        self._sure_until = float("-inf")
        self._lock = threading.Lock()
        self._ended = threading.Event()

    def take(self, say: Callable[[str], None]) -> None:
        """Take the lease.

        Raises StateError (E0711): another run renews it.

        `say`: called with one sentence if the run must wait for the lease.
        """
        while True:
            last = self._last()
            if last:
                self._await_end(last, say)
            before = self._clock()
            if self._files.create(self._name(last + 1), self._text()):
                break
        self._number, self._sure_until = last + 1, before + SECONDS
        for number in self._numbers():
            if number < self._number:
                self._files.remove(self._name(number))

    def require(self) -> None:
        """Raise StateError (E0711) if another run may have taken over the lease."""
        if self._clock() >= self._sure_until:
            self._renew()

    def release(self) -> None:
        """End the lease, so that the next run need not wait."""
        with self._lock:
            self._ended.set()
            # Otherwise another run may have it. A failure costs the next run the time of a lease.
            with suppress(Exception):
                if self._clock() < self._sure_until:
                    self._files.write(self._name(self._number), self._text())

    def keep(self) -> None:
        """Renew the lease until `release`, or until another run has taken it over."""
        while not self._ended.wait(SECONDS / _RENEWALS):
            try:
                self._renew()
            except StateError:
                return  # `require` raises it again in the thread of the run
            except Exception:  # noqa: BLE001, S110 - storage may fail in many ways, and `require` tries again
                pass

    def _renew(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            before = self._clock()
            last = self._last()
            holder = self._read(last)
            if last != self._number or holder.get("owner") != self._about["owner"]:
                raise self._error(holder, f"; this run did not renew its lease for {SECONDS:g} seconds")
            self._renewed += 1
            self._files.write(self._name(self._number), self._text())
            self._sure_until = before + SECONDS

    def _await_end(self, number: int, say: Callable[[str], None]) -> None:
        """Wait until a lease has ended or nobody has renewed it for `SECONDS`."""
        seen = holder = self._read(number)
        since = self._clock()
        if not holder.get("ended"):
            say(f"waiting {SECONDS:g} seconds for the lease of the checkpoint{_who(holder)}")
        while not seen.get("ended") and self._clock() < since + SECONDS:
            self._sleep(_POLL_SECONDS)
            seen = self._read(number)
            if seen != holder and not seen.get("ended"):
                raise self._error(seen or self._read(self._last()))

    def _last(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        return [int(name) for name in self._files.names(_FOLDER) if name.isdigit()]

    def _name(self, number: int) -> str:
        return f"{_FOLDER}/{number}"

    def _read(self, number: int) -> dict[str, Any]:
        try:
            found = json.loads(self._files.read(self._name(number)) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _text(self) -> str:
        return json.dumps({**self._about, "renewed": self._renewed, "ended": self._ended.is_set()})

    def _error(self, holder: dict[str, Any], more: str = "") -> StateError:
        return StateError(
            "E0711",
            f"another run works on the checkpoint `{self._files.root}`{_who(holder)}{more}",
            "wait until it ends or end it; a second pipeline needs a checkpoint of its own",
        )


def _who(holder: dict[str, Any]) -> str:
    if not holder:
        return ""
    return f": process {holder.get('pid')} on {holder.get('host')}, since {holder.get('since')}"


class LeasedFiles(HadoopFiles):
    """The files of a checkpoint, which are written only while a lease is valid."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        super().__init__(spark, root)
        self.lease = Lease(HadoopFiles(spark, root))

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file in one step. Raises StateError (E0711) if another run has taken the lease over."""
        self.lease.require()
        super().write_bytes(name, data)


@contextmanager
def checkpoint_files(spark: SparkSession, root: str, say: Callable[[str], None]) -> Iterator[CheckpointFiles]:
    """Yield the files of the checkpoint at `root`; if it is remote, hold its lease. `say`: see `Lease`."""
    if not is_remote(root):
        yield LocalFiles(root)
        return
    files = LeasedFiles(spark, root)
    files.lease.take(say)
    threading.Thread(target=files.lease.keep, daemon=True, name="lease").start()
    try:
        yield files
    finally:
        files.lease.release()
