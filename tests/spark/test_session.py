"""A session that we start: its memory, and what it leaves, whether its process ends or is killed: nothing."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spark_runtime.compat.driver import pyspark_version
from spark_runtime.sessions.local_session import MEMORY
from spark_runtime.sessions.run_folder import open_run_folder

PROCESS = """
import os, sys
import pyarrow as pa
from spark_runtime.sessions.local_session import java_log, session
settings = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1", "spark.local.dir": sys.argv[1]}
spark = session(settings, is_short=True)
assert spark.range(100).repartition(2).mapInPandas(lambda frames: frames, "id long").count() == 100
def pool(frames):
    yield from (frame.assign(id=pa.default_memory_pool().backend_name) for frame in frames)
assert spark.range(1).mapInPandas(pool, "id string").collect()[0].id == "system"
java = spark._jvm.java.lang
sockets = spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir")
temporary, pid = java.System.getProperty("java.io.tmpdir"), java.ProcessHandle.current().pid()
print(java_log().parent, sockets, temporary, pid, flush=True)
sys.stdin.readline()
"""


@pytest.mark.deep(but="is killed")
@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_nothing_is_left_of_a_session_in_its_place_or_in_tmp(tmp_path: Path, end: str) -> None:
    place, temporary = tmp_path / "place", tmp_path / "temporary"
    temporary.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", PROCESS, place],
        env={**{k: v for k, v in os.environ.items() if k not in MEMORY}, "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        told = process.stdout.readline().split()
        folder, sockets, java_temporary = map(Path, told[:3])
        # Blocks, state stores, what Java unpacks: all of it is below a private folder. The path of a socket
        # must be short.
        assert folder.parent == place
        assert sockets.parent == Path("/tmp")
        assert {path.stat().st_mode & 0o777 for path in (folder, sockets)} == {0o700}
        assert java_temporary == folder
        names = {item.name.partition("-")[0] for item in folder.iterdir()}
        assert {"blockmgr", "java.log", "lock", "spark"} <= names
        # Before 4.1 PySpark has no such sockets.
        assert any(item.suffix == ".sock" for item in sockets.iterdir()) == (pyspark_version() >= (4, 1))
        locks = [os.open(path / "lock", os.O_RDWR) for path in (folder, sockets)]
        if end == "ends":
            process.communicate("\n")
            assert process.returncode == 0
        else:
            for pid in (process.pid, int(told[3])):
                os.kill(pid, signal.SIGKILL)
    for lock in locks:  # it is held until Java is gone, too
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.close(lock)
    if end == "is killed":
        assert any(folder.glob("blockmgr-*"))
        for path in (place, Path("/tmp")):  # as the next start does
            mine = open_run_folder(path)
            os.close(mine.lock)
            mine.remove()
        assert {item.name for item in place.rglob("*")} <= {folder.name, "java.log", "lock"}
    else:
        assert list(place.iterdir()) == []
    assert not sockets.exists()
    assert list(temporary.iterdir()) == []
