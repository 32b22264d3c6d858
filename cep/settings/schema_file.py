"""The streams file: YAML -> `Stream`. Every problem is reported with its place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from cep.arguments import path_of, wrong_argument
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
    CsvLayout,
    Field,
    Stream,
    canonical_ddl,
)
from cep.schema.time_formats import ZONE_ADVICE, FormatError, read_format, zones
from cep.schema.time_literals import parse_timestamp
from cep.settings import declared
from cep.settings.csv_settings import CsvSettings
from cep.settings.declared import Wrong, declared_settings, read
from cep.settings.given_streams import sound_streams
from cep.settings.places import Place, read_place
from cep.settings.settings import Settings
from cep.settings.source_file import read_source
from cep.settings.stream_settings import Placed, check_column, device_clock, length_us, placed_names
from cep.settings.table_settings import OfTables, required_settings, table_settings
from cep.settings.yaml_document import MAX_BYTES, Document, Entry

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
        The file is wrong, or it cannot be read. The error contains every problem of the file.
    InputError
        `path` is not a path (E0827).
    """
    path = path_of("path", path)
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


def declared_streams(streams: str | Path | Stream | Mapping[str, Stream]) -> Mapping[str, Stream]:
    """Return the streams of an argument: they themselves, or those that a file declares.

    Raises RuleError, see `load_streams`; or InputError: the argument is of another type (E0827). For streams
    that a program declares see `sound_streams`.
    """
    match streams:
        case str() | Path():
            return load_streams(streams)
        case Stream():
            return sound_streams({streams.name: streams})
        case Mapping() if all(isinstance(stream, Stream) for stream in streams.values()):
            return sound_streams(streams)
    raise wrong_argument("streams", streams, "the path of a streams file, or what load_streams returns")


def parse_streams(source: Source) -> tuple[dict[str, Stream], list[Diagnostic]]:
    """Return the sound streams of a streams file, and all problems."""
    document = Document(source)
    streams: dict[str, Stream] = {}
    try:
        root = document.root()
        settings = None
        if root is not None:
            has_tables = isinstance(root, yaml.MappingNode) and any(
                key.value == "tables" for key, _ in root.value
            )
            required = () if has_tables else ("streams",)  # views read only tables
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
    known = declared_settings(OfAll) | declared_settings(OfTables if is_table else OfStreams)
    required = required_settings(node) if is_table else ("event_time", "schema")
    found = document.settings(node, what, known, required)
    if found is None:
        return None
    settings = Settings(document, Path(), node, what, found)
    given = read(OfAll, settings, is_complete=True)
    fields, clock, deduplicate = given.fields, None, False
    if "device_clock" in settings:
        clock = device_clock(settings, given.event_time, fields)
        _check_estimated(document, given.event_time, found, fields)
        fields = None if fields is None else [*fields, Field(given.event_time, "timestamp")]
    elif given.event_time:
        _check_event_time(document, given.event_time, found["event_time"], fields)
    for column, place in given.tie_break:
        _check_tie_break(document, check_column(document, "tie_break", column, place, fields), place)
    if not is_table:
        deduplicate = read(OfStreams, settings, is_complete=True).deduplicate
    if deduplicate and clock is not None:
        settings.problem(
            "E0416",
            "`deduplicate` and `device_clock` together",
            "deduplicate",
            "copies are found by their event time; an estimated one differs from copy to copy",
            "remove copies before, by the column that identifies an event",
        )
    if deduplicate and "tie_break" not in settings:
        settings.problem(
            "E0411",
            "`deduplicate` needs `tie_break`",
            "deduplicate",
            "nothing tells two events of one time apart",
            "add tie_break: [column] with the column that identifies an event",
        )
    table = table_settings(settings, fields) if is_table else None
    if len(document.diagnostics) > before or not fields:
        return None
    return Stream(
        name,
        tuple(fields),
        given.event_time,
        tuple(dict.fromkeys(column for column, _ in given.tie_break)),
        given.lateness_us,
        deduplicate,
        *given.valid_time,
        max_ahead_us=given.max_ahead_us,
        csv=given.csv or COMMA_SEPARATED,
        device_clock=clock,
        table=table,
    )


def _schema(settings: Settings, name: str) -> list[Field] | None:
    return _fields(settings.document, settings.found[name])


def _valid_time(settings: Settings, name: str) -> tuple[int, int] | None:
    found = settings.found[name]
    texts = settings.document.texts(found, f"`{name}`") if isinstance(found, yaml.SequenceNode) else []
    if texts is None:
        return None
    times = [parse_timestamp(text) for text, _ in texts]
    if len(times) == 2 and times[0] is not None and times[1] is not None and times[0] < times[1]:
        return times[0], times[1]
    _NO_RANGE.note(settings, name, "")
    return None


_NO_RANGE = Wrong(
    "`valid_time` is not a range of time",
    "expected two points in time, the earlier one first",
    "write for example: valid_time: [2013-01-01, 2030-01-01]",
    "E0410",
)


@dataclass(frozen=True, slots=True)
class OfAll:
    """The settings of both streams and tables."""

    event_time: str = declared.text()
    fields: list[Field] | None = declared.own(_schema, None, name="schema", required=True)
    tie_break: tuple[Placed, ...] = declared.own(placed_names, ())
    lateness_us: int = length_us("lateness", 0, "10 seconds, or 10s")
    valid_time: tuple[int, int] = declared.own(_valid_time, (MIN_VALID_US, MAX_VALID_US))
    max_ahead_us: int = length_us("max_ahead", MAX_AHEAD_US, "30 days")
    csv: CsvLayout | None = declared.nested(CsvSettings, CsvSettings.layout)


@dataclass(frozen=True, slots=True)
class OfStreams:
    """The settings that only streams have."""

    deduplicate: bool = declared.flag(False)
    device_clock: yaml.Node | None = declared.later()


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
            f"give it another name: id: {{type: string, field: {repr(name) if name[0] == '#' else name}}}",
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
        known = declared_settings(ColumnSettings)
        found = document.settings(entry.value, f"column `{entry.name}`", known, ("type",))
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
    before = len(document.diagnostics)
    given = read(ColumnSettings, Settings(document, Path(), entry.value, f"column `{entry.name}`", settings))
    if given.format and not _fits(document, given.format, settings, ddl):
        return None
    if len(document.diagnostics) > before:
        return None
    return Field(entry.name, ddl, given.unit, given.format, given.zone, *given.place)


def _unit(settings: Settings, name: str) -> str | None:
    text = settings.text(name)
    if text is None or text in UNITS:
        return text
    other = _OTHER_UNITS.get(text)
    advice = did_you_mean(text, UNITS, "units") if other is None else f"write {other}"
    settings.problem("E0420", f"there is no unit `{text}`", name, "not a unit of a count since 1970", advice)
    return None


def _format(settings: Settings, name: str) -> str | None:
    text = settings.text(name)
    try:
        if text is not None:
            read_format(text)
    except FormatError as error:
        settings.problem("E0419", error.problem, name, "not as strptime writes it", error.help)
        return None
    return text


def _fits(document: Document, text: str, settings: dict[str, yaml.Node], ddl: str) -> bool:
    """Return whether a format fits the type and the other settings of a column."""
    form = read_format(text)
    if ddl == "date" and form.has_time:
        document.problem(
            "E0419",
            "a date has no hours and no zone",
            settings["format"],
            "says more than a day",
            "declare the type timestamp",
        )
        return False
    if form.has_zone and "zone" in settings:
        document.problem(
            "E0416",
            "`zone` beside a format with `%z`",
            settings["zone"],
            "the texts say their zone",
            "remove `zone`",
        )
        return False
    return True


def _zone(settings: Settings, name: str) -> str | None:
    text = settings.text(name)
    if text is None or text in zones():
        return text
    ending = text.rpartition("/")[2].casefold()
    near = [name for name in sorted(zones()) if name.rpartition("/")[2].casefold() == ending]
    advice = f"did you mean `{near[0]}`? Write" if near else ""
    if not zones():
        advice = "this machine has no time zones: install the package tzdata, then write"
    advice = f"{advice or 'write'} {ZONE_ADVICE}"
    no_zone = f"there is no time zone `{text}`"
    settings.problem("E0417", no_zone, name, "not a name of the time zone database", advice)
    return None


def _place(settings: Settings, name: str) -> Place | None:
    return read_place(settings.document, settings.found[name])


@dataclass(frozen=True, slots=True)
class ColumnSettings:
    """The settings of a column: its type, and how the data are written."""

    type: str = declared.text()
    unit: str = declared.own(_unit, "")
    format: str = declared.own(_format, "")
    zone: str = declared.own(_zone, "")
    place: Place = declared.own(_place, ((), ()), name="field")


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
    """Report an event time that is a column of the data although it should be estimated."""
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
