"""Code for declared processors is carried in the package, and loaded where the host has all features."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cep.jit.processors import PROCESSORS, fitting, fitting_of, host_features
from tests.forks import Forks
from tests.unit.jit.test_compiled import LOOPS, ROOT, RUN
from tests.unit.jit.test_compiled import forks as forks

X86 = "x86_64-unknown-linux-gnu"
CARRY = """
import sys
import numpy as np
from cep.jit.arguments import key_of
from cep.jit.for_processors import files
from loops import Pair, total

key = key_of((Pair(np.array([1, 2, 3]), 2),))
for path, data in files([(total, key)], sys.argv[2:], 1):
    file = __import__("pathlib").Path(sys.argv[1]) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
"""


def environment(folder: Path) -> dict[str, str]:
    """Return variables with which a process finds no code but that in its import path."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("NUMBA_")}
    return {**kept, "PYTHONPATH": f"{folder}:{ROOT}", "NUMBA_CACHE_DIR": str(folder / "cache")}


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that a package carries for all processors, of one small kernel."""
    folder = tmp_path_factory.mktemp("carried")
    (folder / "loops").mkdir()
    (folder / "loops/__init__.py").write_text(LOOPS)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CARRY, str(folder / "files"), *PROCESSORS],
        env=environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


def zipped(carried: Path, at: Path, names: Sequence[str]) -> Path:
    """Return an archive of the package's part for kernels that carries the code for some processors."""
    with zipfile.ZipFile(at, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in (ROOT / "cep/__init__.py", *(ROOT / "cep/jit").rglob("*.py")):
            archive.write(file, file.relative_to(ROOT))
        archive.write(carried / "loops/__init__.py", "loops/__init__.py")
        for name in names:
            for file in (carried / "files").glob(f"carried/{name}-*/*"):
                archive.write(file, Path("cep/jit") / file.relative_to(carried / "files"))
    return at


HAS = "from loops import total; print(total.place.has())"


def said(forks: Forks, program: str, variables: Mapping[str, str], *path: Path) -> str:
    """Return what a program says in a process of its own."""
    done = forks.run(program, environment=variables, path=path, folder=path[0].parent)
    assert done.code == 0, done.err
    return done.out.strip()


def has_code(forks: Forks, archive: Path, folder: Path) -> str:
    """Return whether a process with the package in an archive has code of the kernel."""
    return said(forks, HAS, environment(folder), archive)


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    """Return a folder with the kernel."""
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops/__init__.py").write_text(LOOPS)
    return tmp_path


def test_each_processor_has_an_object_file_of_its_architecture(carried: Path) -> None:
    machines = {"x86_64": 62, "aarch64": 183}  # of the ELF format
    for name, processor in PROCESSORS.items():
        [file] = (carried / "files").glob(f"carried/{name}-*/loops.total.kernel")
        _, _, code = file.read_bytes().partition(b"\n")
        assert code[:4] == b"\x7fELF"
        assert int.from_bytes(code[18:20], "little") == machines[processor.triple.partition("-")[0]]


def test_what_was_compiled_for_processors_is_kept_and_the_files_are_the_same_again(
    forks: Forks, carried: Path, tmp_path: Path
) -> None:
    refuse = (
        "import cep.jit.for_processors as module\nmodule._compiled = lambda work, *_: [1 / 0 for _ in work]\n"
    )
    done = forks.run(
        refuse + CARRY, tmp_path, *PROCESSORS, environment=environment(carried), path=[carried, ROOT]
    )
    assert done.code == 0, done.err
    first = sorted((carried / "files").rglob("*.kernel"))
    assert len(first) == len(PROCESSORS)
    for file in first:
        assert (tmp_path / file.relative_to(carried / "files")).read_bytes() == file.read_bytes()


@pytest.mark.skipif(not fitting(), reason="this machine is none of the processors")
def test_code_is_loaded_out_of_an_archive_and_nothing_is_compiled(
    forks: Forks, carried: Path, tmp_path: Path
) -> None:
    for name in fitting():
        archive = zipped(carried, tmp_path / f"{name}.zip", [name])
        assert said(forks, RUN, environment(tmp_path), archive) == "12 False"
    assert not (tmp_path / "cache").exists()


def test_code_for_a_processor_with_other_features_is_not_loaded(
    forks: Forks, carried: Path, tmp_path: Path
) -> None:
    others = [name for name in PROCESSORS if name not in fitting()]
    assert others
    archive = zipped(carried, tmp_path / "others.zip", others)
    assert has_code(forks, archive, tmp_path) == "False"


@pytest.mark.skipif(not fitting(), reason="this machine is none of the processors")
def test_code_of_other_versions_or_sources_is_not_loaded(forks: Forks, carried: Path, tmp_path: Path) -> None:
    archive = zipped(carried, tmp_path / "package.zip", fitting())
    assert has_code(forks, archive, tmp_path) == "True"
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("loops/more.py", "# the sources are a package, and this is one more\n")
    assert has_code(forks, archive, tmp_path) == "False"


def test_a_machine_runs_code_for_processors_all_of_whose_features_it_has() -> None:
    v3 = PROCESSORS["x86-64-v3"].features
    assert list(fitting_of(X86, v3 | {"adx"})) == ["x86-64-v3", "x86-64-v2"]
    for feature in v3:
        assert "x86-64-v3" not in fitting_of(X86, v3 - {feature})
    assert list(fitting_of(X86, frozenset())) == []
    assert list(fitting_of("aarch64-unknown-linux-gnu", frozenset({"neon"}))) == ["aarch64"]
    assert list(fitting_of("arm64-apple-darwin23.1.0", frozenset({"neon"}))) == []
    assert list(fitting_of("x86_64-apple-darwin23.1.0", v3)) == []


def test_llvm_knows_the_features_by_these_names() -> None:
    import llvmlite.binding as llvm

    if llvm.get_process_triple().startswith("x86_64-"):
        known = set(llvm.get_host_cpu_features())
        assert all(made.features <= known for made in PROCESSORS.values() if made.triple == X86)
        assert host_features() <= known


def test_a_process_waits_for_the_code_that_another_one_compiles(forks: Forks, loops: Path) -> None:
    """Three processes need the same kernel: one of them compiles it."""
    done = forks.run_together(3, RUN, environment=environment(loops), path=[loops, ROOT])
    assert sorted(one.out for one in done) == ["12 False\n"] * 2 + ["12 True\n"], done


HOLD = """
import signal
from loops import total
with total.place.locked():
    print("locked", flush=True)
    signal.pause()
"""


def test_the_lock_of_a_process_that_was_killed_holds_nobody_up(forks: Forks, loops: Path) -> None:
    variables = environment(loops)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], env=variables, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        holder.kill()
    assert said(forks, HOLD.replace("signal.pause()", "pass"), variables, loops, ROOT) == "locked"


def test_no_code_is_read_from_temporary_files_that_others_may_change(forks: Forks, loops: Path) -> None:
    """The last place of code is used where neither the package nor the home can be written."""
    (loops / "file").touch()
    (loops / "loops/__pycache__").touch()
    variables = environment(loops)
    del variables["NUMBA_CACHE_DIR"]
    variables |= {"XDG_CACHE_HOME": str(loops / "file"), "TMPDIR": str(loops)}
    assert said(forks, RUN, variables, loops, ROOT) == "12 True"
    assert said(forks, HAS, variables, loops, ROOT) == "True"
    [private] = loops.glob("spark-cep-*")
    assert private.stat().st_mode & 0o777 == 0o700
    private.chmod(0o720)
    assert said(forks, HAS, variables, loops, ROOT) == "False"
