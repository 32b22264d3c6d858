"""The matches do not depend on the optimizations of the compiler, nor on whether the kernels are compiled."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import assume, given

from tests.deep import n_cases
from tests.property.differential import oracle_rows, programs_of, rows_by
from tests.property.strategies.cases import Case, cases
from tests.property.test_engine import FEW, is_small


@FEW
@given(cases())
def test_without_optimizations_the_matches_are_the_same(case: Case) -> None:
    assume(is_small(case))
    assert rows_by(programs_of(case, optimize=False), case) == oracle_rows(case)


def test_without_compiled_kernels_the_matches_are_the_same() -> None:
    more = f"-m tests.property --no-jit --examples {n_cases(160)} --seed 7 --only rules".split()
    command = [sys.executable, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{n_cases(160)} cases" in done.stdout
