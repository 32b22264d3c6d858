"""Kernels take their machine code from disk as long as it is good."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cep.jit import numba_compiler, stored
from cep.jit.arguments import UnknownArgumentError, as_json, key_of, of_json
from cep.program.records import RuleTables
from tests.forks import Forks

ROOT = Path(__file__).parents[3]
LOOPS = """
from typing import NamedTuple
import numpy as np
from cep.jit.compiled import Sources, inlined, kernel

class Pair(NamedTuple):
    values: np.ndarray
    factor: int

@inlined
def times(value, factor):
    return value * factor

@kernel(Sources("loops"))
def total(pair):
    found = pair.values[0] * 0
    for value in pair.values:
        found += times(value, pair.factor)
    return found
"""
ASK = """
import sys
import numpy as np
from loops import Pair, total
print(total(Pair(np.array({values}), {factor})), "{module}" in sys.modules)
"""
RUN = ASK.format(values="[1, 2, 3]", factor="2", module="cep.jit.numba_compiler")
WITH_NUMBA = """
import numpy, numba
numba.njit("int64(int64[::1])")(lambda array: array[0])
"""
"""Imports numba, which takes longer than to compile the kernel, and lets it prepare what it prepares once."""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    """Return a process that has numba but nothing of this package."""
    with Forks(WITH_NUMBA) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops/__init__.py").write_text(LOOPS)
    return tmp_path


def variables(**more: str) -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if name != "NUMBA_CACHE_DIR"} | more


def ask(
    forks: Forks, folder: Path, values: str = "[1, 2, 3]", factor: str = "2", **environment: str
) -> list[str]:
    """Return what the kernel gives in a process of its own, and whether it was compiled there."""
    program = ASK.format(values=values, factor=factor, module="cep.jit.numba_compiler")
    done = forks.run(program, environment=variables(**environment), path=[folder, ROOT])
    assert done.code == 0, done.err
    return done.out.split()


def ask_without_numba(folder: Path, **environment: str) -> list[str]:
    """Return what the kernel gives in a process that has imported nothing, and whether it imports numba."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASK.format(values="[1, 2, 3]", factor="2", module="numba")],
        env=variables(PYTHONPATH=f"{folder}:{ROOT}", **environment),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_code_on_disk_needs_no_numba_and_is_good_for_its_sources_types_and_processor_only(
    forks: Forks, folder: Path
) -> None:
    assert ask(forks, folder) == ["12", "True"]
    assert ask_without_numba(folder) == ["12", "False"]
    assert ask(forks, folder, "[0.5, 1.0]") == ["3.0", "True"]
    assert ask(forks, folder, "[0.5, 1.0]") == ["3.0", "False"]
    assert ask(forks, folder) == ["12", "False"], "the code for other types replaced it"
    [file] = folder.rglob("*.kernel")
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert ask_without_numba(folder, **other) == ["12", "True"]  # numba has read these when it is imported
    assert ask(forks, folder, **other) == ["12", "False"]
    assert ask(forks, folder) == ["12", "False"]
    assert len(list(folder.rglob("*.kernel"))) == 2

    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)
    assert ask(forks, folder) == ["12", "True"], "damaged code was run"
    assert ask(forks, folder) == ["12", "False"]
    file.write_bytes(file.read_bytes()[:-200])
    assert ask(forks, folder) == ["12", "True"], "half a file was run"

    (folder / "loops/__init__.py").write_text(LOOPS.replace("value * factor", "value * factor + 1"))
    assert ask(forks, folder) == ["15", "True"], "code of older sources was run"
    assert ask(forks, folder) == ["15", "False"]


def test_code_is_kept_elsewhere_if_nothing_can_be_written_beside_the_source(
    forks: Forks, folder: Path
) -> None:
    (folder / "loops/__pycache__").write_text("no folder")
    cache = {"XDG_CACHE_HOME": str(folder / "cache")}
    assert ask(forks, folder, **cache) == ["12", "True"]
    assert ask(forks, folder, **cache) == ["12", "False"]
    assert len(list((folder / "cache").rglob("*.kernel"))) == 1
    assert ask(forks, folder, **cache, NUMBA_CACHE_DIR=str(folder / "given")) == ["12", "True"]
    assert len(list((folder / "given").rglob("*.kernel"))) == 1


def test_without_the_compiler_a_kernel_is_a_function_of_python(folder: Path) -> None:
    assert ask_without_numba(folder, NUMBA_DISABLE_JIT="1") == ["12", "False"]
    assert not list(folder.rglob("*.kernel"))


def test_another_version_of_numba_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    before = stored.machine.__wrapped__()
    assert before == stored.machine()
    monkeypatch.setattr(stored, "_version_of", lambda package: "another")
    assert stored.machine.__wrapped__() != before


def tables(*last: Any) -> RuleTables:
    """Return tables that are not of use; `last` are those at the end."""
    first: list[Any] = [np.zeros(1, np.int32) for _ in RuleTables._fields[len(last) :]]
    return RuleTables._make([*first, *last])


def locked(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "argument",
    [
        1, -(2**63), True, 1.5, np.int32(1), np.uint64(1), np.float64(1), np.bool_(True),
        np.zeros(3), np.zeros(0), np.zeros((2, 3)), np.zeros((3, 2)).T, np.zeros((4, 4))[::2, ::2],
        np.zeros(9)[::2], locked(np.zeros(3)), np.zeros(17, np.uint8)[1:].view(np.int64), np.zeros((1, 1)),
        (1, 2), (1, 2.0), (np.zeros(3), 1), ((1, True), 2),
        tables(),
        tables(np.zeros(1, np.uint64)),
    ],
    ids=repr,
)  # fmt: skip
def test_a_key_means_the_type_that_numba_finds(argument: object) -> None:
    import numba

    key = key_of((argument,))
    assert numba_compiler.types_of(key) == (numba.typeof(argument),)
    assert of_json(as_json(key)) == key


@pytest.mark.parametrize(
    "argument", [None, "text", 2**63, object(), [1]], ids=lambda value: type(value).__name__
)
def test_arguments_that_no_kernel_takes_are_refused(argument: object) -> None:
    with pytest.raises(UnknownArgumentError):
        key_of((argument,))
