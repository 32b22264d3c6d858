"""Serves the metrics, the health and the live page of a running pipeline over HTTP."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any, NamedTuple

from cep.errors import InputError
from spark_runtime.pipeline.address import Address
from spark_runtime.pipeline.health import Watched, health_of
from spark_runtime.pipeline.live_page import LivePage, page, policy
from spark_runtime.pipeline.made import Pipeline

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_N_THREADS = 4
"""Threads that make answers. Each keeps its connection to Java, so there are few, and they stay."""

_MOST_CONNECTIONS = 32
"""Each has a thread that reads its request. For one more, the oldest that has sent none is closed."""

_SLOW_SECONDS = 10.0
"""How long a client may take to send its request, and to read a part of the answer."""

_POLL_SECONDS = 0.1
"""How often a server without requests does its periodic work, and learns that it is to end."""

_TEXT, _HTML, _JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"

_PAGE = (
    b'<!doctype html><title>spark-cep</title><a href="/metrics">metrics</a> <a href="/health">health</a>\n'
)


class _Given(NamedTuple):
    """An answer."""

    kind: str
    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    policy: str = ""


_Routes = dict[str, Callable[[str], _Given]]
"""By path what answers, given the formats that the client accepts."""


class _Answer(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Server
    timeout = _SLOW_SECONDS

    def do_GET(self) -> None:
        """Answer with the content at a path of the server."""
        self.server.has_asked(self.connection)
        route = self.server.routes.get(self.path.partition("?")[0])
        if route is None:
            self._send(_Given(_TEXT, b"not found\n", HTTPStatus.NOT_FOUND))
        elif not self.server.is_meant(self.headers.get("Host", "")):
            self._send(_Given(_TEXT, b"this server has another name\n", HTTPStatus.MISDIRECTED_REQUEST))
        else:
            self._send(self.server.made(route, self.headers.get("Accept", "")))

    def _send(self, given: _Given) -> None:
        self.send_response(given.status)
        self.send_header("Content-Type", given.kind)
        self.send_header("Content-Length", str(len(given.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        if given.policy:
            self.send_header("Content-Security-Policy", given.policy)
        self.end_headers()
        self.wfile.write(given.body)

    def version_string(self) -> str:
        """Return the name of the server."""
        return "spark-cep"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
        """Write nothing: the terminal belongs to the run."""


class _Server(TCPServer):
    allow_reuse_address = True
    request_queue_size = 128  # a connection for which there is no room here would come a second later

    def __init__(self, address: Address, routes: _Routes, every: Callable[[], None] | None) -> None:
        self.address_family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self.routes = routes
        self._address = address
        self._every = every
        self._makers = ThreadPoolExecutor(_N_THREADS, "answers")
        self._readers = ThreadPoolExecutor(_MOST_CONNECTIONS, "metrics")
        self._open: set[socket.socket] = set()
        self._asking: dict[socket.socket, float] = {}  # the oldest first, and since when they are open
        super().__init__((address.host, address.port), _Answer)

    def is_meant(self, host: str) -> bool:
        """Return whether a client may name the server `host`.

        A page from another site can make its own name resolve to 127.0.0.1, and then read what a server on
        this machine answers (DNS rebinding).
        """
        name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
        known = Address(name.strip("[]"), 0)
        return not self._address.is_loopback or known.is_loopback

    def service_actions(self) -> None:
        """Do the periodic work of a waiting server."""
        late = time.monotonic() - _SLOW_SECONDS
        for request, since in list(self._asking.items()):
            if since < late:
                self._refuse(request)
        if self._every is not None:
            self._every()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; close the oldest connection without a request if there are too many."""
        if len(self._open) >= _MOST_CONNECTIONS:
            if not (asking := list(self._asking)):
                self.shutdown_request(request)
                return
            self._refuse(asking[0])
        self._open.add(request)
        self._asking[request] = time.monotonic()
        self._readers.submit(self._answered, request, client_address)

    def has_asked(self, request: socket.socket) -> None:
        """Record that a client has sent its request."""
        self._asking.pop(request, None)

    def made(self, route: Callable[[str], _Given], accepted: str) -> _Given:
        """Return the answer of a route, which one of a few threads makes."""
        return self._makers.submit(route, accepted).result()

    def _refuse(self, request: socket.socket) -> None:
        """End a connection that has sent no request; its thread closes it."""
        self.has_asked(request)
        _shut(request)

    def _answered(self, request: socket.socket, client_address: Any) -> None:
        try:
            with suppress(OSError):  # the client has gone
                self.finish_request(request, client_address)
        finally:
            self.has_asked(request)
            self._open.discard(request)
            self.shutdown_request(request)

    def end(self) -> None:
        """Close all connections."""
        self.shutdown()
        self.server_close()
        for request in list(self._open):  # threads that wait for a slow client
            _shut(request)
        self._makers.shutdown(cancel_futures=True)
        self._readers.shutdown(cancel_futures=True)


def _shut(request: socket.socket) -> None:
    """End a connection, so that its thread waits no longer."""
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


@contextmanager
def monitored(pipeline: Pipeline, say: Callable[[str], None], *, is_quiet: bool) -> Iterator[Watched]:
    """Watch a pipeline; serve its metrics and its live page if they are wanted. `say` gets the addresses.

    With `is_quiet`, it gets only an address that the system has chosen.

    Raises InputError: nothing can listen at an address.
    """
    watched = Watched(pipeline)
    with ExitStack() as servers:
        if pipeline.metrics is not None:
            from spark_runtime.pipeline.metrics import registry_of

            routes = _metrics_routes(watched, registry_of(watched))
            address = servers.enter_context(_serving("metrics", pipeline.metrics, routes))
            if not is_quiet or address != pipeline.metrics:
                say(f"metrics: http://{address}/metrics")
        if pipeline.ui is not None:
            live = LivePage(watched)
            routes = {"/health": partial(_health, watched), **_live_routes(live)}
            address = servers.enter_context(_serving("ui", pipeline.ui, routes, live.sample))
            if not is_quiet or address != pipeline.ui:
                say(f"live page: http://{address}/")
        try:
            yield watched
            watched.has_ended = True
        except Exception as error:
            watched.failure = error
            raise


@contextmanager
def _serving(
    name: str, wanted: Address, routes: _Routes, every: Callable[[], None] | None = None
) -> Iterator[Address]:
    """Serve at an address; yield it with the port that the system has chosen."""
    try:
        server = _Server(wanted, routes, every)
    except OSError as error:
        raise InputError(
            "E0834",
            f"nothing can listen at {wanted}: {error.strerror or error}",
            f"give `{name}` another address; with port 0, the system chooses a port",
        ) from error
    serving = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name=name, daemon=True)
    serving.start()
    try:
        yield Address(wanted.host, server.server_address[1])
    finally:
        server.end()
        serving.join()


def _metrics_routes(watched: Watched, registry: CollectorRegistry) -> _Routes:
    def metrics(accepted: str) -> _Given:
        from prometheus_client.exposition import choose_encoder

        try:
            encode, kind = choose_encoder(accepted)
        except TypeError:  # it compares the version that a client wants with numbers
            encode, kind = choose_encoder("")
        return _Given(kind, encode(registry))

    return {
        "/": lambda _: _Given(_HTML, _PAGE),
        "/metrics": metrics,
        "/health": partial(_health, watched),
    }


def _live_routes(live: LivePage) -> _Routes:
    html = page()
    content_policy = policy(html)
    return {
        "/": lambda _: _Given(_HTML, html, policy=content_policy),
        "/live.json": lambda _: _Given(_JSON, f"{json.dumps(live.to_json())}\n".encode()),
    }


def _health(watched: Watched, _: str) -> _Given:
    health = health_of(watched)
    status = HTTPStatus.OK if health.is_good else HTTPStatus.SERVICE_UNAVAILABLE
    text = json.dumps({"pipeline": watched.pipeline.name, **health.to_json()})
    return _Given(_JSON, f"{text}\n".encode(), status)
