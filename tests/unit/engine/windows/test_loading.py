"""Programs without windows do not pay for them, and kernels are compiled once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WITHOUT = """
import sys
from cep.engine.matching.matcher import Matcher
from tests.unit.engine.events import prepared, program

compiled = program("a -> b", "WITHIN 5 SECONDS", define="a AS letter = 'a', b AS letter = 'b'")
matcher = Matcher(compiled)
matcher.push(prepared(compiled, ("k", 1, "a", 1.0, 1, "s"), ("k", 2, "b", 1.0, 1, "s")))
assert matcher.finish().num_rows == 1
loaded = [name for name in sys.modules if name.startswith("cep.engine.windows")]
assert loaded == [], loaded
"""

ONCE = """
import random
from cep.engine.warm import compiled_kernels, warm_up
from cep.expression import Type
from tests.unit.engine.windows.test_windows import compare, drawn_columns, drawn_events

warm_up()
for seed in range(60):
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.BIGINT, Type.STRING))
    compare(drawn_columns(draw, kind), drawn_events(draw, kind, 20), draw)
assert set(compiled_kernels().values()) == {1}, compiled_kernels()
"""


def run(program: str) -> None:
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_program_without_windows_does_not_load_them() -> None:
    run(WITHOUT)


def test_every_kernel_of_windows_is_compiled_once() -> None:
    run(ONCE)
