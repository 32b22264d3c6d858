"""The settings that source and sink of format `kafka` share. On the driver only."""

from __future__ import annotations

from importlib.util import find_spec

import yaml

from spark_runtime.kafka_connection import Connection
from spark_runtime.settings import Settings

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


def has_package(settings: Settings) -> bool:
    """Return whether librdkafka is installed; if not, it is a problem of the pipeline file."""
    if find_spec("confluent_kafka") is not None:
        return True
    settings.document.problem(
        "E0683",
        f"{settings.what} of format kafka needs the package `confluent_kafka`, which is not installed",
        settings.found["format"],
        "cannot be used",
        "pip install 'spark-cep[kafka]'",
    )
    return False


def connection_of(settings: Settings) -> Connection | None:
    """Return the connection, None if a problem was noted.

    `brokers` may be a list. In `options` `${NAME}` is a variable of the environment; it is not replaced here.
    """
    node = settings.found.get("brokers")
    if node is None:
        settings.text("brokers")  # notes that it is missing
        return None
    texts = settings.document.texts(node, "`brokers`")
    options = _options(settings)
    if texts is None or options is None:
        return None
    return Connection(",".join(text for text, _ in texts), options)


def _options(settings: Settings) -> tuple[tuple[str, str], ...] | None:
    node = settings.found.get("options")
    if node is None:
        return ()
    entries = settings.document.mapping(node, "`options`")
    if entries is None:
        return None
    found = []
    for entry in entries:
        if entry.name in OURS:
            settings.document.problem(
                "E0843",
                f"`{entry.name}` is not for `options`",
                entry.value,
                "the pipeline decides about it",
                "remove it",
            )
        elif not isinstance(entry.value, yaml.ScalarNode):
            settings.document.text(entry.value, f"`{entry.name}`")  # notes that it is no text
        else:
            found.append((entry.name, str(entry.value.value)))
    return tuple(sorted(found)) if len(found) == len(entries) else None
