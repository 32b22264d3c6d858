"""The part of the tables that a publication sends, and whether the publication has changed.

The server decodes each change with the publication at the time of the change. So a row that the publication
did not send is never sent, and nothing in the log says that it is missing. Each change of a publication, even
one that is undone later, rewrites its rows in the catalog, with another `xmin`. A stream keeps these numbers
in its checkpoint, and compares them after everything that it plans to read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cep.errors import StateError
from spark_runtime.connectors.postgres.reading import PostgresReading

WAIT_SECONDS = 20.0
"""How many seconds a transaction that changes the publication may be open."""

_RETRY_SECONDS = 0.1

_ACTIONS = ("insert", "update", "delete", "truncate")
_WORDS = {"pubviaroot": "publish_via_partition_root", "puballtables": "FOR ALL TABLES"}
_OF_NO_CONCERN = ("oid", "pubname", "pubowner")

_LOOK = """
WITH published AS (
  SELECT p.oid::bigint AS oid, p.xmin, p.xmax, to_jsonb(p) AS settings
  FROM pg_publication p WHERE pubname = %(publication)s
), ours AS (
  SELECT w.schema || '.' || w.name AS name, c.oid, c.relpersistence = 'p' AS is_logged
  FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS w(schema, name)
  JOIN pg_namespace n ON n.nspname = w.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name AND c.relkind IN ('r', 'p')
), lines AS (
  SELECT name, oid AS relation FROM ours
  UNION SELECT ours.name, a.relid FROM ours, pg_partition_ancestors(ours.oid) a
), entries AS (
  SELECT l.name, 'table' AS kind, r.oid::bigint AS oid, r.xmin, r.xmax
  FROM pg_publication_rel r JOIN published p ON r.prpubid = p.oid JOIN lines l ON l.relation = r.prrelid
  UNION ALL
  SELECT l.name, 'partition', i.inhparent::bigint, i.xmin, i.xmax
  FROM pg_inherits i JOIN lines l ON l.relation = i.inhrelid
  JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
  {schemas}
)
SELECT
  (SELECT jsonb_object_agg(name, jsonb_build_array(oid::bigint, is_logged)) FROM ours),
  (SELECT jsonb_build_object('oid', oid, 'version', xmin::text, 'settings', settings) FROM published),
  (SELECT jsonb_agg(jsonb_build_array(name, kind, oid, xmin::text) ORDER BY name, kind, oid) FROM entries),
  EXISTS (
    SELECT FROM (SELECT xmax FROM published UNION ALL SELECT xmax FROM entries) AS w(writer)
    WHERE writer::text <> '0' AND age(writer) <= age(pg_snapshot_xmin(pg_current_snapshot())::xid)
  )
"""
# `xmax` of a visible row: the transaction that changes it and has not committed, or has failed.

_OF_SCHEMAS = """
  UNION ALL
  SELECT l.name, 'schema', s.oid::bigint, s.xmin, s.xmax
  FROM pg_publication_namespace s JOIN published p ON s.pnpubid = p.oid
  JOIN lines l ON true JOIN pg_class c ON c.oid = l.relation AND c.relnamespace = s.pnnspid
"""

Record = Mapping[str, Any]
"""The description of a publication; a JSON value, which checkpoints contain. `oid`, `version` and `settings`
are those of its row in the catalog. For each table, `tables` contains its `oid`, whether it `is_logged`, its
`entries` (the rows that put it into the publication), `columns` and `condition` (None: all)."""


class Published(NamedTuple):
    """The published part of a table: its columns (None: unknown), and the condition of its rows."""

    columns: frozenset[str] | None
    condition: str | None


def published_tables(reading: PostgresReading, connection: Any) -> dict[str, Published]:
    """Return the published part of each table, by table."""
    more = "attnames, rowfilter" if connection.info.server_version >= 150_000 else "NULL::text[], NULL::text"
    rows = connection.execute(
        f"SELECT schemaname || '.' || tablename, {more} "  # noqa: S608 - one of two texts above
        "FROM pg_publication_tables WHERE pubname = %s",
        [reading.publication],
    ).fetchall()
    return {
        name: Published(None if columns is None else frozenset(columns), condition)
        for name, columns, condition in rows
    }


def statement(reading: PostgresReading) -> str:
    """Return the statement that creates the publication."""
    names = ", ".join(quoted(name).replace(".", '"."', 1) for name in reading.tables)
    return (
        f"CREATE PUBLICATION {quoted(reading.publication)} FOR TABLE {names} "
        "WITH (publish_via_partition_root = true)"
    )


def create(reading: PostgresReading, connection: Any) -> None:
    """Create the publication if it is missing. The log contains changes from then on."""
    found = connection.execute("SELECT 1 FROM pg_publication WHERE pubname = %s", [reading.publication])
    if not found.fetchall():
        connection.execute(statement(reading))


def quoted(name: str) -> str:
    """Return a name as a quoted identifier."""
    return '"' + name.replace('"', '""') + '"'


# ---------------------------------------------------------------- before and now


def look(reading: PostgresReading, connection: Any) -> Record:
    """Return the description of the publication; it has no `oid` if the publication is missing.

    The description includes everything committed before the end of the log at the time of the call. Raises
    StateError: a transaction that changes it is open for too long (E0868).
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found, is_changing = _look(reading, connection)
        if not is_changing:
            return found
        # Its commit may already be in the log, before others can see it.
        if time.monotonic() > deadline:
            raise StateError(
                "E0868",
                f"a transaction that is open changes publication `{reading.publication}`",
                "end it; until then nobody knows what the publication sends",
            )
        time.sleep(_RETRY_SECONDS)


def table_oids(reading: PostgresReading, connection: Any) -> dict[int, str]:
    """Return the tables by their object identifiers; raise StateError (E0868) if one is gone."""
    tables = _look(reading, connection)[0]["tables"]
    for name in reading.tables:
        if name not in tables:
            raise changed(reading, no_table(name))
    return {table["oid"]: name for name, table in tables.items()}


def no_table(name: str) -> str:
    """Return the text of an error about a missing table."""
    return f"there is no table `{name}` any more"


def _look(reading: PostgresReading, connection: Any) -> tuple[Record, bool]:
    schemas, _, names = zip(*(name.partition(".") for name in reading.tables), strict=True)
    has_schemas = connection.info.server_version >= 150_000
    [(tables, publication, entries, is_changing)] = connection.execute(
        _LOOK.replace("{schemas}", _OF_SCHEMAS if has_schemas else ""),
        {"publication": reading.publication, "schemas": list(schemas), "names": list(names)},
    ).fetchall()
    found: dict[str, dict[str, Any]] = {
        name: {"oid": oid, "is_logged": is_logged, "entries": []}
        for name, (oid, is_logged) in (tables or {}).items()
    }
    for name, *entry in entries or ():
        found[name]["entries"].append(entry)
    return {**(publication or {}), "tables": found}, is_changing


def record(reading: PostgresReading, connection: Any) -> Record:
    """Return the description for the checkpoint; raise StateError (E0868) if a table is not published."""
    found = _described(reading, connection, look(reading, connection))
    _require(reading, None, found)
    return found


def _described(reading: PostgresReading, connection: Any, found: Record) -> Record:
    """Return the description of a publication, in the form for errors."""
    of_tables = published_tables(reading, connection)
    tables = {}
    for name, table in found["tables"].items():
        columns, condition = of_tables.get(name, Published(None, None))
        shown = {"columns": None if columns is None else sorted(columns), "condition": condition}
        tables[name] = {**table, **shown}
    return {**found, "tables": tables}


def require_same(reading: PostgresReading, connection: Any, before: Record | None) -> None:
    """Raise StateError (E0868) if the publication has changed.

    `before` is None in the checkpoint of an earlier version: then it must exist and contain all tables.
    """
    now = look(reading, connection)
    if next(differences(reading, before, now), None) is not None:
        _require(reading, before, _described(reading, connection, now))


def _require(reading: PostgresReading, before: Record | None, now: Record) -> None:
    what = next(differences(reading, before, now), None)
    if what is not None:
        raise changed(reading, what)


def changed(reading: PostgresReading, what: str) -> StateError:
    """Return the error for a publication or a table that has changed."""
    return StateError(
        "E0868",
        f"{what}; changes that were committed meanwhile may not be in the log, and nobody can tell",
        "to undo it does not bring them back. Make the publication as it should be, "
        f"SELECT pg_drop_replication_slot('{reading.slot}'), and start with an empty checkpoint directory "
        "and `from: copy`, which reads the rows that are there",
    )


def differences(reading: PostgresReading, before: Record | None, now: Record) -> Iterator[str]:
    """Yield the differences, in words."""
    name = f"publication `{reading.publication}`"
    if "oid" not in now:
        yield f"there is no {name} any more"
        return
    if before is not None and before["oid"] != now["oid"]:
        yield f"{name} was dropped and created again"
    elif before is not None and before["version"] != now["version"]:
        yield from _of_settings(name, before["settings"], now["settings"])
    for table in reading.tables:
        if table not in now["tables"]:
            yield no_table(table)
        else:
            known = None if before is None else before["tables"][table]
            yield from _of_table(name, table, known, now["tables"][table], now["settings"])


def _of_settings(name: str, before: Record, now: Record) -> Iterator[str]:
    known, found = _settings(before), _settings(now)
    different = [setting for setting in {**known, **found} if known.get(setting) != found.get(setting)]
    for setting in different:
        yield f"`{setting}` of {name} is `{found.get(setting)}`, and was `{known.get(setting)}`"
    if not different:
        yield f"{name} was changed, and perhaps changed back (or it got another owner)"


def _settings(row: Record) -> dict[str, Any]:
    """Return the settings of a publication by their names in SQL."""
    published = [action for action in _ACTIONS if row.get(f"pub{action}")]
    others = {name: value for name, value in row.items() if name.removeprefix("pub") not in _ACTIONS}
    return {
        "publish": ", ".join(published),
        **{_WORDS.get(name, name): value for name, value in others.items() if name not in _OF_NO_CONCERN},
    }


def _of_table(name: str, table: str, before: Record | None, now: Record, settings: Record) -> Iterator[str]:
    is_published = settings.get("puballtables") or any(kind != "partition" for kind, *_ in now["entries"])
    if before is not None and before["oid"] != now["oid"]:
        yield f"table `{table}` is another one than it was: it was dropped and created again, or renamed"
    elif not now["is_logged"]:  # a publication FOR ALL TABLES does not prevent it
        yield f"table `{table}` is UNLOGGED, so the log does not have its changes"
    elif not is_published:
        yield f"{name} does not have table `{table}` any more"
    elif before is not None and before["entries"] != now["entries"]:
        for what, word in (("condition", "rows"), ("columns", "columns")):
            known, found = before.get(what), now.get(what)
            if known != found and what in now:
                yield f"{name} sends of table `{table}` the {word} {_shown(found)}, and sent {_shown(known)}"
        yield f"table `{table}` was taken out of {name} and put in again, or its entry there was changed"


def _shown(value: Any) -> str:
    if value is None:
        return "all"
    return f"`{', '.join(value) if isinstance(value, list) else value}`"
