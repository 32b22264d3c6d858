"""The connection to Kafka that the source and the sink share: settings, secrets, and errors.

A connection contains the names of secrets, `${NAME}`. They are looked up in the environment where a client is
created, so neither the checkpoint nor a task that Spark stores contains them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cep.errors import InputError
from spark_runtime.sources.secrets import all_replaced, without_secrets

_T = TypeVar("_T")

_PORT = re.compile(r":\d+$")

WAIT_SECONDS = 5.0
"""How many seconds a broker may take to answer before anything runs."""

LEARN_SECONDS = 1.0
"""How many seconds a consumer waits to learn who leads a topic: as long as it would take by itself."""

MOVING_SECONDS = 20.0
"""How many seconds a cluster may take to replace a dead broker."""

_RETRY_SECONDS = 0.2

_TRANSPORT, _RESOLVE, _TLS, _FATAL = -195, -193, -181, -150
# Codes of the protocol, and below 0 those of librdkafka, as numbers so that nothing is imported.
# Transport, resolve, all down, timed out; the handle of a broker is gone, or its connection.
_UNREACHABLE = frozenset((_TRANSPORT, _RESOLVE, -187, -185, -192, -197, -137))
_REFUSED = frozenset(
    (-181, -169, 29, 30, 31, 33, 34, 53, 58)
)  # TLS, authentication, authorization of any kind
_NO_TOPIC = frozenset((-190, -188, 3))
_MOVING = frozenset((-137, -197, _TRANSPORT))  # the connection to a broker is gone, or its handle
_FENCED = frozenset((-144, 47, 90))  # fenced, invalid epoch of the producer


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a cluster, and the credentials.

    `brokers`: host and port of some brokers, separated by commas. `options`: settings of librdkafka by name.
    In values, `${NAME}` is an environment variable.
    """

    brokers: str
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def hosts(self) -> list[tuple[str, str]]:
        """The host and the port of each named broker."""
        brokers = [broker.strip().rpartition("://")[2] for broker in self.brokers.split(",")]
        parts = [
            broker.rpartition(":") if _PORT.search(broker) else (broker, "", "9092") for broker in brokers
        ]
        return [(host, port) for host, _, port in parts]

    def config(self, ours: Mapping[str, Any], noted: Noted) -> dict[str, Any]:
        """Return the settings of a client.

        Raises InputError: an environment variable is missing (E0853).

        `ours`: the settings of the specific client. `noted`: called with the errors that librdkafka reports
        asynchronously.
        """
        given = self.replaced_options()
        # Its log would interrupt the summary; `noted` gets what matters. Fatal errors have level 0: they stay
        # in a queue that is never read. With `debug`, the log goes to stderr.
        quiet = {"log_level": 0, "log.queue": "debug" not in given, "error_cb": noted}
        return {"bootstrap.servers": self.brokers, **quiet, **ours, **given}

    def replaced_options(self) -> dict[str, str]:
        """Return `options` with environment variables replaced; raises InputError (E0853)."""
        return all_replaced(self.options)

    def shown(self, error: object) -> str:
        """Return the message of a librdkafka error, without secrets."""
        return without_secrets(error.str() if hasattr(error, "str") else error, named=self.options)


class Noted:
    """The errors that librdkafka reports asynchronously: the last one of each kind."""

    def __init__(self) -> None:
        self.errors: dict[int, Any] = {}

    def __call__(self, error: Any) -> None:
        """Record an error."""
        self.errors[error.code()] = error


class Client:
    """A consumer or a producer, and its recorded errors.

    Raises InputError: an environment variable or an option is wrong (E0853).

    `kind`: `confluent_kafka.Consumer` or `Producer`. `ours`: settings of librdkafka.
    """

    def __init__(self, kind: Any, connection: Connection, ours: Mapping[str, Any]) -> None:
        from confluent_kafka import KafkaException

        self.connection = connection
        self.noted = Noted()
        self._known: set[str] = set()
        try:
            self.client = kind(connection.config(ours, self.noted))
        except (KafkaException, ValueError, TypeError) as error:
            said = error.args[0] if error.args else error
            raise InputError(
                "E0853",
                f"Kafka's client refuses its settings: {connection.shown(said)}",
                "check `options`; their names and values are those of librdkafka",
            ) from error

    def error(self, cause: Any, doing: str) -> InputError:
        """Return the error that a user sees for an error of librdkafka; `doing` names the failed action."""
        error = cause.args[0] if isinstance(cause, Exception) and cause.args else cause
        code = error.code() if hasattr(error, "code") else None
        if code == _FATAL:  # the code contains no reason
            error = self._reason() or error
            code = error.code()
        elif code is not None and error.fatal():
            self.noted(error)
        refused = self._refusal()
        if refused is not None and code in _UNREACHABLE:
            error, code = refused, refused.code()
        brokers = f"`{self.connection.brokers}`"
        if code == _TLS and "verify" in self.connection.shown(error):
            return InputError(
                "E0852",
                f"the certificate of {brokers} is not trusted: {self.connection.shown(error)}",
                "name the certificate of its authority: options: {ssl.ca.location: authority.pem}",
            )
        if code in _REFUSED:
            return InputError(
                "E0852",
                f"{brokers} refuses access to {doing}: {self.connection.shown(error)}",
                "check `security.protocol` and `sasl...` in `options`, and the rights of this user",
            )
        if code in _NO_TOPIC:
            return no_topic(doing, self.connection.brokers)
        if code in _FENCED:
            return InputError(
                "E0855",
                f"another run of this pipeline writes to {doing}, and has taken over",
                "one run at a time works on a checkpoint; end one of the two",
            )
        if code in _UNREACHABLE:
            told = self.noted.errors.get(_TRANSPORT) or self.noted.errors.get(_RESOLVE)
            return InputError(
                "E0850",
                f"no broker of Kafka answers at {brokers}: {self.connection.shown(told or error)}",
                "start it, or name its host and port in `brokers`",
            )
        return InputError("E0856", f"Kafka failed at {doing}: {self.connection.shown(error)}")

    def _reason(self) -> Any:
        """Return the fatal error of a client, or None. The client reports it only once."""
        from confluent_kafka import KafkaException

        try:
            self.client.poll(0)
        except KafkaException as error:
            self.noted(error.args[0])
        return next((error for error in self.noted.errors.values() if error.fatal()), None)

    def _refusal(self) -> Any:
        return next((error for code, error in self.noted.errors.items() if code in _REFUSED), None)

    def metadata(self, topic: str | None = None, doing: str = "its topics") -> Any:
        """Return the topics of the cluster by name, or the one topic, within `WAIT_SECONDS`.

        Raises InputError: no broker answers, or it refuses access.
        """
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                return self.client.list_topics(*([] if topic is None else [topic]), timeout=1.0).topics
            except KafkaException as error:
                self.client.poll(0)  # reports the reason
                if self._refusal() is not None or time.monotonic() > deadline:
                    raise self.error(error, doing) from error

    def learn(self, topic: str) -> bool:
        """Learn once which brokers lead the partitions of a topic; return whether a broker answered.

        A consumer that has to find out by itself fetches the first messages up to a second later: librdkafka
        looks for topics that are new to a client once a second. The fetch reports an error.
        """
        from confluent_kafka import KafkaException

        if topic in self._known:
            return True
        self._known.add(topic)
        with suppress(KafkaException):
            self.client.list_topics(topic, timeout=LEARN_SECONDS)
            return True
        return False

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic. Raises InputError as `metadata`, or for a missing topic."""
        found = self.metadata(topic, f"topic `{topic}`")[topic]
        if found.error is not None:
            raise self.error(found.error, f"topic `{topic}`")
        return sorted(found.partitions)


def is_moving(error: BaseException | None) -> bool:
    """Return whether an error of librdkafka is that of a dead broker, which another one replaces."""
    said = error.args[0] if error is not None and error.args else None
    return said is not None and hasattr(said, "code") and said.code() in _MOVING


def patiently(step: Callable[[], _T], seconds: float = MOVING_SECONDS) -> _T:
    """Return the result of a step, which is repeated for some seconds while its error `is_moving`.

    A step may raise an InputError whose cause is the error.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return step()
        except Exception as error:
            cause = error.__cause__ if isinstance(error, InputError) else error
            if not is_moving(cause) or time.monotonic() > deadline:
                raise
        time.sleep(_RETRY_SECONDS)


def no_topic(what: str, brokers: str) -> InputError:
    """Return the error for a topic that does not exist."""
    return InputError(
        "E0851",
        f"there is no {what} at `{brokers}`",
        "create it, or correct its name",
    )


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
        "plugin.library.paths",  # runs code
        "sasl.kerberos.kinit.cmd",  # runs a command
        "ssl.engine.location",  # runs code
        "transactional.id",
    )
)
"""Settings of librdkafka that a pipeline sets itself."""
