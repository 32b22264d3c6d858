"""A standalone cluster of Spark on 127.0.0.1: its master and workers are processes of this machine.

If this user is root and the system has `unshare`, a worker sees the disks as another machine would: an empty
folder is mounted over `private`, the folder of the driver, and its processes have their own numbers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from scenarios.servers.process import Ending, free_ports, running, wait_until

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
SPARK_SUBMIT = SPARK_CLASS.with_name("spark-submit")

HIDES = os.geteuid() == 0 and shutil.which("unshare") is not None
"""Whether workers have a folder `private` of their own."""

SECONDS = 1200.0
"""How long something may take that takes seconds on a machine that is not busy."""

_KILL = Ending(signal.SIGKILL)


@dataclass
class Standalone:
    """A running master.

    Parameters
    ----------
    shared
        A folder that all machines have.
    private
        A folder of the driver.
    """

    shared: Path
    private: Path
    port: int
    folder: Path
    stack: ExitStack
    workers: list[tuple[int, subprocess.Popen[bytes]]] = field(default_factory=list)  # each with its cores
    n_started: int = 0

    @property
    def url(self) -> str:
        """The address of the master."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def n_cores(self) -> int:
        """The cores of the running workers."""
        return sum(cores for cores, _ in self.workers)

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors."""
        _, process = self.workers.pop(number)
        process.kill()
        process.wait()

    def add_worker(self, cores: int = 1, *, hidden: Path | None = None) -> None:
        """Start a worker and wait until it is registered; `hidden`: another folder that it does not have."""
        # Executors of one address read each other's files of a shuffle from the disk.
        self.n_started += 1
        host = f"127.0.0.{self.n_started + 1}" if HIDES else "127.0.0.1"
        command = [str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", "--host", host]
        command += ["--cores", str(cores), "--memory", "2g", "--webui-port", "0"]
        log = self.folder / f"worker-{self.n_started}.txt"
        own = self.private if HIDES else self.folder / f"worker-{self.n_started}"
        own.mkdir(exist_ok=True)
        command += ["--work-dir", str(own / "work"), self.url]
        if HIDES:
            mounts = [f"mount -t tmpfs none {shlex.quote(str(path))}" for path in (own, hidden) if path]
            script = " && ".join([*mounts, f"mkdir {own}/local", f"cd {own}", f"exec {shlex.join(command)}"])
            own_view = ("--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
            command = ["unshare", *own_view, "sh", "-c", script]
        registered = "Successfully registered with master"
        found = self._start(command, log, registered, SPARK_LOCAL_DIRS=f"{own}/local", SPARK_LOCAL_IP=host)
        self.workers.append((cores, found))

    def _start(self, command: list[str], log: Path, until: str, **more: str) -> subprocess.Popen[bytes]:
        variables = {**_without_spark(), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", **more}
        process = self.stack.enter_context(
            running(["env", "-i", *_assigned(variables), *command], log, ending=_KILL)
        )
        wait_until(lambda: until in log.read_text(errors="replace"), process, log, SECONDS)
        return process


@contextmanager
def standalone(folder: Path, cores: tuple[int, ...] = (2, 1)) -> Iterator[Standalone]:
    """Run a master and workers with some cores each, and end them."""
    with ExitStack() as stack:
        (port,) = free_ports(1)
        found = Standalone(folder / "shared", folder / "private", port, folder, stack)
        found.shared.mkdir(parents=True)
        found.private.mkdir()
        master = [str(SPARK_CLASS), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        master += ["--port", str(port), "--webui-port", "0"]
        found._start(master, folder / "master.txt", "Starting Spark master at")
        for n in cores:
            found.add_worker(n)
        yield found


@dataclass
class Driver:
    """A driver: a process that runs a pipeline, with its Java."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def said(self) -> str:
        """The output so far."""
        return self.log.read_text(errors="replace")

    def wait_for(self, happened: Callable[[], bool]) -> None:
        """Wait until something happens while the driver runs."""
        deadline = time.monotonic() + SECONDS
        while not happened():
            assert self.process.poll() is None, f"it has ended too soon:\n{self.said}"
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        return self.process.wait(SECONDS)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to it and its Java."""
        os.killpg(self.process.pid, number)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it and its Java for a while, as on a machine that does not get any time."""
        self.send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it together with its Java, as when its machine stops."""
        self.send(signal.SIGKILL)
        self.process.wait()


@contextmanager
def driver(command: list[str], folder: Path) -> Iterator[Driver]:
    """Run a driver in `folder`, which also has its temporary files; end it and its Java."""
    log = folder / "driver.txt"
    variables = {**_without_spark(), "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield Driver(process, log)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _without_spark() -> dict[str, str]:
    """Return the environment after `activate`, without what is set for PySpark."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{kept['PATH']}"}


def _assigned(variables: dict[str, str]) -> list[str]:
    return [f"{name}={text}" for name, text in variables.items()]
