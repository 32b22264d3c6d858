"""Small files of a checkpoint directory, on a local disk or any file system that Spark's Hadoop supports.

Like Spark's own files, they survive the death of the process at any moment, but not a power failure.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cep.errors import StateError
from cep.write_errors import writing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def damaged(file: str | Path, fact: str = "where the stream began, is damaged") -> StateError:
    """Return the error for a damaged file of a source in a checkpoint."""
    help_text = "restore the checkpoint directory, or start with an empty one"
    return StateError("E0702", f"`{file}`, {fact}", help_text)


class CheckpointFiles(Protocol):
    """Reads and writes files below the checkpoint's directory; names may contain slashes."""

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing."""

    def write(self, name: str, text: str) -> None:
        """Write a file in one step: no reader sees a part of it."""

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing."""

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file in one step."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its contents, if it exists."""


class LocalFiles:
    """Files on a local disk."""

    def __init__(self, root: str) -> None:
        self.root = Path(root)

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing."""
        data = self.read_bytes(name)
        return None if data is None else data.decode(errors="replace")

    def write(self, name: str, text: str) -> None:
        """Write a file in one step."""
        self.write_bytes(name, text.encode())

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing."""
        try:
            return (self.root / name).read_bytes()
        except FileNotFoundError:
            return None

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file in one step."""
        place = self.root / name
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            unfinished = place.with_name(f".{place.name}.tmp")
            unfinished.write_bytes(data)
            unfinished.replace(place)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        place = self.root / folder
        return [item.name for item in place.iterdir()] if place.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its contents."""
        place = self.root / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)


class HadoopFiles:
    """Files on a file system that only Spark's Hadoop library supports."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.spark = spark
        self.root = root

    def _place(self, name: str) -> tuple[Any, Any]:
        jvm: Any = self.spark._jvm  # the only way to a Hadoop file system from Python
        place = jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}")
        return place.getFileSystem(self.spark._jsc.hadoopConfiguration()), place

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing."""
        data = self.read_bytes(name)
        return None if data is None else data.decode(errors="replace")

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing."""
        files, place = self._place(name)
        if not files.exists(place):
            return None
        stream = files.open(place)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file in one step, as far as the file system can."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file in one step, as far as the file system can."""
        folder, _, last = name.rpartition("/")
        unfinished = f"{folder}/.{last}.tmp" if folder else f".{last}.tmp"
        files, place = self._place(unfinished)
        stream = files.create(place, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()
        _, whole = self._place(name)
        files.delete(whole, False)  # most of these file systems do not rename onto an existing file
        files.rename(place, whole)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        files, place = self._place(folder)
        if not files.exists(place):
            return []
        return [str(status.getPath().getName()) for status in files.listStatus(place)]

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its contents."""
        files, place = self._place(name)
        files.delete(place, True)


def is_remote(path: str) -> bool:
    """Return whether only Spark supports the file system of a path."""
    return "://" in path


def checkpoint_files(spark: SparkSession, root: str) -> CheckpointFiles:
    """Return the files of the checkpoint at `root`."""
    return HadoopFiles(spark, root) if is_remote(root) else LocalFiles(root)
