"""The connections over which Java calls this process. Only for the driver.

Each thread of Java that calls Python has a connection, which Py4J serves with a thread of this process. A
query has a thread in Java. After the end of the query, its connection would remain, with the thread of this
process and its memory: a megabyte or more for each change of rules.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Callbacks:
    """The connections over which a query calls this process."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        # Without a connection for each thread (PYSPARK_PIN_THREAD=false), Py4J itself ends those unused.
        self._of_thread = getattr(gateway._gateway_client, "get_thread_connection", lambda: None)
        self._connections: set[Any] = set()

    def note(self) -> None:
        """Record the connection over which Java called the current thread."""
        self._connections.add(self._of_thread())

    def close(self) -> None:
        """End the connections, after the query has ended. Their threads then end by themselves."""
        for connection in self._connections:
            # Only its thread may close it, which waits for the next call until nothing can come.
            with suppress(OSError, AttributeError):  # Java has ended, or the thread was faster
                connection.socket.shutdown(socket.SHUT_RDWR)
        self._connections.clear()
