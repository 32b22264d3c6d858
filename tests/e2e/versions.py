"""``python -m tests.e2e.versions``: tries the older versions of PySpark that are supported, in a short form.

Each version is installed into a folder of its own in .venv, once, and comes before the PySpark of .venv. All
other packages and the compiled kernels are those of .venv. A line says what each version did:

    PySpark 4.1.4: 15 passed in 60.1s
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[2]

# PySpark 4.1 leaves the closing of sockets to the garbage collector, which warns in a test.
OPTIONS = ("-p", "no:cacheprovider", "-p", "no:unraisableexception")

VERSIONS = {
    "4.1.4": "bcbd5e18690cf79d438e97210ad06fb8d451a251bb77becc2b0418868d2acd73",
    "4.2.1": "d79b7c8ee41e66a9202fe6f600ca90b931ca571ae9dbdf31c58d2672e5102da0",
}
"""The newest of each minor version, and the digest of its archive."""

_DETECT = "tests/spark/test_detect.py"

TESTS = (
    "tests/spark/test_contract.py::test_late_rows_reach_the_operator_and_are_counted",
    "tests/spark/test_contract.py::test_a_group_without_events_gets_its_timeout_when_the_watermark_of_others_passes",
    "tests/spark/test_contract.py::test_a_stream_goes_on_from_its_checkpoint",
    f"{_DETECT}::test_a_batch_gives_the_local_matches[every event]",
    f"{_DETECT}::test_a_stream_in_any_order_within_the_lateness_gives_the_local_matches[every event]",
    "tests/e2e/test_scenarios.py::test_fraud_matches_are_the_same_locally_in_a_batch_and_in_a_stream[json]",
)
"""`detect` in a batch and a stream, state that goes on, `cep run` with the fraud scenario in both."""


def install(version: str) -> Path:
    """Return the folder with a version of PySpark; it is made if it is missing."""
    folder = Path(sys.prefix) / "versions" / f"pyspark-{version}"
    if (folder / "pyspark" / "version.py").exists():
        return folder
    click.echo(f"installing PySpark {version} into {folder} (460 MB, once)", err=True)
    unfinished = folder.with_name(f".{folder.name}")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--use-pep517"]
    pip += ["--no-deps", "--require-hashes", "--upgrade", "--target", str(unfinished), "-r", "/dev/stdin"]
    requirement = f"pyspark=={version} --hash=sha256:{VERSIONS[version]}\n"
    subprocess.run(pip, input=requirement, text=True, check=True)
    unfinished.rename(folder)
    return folder


def tried(version: str) -> bool:
    """Run the tests with a version of PySpark, print what came of it, and return whether all passed."""
    folder = install(version)
    asked = "import pyspark; print(pyspark.__version__)"
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    found = subprocess.run(
        [sys.executable, "-c", asked], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == version
    command = [sys.executable, "-m", "pytest", "-q", *OPTIONS, *TESTS]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode:
        click.echo(done.stdout + done.stderr)
    click.echo(f"PySpark {version}: {lines[-1].strip('= ') if lines else 'no answer'}")
    return done.returncode == 0


@click.command()
@click.option(
    "--version", "versions", multiple=True, type=click.Choice(list(VERSIONS)), help="By default all."
)
def main(versions: tuple[str, ...]) -> None:
    """Try older versions of PySpark."""
    outcomes = [tried(version) for version in versions or VERSIONS]
    sys.exit(not all(outcomes))


if __name__ == "__main__":
    main()
