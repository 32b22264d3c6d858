"""The connection to PostgreSQL that the source and the sink share: settings, secrets, and errors.

A connection holds names of secrets, `${NAME}`. They are looked up in the environment where it is opened, so
neither the checkpoint nor a task that Spark stores contains them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cep.errors import InputError
from spark_runtime.sources.secrets import all_replaced, without_secrets

WAIT_SECONDS = 5
"""How many seconds a server may take to answer a new connection."""

_NO_RIGHT = "42501"
_GONE = ("08", "57P")  # classes of error codes: no connection; the server was shut down
_REFUSED = "28"
_WRONG_PARAMETER = re.compile(
    r'invalid (connection option|URI query parameter|[\w ]+ value:?|port number:?) "'
    r"|parameter must be an integer"  # libpq 16
)
"""What libpq says of a parameter before it connects."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a server, and the credentials.

    `parameters`: the parameters of libpq by name, such as `host`, `dbname`, `sslmode`. In values, `${NAME}`
    is an environment variable.
    """

    parameters: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def address(self) -> str:
        """Host, port and database, for messages: ``localhost:5432/shop``."""
        found = dict(self.parameters)
        host = found.get("host") or found.get("hostaddr") or "localhost"
        return f"{host}:{found.get('port', '5432')}/{found.get('dbname') or found.get('user', '')}"

    def __repr__(self) -> str:
        return f"Connection({self.address!r})"

    def shown(self, error: object) -> str:
        """Return the message of a psycopg error, on one line and without secrets."""
        return without_secrets(error, named=self.parameters)

    def connect(self, session: Mapping[str, str] | None = None, **more: Any) -> Any:
        """Return a `psycopg.Connection` in which each statement commits by itself.

        Raises InputError: no server answers within `WAIT_SECONDS` (E0860), it refuses access (E0861), or a
        variable of the environment is missing (E0853).

        `session`: settings of the session by name, such as `timezone`. `more`: arguments of
        `psycopg.connect`, such as `autocommit=False`.
        """
        import psycopg

        given = all_replaced(self.parameters)
        flags = " ".join(f"-c {name}={value}" for name, value in (session or {}).items())
        ours = {
            "connect_timeout": str(WAIT_SECONDS),
            "application_name": "spark-cep",
            "client_encoding": "utf8",
            "autocommit": True,
        }
        flags = " ".join(filter(None, (given.pop("options", ""), flags)))
        try:
            return psycopg.connect(**{**ours, **given, **({"options": flags} if flags else {}), **more})
        except psycopg.Error as error:
            raise self.failure(error, "this database") from error

    def failure(self, error: Any, doing: str) -> InputError:
        """Return the error that a user sees for an error of psycopg; `doing` names the failed action."""
        said, code = self.shown(error), getattr(error, "sqlstate", None) or ""
        if not code and _WRONG_PARAMETER.search(said):
            return InputError(
                "E0867",
                f"a setting of the connection to `{self.address}` is not one of libpq: {said}",
                "correct `options` or `dsn`: "
                "https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS",
            )
        if code == _NO_RIGHT or code.startswith(_REFUSED) or (not code and _is_refusal(said)):
            return InputError(
                "E0861",
                f"`{self.address}` refuses access to {doing}: {said}",
                "check `user` and `password`, and the rights of this user",
            )
        if code.startswith(_GONE) or (not code and _is_of_connection(error)):
            return InputError(
                "E0860",
                f"no server of PostgreSQL answers at `{self.address}`: {said}",
                "start it, or correct `host`, `port` and `database`",
            )
        return InputError("E0867", f"PostgreSQL failed at {doing}: {said}")


def _is_refusal(said: str) -> bool:
    """Return whether a connection was refused because of the credentials.

    For a connection error, libpq returns no code, only the server's message.
    """
    signs = (
        "authentication failed",
        "no pg_hba.conf entry",
        "pg_hba.conf rejects",
        "permission denied",
        "no password supplied",
        "is not permitted to log in",
        'role "',
    )
    return any(sign in said for sign in signs)


def _is_of_connection(error: Any) -> bool:
    import psycopg

    return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
