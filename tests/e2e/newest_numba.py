"""``python -m tests.e2e.newest_numba``: runs the tests of `cep.jit` with the newest numba.

pyproject.toml binds numba to versions that were tried, and the newest may be another one. What fails is
shown, and the command succeeds:

    numba 0.69.0, the newest: 2 failed, 62 passed in 9.41s

If the newest one is installed, other tests run with it, and the command runs none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]


def _version(folder: Path) -> str:
    """Return the version of numba in a folder of packages."""
    [found] = (one.version for one in metadata.distributions(path=[str(folder)]) if one.name == "numba")
    return found


def _failures(folder: Path) -> list[str]:
    """Run the tests with the newest numba, put into `folder`; return what failed and the last line."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder / "packages"), "numba", "llvmlite"], check=True)
    if _version(folder / "packages") == metadata.version("numba"):
        return ["it is installed, and all tests run with it"]
    # Kernels of another numba would replace those that are beside their sources.
    variables = {"PYTHONPATH": str(folder / "packages"), "NUMBA_CACHE_DIR": str(folder / "kernels")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/jit"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return [*(line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))), lines[-1].strip("= ")]


@click.command()
def main() -> None:
    """Try the newest numba."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            *failures, last = _failures(Path(folder))
        except subprocess.CalledProcessError as error:
            click.echo(f"the newest numba: pip ended with {error.returncode}")
            return
        version = _version(Path(folder) / "packages")
    for line in failures:
        click.echo(line)
    click.echo(f"numba {version}, the newest: {last}")


if __name__ == "__main__":
    main()
