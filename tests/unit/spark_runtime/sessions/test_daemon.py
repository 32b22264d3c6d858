"""The process that forks Spark's workers has loaded what they need, and has no thread that a fork loses."""

import json
import os
import subprocess
import sys

_FORK = """
import json, sys
from pathlib import Path
from spark_runtime.sessions import daemon

def say():
    missing = [name for name in daemon.MODULES if name not in sys.modules]
    threads = {path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")}
    own = {path.read_text().strip() for path in Path("/proc/self").glob("comm")}
    print(json.dumps({"missing": missing, "threads": sorted(threads - own)}))

daemon.manager = say
daemon.main()
"""


def test_modules_are_loaded_before_workers_are_forked_and_start_no_thread() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it for its workers
    done = subprocess.run(
        [sys.executable, "-c", _FORK], env=environment, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["missing"] == []
    # That of Arrow's allocator, which prepares for a fork and starts it again after it (`pthread_atfork`).
    assert set(found["threads"]) <= {"jemalloc_bg_thd"}
