"""What can go wrong, as data.

CepError                every error of this project that a user may see
├── RuleError           a rule, stream or pipeline file is wrong: has `diagnostics`, all of them at once
├── InputError          data or a path cannot be read as declared
├── StateError          a snapshot cannot be restored here
└── SetupError          something is missing on this machine (Java, a package)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """A text with the name (path) it came under."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in a source's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: `code` (E0203, W0301), the fact, the place, what is wrong there, what to do."""

    code: str
    title: str
    source: Source | None = None
    span: Span | None = None
    label: str = ""
    help: str = ""

    @property
    def is_error(self) -> bool:
        """Errors stop a rule from running, warnings do not."""
        return self.code.startswith("E")


class CepError(Exception):
    """An error to be shown to a user: a code, a fact, and what to do."""

    def __init__(self, code: str, message: str, help: str = "") -> None:  # noqa: A002 - the word users read
        super().__init__(message)
        self.code = code
        self.help = help

    def __str__(self) -> str:
        text = f"error[{self.code}]: {self.args[0]}"
        return f"{text}\nhelp: {self.help}" if self.help else text


class RuleError(CepError):
    """Rules, streams or a pipeline are wrong; `diagnostics` holds every problem found."""

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = next(d for d in diagnostics if d.is_error)
        super().__init__(first.code, first.title, first.help)
        self.diagnostics = tuple(diagnostics)


class InputError(CepError):
    """Data cannot be read as declared."""


class StateError(CepError):
    """A snapshot cannot be restored here."""


class SetupError(CepError):
    """Something is missing on this machine."""
