"""The process that forks Spark's workers has loaded what they need, and has no thread that a fork loses."""

import json
import os
import subprocess
import sys

import pytest

_FORK = """
import json, os, sys
from spark_runtime.sessions import daemon

def say():
    missing = [name for name in daemon.MODULES if name not in sys.modules]
    threads = {open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")}
    own = open("/proc/self/comm").read().strip()
    print(json.dumps({"missing": missing, "threads": sorted(threads - {own})}))

daemon.manager = say
daemon.main()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it counts threads in /proc")
def test_modules_are_loaded_before_workers_are_forked_and_start_no_thread() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it for its workers
    done = subprocess.run(
        [sys.executable, "-c", _FORK], env=environment, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["missing"] == []
    # That of Arrow's allocator, which prepares for a fork and starts it again after it (`pthread_atfork`).
    assert set(found["threads"]) <= {"jemalloc_bg_thd"}
