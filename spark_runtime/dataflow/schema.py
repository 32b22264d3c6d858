"""Spark's types and ours: converts a DataFrame's columns to the typed events of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql import types as T  # noqa: N812
from pyspark.sql.utils import is_remote

from cep.errors import InputError
from cep.expression import Type
from cep.schema.column_types import ColumnType
from cep.schema.decimals import largest_double
from cep.schema.stream import DDL_TYPES, UNITS, Field, Stream, canonical_ddl
from cep.schema.text_values import column_from_text
from cep.schema.time_values import END_US, FIRST_US, times_of_timestamps
from spark_runtime.compat.driver import bigints

_DDL_OF: dict[type[T.DataType], str] = {
    T.BooleanType: "boolean",
    T.ByteType: "tinyint",
    T.ShortType: "smallint",
    T.IntegerType: "int",
    T.LongType: "bigint",
    T.FloatType: "float",
    T.DoubleType: "double",
    T.StringType: "string",
    T.TimestampType: "timestamp",
    T.TimestampNTZType: "timestamp",
    T.DateType: "date",
    T.DecimalType: "decimal",
    T.BinaryType: "binary",
    T.ArrayType: "array",
    T.MapType: "map",
    T.StructType: "struct",
}

_WIDTH = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}

_OUR_OWN = "_#"
"""Columns whose names start with these do not belong to a stream."""

SPARK_TYPES: dict[pa.DataType, T.DataType] = {
    pa.bool_(): T.BooleanType(),
    pa.int64(): T.LongType(),
    pa.float64(): T.DoubleType(),
    pa.string(): T.StringType(),
}
"""Spark's type for each Arrow type of a prepared batch."""

_WORD_OF: dict[Type, str] = {
    Type.BOOLEAN: "a boolean",
    Type.BIGINT: "an integer",
    Type.DOUBLE: "a floating-point number",
    Type.STRING: "a string",
    Type.TIMESTAMP: "a timestamp",
}


def quoted(name: str) -> SparkColumn:
    """Return the column with exactly this name, which may contain dots."""
    return F.col("`" + name.replace("`", "``") + "`")


def stream_of_schema(
    schema: T.StructType,
    name: str,
    event_time: str,
    *,
    tie_break: Sequence[str] = (),
    lateness_us: int = 0,
    deduplicate: bool = False,
) -> Stream:
    """Return the declaration of a DataFrame as a stream: every column whose type rules can use."""
    fields = [
        Field(column.name, ddl)
        for column in schema
        if (ddl := declared_ddl(column.dataType)) is not None and left_out(column) is None
    ]
    ties = tuple(dict.fromkeys(tie_break))
    stream = Stream(name, tuple(fields), event_time, ties, lateness_us, deduplicate)
    for column in (event_time, *ties):
        if column not in schema.names:
            raise missing_columns(schema, stream, [column])
        if (problem := left_out(schema[column])) is not None:
            raise problem
    field = stream.field(event_time)
    if field is None or field.type is not Type.TIMESTAMP:
        kind = schema[event_time].dataType.simpleString()
        raise InputError(
            "E0605",
            f"event time `{event_time}` is {kind}, it must be a timestamp",
            "cast it first: events.withColumn(...)",
        )
    return stream


def left_out(column: T.StructField) -> InputError | None:
    """Return why a column of a DataFrame is not a column of its stream, or None if it is one."""
    if column.name[:1] in _OUR_OWN:  # as is the empty name
        advice = "names that begin with _ or # are the engine's own: events.withColumnRenamed(...)"
        return InputError("E0413", f"`{column.name}` cannot be a column's name", advice)
    if declared_ddl(column.dataType) is None:
        kind = column.dataType.simpleString()
        fact = f"column `{column.name}` of the events is {kind}, a type that rules do not know"
        return InputError("E0605", fact, "cast it first: events.withColumn(...)")
    return None


def declared_ddl(kind: T.DataType) -> str | None:
    """Return the type that a stream declares for columns of a Spark type, or None."""
    found = _column_type(kind)
    return None if found is None else canonical_ddl(str(found))


def _column_type(kind: T.DataType) -> ColumnType | None:
    name = _DDL_OF.get(type(kind), "")
    parts: tuple[T.DataType, ...] = ()
    names: tuple[str, ...] = ()
    match kind:
        case T.DecimalType():
            return ColumnType(name, digits=(kind.precision, kind.scale))
        case T.ArrayType():
            parts = (kind.elementType,)
        case T.MapType():
            parts = (kind.keyType, kind.valueType)
        case T.StructType():
            parts, names = tuple(field.dataType for field in kind), tuple(kind.names)
    inside = tuple(found for part in parts if (found := _column_type(part)) is not None)
    return ColumnType(name, inside, names) if name and len(inside) == len(parts) else None


def typed_events(
    frame: DataFrame, stream: Stream, *extra: SparkColumn, schema: T.StructType | None = None
) -> DataFrame:
    """Return the fields of `stream` in the types of rules: bigint, double, times as microseconds.

    Opaque columns become texts in the workers (`frame_readers.with_texts`). Spark is asked for the schema
    unless it is given. A timestamp without a zone is in the session's time zone, as everywhere in Spark.
    Raises InputError: a declared column is missing, or its type cannot be converted to the declared one.
    """
    schema = schema or frame.schema
    missing = [field.column for field in stream.fields if _kind_of(schema, field) is None]
    if missing:
        raise missing_columns(schema, stream, missing)
    columns = [typed_value(schema, stream, field).alias(field.name) for field in stream.fields]
    return frame.select(*columns, *extra)


def typed_value(schema: T.StructType, stream: Stream, field: Field) -> SparkColumn:
    """Return a field of `stream` in the type of rules.

    Raises InputError: it is missing, or its type cannot be converted to the declared one.
    """
    kind = _kind_of(schema, field)
    if kind is None:
        raise missing_columns(schema, stream, [field.column])
    _require_type(field, kind)
    return _typed(field, kind)


def misfits(frame: DataFrame, stream: Stream) -> dict[Field, SparkColumn]:
    """Return, for each field that has a form, whether a row of `frame` has a value that lacks it.

    `typed_events` contains NULL in place of such a value.
    """
    found = {}
    for field in stream.fields:
        kind = _kind_of(frame.schema, field)
        if kind is not None and (field.unit or field.format or field.zone):
            found[field] = value_at(field).isNotNull() & _typed(field, kind).isNull()
    return found


def _kind_at(schema: T.StructType, place: Sequence[str]) -> T.DataType | None:
    """Return the type of a column, or of a field inside structs; None if it does not exist."""
    kind: T.DataType = schema
    for name in place:
        if not isinstance(kind, T.StructType) or name not in kind.names:
            return None
        kind = kind[name].dataType
    return kind


def _kind_of(schema: T.StructType, field: Field) -> T.DataType | None:
    """Return the type of a field's values; None if the field does not exist."""
    kind = _kind_at(schema, field.place)
    for part in field.element:
        if isinstance(part, int):
            kind = kind.elementType if isinstance(kind, T.ArrayType) else None
        else:
            kind = _kind_at(kind, (part,)) if isinstance(kind, T.StructType) else None
    return kind


def value_at(field: Field) -> SparkColumn:
    """Return the column from which a field is read; it is NULL where a struct or element above it is NULL."""
    column = F.col(".".join("`" + name.replace("`", "``") + "`" for name in field.place))
    for part in field.element:
        column = F.get(column, F.lit(part)) if isinstance(part, int) else column.getField(part)
    return column


def missing_columns(schema: T.StructType, stream: Stream, names: Sequence[str]) -> InputError:
    """Return the error for columns that a DataFrame lacks."""
    word = "column" if len(names) == 1 else "columns"
    return InputError(
        "E0604",
        f"the events have no {word} {', '.join(f'`{name}`' for name in names)}, "
        f"which stream `{stream.name}` declares",
        f"columns of the events: {', '.join(schema.names)}",
    )


def _require_type(field: Field, kind: T.DataType) -> None:
    ddl = _DDL_OF.get(type(kind))
    match field.type:
        case Type.OPAQUE:
            fits = declared_ddl(kind) == field.ddl
        case Type.BIGINT:
            fits = _WIDTH.get(ddl or "", 65) <= _WIDTH[field.ddl]
        case Type.DOUBLE if field.is_decimal:
            fits = ddl == "decimal"
        case Type.TIMESTAMP:
            in_form = (field.unit and ddl in ("double", *_WIDTH)) or (field.format and ddl == "string")
            fits = ddl == field.ddl or bool(in_form)
        case Type.DOUBLE:
            fits = ddl in ("float", "double", "tinyint", "smallint", "int", "decimal")
        case declared:
            fits = DDL_TYPES.get(ddl or "") is declared
    if not fits:
        special = {"decimal": "a decimal", "date": "a date"}.get(field.ddl.partition("(")[0])
        word = special or _WORD_OF.get(field.type, field.ddl)
        others = "an integer, a double or " if field.unit else "a string or " if field.format else ""
        raise InputError(
            "E0605",
            f"column `{field.column}` of the events is {kind.simpleString()}, "
            f"the stream declares {field.declared}",
            f"the column must be {others}{word} that fits; cast it, or change the declaration",
        )


def _typed(field: Field, kind: T.DataType) -> SparkColumn:
    column = value_at(field)
    match field.type:
        case Type.OPAQUE:
            return column if _zoned(kind) == kind else column.cast(_zoned(kind))
        case Type.BIGINT | Type.STRING:
            # A string loses its collation: rules compare byte by byte, also where Spark tests conditions.
            return column.cast("bigint" if field.type is Type.BIGINT else "string")
        case Type.DOUBLE:
            # A `float` is the nearest 32-bit value, whatever the source; a decimal becomes a double first.
            column = column.cast("double") if isinstance(kind, T.DecimalType) else column
            if field.is_decimal:
                return F.when(F.abs(column) <= largest_double(field.digits), column)
            return (column.cast("float") if field.ddl == "float" else column).cast("double")
        case Type.TIMESTAMP if isinstance(kind, T.StringType):
            return _times_of_texts(field)(column)
        case Type.TIMESTAMP if isinstance(kind, T.DoubleType):
            return _times_of_doubles(column, field.unit)
        case Type.TIMESTAMP if isinstance(kind, T.IntegralType):
            return _times_of_integers(column.cast("bigint"), field.unit)
        case Type.TIMESTAMP if field.zone and isinstance(kind, T.TimestampNTZType):
            return _times_of_local(field.zone)(column)
        case Type.TIMESTAMP if field.ddl == "date":
            return F.unix_date(column).cast("bigint") * F.lit(86_400_000_000).cast("bigint")
        case Type.TIMESTAMP:
            return F.unix_micros(column.cast("timestamp") if isinstance(kind, T.TimestampNTZType) else column)
        case _:
            return column


def _zoned(kind: T.DataType) -> T.DataType:
    """Return the type of an opaque value whose times are points in time."""
    match kind:
        case T.TimestampNTZType():
            return T.TimestampType()
        case T.ArrayType():
            return T.ArrayType(_zoned(kind.elementType), kind.containsNull)
        case T.MapType():
            return T.MapType(kind.keyType, _zoned(kind.valueType), kind.valueContainsNull)
        case T.StructType():
            return T.StructType([T.StructField(of.name, _zoned(of.dataType), of.nullable) for of in kind])
    return kind


def _times_of_integers(column: SparkColumn, unit: str) -> SparkColumn:
    """Return counts of a unit as microseconds, like `cep.schema.time_values.times_of_numbers`."""
    factor, divisor = UNITS[unit]
    if divisor > 1:
        return _floor_div(column, divisor)
    return _in_years(F.try_multiply(column, F.lit(factor).cast("bigint")))


def _floor_div(value: SparkColumn, by: int) -> SparkColumn:
    """Return the quotient of two BIGINTs, rounded down."""
    divisor = F.lit(by).cast("bigint")
    towards_zero = F.call_function("div", value, divisor)
    below = (value < 0) & (towards_zero * divisor != value)
    return F.when(below, towards_zero - 1).otherwise(towards_zero)


def _in_years(us: SparkColumn) -> SparkColumn:
    return F.when((us >= F.lit(FIRST_US)) & (us < F.lit(END_US)), us)


def _times_of_doubles(column: SparkColumn, unit: str) -> SparkColumn:
    factor, divisor = UNITS[unit]
    column = _of_64_bits(column)
    scaled = _of_64_bits(column * F.lit(float(factor)) / F.lit(float(divisor)))
    rounded = F.floor(scaled) if divisor > 1 else F.rint(scaled)
    of_whole = _times_of_integers(column.cast("bigint"), unit)
    return F.when(column == F.rint(column), of_whole).otherwise(_in_years(rounded.cast("bigint")))


def _of_64_bits(number: SparkColumn) -> SparkColumn:
    """Return doubles that fit into a BIGINT, else NULL; in Spark NaN is the largest number."""
    return F.when((number >= F.lit(-_TWO_63)) & (number < F.lit(_TWO_63)), number)


_TWO_63 = 2.0**63


def _times_of_texts(field: Field) -> Callable[[SparkColumn], SparkColumn]:
    """Return a function that reads texts as times of a form, in the workers, like the reader of files."""

    def times(texts: pa.Array) -> pa.Array:
        return column_from_text(texts, field)[0]

    return bigints(times, pa.string())


def _times_of_local(zone: str) -> Callable[[SparkColumn], SparkColumn]:
    """Return a function that reads timestamps without a zone as times of `zone`."""

    def times(values: pa.Array) -> pa.Array:
        return times_of_timestamps(values, zone)[0]

    return bigints(times, pa.timestamp("us"))


def of_schema(frame: DataFrame, schema: pa.Schema) -> DataFrame:
    """Return `frame`, whose columns are those of `schema`; Spark Connect need not ask its server for them.

    Otherwise the client queries the server before it sends a function, which is not allowed in a query
    function of Declarative Pipelines. With `frame.to(schema)`, the server would look up tables that the
    pipeline has not created yet.
    """
    if is_remote():
        vars(frame)["_cached_schema"] = spark_schema(schema)
    return frame


def spark_schema(schema: pa.Schema) -> T.StructType:
    """Return the Spark schema for an Arrow schema of `SPARK_TYPES`."""
    return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in schema])


def spark_type(kind: pa.DataType) -> T.DataType:
    """Return the Spark type for an Arrow type of `SPARK_TYPES`, or composed of them."""
    if pa.types.is_list(kind):
        return T.ArrayType(spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        return T.StructType([T.StructField(field.name, spark_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return T.MapType(spark_type(kind.key_type), spark_type(kind.item_type))
    if pa.types.is_decimal(kind):
        return T.DecimalType(kind.precision, kind.scale)
    if pa.types.is_date(kind):
        return T.DateType()
    if pa.types.is_timestamp(kind):
        return T.TimestampType()
    if pa.types.is_binary(kind):
        return T.BinaryType()
    narrow = {pa.int8(): T.ByteType(), pa.int16(): T.ShortType(), pa.float32(): T.FloatType()}
    return {**SPARK_TYPES, **narrow}.get(kind, T.IntegerType())
