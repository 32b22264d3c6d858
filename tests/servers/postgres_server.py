"""The PostgreSQL server of tests.

The user `postgres` needs no password and may do everything. The user `reader` needs one, and may do what a
test allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from scenarios.servers import postgres
from tests.left_out import require

USER, PASSWORD = "reader", "the-right-password"

_NUMBERS = count()

_STRANGE = {"timezone": "America/New_York", "datestyle": "SQL, DMY"}  # not what a reader may rely on


class PostgresServer(postgres.PostgresServer):
    """A server that runs."""

    def yaml(self, database: str, user: str = "postgres") -> str:
        """Return the settings of a pipeline file that name a database."""
        return f"host: 127.0.0.1, port: {self.port}, database: {database}, user: {user}"

    def database(self) -> str:
        """Make a database; return its name, which no other test has."""
        name = f"shop{next(_NUMBERS)}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return name


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, and end it. `settings` are those of `postgresql.conf`."""
    require(postgres.has_postgres(), "the PostgreSQL server")
    with postgres.running_postgres_server(**{**_STRANGE, **settings}) as found:
        server = PostgresServer(found.port, found.version)
        server.run("postgres", f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{PASSWORD}'")
        yield server
