"""Writes a pipeline, this package and its compiled kernels to one ZIP archive, which `spark-submit` takes.

    main.py                 runs the pipeline
    cep/, spark_runtime/    this package, with kernels
    job/                    the pipeline file, and the files that it names
    packages/               on request: all other packages of this Python's environment

`--py-files` puts the archive on the import path of the driver and of all workers. Packages with machine code
cannot be imported from an archive: `--archives` unpacks it for them.
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from glob import glob
from importlib import resources
from importlib.metadata import distributions
from importlib.resources.abc import Traversable
from pathlib import Path

import yaml

from cep.errors import InputError
from cep.rule_files import STREAMS_FILE
from cep.write_errors import replacing
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.packaged import JOB
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.sinks.place import folders_of

_MAIN = '''\
"""Runs the pipeline of the archive: spark-submit --py-files ARCHIVE main.py"""

import sys

from cep.commands.cli import main
from cep.errors import CepError
from spark_runtime.pipeline.packaged import pipeline_file

try:
    pipeline = pipeline_file({pipeline!r})
except CepError as error:
    sys.exit(str(error))
main(["run", str(pipeline), *sys.argv[1:]], prog_name="cep")
'''
_OF_THE_CLUSTER = frozenset(("pyspark", "pyspark-client", "py4j", "spark-cep", "pip", "setuptools", "wheel"))


def write_package(
    pipeline: Path,
    archive: Path,
    kernels: Iterable[tuple[str, bytes]],
    *,
    with_packages: bool = False,
) -> None:
    """Write the archive of a pipeline.

    Parameters
    ----------
    pipeline
        The pipeline file.
    archive
        Where the archive is written. An existing file is replaced.
    kernels
        The paths in ``cep.jit`` and the contents of the files with compiled kernels. They are read after the
        pipeline is checked.
    with_packages
        Whether it contains all packages of this environment except Spark and this one.

    Raises
    ------
    RuleError
        The pipeline file is wrong.
    InputError
        The pipeline names a file or a folder that only this machine has, or the archive cannot be written.
    """
    job = files_of_job(pipeline)
    root = Path(os.path.commonpath([path.parent for path in job]))
    at = {f"{JOB}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in job}
    inside = pipeline.resolve().relative_to(root).as_posix()
    _check(at, f"{JOB}/{inside}")
    main = _MAIN.format(pipeline=inside)
    with replacing(archive) as written, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in [("main.py", main.encode()), *at.items(), *_package_files()]:
            _write(file, name, data)
        for name, data in kernels:
            _write(file, f"cep/jit/{name}", data)
        for path in _packages() if with_packages else ():
            file.write(*path)


def _write(file: zipfile.ZipFile, name: str, data: bytes) -> None:
    """Write a file without its time: equal content makes an equal archive."""
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o644 << 16
    file.writestr(info, data, zipfile.ZIP_DEFLATED)


def files_of_job(path: Path) -> list[Path]:
    """Return the pipeline file, and the files of rules, streams and static tables that it names.

    Raises RuleError: the pipeline file is wrong.
    """
    made = load_pipeline(path)
    path = path.resolve()
    rules = [Path(text.name).resolve() for text in made.texts]
    named = yaml.safe_load(path.read_text("utf-8-sig")).get("streams")
    streams = [(path.parent / named).resolve()] if isinstance(named, str) else _nearest(rules)
    return list(dict.fromkeys((path, *rules, *streams, *_tables(made))))


def _nearest(rules: Iterable[Path]) -> Iterator[Path]:
    for rule in rules:
        found = (folder / STREAMS_FILE for folder in rule.parents)
        yield from [path for path in found if path.is_file()][:1]


def _tables(made: Pipeline) -> Iterator[Path]:
    for table in made.tables:
        for name in sorted(glob(table.path, recursive=True)) or [table.path]:
            path = Path(name)
            yield from filter(Path.is_file, path.rglob("*") if path.is_dir() else [path])


def _check(files: dict[str, bytes], pipeline: str) -> None:
    """Raise InputError if the pipeline needs other files of this machine, or writes next to itself."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        made = load_pipeline(root / pipeline)
        for name in [text.name for text in made.texts] + [table.path for table in made.tables]:
            if not Path(name).is_relative_to(root):
                raise InputError(
                    "E0888", f"`{name}` has an absolute path", "name it relative to the pipeline file"
                )
        places = [entry.spec.place for entry in made.sources] + folders_of(made.outputs())
        for place in (*places, made.checkpoint):
            if Path(place).is_relative_to(root):
                name = os.path.relpath(place, (root / pipeline).parent)
                raise InputError(
                    "E0888",
                    f"`{name}` is relative to the pipeline file, which is in an archive",
                    "name a place that all machines reach: hdfs://..., s3a://..., or an absolute path that "
                    "they share",
                )


def _package_files() -> Iterator[tuple[str, bytes]]:
    for name in ("cep", "spark_runtime"):
        yield from sorted(_contents(resources.files(name), name))


def _contents(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        path = f"{name}/{item.name}"
        if item.is_dir() and item.name not in ("__pycache__", "carried"):
            yield from _contents(item, path)
        elif item.is_file() and not item.name.endswith(".pyc"):
            yield path, item.read_bytes()


def _packages() -> Iterator[tuple[Path, str]]:
    """Yield each file of the installed packages, and its path in the archive."""
    for found in sorted(distributions(), key=lambda found: found.name):
        if found.name.lower() in _OF_THE_CLUSTER:
            continue
        for file in found.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and file.suffix != ".pyc" and path.is_file():
                yield path, f"packages/{file.as_posix()}"
