"""Errors in writing a file or a folder, with messages that a user can act on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from cep.errors import InputError

FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_IN_THE_WAY = (errno.ENOTDIR, errno.EEXIST)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn an OSError in writing to `path` into an InputError."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a file to write in place of `path`, which it replaces when all is written; folders are created.

    After an error `path` is as before. A link remains, and so does the mode of the file. A path that is not a
    regular file (a pipe, `/dev/stdout`), or is in a folder where no file may be created, is written to
    directly. Raises InputError: `path` cannot be written.
    """
    with writing(path):
        place = Path(path).resolve()
        place.parent.mkdir(parents=True, exist_ok=True)
        is_new = not place.exists()
        if Path(path).parts[:2] == ("/", "dev") or not (is_new or place.is_file()):
            yield Path(path)
            return
        if not is_new:
            place.open("r+b").close()  # a file that may not be written is not replaced either
        try:
            unfinished = _created_beside(place)
        except PermissionError:
            yield place
            return
        try:
            yield unfinished
            if not is_new:
                unfinished.chmod(place.stat().st_mode & 0o7777)
            unfinished.replace(place)
        except BaseException:  # not after the replacement, when the name may be another writer's
            unfinished.unlink(missing_ok=True)
            raise


def _created_beside(place: Path) -> Path:
    """Create an empty hidden file that no other process writes, and return its path."""
    for number in count(1):
        unfinished = place.with_name(f".{place.name}.{number}.tmp")
        with suppress(FileExistsError):  # another process writes it, or was killed
            unfinished.touch(exist_ok=False)
            break
    return unfinished


def require_folder(path: str | Path, probe: str) -> None:
    """Raise InputError unless a file, `probe`, can be written in a folder, which is created if missing."""
    with writing(path):
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / probe).write_bytes(b"x")
        (folder / probe).unlink()


def write_error(path: str | Path, error: OSError) -> InputError:
    """Return the error that says why `path` cannot be written."""
    reason = error.strerror or str(error)
    if error.errno in FULL:
        return InputError(
            "E0616",
            f"no space is left to write `{path}`: {reason}",
            "make room on that disk and run again",
        )
    if error.errno in _FORBIDDEN:
        return InputError(
            "E0617",
            f"`{path}` cannot be written: {reason}",
            "let the user who runs this write there, or name another place",
        )
    if error.errno in _IN_THE_WAY:
        return InputError(
            "E0618",
            f"`{path}` cannot be written: a file is where a folder is needed",
            "move the file away, or name another place",
        )
    return InputError("E0609", f"`{path}` cannot be written: {reason}")
