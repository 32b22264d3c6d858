"""The settings of a source of format `kafka`. Only for the driver; reading them does not need librdkafka."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cep.settings import declared
from cep.settings.declared import Declared, Wrong
from cep.settings.settings import Settings
from spark_runtime.connectors.kafka.connection import EXTRA, OURS, PACKAGE, Connection
from spark_runtime.connectors.kafka.log import METADATA, KafkaLog
from spark_runtime.connectors.kafka.sink_settings import topic_place
from spark_runtime.connectors.message_logs.settings import TOMBSTONES, MessageSettings, MessageSpec, numbered
from spark_runtime.sinks.place import Place
from spark_runtime.sources.spec import SourceContext, SourceType

if TYPE_CHECKING:
    from spark_runtime.connectors.kafka.by_spark import KafkaOfSpark

METADATA_OF_SPARK = ("key", "topic", "partition", "offset", "timestamp")
"""What may be a column in addition to the value, with the connector; also single headers."""

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
"""Options of the connector that a pipeline sets itself."""


@dataclass(frozen=True, slots=True)
class KafkaOfSparkSpec:
    """Topics that Spark reads, and their settings; see `SourceSpec`."""

    connection: Connection
    topics: tuple[str, ...]
    pattern: str
    isolation: str
    read: MessageSpec

    @property
    def place(self) -> str:
        """The topics; the connector has its own log."""
        return f"{self.read.place} via spark"

    def reads(self, place: Place) -> bool:
        """Return whether a place is one of the topics."""
        return self.read.reads(place)

    def open(self, context: SourceContext) -> KafkaOfSpark:
        """Return the source."""
        from spark_runtime.connectors.kafka.by_spark import KafkaOfSpark

        value_format, columns = self.read.formatted(context.stream)
        return KafkaOfSpark(context.stream, self, value_format, columns, context.log)


def _options(settings: Settings, name: str) -> tuple[tuple[str, str], ...]:
    is_of_spark = getattr(settings.found.get("via"), "value", "") == "spark"
    return declared.read_texts(settings, name, OPTIONS_OF_SPARK if is_of_spark else OURS)


_NO_PATTERN = Wrong(
    "`topic_pattern` is not a regular expression: {}", "cannot be read", "for example: orders-.*"
)


def _pattern(settings: Settings, name: str) -> str | None:
    pattern = settings.text(name) or ""
    try:
        re.compile(pattern)
    except re.error as error:
        _NO_PATTERN.note(settings, name, error)
    return pattern


def _reads(connection: Connection, topics: tuple[str, ...], pattern: str, place: Place) -> bool:
    """Return whether a place is a topic that is read, on a broker that both the place and the connection
    name.
    """
    topic = place.name[-1]
    if topic not in topics and not (pattern and re.fullmatch(pattern, topic)):
        return False
    return any(topic_place(host, port, topic).name == place.name for host, port in connection.hosts)


@dataclass(frozen=True, slots=True)
class _Settings(MessageSettings):
    is_of_spark: bool = declared.choice({"librdkafka": False, "spark": True}, name="via")
    brokers: tuple[str, ...] = declared.names()
    topics: tuple[str, ...] = declared.names(name="topic", unless="topic_pattern")
    pattern: str = declared.own(_pattern, "", name="topic_pattern", not_with="topic")
    isolation: str = declared.choice(("read_committed", "read_uncommitted"))
    options: tuple[tuple[str, str], ...] = declared.own(_options, (), hidden=True)
    tombstones: str = declared.choice(TOMBSTONES)

    def spec(self, settings: Settings) -> MessageSpec | KafkaOfSparkSpec:
        if not self.is_of_spark:
            settings.require_package(PACKAGE, EXTRA)
        connection = Connection(",".join(self.brokers), self.options)
        topics = () if self.pattern else self.topics
        read = self.message_spec(
            settings,
            self.pattern or ",".join(topics),  # without brokers, which may change in a cluster
            KafkaLog(connection, topics, self.pattern, self.isolation),
            METADATA_OF_SPARK if self.is_of_spark else METADATA,
            numbered(topics, "topic"),
            has_headers=True,
            tombstones=self.tombstones,
            reads=partial(_reads, connection, topics, self.pattern),
        )
        if self.is_of_spark:
            return KafkaOfSparkSpec(connection, topics, self.pattern, self.isolation, read)
        return read


KAFKA: SourceType = Declared(_Settings, _Settings.spec)
