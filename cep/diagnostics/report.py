"""Where a check of one text puts the problems that it finds."""

from __future__ import annotations

from dataclasses import dataclass

from cep.diagnostics.diagnostic import Diagnostic, Source, Span
from cep.diagnostics.limits import Problems


@dataclass(frozen=True, slots=True)
class Reporter:
    """Adds the problems of the text `source` to the `problems` found so far."""

    source: Source
    problems: Problems

    def __call__(self, code: str, title: str, span: Span, label: str = "", help_text: str = "") -> None:
        """Add a problem at a place in the text."""
        self.add(Diagnostic(code, title, self.source, span, label, help_text))

    def add(self, problem: Diagnostic) -> None:
        """Add a problem."""
        self.problems.append(problem)

    def has_error_since(self, n_before: int) -> bool:
        """Return whether there is an error among the problems after the first `n_before`."""
        return any(problem.is_error for problem in self.problems[n_before:])
