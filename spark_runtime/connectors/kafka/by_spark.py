"""Kafka topics that Spark's own connector reads, ``via: spark``. Only for the driver.

Spark reads messages, and the workers decode them with the common reader of message sources. Spark's own log
records what a stream has read.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from cep.errors import CepError, InputError, StateError
from cep.formats.protocol import RecordFormat
from cep.schema.stream import Stream
from spark_runtime.connectors.kafka.connection import WAIT_SECONDS, Connection, no_topic
from spark_runtime.connectors.kafka.fetch import NO_ID
from spark_runtime.connectors.message_logs.log import HEADER
from spark_runtime.connectors.message_logs.offsets import identities, read_start, to_json, write_start
from spark_runtime.connectors.message_logs.reading import EARLIEST, LATEST, Begin
from spark_runtime.dataflow.message_frames import MessageFrame
from spark_runtime.sources.protocol import ReadsRows
from spark_runtime.storage.checkpoint_files import is_there

if TYPE_CHECKING:
    from spark_runtime.connectors.kafka.source_settings import KafkaOfSparkSpec


JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
"""The needed versions of the connector, tested with PySpark 4.3.0, for which none was released."""

_COLUMN = "_of_message_"


@dataclass(frozen=True, slots=True)
class KafkaOfSpark:
    """Topics that Spark reads; see `SparkSource`."""

    stream: Stream
    spec: KafkaOfSparkSpec
    value_format: RecordFormat
    columns: Mapping[str, str]  # the message's part, by the name of the stream's column
    log: str = ""  # the file in which a stream records the identifiers of its topics

    def check_settings(self, spark: Mapping[str, str]) -> None:
        """Raise InputError if no setting names the jars; `spark` are the settings of the session."""
        missing = list(_missing_jars(spark))
        if missing:
            raise _no_connector(missing)
        _require_broker(self.spec.connection.brokers)
        self.options()

    def parcels(self, spark: SparkSession, flow: ReadsRows, *, is_stream: bool) -> DataFrame:
        """Return the events as parcels."""
        if not is_stream and self.spec.read.begin == LATEST:
            raise InputError(
                "E0843",
                f"stream `{self.stream.name}` begins at its end (`from: latest`), and a batch ends there",
                "name an earlier position, or run it as a stream",
            )
        _require_broker(self.spec.connection.brokers)
        reader = spark.readStream if is_stream else spark.read
        try:
            rows = reader.format("kafka").options(**self.options()).load()
        except PySparkException as error:
            if "DATA_SOURCE_NOT_FOUND" in str(error) or "Failed to find data source" in str(error):
                raise _no_connector(JARS) from error
            raise
        except Exception as error:
            if "NoClassDefFoundError" in str(error) or "ClassNotFoundException" in str(error):
                raise _no_connector(JARS) from error
            raise
        spec = self.spec
        topics = () if spec.pattern else spec.topics
        found = require_topics(spark, spec.connection, self.options(), topics, spec.pattern)
        if is_stream and self.log:
            self._require_same(found)
        frame, names = self._with_columns(rows)
        messages = MessageFrame(
            frame,
            self.stream,
            self.value_format,
            columns=names,
            has_dead_tombstones=self.spec.read.has_dead_tombstones,
        )
        return flow.read(
            messages.selected(), messages.reader(flow.packer, may_be_late=False, is_planned=True)
        )

    def _require_same(self, found: Mapping[str, str]) -> None:
        """Raise StateError if a topic was recreated: Spark would continue at the offsets of the old one."""
        file = Path(self.log)
        known = (
            {log: text for log, (text, _) in identities(read_start(file)).items()} if is_there(file) else {}
        )
        for topic, now in found.items():
            if known.get(topic, now) != now:
                raise StateError(
                    "E0854",
                    f"topic `{topic}` is not the topic that it was: it is {now}, and was {known[topic]}",
                    "it was deleted and created again, so messages may be lost, and `via: spark` cannot "
                    "continue: start with an empty checkpoint directory",
                )
            if now != NO_ID:
                known[topic] = now
        write_start(file, to_json({}, {topic: (text, 0) for topic, text in known.items()}))

    def options(self) -> dict[str, str]:
        """Return the options of the connector.

        Raises InputError: an environment variable is missing (E0853).
        """
        spec, more = self.spec, self.spec.read
        found = spec.connection.replaced_options()
        found |= {
            "kafka.bootstrap.servers": spec.connection.brokers,
            "kafka.isolation.level": spec.isolation,
        }
        found |= {"failOnDataLoss": str(not more.goes_on_without).lower(), **self._begin(more.begin)}
        if spec.pattern:
            found["subscribePattern"] = spec.pattern
        else:
            found["subscribe"] = ",".join(spec.topics)
        if more.max_events is not None:
            found["maxOffsetsPerTrigger"] = str(more.max_events)
        if any(what.startswith(HEADER) for what in self.columns.values()):
            found["includeHeaders"] = "true"
        return found

    @staticmethod
    def _begin(begin: Begin) -> dict[str, str]:
        if begin in (EARLIEST, LATEST):
            return {"startingOffsets": str(begin)}
        if isinstance(begin, int):
            # A partition without a message of that time or later starts at its end.
            return {
                "startingTimestamp": str(-(-begin // 1000)),
                "startingOffsetsByTimestampStrategy": LATEST,
            }
        assert isinstance(begin, Mapping)
        offsets: dict[str, dict[str, int]] = {}
        for origin, offset in begin.items():
            topic, _, number = origin.removesuffix("]").rpartition("[")
            offsets.setdefault(topic, {})[number] = offset
        return {"startingOffsets": json.dumps(offsets)}

    def _with_columns(self, rows: DataFrame) -> tuple[DataFrame, dict[str, str]]:
        """Return messages with the stream's columns that are not in the value, and their names."""
        made = {f"{_COLUMN}{number}": name for number, name in enumerate(self.columns)}
        columns = {column: _column(self.columns[name]) for column, name in made.items()}
        return rows.select("value", "topic", "partition", "offset", *_named(columns)), made


def _named(columns: Mapping[str, SparkColumn]) -> Iterator[SparkColumn]:
    for name, column in columns.items():
        yield column.alias(name)


def _column(what: str) -> SparkColumn:
    if what.startswith(HEADER):
        name = what.removeprefix(HEADER)
        # A message may have several headers with the same name: the last one counts.
        own = F.filter("headers", lambda header: header["key"] == F.lit(name))
        return F.try_element_at(own, F.lit(-1))["value"].cast("string")
    return F.col(what) if what == "timestamp" else F.col(what).cast("string")


def _require_broker(brokers: str) -> None:
    """Raise InputError if no broker accepts a connection: Java's client would try for minutes."""
    error: OSError | None = None
    for broker in brokers.split(","):
        host, _, port = broker.strip().rpartition(":")
        if not port.isdecimal():
            return  # Java's client reports the problem
        try:
            with socket.create_connection((host.rpartition("//")[2].strip("[]"), int(port)), WAIT_SECONDS):
                return
        except OSError as failed:
            error = failed
    raise InputError(
        "E0850",
        f"no broker of Kafka answers at `{brokers}`: {error}",
        "start it, or name its host and port in `brokers`",
    )


def _missing_jars(spark: Mapping[str, str]) -> Iterator[str]:
    """Yield the jars that neither a setting nor PySpark's folder contains."""
    files = [name.strip() for name in spark.get("spark.jars", "").split(",") if name.strip()]
    places = [
        Path(name.removeprefix("file://")) for name in files if "://" not in name.removeprefix("file://")
    ]
    named = [place.name for place in places if place.is_file()]
    named += [name.rpartition("/")[2] for name in files if "://" in name.removeprefix("file://")]
    named += [path.name for path in (Path(pyspark.__file__).parent / "jars").glob("*kafka*.jar")]
    packages = spark.get("spark.jars.packages", "")
    if "spark-sql-kafka" in packages:  # Ivy loads its dependencies
        return
    for jar in JARS:
        artifact = jar.split(":")[1]
        if not any(name.startswith(f"{artifact}-") for name in named):
            yield jar


def _no_connector(missing: list[str] | tuple[str, ...]) -> CepError:
    return InputError(
        "E0830",
        "`via: spark` needs Spark's connector for Kafka, and these jars are missing: " + ", ".join(missing),
        "fetch them from Maven Central, and name the files in `spark`: "
        '{spark.jars: "jars/spark-sql-kafka-0-10_2.13-4.2.0.jar,..."}, with --allow-spark-settings; '
        "or leave `via` out",
    )


# Java's client asks the cluster first: the connector itself tries for minutes, in a query that has started,
# and shows a page of Java when it gives up.

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

    Raises InputError: no broker answers (E0850), a topic does not exist (E0851), access is refused (E0852),
    or Java's client does not accept its settings (E0853).

    `options`: the options of the connector, with secrets filled in. `pattern`: a regular expression of names,
    in place of `topics`.
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
            "check `options`; `kafka.` in front of a name makes it a setting of Java's client",
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
                "check `kafka.security.protocol` and `kafka.sasl...` in `options`, and who may read",
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
