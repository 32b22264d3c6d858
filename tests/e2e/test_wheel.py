"""What an installation has: built from a copy of the repository and from its source archive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


def built(kind: str, folder: Path, to: Path) -> Path:
    """Build without a network; return the only file it made."""
    to.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}", str(to)],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [file] = to.iterdir()
    return file


@dataclass(frozen=True, slots=True)
class Builds:
    """A copy of the repository, its wheel, its source archive and the wheel of that."""

    clone: Path
    wheel: Path
    archive: Path
    wheel_of_archive: Path


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Builds:
    folder = tmp_path_factory.mktemp("wheel")
    clone = folder / "clone"
    without = shutil.ignore_patterns(".*", "__pycache__", "build", "out", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=without)
    archive = built("sdist", clone, folder / "archive")
    with tarfile.open(archive) as file:
        file.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    wheel, again = built("wheel", clone, folder / "first"), built("wheel", unpacked, folder / "second")
    return Builds(clone, wheel, archive, again)


def files_of(wheel: Path) -> dict[str, bytes]:
    """Return the content of each file of a wheel, but for what says how it was built."""
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist() if ".dist-info/" not in name}


def test_the_package_has_two_names_on_the_import_path(builds: Builds) -> None:
    for wheel in (builds.wheel, builds.wheel_of_archive):
        assert {name.split("/")[0] for name in files_of(wheel)} == {"cep", "spark_runtime"}


def test_the_wheel_of_the_repository_and_of_its_source_archive_have_the_same_files(builds: Builds) -> None:
    assert files_of(builds.wheel) == files_of(builds.wheel_of_archive)


def test_the_wheel_has_the_whole_rule_library(builds: Builds) -> None:
    files = files_of(builds.wheel)
    library = {name: files[name] for name in files if name.startswith("cep/library/")}
    rules = [path for path in (ROOT / "rules").rglob("*") if path.is_file()]
    place = {path: f"cep/library/{path.relative_to(ROOT / 'rules').as_posix()}" for path in rules}
    assert library == {place[path]: path.read_bytes() for path in rules}
    assert len(library) > 10


def test_the_wheel_has_every_file_of_the_package(builds: Builds) -> None:
    folders = [path for name in ("cep", "spark_runtime") for path in (builds.clone / name).rglob("*")]
    written = (path for path in folders if path.is_file() and path.suffix != ".kernel")
    assert {path.relative_to(builds.clone).as_posix() for path in written} <= files_of(builds.wheel).keys()


def environment_with(what: Path, at: Path, *options: str) -> Path:
    """Create an environment, install a package into it with the packages of this one, return its command."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(at)], check=True)
    [packages] = at.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    pip = [sys.executable, "-m", "pip", "--python", str(at / "bin" / "python"), "install", "--no-deps"]
    pip += ["--no-build-isolation", "--no-index", "--disable-pip-version-check", *options, str(what)]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return at / "bin" / "cep"


@pytest.mark.parametrize("way", ["wheel", "source archive", "editable"])
def test_an_installation_lists_and_copies_its_rules(way: str, builds: Builds, tmp_path: Path) -> None:
    what = {"wheel": builds.wheel, "source archive": builds.archive, "editable": builds.clone}[way]
    options = ["--editable"] if way == "editable" else []
    cep = environment_with(what, tmp_path / "environment", *options)
    (tmp_path / "elsewhere").mkdir()

    def output(*arguments: str) -> str:
        done = subprocess.run(
            [cep, *arguments], cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    place = builds.clone if way == "editable" else tmp_path / "environment"
    where = subprocess.run(
        [cep.with_name("python"), "-c", "import cep; print(cep.__file__)"],
        cwd=tmp_path / "elsewhere", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(place)
    assert output("--version") == f"cep, version {PROJECT['version']}\n"
    assert "security/takeover_then_drain (reads logins, transactions)\n" in output("rules", "list")
    output("rules", "copy", "sensor", "--to", "mine")
    assert output("check", "mine") == "checked 4 files, 4 rules: no problems\n"


def test_a_checkout_that_is_not_installed_finds_its_rules(builds: Builds, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from cep.rule_library import library_rules as r; print(r()[0].file)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(builds.clone)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()).parents[1] == builds.clone / "rules"


def test_the_folders_of_the_package_have_no_links() -> None:
    """Archives of a repository, Windows and some copies turn a link into a file."""
    folders = [ROOT / name for name in ("cep", "rules", "spark_runtime")]
    assert [path for folder in folders for path in folder.rglob("*") if path.is_symlink()] == []
