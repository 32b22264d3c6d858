"""The settings of a table in a streams file that streams do not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from cep.expression import Type
from cep.schema.stream import DEFAULT_MAX_ROWS, Field, TableKind, TableSettings
from cep.settings import declared
from cep.settings.declared import Wrong, read
from cep.settings.settings import Settings
from cep.settings.stream_settings import Placed, check_column, placed_names

_OF_TIME = ("event_time", "lateness", "valid_time", "max_ahead", "op")
"""Settings that a table without event time has no use for."""

_YES = ("true", "yes", "on")

_NO_ROWS = Wrong(
    "a table of no rows",
    "not one row may be there",
    "write the most rows that may be there at one time, such as 1000000",
    "E0425",
)


@dataclass(frozen=True, slots=True)
class OfTables:
    """The settings that only tables have."""

    key: tuple[Placed, ...] = declared.own(placed_names, (), required=True)
    op: str = declared.text("")
    is_replicated: bool = declared.flag(False, name="replicated")
    is_static: bool = declared.flag(False, name="static")
    max_rows: int | None = declared.integer(None, valid=bool, wrong=_NO_ROWS)


def required_settings(node: yaml.Node) -> tuple[str, ...]:
    """Return the settings that a table must have; without `static: true`, an event time is one of them."""
    is_static = isinstance(node, yaml.MappingNode) and any(
        isinstance(value, yaml.ScalarNode) and key.value == "static" and value.value.lower() in _YES
        for key, value in node.value
    )
    return ("key", "schema") if is_static else ("key", "event_time", "schema")


def table_settings(settings: Settings, fields: Sequence[Field] | None) -> TableSettings | None:
    """Return what makes a stream a table, or None after a report."""
    before = settings.n_problems
    given = read(OfTables, settings, is_complete=True)
    kind = _kind(settings, given)
    _check_key(settings, given.key, fields)
    column = None
    if given.op:
        column = check_column(settings.document, "op", given.op, settings.found["op"], fields)
    if column is not None and column.type is not Type.STRING:
        names = f"`op` names `{column.name}`, which is {column.ddl}"
        settings.problem(
            "E0424", names, "op", "no word that says what was done", "name a column of type string"
        )
    if settings.n_problems > before:
        return None
    most = None if kind is TableKind.CHANGELOG else DEFAULT_MAX_ROWS
    key = tuple(dict.fromkeys(name for name, _ in given.key))
    return TableSettings(key, kind, given.op or None, most if given.max_rows is None else given.max_rows)


def _kind(settings: Settings, given: OfTables) -> TableKind:
    """Return where the rows of a table are needed; contradictory settings are reported."""
    if given.is_replicated and given.is_static:
        settings.problem(
            "E0423",
            "`replicated` and `static` together",
            "replicated",
            "a static table is everywhere, too",
            "keep `static` if its rows have no event time, else `replicated`",
        )
    if not given.is_static:
        return TableKind.REPLICATED if given.is_replicated else TableKind.CHANGELOG
    for name in _OF_TIME:
        if name in settings:
            advice = f"remove `{name}`, or `static` if the rows change in the course of event time"
            no_such = f"a static table has no `{name}`"
            settings.problem("E0423", no_such, name, "its rows are valid always", advice)
    return TableKind.STATIC


def _check_key(settings: Settings, key: Sequence[Placed], fields: Sequence[Field] | None) -> None:
    document = settings.document
    for name, place in key:
        column = check_column(document, "key", name, place, fields)
        if column is not None and column.type in (Type.DOUBLE, Type.OPAQUE):
            label = "not compared exactly" if column.type is Type.DOUBLE else "no single value"
            advice = "name columns of whole numbers, text, time or BOOLEAN"
            title = f"`key` names `{column.name}`, which is {column.ddl}"
            document.problem("E0424", title, place, label, advice)
    node = settings.found.get("key")
    if isinstance(node, yaml.SequenceNode) and not node.value:
        document.problem("E0404", "the key has no column", node, "empty", "name a column: key: [id]")
