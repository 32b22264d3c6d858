"""Finds the pipeline in an archive that `cep package` wrote. The archive's `main.py` runs it."""

from __future__ import annotations

import fcntl
import os
import tempfile
import zipfile
from pathlib import Path

from cep.errors import SetupError

JOB = "job"
"""The folder of the pipeline's files in the archive."""


def pipeline_file(name: str) -> Path:
    """Return a pipeline file of the archive from which this package was imported, on a disk.

    `name`: its path in the folder `JOB` of the archive.
    """
    archive = Path(__file__).resolve().parents[2]
    folder = archive if archive.is_dir() else _unpacked(archive)
    return folder / JOB / name


def _unpacked(archive: Path) -> Path:
    """Unpack the pipeline's files, and return their folder, which only this user can read.

    The folder has the name of the archive: a batch that runs again is the same batch.
    """
    own = Path(tempfile.gettempdir()) / f"spark-cep-{os.geteuid()}"
    own.mkdir(0o700, exist_ok=True)
    if own.stat(follow_symlinks=False).st_uid != os.geteuid():
        raise SetupError("E0808", f"`{own}` belongs to another user", "set TMPDIR to a folder of your own")
    folder = own / archive.stem
    folder.mkdir(0o700, exist_ok=True)
    with (folder / ".lock").open("w") as lock, zipfile.ZipFile(archive) as file:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until this block ends
        file.extractall(folder, [name for name in file.namelist() if name.startswith(f"{JOB}/")])
    return folder
