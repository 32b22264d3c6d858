"""Amazon S3 as moto plays it, for tests: one process on this machine, which answers on 127.0.0.1 only.

It counts the requests by kind. It can hold a request at which a run is to be killed: one that changes a
certain object.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BUCKET = "lake"
_CHANGING = ("PUT", "POST", "DELETE")


@dataclass(frozen=True)
class S3Server:
    """A server that runs, with the bucket `BUCKET`."""

    address: str
    process: subprocess.Popen[str]

    def put(self, objects: dict[str, bytes]) -> None:
        """Store objects by key."""
        self._answer("put", {key: data.decode("latin-1") for key, data in objects.items()})

    def put_many(self, prefix: str, n: int, text: str) -> None:
        """Store `n` small objects below a prefix; in `text`, `{}` is the number of each."""
        self._answer("put_many", prefix, n, text)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return the objects below a prefix by key."""
        found: dict[str, str] = self._answer("objects", prefix)
        return {key: text.encode("latin-1") for key, text in found.items()}

    def remove(self, prefix: str) -> None:
        """Remove all objects below a prefix."""
        self._answer("remove", prefix)

    def counted(self) -> dict[str, int]:
        """Return how many requests came since the last call, by kind: PUT, GET, LIST, HEAD and so on."""
        found: dict[str, int] = self._answer("counted")
        return found

    def hold(self, key: str, *, after: bool) -> None:
        """Hold the next request that changes an object, before or after it has its effect.

        `key`: a regular expression that is found in the key of the object.
        """
        self._answer("hold", key, after)

    def is_holding(self) -> bool:
        """Return whether that request is held."""
        found: bool = self._answer("is_holding")
        return found

    def let_go(self) -> None:
        """Drop the held request: one that was held before its effect never has it."""
        self._answer("let_go")

    def _answer(self, *order: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """Start a server, wait until it answers, and end it."""
    from tests.left_out import require  # not above: this file is the server's program, too

    require(find_spec("moto") is not None, "the server of S3, moto,")
    log = folder / "s3.log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, f"moto does not start:\n{log.read_text()[-4000:]}"
        yield S3Server(address, process)
    finally:
        process.stdin.close()  # it ends with its standard input, also when the tests are killed
        process.terminate()
        process.wait(20)
        process.stdout.close()


class _Gate:
    """Counts the requests on their way to moto, and holds one of them."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self.app = app
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.wanted: re.Pattern[str] | None = None
        self.after = False
        self.held, self.released = threading.Event(), threading.Event()

    def hold(self, key: str, after: bool) -> None:
        with self.lock:
            self.wanted, self.after = re.compile(key), after
            self.held.clear()
            self.released.clear()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, query = environment["REQUEST_METHOD"], environment.get("QUERY_STRING", "")
        is_list = method == "GET" and ("list-type" in query or "prefix=" in query)
        with self.lock:
            self.counts["LIST" if is_list else method] += 1
            is_held = method in _CHANGING and bool(
                self.wanted and self.wanted.search(environment["PATH_INFO"])
            )
            self.wanted = None if is_held else self.wanted
        if is_held and not self.after:
            self.held.set()
            self.released.wait()
            start("503 Service Unavailable", [("Content-Length", "0")])
            return [b""]
        answer = self.app(environment, start)
        if is_held:
            self.held.set()
            self.released.wait()
        return answer


class _Orders:
    """The calls of `S3Server`, in the process of the server."""

    def __init__(self, gate: _Gate, backend: Any) -> None:
        self.gate = gate
        self.backend = backend
        self.keys = backend.buckets[BUCKET].keys

    def put(self, objects: dict[str, str]) -> None:
        for key, text in objects.items():
            self.backend.put_object(BUCKET, key, text.encode("latin-1"))

    def put_many(self, prefix: str, n: int, text: str) -> None:
        for number in range(n):
            data = text.replace("{}", str(number)).encode()
            self.backend.put_object(BUCKET, f"{prefix}/{number:06}.json", data)

    def objects(self, prefix: str) -> dict[str, str]:
        found = [key for key in list(self.keys) if key.startswith(prefix)]
        return {key: self.keys[key].value.decode("latin-1") for key in found}

    def remove(self, prefix: str) -> None:
        for key in [key for key in list(self.keys) if key.startswith(prefix)]:
            self.backend.delete_object(BUCKET, key)

    def counted(self) -> dict[str, int]:
        with self.gate.lock:
            found, self.gate.counts = dict(self.gate.counts), Counter()
        return found

    def hold(self, key: str, after: bool) -> None:
        self.gate.hold(key, after)

    def is_holding(self) -> bool:
        return self.gate.held.is_set()

    def let_go(self) -> None:
        self.gate.released.set()


def _serve() -> None:
    """Run the server until standard input ends."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from moto.s3.models import s3_backends
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_request(self, *_: Any) -> None:
            """Write no line for each request."""

    gate = _Gate(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, gate, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    backend: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    backend.create_bucket(BUCKET, "us-east-1")
    orders = _Orders(gate, backend)
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        print(json.dumps(getattr(orders, name)(*arguments)), flush=True)


if __name__ == "__main__":
    _serve()
