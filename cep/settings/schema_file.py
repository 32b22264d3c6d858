"""The streams file: YAML -> `Stream`. Every problem is reported with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zoneinfo import available_timezones

import yaml

from cep.diagnostics.diagnostic import did_you_mean, in_order
from cep.diagnostics.limits import TooManyErrorsError
from cep.errors import Diagnostic, RuleError, Source
from cep.expression import Type
from cep.schema.column_types import MAX_DIGITS, parse_type
from cep.schema.stream import (
    COMMA_SEPARATED,
    DDL_TYPES,
    MAX_AHEAD_US,
    MAX_VALID_US,
    MIN_VALID_US,
    UNITS,
    Field,
    Stream,
    canonical_ddl,
)
from cep.schema.time_formats import FormatError, read_format
from cep.schema.time_literals import parse_timestamp
from cep.settings.csv_settings import csv_layout
from cep.settings.places import read_place
from cep.settings.source_file import read_source
from cep.settings.stream_settings import check_column, device_clock, duration
from cep.settings.table_settings import TABLE_SETTINGS, required_settings, table_settings
from cep.settings.yaml_document import MAX_BYTES, Document, Entry

_SETTINGS = (
    *("event_time", "tie_break", "lateness", "deduplicate", "valid_time", "max_ahead", "schema", "csv"),
    "device_clock",
)

_COLUMN_SETTINGS = ("type", "unit", "format", "zone", "field")

_TYPES_OF = {"unit": ("timestamp",), "format": ("timestamp", "date"), "zone": ("timestamp",)}
"""Setting of a column -> the column types that may have it."""

_OTHER_UNITS = {
    **dict.fromkeys(("s", "sec", "secs"), "seconds"),
    **dict.fromkeys(("ms", "millis", "msec"), "milliseconds"),
    **dict.fromkeys(("us", "µs", "micros"), "microseconds"),
    **dict.fromkeys(("ns", "nanos"), "nanoseconds"),
}

_OTHER_TYPES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "numeric": "decimal(10, 2)",
    "text": "string",
    "varchar": "string",
    "datetime": "timestamp",
    "timestamp_ntz": "timestamp",
    "bool": "boolean",
}


def load_streams(path: str | Path) -> dict[str, Stream]:
    """Return the streams declared in the file at `path`, by name.

    Raises
    ------
    RuleError
        The file is wrong, or it cannot be read. The error has every problem of the file.
    """
    try:
        source = read_source(path, MAX_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise RuleError(
            [
                Diagnostic(
                    "E0414",
                    f"the streams file `{path}` cannot be read: {reason}",
                    help="name an existing YAML file that declares the streams",
                )
            ]
        ) from error
    streams, diagnostics = parse_streams(source)
    if any(problem.is_error for problem in diagnostics):
        raise RuleError(diagnostics)
    return streams


def parse_streams(source: Source) -> tuple[dict[str, Stream], list[Diagnostic]]:
    """Return the streams of a streams file that are sound, and all problems."""
    document = Document(source)
    streams: dict[str, Stream] = {}
    try:
        root = document.root()
        settings = None
        if root is not None:
            has_tables = isinstance(root, yaml.MappingNode) and any(
                key.value == "tables" for key, _ in root.value
            )
            required = () if has_tables else ("streams",)  # views read tables only
            settings = document.settings(root, "the streams file", ("streams", "tables"), required)
        if settings:
            streams = read_streams(document, settings.get("streams"), settings.get("tables"))
    except TooManyErrorsError:
        pass  # the last diagnostic reports it
    return streams, in_order(document.diagnostics)


def read_streams(
    document: Document, node: yaml.Node | None, tables: yaml.Node | None = None
) -> dict[str, Stream]:
    """Return the sound streams and `tables` of mappings name -> declaration; problems go to `document`."""
    entries = [] if node is None else document.mapping(node, "`streams`")
    if entries is None:
        return {}
    if node is not None and not entries:
        document.problem(
            "E0404", "no stream is declared", node, "empty", "declare one: name: {event_time: ts, ...}"
        )
    found = {entry.name: _stream(document, entry.name, entry.value) for entry in entries}
    for entry in [] if tables is None else document.mapping(tables, "`tables`") or []:
        if entry.name in found:
            document.problem(
                "E0422",
                f"`{entry.name}` is a stream and a table",
                entry.key,
                "already a stream",
                "give one of them another name: rules tell them apart by it",
            )
            continue
        found[entry.name] = _stream(document, entry.name, entry.value, is_table=True)
    return {name: stream for name, stream in found.items() if stream is not None}


def _stream(document: Document, name: str, node: yaml.Node, *, is_table: bool = False) -> Stream | None:
    before = len(document.diagnostics)
    what = f"table `{name}`" if is_table else f"stream `{name}`"
    required = required_settings(node) if is_table else ("event_time", "schema")
    settings = document.settings(node, what, TABLE_SETTINGS if is_table else _SETTINGS, required)
    if settings is None:
        return None
    fields = _fields(document, settings["schema"]) if "schema" in settings else None
    event_time = ""
    if "event_time" in settings:
        event_time = document.text(settings["event_time"], "`event_time`") or ""
    clock = None
    if "device_clock" in settings:
        clock = device_clock(document, settings["device_clock"], event_time, fields)
        _check_estimated(document, event_time, settings, fields)
        fields = None if fields is None else [*fields, Field(event_time, "timestamp")]
    elif event_time:
        _check_event_time(document, event_time, settings["event_time"], fields)
    tie_break: tuple[str, ...] = ()
    if "tie_break" in settings:
        columns = document.texts(settings["tie_break"], "`tie_break`") or []
        for column, place in columns:
            _check_tie_break(document, check_column(document, "tie_break", column, place, fields), place)
        tie_break = tuple(dict.fromkeys(column for column, _ in columns))
    lateness_us = duration(document, settings, "lateness", "10 seconds, or 10s", 0)
    max_ahead_us = duration(document, settings, "max_ahead", "30 days", MAX_AHEAD_US)
    deduplicate = False
    if "deduplicate" in settings:
        deduplicate = document.boolean(settings["deduplicate"], "`deduplicate`") or False
        if deduplicate and "tie_break" not in settings:
            document.problem(
                "E0411",
                "`deduplicate` needs `tie_break`",
                settings["deduplicate"],
                "nothing tells two events of one time apart",
                "add tie_break: [column] with the column that identifies an event",
            )
        if deduplicate and clock is not None:
            document.problem(
                "E0416",
                "`deduplicate` and `device_clock` together",
                settings["deduplicate"],
                "copies are found by their event time; an estimated one differs from copy to copy",
                "remove copies before, by the column that identifies an event",
            )
    valid = (MIN_VALID_US, MAX_VALID_US)
    if "valid_time" in settings:
        valid = _valid_time(document, settings["valid_time"]) or valid
    layout = csv_layout(document, settings["csv"]) if "csv" in settings else None
    table = table_settings(document, settings, fields) if is_table else None
    if len(document.diagnostics) > before or not fields:
        return None
    return Stream(
        name,
        tuple(fields),
        event_time,
        tie_break,
        lateness_us,
        deduplicate,
        *valid,
        max_ahead_us=max_ahead_us,
        csv=layout or COMMA_SEPARATED,
        device_clock=clock,
        table=table,
    )


def _fields(document: Document, node: yaml.Node) -> list[Field] | None:
    """Return the columns, or None after a report if one of them is wrong."""
    if isinstance(node, yaml.ScalarNode) and node.value:
        return _fields_of_ddl(document, node)
    if isinstance(node, yaml.SequenceNode):
        document.problem(
            "E0402",
            "`schema` must say the type of each column",
            node,
            "a list has no types",
            "write for example: {ts: timestamp, amount: double}",
        )
        return None
    entries = document.mapping(node, "`schema`")
    if entries is None:
        return None
    if not entries:
        document.problem(
            "E0404", "the schema has no column", node, "empty", "add columns: {ts: timestamp, ...}"
        )
        return None
    seen: dict[str, str] = {}
    fields = []
    for entry in entries:
        _check_name(document, entry.name, entry.key, seen)
        found = _field(document, entry)
        if found is not None:
            fields.append(found)
    return fields if len(fields) == len(entries) else None


def _fields_of_ddl(document: Document, node: yaml.ScalarNode) -> list[Field] | None:
    """Return the columns of a schema written as in Spark: ``id bigint, name string``."""
    text = document.text(node, "`schema`")
    kind = None if text is None else parse_type(f"struct<{text}>")
    if kind is None:
        document.problem(
            "E0406",
            "`schema` is not a list of columns with their types",
            node,
            "not as Spark writes a schema",
            'write for example: {ts: timestamp, amount: double}, or "ts timestamp, amount double"',
        )
        return None
    seen: dict[str, str] = {}
    for name in kind.names:
        _check_name(document, name, node, seen)
    return [Field(name, str(part)) for name, part in zip(kind.names, kind.parts, strict=True)]


def _check_name(document: Document, name: str, node: yaml.Node, seen: dict[str, str]) -> None:
    if name.startswith(("_", "#")):
        document.problem(
            "E0413",
            f"`{name}` cannot be a column's name",
            node,
            "names that begin with _ or # are the engine's own",
            f"give it another name: id: {{type: string, field: {name}}}",
        )
    other = seen.setdefault(name.casefold(), name)
    if other != name:
        document.problem(
            "E0413",
            f"`{name}` and `{other}` differ in upper and lower case only",
            node,
            "Spark does not tell them apart",
            "rename one of them",
        )


def _field(document: Document, entry: Entry) -> Field | None:
    """Return a column. Its entry is a type, or settings that also say how the data are written."""
    settings: dict[str, yaml.Node] = {"type": entry.value}
    if isinstance(entry.value, yaml.MappingNode):
        found = document.settings(entry.value, f"column `{entry.name}`", _COLUMN_SETTINGS, ("type",))
        if found is None or "type" not in found:
            return None
        settings = found
    kind = document.text(settings["type"], f"the type of `{entry.name}`")
    if kind is None:
        return None
    ddl = canonical_ddl(kind)
    if ddl is None:
        _refuse_type(document, kind, settings["type"])
        return None
    for name, types in _TYPES_OF.items():
        if name in settings and ddl not in types:
            document.problem(
                "E0415",
                f"a column of type {ddl} has no `{name}`",
                settings[name],
                f"for columns of type {' or '.join(types)} only",
                f"remove it, or declare the type {types[0]}",
            )
            return None
    for one, other in (("unit", "format"), ("unit", "zone")):
        if one in settings and other in settings:
            document.problem(
                "E0416",
                f"`{one}` and `{other}` together",
                settings[other],
                f"a count since 1970 has no {other}",
                "keep one of them: `unit` for numbers, `format` and `zone` for texts",
            )
            return None
    unit = _unit(document, settings["unit"]) if "unit" in settings else ""
    form = _format(document, settings, ddl) if "format" in settings else ""
    zone = _zone(document, settings["zone"]) if "zone" in settings else ""
    place = read_place(document, settings["field"]) if "field" in settings else ((), ())
    if unit is None or form is None or zone is None or place is None:
        return None
    return Field(entry.name, ddl, unit, form, zone, *place)


def _unit(document: Document, node: yaml.Node) -> str | None:
    text = document.text(node, "`unit`")
    if text is not None and text not in UNITS:
        document.problem(
            "E0420",
            f"there is no unit `{text}`",
            node,
            "not a unit of a count since 1970",
            f"write {_OTHER_UNITS[text]}" if text in _OTHER_UNITS else did_you_mean(text, UNITS, "units"),
        )
        return None
    return text


def _format(document: Document, settings: dict[str, yaml.Node], ddl: str) -> str | None:
    text = document.text(settings["format"], "`format`")
    if text is None:
        return None
    try:
        form = read_format(text)
    except FormatError as error:
        document.problem("E0419", error.problem, settings["format"], "not as strptime writes it", error.help)
        return None
    if ddl == "date" and form.has_time:
        document.problem(
            "E0419",
            "a date has no hours and no zone",
            settings["format"],
            "says more than a day",
            "declare the type timestamp",
        )
        return None
    if form.has_zone and "zone" in settings:
        document.problem(
            "E0416",
            "`zone` beside a format with `%z`",
            settings["zone"],
            "the texts say their zone",
            "remove `zone`",
        )
        return None
    return text


def _zone(document: Document, node: yaml.Node) -> str | None:
    text = document.text(node, "`zone`")
    if text is None or text in _zones():
        return text
    ending = text.rpartition("/")[2].casefold()
    near = [name for name in sorted(_zones()) if name.rpartition("/")[2].casefold() == ending]
    advice = f"did you mean `{near[0]}`? Write" if near else ""
    if not _zones():
        advice = "this machine has no time zones: install the package tzdata, then write"
    document.problem(
        "E0417",
        f"there is no time zone `{text}`",
        node,
        "not a name of the time zone database",
        f"{advice or 'write'} a name such as Europe/Berlin, America/New_York or UTC",
    )
    return None


@cache
def _zones() -> frozenset[str]:
    """Return the names of all time zones. `localtime`, the zone of this machine, is not one of them."""
    return frozenset(available_timezones() - {"localtime"})


def _refuse_type(document: Document, kind: str, node: yaml.Node) -> None:
    base = re.split("[(<]", kind.lower())[0].strip()
    shapes = ("decimal(p, s)", "binary", "array<type>", "struct<name: type>", "map<string, type>")
    help_text = did_you_mean(kind, (*DDL_TYPES, *shapes), "types")
    if base == "decimal":
        help_text = f"write decimal(p, s): p digits, at most {MAX_DIGITS}, s of them after the point"
    if base in ("array", "struct", "map"):
        help_text = (
            "write it as Spark does, up to 10 levels deep: array<int>, struct<id: bigint, name: string>, "
            "map<string, double>; keys of maps are texts or whole numbers"
        )
    if kind.count("(") > kind.count(")") or kind.count("<") > kind.count(">"):
        help_text = "between braces a comma ends the entry: put the type in quotes, as in 'decimal(10, 2)'"
    if base in _OTHER_TYPES:
        help_text = f"write {_OTHER_TYPES[base]}; {help_text.split('? ')[-1]}"
    document.problem("E0406", f"there is no column type `{kind}`", node, "not a type of a column", help_text)


def _check_estimated(
    document: Document, name: str, settings: Mapping[str, yaml.Node], fields: list[Field] | None
) -> None:
    """Report an event time that is a column of the data, though it is to be estimated."""
    if not name or fields is None:
        return
    if any(field.name.casefold() == name.casefold() for field in fields):
        document.problem(
            "E0416",
            f"the event time `{name}` is in the schema, and estimated by `device_clock`",
            settings["event_time"],
            "no column of the data",
            "give the estimated time a name of its own, such as true_time",
        )
    else:
        _check_name(document, name, settings["event_time"], {})


def _check_tie_break(document: Document, column: Field | None, node: yaml.Node) -> None:
    if column is not None and column.type is Type.OPAQUE:
        document.problem(
            "E0402",
            f"`tie_break` names `{column.name}`, which is {column.ddl}",
            node,
            "has no order",
            "name columns of single values",
        )


def _check_event_time(document: Document, name: str, node: yaml.Node, fields: list[Field] | None) -> None:
    column = check_column(document, "event_time", name, node, fields) if name else None
    if column is not None and column.ddl != "timestamp":
        document.problem(
            "E0408",
            f"the event time `{name}` is {column.ddl}, not timestamp",
            node,
            "not a point in time",
            f"declare {name}: timestamp, or name another column",
        )


def _valid_time(document: Document, node: yaml.Node) -> tuple[int, int] | None:
    texts = document.texts(node, "`valid_time`")
    if texts is None:
        return None
    times = [parse_timestamp(text) for text, _ in texts]
    if len(times) == 2 and times[0] is not None and times[1] is not None and times[0] < times[1]:
        return times[0], times[1]
    document.problem(
        "E0410",
        "`valid_time` is not a range of time",
        node,
        "expected two points in time, the earlier one first",
        "write for example: valid_time: [2013-01-01, 2030-01-01]",
    )
    return None
