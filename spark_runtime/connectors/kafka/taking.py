"""Takes messages from librdkafka, as objects of confluent_kafka or as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from spark_runtime.connectors.kafka.connection import Client
from spark_runtime.connectors.message_logs.log import MessageRange


class Taken(Protocol):
    """Some messages of one partition, in order."""

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the values."""

    @property
    def last(self) -> int:
        """The offset of the last message; there is at least one."""

    def before(self, offset: int) -> Self:
        """Return the messages before an offset."""

    def __len__(self) -> int: ...


class Failed(NamedTuple):
    """An error of librdkafka in place of a message, and the offset that it concerns."""

    error: Any
    offset: int


T = TypeVar("T", bound=Taken, covariant=True)


class Taker(Protocol[T]):
    """Takes the messages of a partition."""

    def begin(self, part: MessageRange) -> None:
        """Start fetching at the start of a range."""

    def take(self, most: int, seconds: float) -> tuple[T, Sequence[Failed]]:
        """Return at most `most` messages that have arrived; wait up to `seconds` if there are none."""

    def end(self) -> None:
        """Stop fetching."""


class Objects(list[Any]):
    """Messages as objects; see `Taken`."""

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the values."""
        return sum(map(len, self))

    @property
    def last(self) -> int:
        """The offset of the last message."""
        offset: int = self[-1].offset()
        return offset

    def before(self, offset: int) -> Objects:
        """Return the messages before an offset."""
        return Objects(message for message in self if message.offset() < offset)


class ObjectTaker:
    """Takes messages as objects; see `Taker`."""

    def __init__(self, client: Client) -> None:
        self._learn = client.learn
        self._consumer = client.client

    def begin(self, part: MessageRange) -> None:
        """Start fetching at the start of a range."""
        from confluent_kafka import TopicPartition

        self._learn(part.log)
        self._consumer.assign([TopicPartition(part.log, int(part.partition), part.start)])

    def take(self, most: int, seconds: float) -> tuple[Objects, Sequence[Failed]]:
        """Return the messages that have arrived."""
        from confluent_kafka import Message

        found = self._consumer.consume(most, seconds)
        # `map` over the methods: Python code for each message would cost as much as everything else here.
        # By identity: comparing an error with None raises.
        if all(map(is_, map(Message.error, found), repeat(None))):
            return Objects(found), ()
        errors = [message for message in found if message.error() is not None]
        failed = [Failed(message.error(), message.offset()) for message in errors]
        return Objects(message for message in found if message.error() is None), failed

    def end(self) -> None:
        """Stop fetching."""
        self._consumer.unassign()
