"""The SQL statements of the sink, for the table of an output, the ledger and the rows.

The ledger has a row for each stream and output: the number of its last micro-batch, and the identity of its
plan. It is updated in the transaction of the rows, so a repeated micro-batch finds its number and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
from psycopg.sql import SQL, Composable, Composed, Identifier, Placeholder

from cep.program.program import EVENT_NUMBER
from cep.rule_set import KIND, RETRACT, REVISION
from spark_runtime.sinks.protocol import Output
from spark_runtime.wire.output import MATCH

LEDGER = "cep_ledger"
_STAGED = Identifier("cep_staged")
_ID = "match_id"

_INTEGERS = {8: "smallint", 16: "smallint", 32: "integer", 64: "bigint"}
_WIDER = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("bigint", "numeric"),
    "bigint": ("numeric",),
    "real": ("double precision",),
    "text": ("character varying", "uuid", "citext"),
    "jsonb": ("json",),
}
"""Types of an existing column that accept all values of our type. A column `uuid` accepts a `match_id`;
another text ends the run."""


def type_of(kind: pa.DataType) -> str:
    """Return the PostgreSQL type for values of an Arrow type."""
    if pa.types.is_integer(kind):
        return _INTEGERS[kind.bit_width]
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    for is_kind, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_float32, "real"),
        (pa.types.is_floating, "double precision"),
        (pa.types.is_timestamp, "timestamp with time zone"),
        (pa.types.is_date, "date"),
        (pa.types.is_binary, "bytea"),
        (pa.types.is_nested, "jsonb"),
    ):
        if is_kind(kind):
            return name
    return "text"


def takes(there: str, ours: str) -> bool:
    """Return whether a column of type `there` accepts all values of type `ours`."""
    if ours.startswith("numeric"):
        digits, scale = _digits(ours)
        if there == "numeric":
            return True
        if not there.startswith("numeric"):
            return False
        digits_there, scale_there = _digits(there)
        return scale_there >= scale and digits_there - scale_there >= digits - scale
    return there == ours or there in _WIDER.get(ours, ())


def _digits(numeric: str) -> tuple[int, int]:
    digits, scale = numeric.removeprefix("numeric(").rstrip(")").split(",")
    return int(digits), int(scale)


@dataclass(frozen=True)
class Target:
    """The table of an output. `schema`: its schema; empty: the first one of the search path."""

    schema: str
    name: str
    output: Output
    is_current: bool

    @property
    def shown(self) -> str:
        """The name, for messages."""
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def place(self) -> Identifier:
        """The name, for statements."""
        return self._of_schema(self.name)

    @property
    def ledger(self) -> Identifier:
        """The ledger's name, for statements."""
        return self._of_schema(LEDGER)

    def _of_schema(self, name: str) -> Identifier:
        return Identifier(self.schema, name) if self.schema else Identifier(name)

    @cached_property
    def types(self) -> dict[str, str]:
        """The types of its columns, by name."""
        return {item.name: type_of(item.type) for item in self.output.schema}

    @cached_property
    def key(self) -> tuple[Composable, ...]:
        """The columns that identify a row; none for late events and dead letters."""
        if self.output.kind != MATCH:
            return ()
        parts: list[Composable] = [Identifier(_ID)]
        if REVISION in self.types and not self.is_current:
            parts.append(Identifier(REVISION))
        if EVENT_NUMBER in self.types:  # NULL for rules with one row for each match
            parts.append(SQL("(coalesce({}, -1))").format(Identifier(EVENT_NUMBER)))
        return tuple(parts)

    @property
    def is_corrected(self) -> bool:
        """Whether rows may withdraw existing rows."""
        return self.is_current and REVISION in self.types

    # ------------------------------------------------------------ tables

    def make(self) -> list[Composed]:
        """Return the statements that create the table."""
        columns = [
            SQL("{} {}{}").format(
                Identifier(item.name),
                SQL(self.types[item.name]),
                SQL("" if item.nullable else " NOT NULL"),
            )
            for item in self.output.schema
        ]
        made = [SQL("CREATE TABLE {} ({})").format(self.place, _listed(columns))]
        if self.key:
            made.append(SQL("CREATE UNIQUE INDEX ON {} ({})").format(self.place, _listed(self.key)))
        return made

    def make_ledger(self) -> Composed:
        """Return the statement that creates the ledger if it is missing."""
        return SQL(
            "CREATE TABLE IF NOT EXISTS {} (run text NOT NULL, output text NOT NULL, batch bigint NOT NULL, "
            "written timestamp with time zone NOT NULL DEFAULT now(), plan text NOT NULL DEFAULT '', "
            "PRIMARY KEY (run, output))"
        ).format(self.ledger)

    def extend_ledger(self) -> Composed:
        """Return the statement that adds the column of plans to a ledger of an earlier version."""
        return SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS plan text NOT NULL DEFAULT ''").format(
            self.ledger
        )

    # ------------------------------------------------------------ a micro-batch

    def raise_ledger(self, *, has_plan: bool) -> Composed:
        """Return the statement that records a micro-batch: `run`, `output`, `batch`, `plan` (`has_plan`).

        It changes no row if this one or a later one is already recorded.
        """
        names = ["run", "output", "batch", *(["plan"] if has_plan else [])]
        values = map(Placeholder, names)
        changes = [SQL("{0} = excluded.{0}").format(Identifier(name)) for name in names[2:]]
        return SQL(
            "INSERT INTO {} AS ledger ({}) VALUES ({}) ON CONFLICT (run, output) "
            "DO UPDATE SET {}, written = now() WHERE ledger.batch < excluded.batch"
        ).format(self.ledger, _listed(map(Identifier, names)), _listed(values), _listed(changes))

    def noted(self, *, has_plan: bool) -> Composed:
        """Return the statement that reads the last record of a `run` and an `output`: number, plan."""
        plan = SQL("plan" if has_plan else "''")
        return SQL("SELECT batch, {} FROM {} WHERE run = %s AND output = %s").format(plan, self.ledger)

    def stage(self, types: dict[str, str]) -> Composed:
        """Return the statement that creates the staging table; `types` are those of the target."""
        columns = [SQL("{} {}").format(Identifier(name), SQL(types[name])) for name in self.types]
        return SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(_STAGED, _listed(columns))

    def copy(self, *, is_staged: bool) -> Composed:
        """Return the statement that copies rows in."""
        place = _STAGED if is_staged else self.place
        return SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(place, self._columns())

    def merge(self) -> list[Composed]:
        """Return the statements that move staged rows to the table, which has an index on `key`."""
        if not self.is_current:
            return [
                SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2} ON CONFLICT ({3}) DO NOTHING").format(
                    self.place, self._columns(), _STAGED, _listed(self.key)
                )
            ]
        found = [self._insert_latest()]
        return [*self._remove_withdrawn(), *found] if self.is_corrected else found

    def _remove_withdrawn(self) -> list[Composed]:
        """Return the statements that keep the last revision of each match, and remove what it replaces.

        A match that is withdrawn and found again keeps only the rows of its last revision, perhaps fewer.
        """
        place, match_id, revision = self.place, Identifier(_ID), Identifier(REVISION)
        kept = SQL("latest.{} <> {}").format(Identifier(KIND), RETRACT)
        if EVENT_NUMBER in self.types:
            same = SQL("{} = {}").format(
                SQL("coalesce(latest.{}, -1)").format(Identifier(EVENT_NUMBER)),
                SQL("coalesce(there.{}, -1)").format(Identifier(EVENT_NUMBER)),
            )
            kept = SQL("({} AND {})").format(kept, same)
        return [
            SQL(
                "DELETE FROM {staged} older USING "
                "(SELECT {id}, max({revision}) AS {revision} FROM {staged} GROUP BY {id}) latest "
                "WHERE older.{id} = latest.{id} AND older.{revision} < latest.{revision}"
            ).format(staged=_STAGED, id=match_id, revision=revision),
            SQL(
                "DELETE FROM {place} there USING (SELECT DISTINCT {id} FROM {staged}) changed "
                "WHERE there.{id} = changed.{id} AND NOT EXISTS "
                "(SELECT FROM {staged} latest WHERE latest.{id} = there.{id} AND {kept})"
            ).format(place=place, id=match_id, staged=_STAGED, kept=kept),
        ]

    def _insert_latest(self) -> Composed:
        others = [name for name in self.types if name not in (_ID, EVENT_NUMBER)]
        changes = [SQL("{0} = excluded.{0}").format(Identifier(name)) for name in others]
        which: Composable = SQL("")
        if REVISION in self.types:
            which = SQL(" WHERE {} <> {}").format(Identifier(KIND), RETRACT)
        return SQL("INSERT INTO {0} ({1}) SELECT {1} FROM {2}{3} ON CONFLICT ({4}) DO UPDATE SET {5}").format(
            self.place, self._columns(), _STAGED, which, _listed(self.key), _listed(changes)
        )

    def _columns(self) -> Composed:
        return _listed(map(Identifier, self.types))


def _listed(parts: Iterable[Composable]) -> Composed:
    return SQL(", ").join(parts)
