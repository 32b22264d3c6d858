"""Random cases of one check, as many as are asked for."""

from __future__ import annotations

import signal
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from tests.property.strategies.late import Late, drawn

_TOLD_SECONDS = 30.0


def try_cases(program: str, check: Callable[[Late, Path, Random, Counter[str]], None]) -> int:
    """Try random cases, ``python -m PROGRAM --examples 1000``; return 1 if one fails.

    Their number is printed every 30 seconds, and at an interrupt, such as by ``timeout``, which returns 130.
    """
    parser = ArgumentParser(prog=f"python -m {program}")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args()
    for name in (signal.SIGINT, signal.SIGTERM):  # in the background a shell lets the first be ignored
        signal.signal(name, signal.default_int_handler)
    tally: Counter[str] = Counter()
    number, began = options.first, time.monotonic()
    told = began
    try:
        for number in range(options.first, options.first + options.examples):
            _try_one(f"{options.seed} {number}", check, tally)
            if time.monotonic() - told >= _TOLD_SECONDS:
                told = time.monotonic()
                print(f"{number + 1 - options.first:,} cases, {told - began:,.0f} s", flush=True)
    except KeyboardInterrupt:
        print(f"interrupted in case {number}; {number - options.first:,} cases before: {dict(tally)}")
        return 130
    except Exception as error:  # noqa: BLE001 - the case is what matters
        place = f"case {number} of seed {options.seed}, after {number - options.first + 1:,} cases"
        said = f"{place}: {type(error).__name__}: {error}"[:2000]
        print(f"{said}\nagain: --seed {options.seed} --first {number} --examples 1", file=sys.stderr)
        return 1
    print(f"{options.examples:,} cases: {dict(tally)}")
    return 0


def _try_one(
    seed: str, check: Callable[[Late, Path, Random, Counter[str]], None], tally: Counter[str]
) -> None:
    random = Random(seed)
    with TemporaryDirectory() as folder:
        check(drawn(random), Path(folder), random, tally)
