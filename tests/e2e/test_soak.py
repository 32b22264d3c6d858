"""The short form of `make soak`: a run that is killed and whose rules change equals a batch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.spark
@pytest.mark.deep
@pytest.mark.parametrize(("more", "rules"), [((), "MEASURES"), (("--correct-within", "60"), "WORDS")])
def test_a_short_soak_ends_without_a_fault(tmp_path: Path, more: tuple[str, ...], rules: str) -> None:
    kinds = ("KILL", rules, "BACK", "BROKEN")
    asked = [argument for kind in kinds for argument in ("--fault", kind)]
    command = [sys.executable, "-m", "tests.soak", "--seconds", "60", "--every", "10", *asked, *more]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "soak")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert done.stdout.rstrip().endswith(" 0 faults")
    for kind in kinds[:2]:
        assert kind in done.stdout
