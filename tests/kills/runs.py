"""A run of a pipeline in a process of its own, which is killed at a point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.java_classes import own_spark
from tests.kills.points import Call, File

_SECONDS = 900
_LOOK_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Kill:
    """How a run is killed.

    Parameters
    ----------
    at
        A call or files; a number: milliseconds after the first plan that it writes. None: it is not.
    nth
        The n-th time that it comes there.
    with_java
        Whether Java dies at the same instant, as if the machine had stopped. If not, it goes on until it
        notices.
    wait_ms
        How long after the sight of a file, in milliseconds.
    changes_at_ms
        The stream is a continuous one: its rules change so many milliseconds after the first plan that it
        writes, and it ends when they have computed something. None: it is not.
    """

    at: Call | File | int | None = None
    nth: int = 1
    with_java: bool = True
    wait_ms: int = 0
    changes_at_ms: int | None = None


_ACCEPTING = "--accept-older-checkpoint"

_IN_WORKERS, _ALONE = "--in-workers", "--without-java"

_CHANGING = "--changes-at="

_CHANGE_SECONDS = 120

_SESSION = "session.txt"
"""The number of the session of the last run, in the folder of a pipeline."""


def killed(file: Path, kill: Kill, *, accepts: bool = False) -> bool:
    """Run a pipeline file; return whether it was killed. If not, it has ended well.

    `accepts`: it goes on from an older checkpoint.

    Raises
    ------
    AssertionError
        It has failed; with what it said.
    """
    command = [sys.executable, "-m", "tests.kills.runs", str(file)]
    if isinstance(kill.at, Call):
        command += [kill.at.module, kill.at.name, kill.at.moment, str(kill.nth)]
        command += [_IN_WORKERS] * kill.at.in_workers + [_ALONE] * (not kill.with_java)
    if accepts:
        command.append(_ACCEPTING)
    if kill.changes_at_ms is not None:
        command.append(f"{_CHANGING}{kill.changes_at_ms}")
    errors = file.parent / "errors.txt"
    with errors.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=own_spark() | {"TMPDIR": str(places_of(file.parent))},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a group of its own, with its Java
        )
        (file.parent / _SESSION).write_text(str(process.pid))
        try:
            _watch(process, file.parent, kill)
            code = process.wait(_SECONDS)
        finally:
            if process.poll() is None or kill.with_java:
                _end_group(process)
    was_killed = code == -signal.SIGKILL
    assert was_killed or code == 0, f"{kill}: {errors.read_text(errors='replace')[-6000:]}"
    return was_killed


def wait_for_end(folder: Path) -> None:
    """Wait until all processes of the last run of a pipeline have ended, such as Java without its driver.

    Until then, Java may write to the checkpoint, and creates it again if it was removed.
    """
    session = (folder / _SESSION).read_text()
    deadline = time.monotonic() + _SECONDS
    while _lives(session):
        assert time.monotonic() < deadline, "Java still runs without its driver"
        time.sleep(_LOOK_SECONDS)


def _lives(session: str) -> bool:
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, _, of, *_ = stat.read_text().rpartition(")")[2].split()
            if of == session and state != "Z":
                return True
    return False


def places_of(folder: Path) -> Path:
    """Return the folder for temporary files of the runs of a pipeline."""
    place = folder / "tmp"
    place.mkdir(exist_ok=True)
    return place


def _watch(process: subprocess.Popen[bytes], folder: Path, kill: Kill) -> None:
    """Wait until the process ends, or kill it at the sight of a file."""
    if isinstance(kill.at, File):
        pattern, nth, wait_ms = kill.at.pattern, kill.nth, kill.wait_ms
    elif isinstance(kill.at, int):
        pattern, nth, wait_ms = "checkpoint/plan/*", 1, kill.at
    else:
        return
    before = set(folder.glob(pattern))
    seen: set[Path] = set()
    deadline = time.monotonic() + _SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        seen |= set(folder.glob(pattern)) - before
        if len(seen) >= nth:
            time.sleep(wait_ms / 1000)
            if kill.with_java:
                _end_group(process)
            else:
                process.kill()
            return
        time.sleep(_LOOK_SECONDS)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its Java; the process has not been waited for, or its group has Java in it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _run() -> None:
    """Run a pipeline file, with a point in this process. All state is in files, which are soon replaced."""
    from spark_runtime.pipeline.pipeline import run_pipeline
    from tests.forced_state import force_files
    from tests.kills.in_workers import KilledAt, with_point
    from tests.kills.points import plant

    force_files(n_retained=6)
    accepts = _ACCEPTING in sys.argv
    file, *call = (word for word in sys.argv[1:] if not word.startswith("--"))
    for word in sys.argv[1:]:
        if word.startswith(_CHANGING):
            given = Path(file), int(word.removeprefix(_CHANGING))
            threading.Thread(target=_change, args=given, daemon=True).start()
    if call:
        module, name, moment, nth = call
        point = Call(module, name, moment, _IN_WORKERS in sys.argv)
        if point.in_workers:
            at = KilledAt(point, int(nth), os.getpid(), _ALONE not in sys.argv)
            force_files(n_retained=6, changed=lambda kept: with_point(kept, at))
        else:
            plant(point, int(nth))
    run_pipeline(Path(file), quiet=True, accept_older_checkpoint=accepts, allow_spark_settings=True)


def _change(file: Path, after_ms: int) -> None:
    """Change the rules of the pipeline that runs in this process, and end it when they have computed."""
    from spark_runtime.pipeline import reloading, watched_files
    from tests.kills.ticks import turn_rules

    reloading.LOOK_SECONDS, watched_files.SETTLED_SECONDS = 0.05, 0.0
    checkpoint = file.parent / "checkpoint"
    before = set(checkpoint.glob("plan/*"))
    deadline = time.monotonic() + _CHANGE_SECONDS
    while not set(checkpoint.glob("plan/*")) - before and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    time.sleep(after_ms / 1000)
    n_before = len(list(checkpoint.glob("rules/*.json")))
    turn_rules(file.parent)
    while not _has_computed(checkpoint, n_before) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGINT)


def _has_computed(checkpoint: Path, n_before: int) -> bool:
    """Return whether further rules have computed a micro-batch."""
    if len(list(checkpoint.glob("rules/*.json"))) <= n_before:
        return False
    batch = json.loads((checkpoint / f"rules/{n_before}.json").read_text())["batch"]
    return str(batch) in json.loads((checkpoint / "done.json").read_text())


if __name__ == "__main__":
    _run()
