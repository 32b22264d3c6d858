"""Values of Arrow columns as Python values, even those that Python lacks: broken text, the year 10000."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import Mask
from cep.schema.column_types import ColumnType
from cep.schema.masks import null_where
from cep.schema.opaque_values import iso_text, opaque_text
from cep.schema.text_values import json_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def valid_texts(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """Return a column of strings and a mask of those that are not UTF-8. They are NULL in the column."""
    bad = np.zeros(len(texts), dtype=bool)
    data = texts.buffers()[2]
    if data is None or np.frombuffer(data, np.uint8).max(initial=0) < 0x80:
        return texts, bad  # ASCII. The whole buffer can be valid UTF-8 although a single text is not.
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        for row, value in enumerate(texts.cast(pa.binary()).to_pylist()):
            bad[row] = value is not None and not is_utf8(value)
    return null_where(bad, texts), bad


def texts_of(values: Iterable[str | bytes | None]) -> pa.Array:
    """Return a column of strings, in which bytes that are not UTF-8 stay as they are; see `valid_texts`."""
    content = (value.encode(errors="surrogatepass") if isinstance(value, str) else value for value in values)
    return pa.array(content, pa.binary()).view(pa.string())


def is_utf8(value: bytes) -> bool:
    """Return whether bytes are text in UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def opaque_column(values: pa.Array, kind: ColumnType) -> tuple[pa.Array, Mask]:
    """Return the values of an opaque column as strings, and a mask of those that are not of its type."""
    texts: list[str | None] = [None] * len(values)
    bad = np.zeros(len(values), dtype=bool)
    plain = _all_plain(values)
    for row in range(len(values)):
        try:
            value = _plain(values[row], is_exact=True) if plain is None else plain[row]
            texts[row] = None if value is None else opaque_text(value, kind)
        except ValueError:
            bad[row] = True
    return pa.array(texts, pa.string()), bad


def _all_plain(values: pa.Array) -> list[Any] | None:
    """Return all values in one call, or None if Python cannot hold some of them."""
    if _has_nanoseconds(values.type):  # their Python values depend on whether pandas is installed
        return None
    try:
        plain: list[Any] = values.to_pylist()
    except (ValueError, ArithmeticError):
        return None
    return plain


def _has_nanoseconds(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ns")
    return any(_has_nanoseconds(kind.field(at).type) for at in range(kind.num_fields))


def json_rows(batch: pa.RecordBatch) -> list[str]:
    """Return each row as a JSON object.

    A value that JSON cannot express becomes text. Bytes that are not UTF-8 are replaced.
    """
    columns = [[_plain(item, is_exact=False) for item in values] for values in batch.columns]
    names = batch.schema.names
    rows = (dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True))
    return [json_text(row, separators=(",", ":"), default=str) for row in rows]


def json_value(item: pa.Scalar) -> str:
    """Return a value as `json_rows` writes it."""
    return json_text(_plain(item, is_exact=False), separators=(",", ":"), default=str)


def _plain(item: pa.Scalar, *, is_exact: bool) -> Any:
    """Return a Python value of `item`.

    A value that Python cannot hold raises ValueError if `is_exact`. Otherwise a string describes it.
    """
    kind = item.type
    if not item.is_valid:
        return None
    if pa.types.is_dictionary(kind) or isinstance(item, pa.ExtensionScalar):
        return _plain(item.value, is_exact=is_exact)
    if pa.types.is_struct(kind):
        return {kind.field(at).name: _plain(item[at], is_exact=is_exact) for at in range(kind.num_fields)}
    if pa.types.is_map(kind):
        pairs = [
            (_plain(pair[0], is_exact=is_exact), _plain(pair[1], is_exact=is_exact)) for pair in item.values
        ]
        return pairs if is_exact else {str(key): value for key, value in pairs}
    if pa.types.is_nested(kind):
        return [_plain(part, is_exact=is_exact) for part in item.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return item.as_buffer().to_pybytes().decode(errors="strict" if is_exact else "replace")
    if pa.types.is_timestamp(kind):
        return _time(item.value, kind, is_exact)
    try:
        value = item.as_py()
    except (ValueError, ArithmeticError) as error:
        if is_exact:
            raise ValueError(kind) from error
        return f"{getattr(item, 'value', '')} {kind}"
    if is_exact:
        return value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _time(value: int, kind: pa.TimestampType, is_exact: bool) -> Any:
    us = value * 1_000_000 // _PER_SECOND[kind.unit]
    try:
        time = _EPOCH + timedelta(microseconds=us)
    except ArithmeticError:
        if is_exact:
            raise ValueError(value) from None
        return f"{value} {kind.unit} since 1970"
    if is_exact:
        return time
    return iso_text(time) if kind.tz else iso_text(time).removesuffix("Z")
