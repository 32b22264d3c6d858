"""The settings of a PostgreSQL table as a sink. Only for the driver; reading them does not need psycopg."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.errors import InputError
from cep.settings import declared
from cep.settings.declared import Declared, Wrong
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.connection_settings import EXTRA, PACKAGE, Access, table_place
from spark_runtime.sinks.place import Place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkType
from spark_runtime.wire.output import MATCH

APPEND, UPSERT = "append", "upsert"


def _is_table(text: str) -> bool:
    schema, dot, name = text.rpartition(".")
    return bool(name) and (not dot or bool(schema))


_NO_TABLE = Wrong(
    "`{}` names no table", "no name", "write table: alerts, or with a schema, table: fraud.alerts"
)


@dataclass(frozen=True, slots=True)
class _Settings(Access):
    table: str = declared.text(valid=_is_table, wrong=_NO_TABLE)
    is_current: bool = declared.choice({APPEND: False, UPSERT: True}, name="mode")

    def spec(self, settings: Settings) -> PostgresSpec:
        schema, _, name = self.table.rpartition(".")
        return PostgresSpec(self.connection, schema, name, self.is_current)


@dataclass(frozen=True, slots=True)
class PostgresSpec:
    """A table.

    `schema`: the schema of the table; empty: the first schema of the user's search path. `is_current`:
    whether the table is kept current: a withdrawn row is removed. Otherwise rows are only added.
    """

    connection: Connection
    schema: str
    table: str
    is_current: bool = False

    def places(self, output: Output) -> Sequence[Place]:
        """Return the table."""
        return (table_place(self.connection, self.schema, self._table_of(output)),)

    def _table_of(self, output: Output) -> str:
        # Late events of several streams have different columns.
        stream = output.folder.partition("=")[2]
        return f"{self.table}_{stream}" if stream else self.table

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink; raise InputError if it must be kept current and the rows have no `match_id`."""
        from spark_runtime.connectors.postgres.sink import PostgresSink
        from spark_runtime.connectors.postgres.statements import Target

        if self.is_current and output.kind != MATCH:
            raise InputError(
                "E0843",
                f"the sink of table `{self.table}` has no `match_id`, it gets no matches",
                "write mode: append",
            )
        target = Target(self.schema, self._table_of(output), output, self.is_current)
        return PostgresSink(output, self.connection, target)


POSTGRES: SinkType = Declared(_Settings, _Settings.spec, package=PACKAGE, extra=EXTRA, kinds=ALL_KINDS)
