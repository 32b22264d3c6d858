"""``python -m tests.e2e.versions``: tries the older versions of PySpark that are supported, in a short form.

After the tests, one checkpoint of `detect` and one of `cep run` are carried from the oldest version through
all to the newest (`carried_on`). ``--whole`` runs all tests of `tests/spark` instead of the short form.

Each version is installed into a folder of its own in .venv, once, and comes before the PySpark of .venv. All
other packages and the compiled kernels are those of .venv. A line says what each version did:

    PySpark 4.1.4: 22 passed in 60.1s
    a checkpoint of PySpark 4.1.4 continues with 4.2.1: right
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from pyspark import __version__

from tests.e2e.carried_on import expected

ROOT = Path(__file__).resolve().parents[2]

# Before 4.2 PySpark leaves the closing of sockets to the garbage collector, which warns in a test. 3.5 uses
# distutils.
OPTIONS = (
    *("-p", "no:cacheprovider", "-p", "no:unraisableexception"),
    *("-W", "ignore:distutils Version:DeprecationWarning", "-W", "ignore:unclosed:ResourceWarning"),
)

VERSIONS = {
    "3.5.9": "ea27adc39ddac9413b8951e45aa748cbed6c785971b81386efc41938f6243d93",
    "4.0.5": "a0d44b0e7faf0458ad83b7aa664e7ed8b96beed8a55d66ce3b0dfac2309dfca6",
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
    "tests/spark/test_compat.py",
)
"""`detect` in a batch and a stream, state that continues, `cep run` with the fraud scenario, `compat`."""

WHOLE = ("-n", "2", "--dist", "loadfile", "tests/spark")


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


def environment_of(version: str) -> dict[str, str]:
    """Return the variables with which Python imports a version of PySpark."""
    places = [str(ROOT)] if version == __version__ else [str(install(version)), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places)}
    asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    found = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == version
    return environment


def tried(version: str, tests: tuple[str, ...]) -> bool:
    """Run tests with a version of PySpark, print what came of it, and return whether all passed.

    What pytest prints of all tests is shown at once, of a few only if one fails.
    """
    environment = environment_of(version)
    command = [sys.executable, "-m", "pytest", "-q", *OPTIONS, *tests]
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        for line in run.stdout:
            lines.append(line)
            if tests is WHOLE:
                click.echo(line, err=True, nl=False)
    if run.returncode and tests is not WHOLE:
        click.echo("".join(lines))
    last = lines[-1].strip("= \n") if lines else "no answer"
    click.echo(f"PySpark {version}: {last}")
    return run.returncode == 0


def carried_on() -> bool:
    """Carry a checkpoint from each version to the next, print what came of it, and say if all was right."""
    versions = [*VERSIONS, __version__]
    outcomes = []
    with TemporaryDirectory() as folder:
        for step, version in enumerate(versions):
            command = [sys.executable, "-m", "tests.e2e.carried_on", folder, str(step)]
            environment = environment_of(version)
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
            )
            is_right = done.returncode == 0 and json.loads(done.stdout) == expected(step)
            outcomes.append(is_right)
            if not is_right:
                click.echo(f"{done.stdout}{done.stderr}expected: {expected(step)}")
            before = (
                f"a checkpoint of PySpark {versions[step - 1]} continues" if step else "checkpoints start"
            )
            click.echo(f"{before} with {version}: {'right' if is_right else 'WRONG'}")
    return all(outcomes)


@click.command()
@click.option(
    "--version",
    "versions",
    multiple=True,
    type=click.Choice([*VERSIONS, __version__]),
    help="By default the older ones, with checkpoints.",
)
@click.option("--whole", is_flag=True, help="All tests of Spark, which take a quarter of an hour.")
def main(versions: tuple[str, ...], whole: bool) -> None:
    """Try older versions of PySpark."""
    outcomes = [tried(version, WHOLE if whole else TESTS) for version in versions or VERSIONS]
    sys.exit(not (all(outcomes) and (bool(versions) or carried_on())))


if __name__ == "__main__":
    main()
