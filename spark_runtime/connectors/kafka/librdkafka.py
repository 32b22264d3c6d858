"""Reads Kafka messages as columns, through librdkafka's own interface and ctypes.

confluent_kafka creates an object for each message. Creating, unpacking and collecting the objects takes 1.3
microseconds a message, more than decoding it. librdkafka itself returns an array of addresses, from which
numpy reads lengths and offsets. This module uses the public interface (`rdkafka.h`) of the library that
confluent_kafka has loaded. If that fails, or is off (`SWITCH`), messages are read as objects.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cep.arrays import I64, U8, Mask
from cep.formats.lines import Lines
from cep.jit.foreign import call_each
from spark_runtime.connectors.kafka.connection import LEARN_SECONDS, Connection, Noted
from spark_runtime.connectors.kafka.taking import Failed
from spark_runtime.connectors.message_logs.log import MessageRange

SWITCH = "CEP_KAFKA_COLUMNS"
"""Environment variable of a worker: with `off`, messages are read as objects."""

_CONSUMER, _NO_CLOSE = 1, 8
_ERROR_BYTES = 512

# The words of 8 bytes in a `rd_kafka_message_t`.
_ERROR, _VALUE, _LENGTH, _KEY, _KEY_LENGTH, _OFFSET, _WORDS = 0, 3, 4, 5, 6, 7, 9

_NEAR = 256
"""Values with fewer bytes between them are copied together, including these bytes. It is less than a page of
memory, so the bytes between two readable values are readable, too."""

_ErrorCallback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


class _Library:
    """The library's functions that are used, with their types."""

    def __init__(self, file: str) -> None:
        library = ctypes.CDLL(file)
        address, number, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p

        def function(name: str, result: Any, *parts: Any) -> Any:
            found = getattr(library, f"rd_kafka_{name}")
            found.restype, found.argtypes = result, parts
            return found

        self.version = function("version_str", text)
        self.conf_new = function("conf_new", address)
        self.conf_set = function("conf_set", number, address, text, text, text, ctypes.c_size_t)
        self.conf_destroy = function("conf_destroy", None, address)
        self.set_error_cb = function("conf_set_error_cb", None, address, _ErrorCallback)
        self.new = function("new", address, number, address, text, ctypes.c_size_t)
        self.poll_set_consumer = function("poll_set_consumer", number, address)
        self.get_queue = function("queue_get_consumer", address, address)
        self.queue_destroy = function("queue_destroy", None, address)
        self.destroy = function("destroy_flags", None, address, number)
        self.list_new = function("topic_partition_list_new", address, number)
        self.list_add = function("topic_partition_list_add", address, address, text, ctypes.c_int32)
        self.set_offset = function(
            "topic_partition_list_set_offset", number, address, text, ctypes.c_int32, ctypes.c_int64
        )
        self.list_destroy = function("topic_partition_list_destroy", None, address)
        self.assign = function("assign", number, address, address)
        self.query_offsets = function(
            "query_watermark_offsets", number, address, text, ctypes.c_int32, address, address, number
        )
        self.consume = function(
            "consume_batch_queue", ctypes.c_ssize_t, address, number, address, ctypes.c_size_t
        )
        destroy = function("message_destroy", None, address)
        self.message_destroy = ctypes.cast(destroy, address).value or 0  # for `call_each`


@cache
def _library() -> _Library | None:
    """Return the library that confluent_kafka has loaded; None if it cannot be used like this."""
    import confluent_kafka
    from confluent_kafka import cimpl

    if sys.maxsize < 1 << 32 or sys.byteorder != "little":
        return None
    try:
        found = _Library(str(cimpl.__file__))  # also finds symbols of its dependencies
    except (OSError, AttributeError):
        return None
    return found if found.version().decode() == confluent_kafka.libversion()[0] else None


@dataclass(frozen=True, slots=True)
class Columns:
    """Messages as columns; see `Taken`.

    - `offsets`: int64[n].
    - `values`: the n values; a missing value is empty.
    - `is_none`: bool[n]: which values are missing.
    - `keys`: the n keys, if requested.
    """

    offsets: I64
    values: Lines
    is_none: Mask
    keys: Sequence[bytes | None] = ()

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def n_bytes(self) -> int:
        """Number of bytes of the values, and of the gaps between them."""
        return len(self.values.data)

    @property
    def last(self) -> int:
        """The offset of the last message."""
        return int(self.offsets[-1])

    def before(self, offset: int) -> Columns:
        """Return the messages before an offset."""
        n = int(np.searchsorted(self.offsets, offset))
        return Columns(self.offsets[:n], self.values[:n], self.is_none[:n], self.keys[:n])


class ColumnTaker:
    """Takes messages as columns; see `Taker`. It is a separate consumer.

    `settings`: the settings of librdkafka, as returned by `Connection.config`. `noted`: called with the
    errors that librdkafka reports asynchronously. `most`: maximum number of messages that are taken at a
    time.
    """

    def __init__(self, library: _Library, settings: Mapping[str, Any], noted: Noted, most: int) -> None:
        self._library = library
        self.has_keys = False
        self._known: set[str] = set()
        self._on_error = _ErrorCallback(lambda rk, code, reason, opaque: noted(_error(code, reason)))
        self._pointers = np.zeros(most, np.int64)
        self._client = self._queue = None
        text = ctypes.create_string_buffer(_ERROR_BYTES)
        configuration = library.conf_new()
        for name, value in settings.items():
            if name == "error_cb":
                continue
            written = str(value).lower() if isinstance(value, bool) else str(value)
            if library.conf_set(configuration, name.encode(), written.encode(), text, _ERROR_BYTES):
                library.conf_destroy(configuration)
                raise ValueError(name)
        library.set_error_cb(configuration, self._on_error)
        self._client = library.new(_CONSUMER, configuration, text, _ERROR_BYTES)
        if not self._client:
            library.conf_destroy(configuration)
            raise ValueError(text.value.decode(errors="replace"))
        library.poll_set_consumer(self._client)
        self._queue = library.get_queue(self._client)

    def begin(self, part: MessageRange) -> None:
        """Start fetching at the start of a range."""
        place = part.log.encode(), int(part.partition)
        self._learn(part.log, place)
        wanted = self._library.list_new(1)
        self._library.list_add(wanted, *place)
        self._library.set_offset(wanted, *place, part.start)
        self._library.assign(self._client, wanted)
        self._library.list_destroy(wanted)

    def _learn(self, topic: str, place: tuple[bytes, int]) -> None:
        """Learn of a topic once, as `Client.learn` does."""
        if topic not in self._known:
            ends = np.zeros(2, np.int64)  # any question to the leader of a partition learns who leads
            low, high = ends.ctypes.data, ends[1:].ctypes.data
            self._library.query_offsets(self._client, *place, low, high, int(LEARN_SECONDS * 1000))
            self._known.add(topic)

    def take(self, most: int, seconds: float) -> tuple[Columns, Sequence[Failed]]:
        """Return the messages that have arrived."""
        most = min(most, len(self._pointers))
        n = self._library.consume(self._queue, int(seconds * 1000), self._pointers.ctypes.data, most)
        found = self._pointers[: max(n, 0)]
        try:
            return self._read(found)
        finally:
            call_each(self._library.message_destroy, found)

    def end(self) -> None:
        """Stop fetching."""
        self._library.assign(self._client, None)

    def close(self) -> None:
        """Close the connections."""
        if self._client:
            self._library.queue_destroy(self._queue)
            self._library.destroy(self._client, _NO_CLOSE)
            self._client = self._queue = None

    def _read(self, pointers: I64) -> tuple[Columns, Sequence[Failed]]:
        """Return the messages at addresses of `rd_kafka_message_t`."""
        if len(pointers) == 0:
            return NOTHING, ()
        low = int(pointers.min())
        words = _memory(low, int(pointers.max()) - low + 8 * _WORDS).view(np.int64)
        at = (pointers - low) >> 3
        errors = words[at].astype(np.int32)  # the lower half
        failed: list[Failed] = []
        if errors.any():
            for row in np.flatnonzero(errors).tolist():
                message = words[at[row] : at[row] + _WORDS].tolist()
                reason = ctypes.string_at(message[_VALUE], message[_LENGTH]) if message[_VALUE] else b""
                failed.append(Failed(_error(int(errors[row]), reason), message[_OFFSET]))
            at = at[errors == 0]
            if len(at) == 0:
                return NOTHING, failed
        values, lengths = words[at + _VALUE], words[at + _LENGTH]
        is_none = values == 0
        keys: Sequence[bytes | None] = ()
        if self.has_keys:
            places = zip(words[at + _KEY].tolist(), words[at + _KEY_LENGTH].tolist(), strict=True)
            keys = [ctypes.string_at(start, length) if start else None for start, length in places]
        return Columns(words[at + _OFFSET], _copied(values, lengths, is_none), is_none, keys), failed


def column_taker(
    connection: Connection, settings: Mapping[str, Any], noted: Noted, most: int
) -> ColumnTaker | None:
    """Return a `ColumnTaker`, or None if messages must be read as objects. Raises InputError (E0853)."""
    library = None if os.environ.get(SWITCH) == "off" else _library()
    if library is None:
        return None
    try:
        return ColumnTaker(library, connection.config(settings, noted), noted, most)
    except ValueError:  # confluent_kafka accepts more settings than librdkafka, and reports what is wrong
        return None


def together(parts: Sequence[Columns]) -> Columns:
    """Return consecutive columns as one."""
    if len(parts) == 1:
        return parts[0]
    begins = np.cumsum([0, *(len(part.values.data) for part in parts)]).tolist()
    values = Lines(
        np.concatenate([part.values.data for part in parts]),
        np.concatenate([part.values.starts + begin for part, begin in zip(parts, begins, strict=False)]),
        np.concatenate([part.values.ends + begin for part, begin in zip(parts, begins, strict=False)]),
    )
    keys = [key for part in parts for key in part.keys]
    return Columns(
        np.concatenate([part.offsets for part in parts]),
        values,
        np.concatenate([part.is_none for part in parts]),
        keys,
    )


def _copied(addresses: I64, lengths: I64, is_none: Mask) -> Lines:
    """Return values as a block, in order. A missing value becomes an empty one.

    librdkafka stores the values of a fetch one after another, so many are copied at a time.
    """
    if is_none.any():
        # As if it came directly after the previous value.
        behind = np.maximum.accumulate(np.where(is_none, -1, np.arange(len(addresses))))
        known = np.maximum(behind, 0)
        addresses = np.where(is_none, np.where(behind < 0, 0, addresses[known] + lengths[known]), addresses)
        lengths = np.where(is_none, 0, lengths)
    ends = addresses + lengths
    gaps = addresses[1:] - ends[:-1]
    first = np.flatnonzero(np.concatenate([[True], (gaps < 0) | (gaps >= _NEAR)]))
    last = np.append(first[1:], len(addresses)) - 1
    sizes = ends[last] - addresses[first]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    data = np.empty(int(begins[-1]) + 1, np.uint8)
    data[-1] = ord("\n")
    there = data.ctypes.data
    for begin, start, size in zip(
        begins[:-1].tolist(), addresses[first].tolist(), sizes.tolist(), strict=True
    ):
        if size:
            ctypes.memmove(there + begin, start, size)
    shift = np.repeat(begins[:-1] - addresses[first], last - first + 1)
    return Lines(data, addresses + shift, ends + shift)


class _Memory:
    """Bytes at an address, for numpy."""

    def __init__(self, address: int, n_bytes: int) -> None:
        self.__array_interface__ = {
            "data": (address, True),
            "shape": (n_bytes,),
            "typestr": "|u1",
            "version": 3,
        }


def _memory(address: int, n_bytes: int) -> U8:
    return np.asarray(_Memory(address, n_bytes))


def _error(code: int, reason: bytes | None) -> Any:
    from confluent_kafka import KafkaError

    return KafkaError(code, (reason or b"").decode(errors="replace"))


_NO_PLACES = np.zeros(0, np.int64)
NOTHING = Columns(_NO_PLACES, Lines(np.zeros(0, np.uint8), _NO_PLACES, _NO_PLACES), np.zeros(0, bool))
"""No messages."""
