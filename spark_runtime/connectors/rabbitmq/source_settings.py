"""The settings of a source of format `rabbitmq_stream`. Only for the driver; rstream is not needed."""

from __future__ import annotations

from dataclasses import dataclass

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
