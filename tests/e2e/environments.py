"""``python -m tests.e2e.environments lowest`` or ``pythons``: tries other environments that are supported.

`lowest` installs the lowest versions that pyproject.toml allows and runs the tests of units and some of
Spark. `pythons` does so with each other supported Python that this machine has. Each
environment is a folder in .venv, with compiled kernels of its own. It is created again when pyproject.toml or
the lock has changed. A line says what each one did:

    Python 3.12.1: 7241 passed in 301.2s
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click

from tests.e2e.versions import OPTIONS, TESTS

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"

PYTHONS = ("3.11", "3.12", "3.13")
"""The versions that pyproject.toml names."""

UV = "uv>=0.9,<1"
"""Chooses lowest versions, which pip cannot."""

NO_SPARK = (
    "tests/unit",
    "-m",
    "not spark",
    # It copies the kernels beside their sources. Those of an environment are elsewhere.
    "--deselect",
    "tests/unit/engine/test_warm.py::"
    "test_kernels_that_were_compiled_elsewhere_are_good_if_their_sources_are_the_same",
    # Older versions of the same packages name their licences in other words.
    "--deselect",
    "tests/unit/test_dependencies.py::test_each_locked_package_has_a_licence_that_goes_with_ours",
)


def interpreter(version: str) -> str | None:
    """Return a Python of a minor version: one of the PATH that starts, or else one of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for found in (f"python{version}", *sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python")))):
        starts = shutil.which(found) and subprocess.run([found, "-c", ""], capture_output=True, check=False)
        if starts and starts.returncode == 0:
            return found
    return None


def environment(name: str, of: str, *needs: Path, install: Callable[[Path], None]) -> Path:
    """Return the Python of an environment; it is created if it is missing or `needs` have changed."""
    folder = Path(sys.prefix) / "versions" / name
    mark = hashlib.sha256(b"".join(path.read_bytes() for path in needs)).hexdigest()
    python, marked = folder / "bin" / "python", folder / ".set-up"
    if not marked.exists() or marked.read_text() != mark:
        click.echo(f"creating {folder} (1.2 GB with Spark)", err=True)
        subprocess.run([of, "-m", "venv", "--clear", str(folder)], check=True)
        install(python)
        pip(python, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
        marked.write_text(mark)
    return python


def pip(python: Path, *arguments: str) -> None:
    """Install packages into an environment."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def install_locked(python: Path) -> None:
    """Install the packages of the lock."""
    pip(python, "--use-pep517", "--require-hashes", "-r", str(LOCK))


def install_lowest(python: Path) -> None:
    """Install the lowest version of each package that pyproject.toml names, and what these need."""
    pip(python, UV)
    command = [str(python), "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    command += ["--resolution", "lowest-direct", "-r", str(PROJECT), "--extra", "all", "--extra", "dev"]
    subprocess.run(command, check=True, env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"})


def tried(what: str, python: Path, tests: tuple[str, ...]) -> bool:
    """Run tests in an environment, print what came of it, and return whether all passed."""
    variables = {**os.environ, "NUMBA_CACHE_DIR": str(python.parents[1] / "kernels")}
    options = ["-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider"]
    for command in (["-m", "cep", "warm"], ["-m", "pytest", *options, *tests]):
        done = subprocess.run(
            [str(python), *command], cwd=ROOT, env=variables, capture_output=True, text=True, check=False
        )
        if done.returncode:
            click.echo(done.stdout + done.stderr)
            break
    lines = done.stdout.strip().splitlines()
    click.echo(f"{what}: {lines[-1].strip('= ') if lines else 'no answer'}")
    return done.returncode == 0


def tried_all(what: str, python: Path) -> bool:
    """Run the tests of units and some of Spark in an environment; return whether all passed."""
    units = tried(what, python, NO_SPARK)
    return tried(f"{what}, Spark", python, (*OPTIONS, *TESTS)) and units


@click.group()
def main() -> None:
    """Try other environments that the package promises to run in."""


@main.command()
def lowest() -> None:
    """Try the lowest versions of packages that pyproject.toml allows."""
    python = environment("lowest", sys.executable, PROJECT, install=install_lowest)
    sys.exit(not tried_all("lowest versions", python))


@main.command()
def pythons() -> None:
    """Try the other supported Pythons that this machine has."""
    outcomes = []
    for version in PYTHONS:
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            continue  # `make test` tries it
        if (of := interpreter(version)) is None:
            click.echo(f"Python {version}: not on this machine")
            continue
        python = environment(f"python{version}", of, PROJECT, LOCK, install=install_locked)
        asked = subprocess.run([str(python), "--version"], capture_output=True, text=True, check=True)
        outcomes.append(tried_all(asked.stdout.strip(), python))
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    main()
