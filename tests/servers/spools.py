"""What tests of spools share: a spool on a broker, waiting for what it has, and a line that can be cut."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cep.spool.folder import segment_path, segments
from cep.spool.intake import Intake, Room
from cep.spool.receivers.protocol import Receiver
from cep.spool.segments import HEADER_BYTES, ReceivedBatch, batch_of, blocks, joined
from cep.spool.writer import Limits, writer_at
from tests.e2e.spool_kills import Spool, stored

NOW_US = 1_714_500_000_000_000


def batch(folder: Path) -> ReceivedBatch:
    """Return all that a spool has."""
    found = []
    for segment in segments(folder):
        data = segment_path(folder, segment).read_bytes()
        found += [batch_of(data, block) for block in blocks(data, HEADER_BYTES, len(data))]
    return joined(found)


def until(is_so: Callable[..., bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def running(
    receiver: Receiver, folder: Path, room: Room | None = None, ended: threading.Event | None = None
) -> Iterator[Intake]:
    """Run a receiver in a thread; `ended` is set when it ends by itself or is stopped."""
    writer = writer_at(folder, Limits(), time.time)
    intake = Intake(writer, room or Room(), time.monotonic)
    stopped = threading.Event()
    failed: list[Exception] = []

    def run() -> None:
        try:
            receiver.run(intake, stopped)
        except Exception as error:  # noqa: BLE001 - the test raises it, in its own thread
            failed.append(error)
        finally:
            if ended is not None:
                ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield intake
    finally:
        stopped.set()
        thread.join(60)
        assert not thread.is_alive()
        intake.close()
        writer.close()
    if failed:
        raise failed[0]


def killed_at_each_point(
    folder: Path, arguments: Sequence[str], send: Callable[[list[bytes]], Any]
) -> Counter[str]:
    """Kill a spool at each point while messages come; return how often each message was written.

    Three hundred messages; `send` sends some of them.
    """
    spool = Spool(folder, arguments, ("--segment-bytes", "2kB"))
    points = (
        "half a block",
        "before fsync",
        "after fsync",
        "after durable",
        "new segment",
        "before acknowledgement",
    )
    messages = [json.dumps({"id": str(number), "pad": "x" * 50}).encode() for number in range(300)]
    try:
        for number, point in enumerate(points):
            spool.start(point, 2)
            assert spool.process is not None
            for each in messages[50 * number : 50 * (number + 1)]:
                send([each])
            assert spool.process.wait(60) == -9, point
        spool.start()
        assert spool.process is not None
        started = spool.process.pid
        until(lambda: len(set(stored(folder))) == 300)
        # All may have been there before; a signal that comes before the spool runs ends it as it would any.
        until(lambda: status_pid(folder) == started)
        assert spool.kill(15) == 0
    finally:
        if spool.process is not None and spool.process.poll() is None:
            spool.kill()
    return Counter(stored(folder))


def status_pid(folder: Path) -> int:
    """Return the number of the process whose status the folder tells."""
    return int(json.loads((folder / "status.json").read_text())["pid"])


class Line:
    """A line to a server, through a port of its own, that can be cut."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._ends: list[socket.socket] = []
        self.n_accepted = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """End all connections."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                self.n_accepted += 1
                far = socket.create_connection(("127.0.0.1", self._target))
                self._ends += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
