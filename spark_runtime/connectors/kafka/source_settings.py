"""The settings of a source of format `kafka`. On the driver only; librdkafka is not needed to read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cep.settings.settings import Settings
from spark_runtime.connectors.kafka.connection import Connection
from spark_runtime.connectors.kafka.connection_settings import connection_of
from spark_runtime.connectors.kafka.log import METADATA, KafkaLog
from spark_runtime.connectors.message_logs.settings import (
    SHARED,
    TOMBSTONES,
    MessageSpec,
    message_spec,
    numbered,
)
from spark_runtime.sources.spec import SourceContext, SourceType

if TYPE_CHECKING:
    from spark_runtime.connectors.kafka.by_spark import KafkaOfSpark

_LIBRDKAFKA, _SPARK = "librdkafka", "spark"
_ISOLATION = ("read_committed", "read_uncommitted")

METADATA_OF_SPARK = ("key", "topic", "partition", "offset", "timestamp")
"""What may be a column besides the value, with the connector; also single headers."""

OPTIONS_OF_SPARK = frozenset(
    (
        "assign",
        "endingOffsets",
        "endingOffsetsByTimestamp",
        "endingTimestamp",
        "failOnDataLoss",
        "includeHeaders",
        "kafka.bootstrap.servers",
        "kafka.isolation.level",
        "maxOffsetsPerTrigger",
        "startingOffsets",
        "startingOffsetsByTimestamp",
        "startingTimestamp",
        "subscribe",
        "subscribePattern",
    )
)
"""Options of the connector that a pipeline decides about."""


@dataclass(frozen=True, slots=True)
class KafkaOfSparkSpec:
    """Topics, and how Spark and we read them; see `SourceSpec`.

    Parameters
    ----------
    read
        What the source has in common with other sources of messages.
    """

    connection: Connection
    topics: tuple[str, ...]
    pattern: str
    isolation: str
    read: MessageSpec

    @property
    def place(self) -> str:
        """The topics; the connector counts in a log of its own."""
        return f"{self.read.place} via spark"

    def open(self, context: SourceContext) -> KafkaOfSpark:
        """Return the source."""
        from spark_runtime.connectors.kafka.by_spark import KafkaOfSpark

        value_format, columns = self.read.formatted(context.stream)
        return KafkaOfSpark(context.stream, self, value_format, columns, context.log)


class _KafkaType:
    """See `SourceType`."""

    settings = ("via", "brokers", "topic", "topic_pattern", *SHARED, TOMBSTONES, "isolation", "options")

    def spec(self, settings: Settings) -> MessageSpec | KafkaOfSparkSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        is_of_spark = settings.word("via", (_LIBRDKAFKA, _SPARK), _LIBRDKAFKA) == _SPARK
        if not is_of_spark:
            settings.require_package("confluent_kafka", "kafka")
        connection = (connection_of_spark if is_of_spark else connection_of)(settings)
        connection = connection or Connection("")
        topics, pattern = _topics(settings)
        isolation = settings.word("isolation", _ISOLATION, _ISOLATION[0])
        read = message_spec(
            settings,
            pattern or ",".join(topics),  # the brokers of a cluster may change
            KafkaLog(connection, topics, pattern, isolation),
            METADATA_OF_SPARK if is_of_spark else METADATA,
            numbered(topics, "topic"),
            has_headers=True,
        )
        spec = KafkaOfSparkSpec(connection, topics, pattern, isolation, read) if is_of_spark else read
        return spec if len(settings.document.diagnostics) == before else None


def connection_of_spark(settings: Settings) -> Connection | None:
    """Return brokers and options of Spark's connector, None if a problem was noted."""
    return connection_of(settings, OPTIONS_OF_SPARK)


def _topics(settings: Settings) -> tuple[tuple[str, ...], str]:
    """Return the topics, or the pattern of their names."""
    found = settings.found
    if "topic_pattern" in found:
        pattern = settings.text("topic_pattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            settings.document.problem(
                "E0402",
                f"`topic_pattern` is not a regular expression: {error}",
                found["topic_pattern"],
                "cannot be read",
                "for example: orders-.*",
            )
        if "topic" in found:
            settings.document.problem(
                "E0843",
                "`topic` and `topic_pattern` together",
                found["topic"],
                "one or the other",
                "remove one",
            )
        return (), pattern
    if "topic" not in found:
        settings.text("topic")  # notes that it is missing
        return (), ""
    texts = settings.document.texts(found["topic"], "`topic`") or []
    return tuple(dict.fromkeys(text for text, _ in texts)), ""


KAFKA: SourceType = _KafkaType()
