"""The kernels compiled and interpreted give the same matches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def matches(folder: Path, environment: dict[str, str]) -> str:
    inputs = [
        f"card_events={folder / 'events'}",
        f"customers={folder / 'customers'}",
        "countries=scenarios/fraud/countries.csv",
    ]
    named = [word for text in inputs for word in ("--input", text)]
    done = subprocess.run(
        [sys.executable, "-m", "cep", "match", "rules/fraud", *named],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_with_the_compiler_off_the_matches_are_the_same(tmp_path: Path) -> None:
    generate = [sys.executable, "-m", "scenarios.fraud.generate", "--events", "5000", "--out", str(tmp_path)]
    subprocess.run(generate, cwd=ROOT, check=True, capture_output=True)
    compiled = matches(tmp_path, {})
    assert compiled.count("\n") > 10
    assert matches(tmp_path, {"NUMBA_DISABLE_JIT": "1"}) == compiled
