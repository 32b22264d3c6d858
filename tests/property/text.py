"""``python -m tests.property.text --examples N`` or ``--minutes M`` reads hostile files until one does harm.

Each text becomes a text, a syntax tree, a typed rule, a program and diagnostics, as the file of a user does.
It must give only our own diagnostics, within 200 ms of processor time and 100 MB of memory.
"""

from __future__ import annotations

import argparse
import multiprocessing
import signal
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from types import FrameType

from cep.compiler.compile import check_sources, compile_rules
from cep.diagnostics.codes import OF_RULES
from cep.diagnostics.diagnostic import in_order, render, to_json
from cep.diagnostics.limits import MAX_BYTES
from cep.errors import Diagnostic, RuleError
from cep.schema.stream import Stream
from cep.settings.schema_file import load_streams, parse_streams
from cep.settings.source_file import source_of
from cep.settings.yaml_document import MAX_BYTES as MAX_YAML_BYTES
from tests.property.hostile_text import Text, draw, every_bomb

CODES = OF_RULES

MAX_SECONDS = 0.2
"""Limit on a machine that does `_effort` in `USUAL_EFFORT`. A slower or busy machine may take longer."""

USUAL_EFFORT = 0.0065
"""Seconds on two cores of the year 2026."""

GIVE_UP_SECONDS = 20
"""After this time, reading counts as endless."""

MAX_MEMORY = 100 << 20
MEMORY_SAMPLE = 200
"""Memory is measured for one text in this many, because measuring is several times slower."""

WITHOUT_PLACE = frozenset(("E0107", "E0402", "E0901"))
"""Codes of problems that concern a whole file, so they have no place."""

_ROOT = Path(__file__).parents[2]


class HarmError(Exception):
    """A text did harm: an exception, a wrong place, too much time or too much memory."""


@cache
def _streams() -> dict[str, Stream]:
    files = ["tests/golden/errors/streams.yaml", "rules/fraud/streams.yaml", "rules/sensor/streams.yaml"]
    return {name: stream for file in files for name, stream in load_streams(_ROOT / file).items()}


def read(text: Text) -> list[Diagnostic]:
    """Read `text` as the command reads a file and return its problems."""
    problems: list[Diagnostic] = []
    try:
        source = source_of("text", text.data, MAX_BYTES if text.is_rules else MAX_YAML_BYTES)
        if not text.is_rules:
            problems += parse_streams(source)[1]
        else:
            rules, found = check_sources([source], _streams())
            problems += found
            if not any(problem.is_error for problem in problems):
                compile_rules(rules, _streams())
    except UnicodeDecodeError:
        return []
    except RuleError as error:
        problems += error.diagnostics
    ordered = in_order(problems)
    render(ordered)
    to_json(ordered)
    return ordered


def _read_in_time(text: Text) -> tuple[list[Diagnostic], float]:
    """Return the problems of `text` and the seconds it took. Raises HarmError if reading takes too long."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise HarmError(f"it was not read after {GIVE_UP_SECONDS} seconds")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, GIVE_UP_SECONDS)
    try:
        started = time.process_time()
        problems = read(text)
        return problems, time.process_time() - started
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _effort() -> float:
    """Return the processor time of a fixed piece of work. It is longer if cores and caches are shared."""
    started = time.process_time()
    counts: dict[int, tuple[int, int]] = {}
    for number in range(100_000):
        counts[number % 997] = (number, number)
    return max(time.process_time() - started, 1e-3)


def examine(text: Text) -> tuple[list[Diagnostic], float]:
    """Return the problems of `text` and the seconds that reading took. Raises HarmError if it does harm."""
    for _ in range(5):
        problems, seconds = _read_in_time(text)
        if seconds >= MAX_SECONDS:
            seconds /= max(1.0, _effort() / USUAL_EFFORT)
        if seconds < MAX_SECONDS:
            break
    else:
        raise HarmError(f"it took more than {MAX_SECONDS * 1000:.0f} ms")
    length = len(text.data)
    for problem in problems:
        if problem.code not in CODES or not problem.title:
            raise HarmError(f"{problem.code} is no code")
        if problem.source is None or (problem.span is None and problem.code not in WITHOUT_PLACE):
            raise HarmError(f"{problem.code} has no place")
        if problem.span is not None and not 0 <= problem.span.start <= problem.span.end <= length:
            raise HarmError(f"{problem.code} is outside the text")
    return problems, seconds


def memory_of(text: Text) -> int:
    """Return the most memory that reading `text` used. Raises HarmError if it is too much."""
    tracemalloc.start()
    try:
        read(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MAX_MEMORY:
        raise HarmError(f"it took {peak >> 20} MB")
    return peak


@dataclass
class Tally:
    """Counts of the texts that were tried, and the largest time and memory."""

    kinds: Counter[str] = field(default_factory=Counter)
    sound: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "none")
    largest: tuple[int, str] = (0, "none")

    def add(self, text: Text, watch_memory: bool) -> None:
        """Examine `text` and count it."""
        problems, seconds = examine(text)
        kind = f"{'rules' if text.is_rules else 'streams'}, {text.kind.split(':')[0]}"
        self.kinds[kind] += 1
        self.sound[kind] += not any(problem.is_error for problem in problems)
        self.codes.update({problem.code for problem in problems})
        self.slowest = max(self.slowest, (seconds, text.kind))
        if watch_memory:
            self.largest = max(self.largest, (memory_of(text), text.kind))

    def merge(self, other: Tally) -> None:
        """Add the tally of another process."""
        self.kinds += other.kinds
        self.sound += other.sound
        self.codes += other.codes
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)

    def lines(self) -> Iterable[str]:
        """Return the tally as lines of text."""
        for kind, count in sorted(self.kinds.items()):
            yield f"  {count:>9,} {kind} ({self.sound[kind]:,} of them read without an error)"
        unseen = ", ".join(sorted(set(CODES) - set(self.codes)))
        yield f"  {len(self.codes)} of {len(CODES)} codes; never seen: {unseen}"
        yield f"  slowest {self.slowest[0] * 1000:.0f} ms ({self.slowest[1]})"
        yield f"  largest {self.largest[0] / (1 << 20):.1f} MB ({self.largest[1]})"


def try_texts(seed: int, examples: int, minutes: float) -> Tally:
    """Draw and examine texts from `seed` on. A text that does harm is written to standard error."""
    random = Random(seed)
    tally = Tally()
    started = time.monotonic()
    n_tried = 0
    while n_tried < (examples or n_tried + 1) and (not minutes or time.monotonic() - started < 60 * minutes):
        text = draw(random)
        try:
            tally.add(text, watch_memory=n_tried % MEMORY_SAMPLE == 0)
        except BaseException:
            shown = text.data[:2000]
            print(
                f"seed {seed}, text {n_tried} ({text.kind}, {len(text.data)} bytes): {shown!r}",
                file=sys.stderr,
            )
            raise
        n_tried += 1
    return tally


def main() -> int:
    """Try texts in one or more processes. Print the counts, and the largest time and memory."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.text", description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="stop after this many texts")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this many minutes")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--bombs", action="store_true", help="every bomb in many sizes, nothing else")
    options = parser.parse_args()
    started = time.monotonic()
    tally = Tally()
    if options.bombs:
        for text in every_bomb((1, 10, 64, 100, 1_000, 10_000, 50_000, 100_000)):
            try:
                tally.add(text, watch_memory=True)
            except Exception as error:  # noqa: BLE001 - every exception is a finding
                print(f"{text.kind}: {type(error).__name__}: {str(error)[:200]}")
    elif not options.examples and not options.minutes:
        parser.error("give --examples, --minutes or --bombs")
    else:
        seed = time.time_ns() % 2**32 if options.seed is None else options.seed
        share = -(-options.examples // options.jobs)
        tasks = [(seed + job, share, options.minutes) for job in range(options.jobs)]
        print(f"seed {seed}", flush=True)
        if options.jobs == 1:
            tally = try_texts(*tasks[0])
        else:
            with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
                for part in pool.starmap(try_texts, tasks):
                    tally.merge(part)
    print(f"{sum(tally.kinds.values()):,} texts in {(time.monotonic() - started) / 60:.1f} minutes")
    print("\n".join(tally.lines()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
