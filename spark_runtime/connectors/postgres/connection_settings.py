"""The settings that the source and the sink of format `postgres` share. Only for the driver."""

from __future__ import annotations

from dataclasses import dataclass

from cep.packages import is_installed
from cep.settings import declared
from cep.settings.declared import Wrong
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection import Connection
from spark_runtime.sinks.place import Place, server_place

PACKAGE, EXTRA = "psycopg", "postgres"

_OURS = frozenset(("replication", "client_encoding", "application_name", "fallback_application_name"))

_NO_DSN = Wrong(
    "`dsn` is not a connection string of libpq",  # its own message would quote parts, such as a password
    "no connection",
    "for example: postgresql://reader@localhost:5432/shop",
)


def _of_dsn(settings: Settings, name: str) -> dict[str, str] | None:
    """Return the parameters of a connection string."""
    text = settings.secret(name)
    if text is None or not is_installed(PACKAGE):  # already reported
        return None
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except ProgrammingError:
        _NO_DSN.note(settings, name, text)
        return None


def table_place(connection: Connection, schema: str, table: str) -> Place:
    """Return the place of a table; `schema`: empty if none is named."""
    server, _, database = connection.address.rpartition("/")
    host, _, port = server.rpartition(":")
    shown = f"table `{schema}.{table}`" if schema else f"table `{table}`"
    return server_place(shown, "postgres", host, port, database, schema or "public", table)


@dataclass(frozen=True, slots=True)
class Access:
    """The address and credentials of a server: `dsn`, or the settings after it; `options` are libpq's."""

    dsn: dict[str, str] = declared.own(_of_dsn, {}, hidden=True)
    host: str = declared.text(secret=True, unless="dsn", not_with="dsn")
    database: str = declared.text(secret=True, unless="dsn", not_with="dsn")
    user: str = declared.text("", secret=True, not_with="dsn")
    password: str = declared.text("", secret=True, not_with="dsn", hidden=True)
    port: int | None = declared.integer(None, not_with="dsn")
    options: tuple[tuple[str, str], ...] = declared.texts(refused=_OURS)

    @property
    def connection(self) -> Connection:
        """The connection."""
        given = {"host": self.host, "dbname": self.database, "user": self.user, "password": self.password}
        given["port"] = "" if self.port is None else str(self.port)
        found = {name: value for name, value in given.items() if value}
        return Connection(tuple(sorted({**dict(self.options), **found, **self.dsn}.items())))
