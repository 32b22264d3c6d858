"""What rules need of the engine is compiled once, when the first events are to be matched.

To compile all of it takes a minute or two, and `make` does it before it tests. So a copy lacks one kernel
here, and everything in `make deep-test`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = "compiling the engine: up to two minutes of processor time, once after an installation"
COUNT = re.compile(r"compiling the engine: (\d+) of (\d+) kernels")  # only on a machine that takes long
PLAIN = "RULE high FROM readings PARTITION BY device PATTERN a DEFINE a AS x > 1\n"
TIMED = """\
RULE silent FROM readings PARTITION BY device
PATTERN a -> !b FOR 1 SECOND
DEFINE a AS x > 1, b AS x < 1
"""
STREAMS = "streams: {readings: {event_time: ts, schema: {device: string, ts: timestamp, x: double}}}\n"


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder; it finds the package there, or else in the repository."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with rules and events."""
    (tmp_path / "streams.yaml").write_text(STREAMS)
    (tmp_path / "plain.cep").write_text(PLAIN)
    (tmp_path / "timed.cep").write_text(TIMED)
    (tmp_path / "events.jsonl").write_text('{"device":"d","ts":"2024-05-01T10:00:00Z","x":2}\n')
    return tmp_path


@pytest.fixture
def copied(compiled_engine: None, folder: Path) -> Path:
    """Return the folder with a copy of the engine, which is compiled."""
    shutil.copytree(ROOT / "cep", folder / "cep")
    return folder


def kernels(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.rglob("*.kernel")}


def test_nothing_is_compiled_for_input_that_is_not_there(folder: Path) -> None:
    cache = folder / "cache"
    command = ("-m", "cep", "match", "plain.cep", "-i", "nowhere.jsonl")
    done = run(folder, *command, NUMBA_CACHE_DIR=str(cache))
    assert done.stderr == "error[E0601]: there is no file or directory `nowhere.jsonl`\n"
    assert not kernels(cache)


def test_a_kernel_that_is_missing_is_compiled_and_the_command_says_so_once(copied: Path) -> None:
    match = ("-m", "cep", "match", "plain.cep", "-i", "events.jsonl")
    [index] = copied.rglob("order.write_hexadecimal*.kernel")
    index.unlink()
    before = kernels(copied)
    first = run(copied, *match, "--progress")
    assert (first.returncode, first.stdout.count("\n")) == (0, 1), first.stderr
    lines = [line for line in first.stderr.splitlines() if not COUNT.fullmatch(line)]
    assert lines[:3] == [TEXT, "events read: 1", "events                   1"]
    changed = {name for name, time_ns in kernels(copied).items() if time_ns != before.get(name)}
    assert {name.partition("-")[0] for name in changed} == {"order.write_hexadecimal.cpython"}
    is_compiled_once(copied, {})

    index.unlink()
    again = run(copied, *match)
    lines = [line for line in again.stderr.splitlines() if not COUNT.fullmatch(line)]
    assert (lines[0], lines[1].split()) == (TEXT, ["events", "1"]), again.stderr
    assert again.stderr.count(TEXT) == 1


def test_a_pipeline_compiles_what_its_rules_need_and_nothing_else(copied: Path) -> None:
    (copied / "pipeline.yaml").write_text(
        "{streams: streams.yaml, rules: [plain.cep], mode: batch, checkpoint: out/checkpoint, "
        "source: {stream: readings, format: json, path: events}, sinks: [{format: json, path: out/matches}]}"
    )
    compiling = (
        "-c",
        "from pathlib import Path; import cep.commands.run as r; r.compile_for(Path('pipeline.yaml'))",
    )
    [of_windows] = copied.rglob("frames.frame_events*.kernel")
    [of_all] = copied.rglob("order.write_hexadecimal*.kernel")
    of_windows.unlink()
    done = run(copied, *compiling)
    assert (done.returncode, done.stderr) == (0, "")
    of_all.unlink()
    done = run(copied, *compiling)
    assert (done.returncode, done.stderr.splitlines()[:1]) == (0, [TEXT]), done.stderr
    assert (of_all.exists(), of_windows.exists()) == (True, False)


def is_compiled_once(folder: Path, environment: dict[str, str]) -> None:
    """Check that other rules and `cep warm` find all kernels, and another processor none."""
    compiled = kernels(folder)
    second = run(folder, "-m", "cep", "match", "timed.cep", "-i", "events.jsonl", **environment)
    assert (second.returncode, second.stderr.split()[0]) == (0, "events"), second.stderr
    assert run(folder, "-m", "cep", "warm", **environment).stdout == "the engine is compiled already\n"
    assert kernels(folder) == compiled

    # Code for one processor is none for another, although it lies in the same place.
    asked = "from cep.engine.warm import is_warm; print(is_warm())"
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for more, answer in (({}, "True\n"), (other, "False\n")):
        done = run(folder, "-c", asked, **environment, **more)
        assert (done.returncode, done.stdout) == (0, answer), done.stderr


@pytest.mark.deep
def test_the_first_run_compiles_what_its_rules_need_and_warm_compiles_the_rest(folder: Path) -> None:
    environment = {"NUMBA_CACHE_DIR": str(folder / "cache")}
    started = time.perf_counter()
    command = ("-m", "cep", "match", "plain.cep", "-i", "events.jsonl", "--progress")
    first = run(folder, *command, **environment)
    took = time.perf_counter() - started
    assert (first.returncode, first.stdout.count("\n")) == (0, 1), first.stderr
    lines = first.stderr.splitlines()
    n = lines.index("events read: 1")
    assert lines[0] == TEXT
    counts = [COUNT.fullmatch(line) for line in lines[1:n]]
    shares = [(int(found[1]), int(found[2])) for found in counts if found is not None]
    assert len(shares) == n - 1
    assert shares == sorted(shares)
    assert len({of for _, of in shares}) <= 1
    # The summary counts the run and not the compilation, which takes far longer.
    assert float(first.stderr.split()[-1]) < took / 2
    needed = kernels(folder)
    assert {name.split(".")[1] for name in needed} >= {"run_events", "read_lines", "group_by_key"}
    assert not {name.split(".")[1] for name in needed} & {"run_timed_events", "pane_windows", "find_keys"}
    again = run(folder, *command, **environment)
    assert (again.returncode, TEXT in again.stderr, kernels(folder)) == (0, False, needed), again.stderr

    # Rules with clocks need another loop, and no second one for rules without them.
    timed = run(folder, "-m", "cep", "match", "timed.cep", "-i", "events.jsonl", **environment)
    assert (timed.returncode, timed.stderr.count(TEXT)) == (0, 1), timed.stderr
    more = kernels(folder)
    assert "run_timed_events" in {name.split(".")[1] for name in more.keys() - needed.keys()}
    assert needed.items() <= more.items()

    warm = run(folder, "-m", "cep", "warm", **environment)
    assert warm.stdout.startswith("compiled the engine in "), warm.stderr
    assert more.items() <= kernels(folder).items()
    is_compiled_once(folder, environment)
