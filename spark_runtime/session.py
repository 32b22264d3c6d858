"""The Spark session that pipelines run in: the few settings relied on, each with its reason."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from cep.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODES: dict[str, str] = {
    "E0801": "PySpark is missing or too old",
    "E0802": "Java is missing, too old or does not run",
    "E0803": "Spark does not start",
}
"""Code -> meaning of what can be missing on a machine."""

MIN_JAVA = 17
"""Spark 4 runs on Java 17 and later."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_ROCKSDB_CONF = "spark.sql.streaming.stateStore.rocksdb"

_LOG4J = """\
status = error
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def sql_settings() -> dict[str, str]:
    """Return the settings that may be set while a session runs; results depend on the first two."""
    return {
        # Texts without a zone are UTC for us, and so they must be for Spark.
        "spark.sql.session.timeZone": "UTC",
        # A cast that fails must fail or be asked to give NULL; ANSI off would give NULL silently.
        "spark.sql.ansi.enabled": "true",
        # State outgrows the JVM's heap; the default store keeps all of it there.
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        # A batch writes what changed, not its whole store, and does not count the store's rows.
        f"{_ROCKSDB_CONF}.changelogCheckpointing.enabled": "true",
        f"{_ROCKSDB_CONF}.trackTotalNumberOfRows": "false",
        # Each key group has a store, and each store keeps what was written in up to two buffers of 64 MiB.
        # Values are written whole, so over 10 million runs the buffers of 32 stores grow by 190 MiB a
        # micro-batch, to 2 GiB. With a limit for all stores of a process together it is 0.9 to 1.1 GiB less,
        # and as fast.
        f"{_ROCKSDB_CONF}.boundedMemoryUsage": "true",
        f"{_ROCKSDB_CONF}.maxMemoryUsageMB": "512",
        # Spark's old way of writing times, INT96, has no zone and other readers take it for nanoseconds.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Rows reach Python as columns.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # One Arrow batch for what a key group usually gets in one call: a conversion has a fixed price.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # A file is read by one task from its first line on, so that a malformed line has a line number.
        "spark.sql.files.maxPartitionBytes": "1024g",
        "spark.sql.files.openCostInBytes": "1024g",
        # Sources of several streams have a watermark each; the events of any of them move the time on.
        "spark.sql.streaming.multipleWatermarkPolicy": "max",
        # The plan is written out for each query, twice in a micro-batch; the long form takes 15 ms of it.
        "spark.sql.ui.explainMode": "simple",
        # A pipeline asks for the progress of all batches after the fact.
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


_STREAMING = "org.apache.spark.sql.execution.streaming"

LOCAL_CHECKPOINT_SETTINGS = {
    # The usual manager asks at each rename whether a file is a link; Hadoop starts four processes to learn it
    # of a local file, forty in a micro-batch: 130 ms. Both rename in one step.
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of a stream whose checkpoint is on a local disk."""

JAVA_OPTIONS = (
    # Java does not compile methods beyond 8,000 bytes of code, it interprets them. The predicates of a few
    # rules make one that large: 5 times slower. Spark's own limit (codegen.hugeMethodLimit) is no way out: it
    # gives up generated loops, 3 times slower.
    "-XX:-DontCompileHugeMethods",
    # Spark's generated classes, and no sweeping among them.
    "-XX:ReservedCodeCacheSize=256m",
)

LARGE_PAGES = "glibc.malloc.hugetlb=1"
"""GLIBC_TUNABLES of Java and its workers: memory in pages of 2 MiB where the system has them, not 4 KiB.

Each task fills hundreds of MiB anew. A batch of R3 takes 0.65 s of processor time for a million events, not
0.75, and the same memory. Other C libraries ignore it.
"""

SHORT_RUN_OPTIONS = (
    # The second compiler pays off after minutes. In a run that ends before, it takes half of the CPU.
    "-XX:TieredStopAtLevel=1",
    # One thread of garbage collection is enough for a heap of this size, and leaves the cores to the tasks.
    "-XX:+UseSerialGC",
)


def start_settings(log4j: Path, *, is_short: bool) -> dict[str, str]:
    """Return the settings that only count when the JVM starts."""
    options = (*JAVA_OPTIONS, *(SHORT_RUN_OPTIONS if is_short else ()))
    return {
        # A worker started by name from PATH may be another Python, without our packages.
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # Workers find our packages where this process did, installed or not.
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        # The executors of a cluster; here they inherit it (`_start`).
        "spark.executorEnv.GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", LARGE_PAGES),
        # Over TCP each start of a Python function waits 40 ms for a delayed acknowledgement, three times in a
        # micro-batch.
        "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
        # A web page nobody asked for, on a port that may be taken.
        "spark.ui.enabled": "false",
        # Spark's 1 GiB is short for state: a value of the state store is in the heap several times. Over 10
        # million open runs a micro-batch takes 5.6 s with it, 4.3 s with this.
        "spark.driver.memory": "1400m",
        # Java's log is for us, not for the terminal.
        "spark.executor.extraJavaOptions": " ".join(JAVA_OPTIONS),
        "spark.driver.extraJavaOptions": " ".join((f"-Dlog4j2.configurationFile={log4j.as_uri()}", *options)),
        # The driver of a laptop must not bind to an address that its VPN takes away.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Batches here are many and small: Spark's 200 tasks each would be mostly waiting.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }


def session(
    settings: Mapping[str, str] | None = None, *, name: str = "spark-cep", is_short: bool = False
) -> SparkSession:
    """Return the running session, or start one; `settings` win over ours.

    `is_short`: the JVM is for work of a few minutes, and is started so.

    Raises
    ------
    SetupError
        Java or PySpark is missing or too old.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is None:
        check_java()
        running = _start(dict(settings or {}), name, is_short=is_short)
    for key, value in {**sql_settings(), **(settings or {})}.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
    return running


def _start(settings: dict[str, str], name: str, *, is_short: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    folder = java_log().parent
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    chosen = {"spark.master": "local[*]", "spark.app.name": name}
    chosen |= {**start_settings(log4j, is_short=is_short), **sql_settings(), **settings}
    if chosen["spark.master"].startswith("local") is False:  # a cluster's workers have their own network
        for key in ("spark.driver.bindAddress", "spark.driver.host", "spark.executorEnv.PYTHONPATH"):
            if key not in settings:
                del chosen[key]
    # Where PySpark looks for the workers' Python; a cluster may have its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for key, value in chosen.items():
        conf.set(key, value)
    log = java_log()
    try:
        with log.open("wb") as stream, _in_environment("GLIBC_TUNABLES", LARGE_PAGES):
            gateway = launch_gateway(conf, {"stdout": stream, "stderr": stream})  # type: ignore[no-untyped-call]
        context = SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        raise SetupError("E0803", f"Spark could not start; Java's messages are in {log}") from error
    return SparkSession(context)


@contextmanager
def _in_environment(name: str, value: str) -> Iterator[None]:
    """Give a variable that has no value one, for the processes that are started meanwhile."""
    if name in os.environ:
        yield
        return
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


@cache
def java_log() -> Path:
    """Return the file that Java's messages go to; it outlives the process."""
    return Path(tempfile.mkdtemp(prefix="spark-cep-")) / "java.log"


def check_pyspark() -> None:
    """Refuse to go on without PySpark 4.3."""
    try:
        import pyspark
    except ImportError as error:
        raise SetupError(
            "E0801", "PySpark is not installed", "install the extra: pip install 'spark-cep[spark]'"
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < (4, 3):
        raise SetupError(
            "E0801",
            f"PySpark {pyspark.__version__} is too old: 4.3 is needed",
            "pip install 'pyspark>=4.3,<4.4'",
        )


def check_java() -> None:
    """Refuse to go on without Java 17 or later; asking Java first is kinder than Spark's own failure."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    help_ = f"install Java {MIN_JAVA} or later (a JDK or JRE) and put it on PATH, or set JAVA_HOME"
    if java is None or (home and not Path(java).is_file()):
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no `java` on PATH"
        raise SetupError("E0802", f"Spark needs Java: {where}", help_)
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603 - the user's own java
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError("E0802", f"{java} does not run: {error}", help_) from error
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if found is None or answer.returncode != 0:
        raise SetupError("E0802", f"{java} does not say which Java it is", help_)
    if int(found.group(1)) < MIN_JAVA:
        raise SetupError(
            "E0802", f"Spark needs Java {MIN_JAVA} or later; {java} is Java {found.group(1)}", help_
        )
