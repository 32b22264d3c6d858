"""The errors of this project.

CepError                every error of this project that a user may see
├── RuleError           a rule, stream or pipeline file is wrong; `diagnostics` holds all problems
├── InputError          data or a path cannot be read as declared
├── StateError          a snapshot cannot be restored here
└── SetupError          something is missing on this machine (Java, a package)
"""

from __future__ import annotations

from collections.abc import Sequence
from copyreg import __newobj__  # type: ignore[attr-defined]  # what pickle itself makes objects with
from typing import Any

from cep.diagnostics.diagnostic import Diagnostic, Source, Span, in_order, render

__all__ = [
    "CepError",
    "Diagnostic",
    "InputError",
    "RuleError",
    "SetupError",
    "Source",
    "Span",
    "StateError",
]


class CepError(Exception):
    """An error that is shown to a user: a code, what is wrong, and what to do."""

    def __init__(self, code: str, message: str, help: str = "") -> None:  # noqa: A002 - the word users read
        super().__init__(message)
        self.code = code
        self.help = help

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how the error is copied and sent to other processes: without its constructor."""
        return __newobj__, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        text = f"error[{self.code}]: {self.args[0]}"
        return f"{text}\nhelp: {self.help}" if self.help else text


class RuleError(CepError):
    """Rules, streams or a pipeline are wrong; `diagnostics` holds every problem found.

    The text of the error shows each problem with its place, as ``cep check`` does.
    """

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = next(d for d in diagnostics if d.is_error)
        super().__init__(first.code, first.title, first.help)
        self.diagnostics = tuple(diagnostics)

    def __str__(self) -> str:
        return render(in_order(self.diagnostics))


class InputError(CepError):
    """Data cannot be read as declared."""


class StateError(CepError):
    """A snapshot cannot be restored here."""


class SetupError(CepError):
    """Something is missing on this machine."""
