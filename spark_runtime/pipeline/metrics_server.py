"""Serves the metrics and the health of a running pipeline over HTTP."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

from cep.errors import InputError
from spark_runtime.pipeline.address import Address
from spark_runtime.pipeline.health import Watched, health_of
from spark_runtime.pipeline.made import Pipeline

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_N_THREADS = 4
"""Each keeps its connection to Java, so there are few, and they stay."""

_MOST_CONNECTIONS = 32
_SLOW_SECONDS = 10.0

_PAGE = (
    b'<!doctype html><title>spark-cep</title><a href="/metrics">metrics</a> <a href="/health">health</a>\n'
)


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = _SLOW_SECONDS

    def do_GET(self) -> None:
        """Answer with the metrics, the health, or links to both."""
        path = self.path.partition("?")[0]
        if path == "/metrics":
            from prometheus_client.exposition import choose_encoder

            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            self._send(HTTPStatus.OK, kind, encode(self.server.registry))
        elif path == "/health":
            health = health_of(self.server.watched)
            status = HTTPStatus.OK if health.is_good else HTTPStatus.SERVICE_UNAVAILABLE
            text = json.dumps({"pipeline": self.server.watched.pipeline.name, **health.to_json()})
            self._send(status, "application/json", f"{text}\n".encode())
        elif path == "/":
            self._send(HTTPStatus.OK, "text/html; charset=utf-8", _PAGE)
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"not found\n")

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Return the name of the server."""
        return "spark-cep"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Write nothing: the terminal belongs to the run."""


class _Server(TCPServer):
    allow_reuse_address = True

    def __init__(self, address: Address, watched: Watched, registry: CollectorRegistry) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.watched = watched
        self.registry = registry
        self._pool = ThreadPoolExecutor(_N_THREADS, "metrics")
        self._open: set[socket.socket] = set()
        super().__init__((address.host, address.port), _Answer)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of the pool; close the connection if too many wait."""
        if len(self._open) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._open.add(request)
        self._pool.submit(self._answered, request, client_address)

    def _answered(self, request: socket.socket, client_address: Any) -> None:
        try:
            with suppress(OSError):  # the client has gone
                self.finish_request(request, client_address)
        finally:
            self._open.discard(request)
            self.shutdown_request(request)

    def end(self) -> None:
        """Close all connections."""
        self.shutdown()
        self.server_close()
        for request in list(self._open):  # threads that wait for a slow client
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def monitored(pipeline: Pipeline, say: Callable[[str], None], *, is_quiet: bool) -> Iterator[Watched]:
    """Watch a pipeline, and serve its metrics if it asks for that; `say` gets the address.

    With `is_quiet` it gets only an address that the system has chosen.

    Raises InputError: nothing can listen at the address.
    """
    watched = Watched(pipeline)
    if pipeline.metrics is None:
        yield watched
        return
    from spark_runtime.pipeline.metrics import registry_of

    try:
        server = _Server(pipeline.metrics, watched, registry_of(watched))
    except OSError as error:
        raise InputError(
            "E0834",
            f"nothing can listen at {pipeline.metrics}: {error.strerror or error}",
            "give `metrics` another address; with port 0, the system chooses a port",
        ) from error
    serving = threading.Thread(target=server.serve_forever, args=(0.1,), name="metrics", daemon=True)
    serving.start()
    try:
        address = Address(pipeline.metrics.host, server.server_address[1])
        if not is_quiet or address != pipeline.metrics:
            say(f"metrics: http://{address}/metrics")
        yield watched
        watched.has_ended = True
    except Exception as error:
        watched.failure = error
        raise
    finally:
        server.end()
        serving.join()
