"""A table of PostgreSQL as a sink: its settings. On the driver only; psycopg is not needed to read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cep.errors import InputError
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.connectors.postgres.connection_settings import CONNECTION, connection_of
from spark_runtime.sinks.place import Place, server_place
from spark_runtime.sinks.protocol import Output, TableSink
from spark_runtime.sinks.registry import ALL_KINDS, SinkContext, SinkSpec, SinkType
from spark_runtime.wire.output import MATCH

APPEND, UPSERT = "append", "upsert"


class _PostgresType:
    """See `SinkType`."""

    settings = (*CONNECTION, "table", "mode")
    kinds = ALL_KINDS

    def spec(self, settings: Settings) -> SinkSpec | None:
        """Return the spec, or None if a problem was noted."""
        is_there = settings.require_package("psycopg", "postgres")
        before = len(settings.document.diagnostics)
        connection, table = connection_of(settings), settings.text("table")
        mode = settings.word("mode", (APPEND, UPSERT), APPEND)
        if not is_there or connection is None or table is None or len(settings.document.diagnostics) > before:
            return None
        schema, dot, name = table.rpartition(".")
        if not name or (dot and not schema):
            settings.document.problem(
                "E0402",
                f"`{table}` names no table",
                settings.found["table"],
                "no name",
                "write table: alerts, or with a schema, table: fraud.alerts",
            )
            return None
        return PostgresSpec(connection, schema, name, mode == UPSERT)


@dataclass(frozen=True, slots=True)
class PostgresSpec:
    """A table.

    Parameters
    ----------
    connection
        Where the server is.
    schema
        The schema of the table; empty: the first one of the user's search path.
    table
        Its name.
    is_current
        Whether the table is kept current: a row that is withdrawn is removed. Else rows are only added.
    """

    connection: Connection
    schema: str
    table: str
    is_current: bool = False

    def places(self, output: Output) -> Sequence[Place]:
        """Return the table."""
        server, _, database = self.connection.address.rpartition("/")
        host, _, port = server.rpartition(":")
        table = self._table_of(output)
        names = (database, self.schema or "public", table)
        shown = f"table `{self.schema}.{table}`" if self.schema else f"table `{table}`"
        return (server_place(shown, "postgres", host, port, *names),)

    def _table_of(self, output: Output) -> str:
        # Late events of several streams have columns of their own.
        stream = output.folder.partition("=")[2]
        return f"{self.table}_{stream}" if stream else self.table

    def open(self, output: Output, context: SinkContext) -> TableSink:
        """Return the sink; raises InputError if the rows have no `match_id` to be kept current by."""
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


POSTGRES: SinkType = _PostgresType()
