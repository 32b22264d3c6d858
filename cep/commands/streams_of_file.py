"""The streams file that `cep new --from` writes: the columns of a file of events, by its first rows."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

from cep.errors import InputError
from cep.formats.registry import format_of_name
from cep.schema.time_values import timestamp_us

_MOST_ROWS = 1000
_MOST_CHARACTERS = 1 << 24
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_YAML_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def streams_of_file(file: Path) -> str:
    """Return the text of a streams file that declares the events of a CSV, JSON-lines or Parquet file.

    Raises InputError: the file has another format, no events, or no column of times (E0662).
    """
    rows, is_text = _first_rows(file)
    names = dict.fromkeys(name for row in rows for name in row)
    types = {name: _ddl([row.get(name) for row in rows], is_text=is_text) for name in names}
    times = [name for name, ddl in types.items() if ddl == "timestamp"]
    if not times:
        says = "no column of times" if rows else "no events"
        raise InputError("E0662", f"`{file}` has {says}", "times look like 2026-01-31T10:00:00Z")
    ids = [name for name, ddl in types.items() if ddl in ("string", "bigint")]
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
        "    schema:",
        *(f"      {_yaml(name)}: {ddl}" for name, ddl in types.items() if ddl is not None),
    ]
    return "\n".join(lines) + "\n"


def _first_rows(file: Path) -> tuple[list[Mapping[str, Any]], bool]:
    """Return the first rows, and whether all their values are texts."""
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


def _of_csv(file: Path) -> tuple[list[Mapping[str, Any]], bool]:
    with _lines(file) as lines:
        rows = islice(csv.DictReader(_beginning(lines)), _MOST_ROWS)
        return [{name: text for name, text in row.items() if name} for row in rows], True


def _of_json(file: Path) -> tuple[list[Mapping[str, Any]], bool]:
    with _lines(file) as lines:
        return list(_objects(islice(_beginning(lines), _MOST_ROWS))), False


def _of_parquet(file: Path) -> tuple[list[Mapping[str, Any]], bool]:
    import pyarrow.parquet as pq

    batches = pq.ParquetFile(file).iter_batches(_MOST_ROWS)
    return next((batch.to_pylist() for batch in batches), []), False


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
