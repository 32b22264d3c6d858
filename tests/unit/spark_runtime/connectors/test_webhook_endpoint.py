"""The address of a webhook: what it may contain, and how long an answer may take."""

from __future__ import annotations

import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from types import SimpleNamespace

import pytest

from cep.errors import InputError
from spark_runtime.connectors.webhook.bodies import BulkBody
from spark_runtime.connectors.webhook.endpoint import Answer, Client, Endpoint
from spark_runtime.connectors.webhook.sending import Clock, Sending, _retry_after
from spark_runtime.sinks.messages import Message
from spark_runtime.sources.schema_registry import SchemaRegistry


@contextmanager
def server(serve: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Serve connections on 127.0.0.1, one after another; yield the port."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                serve(connection, ended)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=run)
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield port
        finally:
            ended.set()
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
            thread.join()


def slowly(start: bytes) -> Callable[[socket.socket, threading.Event], None]:
    """Return a server that sends a start, and then a byte every 20 ms for at least 5 seconds."""

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        connection.sendall(start)
        for _ in range(250):
            if ended.wait(0.02):
                return
            connection.sendall(b"x")

    return serve


@pytest.mark.parametrize(
    "start", [b"HTTP/1.1 2", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n"]
)
def test_the_time_limit_is_that_of_the_whole_answer(start: bytes) -> None:
    with server(slowly(start)) as port:
        client = Client(Endpoint(f"http://127.0.0.1:{port}/", timeout_s=0.1))
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            client.post(b"{}", {})
        assert time.monotonic() - began < 2


def test_each_answer_of_a_connection_has_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock shows 30 seconds more each time. So 70 of the 100 seconds are left when an answer is awaited.
    clock = SimpleNamespace(monotonic=count(0.0, 30.0).__next__)
    monkeypatch.setattr("spark_runtime.sources.answers.time", clock)
    accepted = 0

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        nonlocal accepted
        accepted += 1
        while received := connection.recv(1 << 16):
            if not received.endswith(b"{}"):
                continue  # the rest of the request follows
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with server(serve) as port:
        client = Client(Endpoint(f"http://127.0.0.1:{port}/", timeout_s=100))
        assert [client.post(b"{}", {}).body for _ in range(4)] == [b"ok"] * 4
        client.close()
        assert accepted == 1  # the server gets another connection when it ends


def test_a_server_that_closes_is_read_to_its_end() -> None:
    def serve(connection: socket.socket, ended: threading.Event) -> None:
        while received := connection.recv(1 << 16):  # what is left unread would reset the connection
            if received.endswith(b"{}"):
                break
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nwrong ")
        connection.sendall(b"row")

    with server(serve) as port:
        client = Client(Endpoint(f"http://127.0.0.1:{port}/", timeout_s=5))
        assert client.post(b"{}", {}).reason == "400 Bad Request: wrong row"
        assert client.post(b"{}", {}).reason == "400 Bad Request: wrong row"
        client.close()


def test_a_registry_of_schemas_has_the_same_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_runtime.sources.schema_registry.SECONDS", 0.1)
    monkeypatch.setattr("spark_runtime.sources.schema_registry._PAUSE_SECONDS", 0.0)
    with server(slowly(b"HTTP/1.1 200 OK\r\nX: ")) as port:
        began = time.monotonic()
        with pytest.raises(InputError, match="timed out"):
            SchemaRegistry(f"http://127.0.0.1:{port}").check()
        assert time.monotonic() - began < 4


def test_a_secret_at_the_end_of_what_is_told_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEC", "s3cret-token")
    answer = Answer(400, {}, b"x" * 480 + b" s3cret-token and more")
    told = Endpoint("http://127.0.0.1/${SEC}").told(answer.reason)
    assert "s3c" not in told
    assert len(told) <= 500


@pytest.mark.parametrize("value", ["S3CRET pass\n", "S3CRET\n", "S3CRETä", "S3CRET#1", "S3CRET\x7f"])
def test_a_value_that_no_url_can_have_is_refused_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("SEC", value)
    n_connections = 0

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        nonlocal n_connections
        n_connections += not ended.is_set()

    with server(serve) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/h?t=${{SEC}}")
        for use in (endpoint.check, lambda: Client(endpoint)):
            with pytest.raises(InputError) as caught:
                use()
            assert caught.value.code == "E0853"
            assert "the variable `SEC` has a character that `url` cannot" in caught.value.args[0]
            assert "S3CRET" not in f"{caught.value} {caught.value.help}"
    assert n_connections == 0


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("7", 7.0),
        ("9" * 400, math.inf),
        ("0", None),
        ("\xb2", None),
        ("\u0665", None),
        ("-1", None),
        ("", None),
        ("Wed, 01 May 2024 10:00:00 GMT", None),
        ("Wed, 01 May 2024 10:00:00", None),
        ("Wed, 01 May 99999999999999999999 10:00:00 GMT", None),
    ],
)
def test_only_a_time_to_come_is_waited_for(said: str, seconds: float | None) -> None:
    assert _retry_after(Answer(503, {"retry-after": said}, b"")) == seconds


def bulk_of(n: int, connection: socket.socket) -> bytes:
    """Receive a bulk request of n messages; return the body of the answer."""
    text = b""
    while text.count(b"\n{") < 2 * n - 1 or not text.endswith(b"\n"):
        text += connection.recv(1 << 20)
    item = {"index": {"_index": "alerts", "_id": "x" * 100, "result": "created", "_seq_no": 1, "status": 201}}
    return json.dumps({"errors": False, "items": [item] * n}).encode()


def accepted_after(answers: Callable[[bytes], list[bytes]], n: int) -> int:
    """Send n messages in one request to a server that answers with each of `answers`; return the requests."""
    replies: list[bytes] = []
    n_requests = 0

    def serve(connection: socket.socket, ended: threading.Event) -> None:
        nonlocal n_requests
        if ended.is_set():
            return
        content = bulk_of(n, connection)
        if not n_requests:
            replies.extend(answers(content))
        n_requests += 1
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n".encode()
        connection.sendall(head + replies.pop(0))

    messages = [Message(f"{number}", f"{number}", is_withdrawn=False, text="{}") for number in range(n)]
    with server(serve) as port:
        endpoint = Endpoint(f"http://127.0.0.1:{port}/_bulk")
        clock = Clock(wait=lambda ends, seconds: None)
        with closing(Sending(endpoint, BulkBody(), n_together=n, n_parallel=1, clock=clock)) as sending:
            assert sending.send(messages) == []
    return n_requests


def test_the_answer_to_a_large_bulk_request_is_read_to_its_end() -> None:
    assert accepted_after(lambda content: [content], 30_000) == 1


def test_an_answer_that_a_dying_server_cuts_is_asked_for_again() -> None:
    assert accepted_after(lambda content: [content[:20], b"", content], 2) == 3
