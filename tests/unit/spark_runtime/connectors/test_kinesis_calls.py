"""Calls of Kinesis: which are repeated, and answers of other servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest
from botocore.exceptions import ClientError

from cep.errors import InputError
from spark_runtime.connectors.kinesis.connection import PATIENCE_SECONDS, Calls, KinesisConnection


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")


class Failing:
    """A client whose calls fail, and then succeed."""

    def __init__(self, n_failures: int, code: str, status: int) -> None:
        self.n_failures = n_failures
        self.answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    def list_shards(self, **arguments: Any) -> Any:
        self.n_failures -= 1
        if self.n_failures >= 0:
            raise ClientError(self.answer, "ListShards")
        return {"Shards": ["s"]}


def calls(client: Failing, pauses: list[float]) -> Calls:
    found = Calls(KinesisConnection("eu-west-1"), pauses.append)
    found.close()
    found._client = client
    return found


FOR_NOW = pytest.mark.parametrize(
    ("code", "status"),
    [
        ("ThrottlingException", 400),
        ("ProvisionedThroughputExceededException", 400),
        ("InternalFailure", 500),
        ("ServiceUnavailable", 503),
    ],
)


@FOR_NOW
def test_what_fails_for_now_is_asked_again(code: str, status: int) -> None:
    pauses: list[float] = []
    assert calls(Failing(8, code, status), pauses)("list_shards", "it") == {"Shards": ["s"]}
    assert len(pauses) == 8


@FOR_NOW
def test_after_a_minute_the_run_ends(code: str, status: int) -> None:
    pauses: list[float] = []
    with pytest.raises(InputError, match="failed at it"):
        calls(Failing(1000, code, status), pauses)("list_shards", "it")
    assert PATIENCE_SECONDS <= sum(pauses) <= PATIENCE_SECONDS + 5


def test_what_is_refused_is_told_at_once() -> None:
    pauses: list[float] = []
    with pytest.raises(InputError) as raised:
        calls(Failing(1, "AccessDeniedException", 400), pauses)("list_shards", "it")
    assert (raised.value.code, pauses) == ("E0882", [])


class Page(BaseHTTPRequestHandler):
    """Answers each request with the same body."""

    body: ClassVar[bytes] = b""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


@pytest.fixture
def address() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}", b"[]", b"[1]", b"7", b"null", b'{"Shards": 7}'])
def test_another_server_is_told(address: str, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Page, "body", body)
    found = Calls(KinesisConnection("eu-west-1", address))
    with pytest.raises(InputError, match="is not Kinesis") as raised:
        found("list_shards", "stream `s`", StreamName="s")
    assert (raised.value.code, address in str(raised.value)) == ("E0880", True)
    found.close()
