"""One line on a terminal that shows the progress of a command."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TextIO

_ERASE = "\r\x1b[K"


@dataclass(slots=True)
class ProgressLine:
    """The line on which progress is shown.

    - `stream`: standard error. Progress is never written to standard output, because a program may read that.
    - `is_shown`: whether progress is shown. On a terminal a text replaces the text before it; elsewhere each
      text is a line of its own.
    - `is_silent`: whether to print nothing at all, not even the progress of work that takes minutes.
    """

    stream: TextIO
    is_shown: bool
    is_silent: bool = False
    _shown: str = ""

    def show(self, text: str) -> None:
        """Show `text` instead of the text shown before."""
        if self.is_shown and text != self._shown:
            self._shown = text
            self.stream.write(f"{_ERASE}{text}" if self.stream.isatty() else f"{text}\n")
            self.stream.flush()

    def clear(self) -> None:
        """Erase the line, so that the next output starts on an empty line."""
        if self.is_shown and self._shown and self.stream.isatty():
            self.stream.write(_ERASE)
            self.stream.flush()
        self._shown = ""


def progress_line(quiet: bool, progress: bool | None) -> ProgressLine:
    """Return the line on which a command shows progress. If `progress` is None, only a terminal shows it."""
    is_shown = sys.stderr.isatty() if progress is None else progress
    return ProgressLine(sys.stderr, is_shown and not quiet, quiet or progress is False)
