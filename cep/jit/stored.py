"""Machine code of kernels on disk: a file for each kernel, its arguments and the machine.

The file starts with a line of JSON: the sources that the code was compiled from, the machine, what is needed
to load it, and the digest of the code, which follows the line. Nothing in it is unpickled. Code that was
compiled from other sources, by another numba, for another processor, or is damaged is not loaded.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import llvmlite
import numpy as np

from cep.jit.arguments import Key, as_json, of_json

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
    """Return whether kernels are to run as Python: ``NUMBA_DISABLE_JIT=1``, as for numba."""
    return os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")


@cache
def machine() -> str:
    """Return the digest of everything on which machine code depends, except sources.

    That is Python, numba, the processor, and numba's settings in the environment or a file.
    """
    import llvmlite.binding as llvm

    settings = sorted(
        item for item in os.environ.items() if item[0].startswith("NUMBA_") and item[0] not in _NOT_OF_CODE
    )
    file = Path(".numba_config.yaml")
    if file.is_file():
        settings.append((file.name, file.read_text("utf-8")))
    try:
        features = llvm.get_host_cpu_features().flatten()
    except RuntimeError:
        features = ""
    said = (
        _VERSION, sys.implementation.cache_tag, sys.hexversion, np.__version__,
        _version_of("numba"), llvmlite.__version__,
        llvm.get_process_triple(), llvm.get_host_cpu_name(), features,
        settings,
    )  # fmt: skip
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def _version_of(package: str) -> str:
    """Return the file in a package that says its version. Reading its metadata takes ten times as long."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        return "none"
    return Path(found.origin).with_name("_version.py").read_text("utf-8")


def places(source: Path) -> list[Path]:
    """Return the folders in which code of kernels of a module may be, the first choice first.

    They are those of numba: ``NUMBA_CACHE_DIR``, else next to the source, else in the user's cache.
    """
    folder = source.parent
    place = f"{folder.name}_{hashlib.sha256(os.path.abspath(folder).encode()).hexdigest()[:40]}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        return [Path(given) / place]
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [folder / "__pycache__", Path(caches) / "spark-cep" / place]


def _name(module: str, function: str) -> str:
    return f"{module.rpartition('.')[2]}.{function}.{sys.implementation.cache_tag}-{machine()[:12]}{SUFFIX}"


def _header(file: BinaryIO, stamp: str) -> dict[str, Any] | None:
    """Return the first line of a file, if it is for this machine and these sources."""
    try:
        header: dict[str, Any] = json.loads(file.readline())
        is_good = (header["machine"], header["sources"]) == (machine(), stamp)
    except (ValueError, KeyError, TypeError):
        return None
    return header if is_good else None


def _opened(source: Path, module: str, function: str, stamp: str) -> tuple[dict[str, Any], BinaryIO] | None:
    """Return the header of the first valid file of a kernel, and the content after its header."""
    for folder in places(source):
        try:
            file = (folder / _name(module, function)).open("rb")
        except OSError:
            continue
        header = _header(file, stamp)
        if header is not None:
            return header, file
        file.close()
    return None


def load(source: Path, module: str, function: str, stamp: str) -> list[MachineCode]:
    """Return the valid code of a kernel on disk: one for each kind of arguments."""
    found = _opened(source, module, function, stamp)
    if found is None:
        return []
    header, file = found
    with file:
        code = file.read()
    if hashlib.sha256(code).hexdigest() != header["digest"]:
        return []
    return [_part(part, code) for part in header["parts"]]


def _part(part: dict[str, Any], code: bytes) -> MachineCode:
    return MachineCode(
        of_json(part["key"]), part["function"], part["environment"], tuple(part["needed"]),
        code[part["start"] : part["end"]],
    )  # fmt: skip


def has(source: Path, module: str, function: str, stamp: str) -> bool:
    """Return whether code of a kernel on disk is valid according to its first line."""
    found = _opened(source, module, function, stamp)
    if found is not None:
        found[1].close()
    return found is not None


def save(source: Path, module: str, function: str, stamp: str, codes: Iterable[MachineCode]) -> None:
    """Write the code of a kernel to the first possible place, the whole file at once."""
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
        "machine": machine(),
        "sources": stamp,
        "digest": hashlib.sha256(code).hexdigest(),
        "parts": parts,
    }
    data = json.dumps(header).encode() + b"\n" + code
    for folder in places(source):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / _name(module, function)
            written = path.with_name(f"{path.name}.{os.getpid()}")
            written.write_bytes(data)
            written.replace(path)
        except OSError:
            continue
        return
