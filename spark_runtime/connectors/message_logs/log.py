"""The protocol of a log of messages: partitions, positions in them, and messages that can be read again.

A log has two forms. A `MessageLog` says where the log is, and is sent to the workers. A `LogClient` is
connected to it. Planning, decoding, tombstones and lost messages are the same for all logs (`planner`,
`source`), so a new log needs a `MessageLog`, a `LogClient` and its settings.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from cep.arrays import I64, Mask
from cep.errors import StateError
from spark_runtime.sources.protocol import GoneError

PEEK_MESSAGES = 64
"""How many messages determine where event times start or end."""

HEADER = "header."
"""The prefix of the name of a header that becomes a column."""

Place = tuple[str, str | int]
"""The name of a topic or stream, and one of its partitions."""


class MessageRange(NamedTuple):
    """The messages of a partition from position `start` up to `end`. Checkpoints contain it, as JSON."""

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
    """Some messages of one partition, in order.

    - `values`: the value of each message; None if it is missing. In `Lines`, a missing value is empty.
    - `positions`: int64[n]: the positions that dead letters name.
    - `columns`: the requested metadata, by its name in the log: texts, or times as int64 in microseconds
      since 1970; n values each.
    - `is_none`: bool[n]: with `Lines`, which messages have no value; None if all have one.
    """

    values: Sequence[bytes | None]
    positions: I64
    columns: Mapping[str, pa.Array]
    is_none: Mask | None = None


class RemovedError(Exception):
    """A requested message no longer exists. All messages before it were returned.

    `position`: the message, or the first one of those that were removed. `first`: the first remaining
    position; None: `LogClient.begins` returns it.
    """

    def __init__(self, position: int, first: int | None = None) -> None:
        super().__init__(position, first)
        self.position = position
        self.first = first


class Incarnation(NamedTuple):
    """The identity of a log, which distinguishes it from a deleted log with the same name.

    `text`: the text that a checkpoint stores, such as an identifier; empty if the server has none. `is_same`:
    whether it is the log in the checkpoint.
    """

    text: str
    is_same: bool = True

    @classmethod
    def of(cls, text: str, known: str) -> Incarnation:
        """Return the identity of a log from the server's text and the known one; both may be empty."""
        return cls(text or known, not text or not known or text == known)


@dataclass(frozen=True, slots=True)
class LogWords:
    """The words for a log in messages to a user.

    `noun`: ``topic``. `where`: the server. `unknown` and `lost`: the codes of the errors for a missing
    partition, and for removed messages.
    """

    noun: str
    where: str
    unknown: str
    lost: str


class LogClient(Protocol):
    """A connection to a log. The driver has one, and each worker has one.

    A position is an integer that says how far a partition is read. The positions of a partition increase.
    Each method may raise InputError: the server does not answer, refuses access, or has failed.
    """

    def require_right(self) -> None:
        """Raise InputError if the log cannot be read. It takes at most ten seconds."""

    def places(self) -> Sequence[Place]:
        """Return the existing partitions."""

    def begins(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the first position that each partition still has."""

    def ends(self, places: Collection[Place]) -> Mapping[Place, int]:
        """Return the position after the end of each partition."""

    def incarnations(self, known: Mapping[str, str]) -> Mapping[str, Incarnation]:
        """Return the identity of each log.

        `known`: by log, the text in the checkpoint; empty if it is unknown.
        """

    def at_time(self, places: Collection[Place], time_us: int) -> Mapping[Place, int]:
        """Return the position of the first message at a time or later; the end if there is none.

        `time_us`: when the message was stored, microseconds since 1970.
        """

    def read(self, part: MessageRange, columns: Sequence[str]) -> Iterator[Portion]:
        """Yield portions of the messages of a range; reading a range again yields the same.

        Raises RemovedError: a message no longer exists.
        """

    def peek(
        self, ranges: Mapping[Place, tuple[int, int]], columns: Sequence[str]
    ) -> Mapping[Place, Portion | None]:
        """Return the first messages between two positions of each partition, `PEEK_MESSAGES` or fewer.

        None: they did not arrive in time, or are gone.
        """

    def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class AheadReader(Protocol):
    """A client of a log whose positions do not count messages: the log must be read to find its end.

    Its `ends` returns where `latest` starts; `ends_behind` reads ahead, and remembers what it has seen.
    """

    gaps: Mapping[str, int]
    """By origin, how often messages were missing, perhaps because they were removed before they were read."""

    def ends_behind(self, positions: Mapping[Place, int]) -> Mapping[Place, int]:
        """Return how far each partition can be read from a position; the position itself if not further."""

    def stop_at_now(self) -> None:
        """Ignore messages that are stored later."""

    def count(self, place: Place, start: int, end: int) -> int:
        """Return the number of messages between two positions that `ends_behind` has passed."""

    def behind(self, place: Place, start: int, n: int) -> int:
        """Return the position after `n` more messages."""

    def bounds(self, place: Place, start: int, end: int) -> tuple[int, int]:
        """Return the two numbers that represent `start` and `end` in a range; they are always the same."""

    def before_next(self, place: Place, position: int) -> int:
        """Return a position before the same next message: who reads from it later finds out if that is gone.

        `ends_behind` has passed the message.
        """

    def forget(self, positions: Mapping[Place, int]) -> None:
        """Forget messages before these positions."""

    def ended(self, positions: Mapping[Place, int]) -> Collection[Place]:
        """Return the partitions that get no more messages and are read to their end."""


class MessageLog(Protocol):
    """The place of a log. It contains no connection and no secret; it can be compared and hashed."""

    @property
    def connected_to(self) -> Hashable:
        """The key of a connection: logs with equal keys share a connection in a worker."""

    @property
    def words(self) -> LogWords:
        """The words for the log in messages to a user."""

    @property
    def reads_ahead(self) -> bool:
        """Whether its clients are `AheadReader`s."""

    def open(self) -> LogClient:
        """Return a connection; raises InputError."""

    def origin(self, place: Place) -> str:
        """Return a partition as text, ``orders[3]``, which is also the name of a source partition."""


def lost(log: MessageLog, place: Place, first: int, n: int | None) -> GoneError:
    """Return the error for `n` messages that were removed before they were read; None: unknown number."""
    noun, origin = log.words.noun, log.origin(place)
    gone = "messages" if n is None else f"{n:,} messages"
    begins = f"`{origin}` begins at offset {first:,} now" if n is not None else f"`{origin}` begins later now"
    return GoneError(
        log.words.lost,
        begins,
        f": {gone} were removed unread",
        f"let the {noun} keep its messages for longer; to count what is gone and continue: `on_lost: go_on`",
    )


def another(log: MessageLog, name: str, now: str, known: str) -> StateError:
    """Return the error for a log that was deleted and recreated."""
    noun = log.words.noun
    return StateError(
        log.words.lost,
        f"{noun} `{name}` is not the {noun} that it was: it is {now}, and was {known}",
        "it was deleted and created again, so messages may be lost: start with an empty checkpoint "
        f"directory; to count that, read the new {noun} from its beginning and continue: `on_lost: go_on`",
    )
