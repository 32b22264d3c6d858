"""``python -m tests.property.corrections --examples N`` or ``--minutes M``: late events and late versions.

Whatever the order of arrival, and wherever it is cut: what stands is what a batch reports, value by value.
Four kinds of cases take turns: several rules over a stream, its tables and each other (`late`), drawn rules
of any form (`rules`), drawn rules over rules (`chains`), rules that change (`changes`).
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.property import chained_corrections, changed_corrections, corrected_rules
from tests.property.late_arrivals import check
from tests.property.strategies.late import Late, drawn, smaller

TURNS = ("late", "late", "late", "late", "rules", "chains", "changes")
"""The kinds of the cases of seeds, in turns."""

SHRINK_SECONDS = 120


class WrongError(AssertionError):
    """What stands is not what a batch reports."""


def _late(number: int, tally: Counter[str]) -> None:
    case = drawn(Random(number))
    try:
        check(case, tally)
    except Exception:  # noqa: BLE001 - whatever it is, it is wrong
        least = smallest(case)
        raise WrongError(_shown(least)) from _error(least)


def _changes(number: int, tally: Counter[str]) -> None:
    case = changed_corrections.changing(Random(number))
    try:
        changed_corrections.check(case, tally)
    except Exception as error:
        raise WrongError(f"{_shown(case.case)}\nrules {case.texts}\nchange before cuts {case.at}") from error


def _drawn(
    strategy: st.SearchStrategy[Any], check_one: Callable[[Any, Counter[str]], None]
) -> Callable[[int, Counter[str]], None]:
    one = settings(
        max_examples=1, deadline=None, database=None, suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip

    def run(number: int, tally: Counter[str]) -> None:
        seed(number)(one(given(strategy)(lambda case: check_one(case, tally))))()

    return run


_of_rules = st.one_of(corrected_rules.corrections(), corrected_rules.lively())
_of_chains = st.one_of(chained_corrections.linked(), chained_corrections.lively())
KINDS: dict[str, Callable[[int, Counter[str]], None]] = {
    "late": _late,
    "rules": _drawn(_of_rules, corrected_rules.check),
    "chains": _drawn(_of_chains, chained_corrections.check),
    "changes": _changes,
}


def smallest(case: Late) -> Late:
    """Return a smaller case that is still wrong."""
    end = time.monotonic() + SHRINK_SECONDS
    found = True
    while found and time.monotonic() < end:
        found = False
        for less in smaller(case):
            if _error(less) is not None:
                case, found = less, True
                break
    return case


def _error(case: Late) -> Exception | None:
    """Return how a case fails; a case whose rules are refused does not."""
    try:
        case.rule_set()
    except Exception:  # noqa: BLE001 - rules are refused without those that they read
        return None
    try:
        check(case)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is wrong
        return error
    return None


def _shown(case: Late) -> str:
    lines = ["", *case.texts, repr(case.stream), repr(case.bound)]
    at = 0
    for cut in case.cuts:
        lines += [f"  {arrival.name} {arrival.row}" for arrival in case.arrivals[at : at + cut.n]]
        lines.append(f"  {cut}")
        at += cut.n
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try as many cases as are asked for; the exit code says whether all are right."""
    parser = argparse.ArgumentParser(prog="python -m tests.property.corrections", description=__doc__)
    parser.add_argument("--examples", type=int, help="cases; 1,000 without --minutes")
    parser.add_argument("--minutes", type=float, help="try cases for so long")
    parser.add_argument("--seed", type=int, help="the first seed; another one each time by default")
    parser.add_argument("--only", choices=sorted(KINDS), help="cases of this kind")
    options = parser.parse_args(arguments)
    first = Random().randrange(10**9) if options.seed is None else options.seed
    most = options.examples or (1000 if options.minutes is None else 10**9)
    end = time.monotonic() + 60 * (options.minutes or 10**6)
    tally: Counter[str] = Counter()
    n = 0
    while n < most and time.monotonic() < end:
        kind = options.only or TURNS[n % len(TURNS)]
        try:
            KINDS[kind](first + n, tally)
        except Exception:  # noqa: BLE001 - a crash is a finding, too
            traceback.print_exc()
            print(
                f"after {n + 1:,} cases: --only {kind} --seed {first + n} --examples 1 draws it again",
                file=sys.stderr,
            )
            return 1
        n += 1
    print(f"{n:,} cases from seed {first}: what stands is what a batch reports")
    for name, number in sorted(tally.items()):
        print(f"  {number:9,}  {name}")
    if not tally["rows withdrawn"]:
        print("nothing was withdrawn after 0 corrections: these cases test nothing", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
