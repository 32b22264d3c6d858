"""What the processes of a run use: this one, the JVM it started, the Python workers that the JVM started.

An owner of state is an orphan, which has remained in the process group of the workers. It counts as a worker.

Memory as peaks; processor time as a sum, which says what a run costs even while others use the machine.
"""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

PERIOD_S = 0.1
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(slots=True)
class Peaks:
    """Largest sizes seen, in bytes. Workers share pages with each other: their sum counts each page once."""

    jvm: int = 0
    driver: int = 0
    workers: int = 0
    worker: int = 0  # the largest one


class _Sampler:
    """Calls `sample` again and again while a block runs."""

    period_s = PERIOD_S

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self.sample()
            if self._stop.wait(self.period_s):
                return

    def sample(self) -> None:
        """Look once."""
        raise NotImplementedError


class MemorySampler(_Sampler):
    """Looks at /proc while a block runs; `peaks` has what it saw.

    Parameters
    ----------
    pid
        The driver; None: this process.
    peaks
        What was seen before.
    """

    def __init__(self, pid: int | None = None, peaks: Peaks | None = None) -> None:
        super().__init__()
        self.pid = os.getpid() if pid is None else pid
        self.peaks = Peaks() if peaks is None else peaks

    def sample(self) -> None:
        """Look once."""
        jvms, workers = _of_run(self.pid, _running())
        self.peaks.driver = max(self.peaks.driver, _resident(self.pid))
        self.peaks.jvm = max(self.peaks.jvm, sum(map(_resident, jvms)))
        sizes = list(map(_proportional, workers))
        self.peaks.workers = max(self.peaks.workers, sum(sizes))
        self.peaks.worker = max(self.peaks.worker, *sizes, 0)


@dataclass(frozen=True, slots=True)
class Resident:
    """The memory of the processes of a run, in bytes.

    `java`, `workers`: of each Java, and of each Python process that computes, by its number. The pages that
    it shares count in full.
    """

    driver: int
    java: dict[int, int]
    workers: dict[int, int]

    @classmethod
    def of(cls, pid: int) -> Resident:
        """Return it for the run of the driver `pid`."""
        running = _running()
        jvms, workers = _of_run(pid, running)
        # A child of Java only starts workers.
        sizes = {worker: _resident(worker) for worker in workers if running[worker][0] not in jvms}
        of_running = {worker: size for worker, size in sizes.items() if size}
        return cls(_resident(pid), {jvm: _resident(jvm) for jvm in jvms}, of_running)


class Owners(_Sampler):
    """Records the processor time of owners of state while a block runs. An owner that has ended is not in
    `cpu_seconds`.
    """

    period_s = PERIOD_S / 2

    def __init__(self) -> None:
        super().__init__()
        self._ticks: dict[int, int] = {}

    def sample(self) -> None:
        """Look once."""
        running = _running()
        below = _started_by(os.getpid(), running)
        for pid in below:
            if running[pid][0] not in {*below, os.getpid()}:
                self._ticks[pid] = max(self._ticks.get(pid, 0), _ticks(pid))

    @property
    def ended_seconds(self) -> float:
        """The processor time of those that have ended, up to the last look at them."""
        running = _running()
        return sum(ticks for pid, ticks in self._ticks.items() if pid not in running) / _TICK


def cpu_seconds() -> float:
    """Return the processor time that this process and all below it have used so far."""
    return cpu_seconds_of(os.getpid())


def cpu_seconds_of(pid: int) -> float:
    """Return the processor time that a process and all below it have used so far."""
    return sum(map(_ticks, (pid, *_started_by(pid, _running())))) / _TICK


def _ticks(pid: int) -> int:
    # After the command's name: state, parent, ...; 11 to 14 are user and system time, own and of children
    # that have ended.
    fields = _read(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _running() -> dict[int, tuple[int, int]]:
    """Return all processes, each with its parent and its process group."""
    found: dict[int, tuple[int, int]] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit() and (text := _read(entry / "stat")):
            # The command's name is in parentheses and may contain anything.
            _, parent, group, *_ = text.rpartition(")")[2].split()
            found[int(entry.name)] = int(parent), int(group)
    return found


def _of_run(pid: int, running: dict[int, tuple[int, int]]) -> tuple[list[int], set[int]]:
    """Return the JVMs that a driver has started, and the Python processes that these have started."""
    jvms = [below for below in _started_by(pid, running) if _name(below) == "java"]
    below = {python for jvm in jvms for python in _started_by(jvm, running)}
    return jvms, {python for python in below if _name(python).startswith("python")}


def _started_by(pid: int, running: dict[int, tuple[int, int]]) -> set[int]:
    """Return the processes below a process, and the others in the process groups that these lead."""
    found: set[int] = set()
    n_before = -1
    while len(found) > n_before:
        n_before = len(found)
        found |= {
            other for other, (parent, group) in running.items() if parent == pid or {parent, group} & found
        }
    return found


def _name(pid: int) -> str:
    return _read(_PROC / str(pid) / "comm").strip()


def _resident(pid: int) -> int:
    fields = _read(_PROC / str(pid) / "statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _proportional(pid: int) -> int:
    for line in _read(_PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> str:
    """Return the text of a file of /proc; nothing if the process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
