"""The settings that source and sink of format `kafka` share. On the driver only."""

from __future__ import annotations

from cep.settings.settings import Settings
from spark_runtime.connectors.kafka.connection import Connection

OURS = frozenset(
    (
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "transactional.id",
    )
)
"""Settings of librdkafka that a pipeline decides about."""


def connection_of(settings: Settings, ours: frozenset[str] = OURS) -> Connection | None:
    """Return the connection, None if a problem was noted.

    `brokers` may be a list. In `options` `${NAME}` is a variable of the environment; it is not replaced here.
    Those of `ours` are refused.
    """
    node = settings.found.get("brokers")
    if node is None:
        settings.text("brokers")  # notes that it is missing
        return None
    texts = settings.document.texts(node, "`brokers`")
    before = len(settings.document.diagnostics)
    options = settings.options(ours)
    if texts is None or len(settings.document.diagnostics) > before:
        return None
    return Connection(",".join(text for text, _ in texts), tuple(options.items()))
