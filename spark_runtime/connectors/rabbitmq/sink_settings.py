"""RabbitMQ as a sink: its settings. On the driver only; pika is not needed to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.settings.settings import Settings
from spark_runtime.connectors.rabbitmq.connection import PORT, TLS_PORT, Address
from spark_runtime.sinks.place import Place, server_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkSpec, SinkType

_TEXTS = ("host", "user", "password", "virtual_host")


class _RabbitType:
    """See `SinkType`."""

    settings = (*_TEXTS, "port", "tls", "ca_file", "queue", "exchange", "routing_key")
    kinds = ALL_KINDS

    def spec(self, settings: Settings) -> SinkSpec | None:
        """Return the spec, or None if a problem was noted."""
        document, found = settings.document, settings.found
        before = len(document.diagnostics)
        settings.require_package("pika", "rabbitmq")
        host = settings.text("host")
        user, password, virtual_host = (
            settings.secret(name) or "" if name in found else default
            for name, default in (("user", "guest"), ("password", "guest"), ("virtual_host", "/"))
        )
        port = settings.positive("port")
        has_tls = "tls" in found and document.boolean(found["tls"], "`tls`") is True
        ca_file = settings.path("ca_file") if "ca_file" in found else ""
        target = _target(settings)
        if host is None or target is None or len(document.diagnostics) > before:
            return None
        usual = TLS_PORT if has_tls else PORT
        address = Address(host, port or usual, user, password, virtual_host, has_tls, ca_file or "")
        return RabbitSpec(address, *target)


def _target(settings: Settings) -> tuple[str, str] | None:
    """Return exchange and routing key; a queue is reached by its name through the exchange without a name."""
    if "queue" in settings:
        for name in ("exchange", "routing_key"):
            if name in settings:
                settings.document.problem(
                    "E0843",
                    f"`queue` and `{name}` together",
                    settings.found[name],
                    "one or the other",
                    "remove one",
                )
        queue = settings.text("queue")
        return None if queue is None else ("", queue)
    if "exchange" not in settings:
        settings.document.problem(
            "E0404",
            f"{settings.what} has neither `queue` nor `exchange`",
            settings.node,
            "`queue` is missing",
            "add: queue: ...",
        )
        return None
    exchange = settings.text("exchange")
    key = settings.text("routing_key") if "routing_key" in settings else ""
    return None if exchange is None or key is None else (exchange, key)


@dataclass(frozen=True, slots=True)
class RabbitSpec:
    """An exchange and a routing key; or no exchange, and the name of a queue."""

    address: Address
    exchange: str
    routing_key: str

    def places(self, output: Output) -> Sequence[Place]:
        """Return the queue or the exchange with its key; messages of other kinds have another `type`."""
        target = self.address
        names = (target.virtual_host, self.exchange, self.routing_key, output.kind)
        shown = f"exchange `{self.exchange}` with its key" if self.exchange else f"queue `{self.routing_key}`"
        return (server_place(shown, "rabbitmq", target.host, target.port, *names),)

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink."""
        from spark_runtime.connectors.rabbitmq.sink import RabbitSink

        return RabbitSink(output, self.address, self.exchange, self.routing_key)


RABBITMQ: SinkType = _RabbitType()
