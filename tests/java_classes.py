"""``python -m tests.java_classes``: writes the classes of Spark into a file, from which Java starts faster.

Each Java of the tests reads and checks thousands of classes, which takes half of the processor time of its
start. With the file (Java's class data sharing) it has them at once. A Java with another version or other
archives on its class path does not use the file, and says nothing about it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(sys.prefix) / ".java-classes"
"""Where the classes are; `make test` writes them."""

_STREAMS = """\
streams:
  events: {event_time: ts, lateness: 10 seconds, schema: {key: string, ts: timestamp, amount: double}}
"""
_RULE = """\
RULE pair
FROM events
PARTITION BY key
PATTERN a -> b
WITHIN 1 HOUR
DEFINE a AS amount > 0
MEASURES b.amount AS second
"""
_PIPELINE = """\
streams: streams.yaml
rules: [pair.cep]
source: {stream: events, format: json, path: events}
sinks: [{format: parquet, path: out/matches}, {format: json, path: out/json}]
late: {format: json, path: out/late}
dead_letter: {format: json, path: out/dead_letter}
checkpoint: out/checkpoint
trigger: available_now
mode: stream
spark: {spark.master: "local[2]", spark.sql.shuffle.partitions: "2"}
"""
_EVENT = '{{"key": "k", "ts": "2024-05-01T10:00:0{}Z", "amount": 1.0}}\n'


OPTIONS = (
    f"-XX:SharedArchiveFile={FILE} "
    "-Xlog:disable "  # it would say why it does not use the file
    "-XX:TieredStopAtLevel=1"  # the second compiler pays off after minutes: no test takes so long
)
"""Options of a Java of the tests."""

VARIABLES = {"SPARK_SUBMIT_OPTS": OPTIONS} if FILE.exists() else {}
"""What is set where Spark is started by a test."""


def own_spark(**more: str) -> dict[str, str]:
    """Return the environment of a process that starts a Spark of its own, as after `activate`.

    It lacks what other tests or the machine have set for PySpark.
    """
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    # The address: whatever the machine thinks of its name.
    return kept | VARIABLES | {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": path} | more


def _write(folder: Path) -> None:
    """Run a small stream in `folder`; Java writes the classes that it has loaded when it ends."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from spark_runtime import run_pipeline

    (folder / "streams.yaml").write_text(_STREAMS)
    (folder / "pair.cep").write_text(_RULE)
    (folder / "pipeline.yaml").write_text(_PIPELINE)
    (folder / "events").mkdir()
    (folder / "events" / "1.json").write_text("".join(map(_EVENT.format, range(9))))
    new = FILE.with_name(f"{FILE.name}.new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={new}"
    run_pipeline(folder / "pipeline.yaml", quiet=True)
    gateway: Any = SparkContext._gateway
    SparkSession.builder.getOrCreate().stop()
    gateway.proc.stdin.close()  # Java ends then
    gateway.proc.wait()
    if new.exists():
        new.replace(FILE)
    else:
        FILE.touch()


def main() -> None:
    """Write the file. Where Java cannot, it is empty, and every Java starts without it."""
    with tempfile.TemporaryDirectory() as folder:
        _write(Path(folder))


if __name__ == "__main__":
    main()
