"""Streams as rules see them: fields, event time, tie breakers, lateness."""

from __future__ import annotations

from dataclasses import dataclass

from cep.column_types import ColumnType, parse_type
from cep.expression import Type

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
"""Spark DDL type of a field -> type of the rule language; ``decimal(p,s)`` is DOUBLE, too, others OPAQUE."""


def canonical_ddl(text: str) -> str | None:
    """Return a DDL type as `Field.ddl` has it: lower case, decimals with both numbers; None: no such type."""
    kind = parse_type(text)
    return None if kind is None else str(kind)


MIN_VALID_US = 0
"""Default earliest event time taken as real: 1970-01-01T00:00Z."""

MAX_VALID_US = 7_258_118_400_000_000
"""Default end of real event times (exclusive): 2200-01-01T00:00Z. One event far in the future would
drag the watermark along and make all that follow late."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a stream; `ddl` is a type as `canonical_ddl` writes it."""

    name: str
    ddl: str

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
        """Of a decimal: how many digits it has, and how many of them after the point."""
        digits, places = self.column_type.digits
        return digits, places


@dataclass(frozen=True, slots=True)
class Role:
    """How an event takes part in a partition: as an event of `stream`, by the columns `key`."""

    stream: str
    key: tuple[str, ...]


def qualified(stream: str, column: str) -> str:
    """Return the name of a stream's column among those of several streams."""
    if "." in stream or "." in column:
        return f"`{stream}`.`{column}`"
    return f"{stream}.{column}"


@dataclass(frozen=True, slots=True)
class Stream:
    """One declared stream.

    `tie_break` columns order events of equal event time. With `deduplicate`, events of one key that agree
    in event time and all tie breakers are one event, delivered more than once. An event whose time is outside
    [`min_valid_us`, `max_valid_us`) is malformed.
    """

    name: str
    fields: tuple[Field, ...]
    event_time: str
    tie_break: tuple[str, ...] = ()
    lateness_us: int = 0
    deduplicate: bool = False
    min_valid_us: int = MIN_VALID_US
    max_valid_us: int = MAX_VALID_US

    def field(self, name: str) -> Field | None:
        """Return the field called `name`, or None."""
        return next((field for field in self.fields if field.name == name), None)
