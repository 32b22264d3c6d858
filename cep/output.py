"""Matches as people and programs read them: a table, JSON lines, CSV, Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cep.errors import InputError
from cep.expression import Type
from cep.local import MATCH_COLUMNS, Counts
from cep.program import EVENT_COLUMNS, OUTCOME, Program

if TYPE_CHECKING:
    from rich.table import Table

SUFFIXES = (".jsonl", ".json", ".ndjson", ".csv", ".parquet")
"""Endings of the files that can be written."""


def check_suffix(path: str | Path) -> None:
    """Raise InputError unless the ending of `path` says how to write it."""
    if Path(path).suffix not in SUFFIXES:
        raise InputError(
            "E0608",
            f"the format of `{path}` cannot be told",
            f"names of output files end in {', '.join(SUFFIXES)}",
        )


def write_table(path: str | Path, table: pa.Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write `table` to a file of the format its ending says; `rows` are the same rows for JSON lines."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix:
            case ".csv":
                import pyarrow.csv

                with path.open("wb") as sink:
                    pyarrow.csv.write_csv(_flat(table), sink)
            case ".parquet":
                import pyarrow.parquet

                with path.open("wb") as sink:
                    pyarrow.parquet.write_table(table, sink)
            case _:
                with path.open("w", encoding="utf-8") as file:
                    file.writelines(json_line(row) + "\n" for row in rows)
    except OSError as error:
        raise InputError("E0609", f"`{path}` cannot be written: {error.strerror or error}") from error


def match_rows(programs: Sequence[Program], matches: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield each match as a mapping with the columns of its own rule."""
    columns = _columns_of_rules(programs)
    for batch in matches.to_batches(max_chunksize=10_000):
        for row in batch.to_pylist():
            yield {name: row[name] for name in columns[row["rule"]]}


def json_line(row: Mapping[str, Any] | list[Any]) -> str:
    """Return a row (or a list) as one line of JSON; times are ISO 8601 in UTC."""
    return json.dumps(row, ensure_ascii=False, default=_text)


def match_tables(programs: Sequence[Program], matches: pa.Table) -> Iterator[Table]:
    """Yield one table for a terminal for each rule that has matches, in the order of their first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    columns = _columns_of_rules(programs)
    rules = {rule.name: rule for program in programs for rule in program.rules}
    tables: dict[str, Table] = {}
    for row in match_rows(programs, matches):
        name = row["rule"]
        shown = [column for column in columns[name] if column not in ("rule", *MATCH_COLUMNS)]
        if name not in tables:
            title = f"{name}: {rules[name].title}" if rules[name].title else name
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
                table.add_column(Text(column), justify="right" if is_number else "left", overflow="fold")
            tables[name] = table
        start, end = row["match_start"], row["match_end"]
        for measure, expression in rules[name].measures:
            if expression.type is Type.INTERVAL and row[measure] is not None:
                row[measure] = _intervals(row[measure])
        cells = [_cell(start), _cell(end - start), *(_cell(row[column]) for column in shown)]
        tables[name].add_row(*map(Text, cells))
    yield from tables.values()


def summary_lines(counts: Counts, reasons: Mapping[str, int], seconds: float) -> list[str]:
    """Return what happened, a line for each kind of count."""
    why = "; ".join(f"{reason} ({count:,})" for reason, count in list(reasons.items())[:3])
    more = f"; {len(reasons) - 3} other reasons" if len(reasons) > 3 else ""
    rows = [
        ("events", counts.events, ""),
        ("malformed", counts.malformed, why + more),
        ("late", counts.late, ""),
        ("duplicates", counts.duplicates, ""),
        ("matches", sum(counts.matches.values()), _by_rule(counts.matches)),
    ]
    for name, by_rule in (("timeouts", counts.timeouts), ("suppressed", counts.suppressed)):
        if any(by_rule.values()):
            found = {rule: count for rule, count in by_rule.items() if count}
            rows.append((name, sum(found.values()), _by_rule(found)))
    if any(counts.dropped_runs.values()):
        dropped = {name: count for name, count in counts.dropped_runs.items() if count}
        why = f"more runs were open for one key than a rule may have: {_by_rule(dropped)}"
        rows.append(("dropped runs", sum(dropped.values()), why))
    lines = [f"{name:<14}{count:>12,}  {text}".rstrip() for name, count, text in rows]
    return [*lines, f"{'seconds':<14}{seconds:>12.2f}"]


def _flat(table: pa.Table) -> pa.Table:
    """Return `table` with lists and events as JSON text: CSV has no cells for them."""
    for number, item in enumerate(table.schema):
        if pa.types.is_nested(item.type):
            texts = [
                None if value is None else json_line(value) for value in table.column(number).to_pylist()
            ]
            table = table.set_column(number, item.name, pa.array(texts, pa.string()))
    return table


def _intervals(value: int | list[int | None]) -> Any:
    """Return microseconds as lengths of time."""
    if isinstance(value, list):
        return [None if item is None else timedelta(microseconds=item) for item in value]
    return timedelta(microseconds=value)


def _by_rule(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _columns_of_rules(programs: Sequence[Program]) -> dict[str, tuple[str, ...]]:
    return {
        rule.name: (
            "rule",
            *program.key,
            *MATCH_COLUMNS,
            *([OUTCOME] if rule.timeouts else []),
            *(name for name, _ in rule.measures),
            *(EVENT_COLUMNS if rule.all_rows else []),
        )
        for program in programs
        for rule in program.rules
    }


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)


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


def _cell(value: object) -> str:
    """Return a value as a table shows it: to the second, to six digits; files have it in full."""
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
            return f"[{', '.join(_cell(item) or 'NULL' for item in value)}]"
        case dict():
            return ", ".join(f"{name} {_cell(item)}" for name, item in value.items() if item is not None)
        case _:
            return str(value)
