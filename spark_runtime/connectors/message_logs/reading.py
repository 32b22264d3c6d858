"""How the messages of a log become events: the settings that all logs share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cep.formats.lines import Lines
from cep.formats.payloads.registry import payload_format
from cep.formats.protocol import RecordFormat
from cep.formats.text.messages import MessageReader, Messages
from cep.schema.stream import Stream
from spark_runtime.connectors.message_logs.log import MessageLog, Place, Portion

EARLIEST, LATEST = "earliest", "latest"

Begin = str | int | Mapping[str, int]
"""Where a stream starts: `EARLIEST`, `LATEST`, microseconds since 1970, or positions by partition, such as
``{"orders[0]": 17}``."""


@dataclass(frozen=True, slots=True)
class MessageReading:
    """How the messages of a log become events of `stream`.

    - `keys`: keys of the rules: an event with a NULL in each of them is a dead letter.
    - `columns`: the metadata that is a column, by the name of the column.
    - `max_events`: maximum number of messages in a micro-batch.
    - `goes_on_without`: whether messages that were removed before they were read are counted and skipped.
    - `has_dead_tombstones`: whether a message without a value is a dead letter. Otherwise it is only counted.
    - `deletes`: whether a message without a value deletes a row of the table.
    - `start_file`: the file in which a stream records where it started.
    """

    stream: Stream
    log: MessageLog
    begin: Begin = EARLIEST
    value_format: RecordFormat = field(default_factory=lambda: payload_format("json"))
    keys: tuple[tuple[str, ...], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    max_events: int | None = None
    goes_on_without: bool = False
    has_dead_tombstones: bool = False
    deletes: bool = False
    start_file: str = ""

    @property
    def wanted(self) -> tuple[str, ...]:
        """The metadata that is requested from a client (`Portion.columns`)."""
        return tuple(dict.fromkeys(self.columns.values()))

    def message_reader(self) -> MessageReader:
        """Return the reader that decodes values."""
        table = self.stream.table
        upserts = table.op if self.deletes and table is not None else None
        return MessageReader(self.stream, self.value_format, self.keys, tuple(self.columns), upserts)

    def as_messages(self, place: Place, portion: Portion) -> tuple[Messages, Messages | None]:
        """Return the messages with a value, and the others; None if there are none."""
        origin, values, positions = self.log.origin(place), portion.values, portion.positions
        columns = {name: portion.columns[what] for name, what in self.columns.items()}
        full: Sequence[bytes]
        if isinstance(values, Lines):
            if portion.is_none is None:
                return Messages(origin, values, positions, columns), None
            is_full = ~portion.is_none
            full = Lines(values.data, values.starts[is_full], values.ends[is_full])
        else:
            if None not in values:
                return Messages(origin, values, positions, columns), None  # type: ignore[arg-type]
            is_full = np.array([value is not None for value in values], bool)
            full = [value for value in values if value is not None]
        kept = {name: column.filter(pa.array(is_full)) for name, column in columns.items()}
        others = {name: column.filter(pa.array(~is_full)) for name, column in columns.items()}
        empty = Messages(origin, [b""] * (len(values) - len(full)), positions[~is_full], others)
        return Messages(origin, full, positions[is_full], kept), empty
