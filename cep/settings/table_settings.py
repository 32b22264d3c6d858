"""What a streams file says of a table, besides what it says of any stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from cep.expression import Type
from cep.schema.stream import DEFAULT_MAX_ROWS, Field, TableKind, TableSettings
from cep.settings.stream_settings import check_column
from cep.settings.yaml_document import Document

_OF_TIME = ("event_time", "lateness", "valid_time", "max_ahead", "op")
"""Settings that a table without event time has no use for."""

TABLE_SETTINGS = (
    *("key", "op", "replicated", "static", "max_rows", *_OF_TIME[:-1]),
    *("tie_break", "schema", "csv"),
)


def required_settings(node: yaml.Node) -> tuple[str, ...]:
    """Return what the declaration of a table must have: without `static: true` an event time, too."""
    is_static = isinstance(node, yaml.MappingNode) and any(
        isinstance(value, yaml.ScalarNode) and key.value == "static" and value.value.lower() in _YES
        for key, value in node.value
    )
    return ("key", "schema") if is_static else ("key", "event_time", "schema")


_YES = ("true", "yes", "on")


def table_settings(
    document: Document, settings: Mapping[str, yaml.Node], fields: Sequence[Field] | None
) -> TableSettings | None:
    """Return what makes a stream a table, or None after a report."""
    before = len(document.diagnostics)
    kind = _kind(document, settings)
    key = _key(document, settings["key"], fields) if "key" in settings else ()
    op = None
    if "op" in settings:
        op = document.text(settings["op"], "`op`")
        column = None if op is None else check_column(document, "op", op, settings["op"], fields)
        if column is not None and column.type is not Type.STRING:
            document.problem(
                "E0424",
                f"`op` names `{column.name}`, which is {column.ddl}",
                settings["op"],
                "no word that says what was done",
                "name a column of type string",
            )
    max_rows = None if kind is TableKind.CHANGELOG else DEFAULT_MAX_ROWS
    if "max_rows" in settings:
        max_rows = document.integer(settings["max_rows"], "`max_rows`")
        if max_rows == 0:
            document.problem(
                "E0425",
                "a table of no rows",
                settings["max_rows"],
                "not one row may be there",
                "write the most rows that may be there at one time, such as 1000000",
            )
    return None if len(document.diagnostics) > before else TableSettings(key, kind, op, max_rows)


def _kind(document: Document, settings: Mapping[str, yaml.Node]) -> TableKind:
    """Return where the rows of a table are needed; report settings that contradict each other."""
    chosen = {
        name: settings[name]
        for name in ("replicated", "static")
        if name in settings and document.boolean(settings[name], f"`{name}`")
    }
    if len(chosen) > 1:
        document.problem(
            "E0423",
            "`replicated` and `static` together",
            chosen["replicated"],
            "a static table is everywhere, too",
            "keep `static` if its rows have no event time, else `replicated`",
        )
    if "static" not in chosen:
        return TableKind.REPLICATED if "replicated" in chosen else TableKind.CHANGELOG
    for name in _OF_TIME:
        if name in settings:
            document.problem(
                "E0423",
                f"a static table has no `{name}`",
                settings[name],
                "its rows are valid always",
                f"remove `{name}`, or `static` if the rows change in the course of event time",
            )
    return TableKind.STATIC


def _key(document: Document, node: yaml.Node, fields: Sequence[Field] | None) -> tuple[str, ...]:
    names = document.texts(node, "`key`") or []
    for name, place in names:
        column = check_column(document, "key", name, place, fields)
        if column is not None and column.type in (Type.DOUBLE, Type.OPAQUE):
            document.problem(
                "E0424",
                f"`key` names `{column.name}`, which is {column.ddl}",
                place,
                "not compared exactly" if column.type is Type.DOUBLE else "no single value",
                "name columns of whole numbers, text, time or BOOLEAN",
            )
    if isinstance(node, yaml.SequenceNode) and not node.value:
        document.problem("E0404", "the key has no column", node, "empty", "name a column: key: [id]")
    return tuple(dict.fromkeys(name for name, _ in names))
