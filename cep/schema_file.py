"""The streams file: YAML -> `Stream`, every problem with its place."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from cep.column_types import MAX_DIGITS
from cep.errors import Diagnostic, RuleError, Source
from cep.expression import Type
from cep.language.diagnostics import did_you_mean, in_order
from cep.language.limits import TooManyErrorsError
from cep.language.source_file import read_source
from cep.language.time_literals import MAX_DURATION_US, parse_duration, parse_timestamp
from cep.schema import DDL_TYPES, MAX_VALID_US, MIN_VALID_US, Field, Stream, canonical_ddl
from cep.yaml_document import MAX_BYTES, Document

_SETTINGS = ("event_time", "tie_break", "lateness", "deduplicate", "valid_time", "schema")

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
        With every problem of the file, or because it cannot be read.
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
            settings = document.settings(root, "the streams file", ("streams",), ("streams",))
        if settings is not None and "streams" in settings:
            streams = read_streams(document, settings["streams"])
    except TooManyErrorsError:
        pass  # the last diagnostic says so
    return streams, in_order(document.diagnostics)


def read_streams(document: Document, node: yaml.Node) -> dict[str, Stream]:
    """Return the sound streams of a mapping name -> declaration; problems go to `document`."""
    entries = document.mapping(node, "`streams`")
    if entries is None:
        return {}
    if not entries:
        document.problem(
            "E0404", "no stream is declared", node, "empty", "declare one: name: {event_time: ts, ...}"
        )
    found = {entry.name: _stream(document, entry.name, entry.value) for entry in entries}
    return {name: stream for name, stream in found.items() if stream is not None}


def _stream(document: Document, name: str, node: yaml.Node) -> Stream | None:
    before = len(document.diagnostics)
    what = f"stream `{name}`"
    settings = document.settings(node, what, _SETTINGS, ("event_time", "schema"))
    if settings is None:
        return None
    fields = _fields(document, settings["schema"]) if "schema" in settings else None
    event_time = ""
    if "event_time" in settings:
        event_time = document.text(settings["event_time"], "`event_time`") or ""
        _check_event_time(document, event_time, settings["event_time"], fields)
    tie_break: tuple[str, ...] = ()
    if "tie_break" in settings:
        columns = document.texts(settings["tie_break"], "`tie_break`") or []
        for column, place in columns:
            _check_tie_break(document, _check_column(document, "tie_break", column, place, fields), place)
        tie_break = tuple(dict.fromkeys(column for column, _ in columns))
    lateness_us = _lateness(document, settings["lateness"]) if "lateness" in settings else 0
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
    valid = (MIN_VALID_US, MAX_VALID_US)
    if "valid_time" in settings:
        valid = _valid_time(document, settings["valid_time"]) or valid
    if len(document.diagnostics) > before or not fields:
        return None
    return Stream(name, tuple(fields), event_time, tie_break, lateness_us, deduplicate, *valid)


def _fields(document: Document, node: yaml.Node) -> list[Field] | None:
    """Return the columns; those of unknown type are reported and left out."""
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
        if entry.name.startswith(("_", "#")):
            document.problem(
                "E0413",
                f"`{entry.name}` cannot be a column's name",
                entry.key,
                "names that begin with _ or # are the engine's own",
                "rename the column when the data is read",
            )
        other = seen.setdefault(entry.name.casefold(), entry.name)
        if other != entry.name:
            document.problem(
                "E0413",
                f"`{entry.name}` and `{other}` differ in upper and lower case only",
                entry.key,
                "Spark does not tell them apart",
                "rename one of them",
            )
        kind = document.text(entry.value, f"the type of `{entry.name}`")
        if kind is None:
            continue
        ddl = canonical_ddl(kind)
        if ddl is None:
            _refuse_type(document, kind, entry.value)
            continue
        fields.append(Field(entry.name, ddl))
    return fields if len(fields) == len(entries) else None


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


def _check_column(
    document: Document, setting: str, name: str, node: yaml.Node, fields: list[Field] | None
) -> Field | None:
    if fields is None:
        return None
    column = next((field for field in fields if field.name == name), None)
    if column is None:
        document.problem(
            "E0407",
            f"`{setting}` names `{name}`, which is not in the schema",
            node,
            "not a column of this stream",
            did_you_mean(name, [field.name for field in fields], "columns"),
        )
    return column


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
    column = _check_column(document, "event_time", name, node, fields) if name else None
    if column is not None and column.ddl != "timestamp":
        document.problem(
            "E0408",
            f"the event time `{name}` is {column.ddl}, not timestamp",
            node,
            "not a point in time",
            f"declare {name}: timestamp, or name another column",
        )


def _lateness(document: Document, node: yaml.Node) -> int:
    text = document.text(node, "`lateness`")
    if text is None:
        return 0
    length = parse_duration(text)
    if length is None:
        document.problem(
            "E0409",
            f"`{text}` is not a duration",
            node,
            "expected a number and a unit",
            "write for example: lateness: 10 seconds",
        )
        return 0
    if length > MAX_DURATION_US:
        document.problem(
            "E0907", "a duration of more than 36,500 days", node, "too long", "use 36,500 days or less"
        )
    return length


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
