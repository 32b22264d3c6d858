"""The Spark session that pipelines run in: the few settings relied on, each with its reason."""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cep.errors import SetupError
from spark_runtime.sessions.java import find_java
from spark_runtime.sessions.run_folder import RunFolder, is_quiet, open_run_folder, places
from spark_runtime.sessions.worker_python import choose_workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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


def start_settings(folder: Path, *, is_short: bool) -> dict[str, str]:
    """Return the settings that only count when the JVM starts; its temporary files go to `folder`."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    options = (
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        # Else all of it is in /tmp for everybody to read, and remains there if Java is killed.
        f'"-Djava.io.tmpdir={folder}"',
        *JAVA_OPTIONS,
        *(SHORT_RUN_OPTIONS if is_short else ()),
    )
    return {
        # A worker started by name from PATH may be another Python, without our packages.
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # Workers find our packages where this process did, installed or not.
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
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
        "spark.driver.extraJavaOptions": " ".join(options),
        # It would be drawn there.
        "spark.ui.showConsoleProgress": "false",
        # The driver of a laptop must not bind to an address that its VPN takes away.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Batches here are many and small: Spark's 200 tasks each would be mostly waiting.
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
    }


def session(
    settings: Mapping[str, str] | None = None,
    *,
    name: str = "spark-cep",
    is_short: bool = False,
    inherited: Sequence[int] = (),
) -> SparkSession:
    """Return the running session, the one of `spark-submit`, or start one; `settings` win over ours.

    `is_short`: the JVM is for work of a few minutes, and is started so. A JVM that is started gets the file
    descriptors `inherited`, too.

    Raises
    ------
    SetupError
        Java or PySpark is missing or too old, or Spark's workers cannot run this package.
    """
    check_pyspark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    is_ours = running is None and "PYSPARK_GATEWAY_PORT" not in os.environ
    if running is None:
        given = dict(settings or {})
        if is_ours:
            running = _start(given, name, is_short=is_short, inherited=inherited)
        else:
            running = _submitted(given, name)
    for key, value in {**sql_settings(), **(settings or {})}.items():
        if running.conf.isModifiable(key):
            running.conf.set(key, value)
    if not (is_ours and is_local(running)):
        choose_workers_python(running)
    return running


def is_local(spark: SparkSession) -> bool:
    """Say whether workers run on this machine, below this process."""
    return str(spark.sparkContext.master).startswith("local")


def _submitted(settings: dict[str, str], name: str) -> SparkSession:
    """Return the session of the JVM that `spark-submit` has started, with the settings that it was given."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in {**sql_settings(), **settings}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _start(settings: dict[str, str], name: str, *, is_short: bool, inherited: Sequence[int]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java = find_java()
    folders = [open_run_folder(place) for place in places(settings)]
    folder = folders[0]
    _folders.append(folder)
    chosen = {"spark.master": "local[*]", "spark.app.name": name}
    chosen |= {**start_settings(folder.path, is_short=is_short), **sql_settings()}
    if len(str(folder.path)) > _MOST_OF_A_SOCKETS_FOLDER:
        folders.append(open_run_folder(Path("/tmp")))  # noqa: S108 - short, and private below
        chosen["spark.python.unix.domain.socket.dir"] = str(folders[-1].path)
    chosen |= settings
    if not chosen["spark.master"].startswith("local"):  # a cluster's workers have their own network
        for key in ("spark.driver.bindAddress", "spark.driver.host", "spark.executorEnv.PYTHONPATH"):
            if key not in settings:
                del chosen[key]
    # Where PySpark looks for the workers' Python; a cluster may have its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for key, value in chosen.items():
        conf.set(key, value)
    environment = {
        "GLIBC_TUNABLES": os.environ.get("GLIBC_TUNABLES", LARGE_PAGES),
        # It counts more than the setting, and not for the executors of a cluster.
        "SPARK_LOCAL_DIRS": ",".join(str(one.path) for one in folders[: len(places(settings))]),
        "TMPDIR": str(folder.path),
        **java.environment(folder.path),
    }
    descriptors = (*inherited, *(one.lock for one in folders))
    try:
        with folder.log.open("wb") as stream, _in_environment(environment):
            options = {"stdout": stream, "stderr": stream, "pass_fds": descriptors}
            gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
        atexit.register(_remove_at_exit, folders, gateway)
        context = SparkContext(conf=conf, gateway=gateway)
    except PySparkRuntimeError as error:
        raise SetupError("E0803", f"Spark could not start; Java's messages are in {folder.log}") from error
    return SparkSession(context)


_MOST_OF_A_SOCKETS_FOLDER = 61
"""Characters in the path of a folder with sockets, so says Spark: theirs are 43, a system takes 104."""

_folders: list[RunFolder] = []
"""The first folder of each JVM that was started."""


def _remove_at_exit(folders: Sequence[RunFolder], gateway: Any) -> None:
    """Let the folders of a JVM go with it, unless it has said something that may be wanted."""
    from py4j.protocol import Py4JError

    if not is_quiet(folders[0].log):
        return
    if gateway.proc.poll() is not None:
        for folder in folders:
            folder.remove()
        return
    # Java still uses them. It ends when this process has ended, and removes what it is told to.
    with suppress(Py4JError, OSError):  # Java is ending; the next start removes them
        hooks = gateway.jvm.org.apache.spark.util.ShutdownHookManager
        for folder in folders:
            hooks.registerShutdownDeleteDir(gateway.jvm.java.io.File(str(folder.path)))


@contextmanager
def _in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


OLDEST = (4, 1)
"""The oldest PySpark that works; `make versions` tries it."""


def java_log() -> Path | None:
    """Return the file that the messages of our Java go to; None if somebody else has started it."""
    return _folders[-1].log if _folders else None


def check_pyspark() -> None:
    """Refuse to go on without a PySpark that is new enough."""
    try:
        import pyspark
    except ImportError as error:
        raise SetupError(
            "E0801", "PySpark is not installed", "install the extra: pip install 'spark-cep[spark]'"
        ) from error
    version = tuple(int(part) for part in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < OLDEST:
        raise SetupError(
            "E0801",
            f"PySpark {pyspark.__version__} is too old: {'.'.join(map(str, OLDEST))} or later is needed",
            "pip install 'spark-cep[spark]'",
        )
