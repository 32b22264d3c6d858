"""The streams file that `cep new --from` writes: the columns of a file of events, by its first rows."""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cep.commands.rule_templates import YAML_WORDS
from cep.diagnostics.safe_text import for_cell
from cep.errors import InputError
from cep.formats.file_columns import carriage_returns
from cep.formats.files import read_events
from cep.formats.registry import format_of_name
from cep.formats.text.file_beginnings import HEAD_BYTES, refuse_other_contents, refuse_other_json
from cep.schema.arrow_columns import fits, without_views
from cep.schema.stream import Field, Stream
from cep.schema.time_formats import read_format
from cep.schema.time_values import timestamp_us

_BY_HAND = "write a streams file yourself"
_MOST_ROWS = 1000
_MOST_CHARACTERS = 1 << 24
_BYTES_OF_SIGN = 16
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DELIMITERS = (",", ";", "\t", "|")
_DATES = ("%d.%m.%Y", "%Y/%m/%d", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y%m%d")
_FORMATS = tuple(f"{day} {clock}" for clock in ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M") for day in _DATES)
"""Times that are not ISO 8601. Those with a day and a month that may be exchanged: the day is first."""

_COMMA, _POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d+\.\d+")
_OPAQUE = "opaque"
_UNREAD: Mapping[str | None, str] = {
    _OPAQUE: "rules can only test whether they are NULL, and reading them takes time",
    None: "a stream has no such type",
}
"""Why a column is not declared, by its type: of the first, a stream reads columns if it declares them."""

_OF_PARQUET = ("string", "boolean", "bigint", "double", "timestamp", "date")


@dataclass(frozen=True, slots=True)
class Declared:
    """The text of a streams file, and the columns that are NULL in all rows by which it was written."""

    text: str
    empty: tuple[str, ...]


def streams_of_file(file: Path) -> Declared:
    """Return a streams file that declares the events of a CSV, JSON-lines or Parquet file.

    Raises InputError: the file has a different format, no events, or no column of times (E0662).
    """
    read = _first_rows(file)
    rows = read.rows
    if not rows:
        raise InputError("E0662", f"`{file}` has no events", "name a file with some events")
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    types = read.types or {name: _ddl(values, is_text=read.is_text) for name, values in columns.items()}
    types = {name: ddl for name, ddl in types.items() if name}  # "" cannot be declared
    formats = {name: _formats(columns[name]) for name, ddl in types.items() if ddl == "string"}
    times = [name for name, ddl in types.items() if ddl == "timestamp" or formats.get(name)]
    if not times:
        among = (
            f" among {', '.join(_yaml(name) for name in names)}" if names else ": its events have no fields"
        )
        raise InputError(
            "E0662", f"`{file}` has no column of times{among}", "times look like 2026-01-31T10:00:00Z"
        )
    read_by_rules = [name for name, ddl in types.items() if ddl not in (*_UNREAD, "timestamp", "date")]
    ids = [name for name in read_by_rules if types[name] in ("string", "bigint") and name not in times]
    empty = [name for name in ids if not any(_is_known(value, read.is_text) for value in columns[name])]
    usable, keys = {*read_by_rules} - {*times, *empty}, {*ids} - {*empty}
    unique = (name for name in ids if len({row.get(name) for row in rows} - {None}) == len(rows) > 1)
    # A key and a value are needed first.
    tie = next(unique, None) if len(usable) > 2 and len(keys) > 1 else None
    left_out = {
        reason: [name for name, ddl in types.items() if ddl == kind] for kind, reason in _UNREAD.items()
    }
    own = _names([name for name, ddl in types.items() if ddl not in _UNREAD])
    lines = [
        f"# The columns of {for_cell(file.name)}, by its first {len(rows):,} rows.",
        *(
            f"# Left out, because {reason}: {', '.join(map(_yaml, of))}"
            for reason, of in left_out.items()
            if of
        ),
        "streams:",
        f"  {_yaml(_stream_name(file))}:",
        f"    event_time: {_yaml(own[times[0]])}",
        *([f"    tie_break: [{_yaml(own[tie])}]    # orders events of equal time"] if tie else []),
        "    lateness: 1 minute    # how late events may arrive, in a stream",
        *([f"    csv: {{{', '.join(read.layout)}}}"] if read.layout else []),
        "    schema:",
        *(_column(name, own[name], str(types[name]), formats.get(name, [])) for name in types if name in own),
    ]
    return Declared("\n".join(lines) + "\n", tuple(own[name] for name in empty))


def not_events(file: Path, stream: Stream) -> list[str]:
    """Return the reason for each of the first rows that is not an event of the stream declared for it.

    Raises InputError: the file is not read with any declaration, as if a column occurs twice.
    """
    first = next(read_events(file, stream, block_bytes=_MOST_CHARACTERS))
    return [str(reason) for reason in first.dead_letters.column("reason").to_pylist()]


def _column(name: str, own: str, ddl: str, formats: Sequence[str]) -> str:
    """Return the line of a column: its type, and what is unusual in its times and its name."""
    settings = [f'format: "{form}"' for form in formats[:1]]
    settings += [f"field: {json.dumps(name)}"] if own != name else []
    kind = "timestamp" if formats else ddl
    declared = f"{{{', '.join([f'type: {kind}', *settings])}}}" if settings else kind
    others = f"    # or {', '.join(formats[1:])}" if len(formats) > 1 else ""
    return f"      {_yaml(own)}: {declared}{others}"


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Return the name by which a stream has each column; one that must be changed differs from all others."""
    found = {name: name for name in columns if _name(name) == name}
    taken = {name.casefold() for name in found}
    for name in columns:
        if name not in found:
            own = _name(name)
            while own.casefold() in taken:
                own += "_"
            found[name] = own
            taken.add(own.casefold())
    return found


def _name(column: str) -> str:
    """Return the name by which a stream has a column: names with _ or # before them are the engine's own."""
    return "_".join(column.splitlines()).lstrip("_#") or "column"


def _formats(values: Sequence[Any]) -> list[str]:
    """Return the formats that all texts of a column have."""
    known = [value for value in values if value and isinstance(value, str)]
    fits = (form for form in _FORMATS if all(read_format(form).value(value) for value in known))
    return list(fits) if known else []


@dataclass(frozen=True, slots=True)
class _First:
    """The first rows of a file, whether all their values are texts, and what is unusual in its CSV.

    `types`: the types of the columns, if the file has them, or why they are not declared (`_UNREAD`).
    """

    rows: Sequence[Mapping[str, Any]]
    is_text: bool = False
    layout: Sequence[str] = ()
    types: Mapping[str, str | None] = field(default_factory=dict)


def _first_rows(file: Path) -> _First:
    rows_of = _ROWS.get(format_of_name(file.name) or "")
    if rows_of is None:
        says = f"`{file}` has none of the formats {', '.join(_ROWS)}"
        raise InputError("E0662", says, _BY_HAND)
    try:
        return rows_of(file)
    except (OSError, pa.ArrowException, csv.Error) as error:
        raise InputError("E0662", f"`{file}` cannot be read: {error}", "name a file of events") from error


def _lines(file: Path, encoding: str = "utf-8-sig") -> TextIOWrapper:
    return TextIOWrapper(pa.input_stream(str(file)), encoding=encoding, errors="replace", newline="")


def _is_utf_16(file: Path) -> bool:
    with pa.input_stream(str(file)) as data:
        return data.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE)


def _beginning(lines: TextIOWrapper) -> Iterator[str]:
    """Yield the first lines; a file may be one line of many gigabytes."""
    text = lines.read(_MOST_CHARACTERS)
    is_whole = len(text) < _MOST_CHARACTERS
    yield from list(StringIO(text, newline="\n"))[: None if is_whole else -1]


def _of_csv(file: Path) -> _First:
    is_utf_16 = _is_utf_16(file)
    with _lines(file, "utf-16" if is_utf_16 else "utf-8-sig") as text:
        lines = list(islice(_beginning(text), _MOST_ROWS + 1))
    if lines and "\r" in lines[0].rstrip("\r\n"):
        raise carriage_returns(str(file))
    delimiter = max(_DELIMITERS, key=lines[0].count) if lines else ","
    layout = ["encoding: utf-16"] if is_utf_16 else []
    rows = [
        {name: value for name, value in row.items() if name}
        for row in csv.DictReader(lines, delimiter=delimiter)
    ]
    if delimiter == ",":
        return _First(rows, is_text=True, layout=layout)
    layout.append("delimiter: tab" if delimiter == "\t" else f'delimiter: "{delimiter}"')
    texts = [value for row in rows for value in row.values() if isinstance(value, str)]
    if any(map(_COMMA.fullmatch, texts)) and not any(map(_POINT.fullmatch, texts)):
        layout.append('decimal: ","')
        rows = [{name: _with_point(value) for name, value in row.items()} for row in rows]
    return _First(rows, is_text=True, layout=layout)


def _with_point(value: Any) -> Any:
    return value.replace(",", ".") if isinstance(value, str) and _COMMA.fullmatch(value) else value


def _of_json(file: Path) -> _First:
    with pa.input_stream(str(file)) as data:
        refuse_other_contents(str(file), data.read(_BYTES_OF_SIGN))
    with _lines(file) as text:
        lines = list(islice(_beginning(text), _MOST_ROWS))
    found = list(_objects(lines))
    if not found:  # a JSON array, an object over several lines
        with _lines(file) as text:  # `lines` lack a line that is not read to its end
            head = text.read(HEAD_BYTES)
        refuse_other_json(str(file), [line.encode() for line in head.split("\n")])
        if head.strip():
            reason = "no line at its beginning is a JSON object" if lines else "its first line is too long"
            advice = "write each event as an object on a line of its own" if lines else _BY_HAND
            raise InputError("E0662", f"`{file}` has no events: {reason}", advice)
    return _First(found)


def _of_parquet(file: Path) -> _First:
    with pq.ParquetFile(file) as parquet:
        schema = parquet.schema_arrow
        # Only texts and whole numbers are read: Python cannot have every time that Arrow has.
        batches = parquet.iter_batches(_MOST_ROWS)
        batch = next(batches, pa.RecordBatch.from_pylist([], schema))
    types = {item.name: _ddl_of_arrow(item.type) for item in schema}
    values = {
        item.name: batch.column(number).to_pylist()
        if types[item.name] in ("string", "bigint")
        else [None] * batch.num_rows
        for number, item in enumerate(schema)
    }
    return _First(
        [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)], types=types
    )


def _ddl_of_arrow(kind: pa.DataType) -> str | None:
    """Return the type in which a stream reads a column of Parquet, or why it is not declared."""
    fitting = (ddl for ddl in _OF_PARQUET if fits(kind, Field("", ddl)))
    return next(fitting, _OPAQUE if _is_opaque(without_views(kind)) else None)


def _is_opaque(kind: pa.DataType) -> bool:
    """Return whether a stream can declare an array, a map, a struct or binary, and read it."""
    if pa.types.is_list(kind):
        inside = [kind.value_type]
    elif pa.types.is_map(kind):
        inside = [kind.item_type] if _ddl_of_arrow(kind.key_type) in ("string", "bigint") else [None]
    elif pa.types.is_struct(kind):
        inside = [item.type for item in kind]
    else:
        return fits(kind, Field("", "binary"))
    return all(one is not None and _ddl_of_arrow(one) is not None for one in inside)


_ROWS = {"csv": _of_csv, "json": _of_json, "parquet": _of_parquet}
"""How the first rows of a file are read, by the name of its format."""


def _objects(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):  # a line that is not an event becomes a dead letter later
            continue
        if isinstance(value, dict):
            yield value


def _ddl(values: Sequence[Any], *, is_text: bool) -> str | None:
    """Return the type that has all values of a column, or most of them, or why it is not declared."""
    known = [value for value in values if _is_known(value, is_text)]
    if not known or not all(isinstance(value, int | float | str) for value in known):
        return _OPAQUE if known else "string"
    counts = {ddl: sum(has(value, is_text=is_text) for value in known) for ddl, has in _TESTS.items()}
    return max(counts, key=lambda ddl: counts[ddl])


def _is_known(value: Any, is_text: bool) -> bool:
    """Return whether a value is not NULL, as an empty field of CSV is."""
    return value is not None and not (is_text and value == "")


def _is_boolean(value: Any, *, is_text: bool) -> bool:
    return value in ("true", "false") if is_text else isinstance(value, bool)


def _is_integer(value: Any, *, is_text: bool) -> bool:
    if is_text:
        return re.fullmatch(r"[+-]?\d{1,18}", value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_number(value: Any, *, is_text: bool) -> bool:
    if is_text:
        return re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_time(value: Any, *, is_text: bool) -> bool:
    return isinstance(value, str) and timestamp_us(value) is not None


def _is_string(value: Any, *, is_text: bool) -> bool:
    return is_text or isinstance(value, str)


_TESTS = {
    "boolean": _is_boolean,
    "bigint": _is_integer,
    "double": _is_number,
    "timestamp": _is_time,
    "string": _is_string,
}
"""Type -> whether a value has it. Of types that as many values have, the first one is taken."""


def _stream_name(file: Path) -> str:
    name = re.sub(r"\W", "_", file.name.partition(".")[0], flags=re.ASCII)
    return name if _WORD.fullmatch(name) else f"events_{name}"


def _yaml(name: str) -> str:
    is_plain = _WORD.fullmatch(name) and name.lower() not in YAML_WORDS
    return name if is_plain else json.dumps(name, ensure_ascii=False)
