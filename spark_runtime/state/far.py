"""Files of state on storage that is not a disk: Amazon S3, and others that pyarrow or fsspec can open.

One request writes a file; two read a part of it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    from spark_runtime.storage.checkpoint_files import HadoopFiles

SCHEMES = ("s3a", "s3")

_OPTIONS = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}
"""pyarrow's names of Hadoop's settings below `fs.s3a`."""


def is_far(path: str) -> bool:
    """Return whether a path is on storage that is not a disk."""
    return "://" in path


def is_on_s3(path: str) -> bool:
    """Return whether a path is on S3."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme in SCHEMES


def options_of(files: HadoopFiles) -> dict[str, str]:
    """Return the options with which pyarrow connects to the storage of a checkpoint on S3.

    pyarrow finds what Hadoop's settings lack, such as the credentials of a role, as the AWS SDK does.
    """
    found = {name: files.setting(f"fs.s3a.{of_hadoop}") for name, of_hadoop in _OPTIONS.items()}
    found |= _of_endpoint(files.setting("fs.s3a.endpoint"))
    return {name: value for name, value in found.items() if value}


def _of_endpoint(address: str | None) -> dict[str, str | None]:
    scheme, mark, place = (address or "").rpartition("://")
    return {"endpoint_override": place, "scheme": scheme if mark else "https"} if place else {}


def options_of_environment() -> dict[str, str]:
    """Return the options that pyarrow does not find as the AWS SDK does."""
    found = _of_endpoint(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))
    return {name: value for name, value in found.items() if value}


def reason(error: OSError) -> str:
    """Return why a file was not read or written, without the parts that pyarrow repeats."""
    return (error.strerror or str(error)).partition(". Detail: ")[0]


def _opened(folder: str, options: Mapping[str, str]) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path in it; raise OSError: there is none."""
    from pyarrow import ArrowInvalid, fs

    if is_on_s3(folder):
        made = fs.S3FileSystem(**options, allow_delayed_open=True, background_writes=False)
        return made, folder.partition("://")[2]
    try:
        found: tuple[FileSystem, str] = fs.FileSystem.from_uri(folder)
    except ArrowInvalid as unknown:
        try:
            from fsspec.core import url_to_fs

            files, path = url_to_fs(folder)
        except (ImportError, ValueError) as error:
            raise OSError(f"{unknown}; {error}") from error
        return fs.PyFileSystem(fs.FSSpecHandler(files)), path
    return found


class FarStorage:
    """The files of a folder on storage that is not a disk.

    `folder`: the address of the folder. `options`: as `options_of` returns them; empty if it is not on S3.
    """

    def __init__(self, folder: str, options: Mapping[str, str]) -> None:
        self._address = folder
        self._options = options

    @cached_property
    def _opened(self) -> tuple[FileSystem, str]:
        return _opened(self._address, self._options)

    def _place(self, file: str) -> tuple[FileSystem, str]:
        files, folder = self._opened
        return files, f"{folder}/{file}".rstrip("/")

    def write(self, file: str, parts: Iterable[bytes | pa.Buffer]) -> int:
        """Write a file; return 0, where it starts."""
        files, place = self._place(file)
        try:
            opened = files.open_output_stream(place)
        except FileNotFoundError:  # a file system with folders
            files.create_dir(place.rpartition("/")[0], recursive=True)
            opened = files.open_output_stream(place)
        with opened as stream:
            for part in parts:
                stream.write(part)
        return 0

    def read(self, file: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of a file, or all of it."""
        files, place = self._place(file)
        with files.open_input_file(place) as stream:
            data: bytes = stream.read_at(stream.size() if length is None else length, start)
            return data

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""
        from pyarrow.fs import FileSelector

        files, place = self._place(folder)
        return [found.base_name for found in files.get_file_info(FileSelector(place, allow_not_found=True))]

    def remove(self, files: Sequence[str]) -> None:
        """Remove files in the background."""
        Thread(target=self._remove, args=(files,), daemon=True).start()

    def _remove(self, files: Sequence[str]) -> None:
        for file in files:
            with suppress(OSError):
                self._remove_one(file)

    def _remove_one(self, file: str) -> None:
        files, place = self._place(file)
        files.delete_file(place)

    def try_out(self) -> None:
        """Write a file, read it and remove it. Raises OSError: it is not permitted, or no storage exists."""
        file = f".{uuid.uuid4().hex}"
        self.write(file, [b"?"])
        self.read(file, 0, 1)
        self._remove_one(file)


class S3Files:
    """The files of a checkpoint on S3, which a run may be writing meanwhile.

    `root`: the address of the checkpoint.
    """

    def __init__(self, root: str) -> None:
        self._storage = FarStorage(root, options_of_environment())

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is missing."""
        data = self.read_bytes(name)
        return None if data is None else data.decode(errors="replace")

    def read_bytes(self, name: str) -> bytes | None:
        """Return the bytes of a file, or None if it is missing."""
        try:
            return self._storage.read(name)
        except FileNotFoundError:
            return None

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""
        return self._storage.names(folder)
