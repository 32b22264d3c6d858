"""Self-contained SVG, whose colors follow the reader's choice of dark or light."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape as html

from cep.diagnostics.safe_text import for_xml

_STYLE = """
:root { color-scheme: light dark; --ink: #1f2430; --soft: #6b7280; --line: #9aa3b2; --paper: #ffffff;
        --band: #e8edf5; --match: #1d5fbf; --grey: #b6bcc8; --end: #0b7a4b; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #9aa3b2; --line: #626c7d; --paper: #14171d;
          --band: #232935; --match: #6ea8ff; --grey: #4c5564; --end: #4cc38a; }
}
svg { background: var(--paper); font: 12px system-ui, sans-serif; }
text { fill: var(--ink); } .soft { fill: var(--soft); } .title { font-weight: 600; }
.line { stroke: var(--line); fill: none; } .dashed { stroke-dasharray: 4 3; }
.state { fill: var(--paper); stroke: var(--ink); } .end { stroke: var(--end); stroke-width: 2; }
.band { fill: var(--band); } .match { fill: var(--match); } .near { fill: var(--grey); }
.bar { stroke: var(--match); stroke-width: 2; } .near-bar { stroke: var(--grey); stroke-width: 2; }
.tip { fill: var(--line); stroke: none; }
""".strip()


def document(width: float, height: float, title: str, body: Iterable[str]) -> str:
    """Return an SVG document of the given size in pixels, which shrinks on a narrower page."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px;width:100%" role="img" aria-label={quoted(title)}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        *body,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def page(title: str, svg: str) -> str:
    """Return a self-contained HTML page with the SVG."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n</head>\n<body>\n{svg}</body>\n</html>\n"
    )


def label(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text. `anchor` says which part of it is at x: the start, the middle or the end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def path(d: str, kind: str = "line", marker: str = "") -> str:
    """Return a line along the path `d`."""
    end = f' marker-end="url(#{marker})"' if marker else ""
    return f'<path d="{d}" class="{kind}"{end}/>'


def escape(words: str) -> str:
    """Return a text as the content of an element."""
    return html(for_xml(words))


def quoted(words: str) -> str:
    """Return a text as the value of an attribute."""
    return f'"{escape(words)}"'
