"""`make fuzz` runs without an error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.deep import n_cases


@pytest.mark.deep
def test_make_fuzz_tries_cases_in_two_processes() -> None:
    more = f"-m tests.property --examples {n_cases(32)} --jobs 2 --seed 1".split()
    done = subprocess.run(
        [sys.executable, *more],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert "no difference" in done.stdout
