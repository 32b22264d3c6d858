"""Logs that tests make: what they share, so that one test runs over each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_runtime.sources.messages.log import MessageLog
from tests.servers.nats_server import NatsServer


@dataclass(frozen=True)
class MadeLog:
    """A log with two partitions.

    Parameters
    ----------
    log
        How a source reads it.
    settings
        The settings of a source in a pipeline file, besides its stream.
    send
        Stores values in a partition.
    """

    log: MessageLog
    settings: str
    send: Callable[[int, Sequence[bytes]], None]


def in_nats(server: NatsServer) -> MadeLog:
    """Make a stream with two subjects."""
    from spark_runtime.sources.nats.log import NatsLog

    stream = server.stream()
    subjects = (f"{stream}.0", f"{stream}.1")
    settings = f'format: nats, servers: "{server.address}", stream_name: {stream}, subject: {list(subjects)}'
    return MadeLog(
        NatsLog((server.address,), (stream,), subjects),
        settings,
        lambda partition, values: server.send(stream, values, str(partition)),
    )
