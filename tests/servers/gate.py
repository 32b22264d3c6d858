"""A gate before a server: its port stays the same, and a test shuts it and opens it again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Gate:
    """Passes connections on to another port while it is open; a shut gate refuses them."""

    def __init__(self, target: int) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._serve()

    def shut(self) -> None:
        """Break all connections, and refuse new ones."""
        for found in (self._listener, *self._sockets):
            # Only a shutdown wakes the thread that waits in it.
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()
        self._sockets = []

    def open(self) -> None:
        """Let connections through again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(("127.0.0.1", self.target))
                self._sockets += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=_pass_on, args=ends, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def gate_to(port: int) -> Iterator[Gate]:
    """Yield an open gate to a port, and shut it."""
    gate = Gate(port)
    try:
        yield gate
    finally:
        gate.shut()
