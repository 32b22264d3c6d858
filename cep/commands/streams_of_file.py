"""The streams file that `cep new --from` writes: the columns of a file of events, by its first rows."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from cep.errors import InputError
from cep.formats.registry import format_of_name
from cep.schema.time_formats import read_format
from cep.schema.time_values import timestamp_us

_MOST_ROWS = 1000
_MOST_CHARACTERS = 1 << 24
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DELIMITERS = (",", ";", "\t", "|")
_DATES = ("%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_FORMATS = tuple(f"{day} {clock}" for clock in ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M") for day in _DATES)
"""Times that are not ISO 8601. Those with a day and a month that may be exchanged: the day is first."""

_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d+\.\d+")
_YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def streams_of_file(file: Path) -> str:
    """Return the text of a streams file that declares the events of a CSV, JSON-lines or Parquet file.

    Raises InputError: the file has another format, no events, or no column of times (E0662).
    """
    read = _first_rows(file)
    rows = read.rows
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    types = {name: _ddl(values, is_text=read.is_text) for name, values in columns.items()}
    formats = {name: _formats(columns[name]) for name, ddl in types.items() if ddl == "string"}
    times = [name for name, ddl in types.items() if ddl == "timestamp" or formats.get(name)]
    if not times:
        says = f"no column of times among {', '.join(names)}" if rows else "no events"
        raise InputError("E0662", f"`{file}` has {says}", "times look like 2026-01-31T10:00:00Z")
    ids = [name for name, ddl in types.items() if ddl in ("string", "bigint") and name not in times]
    unique = (name for name in ids if len({row.get(name) for row in rows} - {None}) == len(rows) > 1)
    tie = next(unique, None) if len(ids) > 1 else None  # the only one is rather the key
    left_out = [name for name, ddl in types.items() if ddl is None]
    lines = [
        f"# The columns of {file.name}, by its first {len(rows):,} rows.",
        *([f"# Left out, because a stream has no such type: {', '.join(left_out)}"] if left_out else []),
        "streams:",
        f"  {_yaml(_stream_name(file))}:",
        f"    event_time: {_yaml(times[0])}",
        *([f"    tie_break: [{_yaml(tie)}]    # orders events of equal time"] if tie else []),
        "    lateness: 1 minute    # how late events may arrive, in a stream",
        *([f"    csv: {{{', '.join(read.layout)}}}"] if read.layout else []),
        "    schema:",
        *(f"      {_yaml(name)}: {_type(ddl, formats.get(name, []))}" for name, ddl in types.items() if ddl),
    ]
    return "\n".join(lines) + "\n"


def _type(ddl: str, formats: Sequence[str]) -> str:
    """Return what the schema says of a column: its type, and how its times are written."""
    if not formats:
        return ddl
    others = f"    # or {', '.join(formats[1:])}" if len(formats) > 1 else ""
    return f'{{type: timestamp, format: "{formats[0]}"}}{others}'


def _formats(values: Sequence[Any]) -> list[str]:
    """Return the formats that all texts of a column have."""
    known = [value for value in values if value]
    fits = (form for form in _FORMATS if all(read_format(form).value(value) for value in known))
    return list(fits) if known else []


@dataclass(frozen=True, slots=True)
class _First:
    """The first rows of a file, whether all their values are texts, and what is unusual in its CSV."""

    rows: Sequence[Mapping[str, Any]]
    is_text: bool = False
    layout: Sequence[str] = ()


def _first_rows(file: Path) -> _First:
    import pyarrow as pa

    rows_of = _ROWS.get(format_of_name(file.name) or "")
    if rows_of is None:
        says = f"`{file}` has none of the formats {', '.join(_ROWS)}"
        raise InputError("E0662", says, "write a streams file yourself")
    try:
        return rows_of(file)
    except (OSError, pa.ArrowException, csv.Error) as error:
        raise InputError("E0662", f"`{file}` cannot be read: {error}", "name a file of events") from error


def _lines(file: Path) -> TextIOWrapper:
    import pyarrow as pa

    return TextIOWrapper(pa.input_stream(str(file)), encoding="utf-8-sig", errors="replace")


def _beginning(lines: TextIOWrapper) -> Iterator[str]:
    """Yield the first lines; a file may be one line of many gigabytes."""
    text = lines.read(_MOST_CHARACTERS)
    is_whole = len(text) < _MOST_CHARACTERS
    yield from text.splitlines(keepends=True)[: None if is_whole else -1]


def _of_csv(file: Path) -> _First:
    with _lines(file) as text:
        lines = list(islice(_beginning(text), _MOST_ROWS + 1))
    delimiter = max(_DELIMITERS, key=lines[0].count) if lines else ","
    rows = [
        {name: value for name, value in row.items() if name}
        for row in csv.DictReader(lines, delimiter=delimiter)
    ]
    if delimiter == ",":
        return _First(rows, is_text=True)
    layout = ["delimiter: tab" if delimiter == "\t" else f'delimiter: "{delimiter}"']
    texts = [value for row in rows for value in row.values() if isinstance(value, str)]
    if any(map(_COMMA.fullmatch, texts)) and not any(map(_POINT.fullmatch, texts)):
        layout.append('decimal: ","')
        rows = [{name: _with_point(value) for name, value in row.items()} for row in rows]
    return _First(rows, is_text=True, layout=layout)


def _with_point(value: Any) -> Any:
    return value.replace(",", ".") if isinstance(value, str) and _COMMA.fullmatch(value) else value


def _of_json(file: Path) -> _First:
    with _lines(file) as lines:
        return _First(list(_objects(islice(_beginning(lines), _MOST_ROWS))))


def _of_parquet(file: Path) -> _First:
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(file).iter_batches(_MOST_ROWS)
    return _First(next((batch.to_pylist() for batch in batches), []))


_ROWS = {"csv": _of_csv, "json": _of_json, "parquet": _of_parquet}
"""How the first rows of a file are read, by the name of its format."""


def _objects(lines: Iterator[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # a line that is no event becomes a dead letter later
            continue
        if isinstance(value, dict):
            yield value


def _ddl(values: Sequence[Any], *, is_text: bool) -> str | None:
    """Return the type that has all values of a column; None: they are lists or objects."""
    known = [value for value in values if value is not None and not (is_text and value == "")]
    if not all(isinstance(value, int | float | Decimal | str | date) for value in known):
        return None
    tests = {"boolean": _is_boolean, "bigint": _is_integer, "double": _is_number, "timestamp": _is_time}
    fitting = (ddl for ddl, fits in tests.items() if all(fits(value, is_text=is_text) for value in known))
    return next(fitting, "string") if known else "string"


def _is_boolean(value: Any, *, is_text: bool) -> bool:
    return value in ("true", "false") if is_text else isinstance(value, bool)


def _is_integer(value: Any, *, is_text: bool) -> bool:
    if is_text:
        return re.fullmatch(r"[+-]?\d{1,18}", value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_number(value: Any, *, is_text: bool) -> bool:
    if is_text:
        return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value) is not None
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_time(value: Any, *, is_text: bool) -> bool:
    if isinstance(value, str):
        return timestamp_us(value) is not None
    return isinstance(value, date)


def _stream_name(file: Path) -> str:
    name = re.sub(r"\W", "_", file.name.partition(".")[0], flags=re.ASCII)
    return name if _WORD.fullmatch(name) else f"events_{name}"


def _yaml(name: str) -> str:
    is_plain = _WORD.fullmatch(name) and name.lower() not in _YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False)
