"""Chooses the Python of Spark's workers, and checks that it can run the functions of `detect`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cep.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGES = {
    "cep": "spark-cep",
    "spark_runtime": "spark-cep",
    "numba": "numba",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
}
"""Module that a worker imports -> the package to install."""

_HELP = (
    "set PYSPARK_PYTHON to a Python {version} that has spark-cep[spark], on every machine; "
    "see docs/operate/running.md"
)

_checked: set[str] = set()
"""Pairs of an application and a Python that was checked."""

_choosing = threading.RLock()
"""Held while a Spark context names another Python than its own."""


@contextmanager
def workers_python(spark: SparkSession, *, checks: bool = True) -> Iterator[None]:
    """Run the functions that Spark gets within this block in the Python that they need.

    PySpark starts the program that PYSPARK_PYTHON named when the session started, or `python3` from PATH,
    which may be another Python without our packages. Here, the current PYSPARK_PYTHON is used, then the
    setting `spark.pyspark.python`, which PySpark reads only in `spark-submit`. On a local master without
    either, it is the Python of this process, with its search path. Other functions are not affected: PySpark
    records the Python of each function separately. `checks`: a job of one row may run. Raises SetupError: the
    workers, which are checked once for each application, cannot run our functions.
    """
    from pyspark.sql import SparkSession as SessionOfThisProcess

    if not isinstance(spark, SessionOfThisProcess):  # Spark Connect: its server decides
        if checks:
            _check_workers(spark, spark.session_id, "")
        yield
        return
    context: Any = spark.sparkContext
    with _choosing:
        before = context.pythonExec, context.environment
        try:
            context.pythonExec, context.environment = _python_of(context)
            if checks:
                _check_workers(spark, f"{context.applicationId} {context.pythonExec}", context.pythonExec)
            yield
        finally:
            context.pythonExec, context.environment = before


def choose_workers_python(spark: SparkSession) -> None:
    """Run all functions that Spark gets from now on as `workers_python` does.

    Raises SetupError, see `workers_python`.
    """
    context: Any = spark.sparkContext
    with workers_python(spark):
        chosen = context.pythonExec, context.environment
    context.pythonExec, context.environment = chosen


def _python_of(context: Any) -> tuple[str, dict[str, str]]:
    """Return the Python to start and its environment."""
    named = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python")
    if named:
        return named, context.environment
    if not str(context.master).startswith("local") or not sys.executable:
        return context.pythonExec, context.environment
    folder = str(Path(__file__).resolve().parents[2])
    if folder in _installation_folders():
        return sys.executable, context.environment
    path = os.pathsep.join(filter(None, (context.environment.get("PYTHONPATH"), folder)))
    return sys.executable, {**context.environment, "PYTHONPATH": path}


@cache
def _installation_folders() -> frozenset[str]:
    """Return the default folders of this Python's installed packages."""
    folders = {*site.getsitepackages(), site.getusersitepackages()}
    folders |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    return frozenset(str(Path(folder).resolve()) for folder in folders)


def _check_workers(spark: SparkSession, application: str, python: str) -> None:
    """Check that one worker can run our functions; the result holds for the application."""
    if application in _checked:
        return
    from pyspark.sql import functions as F  # noqa: N812

    # A plain function, row by row: it needs no packages except those of PySpark itself.
    ask = F.udf(_question(), "string", useArrow=False)
    try:
        ((answer,),) = spark.range(0, 1, 1, 1).select(ask("id")).collect()
    except Exception as error:
        found = without_answer(str(error), python)
        if found is None:
            raise
        raise found from None
    _require_ours(json.loads(answer))
    _checked.add(application)


def _question() -> Callable[[int], str]:
    """Return a function that is sent by value, so that it runs even without this package."""
    packages = tuple(_PACKAGES)

    def answer(_: int) -> str:
        import importlib.util
        import json
        import sys

        missing = [name for name in packages if importlib.util.find_spec(name) is None]
        fingerprint = folder = ""
        if not missing:
            try:
                from spark_runtime.sessions import worker_python

                folder, fingerprint = worker_python.__file__, worker_python.fingerprint()
            except (ImportError, AttributeError):  # versions before this module
                pass
        found = {"python": sys.executable, "missing": missing, "file": folder, "fingerprint": fingerprint}
        return json.dumps(found)

    return answer


def _require_ours(answer: dict[str, Any]) -> None:
    python = answer["python"]
    if answer["missing"]:
        names = dict.fromkeys(_PACKAGES[name] for name in answer["missing"])
        raise SetupError(
            "E0806", f"the Python of Spark's workers, {python}, has no {', '.join(names)}", _help()
        )
    if answer["fingerprint"] != fingerprint():
        raise SetupError(
            "E0807",
            f"Spark's workers have another spark-cep ({answer['file'] or python}) "
            f"than this process ({Path(__file__)})",
            "install the same version on every machine; see docs/operate/running.md",
        )


def without_answer(text: str, python: str) -> SetupError | None:
    """Return the reason why a worker failed, or None if its Python was not the reason."""
    whose, name = "the Python of Spark's workers", f", `{python}`," if python else ""
    versions = re.search(r"Python in worker has different version: (\S+) than that in driver: ([\d.]+)", text)
    if versions is not None:
        theirs, ours = versions.groups()
        return SetupError("E0805", f"{whose}{name} is {theirs}, this process has {ours.rstrip('.')}", _help())
    if re.search(r"Cannot run program|Error from python worker|pyspark\.daemon's stdout", text):
        return SetupError("E0805", f"{whose}{name} does not start, or is too old", _help())
    return None


def _help() -> str:
    return _HELP.format(version="{}.{}".format(*sys.version_info[:2]))


@cache
def fingerprint() -> str:
    """Return a hash that identifies the source of this version."""
    digest = hashlib.sha256()
    for name in ("cep", "spark_runtime"):
        for path, file in sorted(_sources(resources.files(name), name)):
            digest.update(path.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def _sources(folder: Traversable, name: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        path = f"{name}/{item.name}"
        if item.is_dir():
            yield from _sources(item, path)
        elif item.name.endswith(".py"):
            yield path, item
