"""Packages that an extra installs, and that may be missing. None is imported here."""

from __future__ import annotations

from importlib.util import find_spec

from cep.errors import SetupError


def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return find_spec(package) is not None


def require_package(what: str, package: str, extra: str) -> None:
    """Raise SetupError (E0683) unless a package is installed; `what` needs it, and `extra` installs it."""
    if not is_installed(package):
        raise not_installed(what, package, f"spark-cep[{extra}]")


def not_installed(what: str, package: str, wanted: str) -> SetupError:
    """Return the error for a missing package. `wanted` says what to install."""
    return SetupError(
        "E0683", f"{what} needs the package `{package}`, which is not installed", f"pip install '{wanted}'"
    )
