"""A registry of schemas for tests: an HTTP server on 127.0.0.1 that answers as Confluent's does."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


@dataclass
class Registry:
    """Schemas by number, and by number and form; what was asked; what is wrong."""

    url: str = ""
    schemas: dict[int, str] = field(default_factory=dict)
    serialized: dict[int, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    access: str = ""  # name and password that it wants
    failures: list[int] = field(default_factory=list)  # status of the next answers


@contextmanager
def running_registry() -> Iterator[Registry]:
    """Start a registry and end it."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append(self.path)
            status, body = self.found()
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def found(self) -> tuple[int, dict[str, object]]:
            if registry.failures:
                status = registry.failures.pop(0)
                return status, {"error_code": status, "message": "planted"}
            wanted = "Basic " + base64.b64encode(registry.access.encode()).decode()
            if registry.access and self.headers.get("Authorization") != wanted:
                return 401, {"error_code": 401, "message": "Unauthorized"}
            parts = urlsplit(self.path)
            form = parse_qs(parts.query).get("format", [""])[0]
            number = parts.path.removeprefix("/api/schemas/ids/")
            known = registry.serialized if form == "serialized" else registry.schemas
            if not number.isdecimal() or int(number) not in known:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, {"schema": known[int(number)]}

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    registry.url = f"http://127.0.0.1:{server.server_address[1]}/api"
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
