"""The events of a test file (rows, a CSV block or a file) with relative times -> typed events.

The values of all rows of a stream are converted column by column, as from a CSV file.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from cep.diagnostics.diagnostic import did_you_mean
from cep.engine.event_time.watermark import START_OF_TIME_US
from cep.engine.prepare.columns import plain_table
from cep.engine.prepare.device_clocks import first_guard
from cep.errors import InputError, Span
from cep.expression import Type
from cep.formats.files import read_events
from cep.rule_set import RuleSet
from cep.rule_tests.cases import Advance, Arrival, Step
from cep.rule_tests.delivery import lag_of
from cep.schema.arrow_columns import word_of
from cep.schema.stream import Field, Stream
from cep.schema.text_values import column_from_text, event_table_schema
from cep.schema.time_literals import parse_duration, parse_timestamp, print_duration, time_for_people
from cep.settings.yaml_document import Document, is_null, span_of


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as it is written, and its place; None: NULL."""

    text: str | None
    span: Span


Cells = Mapping[str, Cell]
"""Values by the name of their column."""


@dataclass(frozen=True, slots=True)
class _Row:
    """An event as it is written: `at`, `after` and `late` are among its cells if no column has this name."""

    stream: Stream
    cells: dict[str, Cell]
    span: Span


@dataclass(slots=True)
class _Gathered:
    """The events of a case so far."""

    rows: dict[str, list[_Row]] = field(default_factory=dict)
    times_us: dict[str, list[int]] = field(default_factory=dict)
    of_files: dict[str, pa.Table] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    before_us: int = 0


def relative_us(text: str) -> int | None:
    """Return the microseconds of ``5 minutes``, ``-30 days`` or ``0``; None: it is not a duration."""
    sign, text = (-1, text[1:].strip()) if text.startswith("-") else (1, text)
    length_us = 0 if text == "0" else parse_duration(text)
    return None if length_us is None else sign * length_us


class EventReader:
    """Reads the events and the rows of tables of a test file.

    `start_us`: the time from which relative times count, in microseconds. `folder`: where relative paths
    start.
    """

    def __init__(self, document: Document, rules: RuleSet, start_us: int, folder: Path) -> None:
        self.document = document
        self.rules = rules
        self.start_us = start_us
        self.folder = folder
        self._lines = [0]
        for line in document.source.text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    # ------------------------------------------------------------ what a file has

    def defaults(self, node: yaml.Node) -> dict[str, Cell]:
        """Return the values that rows with such a column have unless they give another value."""
        found: dict[str, Cell] = {}
        known = {name for stream in self.rules.inputs.values() for name in _columns(stream)}
        for entry in self.document.mapping(node, "`defaults`") or []:
            if entry.name not in known:
                title = f"no stream of these rules has a column `{entry.name}`"
                advice = did_you_mean(entry.name, known, "columns")
                self.document.problem("E0407", title, entry.key, "not a column", advice)
            elif (cell := self._cell(entry.value)) is not None:
                found[entry.name] = cell
        return found

    def tables(self, nodes: Sequence[yaml.Node], defaults: Cells) -> dict[str, pa.Table]:
        """Return the rows of tables that exist from the beginning, of several mappings name -> rows."""
        found: dict[str, list[pa.Table]] = {}
        for node in nodes:
            for entry in self.document.mapping(node, "`tables`") or []:
                if entry.name not in self.rules.tables:
                    self._unknown_stream(entry.name, entry.key, self.rules.tables, "table")
                    continue
                table, gathered = self.rules.tables[entry.name], _Gathered(before_us=self.start_us)
                self._read(table, entry.value, defaults, gathered)
                found.setdefault(entry.name, []).append(self._typed(table, gathered))
        return {name: pa.concat_tables(parts) for name, parts in found.items()}

    def events(self, node: yaml.Node, defaults: Cells) -> tuple[tuple[Step, ...], dict[str, pa.Table]]:
        """Return the steps of a case, and the events to which they refer."""
        gathered = _Gathered(before_us=self.start_us)
        if isinstance(node, yaml.MappingNode):
            for entry in self.document.mapping(node, "`events`") or []:
                if (stream := self._moving(entry.name, entry.key)) is not None:
                    gathered.before_us = self.start_us
                    self._read(stream, entry.value, defaults, gathered)
            gathered.steps.sort(key=lambda step: step.time_us)
        elif isinstance(node, yaml.SequenceNode):
            for item in node.value:
                self._item(item, defaults, gathered)
        elif (only := self._only_stream(node)) is not None:
            self._read(only, node, defaults, gathered)
        names = {step.stream for step in gathered.steps if isinstance(step, Arrival)}
        events = {name: self._typed(self.rules.inputs[name], gathered) for name in sorted(names)}
        self._check_late(gathered.steps)
        return tuple(gathered.steps), events

    def _item(self, node: yaml.Node, defaults: Cells, gathered: _Gathered) -> None:
        """Read one item of the list of events: ``{...}``, ``stream: {...}`` or ``advance: 5 minutes``."""
        entries = self.document.mapping(node, "an event")
        if entries is None:
            return
        first = entries[0] if len(entries) == 1 else None
        if first is not None and first.name == "advance":
            text = self.document.text(first.value, "`advance`")
            after_us = None if text is None else relative_us(text)
            if text is not None and after_us is None:
                self._no_time(f"`{text}` is not a duration", span_of_node(self.document, first.value))
            elif after_us is not None:
                time_us = self._in_years(self.start_us + after_us, span_of_node(self.document, first.value))
                gathered.steps += [] if time_us is None else [Advance(time_us)]
            return
        if first is not None and isinstance(first.value, yaml.MappingNode):
            stream = self._moving(first.name, first.key)
            node = first.value
        else:
            stream = self._only_stream(node)
        if stream is not None and (row := self._row(stream, node, defaults)) is not None:
            self._add(row, gathered)

    def _moving(self, name: str, node: yaml.Node) -> Stream | None:
        """Return the stream, or the table with event time, of this name."""
        moving = {name: stream for name, stream in self.rules.inputs.items() if not stream.is_static}
        if name not in moving:
            self._unknown_stream(name, node, moving, "stream")
        return moving.get(name)

    def _only_stream(self, node: yaml.Node) -> Stream | None:
        streams = self.rules.streams or self.rules.tables
        if len(streams) == 1:
            return next(iter(streams.values()))
        title = "the rules read several streams: this is an event of which?"
        advice = f"write - {next(iter(streams))}: {{...}}; streams: {', '.join(streams)}"
        self.document.problem("E0671", title, node, "of which stream?", advice)
        return None

    def _unknown_stream(self, name: str, node: yaml.Node, known: Mapping[str, Stream], what: str) -> None:
        title = f"the rules read no {what} `{name}`"
        self.document.problem("E0610", title, node, f"no {what}", did_you_mean(name, known, f"{what}s"))

    # ------------------------------------------------------------ rows

    def _read(self, stream: Stream, node: yaml.Node, defaults: Cells, gathered: _Gathered) -> None:
        """Read rows, a block of CSV or a file."""
        if isinstance(node, yaml.SequenceNode):
            rows: Iterator[_Row | None] = (self._row(stream, item, defaults) for item in node.value)
        elif isinstance(node, yaml.ScalarNode) and "\n" in node.value:
            rows = self._rows_of_csv(stream, node, defaults)
        else:
            self._read_file(stream, node, gathered)
            return
        for row in rows:
            if row is not None:
                self._add(row, gathered)

    def _row(self, stream: Stream, node: yaml.Node, defaults: Cells) -> _Row | None:
        entries = self.document.settings(node, f"an event of `{stream.name}`", _known(stream))
        if entries is None:
            return None
        cells = {name: cell for name, value in entries.items() if (cell := self._cell(value)) is not None}
        return _Row(stream, _with_defaults(cells, stream, defaults), span_of_node(self.document, node))

    def _cell(self, node: yaml.Node) -> Cell | None:
        span = span_of_node(self.document, node)
        if is_null(node):
            return Cell(None, span)
        if not isinstance(node, yaml.ScalarNode):
            self.document.problem(
                "E0402", "a value must be a text or a number", node, "expected one value",
                "write one value; an array, a struct or a map as a text of JSON in quotes",
            )  # fmt: skip
            return None
        return Cell(str(node.value), span)

    def _rows_of_csv(self, stream: Stream, node: yaml.ScalarNode, defaults: Cells) -> Iterator[_Row]:
        names: list[str] = []
        for number, line in enumerate(node.value.splitlines()):
            if not line.strip():
                continue
            span = self._line(node, number)
            values = [value.strip() for value in next(csv.reader([line], skipinitialspace=True))]
            if not names:
                names = values
                for name in values:
                    if name not in _known(stream):
                        title = f"stream `{stream.name}` has no column `{name}`"
                        self._at(
                            "E0407", title, span, "no column", did_you_mean(name, _known(stream), "columns")
                        )
                continue
            if len(values) != len(names):
                title = f"{len(values)} values for {len(names)} columns"
                self._at("E0671", title, span, "another number than in the first line", "write one for each")
                continue
            cells = {name: Cell(value or None, span) for name, value in zip(names, values, strict=True)}
            yield _Row(stream, _with_defaults(cells, stream, defaults), span)

    def _line(self, node: yaml.ScalarNode, number: int) -> Span:
        """Return the place of a line of a block."""
        line = node.start_mark.line + 1 + number
        if node.style not in ("|", ">") or line + 1 >= len(self._lines):
            return span_of_node(self.document, node)
        text = self.document.source.text[self._lines[line] : self._lines[line + 1]]
        start = self._lines[line] + len(text) - len(text.lstrip())
        return Span(start, max(start + 1, self._lines[line] + len(text.rstrip())))

    def _read_file(self, stream: Stream, node: yaml.Node, gathered: _Gathered) -> None:
        text = self.document.text(node, f"the events of `{stream.name}`")
        if text is None:
            return
        try:
            chunks = list(
                read_events(
                    self.folder / text, stream, keys=self.rules.keys_of(stream), ahead=first_guard(stream)
                )
            )
        except InputError as error:
            self.document.problem(error.code, error.args[0], node, "cannot be used", error.help)
            return
        dead = [chunk.dead_letters for chunk in chunks if len(chunk.dead_letters)]
        if dead:
            first = dead[0].slice(0, 1).to_pylist()[0]
            title = f"{first['source']}:{first['position']} is no event: {first['reason']}"
            self.document.problem("E0671", title, node, "malformed", "correct the line")
        schema = event_table_schema(stream)
        table = pa.concat_tables([schema.empty_table(), *(plain_table(chunk.events) for chunk in chunks)])
        gathered.of_files[stream.name] = table
        if stream.is_static:
            return
        times = np.asarray(table.column(stream.event_time), np.int64)
        span = span_of_node(self.document, node)
        gathered.steps += [
            Arrival(stream.name, row, int(times[row]), False, span)
            for row in np.argsort(times, kind="stable").tolist()
        ]

    def _add(self, row: _Row, gathered: _Gathered) -> None:
        """Add an event with its time."""
        stream, name = row.stream, row.stream.name
        rows = gathered.rows.setdefault(name, [])
        times = gathered.times_us.setdefault(name, [])
        rows.append(row)
        if stream.is_static:
            return
        time_us = self._time_us(row, gathered.before_us)
        if time_us is None:
            rows.pop()
            return
        times.append(time_us)
        gathered.before_us = time_us
        late = None if "late" in _columns(stream) else row.cells.get("late")
        if late is not None and late.text not in ("true", "false", None):
            self._at("E0671", "`late` is true or false", late.span, "neither", "write late: true")
        is_late = late is not None and late.text == "true"
        gathered.steps.append(Arrival(name, len(rows) - 1, time_us, is_late, row.span))

    def _time_us(self, row: _Row, before_us: int) -> int | None:
        """Return the time of an event; None after a report."""
        columns, name = _columns(row.stream), row.stream.event_time
        for word, from_us in (("at", self.start_us), ("after", before_us)):
            cell = row.cells.get(word)
            if cell is None or (word in columns and word != name):
                continue
            after_us = None if cell.text is None else relative_us(cell.text)
            if after_us is not None:
                return self._in_years(from_us + after_us, cell.span)
            time_us = parse_timestamp(cell.text or "") if word == "at" else None
            if time_us is not None:
                return self._in_years(time_us, cell.span)
            if word not in columns:
                self._no_time(f"`{cell.text or ''}` is no time", cell.span)
                return None
        cell = row.cells.get(name)
        if cell is None or cell.text is None:
            self._no_time("an event without a time", row.span)
            return None
        after_us = relative_us(cell.text)
        if after_us is not None:
            return self._in_years(self.start_us + after_us, cell.span)
        before = len(self.document.diagnostics)
        column = row.stream.field(name)
        assert column is not None
        (time_us,) = self._column(column, [cell]).to_pylist()
        return self._in_years(time_us, cell.span) if len(self.document.diagnostics) == before else None

    def _typed(self, stream: Stream, gathered: _Gathered) -> pa.Table:
        """Return the rows of a stream as its typed events."""
        if stream.name in gathered.of_files:
            return gathered.of_files[stream.name]
        rows, columns = gathered.rows.get(stream.name, []), {}
        for column in stream.fields:
            if column.name == stream.event_time:
                columns[column.name] = pa.array(gathered.times_us.get(stream.name, []), pa.int64())
                continue
            cells = [row.cells.get(column.name) for row in rows]
            if column.name in stream.tie_break and column.type is Type.BIGINT and not any(cells):
                columns[column.name] = pa.array(range(1, len(rows) + 1), pa.int64())
            else:
                columns[column.name] = self._column(column, cells)
        return pa.table(columns, schema=event_table_schema(stream))

    def _column(self, column: Field, cells: Sequence[Cell | None]) -> pa.Array:
        """Return a column of values; a text of a duration is a time after `start`."""
        texts = [None if cell is None else cell.text for cell in cells]
        times: list[int | None] = [None] * len(texts)
        if column.type is Type.TIMESTAMP:
            times = [None if text is None else self._instant(text) for text in texts]
        plain = [text if time is None else None for text, time in zip(texts, times, strict=True)]
        values, bad = column_from_text(pa.array(plain, pa.string()), column)
        for place in np.flatnonzero(bad).tolist():
            cell = cells[place]
            assert cell is not None
            title = f"column `{column.name}` is {column.declared}, and `{cell.text}` is not"
            self._at("E0671", title, cell.span, "not of this type", f"write {word_of(column)}")
        if all(time is None for time in times):
            return values
        rows = zip(values.to_pylist(), times, cells, strict=True)
        return pa.array(
            [value if time is None or cell is None else self._in_years(time, cell.span)
             for value, time, cell in rows], pa.int64(),
        )  # fmt: skip

    def _instant(self, text: str) -> int | None:
        """Return the time of a duration after `start`, or of ISO 8601 in UTC, in any column of times."""
        after_us = relative_us(text)
        if after_us is not None:
            return self.start_us + after_us
        return parse_timestamp(text) if text.endswith("Z") else None

    # ------------------------------------------------------------ late

    def _check_late(self, steps: list[Step]) -> None:
        """Report each event that is late and does not say so, or says so and is not."""
        lag_us, reached_us = lag_of(self.rules), START_OF_TIME_US
        for step in steps:
            if isinstance(step, Advance):
                reached_us = max(reached_us, step.time_us)
                continue
            by_us = reached_us - step.time_us
            if by_us >= 0 and not step.is_late:
                title = f"this event is late: event time was {print_duration(by_us).lower()} past it"
                advice = "write late: true if the test is about that, or write it before the events after it"
                self._at("E0672", title, step.span, "late, so it is not counted", advice)
            elif by_us < 0 and step.is_late:
                lateness = print_duration(self.rules.lateness_us).lower()
                advice = f"remove late: true, or write it after an event that is more than {lateness} later"
                self._at("E0672", "this event is not late", step.span, "arrives in time", advice)
            if not step.is_late:
                reached_us = max(reached_us, step.time_us - lag_us)

    # ------------------------------------------------------------ problems

    def _in_years(self, time_us: int, span: Span) -> int | None:
        """Return a time that matches can have; None after a report."""
        if time_for_people(time_us) is None:
            self._at(
                "E0671", "this time is outside the years 1 to 9999", span, "no time", "write a nearer one"
            )
            return None
        return time_us

    def _no_time(self, title: str, span: Span) -> None:
        advice = "write at: 5 minutes (after `start`), or after: 10 seconds (after the event before)"
        self._at("E0671", title, span, "no time", advice)

    def _at(self, code: str, title: str, span: Span, label: str, advice: str) -> None:
        self.document.problem_at(code, title, span, label, advice)


def span_of_node(document: Document, node: yaml.Node) -> Span:
    """Return the place of a node."""
    return span_of(node, len(document.source.text))


def _columns(stream: Stream) -> set[str]:
    return {column.name for column in stream.fields}


def _known(stream: Stream) -> list[str]:
    """Return what a row may have: the columns, and when it arrives."""
    words = [] if stream.is_static else ["at", "after", "late"]
    return list(dict.fromkeys([*(column.name for column in stream.fields), *words]))


def _with_defaults(cells: dict[str, Cell], stream: Stream, defaults: Cells) -> dict[str, Cell]:
    columns = _columns(stream)
    missing = {name: cell for name, cell in defaults.items() if name in columns and name not in cells}
    return {**missing, **cells}
