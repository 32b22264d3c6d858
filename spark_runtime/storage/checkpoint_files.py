"""Small files of a checkpoint directory, on a local disk or any file system that Spark's Hadoop supports.

Like Spark's own files, they survive the death of the process at any moment, but not a power failure.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cep.errors import StateError
from cep.write_errors import write_error, writing
from spark_runtime.compat.driver import checkpoint_file_manager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def damaged(file: str | Path, fact: str = "where the stream began, is damaged") -> StateError:
    """Return the error for a damaged file of a source in a checkpoint."""
    help_text = "restore the checkpoint directory, or start with an empty one"
    return StateError("E0702", f"`{file}`, {fact}", help_text)


@contextmanager
def reading_place(place: str | Path) -> Iterator[None]:
    """Turn an OSError in reading a file or a folder of a checkpoint into a StateError (E0702)."""
    try:
        yield
    except OSError as error:
        raise _not_read(place, error) from error


def _not_read(place: str | Path, error: OSError) -> StateError:
    return StateError(
        "E0702",
        f"`{place}` cannot be read: {error.strerror or error}",
        "let the user who runs this read it; or restore the checkpoint directory as a whole",
    )


def is_there(place: str | Path) -> bool:
    """Return whether a file or a folder exists. Raises StateError: its folder cannot be read (E0702).

    `Path.exists` raises PermissionError then, or from Python 3.14 on returns False, as if it were missing.
    """
    return _mode(place) is not None


def is_file_there(place: str | Path) -> bool:
    """Return whether a file exists. Raises StateError as `is_there` does."""
    mode = _mode(place)
    return mode is not None and stat.S_ISREG(mode)


def _mode(place: str | Path) -> int | None:
    try:
        return os.stat(place).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:  # it is the folder that may not be looked into
        raise _not_read(Path(place).parent, error) from error
    except OSError as error:
        raise _not_read(place, error) from error


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

    def checkpoint_manager(self) -> str | None:
        """Return the class with which Spark should write its part of a checkpoint; None: its default."""


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
        """Return the bytes of a file, or None if it is missing.

        Raises StateError: it cannot be read (E0702).
        """
        place = self.root / name
        with reading_place(place):
            try:
                return place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
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
        """Return the names in a folder. Raises StateError: it cannot be read (E0702)."""
        place = self.root / folder
        with reading_place(place):
            try:
                return os.listdir(place)
            except (FileNotFoundError, NotADirectoryError):
                return []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its contents."""
        place = self.root / name
        if place.is_dir():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)

    def checkpoint_manager(self) -> str:
        """Return the class that renames in one step, as Spark's default does.

        The default checks at each rename whether a file is a link. For a local file, Hadoop starts four
        processes to find out: forty in a micro-batch, which take 130 ms.
        """
        return checkpoint_file_manager()


class UnchangedFiles(LocalFiles):
    """Files on a local disk of which nothing is written or removed, as if it were."""

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write nothing."""

    def remove(self, name: str) -> None:
        """Remove nothing."""


_APPEARS_WHOLE = ("s3a", "s3", "gs")
"""Object stores. An object appears when it is complete, also in place of another; renaming copies it."""

_ONLY_IF_MISSING = "fs.option.create.conditional.overwrite"
"""Asks S3 to store an object only if none of its name exists. Other file systems check this by themselves."""

_CAN_ABORT = "fs.capability.outputstream.abortable"

_READS = 3
"""How often a file is read at most. S3A fails if the object is replaced after it was opened."""

_MOST_TOLD = 300
_REASONS = {
    "AccessDeniedException": errno.EACCES,
    "AccessControlException": errno.EACCES,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
    "No space left on device": errno.ENOSPC,
    "QuotaExceededException": errno.EDQUOT,
    "ParentNotDirectoryException": errno.ENOTDIR,
}
"""Words in the name or the message of an exception of Hadoop -> the error of a local disk."""

_MANAGER = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"


class HadoopFiles:
    """Files on a file system that only Spark's Hadoop library supports."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root
        self._jvm: Any = spark._jvm  # the only way to a Hadoop file system from Python
        self._gateway: Any = spark.sparkContext._gateway
        self._settings: Any = spark._jsc.hadoopConfiguration()

    def setting(self, name: str) -> str | None:
        """Return a setting of Hadoop; its name is given without `spark.hadoop.`."""
        found: str | None = self._settings.get(name)
        return found

    def _place(self, name: str) -> tuple[Any, Any]:
        place = getattr(self._jvm, "org.apache.hadoop.fs.Path")(f"{self.root}/{name}")
        return place.getFileSystem(self._settings), place

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing."""
        data = self.read_bytes(name)
        return None if data is None else data.decode(errors="replace")

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing. Read it again if it is replaced meanwhile."""
        from py4j.protocol import Py4JJavaError

        for _ in range(_READS - 1):
            with suppress(Py4JJavaError):
                return self._read(name)
        return self._read(name)

    def _read(self, name: str) -> bytes | None:
        files, place = self._place(name)
        stream = _unless_missing(lambda: files.open(place))
        if stream is None:
            return None
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file in one step."""
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, data: bytes) -> None:
        """Write a file in one step."""
        self._write(name, lambda stream: stream.write(bytearray(data)))

    def create(self, name: str, text: str) -> bool:
        """Write a file unless one of this name exists; return whether it was written.

        Only one of several callers gets True. S3 before Hadoop 3.4.2 has no such step: the last one wins.
        Raises InputError: it cannot be written.
        """
        with _hadoop_writing(f"{self.root}/{name}"):
            return self._create(name, text)

    def _create(self, name: str, text: str) -> bool:
        from py4j.protocol import Py4JJavaError

        files, place = self._place(name)
        try:
            made = files.createFile(place).overwrite(False).recursive().opt(_ONLY_IF_MISSING, "true")
            stream = made.build()
            stream.write(bytearray(text.encode()))
            stream.close()
        except Py4JJavaError:
            if self.read(name) is None:
                raise
        return self.read(name) == text

    def copy(self, file: Path, name: str) -> None:
        """Copy a file of this machine to a name in one step."""

        def copied(stream: Any) -> None:
            source = getattr(self._jvm, "java.io.FileInputStream")(str(file))
            try:
                source.transferTo(stream)
            finally:
                source.close()

        self._write(name, copied)

    def _write(self, name: str, fill: Callable[[Any], None]) -> None:
        """Write a file in one step; HDFS replaces an existing file in the same step, as object stores do.

        Raises InputError: it cannot be written.
        """
        with _hadoop_writing(f"{self.root}/{name}"):
            self._write_whole(name, fill)

    def _write_whole(self, name: str, fill: Callable[[Any], None]) -> None:
        files, whole = self._place(name)
        is_whole = files.getScheme() in _APPEARS_WHOLE
        folder, _, last = name.rpartition("/")
        _, place = (files, whole) if is_whole else self._place(f"{folder}/.{last}.tmp")
        stream = files.create(place, True)
        fill(stream)  # after a failure the stream remains open: closing it would publish a part
        stream.close()
        if is_whole:
            return
        hadoop = self._jvm.org.apache.hadoop.fs
        kinds = self._gateway.new_array(hadoop.Options.Rename, 1)
        kinds[0] = hadoop.Options.Rename.OVERWRITE
        hadoop.FileContext.getFileContext(whole.toUri(), self._settings).rename(place, whole, kinds)

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        files, place = self._place(folder)
        found = _unless_missing(lambda: files.listStatus(place))
        return [str(status.getPath().getName()) for status in found or ()]

    def remove(self, name: str) -> None:
        """Remove a file, or a folder and its contents. Raises InputError: it cannot be removed."""
        files, place = self._place(name)
        with _hadoop_writing(f"{self.root}/{name}"):
            files.delete(place, True)

    def checkpoint_manager(self) -> str | None:
        """Return the class that writes without renaming, if its package, `spark-hadoop-cloud`, exists.

        It needs a file system that can abandon a file. None: Spark's default, which renames.
        """
        files, place = self._place("")
        loadable = getattr(self._jvm, "org.apache.spark.util.Utils").classIsLoadable(_MANAGER)
        return _MANAGER if loadable and files.hasPathCapability(place, _CAN_ABORT) else None


@contextmanager
def _hadoop_writing(place: str) -> Iterator[None]:
    """Turn an exception of Java in writing to `place` into an InputError."""
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        thrown = error.java_exception
        said = str(thrown.getMessage() or "").removeprefix(f"{place}: ")
        reason = next((line.strip() for line in said.splitlines() if line.strip()), "")[:_MOST_TOLD]
        kind = str(thrown.getClass().getSimpleName())
        cause = next((code for word, code in _REASONS.items() if word in f"{kind}: {said}"), None)
        told = reason or kind
        raise write_error(place, OSError(told) if cause is None else OSError(cause, told)) from error


def _unless_missing(call: Callable[[], Any]) -> Any:
    """Return what a call of Hadoop returns; None if the file or folder is missing."""
    from py4j.protocol import Py4JJavaError

    try:
        return call()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileNotFoundException":
            raise
        return None


def is_remote(path: str) -> bool:
    """Return whether only Spark supports the file system of a path."""
    return "://" in path
