"""The settings of a source of format `kafka`. On the driver only; librdkafka is not needed to read them."""

from __future__ import annotations

import re

from spark_runtime.kafka_connection import Connection
from spark_runtime.kafka_settings import connection_of, has_package
from spark_runtime.settings import Settings
from spark_runtime.sources.kafka.log import METADATA, KafkaLog
from spark_runtime.sources.messages.settings import SHARED, TOMBSTONES, MessageSpec, message_spec, numbered
from spark_runtime.sources.spec import SourceType

_ISOLATION = ("read_committed", "read_uncommitted")


class _KafkaType:
    """See `SourceType`."""

    settings = ("brokers", "topic", "topic_pattern", *SHARED, TOMBSTONES, "isolation", "options")

    def spec(self, settings: Settings) -> MessageSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        has_package(settings)
        connection = connection_of(settings)
        topics, pattern = _topics(settings)
        isolation = settings.word("isolation", _ISOLATION, _ISOLATION[0])
        spec = message_spec(
            settings,
            pattern or ",".join(topics),  # the brokers of a cluster may change
            KafkaLog(connection or Connection(""), topics, pattern, isolation),
            METADATA,
            numbered(topics, "topic"),
        )
        return spec if len(settings.document.diagnostics) == before else None


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
