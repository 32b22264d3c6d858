"""What a log of messages is: partitions, positions in them, and messages that can be read again.

A log has two forms. A `MessageLog` says where it is; it travels to the workers. A `LogClient` is connected.
Planning, decoding, tombstones and what is lost are the same for all logs (`planner`, `source`), so a new log
is a `MessageLog`, a `LogClient` and its settings.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from cep.arrays import I64, Mask
from cep.errors import InputError, StateError

PEEK_MESSAGES = 64
"""Messages that tell where event times begin, or end."""

HEADER = "header."
"""Before the name of a header, where something of a message becomes a column."""

Place = tuple[str, str | int]
"""The name of a topic or stream, and which of its partitions."""


class MessageRange(NamedTuple):
    """The messages of a partition from position `start` up to `end`. It stands in checkpoints, as JSON."""

    log: str
    partition: str | int
    start: int
    end: int

    @property
    def place(self) -> Place:
        """The partition."""
        return self.log, self.partition


@dataclass(frozen=True, slots=True)
class Portion:
    """Some messages of one partition, in their order.

    Parameters
    ----------
    values
        The value of each message; None: it has none. They may be `Lines`, which have an empty one instead.
    positions
        int64[n]: what a dead letter has as its position.
    columns
        What was asked for besides the values, by its name in the log: texts, or times as int64 in
        microseconds since 1970; n values each.
    is_none
        bool[n]: with `Lines`, which messages have no value; None: none of them.
    """

    values: Sequence[bytes | None]
    positions: I64
    columns: Mapping[str, pa.Array]
    is_none: Mask | None = None


class RemovedError(Exception):
    """A message is not there any more that was asked for. What was before it has come.

    Parameters
    ----------
    position
        The message, or the first one of those that are gone.
    first
        Where messages begin now; None: `LogClient.begins` says it.
    """

    def __init__(self, position: int, first: int | None = None) -> None:
        super().__init__(position, first)
        self.position = position
        self.first = first


class Incarnation(NamedTuple):
    """What tells a log from one of the same name that was deleted.

    Parameters
    ----------
    text
        What a checkpoint keeps of it, such as an identifier; empty: the server does not tell it.
    is_same
        Whether it is the one that the checkpoint knows.
    """

    text: str
    is_same: bool = True

    @classmethod
    def of(cls, text: str, known: str) -> Incarnation:
        """Return what a server says of a log, compared with what is known; both may be empty."""
        return cls(text or known, not text or not known or text == known)


@dataclass(frozen=True, slots=True)
class LogWords:
    """How messages to a user speak of a log.

    Parameters
    ----------
    noun
        ``topic``.
    where
        The server.
    unknown, lost
        The codes of the errors for a partition that is not there, and for messages that were removed.
    """

    noun: str
    where: str
    unknown: str
    lost: str


class LogClient(Protocol):
    """A connection to a log. The driver has one, and so has each worker.

    A position is a whole number that says how far a partition is read. Positions of one partition grow.
    Each method may raise InputError: the server does not answer, refuses access, or has failed.
    """

    def require_right(self) -> None:
        """Raise InputError if nothing can be read. It takes ten seconds at most."""
        ...

    def places(self) -> Sequence[Place]:
        """Return the partitions that there are now."""
        ...

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the first position that each partition still has."""
        ...

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the position behind each partition."""
        ...

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return what tells each log from one of the same name that was deleted.

        `known`: by log, what the checkpoint knows; an empty text: nothing.
        """
        ...

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return the position of the first message of a time or later; the end if there is none.

        `time_us`: when the message was stored, microseconds since 1970.
        """
        ...

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield the messages of a range, some at a time; a range that is read again gives the same.

        Raises
        ------
        RemovedError
            A message is not there any more.
        """
        ...

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two positions of each partition, `PEEK_MESSAGES` or fewer.

        None: they did not come soon, or are gone.
        """
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class AheadReader(Protocol):
    """A client of a log that has to be read to know where it ends: its positions do not count messages.

    Its `ends` say where `latest` begins; `ends_behind` reads ahead, and remembers what it has seen.
    """

    gaps: Mapping[str, int]
    """By origin, how often messages were missing that may have been removed before they were read."""

    def ends_behind(self, positions: Mapping[Place, int]) -> Mapping[Place, int]:
        """Return how far each partition can be read from a position on; the position itself: not further."""
        ...

    def stop_at_now(self) -> None:
        """Find nothing that is stored later."""
        ...

    def count(self, place: Place, start: int, end: int) -> int:
        """Return how many messages lie between two positions that `ends_behind` has been at."""
        ...

    def behind(self, place: Place, start: int, n: int) -> int:
        """Return the position behind `n` messages more."""
        ...

    def bounds(self, place: Place, start: int, end: int) -> tuple[int, int]:
        """Return what stands in a range for two positions, `start` before `end`; the same at each time."""
        ...

    def forget(self, positions: Mapping[Place, int]) -> None:
        """Forget what was seen before these positions."""
        ...

    def ended(self, positions: Mapping[Place, int]) -> Collection[Place]:
        """Return the partitions that get no more messages and are read to their end."""
        ...


class MessageLog(Protocol):
    """Where a log is. It holds no connection and no secret; it can be compared and hashed."""

    @property
    def connected_to(self) -> Hashable:
        """What a connection depends on: logs that agree in it can share one in a worker."""
        ...

    @property
    def words(self) -> LogWords:
        """How messages to a user speak of it."""
        ...

    @property
    def reads_ahead(self) -> bool:
        """Whether its clients are `AheadReader`s."""
        ...

    def open(self) -> LogClient:
        """Return a connection; raises InputError."""
        ...

    def origin(self, place: Place) -> str:
        """Return a partition as text: ``orders[3]``. It names a source partition, too."""
        ...


def lost(log: MessageLog, place: Place, start: int, first: int, n: int | None) -> InputError:
    """Return the error for `n` messages that were removed before they were read; None: who knows how many."""
    noun, origin = log.words.noun, log.origin(place)
    gone = "messages" if n is None else f"{n:,} messages"
    begins = f"`{origin}` begins at offset {first:,} now" if n is not None else f"`{origin}` begins later now"
    return InputError(
        log.words.lost,
        f"{begins}: {gone} were removed unread",
        f"let the {noun} keep its messages for longer; to count what is gone and go on: `on_lost: go_on`",
    )


def another(log: MessageLog, name: str, now: str, known: str) -> StateError:
    """Return the error for a log that was deleted and made again."""
    noun = log.words.noun
    return StateError(
        log.words.lost,
        f"{noun} `{name}` is not the {noun} that it was: it is {now}, and was {known}",
        "it was deleted and made again, so messages may be lost: start with an empty checkpoint directory; "
        f"to count that, read the new {noun} from its beginning and go on: `on_lost: go_on`",
    )
