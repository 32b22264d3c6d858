"""DataFrames of messages: a binary column of values, decoded in the workers by the reader of messages.

The workers import this module: it imports PySpark only on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cep.counts import Counts
from cep.errors import InputError
from cep.expression import Type
from cep.formats.ahead import ANY_TIME_US, AheadGuard
from cep.formats.chunks import Chunk, no_events
from cep.formats.lines import lines_of_column
from cep.formats.payloads.registry import payload_format
from cep.formats.protocol import RecordFormat
from cep.formats.text.messages import MessageReader, Messages, tombstones
from cep.schema.stream import Stream
from spark_runtime.event_time.partitions import place_text
from spark_runtime.sources.protocol import Packs
from spark_runtime.sources.schema_registry import SchemaRegistry, is_address
from spark_runtime.wire.loaded import freeze_loaded
from spark_runtime.wire.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_PLACE = ("topic", "partition", "offset")
"""The columns in which Spark's own Kafka source says where a message is."""

_VALUE, _TOPIC, _PARTITION, _OFFSET = "_value", "_topic", "_partition", "_offset"
_MORE = "_column"

NOWHERE = -1
"""The position of a message without one."""

PASS_OVER, DEAD_LETTER = "pass_over", "dead_letter"


@dataclass(frozen=True)
class MessageFrame:
    """A DataFrame of messages, and how to read them; `spark_runtime.messages` creates it.

    `columns`: column of the DataFrame -> column of the stream.
    """

    frame: DataFrame
    stream: Stream
    value_format: RecordFormat
    column: str = "value"
    columns: Mapping[str, str] = field(default_factory=dict)
    has_dead_tombstones: bool = False

    def reader(self, packer: Packs, *, may_be_late: bool, is_planned: bool = False) -> FrameReader:
        """Return the function that turns the rows of `selected` into parcels, in the workers.

        `is_planned`: a pipeline plans the micro-batches and knows the watermark.
        """
        keys = packer.keys_of(self.stream)
        named = tuple(self.columns.values())
        return FrameReader(
            packer,
            self.stream,
            MessageReader(self.stream, self.value_format, keys, named),
            named,
            has_place=self._has_place,
            has_dead_tombstones=self.has_dead_tombstones,
            may_be_late=may_be_late,
            is_planned=is_planned,
        )

    def selected(self) -> DataFrame:
        """Return the columns that the reader takes."""
        return self.frame.select(*self._selected())

    @property
    def _has_place(self) -> bool:
        return all(name in self.frame.columns for name in _PLACE)

    def _selected(self) -> Iterator[SparkColumn]:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql import types as T  # noqa: N812

        from spark_runtime.dataflow.schema import quoted

        yield quoted(self.column).cast("binary").alias(_VALUE)
        if self._has_place:
            yield quoted("topic").cast("string").alias(_TOPIC)
            yield quoted("partition").cast("bigint").alias(_PARTITION)
            yield quoted("offset").cast("bigint").alias(_OFFSET)
        for number, name in enumerate(self.columns):
            kind = self.frame.schema[name].dataType
            value = quoted(name)
            # A stream's column of timestamps accepts a time, or the text of one.
            as_time = isinstance(kind, T.TimestampType) and self._is_time(self.columns[name])
            value = F.unix_micros(value) if as_time else value.cast("string")
            yield value.alias(f"{_MORE}{number}")

    def _is_time(self, column: str) -> bool:
        found = self.stream.field(column)
        return found is not None and found.type is Type.TIMESTAMP


@dataclass(frozen=True)
class FrameReader:
    """Turns messages into parcels, in the workers."""

    packer: Packs
    stream: Stream
    reader: MessageReader
    columns: tuple[str, ...]
    has_place: bool
    has_dead_tombstones: bool
    may_be_late: bool
    is_planned: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the parcels of batches of messages."""
        freeze_loaded()
        if not self.is_planned:
            yield from self._parcels(batches, AheadGuard(ANY_TIME_US), None)
            return
        plan = Plan.of_task()
        ahead, watermark_us = plan.reached.guard(self.stream), plan.reached.watermark_us
        yield from self.packer.held_back(self._parcels(batches, ahead, watermark_us), plan.told_us)

    def _parcels(
        self, batches: Iterable[pa.RecordBatch], ahead: AheadGuard, watermark_us: int | None
    ) -> Iterator[pa.RecordBatch]:
        counts = Counts()
        for batch in batches:
            for origin, part in self._by_origin(pa.Table.from_batches([batch]).combine_chunks()):
                for chunk in self._chunks(origin, part, ahead):
                    yield from self.packer.chunk(
                        chunk, self.stream, watermark_us, counts, may_be_late=self.may_be_late
                    )
        yield from self.packer.counted(counts)

    def _by_origin(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield the messages of each partition of a topic. A task of Spark's Kafka source reads one."""
        if not self.has_place:
            yield self.stream.name, rows
            return
        places = pa.table([rows.column(_TOPIC), rows.column(_PARTITION)], names=[_TOPIC, _PARTITION])
        for place in places.group_by([_TOPIC, _PARTITION]).aggregate([]).to_pylist():
            topic, partition = place[_TOPIC], place[_PARTITION]
            part = rows.filter((pc.field(_TOPIC) == topic) & (pc.field(_PARTITION) == partition))
            yield place_text(topic, partition), part

    def _chunks(self, origin: str, rows: pa.Table, ahead: AheadGuard) -> Iterator[Chunk]:
        is_null = pc.is_null(rows.column(_VALUE))
        if self.has_dead_tombstones and pc.any(is_null).as_py():
            empty = self._positions(rows.filter(is_null)).tolist()
            yield no_events(self.stream, origin, tombstones(origin, empty))
        full = rows.filter(pc.invert(is_null)).combine_chunks()
        if full.num_rows:
            given = {
                name: full.column(f"{_MORE}{number}").combine_chunks()
                for number, name in enumerate(self.columns)
            }
            values = lines_of_column(full.column(_VALUE).combine_chunks())
            messages = Messages(origin, values, self._positions(full), given)
            yield self.reader.chunk(messages, ahead)

    def _positions(self, rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        if not self.has_place:
            return np.full(rows.num_rows, NOWHERE, np.int64)
        found: np.ndarray[tuple[int], np.dtype[np.int64]] = rows.column(_OFFSET).to_numpy()
        return found


def message_frame(
    frame: object,
    stream: object,
    value: str,
    *,
    column: str,
    columns: Mapping[str, str] | None,
    tombstones: str,
    settings: Mapping[str, str],
) -> MessageFrame:
    """Return messages that `detect` takes; see `spark_runtime.messages`."""
    from pyspark.sql import DataFrame
    from pyspark.sql import types as T  # noqa: N812

    if not isinstance(frame, DataFrame):
        raise _wrong("frame", frame, "a DataFrame of Spark with a column of values")
    if not isinstance(stream, Stream):
        raise _wrong("stream", stream, "a declared stream: load_streams('streams.yaml')['transactions']")
    if tombstones not in (PASS_OVER, DEAD_LETTER):
        raise _wrong("tombstones", tombstones, f'"{PASS_OVER}" or "{DEAD_LETTER}"')
    given = dict(columns or {})
    missing = [name for name in (column, *given) if name not in frame.columns]
    if missing:
        raise InputError(
            "E0604",
            f"the messages have no column `{missing[0]}`",
            f"their columns are {', '.join(frame.columns)}; say `column` if the values are in another one",
        )
    kind = frame.schema[column].dataType
    if not isinstance(kind, T.BinaryType | T.StringType):
        raise InputError(
            "E0605",
            f"column `{column}` of the messages is {kind.simpleString()}, it must be binary",
            "give the DataFrame itself to detect if it has a column for each field",
        )
    known = [item.name for item in stream.fields]
    unknown = [name for name in given.values() if name not in known]
    if unknown:
        raise InputError(
            "E0841",
            f"stream `{stream.name}` has no column `{unknown[0]}`, which a column of the messages is to be",
            f"declare it, or write one of {', '.join(known)}",
        )
    if double := [name for name in known if list(given.values()).count(name) > 1]:
        raise InputError(
            "E0827",
            f"columns gives column `{double[0]}` of stream `{stream.name}` more than once",
            "name one column of the messages for each column of the stream",
        )
    found = MessageFrame(
        frame, stream, _format(value, settings), column, given, has_dead_tombstones=tombstones == DEAD_LETTER
    )
    MessageReader(stream, found.value_format, (), tuple(given.values())).check()
    return found


def _format(value: str, settings: Mapping[str, str]) -> RecordFormat:
    more = {name: text for name, text in settings.items() if name not in ("registry", "user", "password")}
    url = settings.get("registry")
    if url is None:
        return payload_format(value, {**settings})
    if not is_address(url):
        raise _wrong("registry", url, 'an address, such as "https://registry:8081"')
    access = settings.get("user", ""), settings.get("password", "")
    return payload_format(value, more, SchemaRegistry(url, *access))


def _wrong(name: str, value: object, wanted: str) -> InputError:
    shown = repr(value) if isinstance(value, str | int | float | None) else f"of type {type(value).__name__}"
    return InputError("E0827", f"{name} is {shown}", f"give {wanted}")
