"""What is taken from librdkafka at a time: messages as objects of confluent_kafka, or as columns.

Executors read this: it imports nothing of the compiler, and librdkafka only when it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import is_
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from spark_runtime.connectors.kafka.connection import Client
from spark_runtime.connectors.message_logs.log import MessageRange


class Taken(Protocol):
    """Some messages of one partition, in their order."""

    @property
    def n_bytes(self) -> int:
        """Bytes of their values."""
        ...

    @property
    def last(self) -> int:
        """The offset of the last one; there is one."""
        ...

    def before(self, offset: int) -> Self:
        """Return those before an offset."""
        ...

    def __len__(self) -> int: ...


class Failed(NamedTuple):
    """What came in place of a message: an error of librdkafka, and the offset it speaks of."""

    error: Any
    offset: int


T = TypeVar("T", bound=Taken, covariant=True)


class Taker(Protocol[T]):
    """Takes the messages of a partition."""

    def begin(self, part: MessageRange) -> None:
        """Fetch from the start of a range on."""
        ...

    def take(self, most: int, seconds: float) -> tuple[T, Sequence[Failed]]:
        """Return what has come, `most` or fewer; it waits for so long if there is nothing."""
        ...

    def end(self) -> None:
        """Fetch no more."""
        ...


class Objects(list[Any]):
    """Messages as objects; see `Taken`."""

    @property
    def n_bytes(self) -> int:
        """Bytes of their values."""
        return sum(map(len, self))

    @property
    def last(self) -> int:
        """The offset of the last one."""
        offset: int = self[-1].offset()
        return offset

    def before(self, offset: int) -> Objects:
        """Return those before an offset."""
        return Objects(message for message in self if message.offset() < offset)


class ObjectTaker:
    """Takes messages as objects; see `Taker`."""

    def __init__(self, client: Client) -> None:
        self._consumer = client.client

    def begin(self, part: MessageRange) -> None:
        """Fetch from the start of a range on."""
        from confluent_kafka import TopicPartition

        self._consumer.assign([TopicPartition(part.log, int(part.partition), part.start)])

    def take(self, most: int, seconds: float) -> tuple[Objects, Sequence[Failed]]:
        """Return what has come."""
        from confluent_kafka import Message

        found = self._consumer.consume(most, seconds)
        # `map` over the methods themselves: Python code for each message costs as much as all else here.
        # By identity: an error that is compared with None raises.
        if all(map(is_, map(Message.error, found), repeat(None))):
            return Objects(found), ()
        errors = [message for message in found if message.error() is not None]
        failed = [Failed(message.error(), message.offset()) for message in errors]
        return Objects(message for message in found if message.error() is None), failed

    def end(self) -> None:
        """Fetch no more."""
        self._consumer.unassign()
