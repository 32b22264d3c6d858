"""Reads the bounds of partitions and their messages from Kafka."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from cep.errors import InputError
from spark_runtime.connectors.kafka.connection import Client
from spark_runtime.connectors.kafka.taking import Failed, Taken, Taker
from spark_runtime.connectors.message_logs.log import MessageRange, Place, RemovedError
from spark_runtime.event_time.partitions import place_text

MOST_MESSAGES = 50_000
"""Most messages that are decoded together."""

MOST_BYTES = 8 << 20
"""Approximate bytes of values that are decoded together."""

TAKEN = 10_000
"""Most messages that one call takes from librdkafka."""

_TAKE_SECONDS = 0.05
_PEEK_TAKE_SECONDS = 0.002
_SILENT_SECONDS = 60.0
"""Seconds after which a broker that returns no messages, though it has some, has failed."""

_BEHIND_SECONDS = 2.0
"""Seconds for which a broker may report that a partition ends before messages that it or another broker has
reported: the leader of a new or moved partition learns a little later what all brokers have."""

_CALL_SECONDS = 30.0
NO_ID = "A" * 22
"""The identifier of a topic on brokers without identifiers: 16 zero bytes."""

_BEGIN, _END = -2, -1  # in place of a time
_EOF, _NO_OFFSET, _NO_GROUP = -191, -140, 30
_TIMED_OUT = -185
_PASSING = frozenset((-190, -188, 3, 5, 6, 74, 75, 78))
"""Unknown partition or topic, no leader, another leader epoch, offset not available: the errors of a new or
moving partition."""

_PASSING_SECONDS = 10.0
_RETRY_SECONDS = 0.1

T = TypeVar("T", bound=Taken)


def begins(client: Client, places: Sequence[Place]) -> dict[Place, int]:
    """Return the first offset that each partition still has."""
    return first_offsets(client, dict.fromkeys(places, _BEGIN))


def ends(client: Client, places: Sequence[Place]) -> dict[Place, int]:
    """Return the end offset of each partition that this reader may see: before open transactions."""
    return first_offsets(client, dict.fromkeys(places, _END))


def first_offsets(client: Client, times_ms: Mapping[Place, int]) -> dict[Place, int]:
    """Return, by partition, the first offset at a time or later; -1 if there is none.

    One call for each broker. `times_ms`: milliseconds since 1970. Raises InputError: a broker does not
    answer, refuses access, or has no such partition.
    """
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + _PASSING_SECONDS
    while times_ms:
        try:
            return _told_offsets(client, times_ms)
        except KafkaException as error:
            topic = next(iter(times_ms))[0]
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise client.error(error, f"topic `{topic}`") from error
            time.sleep(_RETRY_SECONDS)
            _learn_partitions(client, topic)
    return {}


def _told_offsets(client: Client, times_ms: Mapping[Place, int]) -> dict[Place, int]:
    from confluent_kafka import KafkaException, TopicPartition

    asked = [TopicPartition(place[0], int(place[1]), at_ms) for place, at_ms in times_ms.items()]
    answers = client.client.offsets_for_times(asked, timeout=30)
    for answer in answers:
        if answer.error is not None:
            raise KafkaException(answer.error)
    return {(answer.topic, answer.partition): answer.offset for answer in answers}


def topic_ids(admin: Client, topics: Sequence[str]) -> dict[str, str]:
    """Return, by topic, its identifier in the cluster; empty if the cluster has none.

    Raises InputError: a broker does not answer, refuses access, or has no such topic.
    """
    from confluent_kafka import KafkaException, TopicCollection

    found = {}
    for topic, described in admin.client.describe_topics(TopicCollection(list(topics))).items():
        try:
            told = str(described.result(_CALL_SECONDS).topic_id)
        except KafkaException as error:
            raise admin.error(error, f"topic `{topic}`") from error
        found[topic] = "" if told == NO_ID else told
    return found


def portions(client: Client, taker: Taker[T], part: MessageRange) -> Iterator[list[T]]:
    """Yield portions of the messages of a range, each as a list of the parts taken from librdkafka.

    `taker` takes them; `client` learns of partitions and translates errors. Raises RemovedError: a message no
    longer exists. All messages before it have been yielded. Raises InputError: a broker does not answer,
    refuses access, or has fewer messages than it had.
    """
    what = place_text(part.log, part.partition)
    pending: list[T] = []
    n, n_bytes, position, is_done = 0, 0, part.start, False
    heard = time.monotonic()
    ends: int | None = None  # end of the partition; its broker may lag
    taker.begin(part)
    try:
        while not is_done:
            found, failed = taker.take(min(TAKEN, part.end - position), _TAKE_SECONDS)
            if failed:
                told = _end(client, failed, part)
                ends = ends if told is None else told
                is_done = ends is not None and ends >= part.end
            elif len(found):
                ends = None
            if len(found):
                position = found.last + 1
                if position >= part.end:
                    found = found.before(part.end)
                    is_done = True
                pending.append(found)
                n += len(found)
                n_bytes += found.n_bytes
                heard = time.monotonic()
            elif ends is not None and not is_done and time.monotonic() - heard > _BEHIND_SECONDS:
                raise InputError(
                    "E0854",
                    f"`{what}` ends at offset {ends:,}, and had messages up to {part.end - 1:,}",
                    "a broker has lost messages; start with an empty checkpoint directory",
                )
            elif time.monotonic() - heard > _SILENT_SECONDS:
                raise client.error(_failure(_TIMED_OUT), f"`{what}`")
            is_full = n >= MOST_MESSAGES or n_bytes >= MOST_BYTES
            if n and (is_full or is_done):
                yield pending
                pending, n, n_bytes = [], 0, 0
                heard = time.monotonic()
    except RemovedError:
        if n:
            yield pending
        raise RemovedError(position) from None
    finally:
        taker.end()


def _end(client: Client, failed: Sequence[Failed], part: MessageRange) -> int | None:
    """Return the reported end of the partition, or None; raise an error for any other failure."""
    found = None
    for error, offset in failed:
        code = error.code()
        if code == _NO_OFFSET:
            raise RemovedError(part.start)
        if code == _EOF:
            found = offset
        elif code in _PASSING:
            _learn_partitions(client, part.log)
        elif code != _NO_GROUP:  # the group is never used
            raise client.error(error, f"topic `{part.log}`")
    return found


def _learn_partitions(client: Client, topic: str) -> None:
    """Refresh a client's list of a topic's partitions: one may be newer than the list."""
    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        client.client.list_topics(topic, timeout=5)


def first_messages(
    client: Client, ranges: Mapping[Place, tuple[int, int]], most: int, seconds: float
) -> dict[Place, list[Any] | None]:
    """Return the first messages between two offsets of each partition, `most` or fewer.

    None: they did not arrive within `seconds`, or are gone. Raises InputError if access is refused.
    """
    from confluent_kafka import TopicPartition

    all(map(client.learn, {topic for topic, _ in ranges}))  # the first one without an answer is the last
    found: dict[Place, list[Any]] = {place: [] for place in ranges}
    gone: set[Place] = set()
    open_places = set(ranges)
    deadline = time.monotonic() + seconds
    client.client.assign(
        [TopicPartition(place[0], int(place[1]), start) for place, (start, _) in ranges.items()]
    )
    try:
        while open_places and time.monotonic() < deadline:
            before = open_places.copy()
            for message in client.client.consume(most, _PEEK_TAKE_SECONDS):
                place, error = (message.topic(), message.partition()), message.error()
                if error is not None and error.code() in _PASSING:
                    _learn_partitions(client, message.topic())
                    continue
                if error is not None and error.code() == _NO_GROUP:
                    continue
                if error is not None and error.code() not in (_EOF, _NO_OFFSET):
                    raise client.error(error, f"topic `{message.topic()}`")
                if place not in open_places:
                    continue
                if error is None and message.offset() < ranges[place][1]:
                    found[place].append(message)
                    if len(found[place]) < most and message.offset() < ranges[place][1] - 1:
                        continue
                elif error is not None and error.code() == _NO_OFFSET:
                    gone.add(place)
                open_places.discard(place)
            done = before - open_places
            if done and open_places:
                # A broker returns whole batches of a producer, and of only one partition if they exceed the
                # requested size. A partition that is fetched further would delay the others.
                client.client.incremental_unassign([TopicPartition(name, int(n)) for name, n in done])
    finally:
        client.client.unassign()
    return {
        place: None if place in gone or (place in open_places and not messages) else messages
        for place, messages in found.items()
    }


def require_right(client: Client, topic: str, partition: int) -> None:
    """Fetch from the end of a partition; raise InputError if access is refused."""
    at = ends(client, [(topic, partition)])[topic, partition]
    first_messages(client, {(topic, partition): (at, at + 1)}, 1, 5)


def _failure(code: int) -> Any:
    from confluent_kafka import KafkaError

    return KafkaError(code)
