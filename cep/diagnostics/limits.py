"""Limits of a file, so that reading it takes milliseconds regardless of its contents."""

from __future__ import annotations

from collections.abc import Iterable

from cep.diagnostics.diagnostic import Diagnostic, Source, Span

MAX_BYTES = 1 << 20
"""Size of one rule file."""

MAX_TOKENS = 10_000
"""Words, numbers, texts, signs and comments of one rule file: some 100 rules."""

MAX_RULES = 500
"""Rules of one file."""

MAX_NAME = 255
"""Characters of a name."""

MAX_TEXT = 10_000
"""Characters of a text."""

MAX_ERRORS = 50
"""Errors that are collected before reading stops."""


class TooManyErrorsError(Exception):
    """More errors were found than are shown."""


class Problems(list[Diagnostic]):
    """Diagnostics in the order found; `append` refuses the error after `MAX_ERRORS` others."""

    def __init__(self, found: Iterable[Diagnostic] = ()) -> None:
        super().__init__(found)
        self._n_errors = sum(problem.is_error for problem in self)

    def append(self, problem: Diagnostic) -> None:
        """Add a problem; an error only once. The last one that there is room for says that there are more."""
        if problem.is_error:
            if problem in self:  # a text that was read twice
                return
            if self._n_errors >= MAX_ERRORS:
                super().append(_too_many_errors(problem.source, problem.span))
                raise TooManyErrorsError
            self._n_errors += 1
        super().append(problem)


def _too_many_errors(source: Source | None, span: Span | None) -> Diagnostic:
    return Diagnostic(
        "E0915",
        f"more than {MAX_ERRORS} errors: the rest is not shown",
        source,
        span,
        "stopped here",
        "correct what is shown first",
    )


def too_large(source: Source, max_bytes: int) -> Diagnostic:
    """Return the error for a file of more than `max_bytes` bytes."""
    return Diagnostic(
        "E0901",
        f"the file has more than {max_bytes:,} bytes",
        source,
        help="split it: the rule files of a directory are read together",
    )
