"""The settings of a source of format `rabbitmq_stream`. On the driver only; they are read without rstream."""

from __future__ import annotations

from cep.settings.settings import Settings
from spark_runtime.connectors.message_logs.settings import (
    SHARED,
    TOMBSTONES,
    MessageSpec,
    PositionNames,
    message_spec,
    names_of,
    options_of,
)
from spark_runtime.connectors.rabbitmq.log import METADATA, RabbitLog
from spark_runtime.sources.spec import SourceType

_OPTIONS = ("username", "password", "tls_ca", "tls_cert", "tls_key")


class _RabbitType:
    """See `SourceType`."""

    settings = ("servers", "stream_name", "virtual_host", *SHARED, TOMBSTONES, "options")

    def spec(self, settings: Settings) -> MessageSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        settings.require_package("rstream", "rabbitmq")
        streams = names_of(settings, "stream_name")
        host = (settings.text("virtual_host") if "virtual_host" in settings else None) or "/"
        options = options_of(settings, _OPTIONS)
        spec = message_spec(
            settings,
            ",".join(streams) if host == "/" else f"{host} {','.join(streams)}",
            RabbitLog(names_of(settings, "servers"), streams, host, options),
            METADATA,
            _position_names(streams),
        )
        return spec if len(settings.document.diagnostics) == before else None


def _position_names(streams: tuple[str, ...]) -> PositionNames:
    """Return how `from` names partitions: by the stream."""
    example = f"{{{min(streams, default='orders')}: 100}}"
    return PositionNames(
        f"offsets: {example}",
        lambda name: name if name in streams else None,
        ("not known", f"write {example}"),
    )


RABBITMQ_STREAM: SourceType = _RabbitType()
