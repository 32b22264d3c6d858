"""A spool that is killed while clients send; used by tests, and by ``python -m tests.e2e.spool_kills``.

What was acknowledged must be there, once; what was sent and not acknowledged may be there as often as it was
sent.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click

from cep.spool.folder import Place, durable, segment_path, segments
from cep.spool.segments import HEADER_BYTES, batch_of, blocks, is_sound
from cep.spool.writer import Limits, writer_at

POINTS = (
    "half a block",
    "before fsync",
    "after fsync",
    "after durable",
    "new segment",
    "half a header",
    "before answer",
)
"""Where a spool is killed: at the n-th time that it comes there."""

_PLANTED = """
import itertools, os, signal, sys
from cep.spool import writer
from cep.spool.receivers import held, http

point, n = sys.argv.pop(1), int(sys.argv.pop(1))
visits = itertools.count(1)

def die(here):
    if here == point and next(visits) == n:
        os.kill(os.getpid(), signal.SIGKILL)

write, pwrite, fdatasync = os.write, os.pwrite, os.fdatasync

def planted_write(descriptor, data):
    is_header = bytes(data[:8]) == b"CEPSPOOL"
    here = "half a header" if is_header else "half a block"
    if here == point and next(visits) == n:
        write(descriptor, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(descriptor, data)

def planted_sync(descriptor):
    die("before fsync")
    fdatasync(descriptor)
    die("after fsync")

def planted_pwrite(descriptor, data, at):
    done = pwrite(descriptor, data, at)
    if len(data) == 28:
        die("after durable")
    return done

begin = writer.SegmentWriter._begin

def planted_begin(self, following):
    begin(self, following)
    die("new segment")

answer = http.HttpReceiver._answer

async def planted_answer(self, *given, **named):
    die("before answer")
    await answer(self, *given, **named)

settled = held.HeldBatches.settled

def planted_settled(self):
    for found in settled(self):
        die("before acknowledgement")
        yield found

held.HeldBatches.settled = planted_settled
writer.os.write, writer.os.fdatasync, writer.os.pwrite = planted_write, planted_sync, planted_pwrite
writer.SegmentWriter._begin = planted_begin
http.HttpReceiver._answer = planted_answer
from cep.__main__ import start
start()
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@dataclass
class Spool:
    """A spool that is started again and again on one folder and port."""

    folder: Path
    arguments: Sequence[str]
    options: Sequence[str] = ("--segment-bytes", "20kB")
    process: subprocess.Popen[bytes] | None = None

    def start(self, point: str = "", n: int = 1) -> None:
        """Start it; with a point, so that it kills itself there."""
        command = [sys.executable, "-c", _PLANTED, point, str(n), "spool", *self.arguments]
        command += ["--into", str(self.folder), "--quiet", *self.options]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send it a signal and return how it ended."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            self.process.send_signal(number)
        return self.process.wait(60)


class Client(threading.Thread):
    """Sends messages one after the other, each until it is acknowledged."""

    def __init__(self, port: int, number: int, stopped: threading.Event) -> None:
        super().__init__()
        self.port, self.number, self.stopped = port, number, stopped
        self.sent: Counter[str] = Counter()
        self.acknowledged: list[str] = []

    def run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        while not self.stopped.is_set():
            name = f"{self.number}-{len(self.acknowledged)}"
            try:
                if connection is None:
                    connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                    connection.connect()
                self.sent[name] += 1
                connection.request("POST", "/", json.dumps({"id": name, "pad": "x" * 50}))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 202:
                    self.acknowledged.append(name)
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
                self.stopped.wait(0.01)
        if connection is not None:
            connection.close()


def stored(folder: Path) -> list[str]:
    """Return the messages that a pipeline can read, in their order."""
    end = durable(folder) or Place(0, HEADER_BYTES, 0)
    found, following = [], segments(folder)[0]
    for segment in (each for each in segments(folder) if each <= end.segment):
        data = segment_path(folder, segment).read_bytes()
        assert segment == following
        for block in blocks(data, HEADER_BYTES, end.n_bytes if segment == end.segment else len(data)):
            assert block.first == following
            assert is_sound(data, block, segment)
            found += [json.loads(value)["id"] for value in batch_of(data, block).values]
            following = block.first + block.n
    return found


def verify(folder: Path, clients: Sequence[Client]) -> dict[str, int]:
    """Return counts; raises AssertionError if something was lost, or came from nowhere."""
    writer_at(folder, Limits(), time.time).close()  # recovers
    found = Counter(stored(folder))
    sent: Counter[str] = Counter()
    for client in clients:
        sent += client.sent
    acknowledged = [name for client in clients for name in client.acknowledged]
    lost = [name for name in acknowledged if name not in found]
    assert lost == []
    assert all(found[name] <= sent[name] for name in found)
    twice = sum(n - 1 for n in found.values())
    return {"sent": sum(sent.values()), "acknowledged": len(acknowledged), "lost": 0, "twice": twice}


def run(
    folder: Path, kills: Sequence[tuple[str, int]], n_clients: int = 4, pause: float = 0.0
) -> dict[str, int]:
    """Kill a spool at each of `kills` (point, n-th time; "" and milliseconds: from outside); verify."""
    port = free_port()
    spool = Spool(folder, ("http", "--port", str(port)))
    stopped = threading.Event()
    clients = [Client(port, number, stopped) for number in range(n_clients)]
    for client in clients:
        client.start()
    try:
        for point, n in kills:
            spool.start(point, n)
            assert spool.process is not None
            if point:
                assert spool.process.wait(60) == -signal.SIGKILL, point
            else:
                before = sum(len(client.acknowledged) for client in clients)
                deadline = time.monotonic() + 60
                while sum(len(client.acknowledged) for client in clients) == before:
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
                time.sleep(n / 1000)
                spool.kill()
        spool.start()
        before = sum(len(client.acknowledged) for client in clients)
        deadline = time.monotonic() + 60
        while sum(len(client.acknowledged) for client in clients) < before + 2 * n_clients:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stopped.set()
        for client in clients:
            client.join(30)
        assert spool.kill(signal.SIGTERM) == 0
    finally:
        stopped.set()
        if spool.process is not None and spool.process.poll() is None:
            spool.kill()
    return verify(folder, clients)


@click.command()
@click.option("--kills", type=click.IntRange(min=1), default=100, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A folder that is not there yet.")
def main(kills: int, seed: int, out: Path) -> None:
    """Kill a spool at random and named points."""
    drawn = random.Random(seed)
    points = []
    for number in range(kills):
        named = POINTS[number % len(POINTS)], drawn.randint(1, 60)
        if named[0] in ("new segment", "half a header"):
            named = named[0], drawn.randint(2, 4)
        points.append(named if number % 2 else ("", drawn.randint(0, 300)))
    os.makedirs(out)
    click.echo(json.dumps({"kills": kills, "seed": seed, **run(out / "spool", points)}))


if __name__ == "__main__":
    main()
