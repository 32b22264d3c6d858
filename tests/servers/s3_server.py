"""Amazon S3 as moto plays it, for tests: one process on this machine, which answers on 127.0.0.1 only.

It counts the requests by kind. It can hold a request at which a run is to be killed: the n-th that changes
something.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
        self._answer({"put": {key: data.decode("latin-1") for key, data in objects.items()}})

    def put_many(self, prefix: str, n: int, text: str) -> None:
        """Store `n` small objects below a prefix; in `text`, `{}` is the number of each."""
        self._answer({"many": [prefix, n, text]})

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return the objects below a prefix by key."""
        found: dict[str, str] = self._answer({"get": prefix})
        return {key: text.encode("latin-1") for key, text in found.items()}

    def remove_all(self, prefix: str) -> None:
        """Remove all objects below a prefix."""
        self._answer({"remove": prefix})

    def counted(self) -> dict[str, int]:
        """Return how many requests came since the last call, by kind: PUT, GET, LIST, HEAD and so on."""
        found: dict[str, int] = self._answer({"count": None})
        return found

    def asked(self) -> list[str]:
        """Return the requests since the last call of this, one a line."""
        found: list[str] = self._answer({"asked": None})
        return found

    def hold(self, nth: int, *, after: bool) -> None:
        """Hold the n-th changing request from now on, before or after it has its effect; 0: none."""
        self._answer({"hold": [nth, after]})

    def is_holding(self) -> bool:
        """Return whether that request is held."""
        found: bool = self._answer({"holding": None})
        return found

    def let_go(self) -> None:
        """Drop the held request: one that was held before its effect never has it."""
        self._answer({"let_go": None})

    def _answer(self, order: dict[str, Any]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def running_s3(folder: Path) -> Iterator[S3Server]:
    """Start a server, wait until it answers, and end it."""
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
        self.lines: list[str] = []
        self.lock = threading.Lock()
        self.wanted, self.after, self.n_changes = 0, False, 0
        self.held, self.released = threading.Event(), threading.Event()

    def hold(self, nth: int, after: bool) -> None:
        with self.lock:
            self.wanted, self.after, self.n_changes = nth, after, 0
            self.held.clear()
            self.released.clear()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, query = environment["REQUEST_METHOD"], environment.get("QUERY_STRING", "")
        is_list = method == "GET" and ("list-type" in query or "prefix=" in query)
        with self.lock:
            self.counts["LIST" if is_list else method] += 1
            self.lines.append(f"{'LIST' if is_list else method} {environment['PATH_INFO']} {query}"[:300])
            self.n_changes += method in _CHANGING
            is_held = method in _CHANGING and self.n_changes == self.wanted
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
    keys = backend.buckets[BUCKET].keys
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    for line in sys.stdin:
        answer: Any = None
        match json.loads(line):
            case {"put": objects}:
                for key, text in objects.items():
                    backend.put_object(BUCKET, key, text.encode("latin-1"))
            case {"many": [prefix, n, text]}:
                for number in range(n):
                    data = text.replace("{}", str(number)).encode()
                    backend.put_object(BUCKET, f"{prefix}/{number:06}.json", data)
            case {"get": prefix}:
                found = [key for key in list(keys) if key.startswith(prefix)]
                answer = {key: keys[key].value.decode("latin-1") for key in found}
            case {"remove": prefix}:
                for key in [key for key in list(keys) if key.startswith(prefix)]:
                    backend.delete_object(BUCKET, key)
            case {"count": _}:
                with gate.lock:
                    answer, gate.counts = dict(gate.counts), Counter()
            case {"asked": _}:
                with gate.lock:
                    answer, gate.lines = gate.lines, []
            case {"hold": [nth, after]}:
                gate.hold(nth, after)
            case {"holding": _}:
                answer = gate.held.is_set()
            case {"let_go": _}:
                gate.released.set()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    threading.current_thread().name = "control"
    _serve()
