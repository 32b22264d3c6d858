"""`cep spool udp`, `statsd` and `zmq` over real sockets. They need no server."""

from __future__ import annotations

import json
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from cep.errors import InputError
from cep.spool.intake import Room
from cep.spool.receivers.udp import UdpReceiver, UdpSettings
from cep.spool.receivers.zeromq import ZmqReceiver, ZmqSettings
from tests.servers.kafka_broker import free_ports
from tests.servers.spools import NOW_US, batch, running, until


class Udp:
    """A receiver of datagrams, and a socket that sends to it."""

    def __init__(self, settings: UdpSettings) -> None:
        self.port = 0
        self.is_ready = threading.Event()
        self.receiver = UdpReceiver(replace(settings, port=0), lambda: NOW_US, self._ready)
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def _ready(self, port: int) -> None:
        self.port = port
        self.is_ready.set()

    def send(self, *values: bytes) -> None:
        assert self.is_ready.wait(30)
        for value in values:
            self.socket.sendto(value, ("127.0.0.1", self.port))


def test_datagrams_are_messages_with_their_senders_and_gaps_are_counted(tmp_path: Path) -> None:
    udp = Udp(UdpSettings(sequence="seq"))
    with running(udp.receiver, tmp_path) as intake, udp.socket:
        udp.send(b'{"seq": 1}', b'{"seq": 2}\n', b'{"seq": 5}', b"no json")
        until(lambda: intake.counts.written == 4)
        sender = f"127.0.0.1:{udp.socket.getsockname()[1]}"
        assert (intake.counts.gaps, intake.counts.dropped) == (2, 0)
    found = batch(tmp_path)
    assert found.values == [b'{"seq": 1}', b'{"seq": 2}\n', b'{"seq": 5}', b"no json"]
    assert found.columns == {"sender": [sender] * 4}


def test_lines_of_statsd_are_events(tmp_path: Path) -> None:
    udp = Udp(UdpSettings(form="statsd", has_lines=True))
    with running(udp.receiver, tmp_path) as intake, udp.socket:
        udp.send(b"a:1|c\nb:2:3|ms\n\nwrong")
        until(lambda: intake.counts.written == 4)
    values = batch(tmp_path).values
    assert [json.loads(value)["value"] for value in values[:3]] == [1, 2, 3]
    assert values[3] == b"wrong"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what it drops")
def test_without_room_the_system_drops_datagrams_and_each_is_counted(tmp_path: Path) -> None:
    udp = Udp(UdpSettings(buffer_bytes=20_000))
    with running(udp.receiver, tmp_path, Room(max_bytes=3000)) as intake, udp.socket:
        udp.send(*[b"x" * 1000] * 2)
        until(lambda: intake.counts.written == 2)
        udp.send(b"y" * 1000)
        until(lambda: intake.counts.refused == 1)
        udp.send(*[b"z" * 1000] * 500)
        intake._room = Room()  # somebody has made room
        until(lambda: intake.counts.written > 3)
        sent = 503

        def has_arrived() -> bool:  # one that finds the buffer still full is dropped, too: another is sent
            nonlocal sent
            if batch(tmp_path).values[-1] != b"last":
                udp.send(b"last")
                sent += 1
                return False
            return intake.counts.written + intake.counts.dropped == sent

        until(has_arrived)
        assert intake.counts.dropped > 100


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        receiver = UdpReceiver(UdpSettings(port=taken.getsockname()[1]), lambda: NOW_US)
        with (
            pytest.raises(InputError, match="nothing can listen at 127") as raised,
            running(receiver, tmp_path),
        ):
            pass
    assert raised.value.code == "E0954"


@pytest.mark.parametrize("kind", ["pull", "sub"])
def test_messages_of_zeromq_come_with_their_topics_and_gaps_are_counted(tmp_path: Path, kind: str) -> None:
    zmq = pytest.importorskip("zmq")
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    ready = threading.Event()
    receiver = ZmqReceiver(ZmqSettings((), (address,), kind, sequence_part=1), lambda: NOW_US, ready.set)
    with running(receiver, tmp_path) as intake, zmq.Context() as context:
        assert ready.wait(30)
        with context.socket(zmq.PUSH if kind == "pull" else zmq.XPUB) as sender:
            sender.connect(address)
            if kind == "sub":
                assert sender.recv() == b"\x01"  # it has subscribed
            for number in (1, 2, 5):
                sender.send_multipart([b"a", b"%d" % number, b"value %d" % number])
            sender.send(b"alone")
            until(lambda: intake.counts.written == 4)
            assert intake.counts.gaps == 2
    found = batch(tmp_path)
    assert found.values == [b"value 1", b"value 2", b"value 5", b"alone"]
    assert found.columns == {"topic": ["a", "a", "a", None]}


def test_without_room_a_sender_of_zeromq_waits_and_nothing_is_lost(tmp_path: Path) -> None:
    zmq = pytest.importorskip("zmq")
    (port,) = free_ports(1)
    address = f"tcp://127.0.0.1:{port}"
    receiver = ZmqReceiver(ZmqSettings((), (address,), "pull", most=10), lambda: NOW_US)
    with (
        running(receiver, tmp_path, Room(max_bytes=5000)) as intake,
        zmq.Context() as context,
        context.socket(zmq.PUSH) as sender,
    ):
        sender.setsockopt(zmq.SNDHWM, 10)
        sender.setsockopt(zmq.SNDBUF, 10_000)
        sender.connect(address)
        n_sent = 0
        until(lambda: bool(sender.poll(100, zmq.POLLOUT)))
        # A receiver that was not given a core yet takes nothing either: it has to have refused some.
        while (is_free := sender.poll(300, zmq.POLLOUT)) or not intake.counts.refused:
            if is_free:
                sender.send(b"%06d" % n_sent + b"x" * 1000)
                n_sent += 1
        intake._room = Room()  # somebody has made room
        until(lambda: intake.counts.written == n_sent)
    assert [int(value[:6]) for value in batch(tmp_path).values] == list(range(n_sent))


def test_addresses_of_zeromq_that_cannot_be_are_told(tmp_path: Path) -> None:
    pytest.importorskip("zmq")
    with pytest.raises(InputError, match="there is no address"):
        ZmqReceiver(ZmqSettings(), lambda: NOW_US).check()
    receiver = ZmqReceiver(ZmqSettings(("nonsense",)), lambda: NOW_US)
    with (
        pytest.raises(InputError, match="the address nonsense cannot be used: Invalid argument"),
        running(receiver, tmp_path),
    ):
        pass
