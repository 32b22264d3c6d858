"""The engine is compiled once, all of it, when the first events are to be matched."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = "compiling the engine: about a minute, once after an installation"
PLAIN = "RULE high FROM readings PARTITION BY device PATTERN a DEFINE a AS x > 1\n"
TIMED = """\
RULE silent FROM readings PARTITION BY device
PATTERN a -> !b FOR 1 SECOND
DEFINE a AS x > 1, b AS x < 1
"""
STREAMS = "streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}\n"


def cep(cache: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cep", *arguments],
        cwd=cache.parent,
        env={**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Return the folder of an engine that is not compiled; beside it are rules and events."""
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "plain.cep").write_text(
        "RULE high FROM readings PARTITION BY device PATTERN a DEFINE a AS x > 1\n"
    )
    (tmp_path / "timed.cep").write_text(TIMED)
    (tmp_path / "events.jsonl").write_text('{"device":"d","ts":"2024-05-01T10:00:00Z","x":2}\n')
    return tmp_path / "cache"


def test_nothing_is_compiled_for_input_that_is_not_there(cache: Path) -> None:
    done = cep(cache, "match", "plain.cep", "-i", "nowhere.jsonl")
    assert done.stderr == "error[E0601]: there is no file or directory `nowhere.jsonl`\n"
    assert not list(cache.rglob("*.nbc"))


def test_the_first_run_compiles_the_engine_for_all_later_ones_and_says_so_once(cache: Path) -> None:
    started = time.perf_counter()
    first = cep(cache, "match", "plain.cep", "-i", "events.jsonl", "--progress")
    took = time.perf_counter() - started
    assert (first.returncode, first.stdout.count("\n")) == (0, 1), first.stderr
    progress = [f"{TEXT}: {percent} %" for percent in range(0, 101, 10)]
    assert first.stderr.splitlines()[:13] == [*progress, "events read: 1", "events                   1"]
    # The summary counts the run and not the compilation, which takes far longer.
    assert float(first.stderr.split()[-1]) < took / 2

    compiled = kernels(cache)
    second = cep(cache, "match", "timed.cep", "-i", "events.jsonl")
    assert (second.returncode, second.stderr.split()[0]) == (0, "events"), second.stderr
    assert cep(cache, "warm").stdout == "the engine is compiled already\n"
    assert kernels(cache) == compiled

    # Code for one processor is none for another, although it lies in the same place.
    asked = "from cep.engine.warm import is_warm; print(is_warm())"
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for environment, answer in (({}, "True\n"), (other, "False\n")):
        done = subprocess.run(
            [sys.executable, "-c", asked], cwd=ROOT,
            env={**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout == answer

    [index] = cache.rglob("order.write_hexadecimal*.nbi")
    index.unlink()
    third = cep(cache, "match", "plain.cep", "-i", "events.jsonl")
    assert third.stderr.startswith(f"{TEXT}\nevents  "), third.stderr
    assert third.stderr.count("compiling") == 1


def kernels(cache: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}
