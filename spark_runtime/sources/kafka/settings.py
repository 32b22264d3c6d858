"""The settings of a source of format `kafka`. On the driver only; librdkafka is not needed to read them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from cep.errors import InputError
from cep.expression import Type
from cep.formats.protocol import RecordFormat
from cep.schema.stream import Stream
from cep.schema.time_literals import parse_timestamp
from spark_runtime.kafka_connection import Connection
from spark_runtime.kafka_settings import connection_of, has_package
from spark_runtime.settings import Settings
from spark_runtime.sources.kafka.reading import EARLIEST, HEADER, LATEST, METADATA, Begin, KafkaReading
from spark_runtime.sources.kafka.source import KafkaSource
from spark_runtime.sources.protocol import Source
from spark_runtime.sources.spec import SourceContext, SourceSpec, SourceType
from spark_runtime.sources.value_settings import value_format

_ISOLATION = ("read_committed", "read_uncommitted")


class _KafkaType:
    """See `SourceType`."""

    settings = (
        "brokers",
        "topic",
        "topic_pattern",
        "from",
        "value",
        "columns",
        "max_events_per_trigger",
        "tombstones",
        "isolation",
        "on_lost",
        "options",
    )

    def spec(self, settings: Settings) -> SourceSpec | None:
        """Return the spec, or None if a problem was noted."""
        before = len(settings.document.diagnostics)
        has_package(settings)
        connection = connection_of(settings)
        topics, pattern = _topics(settings)
        begin = _begin(settings, topics)
        values = value_format(settings)
        if values is None:
            return None
        spec = KafkaSpec(
            connection=connection or Connection(""),
            topics=topics,
            pattern=pattern,
            begin=begin,
            value_format=values,
            columns=_columns(settings),
            max_events=settings.positive("max_events_per_trigger"),
            isolation=settings.word("isolation", _ISOLATION, _ISOLATION[0]),
            goes_on_without=settings.word("on_lost", ("fail", "go_on"), "fail") == "go_on",
            has_dead_tombstones=settings.word("tombstones", ("pass_over", "dead_letter"), "pass_over")
            == "dead_letter",
        )
        return spec if len(settings.document.diagnostics) == before else None


@dataclass(frozen=True, slots=True)
class KafkaSpec:
    """Topics of a cluster; see `KafkaReading`."""

    connection: Connection
    topics: tuple[str, ...]
    pattern: str
    begin: Begin
    value_format: RecordFormat
    columns: dict[str, str] = field(hash=False)
    max_events: int | None
    isolation: str
    goes_on_without: bool
    has_dead_tombstones: bool

    @property
    def place(self) -> str:
        """The topics. The brokers of a cluster may change."""
        return self.pattern or ",".join(self.topics)

    def open(self, context: SourceContext) -> Source:
        """Return the source."""
        _require_columns(self.columns, context.stream)
        return KafkaSource(
            KafkaReading(
                stream=context.stream,
                connection=self.connection,
                topics=self.topics,
                pattern=self.pattern,
                begin=self.begin,
                value_format=self.value_format,
                keys=context.keys,
                columns=self.columns,
                max_events=self.max_events,
                isolation=self.isolation,
                goes_on_without=self.goes_on_without,
                has_dead_tombstones=self.has_dead_tombstones,
                log=context.log,
            )
        )


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


def _begin(settings: Settings, topics: tuple[str, ...]) -> Begin:
    """Return where a stream begins."""
    node = settings.found.get("from")
    if node is None:
        return EARLIEST
    if isinstance(node, yaml.MappingNode):
        return _offsets(settings, node, topics)
    text = settings.document.text(node, "`from`")
    if text is None or text in (EARLIEST, LATEST):
        return text or EARLIEST
    at_us = parse_timestamp(text)
    if at_us is None:
        settings.document.problem(
            "E0841",
            f"`from` cannot be `{text}`",
            node,
            "not known",
            "write earliest, latest, a time such as 2024-05-01T12:00:00Z, or offsets: {0: 100, 1: 250}",
        )
        return EARLIEST
    return at_us


def _offsets(settings: Settings, node: yaml.MappingNode, topics: tuple[str, ...]) -> dict[str, int]:
    found = {}
    for entry in settings.document.mapping(node, "`from`") or []:
        offset = settings.document.integer(entry.value, f"`{entry.name}`")
        name = entry.name
        if name.isdecimal() and len(topics) == 1:
            name = f"{topics[0]}[{name}]"
        elif not re.fullmatch(r".+\[\d+\]", name):
            settings.document.problem(
                "E0841",
                f"`{name}` is no partition",
                entry.value,
                "of which topic?" if name.isdecimal() else "not known",
                "write topic and number: {orders[0]: 100}",
            )
        if offset is not None:
            found[name] = offset
    return found


def _columns(settings: Settings) -> dict[str, str]:
    """Return what is a column besides the value, by the name of the column."""
    node = settings.found.get("columns")
    if node is None:
        return {}
    found: dict[str, str] = {}
    for entry in settings.document.mapping(node, "`columns`") or []:
        column = settings.document.text(entry.value, f"`{entry.name}`")
        if entry.name not in METADATA and not entry.name.startswith(HEADER):
            settings.document.problem(
                "E0841",
                f"a message has no `{entry.name}`",
                entry.value,
                "not known",
                f"write {', '.join(METADATA)} or {HEADER}NAME",
            )
        elif column is not None and column in found:
            settings.document.problem(
                "E0843", f"column `{column}` is there twice", entry.value, "already given", "keep one of them"
            )
        elif column is not None:
            found[column] = entry.name
    return found


def _require_columns(columns: dict[str, str], stream: Stream) -> None:
    """Raise InputError unless the stream has the columns, in types that they can be of."""
    for name, what in columns.items():
        declared = stream.field(name)
        if declared is None:
            raise InputError(
                "E0841",
                f"stream `{stream.name}` has no column `{name}`, which is to be the {what} of a message",
                f"declare it, or write one of {', '.join(f.name for f in stream.fields)}",
            )
        if what == "timestamp" and declared.type is not Type.TIMESTAMP:
            raise InputError(
                "E0843",
                f"column `{name}` is {declared.ddl}, and is to be the timestamp of a message",
                "declare it as timestamp",
            )


KAFKA: SourceType = _KafkaType()
