"""A server of Spark Connect in a process of its own, on 127.0.0.1.

With `CEP_SPARK_CONNECT=1` the tests of Spark run against one: `make connect-test`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

from spark_runtime.sessions.java import find_java
from spark_runtime.sessions.local_session import sql_settings, start_settings

IS_REMOTE = os.environ.get("CEP_SPARK_CONNECT") == "1"

_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
_LOG = f"""
logger.server.name = {_CLASS}
logger.server.level = info
"""
_STARTED = re.compile(r"server started at: (127\.0\.0\.1:\d+)")


@contextmanager
def connect_server(settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server with the settings of `spark_runtime.session`, yield its address, end it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chosen = {**start_settings(folder, is_short=True), **sql_settings(), **settings}
        with (folder / "log4j2.properties").open("a") as log4j:
            log4j.write(_LOG)  # it says its port
        chosen["spark.connect.grpc.binding.address"] = "127.0.0.1"
        chosen["spark.connect.grpc.binding.port"] = "0"
        chosen["spark.sql.warehouse.dir"] = str(folder / "warehouse")
        home = Path(pyspark.__file__).parent
        command = [str(home / "bin" / "spark-submit"), "--class", _CLASS]
        for key, value in chosen.items():
            command += ["--conf", f"{key}={value}"]
        environment = {
            **os.environ,
            **find_java().environment(folder),
            "SPARK_HOME": str(home),
            "SPARK_CONNECT_MODE": "0",  # as in Spark's start-connect-server.sh
            "PYSPARK_PYTHON": sys.executable,
        }
        # Its files are in memory then: Spark waits only ten seconds for a Python that runs `foreachBatch`.
        subprocess.run(
            [sys.executable, "-c", "import pyspark.sql.connect.streaming.worker.foreach_batch_worker"],
            check=True,
        )
        log = folder / "server.log"
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [*command, "spark-internal"], cwd=folder, env=environment, stdout=stream, stderr=stream
            )
        try:
            yield f"sc://{_address(process, log)}"
        finally:
            process.terminate()
            process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address that the server says once it has started."""
    while process.poll() is None:
        found = _STARTED.search(log.read_text())
        if found is not None:
            return found.group(1)
        time.sleep(0.1)
    raise RuntimeError(f"the server of Spark Connect ended: {log.read_text()}")
