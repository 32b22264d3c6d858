"""A test of a reported alert: its match, and the events without which it is not reported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import Mask
from cep.errors import InputError, Span
from cep.expression import Type
from cep.local.replay import time_of
from cep.output.rows import json_line
from cep.rule_set import RuleSet
from cep.rule_tests.cases import Arrival, Case
from cep.rule_tests.delivery import matches_of
from cep.schema.stream import Stream
from cep.schema.time_literals import time_for_people

MOST_RUNS = 2_000
"""Runs of the rules in which events are left out."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOWHERE = Span(0, 0)

Item = tuple[str, int]
"""A row of a stream or table: its name and the number of the row."""


def read_match(text: str) -> dict[str, Any]:
    """Return the match in a text: a JSON line as `cep match` writes it.

    Raises InputError (E0676): it is not a match.
    """
    try:
        found: dict[str, Any] = json.loads(text.strip().split("\n")[0])
        for name in ("match_start", "match_end"):
            time_of(found[name])  # TypeError: it is not an object
    except (ValueError, TypeError, KeyError, RecursionError):
        found = {}
    if not all(isinstance(found.get(name), str) for name in ("rule", "match_id")):
        raise InputError(
            "E0676", "this is no match", "give a line of JSON as `cep match` writes it, or a file with one"
        )
    return found


def recorded_case(
    rules: RuleSet, match: Mapping[str, Any], tables: Mapping[str, pa.Table], *, with_nulls: bool = False
) -> str:
    """Return the case of a match, as lines of a test file below `cases`.

    It expects all matches of the rule in its events. `tables` are the typed events and rows of each stream
    and table. With `with_nulls`, NULLs are written, because the file has defaults. Raises InputError
    (E0676): the rules do not report the match in these events.
    """
    items = _reported(rules, match, tables)
    if items is None:
        raise InputError(
            "E0676",
            f"the rules do not report match {match['match_id']} in these events",
            "give the events and the rules with which it was reported",
        )
    kept = _fewest(items, lambda some: _is_reported(rules, match, tables, some))
    return "\n".join(_Lines(rules, match, tables, with_nulls).lines(kept)) + "\n"


# ---------------------------------------------------------------- which events


def _reported(rules: RuleSet, match: Mapping[str, Any], tables: Mapping[str, pa.Table]) -> list[Item] | None:
    """Return events with which a match is reported: those of its time, its key, or all."""
    start_us, end_us = (time_of(match[name]) for name in ("match_start", "match_end"))
    for is_of_key, since_us in ((True, start_us), (True, None), (False, None)):
        items: list[Item] = []
        for name, stream in rules.inputs.items():
            keep = np.ones(len(tables[name]), np.bool_)
            if not stream.is_static:
                times = np.asarray(tables[name].column(stream.event_time), np.int64)
                keep &= times <= end_us
                if since_us is not None and stream.table is None:
                    keep &= times >= since_us
            if is_of_key and stream.table is None:
                keep &= _of_key(rules, stream, tables[name], match)
            items += [(name, row) for row in np.flatnonzero(keep).tolist()]
        if _is_reported(rules, match, tables, items):
            return items
    return None


def _of_key(rules: RuleSet, stream: Stream, table: pa.Table, match: Mapping[str, Any]) -> Mask:
    """Return the rows of a stream that have the key of a match in some role."""
    program = next(one for one in rules.programs if match["rule"] in [rule.name for rule in one.rules])
    key = [match.get(name) for name in program.key]
    keep = np.zeros(len(table), np.bool_)
    for columns in rules.keys_of(stream):
        if len(columns) == len(key):
            rows = table.select(list(columns)).to_pylist()
            keep |= np.array([json.loads(json_line(list(row.values()))) == key for row in rows], np.bool_)
    return keep


def _is_reported(
    rules: RuleSet, match: Mapping[str, Any], tables: Mapping[str, pa.Table], items: Sequence[Item]
) -> bool:
    """Return whether the rules report a match, with all its values, in some of the events."""
    case = _case(rules, tables, items)
    found = matches_of(rules, [match["rule"]], case)
    return any(row["match_id"] == match["match_id"] and json.loads(json_line(row)) == match for row in found)


def _case(rules: RuleSet, tables: Mapping[str, pa.Table], items: Sequence[Item]) -> Case:
    steps: list[Arrival] = []
    given: dict[str, pa.Table] = {}
    for name, stream in rules.inputs.items():
        rows = [row for of, row in items if of == name]
        if stream.table is not None:
            given[name] = tables[name].take(pa.array(rows, pa.int64()))
        else:
            steps += [Arrival(name, row, 0, False, _NOWHERE) for row in rows]
    return Case("", _NOWHERE, tuple(steps), tables, given, ())


def _fewest(items: list[Item], suffices: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """Return some of the items of which none can be left out (Zeller, ESEC/FSE 1999), if runs suffice."""
    n_runs, size = 0, max(1, len(items) // 2)
    while True:
        place, was_smaller = 0, False
        while place < len(items) and n_runs < MOST_RUNS:
            fewer = items[:place] + items[place + size :]
            n_runs += 1
            if fewer and suffices(fewer):
                items, was_smaller = fewer, True
            else:
                place += size
        if n_runs >= MOST_RUNS or (size == 1 and not was_smaller):
            return items
        size = max(1, size // 2)


# ---------------------------------------------------------------- as text


@dataclass(frozen=True)
class _Lines:
    """Writes the case of a match (`recorded_case`)."""

    rules: RuleSet
    match: Mapping[str, Any]
    tables: Mapping[str, pa.Table]
    with_nulls: bool

    def lines(self, items: Sequence[Item]) -> Iterator[str]:
        """Yield the lines of a case with these events."""
        yield f"  alert {str(self.match['match_id'])[:8]}:"
        of_tables = [item for item in items if self.rules.inputs[item[0]].table is not None]
        yield from ["    tables:"] if of_tables else []
        for name in dict.fromkeys(name for name, _ in of_tables):
            yield f"      {name}:"
            yield from (f"        - {self._row(of, row)}" for of, row in of_tables if of == name)
        yield "    events:"
        for name, row in sorted((item for item in items if item not in of_tables), key=self._time):
            text = self._row(name, row)
            yield f"      - {text}" if len(self.rules.streams) == 1 else f"      - {_text(name)}: {text}"
        yield "    expect:"
        case = _case(self.rules, self.tables, items)
        for found in matches_of(self.rules, [self.match["rule"]], case):
            left_out = {"match_id"} | ({"rule"} if len(self.rules.rules) == 1 else set())
            shown = {name: value for name, value in found.items() if name not in left_out}
            yield f"      - {_mapping(shown)}"

    def _time(self, item: Item) -> int:
        name, row = item
        time_us: int = self.tables[name].column(self.rules.inputs[name].event_time)[row].as_py()
        return time_us

    def _row(self, name: str, number: int) -> str:
        """Return a row as a mapping; times are ISO 8601 in UTC."""
        stream = self.rules.inputs[name]
        row = self.tables[name].slice(number, 1).to_pylist()[0]
        columns = {column.name: column for column in stream.fields}
        word = "at" if "at" not in columns or stream.event_time == "at" else stream.event_time
        cells: dict[str, Any] = {}
        if not stream.is_static:
            cells[word] = time_for_people(row[stream.event_time])
        for column, value in row.items():
            if column == stream.event_time or (value is None and not self.with_nulls):
                continue
            is_time = value is not None and columns[column].type is Type.TIMESTAMP
            cells[column] = time_for_people(value) if is_time else value
        return _mapping(cells)


def _mapping(cells: Mapping[str, Any]) -> str:
    return f"{{{', '.join(f'{_text(name)}: {_text(value)}' for name, value in cells.items())}}}"


def _text(value: object) -> str:
    """Return a value as YAML: plain where that is a text, in quotes otherwise."""
    if isinstance(value, datetime):
        value = time_for_people((value - _EPOCH) // timedelta(microseconds=1))
    if isinstance(value, str) and value.replace("_", "").isalnum() and not _is_other(value):
        return value
    if isinstance(value, str) and value.endswith("Z") and value[:4].isdecimal():
        return value
    return json_line([value])[1:-1]


def _is_other(text: str) -> bool:
    """Return whether YAML reads a text without quotes as something else."""
    return text[0].isdigit() or text.casefold() in (
        "true",
        "false",
        "null",
        "yes",
        "no",
        "on",
        "off",
        "y",
        "n",
    )
