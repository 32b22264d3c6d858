"""``python -m tests.property --examples N`` or ``--minutes M`` draws new cases until one differs.

A case is a set of rules, a stream of events, and a way to deliver them: the batches, and the places at which
the watermark advances or the state is saved and restored. Hypothesis draws the rules and a first stream. More
streams and deliveries are derived from it, because drawing and compiling take most of the time. Every fourth
case also runs without the optimizations of the compiler.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings

from cep.program.program import Program
from tests.oracle import TooManyRunsError
from tests.property.differential import oracle_rows, programs_of, rows_by
from tests.property.strategies import MAX_EVENTS, Case, cases
from tests.property.variants import Pool, fill, smaller, variants

ROUND = 10
"""Rule sets that are drawn from one seed."""

VARIANTS = 15
"""Cases that are derived from each drawn case."""


class DifferenceError(AssertionError):
    """The engine and the oracle report different matches."""


def compare(case: Case, programs: Sequence[Program], tally: Counter[str], kind: str) -> bool:
    """Compare the engine with the oracle on `case`. Return False if the case is too large for the oracle."""
    try:
        expected = oracle_rows(case)
    except TooManyRunsError:
        tally["too large"] += 1
        return False
    if rows_by(programs, case) != expected:
        found = smaller(case, lambda less: rows_by(programs, less) != oracle_rows(less))
        raise DifferenceError(
            f"{kind}:\n{found}\noracle: {oracle_rows(found)}\nengine: {rows_by(programs, found)}"
        )
    tally["with matches"] += bool(expected)
    tally["matches"] += len(expected)
    return True


def check(case: Case, pool: Pool, random: Random, tally: Counter[str]) -> None:
    """Compare the engine with the oracle on a drawn case and on derived cases of the same rules."""
    fill(pool, case)
    programs = programs_of(case)
    plain: Sequence[Program] | None = None
    for number, one in enumerate((case, *variants(case, pool, random, VARIANTS))):
        tally["cases"] += 1
        tally["in several batches"] += len(one.steps) > 1
        tally["with snapshots"] += any(step.restores for step in one.steps)
        if compare(one, programs, tally, "engine and oracle") and number % 4 == 1:
            plain = plain or programs_of(case, optimize=False)
            compare(one, plain, Counter(), "without optimizations")
            tally["also without optimizations"] += 1
    tally["rule sets"] += 1


def try_cases(first_seed: int, examples: int, minutes: float) -> Counter[str]:
    """Draw and check cases in rounds. On a difference, print the seed and raise the error."""
    tally: Counter[str] = Counter()
    pool: Pool = {}
    started = time.monotonic()
    round_ = 0
    while tally["cases"] < (examples or tally["cases"] + 1) and (
        not minutes or time.monotonic() - started < 60 * minutes
    ):
        random = Random(first_seed + round_)
        drawn = cases(max_events=4 * MAX_EVENTS, max_size=3) if round_ % 8 == 7 else cases()
        test = settings(
            max_examples=ROUND,
            deadline=None,
            database=None,
            phases=[Phase.generate],  # `smaller` removes events; rules stay as they were drawn
            suppress_health_check=list(HealthCheck),
        )(seed(first_seed + round_)(given(drawn)(lambda case: check(case, pool, random, tally))))  # noqa: B023
        try:
            test()
        except BaseException:
            print(f"seed {first_seed + round_} after {tally['cases']} cases", file=sys.stderr, flush=True)
            raise
        round_ += 1
    return tally


def _on_spark(n: int, first_seed: int) -> Counter[str]:
    from spark_runtime import session
    from tests.property.on_spark import compare_on_spark, compare_tables_on_spark

    settings_of_spark = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    running = session(settings_of_spark, name="random rules", is_short=True)
    try:
        tally = compare_on_spark(running, n, first_seed)
        return tally + compare_tables_on_spark(running, -(-n // 2), first_seed)
    finally:
        running.stop()


def main() -> int:
    """Try cases in one or more processes. Print the number of cases, and the counts of their features."""
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="stop after this many cases")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after this many minutes")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
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
    tasks = [(first_seed + 1_000_000 * job, share, options.minutes) for job in range(options.jobs)]
    tally: Counter[str] = Counter()
    if options.spark:
        tally = _on_spark(options.spark, first_seed)
    elif options.jobs == 1:
        tally = try_cases(*tasks[0])
    else:
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            for part in pool.starmap(try_cases, tasks):
                tally += part
    minutes = (time.monotonic() - started) / 60
    print(f"{tally['cases']:,} cases in {minutes:.1f} minutes from seed {first_seed}, no difference:")
    for what, count in tally.items():
        print(f"  {count:>9,} {what}")
    return 0
