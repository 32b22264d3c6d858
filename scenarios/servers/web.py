"""An HTTP server on 127.0.0.1: that of the standard library, with responses that its user chooses."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """A request."""

    path: str
    headers: Mapping[str, str]
    body: str

    @property
    def rows(self) -> list[Any]:
        """The rows in the body."""
        found = json.loads(self.body)
        return found if isinstance(found, list) else [found]


Reply = tuple[int, Mapping[str, str], str]
Answering = Callable[[Request], Reply]


def accepted(request: Request) -> Reply:
    """Accept any request."""
    return 200, {}, "ok"


@dataclass
class WebServer:
    """A running server and its requests; `answering` decides the answers."""

    port: int
    scheme: str = "http"
    answering: Answering = accepted
    requests: list[Request] = field(default_factory=list)
    most_at_once: int = 0

    @property
    def url(self) -> str:
        """The address of its only page."""
        return f"{self.scheme}://127.0.0.1:{self.port}/hook"

    @property
    def rows(self) -> list[Any]:
        """All rows, in the order of arrival."""
        return [row for request in self.requests for row in request.rows]


def _handler(get: Callable[[], WebServer]) -> type[BaseHTTPRequestHandler]:
    lock, now = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            server = get()
            request = Request(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            with lock:
                now[0] += 1
                server.most_at_once = max(server.most_at_once, now[0])
                server.requests.append(request)
            status, headers, text = server.answering(request)
            with lock:
                now[0] -= 1
            if status == 0:  # no answer
                self.close_connection = True
                return
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            data = text.encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    return Handler


class _Server(ThreadingHTTPServer):
    """A server that ignores errors of disconnected clients."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def running_web_server(certificate: Path | None = None) -> Iterator[WebServer]:
    """Yield a running server; with a certificate, it uses TLS."""
    found: list[WebServer] = []
    server = _Server(("127.0.0.1", 0), _handler(lambda: found[0]))
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.append(WebServer(server.server_address[1], "https" if certificate else "http"))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
