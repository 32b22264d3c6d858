"""Folders of the driver that the workers of a cluster must have under the same path.

The driver writes a mark into each, and a worker searches for it before it computes anything. Otherwise
a worker on another machine would write matches or state to a disk of that machine, where nobody reads them.

Executors import this module: it imports nothing of the compiler.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from cep.errors import InputError
from cep.write_errors import writing


@runtime_checkable
class SharesFolder(Protocol):
    """A source or a sink with a folder that the workers read or write, on a disk."""

    @property
    def shared_folder(self) -> str:
        """The absolute path; empty if the folder is on a file system that only Spark reaches."""


@dataclass(frozen=True, slots=True)
class SharedFolders:
    """Folders, and the name of their mark; without folders nothing is checked, as on a local master."""

    folders: tuple[str, ...] = ()
    mark: str = ""

    @classmethod
    def marked(cls, folders: Iterable[str], run: str) -> SharedFolders:
        """Write a mark into each folder and return them; remove the marks that a killed `run` left."""
        found = cls(tuple(dict.fromkeys(filter(None, folders))), f".shared-{run}-{uuid.uuid4().hex}")
        for folder in map(Path, found.folders):
            with writing(folder):
                for old in folder.glob(f".shared-{run}-*"):
                    old.unlink(missing_ok=True)
                (folder / found.mark).touch()
        return found

    def remove(self) -> None:
        """Remove the marks."""
        for folder in self.folders:
            Path(folder, self.mark).unlink(missing_ok=True)

    def require(self) -> None:
        """Raise InputError (E0809) if this worker lacks one of the folders."""
        for folder in self.folders:
            _require(folder, self.mark)


@cache  # a worker serves many tasks
def _require(folder: str, mark: str) -> None:
    if not os.path.exists(f"{folder}/{mark}"):
        raise not_shared(folder, socket.gethostname())


def require_gone(files: Iterable[str]) -> None:
    """Raise InputError (E0809) if the driver has a file that the workers of a cluster did not find."""
    for file in files:
        if os.path.exists(file):
            raise not_shared(file)


def not_shared(path: str, worker: str = "") -> InputError:
    """Return the error for a file or folder of the driver that a worker lacks."""
    return InputError(
        "E0809",
        f"`{path}` is on the machine of the driver, and a worker{f' on {worker}' if worker else ''} "
        "does not have it",
        "keep sources, sinks and checkpoint on a disk that all machines mount under the same path, or on a "
        "file system that Spark reaches, such as s3a:// or hdfs://",
    )
