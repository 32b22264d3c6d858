"""The page of `cep backtest --report`: one self-contained HTML file with a dark and a light theme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cep.explain.svg import escape

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #6b7280; --rule: #d9dee7; --paper: #ffffff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #9aa3b2; --rule: #313845; --paper: #14171d; }
}
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
       max-width: 1000px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 1.6rem; margin: 0 0 4px; } h2 { font-size: 1.15rem; margin: 40px 0 8px; }
p.about, .soft { color: var(--soft); margin: 0; }
.wide { overflow-x: auto; } .wide svg { min-width: 640px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 14px 4px 0; border-bottom: 1px solid var(--rule); text-align: right;
         white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } th { font-weight: 600; }
details { border-bottom: 1px solid var(--rule); padding: 6px 0; } summary { cursor: pointer; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, monospace; margin: 8px 0; }
svg { display: block; margin: 8px 0; }
""".strip()


@dataclass(frozen=True, slots=True)
class Table:
    """Cells below headings; the first column contains words."""

    heading: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG document, which is inserted unchanged."""

    svg: str


@dataclass(frozen=True, slots=True)
class Words:
    """Lines of text whose spaces are kept."""

    text: str


@dataclass(frozen=True, slots=True)
class Opening:
    """A line that expands to show other parts."""

    title: str
    parts: Sequence[Part]


Part = Table | Picture | Words | Opening


@dataclass(frozen=True, slots=True)
class Section:
    """Parts below a title; `about` says what they show."""

    title: str
    about: str
    parts: Sequence[Part]


def page(title: str, about: str, sections: Iterable[Section]) -> str:
    """Return the page. All words are escaped; only pictures are inserted unchanged."""
    body = "\n".join(line for section in sections for line in _section(section))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n"
        f'<h1>{escape(title)}</h1>\n<p class="about">{escape(about)}</p>\n{body}\n</body>\n</html>\n'
    )


def _section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{escape(section.title)}</h2>"
    if section.about:
        yield f'<p class="about">{escape(section.about)}</p>'
    yield from (_part(part) for part in section.parts)
    yield "</section>"


def _part(part: Part) -> str:
    match part:
        case Table():
            head = _row("th", part.heading)
            rows = "\n".join(_row("td", row) for row in part.rows)
            body = f"<thead>{head}</thead>\n<tbody>\n{rows}\n</tbody>"
            return f'<div class="wide"><table>\n{body}\n</table></div>'
        case Picture():
            return f'<div class="wide">{part.svg}</div>'
        case Words():
            return f"<pre>{escape(part.text)}</pre>"
        case Opening():
            inside = "\n".join(map(_part, part.parts))
            return f"<details>\n<summary>{escape(part.title)}</summary>\n{inside}\n</details>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
