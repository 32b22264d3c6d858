from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.bench.__main__ import BENCHMARKS
from tests.bench.fraud import Figure, figure_table, measure, to_json
from tests.bench.processes import MemorySampler, Peaks, Resident, cpu_seconds

needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")


@needs_proc
def test_the_sampler_sees_what_this_process_grows_by() -> None:
    size = 300_000_000
    sampler = MemorySampler()
    sampler.sample()
    before = sampler.peaks.driver
    block = np.ones(size, dtype=np.uint8)
    sampler.sample()
    assert sampler.peaks.driver - before > 0.8 * size
    del block
    sampler.sample()
    assert sampler.peaks.driver - before > 0.8 * size  # a peak stays


_WORKER = """
import os, time
os.setpgid(0, 0)
if os.fork() == 0:
    if os.fork() == 0:
        block = b"x" * 100_000_000
        print(os.getpgrp(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(60)
"""


@needs_proc
def test_the_owner_of_state_counts_as_a_worker_although_it_is_an_orphan(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(Path(sys.executable).resolve())
    code = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {_WORKER!r}])"
    before = Resident.of(os.getpid())  # other tests of this process may have started Spark
    with subprocess.Popen([java, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        group = int(process.stdout.readline())
        try:
            sampler = MemorySampler()
            sampler.sample()
            resident = Resident.of(os.getpid())
        finally:
            os.killpg(group, signal.SIGKILL)
    assert sampler.peaks.worker > 90_000_000
    assert sampler.peaks.workers > sampler.peaks.worker
    # The process that Java started computes nothing.
    (size,) = (size for pid, size in resident.workers.items() if pid not in before.workers)
    assert size > 100_000_000
    assert resident.driver > 0
    assert sum(resident.java.values()) > sum(before.java.values())


@needs_proc
def test_a_measurement_runs_once_more_than_it_counts() -> None:
    calls = []

    def way() -> tuple[float, ...]:
        calls.append(1)
        return (0.5, 0.25 * len(calls))

    figure = measure("it", "json", 100, 3, way, 10)
    assert len(calls) == 4
    assert len(figure.seconds) == 3
    assert figure.full_batches == (0.5, 0.5, 0.5, 0.75, 0.5, 1.0)
    assert figure.events_per_batch_second == 20
    assert figure.peaks.driver > 0


@needs_proc
def test_processor_time_counts_this_process_and_what_it_started() -> None:
    before = cpu_seconds()
    loop = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", loop], check=True)
    assert 0.2 < cpu_seconds() - before < 5


def test_the_figure_is_the_median_and_ratios_are_to_the_six_rules() -> None:
    ours = Figure("stream, all rules", "json", 1_000_000, (4.0, 2.0, 50.0), 3.5, Peaks())
    source = Figure("stream, source only", "json", 1_000_000, (1.0, 1.0, 1.0), 1.5, Peaks(jvm=1 << 30))
    assert ours.events_per_second == 250_000
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(figure_table([ours, source]))
    lines = console.export_text().splitlines()
    (row,) = [line for line in lines if "source only" in line]
    assert "1,000,000" in row
    assert "0.25" in row
    assert "1,024" in row
    written = json.loads(to_json([ours, source], {"events": 1_000_000}))
    assert [figure["events_per_second"] for figure in written["figures"]] == [250_000, 1_000_000]
    assert written["options"] == {"events": 1_000_000}


def test_what_benchmarks_replace_is_there() -> None:
    sources = [path.read_text() for path in (Path(__file__).parents[2] / "bench").glob("*.py")]
    names = [name for source in sources for name in re.findall(r'patch\("([\w.]+)"', source)]
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(import_module(module), attribute), name


def test_every_benchmark_is_run_and_is_on_the_page() -> None:
    folder = Path(__file__).parents[2] / "bench"
    there = {file.stem for file in folder.glob("[a-z]*.py") if '__name__ == "__main__"' in file.read_text()}
    page = (folder.parents[1] / "docs" / "design" / "benchmarks.md").read_text()
    assert there == set(BENCHMARKS)
    assert set(re.findall(r"^\| `python -m tests\.bench\.(\w+)` \|", page, re.MULTILINE)) == there
