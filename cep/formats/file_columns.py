"""The columns of a file, and those that its stream declares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from cep.errors import InputError
from cep.expression import Type
from cep.schema.stream import Stream

_DELIMITERS = {";": ("`;`", '";"'), "\t": ("tabs", "tab"), "|": ("`|`", '"|"'), ",": ("`,`", '","')}
"""What fields are often separated by -> what it is called, and how it is declared."""


def columns_without_header(stream: Stream) -> list[str]:
    """Return the columns of a CSV file that does not name them."""
    refuse_trees(stream)
    return list(stream.csv.columns) or [field.column for field in stream.fields]


def refuse_trees(stream: Stream) -> None:
    """Raise InputError if the stream has columns that a CSV file cannot contain."""
    for field in stream.fields:
        if field.type is Type.OPAQUE:
            raise InputError(
                "E0605",
                f"column `{field.name}` is declared {field.ddl}, which a CSV file cannot hold",
                "declare it as string, or give the events as JSON lines or Parquet",
            )


def carriage_returns(name: str) -> InputError:
    """Return the error for a file whose lines have the ends of an old Macintosh."""
    return InputError(
        "E0642",
        f"the lines of `{name}` end in carriage returns without line feeds",
        f"convert them, for example: tr '\\r' '\\n' < {name} > new{PurePath(name).suffix}",
    )


def require_columns(name: str, columns: Sequence[str], stream: Stream) -> None:
    """Raise InputError unless a file with these columns has each column of `stream` once."""
    missing = [field.column for field in stream.fields if columns.count(field.column) == 0]
    if missing:
        word = "column" if len(missing) == 1 else "columns"
        raise InputError(
            "E0604",
            f"`{name}` has no {word} {', '.join(f'`{column}`' for column in missing)}, "
            f"which stream `{stream.name}` declares",
            _advice(columns, missing, stream) or f"columns of the file: {', '.join(columns)}",
        )
    double = [f"`{field.column}`" for field in stream.fields if columns.count(field.column) > 1]
    if double:
        raise InputError("E0604", f"`{name}` has column {', '.join(double)} more than once")


def _advice(columns: Sequence[str], missing: Sequence[str], stream: Stream) -> str:
    """Return what to declare if the file has the columns in another form, or an empty text."""
    if len(columns) == 1 and len(stream.fields) > 1:
        counts = {sign: columns[0].count(sign) for sign in _DELIMITERS if sign != stream.csv.delimiter}
        sign = max(counts, key=lambda sign: counts[sign])
        if counts[sign]:
            word, declared = _DELIMITERS[sign]
            return (
                f"the first line is one column, `{columns[0]}`: if {word} separate its fields, "
                f"declare csv: {{delimiter: {declared}}}"
            )
    for name in missing:
        for column in columns:
            if column.strip() == name:
                return (
                    f'the file has `{column}`, with blanks: remove them, or declare field: "{column}" for it'
                )
            if column.casefold() == name.casefold():
                return f"the file has `{column}`: upper and lower case count; declare field: {column} for it"
    return ""
