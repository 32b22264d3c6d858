"""Arrow types of the columns of events: as prepared, as declared, as reported."""

from __future__ import annotations

import pyarrow as pa

from cep.expression import Type
from cep.schema.stream import Field

DDL_ARROW_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}
"""Arrow type of a column as its stream declares it. Decimals and opaque columns are not in the table."""


EXACT_DIGITS = 15
"""Two different decimals of at most this many digits have different nearest DOUBLEs."""


def reported_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a column in the events of matches: the declared type where values are exact.

    Opaque columns are reported as JSON text. A decimal with more than `EXACT_DIGITS` digits is reported as
    the DOUBLE that rules compute with.
    """
    if field.is_decimal:
        return pa.decimal128(*field.digits) if field.digits[0] <= EXACT_DIGITS else pa.float64()
    return DDL_ARROW_TYPES.get(field.ddl, pa.string())


ARROW_TYPES: dict[Type, pa.DataType] = {
    Type.BOOLEAN: pa.bool_(),
    Type.BIGINT: pa.int64(),
    Type.DOUBLE: pa.float64(),
    Type.STRING: pa.string(),
    Type.TIMESTAMP: pa.int64(),
    Type.INTERVAL: pa.int64(),
    Type.OPAQUE: pa.string(),
}
"""Arrow type of a value in a prepared batch."""
