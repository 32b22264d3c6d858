"""Matches as people read them: a table for each rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from cep.diagnostics.safe_text import for_cell, for_terminal
from cep.expression import Type
from cep.output.rows import columns_of, match_rows
from cep.rule_set import MATCH_COLUMNS, RuleSet

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text


def match_tables(rules: RuleSet, matches: pa.Table) -> Iterator[Table]:
    """Yield one table for a terminal for each rule that has matches, in the order of their first matches."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    columns = columns_of(rules)
    by_name = {rule.name: rule for rule in rules.rules}
    tables: dict[str, Table] = {}
    for row in match_rows(rules, matches):
        name = row["rule"]
        shown = [column for column in columns[name] if column not in ("rule", *MATCH_COLUMNS)]
        if name not in tables:
            title = for_cell(f"{name}: {by_name[name].title}" if by_name[name].title else name)
            table = Table(
                title=Text(title, style="bold"),
                title_justify="left",
                box=SIMPLE_HEAD,
                padding=0,
                pad_edge=False,
            )
            table.add_column("start", no_wrap=True)
            table.add_column("lasted", justify="right", no_wrap=True)
            for column in shown:
                kind = matches.schema.field(column).type
                is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
                justify: Literal["left", "right"] = "right" if is_number else "left"
                table.add_column(_heading(column), justify=justify, overflow="fold")
            tables[name] = table
        start, end = row["match_start"], row["match_end"]
        for measure, expression in by_name[name].measures:
            if expression.type is Type.INTERVAL and row[measure] is not None:
                row[measure] = intervals(row[measure])
        cells = [cell(start), cell(end - start), *(cell(row[column]) for column in shown)]
        tables[name].add_row(*map(Text, cells))
    yield from tables.values()


_MAX_HEADING = 8
"""Characters of a heading from which on it is broken at an underscore."""


def intervals(value: int | list[int | None]) -> Any:
    """Return microseconds as lengths of time."""
    if isinstance(value, list):
        return [None if item is None else timedelta(microseconds=item) for item in value]
    return timedelta(microseconds=value)


def _heading(column: str) -> Text:
    """Return a column's name in lines of whole words, which keeps the column narrow."""
    from rich.text import Text

    lines = [""]
    for word in re.findall(r"[^_]*_+|[^_]+", column):
        if lines[-1] and len(lines[-1]) + len(word) > _MAX_HEADING:
            lines.append("")
        lines[-1] += word
    return Text("\n".join(map(for_cell, lines)))


def _duration(length: timedelta) -> str:
    """Return a length of time in its two largest units."""
    if length < timedelta(0):
        return "-" + _duration(-length)
    seconds = length.total_seconds()
    if seconds < 60:
        return f"{seconds:.6g}s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if hours < 1:
        return f"{minutes:.0f}m {int(seconds % 60):02}s"
    if days < 1:
        return f"{hours:.0f}h {int(minutes % 60):02}m"
    return f"{days:.0f}d {int(hours % 24):02}h"


def cell(value: object) -> str:
    """Return a value as a table shows it: to the second or to six digits; files contain it in full."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case float():
            return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.2f}"
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
        case timedelta():
            return _duration(value)
        case list():
            return f"[{', '.join(cell(item) or 'NULL' for item in value)}]"
        case dict():
            items = ((for_cell(name), item) for name, item in value.items() if item is not None)
            return ", ".join(f"{name} {cell(item)}" for name, item in items)
        case _:
            return for_terminal(str(value))
