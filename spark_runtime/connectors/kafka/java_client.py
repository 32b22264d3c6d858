"""Checks a cluster with Java's client before Spark's connector reads it. Only for the driver.

The connector itself tries for minutes, in a running query, and prints a page of Java errors when it gives up.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from cep.errors import InputError
from spark_runtime.connectors.kafka.connection import Connection, no_topic

_PREFIX = "kafka."
_OF_ALL_CLIENTS = ("bootstrap.", "client.", "sasl.", "security.", "ssl.")

_WAIT_MS = 9000
"""Seconds that a broker may take to answer. Java needs more time than librdkafka on busy cores."""

_REFUSED = ("Authentication", "Authorization")
"""Parts of the names of Java's exceptions."""


def require_topics(
    spark: SparkSession,
    connection: Connection,
    options: Mapping[str, str],
    topics: Sequence[str],
    pattern: str = "",
) -> dict[str, str]:
    """Return the identifiers of topics, within about 10 seconds.

    Parameters
    ----------
    options
        The options of the connector, with secrets filled in.
    topics
        The names of the topics.
    pattern
        A regular expression of names, in place of `topics`.

    Raises
    ------
    InputError
        No broker answers (E0850), a topic does not exist (E0851), access is refused (E0852), or Java's client
        does not accept its settings (E0853).
    """
    java: Any = spark._jvm
    settings = java.java.util.HashMap()
    for name, value in options.items():
        own = name.removeprefix(_PREFIX)
        if own != name and own.startswith(_OF_ALL_CLIENTS):
            settings.put(own, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        settings.put(name, str(_WAIT_MS))
    what = " and ".join(f"topic `{topic}`" for topic in topics) or "its topics"
    try:
        client = java.org.apache.kafka.clients.admin.AdminClient.create(settings)
    except Py4JJavaError as error:
        raise InputError(
            "E0853",
            f"Java's client of Kafka refuses its settings: {connection.shown(_causes(error)[-1][1])}",
            "look at `options`; `kafka.` in front of a name makes it a setting of Java's client",
        ) from error
    try:
        wait = _WAIT_MS + 1000, java.java.util.concurrent.TimeUnit.MILLISECONDS
        if not topics:
            listed = java.java.util.ArrayList(client.listTopics().listings().get(*wait))
            named = ((topic.name(), topic) for topic in listed)
            return {name: topic.topicId().toString() for name, topic in named if re.fullmatch(pattern, name)}
        names = java.java.util.ArrayList()
        for topic in topics:
            names.add(topic)
        described = client.describeTopics(names).allTopicNames().get(*wait)
        return {topic: described.get(topic).topicId().toString() for topic in topics}
    except Py4JJavaError as error:
        raise _meaning(_causes(error), connection, what) from error
    finally:
        client.close(java.java.time.Duration.ofMillis(0))


def _meaning(causes: Sequence[tuple[str, str]], connection: Connection, what: str) -> InputError:
    brokers = f"`{connection.brokers}`"
    name, message = causes[-1]
    for name, message in causes:
        if name.startswith("UnknownTopicOrPartition"):
            return no_topic(what, connection.brokers)
        if any(part in name for part in _REFUSED):
            return InputError(
                "E0852",
                f"{brokers} refuses access to {what}: {connection.shown(message)}",
                "look at `kafka.security.protocol` and `kafka.sasl...` in `options`, and who may read",
            )
    return InputError(
        "E0850",
        f"no broker of Kafka answers at {brokers}: {connection.shown(f'{name}: {message}')}",
        "start it, or name its host and port in `brokers`; without TLS there is no answer where it is wanted",
    )


def _causes(error: Py4JJavaError) -> list[tuple[str, str]]:
    """Return the names and messages of an exception of Java and of its causes."""
    found = []
    cause: Any = error.java_exception
    while cause is not None:
        found.append((str(cause.getClass().getSimpleName()), str(cause.getMessage() or "")))
        cause = cause.getCause()
    return found
