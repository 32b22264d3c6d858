"""The pipeline of a soak: its files, its process, and what it says of itself."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from scenarios.servers.process import free_ports
from tests.soak.feed import LATENESS, MAX_AHEAD

TRIGGER = 2
"""Seconds from one micro-batch to the next."""

LEFT_OUT = "turns"
"""The rule whose window changes: each generation begins anew, so no batch has the same matches."""

_STREAMS = f"""
streams:
  pays: {{event_time: ts, tie_break: [id], lateness: {LATENESS:.0f} seconds,
          max_ahead: {MAX_AHEAD:.0f} seconds,
          schema: {{id: bigint, k: string, ts: timestamp, amount: bigint}}}}
  logins: {{event_time: ts, tie_break: [id], lateness: {LATENESS:.0f} seconds,
            max_ahead: {MAX_AHEAD:.0f} seconds,
            schema: {{id: bigint, k: string, ts: timestamp, ok: boolean}}}}
tables:
  limits: {{key: [k], event_time: ts, tie_break: [id], op: op, lateness: {LATENESS:.0f} seconds,
            max_ahead: {MAX_AHEAD:.0f} seconds,
            schema: {{id: bigint, k: string, ts: timestamp, op: string, cap: bigint}}}}
"""

_RULES = """
RULE burst
  TITLE 'generation {words}'
FROM pays PARTITION BY k
PATTERN p->{{3}}
WITHIN 15 SECONDS
DEFINE p AS amount > 40
MEASURES SUM(p.amount) AS total, LAST(p.id) AS last

RULE entered
FROM MATCHES OF burst, logins PARTITION BY burst.k = logins.k
PATTERN burst -> entered
WITHIN 20 SECONDS
DEFINE burst ON burst, entered ON logins AS ok
MEASURES burst.total AS total, entered.id AS login

RULE over
FROM pays JOIN limits ON k = limits.k PARTITION BY k
PATTERN one
DEFINE one AS amount > limits.cap
MEASURES one.id AS pay, one.limits.cap AS cap
SUPPRESS FOR 20 SECONDS

RULE refused
FROM logins PARTITION BY k
PATTERN no -> yes
WITHIN 10 SECONDS ON TIMEOUT
DEFINE no AS NOT ok, yes AS ok
MEASURES no.id + 0 * {measures} AS first

RULE busy
FROM pays PARTITION BY k
WINDOW TUMBLING 10 SECONDS
HAVING COUNT(*) >= 7
MEASURES COUNT(*) AS n, SUM(amount) AS total
"""

_TURNS = """
RULE turns
FROM pays PARTITION BY k
PATTERN a -> b
WITHIN {seconds} SECONDS
DEFINE a AS amount > 90, b AS amount < 10
MEASURES a.id AS first
"""

JAVA_OPTIONS = "-Xms{heap} -XX:+AlwaysPreTouch -Xlog:gc:file={log}:time"
"""Java takes its whole heap at once. Otherwise its memory grows for an hour, until garbage fills the heap."""

HEAP = "700m"

_COLLECTED = re.compile(r"Pause Full .*->(\d+)M\(\d+M\)")
"""What the heap contains after a whole collection, in Java's log. Smaller ones leave garbage for an hour."""

CHANGES = ("WORDS", "MEASURES", "WINDOW")
"""What changes in rules that are loaded again."""


@dataclass
class Rules:
    """The text of the rules, which changes."""

    folder: Path
    n_changes: int = 0
    words: int = 0
    measures: int = 0
    window: int = 0

    def write(self) -> None:
        """Write the rules and their streams."""
        text = _RULES.format(words=self.words, measures=self.measures)
        text += _TURNS.format(seconds=10 + self.window % 2)
        (self.folder / "streams.yaml").write_text(_STREAMS)
        unfinished = self.folder / "unfinished"
        unfinished.write_text(text)
        unfinished.replace(self.folder / "rules.cep")

    def change(self, what: str) -> str:
        """Change the rules while they run; return how."""
        self.n_changes += 1
        name = what.lower()
        setattr(self, name, getattr(self, name) + 1)
        self.write()
        return f"change {self.n_changes}"


@dataclass
class Pipeline:
    """A pipeline whose results and checkpoint are in `disk`, below its folder.

    Parameters
    ----------
    correct_within
        Seconds for which late events are corrected; 0: they are only late.
    """

    folder: Path
    correct_within: int = 0
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def file(self) -> Path:
        """The pipeline file."""
        return self.folder / "pipeline.yaml"

    @property
    def disk(self) -> Path:
        """Where it writes."""
        return self.folder / "disk"

    @property
    def collections(self) -> Path:
        """Java's log of the collections of its heap."""
        return self.folder / "collections.log"

    def collect(self, java: Iterable[int]) -> int | None:
        """Let each Java collect its whole heap; return what that contains now, in MB.

        None where Java's `jcmd` does not exist, or Java ends or hangs meanwhile.
        """
        if (jcmd := shutil.which("jcmd")) is not None:
            for pid in java:
                with suppress(subprocess.TimeoutExpired):
                    subprocess.run([jcmd, str(pid), "GC.run"], capture_output=True, check=False, timeout=60)
            with suppress(FileNotFoundError):
                if found := _COLLECTED.findall(self.collections.read_text()):
                    return int(found[-1])
        return None

    def write(self, *, is_last: bool = False) -> None:
        """Write its file; the last run reads what there is and ends."""
        late = f", correct_within: {self.correct_within} seconds" if self.correct_within else ""
        usual = f"trigger: {TRIGGER} seconds\nreload: on change\nmetrics: 127.0.0.1:{self.port}\n"
        self.file.write_text(
            f"""
rules: [rules.cep]
sources:
  - {{stream: pays, format: json, path: events/pays}}
  - {{stream: logins, format: json, path: events/logins}}
  - {{table: limits, format: json, path: events/limits}}
sinks:
  - {{format: parquet, path: disk/matches}}
  - {{format: json, path: disk/alerts}}
late: {{format: json, path: disk/late{late}}}
dead_letter: {{format: json, path: disk/dead}}
checkpoint: disk/checkpoint
state: files
down_after: 5 seconds
spark: {{spark.sql.shuffle.partitions: 2, spark.driver.memory: {HEAP}}}
{"at_end: finish" if is_last else usual}
"""
        )

    def start(self, *, is_last: bool = False) -> None:
        """Start it."""
        (self.port,) = free_ports(1)
        self.write(is_last=is_last)
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))
        }
        command = [sys.executable, "-m", "cep", "run", "--quiet", "--allow-spark-settings", str(self.file)]
        self.collections.unlink(missing_ok=True)
        options = JAVA_OPTIONS.format(heap=HEAP, log=self.collections)
        with (self.folder / "said.txt").open("ab") as output:
            self.process = subprocess.Popen(
                command,
                env=kept | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SUBMIT_OPTS": options},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a group of its own, with its Java
            )

    def kill(self, *, with_java: bool) -> None:
        """End it without a warning."""
        assert self.process is not None
        with suppress(ProcessLookupError):
            if with_java:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait(60)

    def metrics(self) -> dict[str, float]:
        """Return the sums of its metrics over their labels; none before it listens."""
        found: dict[str, float] = {}
        with suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
            for line in lines:
                if not line.startswith("#"):
                    name, _, value = line.rpartition(" ")
                    name = name.partition("{")[0]
                    found[name] = found.get(name, 0.0) + float(value)
        return found

    def said(self) -> str:
        """Return the last that it printed."""
        return (self.folder / "said.txt").read_text(errors="replace")[-3000:]

    def wait(self, seconds: float) -> int:
        """Wait until it ends; return its exit code.

        Raises
        ------
        AssertionError
            It does not end.
        """
        assert self.process is not None
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"the run does not end within {seconds:.0f} s"
            time.sleep(0.1)
        return self.process.returncode


def contents(folder: Path) -> tuple[int, int]:
    """Return how many files are below a folder, and their bytes."""
    n = size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += (Path(place) / name).stat().st_size
                n += 1
    return n, size
