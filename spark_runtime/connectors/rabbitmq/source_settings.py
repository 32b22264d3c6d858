"""The settings of a source of format `rabbitmq_stream`. Only for the driver; rstream is not needed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from cep.settings import declared
from cep.settings.declared import Declared
from cep.settings.settings import Settings
from spark_runtime.connectors.message_logs.options import Options
from spark_runtime.connectors.message_logs.settings import (
    TOMBSTONES,
    MessageSettings,
    MessageSpec,
    PositionNames,
    options_of,
)
from spark_runtime.connectors.rabbitmq.log import METADATA, RabbitLog
from spark_runtime.sinks.place import Place, server_place
from spark_runtime.sources.spec import SourceType

_OPTIONS = ("username", "password", "tls_ca", "tls_cert", "tls_key")


@dataclass(frozen=True, slots=True)
class _Settings(MessageSettings):
    streams: tuple[str, ...] = declared.names(name="stream_name")
    servers: tuple[str, ...] = declared.names()
    virtual_host: str = declared.text("/")
    tombstones: str = declared.choice(TOMBSTONES)
    options: Options = declared.own(options_of(_OPTIONS), Options(), hidden=True)

    def spec(self, settings: Settings) -> MessageSpec:
        host, streams = self.virtual_host, ",".join(self.streams)
        return self.message_spec(
            settings,
            streams if host == "/" else f"{host} {streams}",
            RabbitLog(self.servers, self.streams, host, self.options),
            METADATA,
            _position_names(self.streams),
            tombstones=self.tombstones,
            reads=self._reads,
        )

    def _reads(self, place: Place) -> bool:
        """Return whether a place is the queue of a stream. The port differs: an output speaks AMQP."""
        hosts = (server.rpartition(":")[0] or server for server in self.servers)
        port, kind = place.name[2:3], place.name[6:]
        return any(
            server_place("", "rabbitmq", host, *port, self.virtual_host, "", stream, *kind).name == place.name
            for host, stream in product(hosts, self.streams)
        )


def _position_names(streams: tuple[str, ...]) -> PositionNames:
    """Return how `from` names partitions: by their streams."""
    example = f"{{{min(streams, default='orders')}: 100}}"
    return PositionNames(
        f"offsets: {example}",
        lambda name: name if name in streams else None,
        ("not known", f"write {example}"),
    )


RABBITMQ_STREAM: SourceType = Declared(_Settings, _Settings.spec, package="rstream", extra="rabbitmq")
