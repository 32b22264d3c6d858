"""The settings that source and sink of format `postgres` share. On the driver only."""

from __future__ import annotations

import re

import yaml

from cep.packages import is_installed
from cep.settings.settings import Settings
from spark_runtime.connectors.postgres.connection import Connection

CONNECTION = ("dsn", "host", "port", "database", "user", "password", "options")
"""The names of the settings that say where a server is and how to get in."""

_VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")

_OURS = frozenset(("replication", "client_encoding", "application_name", "fallback_application_name"))


def connection_of(settings: Settings) -> Connection | None:
    """Return the connection, None if a problem was noted.

    It is named by `dsn`, or by `host`, `port`, `database`, `user` and `password`; `options` are parameters of
    libpq. `${NAME}` is a variable of the environment; it is not replaced here.
    """
    document, found = settings.document, settings.found
    before = len(document.diagnostics)
    parameters = settings.options(_OURS)
    if "dsn" in found:
        for name in ("host", "port", "database", "user", "password"):
            if name in found:
                document.problem(
                    "E0843", f"`dsn` and `{name}` together", found[name], "one or the other", "remove one"
                )
        parameters |= _of_dsn(settings)
    else:
        for name, parameter in (("host", "host"), ("database", "dbname")):
            parameters[parameter] = _text(settings, name)
        for name in ("user", "password"):
            if name in found:
                parameters[name] = _text(settings, name)
        if "port" in found:
            port = document.integer(found["port"], "`port`")
            parameters["port"] = str(port)
    if len(document.diagnostics) > before:
        return None
    return Connection(tuple(sorted(parameters.items())))


def _text(settings: Settings, name: str) -> str:
    """Return a text, which may have variables of the environment; empty if a problem was noted."""
    node = settings.found.get(name)
    if isinstance(node, yaml.ScalarNode) and node.value and _VARIABLE.search(node.value):
        return str(node.value)
    return settings.text(name) or ""


def _of_dsn(settings: Settings) -> dict[str, str]:
    text = _text(settings, "dsn")
    if not text or not is_installed("psycopg"):  # which is a problem that was noted
        return {}
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        return {name: str(value) for name, value in conninfo_to_dict(text).items() if value is not None}
    except ProgrammingError:
        # The words of libpq quote parts of the text, which may be a password.
        settings.document.problem(
            "E0402",
            "`dsn` is not a connection string of libpq",
            settings.found["dsn"],
            "no connection",
            "for example: postgresql://reader@localhost:5432/shop",
        )
        return {}
