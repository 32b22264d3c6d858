"""What is said while the engine is compiled."""

from __future__ import annotations

from io import StringIO

import pytest

from cep.commands.progress_line import ProgressLine
from cep.commands.warm import TEXT, CompilingLines


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def told(line: ProgressLine, ends_s: list[float]) -> str:
    """Return what is written when the kernels are compiled at some moments."""
    now = [0.0]
    lines = CompilingLines(line, lambda: now[0])
    for number, end_s in enumerate(ends_s):
        now[0] = end_s
        lines.show(number + 1, 9)
    line.clear()
    assert isinstance(line.stream, StringIO)
    return line.stream.getvalue()


def test_a_terminal_shows_each_kernel_on_one_line() -> None:
    shown = told(ProgressLine(Terminal(), is_shown=True), [1, 2]).split("\r\x1b[K")
    assert shown == ["", TEXT, f"{TEXT}: 1 of 9 kernels", f"{TEXT}: 2 of 9 kernels", ""]


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_file_gets_a_line_at_once_and_every_ten_seconds(is_shown: bool) -> None:
    shown = told(ProgressLine(StringIO(), is_shown), [1, 9.9, 10, 12, 19.9, 45, 46, 56])
    assert shown.splitlines() == [
        TEXT,
        "compiling the engine: 3 of 9 kernels",
        "compiling the engine: 6 of 9 kernels",
        "compiling the engine: 8 of 9 kernels",
    ]


def test_without_progress_only_the_first_line_is_written() -> None:
    assert told(ProgressLine(StringIO(), is_shown=False, is_silent=True), [20, 40]) == f"{TEXT}\n"
