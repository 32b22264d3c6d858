"""`cep spool http` over real sockets: what it takes, what it refuses, and clients that do not behave."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import os
import shutil
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep.errors import CepError
from cep.spool.folder import segment_path, segments
from cep.spool.intake import AtLimit, Intake, Room
from cep.spool.receivers.http import HttpReceiver, HttpSettings
from cep.spool.receivers.http_messages import MAX_MESSAGES
from cep.spool.segments import HEADER_BYTES, ReceivedBatch, batch_of, blocks, joined
from cep.spool.writer import Limits, writer_at
from tests.left_out import require

SETTINGS = HttpSettings(port=0)
NOW_US = 1_714_500_000_000_000


class Spool:
    """A spool that runs in a thread."""

    def __init__(self, folder: Path, settings: HttpSettings, room: Room) -> None:
        self.folder = folder
        self.port = 0
        ready, self.stopped = threading.Event(), threading.Event()

        def listening(port: int) -> None:
            self.port = port
            ready.set()

        self.writer = writer_at(folder, Limits(), lambda: 1e9)
        self.intake = Intake(self.writer, room, lambda: 1e9)
        receiver = HttpReceiver(settings, lambda: NOW_US, listening)
        self.thread = threading.Thread(target=receiver.run, args=(self.intake, self.stopped))
        self.thread.start()
        assert ready.wait(30)

    def end(self) -> None:
        self.stopped.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.intake.close()
        self.writer.close()

    def post(self, body: bytes | str, path: str = "/", **headers: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, body, named)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    def raw(self, data: bytes, *, ends: bool = True) -> bytes:
        """Send bytes; return all that comes until the connection ends."""
        with socket.create_connection(("127.0.0.1", self.port), 30) as connection:
            connection.sendall(data)
            if ends:
                connection.shutdown(socket.SHUT_WR)
            found = b""
            while part := connection.recv(1 << 16):
                found += part
            return found

    @property
    def batch(self) -> ReceivedBatch:
        found = []
        for segment in segments(self.folder):
            data = segment_path(self.folder, segment).read_bytes()
            found += [batch_of(data, block) for block in blocks(data, HEADER_BYTES, len(data))]
        return joined(found) if found else ReceivedBatch([], [])  # type: ignore[arg-type]

    @property
    def values(self) -> list[bytes]:
        return list(self.batch.values)


@contextmanager
def running(folder: Path, room: Room | None = None, **settings: Any) -> Iterator[Spool]:
    spool = Spool(folder, replace(SETTINGS, **settings), room or Room())
    try:
        yield spool
    finally:
        spool.end()


@pytest.fixture(scope="module", autouse=True)
def short_waits() -> Iterator[None]:
    """Let a receiver learn sooner that it is to end, or that a client is late."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("cep.spool.receivers.http._POLL_SECONDS", 0.01)
        yield


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spool]:
    with running(tmp_path_factory.mktemp("spool"), head_seconds=5, body_seconds=5) as found:
        yield found


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("application/json", b'{"id": 1}', [b'{"id": 1}']),
        ("application/json", b' {\n"id": 1}\n', [b' {\n"id": 1}\n']),
        ("application/json; charset=utf-8", b'[{"id": 1}, {"id":2}]', [b'{"id": 1}', b'{"id":2}']),
        ("application/json", b' [\n {"a": [1, "]"]} , {}\n]\n', [b'{"a": [1, "]"]}', b"{}"]),
        ("application/vnd.x+json", b"[1,2]", [b"1", b"2"]),
        ("application/x-www-form-urlencoded", b'[{"id": 1}]', [b'{"id": 1}']),
        ("application/x-ndjson", b'{"id": 1}\n\n{"id": 2}\r\n{"id"', [b'{"id": 1}', b'{"id": 2}', b'{"id"']),
        ("text/plain", b"[1]\n[2]", [b"[1]", b"[2]"]),
        ("text/plain", b'{"a":1}\r{"b":2}\r\n\r\n1', [b'{"a":1}\r{"b":2}', b"1"]),
        ("application/json", b'\xef\xbb\xbf [{"a":1},{"a":2}]', [b'{"a":1}', b'{"a":2}']),
        ("application/json", b"[1" + b"0" * 5000 + b",-2]", [b"1" + b"0" * 5000, b"-2"]),
        ("application/octet-stream", b"[\0\n", [b"[\0\n"]),
        ("application/json", b"no json", [b"no json"]),  # a pipeline makes a dead letter of it
    ],
)
def test_a_body_is_one_message_or_several(
    shared: Spool, kind: str, body: bytes, expected: list[bytes]
) -> None:
    before = len(shared.values)
    assert shared.post(body, Content_Type=kind) == (202, {"taken": len(expected)})
    assert shared.values[before:] == expected


@pytest.mark.parametrize(
    "body", [b"[1", b"[1 2]", b"[1,]", b"[1] 2", b"[", b"[\xff]", b"[" * 100_000, b"[]", b" "]
)
def test_a_body_without_messages_or_an_array_that_cannot_be_read_is_refused_whole(
    shared: Spool, body: bytes
) -> None:
    before = len(shared.values)
    status, answer = shared.post(body, Content_Type="application/json")
    assert (status, list(answer)) == (400, ["error"])
    assert len(shared.values) == before


def test_path_headers_key_and_time_of_receipt_are_kept(tmp_path: Path) -> None:
    with running(tmp_path, headers=("x-trace",)) as spool:
        spool.post(b"{}", "/orders/eu?x=1", Idempotency_Key="k1", X_Trace="t")
        for path in ("/orders/eu?x=1", "?x=http://a/b", ""):
            spool.post(b"{}", f"http://localhost:80{path}")
        spool.post(b"[{},{}]", "/", Idempotency_Key="k2")
        spool.post(b"{}")
    found = spool.batch
    assert found.columns == {
        "topic": ["orders/eu", "orders/eu", "", "", "", "", ""],
        "id": ["k1", None, None, None, "k2/0", "k2/1", None],
        "header.x-trace": ["t", None, None, None, None, None, None],
    }
    assert found.received_us.tolist() == [NOW_US] * 7


def test_an_answer_comes_after_the_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_begun, may_go_on, sync = threading.Event(), threading.Event(), os.fdatasync

    def gated(descriptor: int) -> None:
        has_begun.set()
        assert may_go_on.wait(30)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", gated)
    with running(tmp_path) as spool, socket.create_connection(("127.0.0.1", spool.port), 30) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert has_begun.wait(30)
        connection.settimeout(0.1)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        may_go_on.set()
        connection.settimeout(30)
        assert connection.recv(100).startswith(b"HTTP/1.1 202 Accepted\r\n")


def test_with_a_token_only_who_has_it_is_heard(tmp_path: Path) -> None:
    with running(tmp_path, token="s3cret\u00e9") as spool:
        assert spool.post(b"{}")[0] == 401
        for wrong in (
            "Bearer s3cret",
            "Bearer ",
            "Basic s3cret\u00e9",
            "s3cret",
            "Bearer s3cret\u00e9\u00e9",
        ):
            assert spool.post(b"{}", Authorization=wrong)[0] == 401
        found = spool.raw(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert b"\r\nWWW-Authenticate: Bearer\r\n" in found
        assert b"s3cret" not in found
        assert "s3cret" not in repr(spool) + repr(replace(SETTINGS, token="s3cret"))
        assert spool.post(b"{}", Authorization="Bearer s3cret\u00e9".encode().decode("latin-1"))[0] == 202
        health = http.client.HTTPConnection("127.0.0.1", spool.port, timeout=30)
        health.request("GET", "/health")
        assert health.getresponse().status == 200
        health.close()
    assert spool.values == [b"{}"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),  # TLS
        (b"POST / HTTP/2.0\r\n\r\n", 505),
        (b"POST / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}2\r\n", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}", 400),
        (b"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", 415),
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"POST / HTTP/1.1\r\nx: " + b"x" * 40_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nContent-Le", 400),
    ],
)
def test_a_request_that_is_none_is_refused_and_takes_nothing(shared: Spool, data: bytes, status: int) -> None:
    before = len(shared.values)
    assert shared.raw(data).startswith(b"HTTP/1.1 %d " % status)
    assert len(shared.values) == before


def test_connections_are_kept_alive_and_requests_may_come_in_one_piece(shared: Spool) -> None:
    before = len(shared.values)
    post = b'POST /a HTTP/1.1\r\nContent-Length: 7\r\n\r\n{"x":%d}'
    chunked = (
        b'POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\n{"\r\n5\r\nx":3}\r\n0\r\nT: u\r\n\r\n'
    )
    last = b'POST /a HTTP/1.1\r\nConnection: close\r\nContent-Length: 7\r\n\r\n{"x":4}'
    found = shared.raw(post % 1 + b"\r\n" + post % 2 + chunked + last, ends=False)
    assert found.count(b"HTTP/1.1 202 Accepted\r\n") == 4
    assert found.count(b"Connection: close") == 1
    assert shared.values[before:] == [b'{"x":%d}' % i for i in (1, 2, 3, 4)]
    old = shared.raw(b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", ends=False)
    assert b"Connection: close" in old


def test_a_client_that_asks_before_it_sends_is_answered(shared: Spool) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), 30) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        assert connection.recv(100).startswith(b"HTTP/1.1 202 ")


def test_slow_clients_are_let_go_and_hold_nobody_up(tmp_path: Path) -> None:
    with running(tmp_path, head_seconds=300, body_seconds=300, slow_seconds=0.2) as spool:
        drips = [socket.create_connection(("127.0.0.1", spool.port), 30) for _ in range(50)]
        for drip in drips:
            drip.sendall(b"POST / HTTP/1.1\r\nContent-")
        half = socket.create_connection(("127.0.0.1", spool.port), 30)
        half.sendall(b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}")
        assert post_from(spool, "127.0.0.1") == OK  # it comes in one piece, and so is never late itself
        assert half.recv(100).startswith(b"HTTP/1.1 408 ")
        half.close()
        for drip in drips:
            assert drip.recv(100) == b""  # closed
            drip.close()
    assert spool.values == [b"{}"]


def test_a_connection_without_a_request_is_let_go_also_after_an_answer(tmp_path: Path) -> None:
    with running(tmp_path, head_seconds=0.3, body_seconds=300, slow_seconds=300) as spool:
        idle, answered = (socket.create_connection(("127.0.0.1", spool.port), 30) for _ in range(2))
        answered.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
        assert answered.recv(1000).startswith(b"HTTP/1.1 202 ")
        for each in (idle, answered):
            assert each.recv(100) == b""  # closed
            each.close()


def test_a_body_has_a_time_however_steadily_it_comes(tmp_path: Path) -> None:
    with running(tmp_path, head_seconds=300, body_seconds=0.5, slow_seconds=300) as spool:
        client, answer = connected(spool), b""
        client.sendall(CHUNKED)
        assert client.recv(100).startswith(b"HTTP/1.1 100 ")
        client.settimeout(0.01)
        while not answer:
            client.sendall(b"a\r\n0123456789\r\n")
            with suppress(TimeoutError):
                answer = client.recv(100)
        client.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert spool.values == []


def test_too_many_connections_are_refused(tmp_path: Path) -> None:
    with running(tmp_path, max_connections=2) as spool:
        two = [socket.create_connection(("127.0.0.1", spool.port), 30) for _ in range(2)]
        for one in two:
            one.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert one.recv(100).startswith(b"HTTP/1.1 202 ")
        assert spool.raw(b"").startswith(b"HTTP/1.1 503 ")
        for one in two:
            one.close()


OTHER = "127.0.0.2"
"""Another address of this machine; on some systems only Linux has it."""


def connected(spool: Spool, source: str = "127.0.0.1") -> socket.socket:
    try:
        return socket.create_connection(("127.0.0.1", spool.port), 30, source_address=(source, 0))
    except OSError:
        pytest.skip(f"this machine has no address {source}")


def post_from(spool: Spool, source: str, body: bytes = b"{}") -> bytes:
    """Return the first line of the answer to a request from an address."""
    with connected(spool, source) as connection:
        head = b"POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        return connection.makefile("rb").readline()


OK = b"HTTP/1.1 202 Accepted\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"


def test_what_is_announced_and_does_not_come_takes_no_room(tmp_path: Path) -> None:
    with running(tmp_path, max_reading_bytes=256 << 20) as spool:
        idle = [connected(spool) for _ in range(40)]  # 16 MiB each would be all there is
        for each in idle:
            each.sendall(CHUNKED)
            assert each.recv(100).startswith(b"HTTP/1.1 100 ")
        assert [post_from(spool, source) for source in ("127.0.0.1", OTHER)] == [OK, OK]
        for each in idle:
            each.close()


def test_an_address_with_too_many_connections_leaves_room_for_others(tmp_path: Path) -> None:
    with running(tmp_path, max_connections=8, max_connections_of_one=2) as spool:
        taken = [connected(spool), connected(spool)]
        for each in taken:  # they are there
            each.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert each.recv(100).startswith(OK)
        refused = spool.raw(b"")
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"too many connections from this address" in refused
        for _ in range(300):  # more than are told why
            connected(spool).close()
        assert post_from(spool, OTHER) == OK
        for each in taken:
            each.shutdown(socket.SHUT_WR)
            each.makefile("rb").read()
            each.close()
        assert post_from(spool, "127.0.0.1") == OK
    assert spool.intake.counts.refused_connections == 301
    assert spool.intake.line().endswith(", 301 refused connections")


def test_bodies_of_one_address_leave_memory_for_those_of_others(tmp_path: Path) -> None:
    limits: dict[str, Any] = {"max_connections": 16, "max_connections_of_one": 4, "max_body_bytes": 1000}
    with running(tmp_path, max_reading_bytes=4000, **limits) as spool:
        halves = [connected(spool) for _ in range(2)]
        for half in halves:
            half.sendall(CHUNKED)
            half.recv(100)
            half.sendall(b"1f4\r\n" + b"x" * 500 + b"\r\n1f4\r\n" + b"x" * 400)
        # Its share is held once this one is refused, whoever came first.
        while (found := post_from(spool, "127.0.0.1", b"x" * 900)) == OK:
            pass
        assert found.startswith(b"HTTP/1.1 429 ")
        assert post_from(spool, OTHER, b"x" * 900) == OK
        answers = []
        for half in halves:
            with suppress(OSError):  # the one that was refused
                half.sendall(b"x" * 100 + b"\r\n0\r\n\r\n")
            answers.append(half.makefile("rb").readline())
            half.close()
        assert OK in answers  # the oldest one goes on, whatever the others do


def test_a_body_that_drips_ends_and_one_that_comes_steadily_does_not(tmp_path: Path) -> None:
    with running(tmp_path, slow_seconds=0.5, min_rate=1000) as spool:
        slow, steady = connected(spool), connected(spool)
        piece = b"0123456789" * 50  # one is enough for half a second, and comes every 10 ms
        for each in (slow, steady):
            each.sendall(CHUNKED)
            assert each.recv(100).startswith(b"HTTP/1.1 100 ")
        slow.settimeout(0.01)
        answer, n = b"", 0
        while not answer:
            slow.sendall(b"1\r\nx\r\n")
            steady.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
            n += 1
            try:
                answer = slow.recv(100)
            except TimeoutError:
                continue
        assert answer.startswith(b"HTTP/1.1 408 ")
        steady.sendall(b"0\r\n\r\n")
        assert steady.makefile("rb").readline() == OK
        slow.close()
        steady.close()
    assert spool.values == [piece * n]
    assert spool.intake.counts.slow_connections == 1


def test_clients_that_reset_their_connections_leave_nothing_on_standard_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    sent = (b"", b"POST / HT", CHUNKED, b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n{")
    with running(tmp_path) as spool:
        for number in range(200):
            client = connected(spool)
            client.sendall(sent[number % len(sent)])
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert post_from(spool, "127.0.0.1") == OK
    assert [record.message for record in caplog.records] == []  # the last resort of a log is standard error
    assert capfd.readouterr().err == ""
    assert spool.intake.counts.broken_connections > 0


def test_a_client_that_resets_while_it_is_answered_only_ends_its_own_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def write_eof(writer: asyncio.StreamWriter) -> None:  # the client has to be quick
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    with running(tmp_path) as spool:
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.StreamWriter, "write_eof", write_eof)
            assert spool.raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
        assert post_from(spool, "127.0.0.1") == OK
    assert [record.message for record in caplog.records] == []
    assert spool.intake.counts.broken_connections == 1


def test_a_body_has_so_many_messages_at_most(shared: Spool) -> None:
    n = MAX_MESSAGES + 1
    for kind, body in (("text/plain", b"1\n" * n), ("application/json", b"[" + b"1," * (n - 1) + b"1]")):
        assert shared.post(body, Content_Type=kind) == (413, {"error": "a body has 500,000 messages at most"})


def test_an_answer_to_head_has_no_body(shared: Spool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=30)
    for method, path, status in (("HEAD", "/health", 200), ("GET", "/health", 200), ("HEAD", "/other", 405)):
        connection.request(method, path)
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (status, method == "GET")
    connection.close()
    found = shared.raw(b"HEAD /health HTTP/1.1\r\n\r\nGET /health HTTP/1.1\r\n\r\n")
    assert found.count(b'{"status": "ok"}') == 1


def test_a_private_key_without_a_certificate_does_not_mean_no_tls() -> None:
    with pytest.raises(CepError, match="a private key without a certificate") as raised:
        HttpReceiver(replace(SETTINGS, private_key="key.pem"), lambda: NOW_US).check()
    assert raised.value.code == "E0957"


def test_without_room_a_request_is_to_come_again_later(tmp_path: Path) -> None:
    with running(tmp_path, Room(max_bytes=1000), retry_seconds=7) as spool:
        assert spool.post(b"x" * 600)[0] == 202
        found = spool.raw(b"POST / HTTP/1.1\r\nContent-Length: 600\r\n\r\n" + b"x" * 600)
        assert found.startswith(b"HTTP/1.1 429 Too Many Requests\r\n")
        assert b"\r\nRetry-After: 7\r\n" in found
    assert spool.values == [b"x" * 600]
    assert spool.intake.counts.refused == 1


def test_what_is_dropped_is_said_to_be(tmp_path: Path) -> None:
    with running(tmp_path, Room(max_bytes=100, at_limit=AtLimit.DROP)) as spool:
        assert spool.post(b"x" * 600) == (202, {"taken": 0, "dropped": 1})
    assert (spool.values, spool.intake.counts.dropped, spool.intake.counts.acknowledged) == ([], 1, 0)


def test_many_clients_at_once_each_get_their_answers(tmp_path: Path) -> None:
    with running(tmp_path) as spool:
        answers: list[int] = []

        def send(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", spool.port, timeout=30)
            for i in range(20):
                connection.request("POST", "/", json.dumps({"client": number, "i": i}))
                answer = connection.getresponse()
                answer.read()
                answers.append(answer.status)
            connection.close()

        threads = [threading.Thread(target=send, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == [202] * 200
    found = [json.loads(value) for value in spool.values]
    for number in range(10):
        assert [each["i"] for each in found if each["client"] == number] == list(range(20))
    assert spool.intake.counts.acknowledged == 200


def test_at_the_end_a_request_that_was_begun_is_answered(tmp_path: Path) -> None:
    with (
        running(tmp_path) as spool,
        socket.create_connection(("127.0.0.1", spool.port), 30) as idle,
        socket.create_connection(("127.0.0.1", spool.port), 30) as begun,
    ):
        begun.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert begun.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        spool.stopped.set()
        assert idle.recv(100) == b""
        begun.sendall(b"{}")
        found = begun.recv(1000)
        assert found.startswith(b"HTTP/1.1 202 ")
        assert b"Connection: close" in found
    assert spool.values == [b"{}"]


def test_with_a_certificate_it_speaks_tls_and_a_wrong_one_is_told(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    require(openssl is not None, "openssl")
    assert openssl is not None
    file = tmp_path / "tls.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command, "-keyout", str(file), "-out", str(tmp_path / "c.pem")], check=True, capture_output=True
    )
    file.write_text(file.read_text() + (tmp_path / "c.pem").read_text())
    with running(tmp_path / "s", certificate=str(file)) as spool:
        context = ssl.create_default_context(cafile=str(file))
        connection = http.client.HTTPSConnection("localhost", spool.port, timeout=30, context=context)
        connection.request("POST", "/", b"{}")
        assert connection.getresponse().status == 202
        connection.close()
        with socket.create_connection(("127.0.0.1", spool.port), 30) as plain:
            plain.sendall(b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}")
            assert not plain.recv(100).startswith(b"HTTP/1.1 2")
    assert spool.values == [b"{}"]
    for wrong in (tmp_path / "none.pem", tmp_path / "c.pem"):
        with pytest.raises(CepError, match="and its private key cannot be used") as raised:
            HttpReceiver(replace(SETTINGS, certificate=str(wrong)), lambda: NOW_US).check()
        assert raised.value.code == "E0957"
