"""After the warm-up no program makes the kernels compile again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cep.engine.warm import is_warm, warm_up

PROGRAM = """
from cep.engine.matching.matcher import Matcher
from cep.engine.warm import compiled_kernels, warm_up
from tests.unit.engine.events import prepared, program

warm_up()
define = "a AS letter = 'a', b AS x > AVG(a.x) AND s = a.s"
compiled = program("a->+ -> b", "WITHIN 5 SECONDS", define=define, measures="a.s AS s")
matcher = Matcher(compiled)
rows = [("k", 1, "a", 1.0, 1, "s"), ("m", 2, "a", 2.0, 1, "s"), ("k", 3, "b", 5.0, 1, "s")]
matcher.push(prepared(compiled, *rows))
assert matcher.advance(2_500_000).num_rows == 0
assert Matcher.restore(compiled, matcher.snapshot()).finish().num_rows == 1
assert set(compiled_kernels().values()) == {1}, compiled_kernels()
"""


def test_every_kernel_is_compiled_once() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


SAY = "import cep; from cep.engine.warm import is_warm; print(cep.__file__, is_warm())"


def test_kernels_that_were_compiled_elsewhere_are_good_if_their_sources_are_the_same(tmp_path: Path) -> None:
    """An archive keeps neither the place of a file nor its time exactly."""
    warm_up()
    root = Path(__file__).parents[3]
    shutil.copytree(root / "cep", tmp_path / "cep", copy_function=shutil.copyfile)
    said = []
    for more in ("", "# changed\n"):
        with (tmp_path / "cep/engine/kernels/step.py").open("a") as file:
            file.write(more)
        done = subprocess.run(
            [sys.executable, "-c", SAY],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        said.append(done.stdout)
    assert said == [f"{tmp_path}/cep/__init__.py {is_good}\n" for is_good in (True, False)]


def test_it_is_known_if_the_kernels_are_on_disk(tmp_path: Path) -> None:
    warm_up()
    assert is_warm()
    done = subprocess.run(
        [sys.executable, "-c", "from cep.engine.warm import is_warm; print(is_warm())"],
        cwd=Path(__file__).parents[3], env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"


WINDOW_RULES = """
from cep.compiler.compile import compile_sources
from cep.engine.warm import missing
from cep.errors import Source
from cep.schema.stream import Field, Stream

stream = Stream("s", (Field("ts", "timestamp"), Field("k", "bigint"), Field("x", "double")), "ts")
for window in ("TUMBLING 1 DAY", "SESSION GAP 5 MINUTES", "HOPPING 2 HOURS EVERY 1 HOUR"):
    text = f"RULE r FROM s PARTITION BY k WINDOW {window} HAVING SUM(x) > 9 MEASURES COUNT(*) AS n"
    programs = compile_sources([Source("r.cep", text)], {"s": stream}).rule_set.programs
    print(any(kernel.__module__.startswith("cep.engine.windows.") for kernel, _ in missing(programs)))
"""


def test_the_kernels_that_window_rules_need_are_found_where_none_is_compiled(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WINDOW_RULES],
        cwd=Path(__file__).parents[3], env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.split()) == (0, ["True"] * 3), done.stderr
