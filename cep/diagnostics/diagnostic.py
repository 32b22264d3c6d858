"""Problems of texts as data, and how they are shown: as text for people, as JSON for programs."""

from __future__ import annotations

import bisect
import difflib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

_TAB = 4
_MAX_CANDIDATES = 200
_MAX_COMPARED = 60
_MAX_WIDTH = 160  # of a quoted source line; a longer one is cut around the place

_RESET, _BOLD, _RED, _YELLOW, _BLUE, _CYAN = (
    "\033[0m",
    "\033[1m",
    "\033[1;31m",
    "\033[1;33m",
    "\033[34m",
    "\033[36m",
)


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """A text and its name, which is a path."""

    name: str
    text: str

    def __repr__(self) -> str:
        return f"Source({self.name!r}, {len(self.text):,} characters)"


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of character offsets in a source's text."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem: `code` (E0203, W0301), the fact, the place, what is wrong there, and what to do."""

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


class Lines:
    """The lines of a text, and the line and column of an offset."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of `offset`, both counted from 1, columns in characters."""
        line = bisect.bisect_right(self._starts, min(offset, len(self._text))) - 1
        return line + 1, min(offset, len(self._text)) - self._starts[line] + 1

    def text_of(self, line: int) -> str:
        """Return line number `line` without its end."""
        end = self._starts[line] - 1 if line < len(self._starts) else len(self._text)
        return self._text[self._starts[line - 1] : end].removesuffix("\r")


def in_order(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Return `diagnostics` by file and place; those without a place come last in their file."""
    return sorted(
        diagnostics,
        key=lambda d: (
            d.source.name if d.source else "",
            d.span.start if d.span else float("inf"),
            d.code,
        ),
    )


def render(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """Return `diagnostics` as text, each with its source line and a caret under the place."""
    listed = list(diagnostics)
    lines = _lines_of(listed)
    return "\n\n".join(
        _block(diagnostic, lines[id(diagnostic.source)] if diagnostic.source else None, color)
        for diagnostic in listed
    )


def excerpt(source: Source, span: Span, label: str) -> list[str]:
    """Return the line of a source at `span` with carets and a label below, as lines of text."""
    return _excerpt(
        Diagnostic("", "", source, span, label), source, span, Lines(source.text), lambda _, text: text, ""
    )


def to_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """Return `diagnostics` as plain data; lines and columns count from 1, the end is exclusive."""
    listed = list(diagnostics)
    known = _lines_of(listed)
    result = []
    for diagnostic in listed:
        item: dict[str, Any] = {
            "code": diagnostic.code,
            "severity": "error" if diagnostic.is_error else "warning",
            "title": diagnostic.title,
            "label": diagnostic.label,
            "help": diagnostic.help,
            "file": diagnostic.source.name if diagnostic.source else None,
        }
        places: Sequence[tuple[int | None, int | None]] = ((None, None), (None, None))
        if diagnostic.source is not None and diagnostic.span is not None:
            lines = known[id(diagnostic.source)]
            places = (lines.place(diagnostic.span.start), lines.place(diagnostic.span.end))
        (item["line"], item["column"]), (item["end_line"], item["end_column"]) = places
        result.append(item)
    return result


def _lines_of(diagnostics: Iterable[Diagnostic]) -> dict[int, Lines]:
    """Return the lines of each source, found once; a source is known by its identity."""
    sources = {id(diagnostic.source): diagnostic.source for diagnostic in diagnostics if diagnostic.source}
    return {identity: Lines(source.text) for identity, source in sources.items()}


def suggestion(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate that `name` was probably meant to be, unless there are too many candidates."""
    known = list(candidates)
    if len(known) > _MAX_CANDIDATES or len(name) > _MAX_COMPARED:
        return None
    folded = {candidate.casefold(): candidate for candidate in reversed(known)}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def did_you_mean(name: str, candidates: Iterable[str], what: str, near: str | None = None) -> str:
    """Return help for an unknown `name`: what may be meant (`near`), and all candidates (`what`, plural)."""
    known = sorted(candidates)
    near = near or suggestion(name, known)
    shown = ", ".join(known[:30]) + (f" and {len(known) - 30} more" if len(known) > 30 else "")
    listed = f"{what}: {shown}" if known else f"there are no {what}"
    return f"did you mean `{near}`? {listed}" if near else listed


def _block(diagnostic: Diagnostic, lines: Lines | None, color: bool) -> str:
    def paint(style: str, text: str) -> str:
        return f"{style}{text}{_RESET}" if color else text

    severity, style = ("error", _RED) if diagnostic.is_error else ("warning", _YELLOW)
    out = [paint(style, f"{severity}[{diagnostic.code}]") + paint(_BOLD, f": {_visible(diagnostic.title)}")]
    if diagnostic.source is not None and lines is not None:
        if diagnostic.span is None:
            out.append(paint(_BLUE, "  --> ") + _visible(diagnostic.source.name))
        else:
            out += _excerpt(diagnostic, diagnostic.source, diagnostic.span, lines, paint, style)
    if diagnostic.help:
        first, *more = diagnostic.help.splitlines()
        out.append(paint(_CYAN, "help") + f": {_visible(first)}")
        out += [f"      {_visible(line)}" for line in more]
    return "\n".join(out)


def _excerpt(
    diagnostic: Diagnostic, source: Source, span: Span, lines: Lines, paint: Any, style: str
) -> list[str]:
    line, column = lines.place(span.start)
    last_line, last_column = lines.place(max(span.end, span.start))
    text = lines.text_of(line)
    end = last_column - 1 if last_line == line else len(text)
    first = column - 1
    label = diagnostic.label
    if last_line > line + 1 or (last_line == line + 1 and last_column > 1):
        label = f"{label} (up to line {last_line})".strip()
    start, stop = _crop(len(text), first)
    cells = _cells(text[start:stop])
    first, end = first - start, min(end, stop) - start
    before = ("..." if start > 0 else "") + "".join(cells[:first])
    marked = "".join(cells[first:end])
    after = "".join(cells[max(first, end) :]) + ("..." if stop < len(text) else "")
    carets = "^" * max(1, _width(marked))
    number = str(line)
    note = paint(style, f"{carets} {_visible(label)}".rstrip())
    gutter = " " * len(number)
    return [
        f"{gutter}{paint(_BLUE, ' -->')} {_visible(source.name)}:{line}:{column}",
        paint(_BLUE, f" {gutter} |"),
        f"{paint(_BLUE, f' {number} |')} {before}{marked}{after}".rstrip(),
        f"{paint(_BLUE, f' {gutter} |')} {' ' * _width(before)}{note}",
        *([paint(_BLUE, f" {gutter} |")] if diagnostic.help else []),
    ]


def _crop(length: int, first: int) -> tuple[int, int]:
    """Return which of `length` characters to show so that character `first` is among them."""
    if length <= _MAX_WIDTH:
        return 0, length
    start = first - _MAX_WIDTH // 4 if first > _MAX_WIDTH // 2 else 0
    return start, min(length, start + _MAX_WIDTH)


def _cells(text: str) -> list[str]:
    """Return what is shown for each character; a tab reaches to the next stop."""
    cells: list[str] = []
    position = 0
    for character in text:
        cell = " " * (_TAB - position % _TAB) if character == "\t" else _visible(character)
        cells.append(cell)
        position += _width(cell)
    return cells


def _visible(text: str) -> str:
    """Return `text` with control characters replaced: a rule file must not steer a terminal."""
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") else c
        for c in text
    )


def _width(text: str) -> int:
    """Return how many columns `text` takes on a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
