"""Finds the pipeline in an archive that `cep package` wrote. The archive's `main.py` runs it."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path

from cep.write_errors import writing
from spark_runtime.sessions.run_folder import open_run_folder

JOB = "job"
"""The folder of the pipeline's files in the archive."""

_ARCHIVE = Path(__file__).resolve().parents[2]
"""From where this package was imported: an archive, or a folder."""


def pipeline_file(name: str) -> Path:
    """Return a pipeline file of the archive from which this package was imported, on a disk.

    Raises CepError: the archive cannot be unpacked.

    `name`: its path in the folder `JOB` of the archive.
    """
    folder = _ARCHIVE if _ARCHIVE.is_dir() else _unpacked()
    return folder / JOB / name


def lasting_name(path: str) -> str:
    """Return the name of a file for data that outlast a run: each run unpacks its archive into another
    folder.
    """
    _, is_unpacked, name = path.partition(f"/{_ARCHIVE.name}/{JOB}/")
    return f"{_ARCHIVE.name}/{name}" if is_unpacked and _ARCHIVE.is_file() else path


def _unpacked() -> Path:
    """Unpack the pipeline's files, and return their folder, which belongs to this process.

    A folder of several jobs would also have files of other archives, and of earlier ones.
    """
    folder = open_run_folder(Path(tempfile.gettempdir())).path / _ARCHIVE.name
    with writing(folder), zipfile.ZipFile(_ARCHIVE) as file:
        file.extractall(folder, [name for name in file.namelist() if name.startswith(f"{JOB}/")])
    return folder
