"""A small client of the Language Server Protocol: a process, messages with their length before them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from queue import Queue
from typing import Any

LIMIT_S = 60


class Client:
    """A running `cep lsp`, whose answers and notifications are read as they come."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-m", "cep", "lsp", "--stdio"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
        )
        self.messages: Queue[dict[str, Any]] = Queue()
        self.number = 0
        self.log: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        capabilities: dict[str, Any] = {"textDocument": {"publishDiagnostics": {}}, "workspace": {}}
        self.server = self.request(
            "initialize", processId=None, rootUri=folder.as_uri(), capabilities=capabilities
        )
        self.notify("initialized")

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = int(header.split(b":")[1])
            while stream.readline().strip():
                pass
            self.messages.put(json.loads(stream.read(length)))

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self._send({"method": method, "params": params})

    def request(self, method: str, **params: Any) -> Any:
        """Return the result of a request, or its error."""
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        while True:
            message = self.messages.get(timeout=LIMIT_S)
            if message.get("id") == self.number:
                return message["error"] if "error" in message else message["result"]

    def problems(self, file: Path) -> list[dict[str, Any]]:
        """Return the next problems that the server shows of a file."""
        while True:
            message = self.messages.get(timeout=LIMIT_S)
            is_shown = message.get("method") == "textDocument/publishDiagnostics"
            if is_shown and message["params"]["uri"] == file.as_uri():
                found: list[dict[str, Any]] = message["params"]["diagnostics"]
                return found

    def close(self) -> int:
        """End the server as an editor does; return its exit code. What it logged is in `log` then."""
        self.request("shutdown")
        self.notify("exit")
        code = self.process.wait(timeout=LIMIT_S)
        self.reader.join(timeout=LIMIT_S)
        assert self.process.stderr is not None
        self.log = self.process.stderr.read().decode().splitlines()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return code
