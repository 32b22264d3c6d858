"""Tables of values as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MOST_ROWS = 50
"""Rows that are shown; of the others only the number is written."""

_CELL = "text-align:left;padding:2px 12px 2px 0"


def html_table(
    title: str, header: Sequence[str], rows: Sequence[Sequence[Any]], n_rows: int | None = None
) -> str:
    """Return a table as HTML with a title. All text is escaped, and None becomes an empty cell.

    `n_rows` is the number of all rows, if `rows` are only the first of them.
    """
    shown = [_row("th", header), *(_row("td", row) for row in rows[:MOST_ROWS])]
    n_more = (len(rows) if n_rows is None else n_rows) - len(rows[:MOST_ROWS])
    more = f"<p>and {n_more:,} more</p>" if n_more else ""
    return f"<div><strong>{escape(title)}</strong><table>{''.join(shown)}</table>{more}</div>\n"


def _row(tag: str, cells: Iterable[Any]) -> str:
    texts = ("" if cell is None else escape(str(cell)) for cell in cells)
    return "<tr>" + "".join(f'<{tag} style="{_CELL}">{text}</{tag}>' for text in texts) + "</tr>"
