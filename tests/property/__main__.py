"""``python -m tests.property --examples N`` or ``--minutes M`` draws new cases until one differs."""

from __future__ import annotations

import argparse
import sys
import time

from hypothesis import HealthCheck, given, seed, settings

from tests.property.differential import oracle_rows
from tests.property.strategies import MAX_EVENTS, Case, cases
from tests.property.test_engine import check_engine_agrees_with_oracle

ROUND = 400
"""Cases of one seed."""


def main() -> int:
    """Draw cases in rounds; print how many were tried and, on a difference, the smallest case found."""
    parser = argparse.ArgumentParser(prog="python -m tests.property", description=__doc__)
    parser.add_argument("--examples", type=int, default=0, help="stop after so many cases")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so many minutes")
    parser.add_argument("--seed", type=int, default=None, help="of the first round; the next ones count on")
    options = parser.parse_args()
    if not options.examples and not options.minutes:
        parser.error("give --examples or --minutes")
    first_seed = time.time_ns() % 2**32 if options.seed is None else options.seed
    started = time.monotonic()
    tally = {"cases": 0, "too large": 0, "with matches": 0, "matches": 0}

    def is_over() -> bool:
        minutes = (time.monotonic() - started) / 60
        return (0 < options.examples <= tally["cases"]) or (0 < options.minutes <= minutes)

    round_ = 0
    while not is_over():

        def check(case: Case) -> None:
            tally["cases"] += 1
            if not check_engine_agrees_with_oracle(case):
                tally["too large"] += 1
                return
            n_matches = len(oracle_rows(case))
            tally["with matches"] += n_matches > 0
            tally["matches"] += n_matches

        longer = round_ % 4 == 3
        drawn = cases(max_events=4 * MAX_EVENTS, max_size=3) if longer else cases()
        test = settings(
            max_examples=ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck)
        )(seed(first_seed + round_)(given(drawn)(check)))
        try:
            test()
        except BaseException:
            print(f"seed {first_seed + round_} after {tally['cases']} cases:", file=sys.stderr)
            raise
        round_ += 1
    minutes = (time.monotonic() - started) / 60
    print(
        f"{minutes:.1f} minutes from seed {first_seed}: "
        + ", ".join(f"{n} {what}" for what, n in tally.items())
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
