"""A test of a reported alert: its match, and the events without which it is not reported."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cep.arrays import Mask
from cep.errors import InputError, RuleError, Source, Span
from cep.expression import Type
from cep.local.replay import time_of
from cep.output.rows import json_line
from cep.program.program import MATCH
from cep.rule_set import KIND, REVISION, RuleSet
from cep.rule_tests.cases import Arrival, Case, RuleTests
from cep.rule_tests.checking import check_case
from cep.rule_tests.delivery import Row, matches_of
from cep.rule_tests.reading import read_test_text
from cep.schema.stream import Stream
from cep.schema.time_literals import time_for_people
from cep.settings.source_file import source_of
from cep.settings.yaml_document import MAX_BYTES

MOST_RUNS = 2_000
"""Runs of the rules in which events are left out."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NOWHERE = Span(0, 0)
_FIRST: dict[str, Any] = {REVISION: 0, KIND: MATCH}
"""What rows of matches have only beside a view, or with corrections."""

_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
"""Signs that end a line in YAML and not in JSON: a text with one would be read with a space."""

_PLAIN_NAME = re.compile(r"[\w./-]+")
"""Names of files that YAML reads without quotes."""

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


def head_of(files: Sequence[str], rule: str = "") -> str:
    """Return the first lines of a test file of rule files; with `rule`, only its matches are compared."""
    names = [name if _PLAIN_NAME.fullmatch(name) else json_line([name])[1:-1] for name in files]
    head = f"rules: {names[0] if len(names) == 1 else '[' + ', '.join(names) + ']'}\n"
    return head + (f"rule: {_text(rule)}\n" if rule else "") + "cases:\n"


def with_recorded(
    file: Source,
    rules: RuleSet,
    match: Mapping[str, Any],
    tables: Mapping[str, pa.Table],
    streams: str | Path | None = None,
) -> tuple[str, Case]:
    """Return the text of a test file with the case of a match added at its end, and this case.

    The case passes: it expects the matches of all rules that the file compares, in the events that the match
    needs. `rules`: the rule of the match, and the rules that it reads. `tables`: the typed events and rows of
    each of their streams and tables. `streams`: the streams file, if it was given.

    Raises InputError (E0676): the rules do not report the match in these events, or not as the file sets them
    up. RuleError: the file is wrong, or the matches depend on how the events arrive (E0675).
    """
    items = _reported(rules, match, tables)
    if items is None:
        raise InputError(
            "E0676",
            f"the rules do not report match {match['match_id']} in these events",
            "give the events and the rules with which it was reported",
        )
    name = f"alert {str(match['match_id'])[:8]}"
    if f"  {name}:" in file.text.split("\n"):
        raise InputError(
            "E0676", f"`{file.name}` has a test of match {match['match_id']}", "remove it there first"
        )
    kept = _fewest(items, lambda some: _is_reported(rules, match, tables, some))

    def read(events: Sequence[str], expected: Sequence[str]) -> tuple[str, RuleTests]:
        lines = [f"  {name}:", *events, f"    expect:{'' if expected else ' none'}", *expected, ""]
        text = file.text + ("" if file.text.endswith("\n") else "\n") + "\n".join(lines)
        return text, read_test_text(source_of(file.name, text.encode(), MAX_BYTES), streams)

    _, tests = read(["    events: []"], [])
    if match["rule"] not in tests.names:
        raise InputError(
            "E0676",
            f"`{file.name}` does not compare the matches of `{match['rule']}`",
            "correct its settings `rule` and `rules`, or remove them",
        )
    of_file = tests.compiled.rule_set  # which may read more streams
    events = list(_Lines(of_file, tables, with_nulls="defaults:" in file.text).lines(kept))
    _, tests = read(events, [])
    found = matches_of(of_file, tests.names, tests.cases[-1])
    if not _has(found, match):
        raise InputError(
            "E0676",
            f"the rules do not report match {match['match_id']} as `{file.name}` sets them up",
            "compare its `parameters`, `tables`, `defaults` and `streams` with those of the run",
        )
    left_out = {"match_id"} | ({"rule"} if len(tests.names) == 1 else set())
    shown = [{name: value for name, value in row.items() if name not in left_out} for row in found]
    text, tests = read(events, [f"      - {_mapping(row)}" for row in shown])
    if problems := check_case(tests, tests.cases[-1]):
        raise RuleError(problems)
    return text, tests.cases[-1]


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
    return _has(matches_of(rules, [match["rule"]], _case(rules, tables, items)), match)


def _has(found: Sequence[Row], match: Mapping[str, Any]) -> bool:
    """Return whether a match is among those that were found, with all its values."""
    rows = (row for row in found if row["match_id"] == match["match_id"])
    return any(_FIRST | json.loads(json_line(row)) == {**_FIRST, **match} for row in rows)


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
    """Writes the rows and events of a case; `rules`: those of its file."""

    rules: RuleSet
    tables: Mapping[str, pa.Table]
    with_nulls: bool

    def lines(self, items: Sequence[Item]) -> Iterator[str]:
        """Yield the lines of these rows and events."""
        of_tables = [item for item in items if self.rules.inputs[item[0]].table is not None]
        yield from ["    tables:"] if of_tables else []
        for name in dict.fromkeys(name for name, _ in of_tables):
            yield f"      {name}:"
            yield from (f"        - {self._row(of, row)}" for of, row in of_tables if of == name)
        events = sorted((item for item in items if item not in of_tables), key=self._time)
        yield f"    events:{'' if events else ' []'}"
        for name, row in events:
            text = self._row(name, row)
            yield f"      - {text}" if len(self.rules.streams) == 1 else f"      - {_text(name)}: {text}"

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
    return _LINE_ENDS.sub(lambda sign: f"\\u{ord(sign[0]):04x}", json_line([value])[1:-1])


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
