"""``python -m tests.property.faults`` plants known faults in a copy and checks that the fuzzers find each.

A comparison that finds nothing may be blind. Each fault changes a line of the compiler, the engine or a
reader into a mistake that somebody could make.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.property.planted import FAULTS, Fault

_ROOT = Path(__file__).parents[2]
_FOLDERS = ("cep", "spark_runtime", "tests", "rules")
TIMEOUT_SECONDS = 1800


def find(fault: Fault, copy: Path, examples: int, seed: int) -> str | None:
    """Return the number of cases after which `fault` was found, or None if it was not found."""
    target = copy / fault.file
    right = target.read_text()
    before = target.stat()
    target.write_text(right.replace(fault.right, fault.wrong))
    command = [sys.executable, "-m", fault.module, "--examples", str(examples), "--seed", str(seed)]
    command += ["--only", fault.only] if fault.only else []
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_SECONDS,
        )  # fmt: skip
    finally:
        target.write_text(right)
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))  # kernels on disk stay valid
    if done.returncode == 0:
        return None
    if done.returncode < 0:  # a kernel wrote where it may not: the process died
        return "some"
    after = re.search(r"after ([\d,]+) (?:cases|examples)", done.stderr)
    assert after is not None, done.stderr[-3000:]
    return after[1]


def main() -> int:
    """Plant one fault after the other. The exit code says whether all were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.faults", description=__doc__)
    parser.add_argument("--examples", type=int, default=10_000, help="cases for each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", help="part of a fault's name; may be given several times")
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in _FOLDERS:
            shutil.copytree(_ROOT / name, copy / name)
        for fault in FAULTS:
            if any(part in fault.name for part in options.only or ("",)):
                started = time.monotonic()
                after = find(fault, copy, options.examples, options.seed)
                missed += after is None
                said = "NOT FOUND" if after is None else f"found after {after} cases"
                print(f"{said} in {time.monotonic() - started:.0f} s: {fault.name}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
