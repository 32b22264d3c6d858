"""The settings of RabbitMQ as a sink. Only for the driver; reading them does not need pika."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.settings import declared
from cep.settings.declared import Declared
from cep.settings.settings import Settings
from spark_runtime.connectors.rabbitmq.connection import PORT, TLS_PORT, Address
from spark_runtime.sinks.place import Place, server_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkType


@dataclass(frozen=True, slots=True)
class _Settings:
    host: str = declared.text()
    user: str = declared.text("guest", secret=True)
    password: str = declared.text("guest", secret=True, hidden=True)
    virtual_host: str = declared.text("/", secret=True)
    port: int | None = declared.integer(None, at_least=1)
    has_tls: bool = declared.flag(False, name="tls")
    ca_file: str = declared.path("", needs=("tls", "the connection would not be encrypted", "add: tls: true"))
    queue: str = declared.text(unless="exchange")
    exchange: str = declared.text("", not_with="queue")
    routing_key: str = declared.text("", not_with="queue")

    def spec(self, settings: Settings) -> RabbitSpec:
        port = self.port or (TLS_PORT if self.has_tls else PORT)
        access = (self.user, self.password, self.virtual_host, self.has_tls, self.ca_file)
        # The default exchange, which has no name, routes to queues by their names.
        return RabbitSpec(Address(self.host, port, *access), self.exchange, self.queue or self.routing_key)


@dataclass(frozen=True, slots=True)
class RabbitSpec:
    """An exchange and a routing key; or no exchange, and the name of a queue."""

    address: Address
    exchange: str
    routing_key: str

    def places(self, output: Output) -> Sequence[Place]:
        """Return the queue or the exchange with its key; messages of other kinds have a different `type`."""
        target = self.address
        names = (target.virtual_host, self.exchange, self.routing_key, output.kind)
        shown = f"exchange `{self.exchange}` with its key" if self.exchange else f"queue `{self.routing_key}`"
        return (server_place(shown, "rabbitmq", target.host, target.port, *names),)

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink."""
        from spark_runtime.connectors.rabbitmq.sink import RabbitSink

        return RabbitSink(output, self.address, self.exchange, self.routing_key)


RABBITMQ: SinkType = Declared(_Settings, _Settings.spec, package="pika", extra="rabbitmq", kinds=ALL_KINDS)
