"""The Spark session in which pipelines run: its few necessary settings, each with its reason."""

from __future__ import annotations

import atexit
import os
import re
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cep.arguments import wrong_argument
from cep.errors import SetupError
from spark_runtime.sessions.installed import check_pyspark
from spark_runtime.sessions.java import as_python_names, find_java
from spark_runtime.sessions.run_folder import RunFolder, is_quiet, messages_of, open_run_folder, places
from spark_runtime.sessions.signals import deferred, own_handler
from spark_runtime.sessions.worker_python import choose_workers_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

_PARTITIONS = "spark.sql.shuffle.partitions"

_RETAINED = ("spark.sql.ui.retainedExecutions", "spark.ui.retainedJobs", "spark.ui.retainedStages")

_SETTLED_S, _POLL_S = 2.0, 0.1

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
    """Return the settings that can be set while a session runs; results depend on the first two."""
    return {
        # We read texts without a zone as UTC, so Spark must do so, too.
        "spark.sql.session.timeZone": "UTC",
        # A failed cast must raise an error unless NULL is requested; without ANSI it would give NULL.
        "spark.sql.ansi.enabled": "true",
        # State outgrows the JVM's heap, in which the default store keeps all of it.
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        # A batch writes its changes, not the whole store, and does not count the store's rows.
        f"{_ROCKSDB_CONF}.changelogCheckpointing.enabled": "true",
        f"{_ROCKSDB_CONF}.trackTotalNumberOfRows": "false",
        # Each key group has a store, which keeps its writes in up to two buffers of 64 MiB.
        # Values are written whole, so over 10 million runs the buffers of 32 stores grow by 190 MiB a
        # micro-batch, to 2 GiB. A common limit for all stores of a process saves 0.9 to 1.1 GiB, and is
        # as fast.
        f"{_ROCKSDB_CONF}.boundedMemoryUsage": "true",
        f"{_ROCKSDB_CONF}.maxMemoryUsageMB": "512",
        # Spark's old format of times, INT96, has no zone, and other readers read it as nanoseconds.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Rows reach Python as columns.
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # One Arrow batch for the usual input of a call of a key group: each conversion has a fixed cost.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        # One task reads a file from its first line, so that a malformed line has a line number.
        "spark.sql.files.maxPartitionBytes": "1024g",
        "spark.sql.files.openCostInBytes": "1024g",
        # Each source of several streams has its own watermark; the events of any of them advance the time.
        "spark.sql.streaming.multipleWatermarkPolicy": "max",
        # Spark prints the plan of each query, twice in a micro-batch; the long form costs 15 ms.
        "spark.sql.ui.explainMode": "simple",
        # A pipeline reads the progress of all batches at its end.
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }


JAVA_OPTIONS = (
    # Java does not compile methods larger than 8,000 bytes but interprets them. The predicates of a few rules
    # make a method that large: 5 times slower. Spark's own limit (codegen.hugeMethodLimit) does not help: it
    # abandons generated loops, which is 3 times slower.
    "-XX:-DontCompileHugeMethods",
    # Room for Spark's generated classes, without sweeping among them.
    "-XX:ReservedCodeCacheSize=256m",
)

_MALLOC = {"hugetlb": 1, "mmap_threshold": 32 << 20, "trim_threshold": 64 << 20}

MEMORY = {
    "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _MALLOC.items()),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""Variables of Java and its workers: memory in pages of 2 MiB, where available, which malloc reuses.

Each task fills hundreds of MiB, and releases them. If the system provided this memory again, page by page,
micro-batches would take 4 to 13 % longer. The thresholds are the greatest that glibc chooses itself in a
process that releases much. Arrow's own allocator returns memory after 10 ms. Other C libraries ignore the
first variable.
"""

SHORT_RUN_OPTIONS = (
    # The second compiler pays off after minutes. In a shorter run it takes half of the CPU.
    "-XX:TieredStopAtLevel=1",
    # One garbage collection thread is enough for a heap of this size, and leaves the cores to the tasks.
    "-XX:+UseSerialGC",
)


def start_settings(folder: Path, *, is_short: bool) -> dict[str, str]:
    """Return the settings that take effect only when the JVM starts; its temporary files go to `folder`."""
    log4j = folder / "log4j2.properties"
    log4j.write_text(_LOG4J)
    shared = (*JAVA_OPTIONS, *(SHORT_RUN_OPTIONS if is_short else ()))
    options = (
        f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        # Otherwise all of it is in /tmp, readable by everybody, and remains there if Java is killed.
        f'"-Djava.io.tmpdir={folder}"',
        *shared,
    )
    return {
        # A worker found on PATH may be another Python, without our packages.
        "spark.pyspark.python": sys.executable,
        "spark.pyspark.driver.python": sys.executable,
        # Workers find our packages where this process does, installed or not.
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        # For the executors of a cluster; local ones inherit it (`_start`).
        **{f"spark.executorEnv.{name}": value for name, value in _memory().items()},
        # Over TCP, each start of a Python function waits 40 ms for a delayed acknowledgement, three times per
        # micro-batch.
        "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower(),
        # Without these, each new object costs up to six requests, which look for folders of its name.
        "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
        # The web page is not needed, and its port may be taken.
        "spark.ui.enabled": "false",
        # Spark keeps the plans and figures of 1,000 queries for it all the same: after 270 micro-batches a
        # heap of 110 MB, not of 86.
        **dict.fromkeys(_RETAINED, "50"),
        # Spark's 1 GiB is too small for state: the heap contains a value of the state store several times.
        # With 10 million open runs, a micro-batch takes 5.6 s with 1 GiB, and 4.3 s with this.
        "spark.driver.memory": "1400m",
        # Java's log goes to a file, not to the terminal.
        "spark.executor.extraJavaOptions": " ".join(shared),
        "spark.driver.extraJavaOptions": " ".join(options),
        # The progress bar would be drawn on the terminal.
        "spark.ui.showConsoleProgress": "false",
        # The driver on a laptop must not bind to an address that disappears with its VPN.
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Batches are many and small: most of Spark's 200 tasks each would do nothing.
        _PARTITIONS: str(os.cpu_count() or 2),
    }


def session(
    settings: Mapping[str, str] | None = None,
    *,
    name: str = "spark-cep",
    is_short: bool = False,
    inherited: Sequence[int] = (),
) -> SparkSession:
    """Return the current session or that of `spark-submit`, or start one; `settings` override ours.

    `is_short`: configure the JVM for work of a few minutes. A JVM that is started inherits the file
    descriptors `inherited`.

    Raises
    ------
    SetupError
        Java or PySpark is missing or too old, the process uses Spark Connect, Spark does not start or does
        not take a setting, or Spark's workers cannot run this package.
    InputError
        `settings` is not a dictionary (E0827).
    """
    if settings is not None and not isinstance(settings, Mapping):
        raise wrong_argument("settings", settings, 'a dictionary: {"spark.master": "local[2]"}')
    check_pyspark()
    from pyspark.sql import SparkSession
    from pyspark.sql.utils import is_remote

    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise SetupError(
            "E0810",
            "this process uses Spark Connect; a pipeline and `session` need Spark's Java in this process",
            "call detect with the session that exists; or start cep run or spark-submit without SPARK_REMOTE",
        )
    with _errors_named(settings or {}), own_handler():
        return _session(SparkSession.getActiveSession(), settings, name, is_short, inherited)


def _session(
    running: SparkSession | None,
    settings: Mapping[str, str] | None,
    name: str,
    is_short: bool,
    inherited: Sequence[int],
) -> SparkSession:
    started = running is None
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
        if started and not running.sparkContext.getConf().contains(_PARTITIONS):
            running.conf.set(_PARTITIONS, str(_cores_of_cluster(running)))
    return running


@contextmanager
def _errors_named(settings: Mapping[str, str]) -> Iterator[None]:
    """Turn an error of Java into one that names the settings from which it may come."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        log, text = java_log(), str(error)
        told = [] if log is None else messages_of(log)
        if "JAVA_GATEWAY_EXITED" in text:  # only the log says why
            text = "\n".join(told)
        said = _OF_JAVA.search(text) or _ANY_LINE.search(text)
        fact = "no message" if said is None else _AROUND.sub("", said.group(1))
        # The others of Hadoop are read when its file system is used.
        named = [key for key in settings if key in text] or [key for key in settings if ".hadoop." not in key]
        of = f" with {' and '.join(f'`{key}`' for key in named)}" if named else ""
        advice = ["give it another value"] if named else []
        advice += [f"Java's messages are in {log}"] if told else []  # otherwise it is removed
        raise SetupError("E0803", f"Spark could not start{of}: {fact}", "; ".join(advice)) from error


_OF_JAVA = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |: )?(?:[\w$]+\.)+[\w$]+(?:Exception|Error): (.+)", re.M
)
_ANY_LINE = re.compile(r"^\s*(\S.*)", re.M)
_AROUND = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: \w+$")


def is_local(spark: SparkSession) -> bool:
    """Return whether workers run on this machine, as descendants of this process."""
    return str(spark.sparkContext.master).startswith("local")


def _cores_of_cluster(spark: SparkSession) -> int:
    """Return the number of cores of all executors, once no executor has arrived for `_SETTLED_S`.

    A cluster starts them side by side, and the first tasks run when one of them has arrived.
    """
    cores, since = spark.sparkContext.defaultParallelism, time.monotonic()
    while not is_local(spark) and time.monotonic() < since + _SETTLED_S:
        found = spark.sparkContext.defaultParallelism
        if found != cores:
            cores, since = found, time.monotonic()
        time.sleep(_POLL_S)
    return cores


def _submitted(settings: dict[str, str], name: str) -> SparkSession:
    """Return the session of the JVM that `spark-submit` has started, with its settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name)
    for key, value in {**sql_settings(), **settings}.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    # For `--py-files`, Java has opened the disk without our settings, and keeps it open: the umask of the
    # shell would decide the modes of files, not `fs.permissions.umask-mode`. Then Java opens it again.
    java: Any = found._jvm
    settings_of_java = cast(Any, found)._jsc.hadoopConfiguration()
    java.org.apache.hadoop.fs.FileSystem.getLocal(settings_of_java).close()
    return found


def _start(settings: dict[str, str], name: str, *, is_short: bool, inherited: Sequence[int]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java = find_java()
    folders = [open_run_folder(place) for place in places(settings)]
    folder = folders[0]
    _folders.append(folder)
    chosen = {"spark.master": "local[*]", "spark.app.name": name}
    chosen |= {**start_settings(folder.path, is_short=is_short), **sql_settings()}
    is_near = settings.get("spark.master", "local").startswith("local")
    if len(str(folder.path)) > _MOST_OF_A_SOCKETS_FOLDER and not is_near:
        chosen["spark.python.unix.domain.socket.enabled"] = "false"  # no such folder on other machines
    elif len(str(folder.path)) > _MOST_OF_A_SOCKETS_FOLDER:
        folders.append(open_run_folder(Path("/tmp")))  # noqa: S108 - short, and private below
        chosen["spark.python.unix.domain.socket.dir"] = str(folders[-1].path)
    # The Python of a cluster's workers may lack this package until a task brings it. On macOS a fork after
    # the system's libraries are loaded can end a process.
    if is_near and sys.platform == "linux":
        chosen["spark.python.daemon.module"] = "spark_runtime.sessions.daemon"
    chosen |= settings
    if not is_near:  # a cluster's workers have their own network, disks and cores
        own = ("spark.driver.bindAddress", "spark.driver.host", "spark.executorEnv.PYTHONPATH", _PARTITIONS)
        for key in own:
            if key not in settings:
                del chosen[key]
    # PySpark finds the workers' Python here; a cluster may have its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False)
    for key, value in chosen.items():
        conf.set(key, value)
    environment = {
        **_memory(),
        # It overrides the setting, but not for the executors of a cluster.
        "SPARK_LOCAL_DIRS": ",".join(str(one.path) for one in folders[: len(places(settings))]),
        "TMPDIR": str(folder.path),
        **java.environment(folder.path),
        **as_python_names(),
    }
    descriptors = (*inherited, *(one.lock for one in folders))
    with deferred():
        with folder.log.open("wb") as stream, _in_environment(environment), _temporary_files_in(folder.path):
            options = {"stdout": stream, "stderr": stream, "pass_fds": descriptors}
            gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
        atexit.register(_remove_at_exit, folders, gateway)
    return SparkSession(SparkContext(conf=conf, gateway=gateway))


def _memory() -> dict[str, str]:
    """Return `MEMORY`, or what the user has chosen instead."""
    return {name: os.environ.get(name, value) for name, value in MEMORY.items()}


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """In this context, let this process create temporary files in `folder`.

    PySpark creates a folder for Java's answer. If the process is killed meanwhile, the next start removes it.
    """
    before, tempfile.tempdir = tempfile.tempdir, str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = before


_MOST_OF_A_SOCKETS_FOLDER = 61
"""Most characters of a socket folder's path: Spark adds 43, and a system allows 104."""

_folders: list[RunFolder] = []
"""The first folder of each started JVM."""


def _remove_at_exit(folders: Sequence[RunFolder], gateway: Any) -> None:
    """Remove the folders of a JVM at its end, unless its log contains messages that may be needed."""
    from py4j.protocol import Py4JError

    if not is_quiet(folders[0].log):
        return
    if gateway.proc.poll() is not None:
        for folder in folders:
            folder.remove()
        return
    # Java still uses them. It ends after this process, and then removes the registered folders.
    with suppress(Py4JError, OSError):  # Java is ending; the next start removes them
        hooks = getattr(gateway.jvm, "org.apache.spark.util.ShutdownHookManager")
        for folder in folders:
            hooks.registerShutdownDeleteDir(getattr(gateway.jvm, "java.io.File")(str(folder.path)))


@contextmanager
def _in_environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that are started in the block."""
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


def java_log() -> Path | None:
    """Return the log file of our Java; None if another program has started it."""
    return _folders[-1].log if _folders else None
