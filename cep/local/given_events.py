"""Events from a program, as rows, DataFrames or Arrow tables -> the table of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cep.arguments import type_name
from cep.arrays import Mask
from cep.diagnostics.diagnostic import did_you_mean
from cep.engine.prepare.device_clocks import DeviceClocks
from cep.errors import InputError
from cep.expression import Type
from cep.formats.ahead import ANY_TIME_US, AheadGuard
from cep.formats.chunks import unusable
from cep.formats.dead_letter import invalid_event_time
from cep.rule_set import RuleSet
from cep.schema.arrow_columns import element_kind, element_of, kind_at, typed_column, without_views, word_of
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.arrow_values import json_value
from cep.schema.column_types import MAX_DIGITS
from cep.schema.masks import where_true
from cep.schema.opaque_values import as_double, opaque_text
from cep.schema.stream import Field, Stream
from cep.schema.text_values import column_from_text
from cep.schema.time_formats import time_text
from cep.schema.time_values import time_of_number, times_of_numbers

Rows = Iterable[Mapping[str, Any]]
"""Events as rows: each has the columns of its stream by name."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_SAMPLE_TIME = datetime(2024, 5, 31, 18, 30, tzinfo=UTC)


class GivenEventsError(InputError, ValueError):
    """Events from a program do not fit their stream."""


def event_tables(rules: RuleSet, rows: Any) -> dict[str, pa.Table]:
    """Return events as the tables of the streams of `rules`, by name.

    `rows` are the events of the only stream, or of several by name. Raises GivenEventsError: they are of no
    stream of the rules, or they do not fit it.
    """
    known = ", ".join(sorted(rules.inputs))
    if not isinstance(rows, Mapping):
        if len(rules.inputs) > 1:
            raise GivenEventsError("E0832", "the rules read several streams", f"give rows by name: {known}")
        rows = dict.fromkeys(rules.inputs, rows)
    if unknown := [str(name) for name in rows if name not in rules.inputs]:
        raise GivenEventsError(
            "E0832", f"no rule reads stream {', '.join(sorted(unknown))}", f"give rows by name: {known}"
        )
    return {name: event_table(stream, rows.get(name, ())) for name, stream in rules.inputs.items()}


def event_table(stream: Stream, events: Any) -> pa.Table:
    """Return events as the table of `stream` that `cep.engine.prepare.predicates.prepare` reads.

    `events` are `Rows`, or a table: any object with ``__arrow_c_stream__``, such as tables of pandas, Polars,
    DuckDB and Arrow. Events of a stream with a `device_clock` have the event time, or the columns from which
    it is estimated. Raises GivenEventsError: they do not fit the stream. The error names the column and the
    row.
    """
    if type(events).__module__.startswith("pyspark."):
        raise GivenEventsError(
            "E0832",
            f"the events of `{stream.name}` are of type {type_name(events)}",
            "give a DataFrame of Spark to spark_runtime.detect",
        )
    given = _arrow_table(stream, events)
    if given is None:
        rows = _rows(stream, events)
        columns = {field.name: _column_of_rows(rows, field) for field in stream.fields}
    else:
        columns = _columns_of_table(given, stream, _names_of(events, given))
    table = pa.table(columns)
    clock = stream.device_clock
    is_estimated = clock is not None and table.column(stream.event_time).null_count == len(table) > 0
    if not stream.is_static:
        for name in clock.columns if clock is not None and is_estimated else (stream.event_time,):
            _require_no_nulls(table, name, stream)
    order = np.arange(len(table))
    if clock is not None and is_estimated:
        order = np.asarray(pc.sort_indices(table, [(clock.received, "ascending")]))
        table = table.take(order)
        at = table.schema.get_field_index(stream.event_time)
        table = table.set_column(at, stream.event_time, DeviceClocks(stream).true_times(table))
    _require_usable(table, stream if is_estimated else replace(stream, device_clock=None), order)
    return table


def _require_usable(table: pa.Table, stream: Stream, order: npt.NDArray[np.int64]) -> None:
    """Refuse rows that would become dead letters in any other run; row i of the table was given as row
    `order[i]`.

    A row with a NULL in its key remains: it belongs to no key, and no rule matches anything with it.
    """
    for bad, reason in unusable(table, stream, (), AheadGuard(ANY_TIME_US)):
        if bad.any():
            row = int(order[np.flatnonzero(bad)].min())
            advice = "elsewhere this row is a dead letter and matches nothing; rows are counted from 0"
            if reason == invalid_event_time(stream):
                advice = f"if such times are real, declare a wider `valid_time`; {advice}"
            raise GivenEventsError("E0832", f"row {row} of `{stream.name}`: {reason}", advice)


def _require_no_nulls(table: pa.Table, name: str, stream: Stream) -> None:
    column = table.column(name)
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(column)))[0])
        raise GivenEventsError(
            "E0832",
            f"row {row} of `{stream.name}` has no event time: `{name}` is NULL"
            + ("" if name == stream.event_time else ", from which it is estimated"),
            "rows are counted from 0; each event has a time",
        )


# ---------------------------------------------------------------- tables


def _arrow_table(stream: Stream, events: Any) -> pa.Table | None:
    """Return a table as an Arrow table; None: the events are not a table."""
    if isinstance(events, pa.Table):  # not by `__arrow_c_stream__`: pyarrow 18 crashes on some dictionaries
        return events
    if not _is_frame(events, "pandas") and not hasattr(events, "__arrow_c_stream__"):
        return None
    # Values of other columns need not be of one type, nor of one that Arrow has.
    wanted = {name for field in stream.fields for name in (field.name, field.column, field.place[0])}
    try:
        if _is_frame(events, "pandas"):
            if wanted.isdisjoint(events.index.names):
                events = events.reset_index(drop=True)
            events = events.loc[:, [str(name) in wanted for name in events.columns]]
        elif _is_frame(events, "polars"):
            events = events.select([name for name in events.columns if name in wanted])
        return pa.table(events)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise GivenEventsError(
            "E0832",
            f"the table given for `{stream.name}` cannot be read: {reason}",
            "give each column values of one type",
        ) from error


def _is_frame(events: Any, library: str) -> bool:
    return type(events).__module__.startswith(f"{library}.") and hasattr(events, "columns")


def _names_of(events: Any, table: pa.Table) -> list[str]:
    """Return the names of all columns of a table, of which `table` may have only a part."""
    is_frame = _is_frame(events, "pandas") or _is_frame(events, "polars")
    return list(map(str, events.columns)) if is_frame else table.column_names


def _columns_of_table(table: pa.Table, stream: Stream, names: Sequence[str]) -> dict[str, pa.Array]:
    """Return the columns of `stream`, without the other columns of the table; `names` are those of all."""
    places = {field: _place(table.schema, field) for field in stream.fields}
    clock = stream.device_clock
    lacking = [
        field.name
        for field, place in places.items()
        if place is None and not (clock is not None and field.name == stream.event_time)
    ]
    for name in lacking:
        if names.count(name) > 1:
            raise GivenEventsError(
                "E0832",
                f"the table given for `{stream.name}` has column `{name}` more than once",
                "drop or rename one of them",
            )
    if lacking:
        shown = ", ".join(f"`{name}`" for name in lacking)
        raise GivenEventsError(
            "E0832",
            f"the table given for `{stream.name}` has no column{'s' if len(lacking) > 1 else ''} {shown}",
            did_you_mean(lacking[0], names, "columns of the table"),
        )
    return {
        field.name: pa.nulls(len(table), ARROW_TYPES[field.type])
        if place is None
        else _typed(_values(table, place, field), field)
        for field, place in places.items()
    }


def _place(schema: pa.Schema, field: Field) -> tuple[str, ...] | None:
    """Return where a table has a column: under its name in rules, or in the data."""
    for place in ((field.name,), (field.column,), field.place):
        kind = kind_at(schema, place)
        if place == field.place and place != (field.column,):
            kind = element_kind(kind, field.element)
        if kind is not None:
            return place
    return None


def _values(table: pa.Table, place: tuple[str, ...], field: Field) -> pa.Array:
    column = table.column(place[0])
    if pa.types.is_dictionary(column.type):
        column = pa.chunked_array(map(_decoded, column.chunks), without_views(column.type.value_type))
    values = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if len(place) > 1:
        values = pc.struct_field(values, list(place[1:]))
    is_inside = place == field.place and (
        pa.types.is_list(values.type) or pa.types.is_large_list(values.type)
    )
    return element_of(values, field.element) if is_inside else values


def _decoded(values: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary; Arrow itself cannot decode one of views."""
    words = values.dictionary.cast(without_views(values.dictionary.type))
    return words.take(values.indices)


def _typed(values: pa.Array, field: Field) -> pa.Array:
    """Return a column of a table in the form of events."""
    kind = values.type
    if pa.types.is_dictionary(kind):  # a field of a struct
        values = _decoded(values)
        kind = values.type
    if pa.types.is_string_view(kind):
        values, kind = values.cast(pa.string()), pa.string()
    if values.null_count == len(values):
        return pa.nulls(len(values), ARROW_TYPES[field.type])
    if not _can_hold(kind, field):
        raise GivenEventsError(
            "E0832", f"column `{field.name}` is {field.declared}, the table has {kind}", _wanted(field)
        )
    is_naive = pa.types.is_timestamp(kind) and kind.tz is None
    if field.type is Type.TIMESTAMP and field.ddl != "date" and is_naive and not field.zone:
        row = int(np.flatnonzero(np.asarray(pc.is_valid(values)))[0])
        raise _without_zone(field, values[row], row)
    try:
        if field.type is Type.BIGINT:
            values = values.cast(pa.int64())
        elif field.type is Type.DOUBLE and pa.types.is_integer(kind):
            values = values.cast(pa.float64())
        if field.type is Type.TIMESTAMP and pa.types.is_integer(kind):
            typed, bad = times_of_numbers(values.cast(pa.int64()), field.unit or "microseconds")
        else:
            typed, bad = typed_column(values, field)
    except pa.ArrowInvalid:
        row = next(at for at, value in enumerate(values) if not _casts(value, ARROW_TYPES[field.type]))
        raise _wrong_value(field, json_value(values[row]), row) from None
    bad = bad | _has_time_of_day(typed, field)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise _wrong_value(field, json_value(values[row]), row)
    return typed


def _has_time_of_day(times: pa.Array, field: Field) -> Mask:
    """Return which values of a date are not midnight in UTC."""
    if field.ddl != "date":
        return np.zeros(len(times), dtype=bool)
    return where_true(pc.not_equal(pc.multiply(pc.divide(times, _DAY_US), _DAY_US), times))


def _casts(value: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        value.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def _can_hold(kind: pa.DataType, field: Field) -> bool:
    """Return whether a column of an Arrow type may have values of `field`; DataFrames have fewer types."""
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind)
    is_text = types.is_string(kind) or types.is_large_string(kind)
    match field.type:
        case Type.OPAQUE:
            return True
        case Type.BOOLEAN:
            return bool(types.is_boolean(kind))
        case Type.BIGINT:
            return bool(is_number)
        case Type.DOUBLE:
            return bool(is_number or types.is_decimal(kind))
        case Type.STRING:
            return bool(is_text)
        case _ if field.ddl == "date":
            return bool(types.is_timestamp(kind) or types.is_date(kind) or is_text)
        case _:
            is_count = types.is_integer(kind) or (field.unit and types.is_floating(kind))
            return bool(types.is_timestamp(kind) or types.is_date(kind) or is_text or is_count)


# ---------------------------------------------------------------- rows


def _rows(stream: Stream, events: Any) -> list[Mapping[str, Any]]:
    """Return events as a list of rows whose columns are all declared."""
    if isinstance(events, str | Path) or not isinstance(events, Iterable):
        raise GivenEventsError(
            "E0832",
            f"the events of `{stream.name}` are of type {type(events).__name__}",
            "give a list of dictionaries, a DataFrame or an Arrow table; match_file reads files",
        )
    rows = list(events)
    known = {field.name for field in stream.fields}
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise GivenEventsError(
                "E0832",
                f"row {number} of `{stream.name}` is of type {type(row).__name__}, not a dictionary",
                "write a row as {'card': 'c1', 'amount': 5.0}",
            )
        if unknown := sorted(map(str, row.keys() - known)):
            raise GivenEventsError(
                "E0832",
                f"stream `{stream.name}` has no column {', '.join(unknown)} (row {number})",
                did_you_mean(unknown[0], known, "columns"),
            )
    return rows


def _column_of_rows(rows: Sequence[Mapping[str, Any]], field: Field) -> pa.Array:
    values = [_plain(row.get(field.name), field, number) for number, row in enumerate(rows)]
    if field.type is Type.TIMESTAMP:
        values = _with_times(values, field)
    kind = ARROW_TYPES[field.type]
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        for number, value in enumerate(values):
            try:
                pa.array([value], kind)
            except (pa.ArrowException, OverflowError, TypeError, ValueError):
                raise _wrong_value(field, repr(rows[number][field.name]), number) from None
        raise
    if field.type is Type.OPAQUE:
        return column
    if field.type is Type.TIMESTAMP:
        typed, bad = times_of_numbers(column, "microseconds")
        bad = bad | _has_time_of_day(typed, field)
    else:
        typed, bad = typed_column(column, field)
    if bad.any():
        number = int(np.flatnonzero(bad)[0])
        raise _wrong_value(field, repr(rows[number][field.name]), number)
    return typed


def _plain(value: Any, field: Field, row: int) -> Any:
    """Return a value of a row in the engine's form; times given as texts remain texts."""
    given = value
    if isinstance(value, np.generic):
        value = value.astype("datetime64[us]").item() if value.dtype.kind == "M" else value.item()
    if value is None or _is_missing(value, field):
        return None
    match field.type:
        case Type.OPAQUE:
            try:
                return opaque_text(value, field.column_type)
            except ValueError:
                raise _wrong_value(field, repr(given), row) from None
        case Type.BIGINT if isinstance(value, float | Decimal):
            if not _is_whole(value):
                raise _wrong_value(field, repr(given), row)  # Arrow would cut off the fraction
        case Type.DOUBLE if isinstance(value, bool) or (isinstance(value, Decimal) and value.is_snan()):
            raise _wrong_value(field, repr(given), row)  # Arrow would take a boolean for a number
        case Type.DOUBLE if isinstance(value, int | Decimal):
            return as_double(value, "double")
        case Type.STRING if not isinstance(value, str):
            raise _wrong_value(field, repr(given), row)  # Arrow would take bytes for a text
        case Type.TIMESTAMP:
            return _time(value, field, row)
    return value


def _is_whole(value: float | Decimal) -> bool:
    """Return whether a number has no fraction; Python makes an integer of the longest ones only slowly."""
    if isinstance(value, float):
        return value.is_integer()
    return value.is_finite() and value.adjusted() < MAX_DIGITS and value == value.to_integral_value()


def _is_missing(value: Any, field: Field) -> bool:
    """Return whether a value stands for NULL: `pandas.NA`, NaT, and NaN where it is not a number."""
    if isinstance(value, list | dict) or (field.type is Type.DOUBLE and isinstance(value, float | Decimal)):
        return False
    if isinstance(value, Decimal):
        return value.is_nan()  # a signaling NaN cannot be compared
    differs: Any = value != value
    return differs is True or type(differs).__name__ == "NAType"  # pandas, which may not be installed


def _time(value: Any, field: Field, row: int) -> Any:
    """Return a time of a row in microseconds, or a text unchanged."""
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            return (value - _EPOCH) // _MICROSECOND
        if not field.zone and field.ddl != "date":
            raise _without_zone(field, value, row)
        local_us = (value.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
        if not field.zone:
            return local_us
        offset = ZoneInfo(field.zone).utcoffset(value)  # `fold` says which of two hours it is
        assert offset is not None
        return local_us - offset // _MICROSECOND
    if isinstance(value, date):
        return (datetime(value.year, value.month, value.day, tzinfo=UTC) - _EPOCH) // _MICROSECOND
    if isinstance(value, Decimal):
        value = int(value) if _is_whole(value) else float(value)
    if field.unit and isinstance(value, int | float) and not isinstance(value, bool):
        time_us = time_of_number(value, field.unit)
        if time_us is None:
            raise _wrong_value(field, repr(value), row)
        return time_us
    has_fraction = isinstance(value, float) and not _is_whole(value)
    if has_fraction or (field.ddl == "date" and isinstance(value, int | float)):
        raise _wrong_value(field, repr(value), row)  # seconds, probably: microseconds have no fraction
    return value


def _with_times(values: list[Any], field: Field) -> list[Any]:
    """Return a column whose texts are read as the stream declares them."""
    places = [number for number, value in enumerate(values) if isinstance(value, str)]
    if not places:
        return values
    times, is_wrong = column_from_text(pa.array([values[at] for at in places], pa.string()), field)
    if is_wrong.any():
        row = places[int(np.flatnonzero(is_wrong)[0])]
        raise _wrong_value(field, repr(values[row]), row)
    for at, time_us in zip(places, times.to_pylist(), strict=True):
        values[at] = time_us
    return values


# ---------------------------------------------------------------- errors


def _wrong_value(field: Field, shown: str, row: int) -> GivenEventsError:
    return GivenEventsError(
        "E0832", f"column `{field.name}` is {field.declared}, and {shown} in row {row} is not", _wanted(field)
    )


def _without_zone(field: Field, value: Any, row: int) -> GivenEventsError:
    return GivenEventsError(
        "E0832",
        f"{value} has no time zone: column `{field.name}`, row {row}",
        f"declare its zone in the streams file, {field.name}: {{type: {field.ddl}, zone: Europe/Berlin}}, "
        "or give times with a zone: datetime(2024, 5, 31, tzinfo=UTC), "
        f'df["{field.name}"].dt.tz_localize("UTC")',
    )


def _wanted(field: Field) -> str:
    """Return how values of a column are given; rows are counted from 0."""
    if field.type is Type.OPAQUE:
        return f"give a value of type {field.ddl}; rows are counted from 0"
    if field.type is not Type.TIMESTAMP:
        return f"give {word_of(field)}; rows are counted from 0"
    if field.format:
        text = f"a text such as '{time_text(field.format, _SAMPLE_TIME)}'"
    elif field.unit:
        text = f"a number of {field.unit} since 1970"
    elif field.ddl == "date":
        text = "a date or a text such as '2024-05-31'"
    else:
        text = "a text such as '2024-05-31T18:30:00Z', or microseconds since 1970"
    datetimes = "" if field.ddl == "date" else ", or a datetime" + (" with a zone" if not field.zone else "")
    return f"give {text}{datetimes}; rows are counted from 0"
