"""Formats, sources and sinks by name: those of this package, and those that other packages register.

A package registers one with an entry point, in a group such as ``cep.formats``:

    [project.entry-points."cep.formats"]
    kv = "my_package.key_value:KEY_VALUE"

Nothing is imported before its name is requested, and other packages are not searched for a name of this one.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from cep.errors import CepError, InputError, SetupError
from cep.packages import not_installed

if TYPE_CHECKING:
    from importlib import metadata

_PACKAGE = "spark-cep"

T = TypeVar("T")


class _BuiltIn(NamedTuple):
    """An entry point of this package, without `importlib.metadata`, which takes long to load."""

    name: str
    value: str
    dist: None = None

    @property
    def extras(self) -> list[str]:
        _, sign, extras = self.value.rstrip("]").partition("[")
        return extras.split(",") if sign else []

    def load(self) -> Any:
        module, _, attribute = self.value.partition("[")[0].strip().partition(":")
        return getattr(importlib.import_module(module), attribute)


class Registry(Generic[T]):
    """Named objects, loaded when their name is requested.

    - `what`: the kind of its objects, for messages: ``format``.
    - `group`: the group of entry points of other packages.
    - `built_in`: name -> where it is in this package, written as in an entry point: ``module:attribute``,
      with ``[extra]`` after it if it needs an extra.
    - `protocols`: the members of each kind of object that may be registered.
    """

    def __init__(
        self, what: str, group: str, built_in: Mapping[str, str], protocols: Sequence[Sequence[str]]
    ) -> None:
        self.what = what
        self.group = group
        self.protocols = protocols
        self._built_in = {name: _BuiltIn(name, value) for name, value in built_in.items()}
        self._loaded: dict[str, T] = {}

    @property
    def built_in(self) -> tuple[str, ...]:
        """The names of this package."""
        return tuple(self._built_in)

    @cached_property
    def plugged_in(self) -> tuple[str, ...]:
        """The names that other packages register, in alphabetical order.

        Raises SetupError: two packages register one name.
        """
        return tuple(sorted(self._entry_points))

    @property
    def names(self) -> tuple[str, ...]:
        """All names: first those of this package, then those that other packages register."""
        return (*self.built_in, *self.plugged_in)

    def get(self, name: str) -> T:
        """Return the object with this name.

        Raises InputError: no object has this name. Raises SetupError: it cannot be loaded.
        """
        if name not in self._loaded:
            found = self._built_in.get(name) or self._entry_points.get(name)
            if found is None:
                known = f"{self.what}s: {', '.join(self.names)}"
                raise InputError("E0680", f"there is no {self.what} `{name}`", known)
            self._loaded[name] = self._load(found)
        return self._loaded[name]

    def loaded(self, names: Sequence[str] | None = None) -> dict[str, T]:
        """Return those of `names` (by default all) that can be loaded; `get` reports why the rest cannot."""
        found = {}
        for name in self.names if names is None else names:
            try:
                found[name] = self.get(name)
            except CepError:
                continue
        return found

    @cached_property
    def _entry_points(self) -> dict[str, metadata.EntryPoint]:
        from importlib import metadata

        found: dict[str, metadata.EntryPoint] = {}
        # A package that is on the path twice counts once.
        for point in sorted(set(metadata.entry_points(group=self.group)), key=lambda point: point.value):
            if point.name in self._built_in:
                raise self._twice(point.name, _PACKAGE, _package_of(point))
            if point.name in found:
                raise self._twice(point.name, _package_of(found[point.name]), _package_of(point))
            found[point.name] = point
        return found

    def _twice(self, name: str, first: str, second: str) -> SetupError:
        return SetupError(
            "E0681",
            f"the {self.what} `{name}` is registered twice: by {first} and by {second}",
            "uninstall one of the two",
        )

    def _load(self, point: _BuiltIn | metadata.EntryPoint) -> T:
        package = _package_of(point)
        what = f"the {self.what} `{point.name}` of {package}"
        try:
            found: T = point.load()
        except ModuleNotFoundError as error:
            if point.extras:
                wanted = f"{package}[{','.join(point.extras)}]"
                raise not_installed(what, str(error.name), wanted) from error
            raise _broken(what, point, error) from error
        except Exception as error:
            raise _broken(what, point, error) from error
        lacks = [[name for name in members if not hasattr(found, name)] for members in self.protocols]
        if all(lacks):
            missing = ", ".join(f"`{name}`" for name in min(lacks, key=len))
            raise SetupError("E0684", f"{what}, `{point.value}`, has no {missing}", "ask its authors")
        return found


def _package_of(point: _BuiltIn | metadata.EntryPoint) -> str:
    return _PACKAGE if point.dist is None else str(point.dist.name)


def _broken(what: str, point: _BuiltIn | metadata.EntryPoint, error: Exception) -> SetupError:
    reason = (str(error).strip() or "no message").splitlines()[0]
    return SetupError(
        "E0682",
        f"{what}, `{point.value}`, cannot be loaded: {type(error).__name__}: {reason}",
        "ask its authors, or uninstall it",
    )
