"""Files of state on Amazon S3, by pyarrow: one request writes a file, two read a part of it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

    from spark_runtime.storage.checkpoint_files import HadoopFiles

SCHEMES = ("s3a", "s3")

_OPTIONS = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
}
"""pyarrow's names of Hadoop's settings below `fs.s3a`."""


def is_on_s3(path: str) -> bool:
    """Return whether a path is on S3."""
    scheme, mark, _ = path.partition("://")
    return bool(mark) and scheme in SCHEMES


def options_of(files: HadoopFiles) -> dict[str, str]:
    """Return with which options pyarrow connects to the storage of a checkpoint.

    What Hadoop's settings do not say, such as credentials of a role, it finds as the AWS SDK does.
    """
    found = {name: files.setting(f"fs.s3a.{of_hadoop}") for name, of_hadoop in _OPTIONS.items()}
    found |= _of_endpoint(files.setting("fs.s3a.endpoint"))
    return {name: value for name, value in found.items() if value}


def _of_endpoint(address: str | None) -> dict[str, str | None]:
    scheme, mark, place = (address or "").rpartition("://")
    return {"endpoint_override": place, "scheme": scheme if mark else "https"} if place else {}


def options_of_environment() -> dict[str, str]:
    """Return what pyarrow does not find as the AWS SDK does."""
    found = _of_endpoint(os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"))
    return {name: value for name, value in found.items() if value}


def reason(error: OSError) -> str:
    """Return why a file was not read or written, without what pyarrow says twice."""
    return (error.strerror or str(error)).partition(". Detail: ")[0]


class S3Storage:
    """The files of a folder on S3.

    `folder`: the address of the folder. `options`: as `options_of` returns them.
    """

    def __init__(self, folder: str, options: Mapping[str, str]) -> None:
        self._folder = folder.partition("://")[2]
        self._options = options

    @cached_property
    def _files(self) -> S3FileSystem:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(**self._options, allow_delayed_open=True, background_writes=False)

    def write(self, file: str, parts: Iterable[bytes]) -> int:
        """Write a file; return 0, where it starts."""
        with self._files.open_output_stream(f"{self._folder}/{file}") as stream:
            for part in parts:
                stream.write(part)
        return 0

    def read(self, file: str, start: int = 0, length: int | None = None) -> bytes:
        """Return a part of a file, or all of it."""
        with self._files.open_input_file(f"{self._folder}/{file}") as stream:
            data: bytes = stream.read_at(stream.size() if length is None else length, start)
            return data

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, or none if it is missing."""
        from pyarrow.fs import FileSelector

        where = f"{self._folder}/{folder}".rstrip("/")
        return [
            found.base_name for found in self._files.get_file_info(FileSelector(where, allow_not_found=True))
        ]

    def remove(self, files: Sequence[str]) -> None:
        """Remove files, beside what this process does next."""
        Thread(target=self._remove, args=(files,), daemon=True).start()

    def _remove(self, files: Sequence[str]) -> None:
        for file in files:
            with suppress(OSError):
                self._files.delete_file(f"{self._folder}/{file}")

    def try_out(self) -> None:
        """Write a file, read it and remove it. Raises OSError: this process may not, or finds no storage."""
        file = f".{uuid.uuid4().hex}"
        self.write(file, [b"?"])
        self.read(file, 0, 1)
        self._files.delete_file(f"{self._folder}/{file}")


class S3Files:
    """The files of a checkpoint on S3, read beside the run that writes them.

    `root`: the address of the checkpoint.
    """

    def __init__(self, root: str) -> None:
        self._storage = S3Storage(root, options_of_environment())

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
