"""Fetch the servers that tests talk to into the folder `.servers`: a Kafka broker. `make servers` runs this.

The jars come from Maven Central through the Ivy that PySpark brings, and must be those of `kafka.sha256`.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from spark_runtime.sessions.java import find_java

HERE = Path(__file__).parent
FOLDER = HERE.parents[1] / ".servers"
KAFKA = FOLDER / "kafka"


def expected() -> dict[str, str]:
    """Return the SHA-256 of each jar of the broker, by its name."""
    lines = (HERE / "kafka.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def is_whole(folder: Path) -> bool:
    """Return whether a folder has the jars of the broker, and nothing else."""
    jars = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.glob("*")}
    return jars == expected()


def fetch(folder: Path) -> None:
    """Let Ivy put the jars into `folder`."""
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    command = [find_java().command, "-cp", str(jars), "org.apache.ivy.Main"]
    command += ["-settings", str(HERE / "ivysettings.xml"), "-ivy", str(HERE / "ivy.xml")]
    command += ["-cache", str(folder / "cache"), "-types", "jar", "bundle"]
    command += ["-retrieve", str(folder / "jars" / "[artifact]-[revision](-[classifier]).[ext]")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own Java
    if done.returncode:
        sys.exit(f"error: the Kafka broker cannot be fetched from Maven Central:\n{done.stdout[-2000:]}")


def main() -> None:
    """Fetch what is missing."""
    if is_whole(KAFKA):
        return
    print("servers: fetching the Kafka broker that tests use into .servers (43 MB)")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as place:
        fetch(Path(place))
        found = Path(place) / "jars"
        if not is_whole(found):
            sys.exit("error: the jars of the Kafka broker are not those of tools/servers/kafka.sha256")
        shutil.rmtree(KAFKA, ignore_errors=True)
        found.rename(KAFKA)


if __name__ == "__main__":
    import artemis

    main()
    artemis.main()
