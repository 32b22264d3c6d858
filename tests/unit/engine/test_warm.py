"""After the warm-up no program makes the kernels compile again. Without windows, theirs are not loaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cep.engine.warm import is_warm, warm_up
from tests.forks import Forks

ROOT = Path(__file__).parents[3]
IMPORTS = """
import pandas  # Arrow would import it in each fork
from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.warm import compiled_kernels, is_warm, missing, warm_up
from tests.unit.engine.events import prepared, program
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return a process that has imported the engine, and has neither compiled nor loaded a kernel."""
    with Forks(IMPORTS) as made:
        yield made


def said(forks: Forks, program: str, **environment: str) -> list[str]:
    """Return the words that a program prints."""
    done = forks.run(IMPORTS + program, environment={**os.environ, **environment})
    assert done.code == 0, done.err
    return done.out.split()


ONCE = """
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


def test_every_kernel_is_compiled_once(forks: Forks) -> None:
    said(forks, ONCE)


WITHOUT_WINDOWS = """
import sys
compiled = program("a -> b", "WITHIN 5 SECONDS", define="a AS letter = 'a', b AS letter = 'b'")
matcher = Matcher(compiled)
matcher.push(prepared(compiled, ("k", 1, "a", 1.0, 1, "s"), ("k", 2, "b", 1.0, 1, "s")))
assert matcher.finish().num_rows == 1
loaded = [name for name in sys.modules if name.startswith("cep.engine.windows")]
assert loaded == [], loaded
"""


def test_a_program_without_windows_does_not_load_them(forks: Forks) -> None:
    said(forks, WITHOUT_WINDOWS)


WINDOWS_ONCE = """
import random
from cep.expression import Type
from tests.unit.engine.windows.test_windows import compare, drawn_columns, drawn_events

warm_up()
for seed in range(60):
    draw = random.Random(seed)
    kind = draw.choice((Type.DOUBLE, Type.BIGINT, Type.STRING))
    compare(drawn_columns(draw, kind), drawn_events(draw, kind, 20), draw)
assert set(compiled_kernels().values()) == {1}, compiled_kernels()
"""


def test_every_kernel_of_windows_is_compiled_once(forks: Forks) -> None:
    said(forks, WINDOWS_ONCE)


SAY = "import cep; from cep.engine.warm import is_warm; print(cep.__file__, is_warm())"


def test_kernels_that_were_compiled_elsewhere_are_good_if_their_sources_are_the_same(tmp_path: Path) -> None:
    """An archive keeps neither the place of a file nor its time exactly."""
    warm_up()
    shutil.copytree(
        ROOT / "cep", tmp_path / "cep", copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("*.pyc")
    )
    here = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    with Forks(f"{here}import cep.engine.warm") as of_copy:
        assert of_copy.run(SAY).out == f"{tmp_path}/cep/__init__.py True\n"
        with (tmp_path / "cep/engine/kernels/step.py").open("a") as file:
            file.write("# changed\n")
        assert of_copy.run(SAY).out == f"{tmp_path}/cep/__init__.py False\n"


def test_it_is_known_if_the_kernels_are_on_disk(forks: Forks, tmp_path: Path) -> None:
    warm_up()
    assert is_warm()
    assert said(forks, "print(is_warm())", NUMBA_CACHE_DIR=str(tmp_path)) == ["False"]


WINDOW_RULES = """
from cep.errors import Source
from cep.schema.stream import Field, Stream

stream = Stream("s", (Field("ts", "timestamp"), Field("k", "bigint"), Field("x", "double")), "ts")
for window in ("TUMBLING 1 DAY", "SESSION GAP 5 MINUTES", "HOPPING 2 HOURS EVERY 1 HOUR"):
    text = f"RULE r FROM s PARTITION BY k WINDOW {window} HAVING SUM(x) > 9 MEASURES COUNT(*) AS n"
    programs = compile_sources([Source("r.cep", text)], {"s": stream}).rule_set.programs
    print(any(kernel.__module__.startswith("cep.engine.windows.") for kernel, _ in missing(programs)))
"""


def test_the_kernels_that_window_rules_need_are_found_where_none_is_compiled(
    forks: Forks, tmp_path: Path
) -> None:
    assert said(forks, WINDOW_RULES, NUMBA_CACHE_DIR=str(tmp_path)) == ["True"] * 3
