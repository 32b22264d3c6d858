"""The settings of a Kafka topic as a sink. Only for the driver; reading them does not need librdkafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.errors import InputError
from cep.rule_set import REVISION
from cep.settings import declared
from cep.settings.declared import Declared
from cep.settings.settings import Settings
from spark_runtime.connectors.kafka.connection import EXTRA, OURS, PACKAGE, Connection
from spark_runtime.sinks.place import Place, server_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkType
from spark_runtime.wire.output import DEAD, MATCH

_MATCH_ID, _KEY = "match_id", "key"


def topic_place(host: str, port: str, topic: str) -> Place:
    """Return the place of a topic at a broker."""
    return server_place(f"topic `{topic}`", "kafka", host, port, topic)


@dataclass(frozen=True, slots=True)
class _Settings:
    brokers: tuple[str, ...] = declared.names()
    topic: str = declared.text()
    key: str = declared.choice((_MATCH_ID, _KEY), "")
    has_tombstones: bool = declared.choice({"event": False, "tombstone": True}, name="retract")
    options: tuple[tuple[str, str], ...] = declared.texts(refused=OURS)

    def spec(self, settings: Settings) -> TopicSpec:
        connection = Connection(",".join(self.brokers), self.options)
        return TopicSpec(connection, self.topic, self.key, self.has_tombstones)


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic.

    `key`: the key of a message: ``match_id``, or ``key`` for the key by which the rules partition events.
    Empty: the identifier of a match; no key for other rows. `has_tombstones`: whether a withdrawn match is a
    message without a value. Otherwise, it is a row of the kind `retract`.
    """

    connection: Connection
    topic: str
    key: str = ""
    has_tombstones: bool = False

    def places(self, output: Output) -> Sequence[Place]:
        """Return the topic, at each named broker."""
        return [topic_place(host, port, self.topic) for host, port in self.connection.hosts]

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink; raise InputError if the rows lack the key."""
        from spark_runtime.connectors.kafka.sink import TopicSink

        columns = self._columns(output, context)
        if self.has_tombstones:
            self._require_corrections(output, columns, context)
        return TopicSink(output, self.connection, self.topic, columns, self.has_tombstones)

    def _require_corrections(self, output: Output, columns: tuple[str, ...], context: SinkContext) -> None:
        """Raise InputError unless rows withdraw others, and both share a unique key."""
        rules = [rule for program in context.rules.programs for rule in program.rules]
        is_one_view = output.kind == MATCH and len(rules) == 1 and rules[0].is_view
        if columns != (_MATCH_ID,) and not is_one_view:
            raise InputError(
                "E0843",
                f"the sink of topic `{self.topic}` has `retract: tombstone`, and no `match_id` as its key",
                "a tombstone removes the message with its key: remove `key`, or remove `retract`; "
                "`key: key` is possible where one view runs alone: only: [the_view]",
            )
        if REVISION not in output.schema.names:
            raise InputError(
                "E0843",
                f"the sink of topic `{self.topic}` has `retract`, and nothing withdraws a match",
                "write `late: correct within 1 hour`, or remove `retract`",
            )

    def _columns(self, output: Output, context: SinkContext) -> tuple[str, ...]:
        """Return the columns of the rows that form the key of a message."""
        if self.key in ("", _MATCH_ID):
            if output.kind == MATCH:
                return (_MATCH_ID,)
            if not self.key:
                return ()
            raise InputError(
                "E0843",
                f"the sink of topic `{self.topic}` has no `match_id`, it gets no matches",
                "write key: key for late events, and no key for dead letters",
            )
        if output.kind == DEAD:
            raise InputError(
                "E0843",
                f"the sink of topic `{self.topic}` has no key, it gets dead letters",
                "remove `key`",
            )
        rules = context.rules
        if output.stream is not None:
            return next(iter(rules.keys_of(output.stream)), ())
        names = dict.fromkeys(name for program in rules.programs for name in program.key)
        return tuple(name for name in names if name in output.schema.names)


KAFKA: SinkType = Declared(_Settings, _Settings.spec, package=PACKAGE, extra=EXTRA, kinds=ALL_KINDS)
