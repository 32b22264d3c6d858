"""Fetch ActiveMQ Artemis into the folder `.servers`, and install the client of AMQP 1.0 that tests use.

The jars come from Maven Central as those of Kafka do, and must be those of `artemis.sha256`. The client is
compiled here: without a C compiler it is left out, and the tests that need it are skipped.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pyspark

from spark_runtime.sessions.java import find_java

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".servers"
ARTEMIS = FOLDER / "artemis"


def is_whole(folder: Path) -> bool:
    """Return whether a folder has the jars of Artemis, and nothing else."""
    lines = (HERE / "artemis.sha256").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split() for line in lines)}
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*")} == expected


def fetch(folder: Path) -> None:
    """Let Ivy put the jars into `folder`."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = [find_java().command, "-cp", str(jars), "org.apache.ivy.Main"]
    command += ["-settings", str(HERE / "ivysettings.xml"), "-ivy", str(HERE / "ivy-artemis.xml")]
    command += ["-cache", str(folder / "cache"), "-types", "jar", "bundle"]
    command += ["-retrieve", str(folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own Java
    if done.returncode:
        sys.exit(f"error: ActiveMQ Artemis cannot be fetched from Maven Central:\n{done.stdout[-2000:]}")


def install_client() -> None:
    """Install the client, if it can be compiled."""
    lock = HERE / "requirements-amqp.lock"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--require-hashes", "-r", str(lock)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own Python
        print("servers: python-qpid-proton cannot be compiled; the tests of `cep spool amqp` are skipped")


def main() -> None:
    """Fetch what is missing."""
    if find_spec("proton") is None:
        print("servers: compiling python-qpid-proton, the client of AMQP 1.0 that tests use")
        install_client()
    if is_whole(ARTEMIS):
        return
    print("servers: fetching ActiveMQ Artemis that tests use into .servers (17 MB)")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        fetch(Path(place))
        found = Path(place) / "jars"
        if not is_whole(found):
            sys.exit("error: the jars of ActiveMQ Artemis are not those of tools/servers/artemis.sha256")
        shutil.rmtree(ARTEMIS, ignore_errors=True)
        found.rename(ARTEMIS)


if __name__ == "__main__":
    main()
