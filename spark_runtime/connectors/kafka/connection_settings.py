"""The settings that source and sink of format `kafka` share. Only for the driver."""

from __future__ import annotations

PACKAGE, EXTRA = "confluent_kafka", "kafka"

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
"""Settings of librdkafka that a pipeline sets itself."""
