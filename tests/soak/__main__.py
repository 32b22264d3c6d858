"""``python -m tests.soak --hours 2``: a pipeline that runs for hours at a fixed rate, and is disturbed.

Two streams and a changing table; rules over rules, a window rule, timeouts, suppressed matches, a joined
table; late events or corrections; state in files; two sinks, late events, dead letters, metrics. At moments
drawn from a seed the run is killed, gets a full disk, clocks that jump, lines that are no events, and changed
rules. In its second half nothing ends the run, so that slopes are those of one long run. In the end all that
was written must equal a batch over the same events, and nothing may grow by more than its bound.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.bench.processes import Resident
from tests.soak.feed import KINDS, Feed
from tests.soak.pipeline import CHANGES, LEFT_OUT, TRIGGER, Pipeline, Rules, contents
from tests.soak.results import differences
from tests.soak.slopes import GROWS, Measure, Sample, fit, verdict, warmed_up

MB = 1e6
ENDING = ("KILL", "KILL DRIVER", "SIGTERM", "FULL DISK")
"""Faults that end the run. `KILL DRIVER` leaves Java to itself, until it notices."""

MEASURES = (
    Measure("driver", "MB", bound=10, warm_up=300),
    # Of each process, with what it shares: owners of state come and go, so no sum is steady.
    Measure("a worker", "MB", bound=5, warm_up=300),
    Measure("Java", "MB", bound=60, warm_up=300),
    # Spark keeps the progress of 1,000 micro-batches.
    Measure("Java's heap", "MB", bound=10, warm_up=1000 * TRIGGER),
    Measure("time of a micro-batch", "s", bound=0.2, warm_up=120),
    Measure("checkpoint", "MB", bound=5, warm_up=300, of_each_run=False),
    Measure("files in the checkpoint", "", bound=60, warm_up=300, of_each_run=False),
    # A micro-batch writes folders: two sinks from two key groups, late events and dead letters.
    Measure("files in the sinks", "", bound=3600 / TRIGGER * 16, warm_up=0, of_each_run=False),
)
_SAMPLE_SECONDS = 5
_END_SECONDS = 900
_STARTS_SECONDS = 240
_MOST_FAULTS = 10
_APART_SECONDS = 5
_DISK = "4g"


@contextmanager
def own_disk(place: Path) -> Iterator[bool]:
    """Put a disk of its own at a folder, whose size can change; yield whether this machine allows it.

    What it contains is in the folder afterwards.
    """
    place.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", str(place)]
    can_mount = (
        shutil.which("mount") is not None and not subprocess.run(mount, capture_output=True).returncode
    )
    try:
        yield can_mount
    finally:
        if can_mount:
            kept = place.with_name("kept")
            with suppress(shutil.Error):  # a Java without its driver removes files
                shutil.copytree(place, kept)
            subprocess.run(["umount", "--lazy", str(place)], check=True)
            place.rmdir()
            kept.rename(place)


def resize(place: Path, size: str) -> None:
    """Let the disk at a folder have another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(place)], check=True)


def schedule(
    seconds: float, every: float, kinds: Sequence[str], drawn: random.Random
) -> list[tuple[float, str]]:
    """Return what happens when: all kinds in turn; what ends the run only in the first half."""
    found: list[tuple[float, str]] = []
    waiting: list[str] = []
    at = every * drawn.uniform(0.3, 1)
    while at < seconds * 0.9:
        usable = [kind for kind in kinds if kind not in ENDING or at < seconds / 2]
        waiting = [kind for kind in waiting if kind in usable] or drawn.sample(usable, len(usable))
        if not waiting:
            break
        found.append((at, waiting.pop()))
        at += every * drawn.uniform(0.5, 1.5)
    return found


@dataclass
class Soak:
    """A soak."""

    pipeline: Pipeline
    feed: Feed
    rules: Rules
    drawn: random.Random
    began: float = field(default_factory=time.monotonic)
    faults: list[str] = field(default_factory=list)
    samples: dict[str, dict[int, list[Sample]]] = field(default_factory=dict)  # by number of run, or process
    n_runs: int = 0
    n_batches: int = 0  # of the runs before
    n_done: float = 0  # of this run, and how long they took
    seconds_done: float = 0
    started: float = 0

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def say(self, text: str) -> None:
        """Print a line with the time."""
        click.echo(f"{self.now:>7,.0f} s  {text}")

    def start(self) -> None:
        """Start the pipeline (again)."""
        self.n_batches += int(self.n_done)
        self.n_done = self.seconds_done = 0
        self.n_runs += 1
        self.pipeline.start()
        self.started = self.now

    def run(self, seconds: float, planned: Sequence[tuple[float, str]]) -> None:
        """Run, measure and disturb; the time counts from the first micro-batch on."""
        waiting = list(planned)
        next_sample = next_line = next_fault = 0.0
        self.start()
        while not self.n_done:
            self._check()
            self.sample()
            time.sleep(0.5)
        self.began, self.started = time.monotonic(), 0
        self.samples = {}
        while self.now < seconds or waiting or not self.n_done:
            time.sleep(0.1)
            self._check()
            if self.now >= next_sample:
                next_sample = self.now + _SAMPLE_SECONDS
                self.sample()
            if self.now >= next_line:
                next_line = self.now + 60
                self.sample(collect=True)
                self.line()
            if waiting and self.now >= max(waiting[0][0], next_fault) and self.n_done:
                self.disturb(waiting.pop(0)[1])
                next_fault = self.now + _APART_SECONDS  # what waited for a restart comes one by one, too

    def _check(self) -> None:
        """Start a run again that has ended by itself.

        Raises
        ------
        AssertionError
            It never computes anything, or ends too often.
        """
        assert self.pipeline.process is not None
        if (code := self.pipeline.process.poll()) is not None:
            self._blame(f"the run ended by itself with exit code {code}: {self.pipeline.said()[-600:]}")
            assert len(self.faults) < _MOST_FAULTS, "the run ends again and again"
            self.start()
        if not self.n_done and self.now - self.started > _STARTS_SECONDS:
            raise AssertionError(f"no micro-batch in {_STARTS_SECONDS} s: {self.pipeline.said()}")

    def sample(self, *, collect: bool = False) -> None:
        """Measure once; if wanted, also what Java's heap contains after a whole collection."""
        assert self.pipeline.process is not None
        metrics = self.pipeline.metrics()
        n, seconds = (metrics.get(f"cep_micro_batch_seconds_{of}", 0.0) for of in ("count", "sum"))
        n_files, size = contents(self.pipeline.disk / "checkpoint")
        n_written = sum(
            contents(self.pipeline.disk / name)[0] for name in ("matches", "alerts", "late", "dead")
        )
        values = {
            "checkpoint": size / MB,
            "files in the checkpoint": n_files,
            "files in the sinks": n_written,
        }
        if n:
            resident = Resident.of(self.pipeline.process.pid)
            values |= {"driver": resident.driver / MB, "Java": sum(resident.java.values()) / MB}
            if collect and (heap := self.pipeline.collect(resident.java)) is not None:
                values["Java's heap"] = heap
            for pid, size_of_worker in resident.workers.items():
                self._add("a worker", pid, size_of_worker / MB)
        if n > self.n_done:
            values["time of a micro-batch"] = (seconds - self.seconds_done) / (n - self.n_done)
            self.n_done, self.seconds_done = n, seconds
        for name, value in values.items():
            self._add(name, self.n_runs, value)

    def _add(self, name: str, run: int, value: float) -> None:
        self.samples.setdefault(name, {}).setdefault(run, []).append((self.now, value))

    def line(self) -> None:
        """Print the newest values."""
        newest = {name: max(run[-1] for run in runs.values())[1] for name, runs in self.samples.items()}
        shown = ", ".join(
            f"{m.name} {newest.get(m.name, 0):,.{1 if m.unit else 0}f} {m.unit}".strip() for m in MEASURES
        )
        n_batches = self.n_batches + int(self.n_done)
        self.say(f"{self.feed.n_sent:,} events, {n_batches:,} micro-batches, {shown}")

    def disturb(self, kind: str) -> None:
        """Do something to the pipeline, or to its events."""
        if kind in KINDS:
            self.say(f"{kind}: {self.feed.disturb(kind)}")
        elif kind in CHANGES:
            self.say(f"RULES, {kind}: {self.rules.change(kind)}")
        else:
            time.sleep(self.drawn.uniform(0, TRIGGER))
            self.say(kind)
            self.end(kind)
            self.start()

    def end(self, kind: str) -> None:
        """End the run in some way."""
        assert self.pipeline.process is not None
        if kind == "SIGTERM":
            self.pipeline.process.send_signal(signal.SIGTERM)
            self.say(f"exit code {self.pipeline.wait(120)}")
        elif kind == "FULL DISK":
            self._fill()
        else:
            self.pipeline.kill(with_java=kind == "KILL")

    def _fill(self) -> None:
        """Let the disk be full until the run has ended, which must name it."""
        disk = self.pipeline.disk
        usage = shutil.disk_usage(disk)
        while usage.free:  # the run writes while it shrinks
            with suppress(subprocess.CalledProcessError):
                resize(disk, f"{usage.used // 1024}k")
            usage = shutil.disk_usage(disk)
        try:
            code = self.pipeline.wait(180)
            if code <= 0 or "E0616" not in self.pipeline.said():
                self._blame(f"a full disk: exit code {code}, without E0616: {self.pipeline.said()[-600:]}")
        except AssertionError as error:
            self._blame(f"a full disk: {error}")
            self.pipeline.kill(with_java=True)
        finally:
            resize(disk, _DISK)

    def _blame(self, text: str) -> None:
        self.faults.append(text)
        self.say(f"FAULT {text}")

    def finish(self) -> None:
        """Let the pipeline read all events, and compare."""
        self.line()
        self.end("SIGTERM")
        self.pipeline.start(is_last=True)
        code = self.pipeline.wait(_END_SECONDS)
        if code not in (0, 3):
            self._blame(f"the last run ended with exit code {code}: {self.pipeline.said()}")
        self.say(f"the last run has ended with exit code {code}; compared with a batch:")
        self.faults += differences(self.feed, self.pipeline.disk)
        for verb in ("history", "gaps"):
            asked = [sys.executable, "-m", "cep", verb, str(self.pipeline.disk / "checkpoint")]
            told = subprocess.run(asked, capture_output=True, text=True, check=False)
            click.echo(f"  cep {verb}: {len(told.stdout.splitlines())} lines, exit code {told.returncode}")
            if told.returncode:
                self._blame(told.stderr)

    def judge(self) -> None:
        """Print the slopes."""
        click.echo(f"\n{'':<26}{'mean':>12}{'per hour':>12}{'error':>10}{'bound':>12}")
        for measure in MEASURES:
            runs = [*self.samples.get(measure.name, {}).values()]
            found = fit(warmed_up(runs, measure))
            says = verdict(found, measure)
            shown_line = found or fit(runs)  # a short run has only its warm-up
            numbers = (float("nan"),) * 3
            if shown_line is not None:
                numbers = (shown_line.mean, shown_line.slope, shown_line.error)
            shown = "".join(f"{n:>{w},.3f}" for n, w in zip(numbers, (12, 12, 10), strict=True))
            click.echo(f"{measure.name:<26}{shown}{measure.bound:>12,.1f} {measure.unit:<3} {says}")
            if says == GROWS:
                self.faults.append(f"{measure.name} grows")


@click.command(help="Run a pipeline for hours, disturb it, and compare what it wrote with a batch.")
@click.option("--hours", type=float, default=2.0, show_default=True)
@click.option("--seconds", type=float, default=None, help="Instead of hours.")
@click.option(
    "--rate", type=click.IntRange(min=10), default=200, show_default=True, help="Events per second."
)
@click.option("--every", type=float, default=None, help="Mean seconds between two faults.")
@click.option(
    "--fault", "kinds", multiple=True, type=click.Choice([*ENDING, *KINDS, *CHANGES]), help="Only these."
)
@click.option("--correct-within", type=int, default=0, help="Correct matches by events so many seconds late.")
@click.option("--seed", type=int, default=None, help="By default another one each time; it is printed.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=Path("out/soak"), show_default=True
)
def main(
    hours: float,
    seconds: float | None,
    rate: int,
    every: float | None,
    kinds: tuple[str, ...],
    correct_within: int,
    seed: int | None,
    out: Path,
) -> None:
    """Run, disturb, compare, judge."""
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background a shell lets the first be ignored
        signal.signal(number, signal.default_int_handler)
    seconds = hours * 3600 if seconds is None else seconds
    seed = random.randrange(1 << 30) if seed is None else seed
    click.echo(
        f"seed {seed}; {seconds:,.0f} s, {rate} events per second; {LEFT_OUT} is compared by its ids only"
    )
    out = out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    drawn = random.Random(seed)
    pipeline = Pipeline(out, correct_within)
    with own_disk(pipeline.disk) as can_fill:
        wanted = list(kinds or (*ENDING, *KINDS, *CHANGES))
        if not can_fill and "FULL DISK" in wanted:
            click.echo("no full disk: this user may not mount one")
            wanted.remove("FULL DISK")
        planned = schedule(seconds, every or max(30.0, seconds / 40), wanted, drawn)
        rules = Rules(out)
        rules.write()
        with Feed(out, rate, random.Random(seed), correct_within) as feed:
            soak = Soak(pipeline, feed, rules, drawn)
            try:
                soak.run(seconds, planned)
            finally:
                if sys.exc_info()[0] is not None:
                    pipeline.kill(with_java=True)
        soak.finish()
        soak.judge()
    for text in soak.faults:
        click.echo(f"FAULT {text}")
    click.echo(f"{len(planned)} disturbances, {len(soak.faults)} faults")
    sys.exit(bool(soak.faults))


if __name__ == "__main__":
    main()
