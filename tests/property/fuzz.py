"""``python -m tests.property --examples N`` or ``--minutes M`` draws new cases until one differs.

A case is a set of rules, a stream of events, and a way to deliver them: the batches, and the places at which
the watermark advances or the state is saved and restored. Some have joined tables with their versions, others
rules over rules, others views (`tests.property.kinds`). Every fourth case also runs without the
optimizations of the compiler.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.oracle import TooManyRunsError
from tests.property.features import FEATURES, features
from tests.property.kinds import KINDS, Kind
from tests.property.variants import Pool, fill

ROUND = 20
"""Rule sets that are drawn from one seed."""

VARIANTS = 15
"""Cases that are derived from each drawn case."""

TURNS = (
    *["rules"] * 4,
    *(
        "windowed values",
        "window rules",
        "zones",
        "silent windows",
        "long streams",
        "tables",
        "tables",
        "chains",
        "views",
        "changed rules",
    ),
)
"""The kinds of the cases of seeds, in turns."""


class DifferenceError(AssertionError):
    """The engine and the oracle report different matches."""


def compare(kind: Kind, case: Any, programs: Any, tally: Counter[str], what: str) -> bool:
    """Compare the engine with the oracle on `case`. Return False if the case is too large for the oracle."""
    try:
        expected, rows = kind.both(case, programs)
    except TooManyRunsError:
        tally["too large"] += 1
        return False
    if rows != expected:
        found = kind.smaller(case, lambda less: _differ(kind, less, programs))
        expected, rows = kind.both(found, programs)
        raise DifferenceError(f"{what}:\n{found}\noracle: {expected}\nengine: {rows}")
    tally["with matches"] += bool(expected)
    tally["matches"] += len(expected)
    return True


def _differ(kind: Kind, case: Any, programs: Any) -> bool:
    expected, rows = kind.both(case, programs)
    return rows != expected


def check(kind: Kind, drawn: Any, pool: Pool, random: Random, tally: Counter[str]) -> None:
    """Compare the engine with the oracle on a drawn case and on derived cases of the same rules."""
    fill(pool, kind.plain(drawn))
    forms = features(kind.plain(drawn).rules)
    programs = kind.compiled(drawn)
    plain: Any = None
    for number, case in enumerate((drawn, *kind.derived(drawn, pool, random, VARIANTS))):
        tally["cases"] += 1
        steps = kind.plain(case).steps
        tally["in several batches"] += len(steps) > 1
        tally["with snapshots"] += any(step.restores for step in steps)
        if not compare(kind, case, programs, tally, "engine and oracle"):
            continue
        tally.update(f"cases with {form}" for form in forms)
        if number % 4 == 1:
            plain = plain or kind.compiled(drawn, optimize=False)
            compare(kind, case, plain, Counter(), "without optimizations")
            tally["also without optimizations"] += 1
    tally["rule sets"] += 1


def try_cases(first_seed: int, examples: int, minutes: float, only: str = "") -> Counter[str]:
    """Draw and check cases, all of the kind `only` if it is given. On a difference, print its seed."""
    tally: Counter[str] = Counter()
    started = time.monotonic()
    now = first_seed
    while tally["cases"] < (examples or tally["cases"] + 1) and (
        not minutes or time.monotonic() - started < 60 * minutes
    ):
        random, kind = Random(now), KINDS[only or TURNS[now % len(TURNS)]]
        pool: Pool = {}
        test = settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # `smaller` removes events; rules stay as they were drawn
            suppress_health_check=list(HealthCheck),
        )(seed(now)(given(kind.strategy)(lambda case: check(kind, case, pool, random, tally))))  # noqa: B023
        try:
            test()
        except BaseException:
            print(f"seed {now} after {tally['cases']} cases", file=sys.stderr, flush=True)
            raise
        now += 1
    return tally


def _try_task(task: tuple[int, int, float, str]) -> Counter[str]:
    return try_cases(*task)


def _on_spark(n: int, first_seed: int, only: str) -> Counter[str]:
    from spark_runtime import session
    from tests.property.on_spark import compare_on_spark

    settings_of_spark = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    running = session(settings_of_spark, name="random rules", is_short=True)
    try:
        return compare_on_spark(running, n, first_seed, only)
    finally:
        running.stop()


def main() -> int:
    """Try cases in one or more processes. Print the number of cases, and the counts of their features."""
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="stop after this many cases")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this many minutes")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", choices=sorted(KINDS), default="", help="cases of one kind")
    parser.add_argument(
        "--spark", type=int, default=0, metavar="N", help="compare N batches on Spark instead"
    )
    parser.add_argument("--no-jit", action="store_true", help="run the kernels as Python: slow, no compiler")
    options = parser.parse_args()
    if not options.examples and not options.minutes and not options.spark:
        parser.error("give --examples, --minutes or --spark")
    if options.no_jit and os.environ.get("NUMBA_DISABLE_JIT") != "1":
        command = [sys.executable, "-m", "tests.property", *sys.argv[1:]]
        return subprocess.call(command, env={**os.environ, "NUMBA_DISABLE_JIT": "1"})
    first_seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    started = time.monotonic()
    share = -(-options.examples // options.jobs)
    tasks = [
        (first_seed + 1_000_000 * job, share, options.minutes, options.only) for job in range(options.jobs)
    ]
    tally: Counter[str] = Counter()
    if options.spark:
        tally = _on_spark(options.spark, first_seed, options.only)
    elif options.jobs == 1:
        tally = try_cases(*tasks[0])
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            # As they come: a difference that one process finds is not to wait until the others are done.
            for part in pool.imap_unordered(_try_task, tasks):
                tally += part
    minutes = (time.monotonic() - started) / 60
    print(f"{tally['cases']:,} cases in {minutes:.1f} minutes from seed {first_seed}, no difference:")
    of_forms = [f"cases with {form}" for form in FEATURES]
    for what in (*(name for name in tally if name not in of_forms), *of_forms):
        print(f"  {tally[what]:>9,} {what}")
    return 0
