"""Kernels: loops that are compiled once, for every rule. The machine code is kept on disk.

A kernel is a function with ``@kernel``, its parts have ``@inlined`` or ``@outlined``, and instructions that
Python does not have are `Instruction`. None of them imports numba. A call loads the machine code for the
types of its arguments from disk (`cep.jit.loading`). Only if none exists, numba is imported and compiles it
(`cep.jit.numba_compiler`).

numba's private parts are used in these two modules, which list them, and nowhere else.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from cep.jit import stored
from cep.jit.arguments import Key, key_of

_F = TypeVar("_F", bound=Callable[..., Any])

DISABLED: bool = stored.is_disabled()
"""Whether kernels run as Python."""

KERNELS: dict[str, Kernel] = {}
"""The kernels of all modules that are loaded, by name."""

PARTS: set[str] = set()
"""The names of the parts of kernels."""


@functools.cache
def compiler() -> Any:
    """Return `cep.jit.numba_compiler`, which knows kernels and parts. It is imported here and only here."""
    from cep.jit import numba_compiler

    for kind in (Kernel, Part, Instruction):
        numba_compiler.register(kind)
    return numba_compiler


_OF_ALL_CODE = tuple(
    (__package__, f"{name}.py") for name in ("instructions", "memory", "numba_compiler", "texts", "wide")
)
"""The modules of this package on which machine code depends."""


class Sources:
    """The sources that the code of a kernel depends on: whole packages, and modules as (package, file).

    How kernels are compiled is always among them.

    The times of files cannot be used: archives and container images do not keep them exactly.
    """

    def __init__(self, *packages: str, modules: Sequence[tuple[str, str]] = ()) -> None:
        self._packages = packages
        self._modules = (*modules, *_OF_ALL_CODE)

    def files(self) -> dict[str, Any]:
        """Return the files by package and name, in order."""
        found = {
            f"{package}/{file.name}": file
            for package in self._packages
            for file in resources.files(package).iterdir()
            if file.name.endswith(".py")
        }
        found |= {f"{package}/{name}": resources.files(package) / name for package, name in self._modules}
        return dict(sorted(found.items()))

    @functools.cached_property
    def stamp(self) -> str:
        """The digest of the sources' contents."""
        digest = hashlib.sha256()
        for name, file in self.files().items():
            digest.update(name.encode() + hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


class Kernel:
    """A loop that Python calls. It is compiled at its first call, if its machine code is not on disk.

    No fastmath: NaN and times are exact.
    """

    def __init__(self, function: Callable[..., Any], sources: Sources) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._sources = sources
        self._codes: dict[Key, Callable[..., Any]] = {}
        self._last: tuple[Key | None, Callable[..., Any]] = None, function  # one value: threads share it

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run the loop."""
        if named:
            arguments = inspect.signature(self.py_func).bind(*arguments, **named).args
        key = key_of(arguments)
        last, code = self._last
        if key != last:
            if _RECORDED is not None and not self._is_loaded(key):
                _RECORDED.setdefault((self, key))
                return self.py_func(*arguments)
            code = self.code_for(key)
            self._last = key, code
        return code(*arguments)

    def code_for(self, key: Key) -> Callable[..., Any]:
        """Return the compiled loop for arguments of some types: from this process, from disk, or new."""
        if not self._is_loaded(key):
            self._compile(key)
        return self._codes[key]

    def _is_loaded(self, key: Key) -> bool:
        """Return whether the code is in this process; load it if it is on disk."""
        if key not in self._codes:
            self._load(key)
        return key in self._codes

    @functools.cached_property
    def place(self) -> stored.Place:
        """The place of its machine code on disk."""
        function = self.py_func
        source = Path(function.__code__.co_filename)
        return stored.Place(source, function.__module__, function.__name__, self._sources.stamp)

    def _load(self, key: Key) -> None:
        from cep.jit import loading

        for code in self.place.load():
            if code.key == key:
                try:
                    self._codes[key] = loading.call(code, self.py_func)
                except loading.NotLoadedError:
                    return

    def _compile(self, key: Key) -> None:
        with self.place.locked():
            self._load(key)  # another process may have compiled it by now
            if key in self._codes:
                return
            self._codes[key], code = compiler().compile_kernel(self.of_numba(), key)
            if code is not None:
                others = [kept for kept in self.place.load() if kept.key != key]
                self.place.save([*others, code])

    @property
    def keys(self) -> Sequence[Key]:
        """The types of arguments for which there is code in this process."""
        return tuple(self._codes)

    def is_compiled(self) -> bool:
        """Return whether it is compiled, in this process or on disk."""
        return bool(self._codes) or self.place.has()

    def of_numba(self) -> Any:
        """Return numba's dispatcher. Other kernels may call it."""
        return _dispatcher(self)


@functools.cache
def _dispatcher(kernel: Kernel) -> Any:
    return compiler().kernel(kernel.py_func)


_RECORDED: dict[tuple[Kernel, Key], None] | None = None


@contextmanager
def recording() -> Iterator[dict[tuple[Kernel, Key], None]]:
    """Run kernels that are not loaded as Python, and record them with the types of their arguments.

    This shows what some work needs without compiling it.
    """
    global _RECORDED
    before, _RECORDED = _RECORDED, {}
    try:
        with np.errstate(all="ignore"):
            yield _RECORDED
    finally:
        _RECORDED = before


def kernel(sources: Sources) -> Callable[[_F], _F]:
    """Return a decorator for kernels, whose machine code is valid as long as `sources` are the same."""

    def make_kernel(function: _F) -> _F:
        if DISABLED:
            return function
        made = Kernel(function, sources)
        KERNELS[function.__name__] = made
        return cast(_F, made)

    return make_kernel


class Part:
    """A part of kernels. If Python calls it, it runs as Python."""

    def __init__(self, function: Callable[..., Any], *, inline: bool) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._inline = inline

    def __call__(self, *arguments: Any) -> Any:
        """Run it as Python."""
        return self.py_func(*arguments)

    @functools.cached_property
    def _of_numba(self) -> Any:
        return compiler().part(self.py_func, inline=self._inline)

    def of_numba(self) -> Any:
        """Return numba's dispatcher."""
        return self._of_numba


def inlined(function: _F) -> _F:
    """Compile a part of a kernel into its callers."""
    return _part(function, inline=True)


def outlined(function: _F) -> _F:
    """Compile a part that is rarely needed. LLVM may still inline it, and does where its caller is inlined.

    Loops without these parts inside are half as large, and up to three times slower (decision 15).
    """
    return _part(function, inline=False)


def _part(function: _F, *, inline: bool) -> _F:
    PARTS.add(function.__name__)
    return function if DISABLED else cast(_F, Part(function, inline=inline))


class Instruction:
    """An operation that loops do with LLVM's instructions, and Python in its own way.

    `plain`: what Python does. `generator`: ``module:name`` of the function that numba calls to generate the
    instructions. It is imported then.
    """

    def __init__(self, plain: Callable[..., Any], generator: str) -> None:
        self._plain = plain
        self._generator = generator

    def __call__(self, *arguments: Any) -> Any:
        """Do it in Python."""
        return self._plain(*arguments)

    @functools.cached_property
    def _of_numba(self) -> Any:
        module, _, name = self._generator.partition(":")
        return compiler().instruction(getattr(importlib.import_module(module), name))

    def of_numba(self) -> Any:
        """Return numba's intrinsic function."""
        return self._of_numba


def instruction(plain: _F, generator: str) -> _F:
    """Return an `Instruction`, or without the compiler what Python does."""
    return plain if DISABLED else cast(_F, Instruction(plain, generator))


def is_compiled(kernel: Any) -> bool:
    """Return whether a kernel is compiled, in this process or on disk. Python functions need not be."""
    return not isinstance(kernel, Kernel) or kernel.is_compiled()
