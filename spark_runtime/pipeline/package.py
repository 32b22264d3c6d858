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

from cep.errors import InputError, RuleError
from cep.rule_files import STREAMS_FILE, nearest_streams_file
from cep.write_errors import replacing
from spark_runtime.pipeline.made import Pipeline
from spark_runtime.pipeline.packaged import JOB
from spark_runtime.pipeline.pipeline_file import load_pipeline
from spark_runtime.pipeline.watched_files import files_at

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
_NO_LINK = "name the files without links and `..` in their paths"
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
    root = os.path.commonpath([place.parent for place in job])
    at = {f"{JOB}/{place.relative_to(root).as_posix()}": file.read_bytes() for place, file in job.items()}
    inside = pipeline.resolve().relative_to(root).as_posix()
    _check(at, f"{JOB}/{inside}", load_pipeline(pipeline))
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


def files_of_job(path: Path) -> dict[Path, Path]:
    """Return the files that a pipeline reads at its start, each at the place where the archive has it.

    These are the pipeline file, and the files of rules, streams, schemas and static tables that it names. A
    link is in the archive a file at the place of the link.

    Raises RuleError: the pipeline file is wrong.
    """
    made = load_pipeline(path)
    once = {file.resolve(): file for file in reversed([*files_at(made.rule_paths)])}  # as they are read
    rules = [*reversed(once.values())]
    places = {_plain(file): file for file in (*rules, *map(Path, made.schemas), *_tables(made))}
    if not {"streams", "tables"} & yaml.safe_load(path.read_text("utf-8-sig")).keys():
        for rule in map(_plain, rules[1:]):  # the first is the pipeline
            found = nearest_streams_file(rule)
            if found is not None:  # beside the rule if its folder is a link, and the file above its target
                places[found if found.parent in rule.parents else rule.with_name(STREAMS_FILE)] = found
    return places


def _plain(path: Path) -> Path:
    """Return a path without `..`; links remain."""
    return Path(os.path.abspath(path))


def _tables(made: Pipeline) -> Iterator[Path]:
    folder = Path(made.file).parent
    named = {str((folder / text).resolve()): str(folder / text) for text in made.relative}
    for table in made.tables:
        path = named.get(table.path, table.path)
        for found in map(Path, sorted(glob(path, recursive=True)) or [path]):
            yield from filter(Path.is_file, found.rglob("*") if found.is_dir() else [found])


def _check(files: dict[str, bytes], pipeline: str, whole: Pipeline) -> None:
    """Raise InputError if the pipeline needs other files of this machine, or writes next to itself.

    `whole`: the pipeline on this machine.
    """
    folder = Path(whole.file).parent
    read = {Path(path).resolve() for path in [*whole.schemas, *(table.path for table in whole.tables)]}
    for text in whole.relative:
        if (folder / text).resolve() not in read:
            raise InputError(
                "E0888",
                f"`{text}` is relative to the pipeline file, which is in an archive",
                "name a place that all machines reach: hdfs://..., s3a://..., or an absolute path that they "
                "share",
            )
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary).resolve()
        for name, data in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
        try:
            made = load_pipeline(root / pipeline)
        except RuleError as error:
            lacking = error.diagnostics[0].title.replace(f"{root}/{JOB}/", "")
            raise InputError("E0888", f"the archive would not have all files: {lacking}", _NO_LINK) from error
        for name in (*made.rule_paths, *made.schemas, *(table.path for table in made.tables)):
            if not Path(name).is_relative_to(root):
                raise InputError(
                    "E0888", f"`{name}` has an absolute path", "name it relative to the pipeline file"
                )
        if [text.text for text in made.texts] != [text.text for text in whole.texts]:
            raise InputError("E0888", "the archive would have other rules than the pipeline", _NO_LINK)


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
