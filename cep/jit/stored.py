"""Machine code of kernels on disk: a file for each kernel, its arguments and the machine.

The file starts with a JSON line that contains the sources from which the code was compiled, the machine, what
is needed to load it, and the digest of the code, which follows this line. Nothing in it is unpickled. Code
that was compiled from other sources, by another numba, for another processor, or is damaged is not loaded.

The package may carry such files for `PROCESSORS`, also in a ZIP archive. Code for this machine comes first.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import llvmlite
import numpy as np

from cep.jit.arguments import Key, as_json, of_json
from cep.jit.processors import HOST, PROCESSORS, fitting

if TYPE_CHECKING:
    from importlib.abc import ResourceLoader

SUFFIX = ".kernel"
"""The ending of the files."""

_VERSION = 1
_NOT_OF_CODE = {"NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "NUMBA_NUM_THREADS"}


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The machine code of a kernel for arguments of some types.

    Attributes
    ----------
    key
        The types of the arguments.
    function
        The symbol that Python calls.
    environment
        The symbol of the address of numba's environment.
    needed
        Symbols that the code needs from numba, Python or the C library.
    code
        An object file.
    """

    key: Key
    function: str
    environment: str
    needed: tuple[str, ...]
    code: bytes


def is_disabled() -> bool:
    """Return whether kernels should run as Python: ``NUMBA_DISABLE_JIT=1``, as for numba."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@cache
def machine() -> str:
    """Return the digest of everything on which machine code depends, except sources.

    That is Python, numba, the processor, and numba's settings in the environment or a file.
    """
    import llvmlite.binding as llvm

    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        features = ""
    return _digest(
        sys.implementation.cache_tag, sys.hexversion, np.__version__,
        _version_of("numba"), llvmlite.__version__,
        llvm.get_process_triple(), llvm.get_host_cpu_name(), features,
        _settings(),
    )  # fmt: skip


@cache
def machine_of(processor: str) -> str:
    """Return the same digest for code that was compiled for one of `PROCESSORS`, on any machine.

    Bug-fix releases of Python and numpy do not affect such code; any release of numba or llvmlite may.
    """
    made = PROCESSORS[processor]
    return _digest(
        sys.implementation.cache_tag, sys.version_info[:2], np.__version__.split(".")[:2],
        _version_of("numba"), llvmlite.__version__,
        made.triple, made.model, sorted(made.features),
    )  # fmt: skip


def _digest(*said: Any) -> str:
    return hashlib.sha256(json.dumps((_VERSION, *said)).encode()).hexdigest()


def _settings() -> list[tuple[str, str]]:
    """Return numba's settings that change machine code."""
    settings = sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in _NOT_OF_CODE
    )
    file = Path(".numba_config.yaml")
    if file.is_file():
        settings.append((file.name, file.read_text("utf-8")))
    return settings


def compile_for(model: str) -> None:
    """Make this process compile for a processor, as LLVM names it. numba must not be imported yet."""
    os.environ.update(NUMBA_CPU_NAME=model, NUMBA_CPU_FEATURES="")


def _version_of(package: str) -> str:
    """Return the file in a package that says its version. Reading its metadata takes ten times as long."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    return Path(found.origin).with_name("_version.py").read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Place:
    """Where the machine code of a kernel belongs.

    Attributes
    ----------
    source
        The file of the kernel's module. It may be inside a ZIP archive.
    module, function
        The name of the kernel.
    stamp
        The digest of the sources that the code depends on.
    """

    source: Path
    module: str
    function: str
    stamp: str

    def folders(self) -> Iterator[Path]:
        """Yield the folders in which code may be, the first choice first.

        They are ``NUMBA_CACHE_DIR``, else next to the source, else in the user's cache, else in the folder of
        temporary files. Only the second one depends on the place of the source, because a cluster puts an
        archive into a new folder for each application.
        """
        folder = f"{self.module.rpartition('.')[0]}-{self.stamp[:16]}"
        given = os.environ.get("NUMBA_CACHE_DIR")
        if given:
            yield Path(given) / folder
            return
        yield self.source.parent / "__pycache__"
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        yield Path(caches) / "spark-cep" / folder
        yield _temporary() / folder

    @property
    def name(self) -> str:
        """The name of the file in each folder."""
        return self._name_for(machine())

    def _name_for(self, digest: str) -> str:
        tag = f"{sys.implementation.cache_tag}-{digest[:12]}"
        return f"{self.module.rpartition('.')[2]}.{self.function}.{tag}{SUFFIX}"

    def carried_in(self, processor: str) -> str:
        """Return the path of the code that the package carries for a processor, inside this package."""
        return f"carried/{processor}-{sys.implementation.cache_tag}/{self.module}.{self.function}{SUFFIX}"

    def _files(self, read: Callable[[Path], bytes] = Path.read_bytes) -> Iterator[tuple[str, bytes]]:
        """Yield the digest of the machine and the content of each file that may have code for this one."""
        yield from self._kept(machine(), read)
        yield from self._carried(HOST, machine())
        if not _settings():
            for processor in fitting():
                yield from self._carried(processor, machine_of(processor))

    def _kept(
        self, digest: str, read: Callable[[Path], bytes] = Path.read_bytes
    ) -> Iterator[tuple[str, bytes]]:
        for folder in self.folders():
            with suppress(OSError):
                _check_private(folder)
                yield digest, read(folder / self._name_for(digest))

    def _carried(self, processor: str, digest: str) -> Iterator[tuple[str, bytes]]:
        assert __spec__ is not None
        loader = cast("ResourceLoader", __spec__.loader)  # it also reads from ZIP archives
        with suppress(OSError):
            yield digest, loader.get_data(os.path.join(os.path.dirname(__file__), self.carried_in(processor)))

    def carried(self, processor: str) -> list[MachineCode]:
        """Return the valid code for one of `PROCESSORS` that the package carries, or `save` has kept."""
        digest = machine_of(processor)
        found = (*self._carried(processor, digest), *self._kept(digest))
        return [code for of in found if (file := self._valid(*of)) for code in _codes(file)]

    def _valid(self, digest: str, data: bytes) -> _File | None:
        """Return a file if it is of a machine and these sources."""
        line, _, code = data.partition(b"\n")
        try:
            header: dict[str, Any] = json.loads(line)
            is_good = (header["machine"], header["sources"]) == (digest, self.stamp)
        except (ValueError, KeyError, TypeError):
            return None
        return (header, code) if is_good else None

    def _found(self, read: Callable[[Path], bytes] = Path.read_bytes) -> _File | None:
        return next((file for found in self._files(read) if (file := self._valid(*found))), None)

    def load(self) -> list[MachineCode]:
        """Return the valid code of the kernel: one for each kind of arguments."""
        found = self._found()
        return [] if found is None else _codes(found)

    def has(self) -> bool:
        """Return whether there is code of the kernel that is valid according to its first line."""
        return self._found(_first_line) is not None

    def data(self, digest: str, codes: Iterable[MachineCode]) -> bytes:
        """Return the content of a file with code for a machine, which `digest` identifies."""
        parts: list[dict[str, Any]] = []
        code = b""
        for machine_code in codes:
            start = len(code)
            code += machine_code.code
            parts.append(
                {
                    "key": as_json(machine_code.key),
                    "function": machine_code.function,
                    "environment": machine_code.environment,
                    "needed": machine_code.needed,
                    "start": start,
                    "end": len(code),
                }
            )
        header = {
            "machine": digest,
            "sources": self.stamp,
            "digest": hashlib.sha256(code).hexdigest(),
            "parts": parts,
        }
        return json.dumps(header).encode() + b"\n" + code

    def save(self, codes: Iterable[MachineCode], processor: str = HOST) -> None:
        """Write the code of the kernel to the first possible folder, the whole file at once."""
        digest = machine() if processor == HOST else machine_of(processor)
        data = self.data(digest, codes)
        for folder in self.folders():
            try:
                _make(folder)
                path = folder / self._name_for(digest)
                written = path.with_name(f"{path.name}.{os.getpid()}")
                written.write_bytes(data)
                written.replace(path)
            except OSError:
                continue
            return

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait until no other process of this machine is compiling the kernel, and keep others from starting.

        The system removes the lock when its process ends, however it ends. Where files cannot be locked, each
        process compiles for itself.
        """
        descriptor = None
        for folder in self.folders():
            try:
                _make(folder)
                descriptor = os.open(folder / f"{self.name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except OSError:
                continue
            break
        try:
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)


@cache
def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _temporary() -> Path:
    """Return the folder of temporary files of this user. Other users may have created it."""
    import tempfile

    return Path(tempfile.gettempdir()) / _private_name()


def _private_name() -> str:
    return f"spark-cep-{os.geteuid()}"


def _make(folder: Path) -> None:
    """Create a folder. If the folder that contains it is created, too, only this user can change that one."""
    folder.parent.mkdir(0o700, parents=True, exist_ok=True)
    _check_private(folder)
    folder.mkdir(exist_ok=True)


def _check_private(folder: Path) -> None:
    """Raise PermissionError if other users may change the code in the folder of temporary files."""
    if folder.parent.name == _private_name() and folder.parent == _temporary():
        found = os.lstat(folder.parent)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise PermissionError(folder.parent)


_File = tuple[dict[str, Any], bytes]
"""The first line and the code."""


def _codes(file: _File) -> list[MachineCode]:
    header, code = file
    if hashlib.sha256(code).hexdigest() != header["digest"]:
        return []
    return [_part(part, code) for part in header["parts"]]


def _part(part: dict[str, Any], code: bytes) -> MachineCode:
    return MachineCode(
        of_json(part["key"]), part["function"], part["environment"], tuple(part["needed"]),
        code[part["start"] : part["end"]],
    )  # fmt: skip
