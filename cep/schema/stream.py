"""Streams from the rules' point of view: fields, event time, tie breakers, lateness."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from cep.expression import Type
from cep.schema.column_types import ColumnType, parse_type

DDL_TYPES: dict[str, Type] = {
    "boolean": Type.BOOLEAN,
    "tinyint": Type.BIGINT,
    "smallint": Type.BIGINT,
    "int": Type.BIGINT,
    "bigint": Type.BIGINT,
    "float": Type.DOUBLE,
    "double": Type.DOUBLE,
    "string": Type.STRING,
    "timestamp": Type.TIMESTAMP,
    "date": Type.TIMESTAMP,  # its midnight in UTC
}
"""Spark DDL type of a field -> type of the rule language. ``decimal(p,s)`` is DOUBLE, all others are OPAQUE.
"""


def canonical_ddl(text: str) -> str | None:
    """Return a DDL type as `Field.ddl` writes it: in lower case, a decimal with both numbers.

    Return None if there is no such type.
    """
    kind = parse_type(text)
    return None if kind is None else str(kind)


MIN_VALID_US = 0
"""Default earliest event time taken as real: 1970-01-01T00:00Z."""

MAX_VALID_US = 7_258_118_400_000_000
"""Default end of real event times (exclusive): 2200-01-01T00:00Z. An event in the far future would
advance the watermark, and then all events after it would be late."""


MAX_AHEAD_US = 366 * 86_400_000_000
"""Default of how far an event's time may lie ahead of the times around it: 366 days. A clock that is wrong by
more than a year is usually wrong by decades. A stream rarely has a gap of more than a year in its times."""

UNITS: dict[str, tuple[int, int]] = {
    "seconds": (1_000_000, 1),
    "milliseconds": (1_000, 1),
    "microseconds": (1, 1),
    "nanoseconds": (1, 1_000),
}
"""Unit of a count since 1970 -> the factor and the divisor that turn the count into microseconds."""


@dataclass(frozen=True, slots=True, repr=False)
class Field:
    """A column of a stream.

    `ddl` is the type as `canonical_ddl` writes it. The other settings describe the value in the data:

    - `unit`: the value is a count since 1970 in this unit of `UNITS`;
    - `format`: the value is a string in this format (`time_formats`);
    - `zone`: the time zone of a time without a zone;
    - `path`: the column or field of the data, one part for each level of nesting, if it is not called `name`;
    - `element`: that field is an array, and the value is inside it: an index from 0, then names and indices.
    """

    name: str
    ddl: str
    unit: str = ""
    format: str = ""
    zone: str = ""
    path: tuple[str, ...] = ()
    element: tuple[str | int, ...] = ()

    def __repr__(self) -> str:
        return f"Field({self.name} {self.declared})"

    @property
    def place(self) -> tuple[str, ...]:
        """The place of the value in an object or a row, or of the array with it: a name for each level."""
        return self.path or (self.name,)

    @property
    def column(self) -> str:
        """The name of the column in a format that has no nesting."""
        inside = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in self.element)
        return "".join((".".join(self.place), *inside))

    @property
    def declared(self) -> str:
        """The type, followed by the form of the value in the data."""
        form = f"unit: {self.unit}" if self.unit else f"format: {self.format}" if self.format else ""
        return f"{self.ddl} ({form})" if form else self.ddl

    @property
    def type(self) -> Type:
        """The field's type in rules."""
        return Type.DOUBLE if self.is_decimal else DDL_TYPES.get(self.ddl, Type.OPAQUE)

    @property
    def column_type(self) -> ColumnType:
        """The declared type."""
        kind = parse_type(self.ddl)
        assert kind is not None, self.ddl
        return kind

    @property
    def is_decimal(self) -> bool:
        """Whether rules see the nearest DOUBLE of the field's values."""
        return self.ddl.startswith("decimal")

    @property
    def digits(self) -> tuple[int, int]:
        """The number of digits of a decimal, and how many of them are after the point."""
        digits, places = self.column_type.digits
        return digits, places


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """How the CSV files of a stream are written.

    `quote` is empty if the files quote nothing. `columns` names the columns of a file without a header. If
    `columns` is empty, such a file has the columns of the schema. In numbers `decimal` precedes the
    fraction, and `thousands`, if it is not empty, may be between groups of three digits.
    """

    delimiter: str = ","
    quote: str = '"'
    has_header: bool = True
    columns: tuple[str, ...] = ()
    encoding: str = "utf-8"
    decimal: str = "."
    thousands: str = ""

    @property
    def number_form(self) -> str:
        """How numbers are written, if not in the usual form: `` with decimal `,` ``."""
        decimal = f"decimal `{self.decimal}`" if self.decimal != "." else ""
        sign = self.thousands.encode("unicode_escape").decode()  # some blanks cannot be printed
        thousands = f"thousands `{sign}`" if sign else ""
        words = " and ".join(filter(None, (decimal, thousands)))
        return f" with {words}" if words else ""


COMMA_SEPARATED = CsvLayout()
"""The layout of RFC 4180, with a header."""


@dataclass(frozen=True, slots=True)
class Role:
    """How an event takes part in a partition: as an event of `stream`, by the columns `key`."""

    stream: str
    key: tuple[str, ...]


def qualified(stream: str, column: str) -> str:
    """Return the name of a column in a rule over several streams."""
    if "." in stream or "." in column:
        return f"`{stream}`.`{column}`"
    return f"{stream}.{column}"


MAX_BEHIND_US = 366 * 86_400_000_000
"""Default of how long before its receipt an event may have happened, by a device's clock: 366 days."""


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The columns from which the true time of an event is estimated although its device's clock is wrong.

    Parameters
    ----------
    device
        The column that names the device.
    event, sent
        When the event happened and when its record was sent, by the clock of the device.
    received
        When the record was received, by the clock of a server.
    max_behind_us
        An event that happened more than this before its receipt is malformed.
    """

    device: str
    event: str
    sent: str
    received: str
    max_behind_us: int = MAX_BEHIND_US

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that it reads."""
        return self.device, self.event, self.sent, self.received


DEFAULT_MAX_ROWS = 1_000_000
"""Rows of a replicated or static table, where it does not say: every key group keeps all of them."""


class TableKind(StrEnum):
    """Where the rows of a table are needed."""

    CHANGELOG = "changelog"  # where the key of the rule is: the table has the same key
    REPLICATED = "replicated"  # everywhere
    STATIC = "static"  # everywhere, without event time: they are valid always


@dataclass(frozen=True, slots=True)
class TableSettings:
    """What makes a stream a table: its events are versions of rows, distinguished by a key.

    - `key`: the columns that distinguish the rows. A version without one of them is malformed.
    - `kind`: where the rows are needed.
    - `op`: the column that says what was done with the row (`cep.formats.table_rows`); None: each version is
      the row from its time on.
    - `max_rows`: rows that may exist at one time; more are an error. None: no limit.
    """

    key: tuple[str, ...]
    kind: TableKind = TableKind.CHANGELOG
    op: str | None = None
    max_rows: int | None = None


_MAX_SHOWN = 8
"""Columns that the text of a stream shows."""


@dataclass(frozen=True, slots=True, repr=False)
class Stream:
    """One declared stream, or a table: a stream whose events are versions of rows.

    The `tie_break` columns order events of equal event time. With `deduplicate`, events of one key that agree
    in event time and all tie breakers are one event that was delivered more than once. An event is malformed
    if its time is outside [`min_valid_us`, `max_valid_us`) or more than `max_ahead_us` ahead of the times
    around it (`cep.formats.ahead`). `csv` describes the CSV files of the stream. With a `device_clock`, the
    event time is not a column of the data: it is estimated. The event time of a static `table` is empty.

    The functions that use a stream refuse one that a streams file could not declare: with an InputError a
    setting of another type (E0827), with a RuleError another value, such as an event time that is not a
    column.
    """

    name: str
    fields: tuple[Field, ...]
    event_time: str
    tie_break: tuple[str, ...] = ()
    lateness_us: int = 0
    deduplicate: bool = False
    min_valid_us: int = MIN_VALID_US
    max_valid_us: int = MAX_VALID_US
    max_ahead_us: int = MAX_AHEAD_US
    csv: CsvLayout = COMMA_SEPARATED
    device_clock: DeviceClock | None = None
    table: TableSettings | None = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{field.name} {field.ddl}" for field in self.fields[:_MAX_SHOWN])
        more = len(self.fields) - _MAX_SHOWN
        what = "Stream" if self.table is None else "Table"
        return f"{what}({self.name}: {shown}{f', and {more} more' if more > 0 else ''})"

    @property
    def is_static(self) -> bool:
        """Whether it is a table without event time."""
        return self.table is not None and self.table.kind is TableKind.STATIC

    def field(self, name: str) -> Field | None:
        """Return the field called `name`, or None."""
        return next((field for field in self.fields if field.name == name), None)

    def by_receipt(self) -> Stream:
        """Return a stream with a `device_clock` as one whose event time is the time of receipt."""
        assert self.device_clock is not None
        received = self.device_clock.received
        fields = tuple(field for field in self.fields if field.name != self.event_time)
        return replace(self, fields=fields, event_time=received, tie_break=(), device_clock=None)
