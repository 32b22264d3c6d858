"""Random cases of one check, as many as are asked for."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.property.strategies.late import Late, drawn


def try_cases(program: str, check: Callable[[Late, Path, Random, Counter[str]], None]) -> int:
    """Try random cases, ``python -m PROGRAM --examples 1000``; return 1 if one fails."""
    parser = ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tally: Counter[str] = Counter()
    for number in range(options.examples):
        random = Random(f"{options.seed} {number}")
        try:
            with TemporaryDirectory() as folder:
                check(drawn(random), Path(folder), random, tally)
        except Exception as error:  # noqa: BLE001 - the case is what matters
            print(f"after {number + 1:,} cases: {type(error).__name__}: {error}"[:2000], file=sys.stderr)
            return 1
    print(f"{options.examples:,} cases: {dict(tally)}")
    return 0
