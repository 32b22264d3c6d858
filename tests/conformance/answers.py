"""Answers to cases. Each case becomes a rule, which the ordinary compiler and engine run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from cep.compiler.compile import compile_sources
from cep.engine.event_time.watermark import END_OF_TIME_US
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.errors import RuleError, Source
from cep.program.program import Program
from cep.schema.arrow_types import ARROW_TYPES
from cep.schema.stream import Field, Stream
from tests.conformance.expressions import FLAG, NUMBER, TEXT, TIME_COLUMN
from tests.conformance.reading import read_pattern
from tests.conformance.rule_text import write_rule
from tests.conformance.stages import Pattern, UntranslatableError

_BITS = 62
"""Most events that the bits of one BIGINT can name."""

_KEY, _TIME, _ORDER = "case_key", "event_time", "event_order"
_INTERNAL = frozenset((_KEY, _TIME, _ORDER, TIME_COLUMN))
_DDL = {NUMBER: "double", TEXT: "string", FLAG: "boolean"}
_NOT_SUPPORTED = "E0150"


@dataclass(frozen=True, slots=True)
class _Events:
    """The events of a case in arrival order, and its watermarks as (number of events before, watermark)."""

    rows: tuple[Mapping[str, Any], ...]
    watermarks: tuple[tuple[int, int], ...]


def answer(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a case, which `python -m tests.conformance` prints."""
    result: dict[str, Any] = {
        "name": case.get("name"), "rule": None, "matches": [], "match_ts": [], "timeouts": [],
        "error": None, "unsupported": None,
    }  # fmt: skip
    try:
        pattern = read_pattern(case["pattern"])
        events = _read_events(case)
        run = _Run(case, pattern, events)
        result["rule"] = run.rule.text
        result |= run.outcome()
    except UntranslatableError as problem:
        result["unsupported"] = str(problem)
    except RuleError as problem:
        first = next(item for item in problem.diagnostics if item.is_error)
        if first.code == _NOT_SUPPORTED:
            result["unsupported"] = f"{first.title}: {first.help}"
        else:
            result["error"] = {"code": first.code, "message": f"{first.title}: {first.label}"}
    except Exception as problem:  # noqa: BLE001 - a case never stops the command
        result["error"] = {"code": type(problem).__name__, "message": str(problem)}
    return result


def _read_events(case: Mapping[str, Any]) -> _Events:
    rows: list[Mapping[str, Any]] = []
    watermarks = []
    for item in case["events"]:
        if "watermark" in item and "id" not in item:
            watermarks.append((len(rows), int(item["watermark"])))
        else:
            rows.append(item)
    return _Events(tuple(rows), tuple(watermarks))


class _Run:
    """One run of a case through the compiler and the engine."""

    def __init__(self, case: Mapping[str, Any], pattern: Pattern, events: _Events) -> None:
        self.case = case
        self.events = events
        if case.get("arrivalOrder"):
            self.events = _in_arrival_order(events, pattern)
        self.kinds = _kinds(events.rows)
        self.n_words = (len(events.rows) + _BITS - 1) // _BITS
        self.rule = write_rule(pattern, self.kinds, len(events.rows), self.n_words)

    def _stream(self) -> Stream:
        fields = [
            Field(_KEY, "bigint"),
            Field(_TIME, "timestamp"),
            Field(_ORDER, "double"),
            Field(TIME_COLUMN, "double"),
        ]
        fields += [Field(f"event_bits{word}", "bigint") for word in range(self.n_words)]
        fields += [Field(name, _DDL[kind]) for name, kind in self.kinds.items()]
        return Stream("events", tuple(fields), _TIME, (_ORDER,) if self.case.get("sortBy") else ())

    def _table(self) -> pa.Table:
        rows = self.events.rows
        sort_by = self.case.get("sortBy")
        columns: dict[str, list[Any]] = {
            _KEY: [0] * len(rows),
            _TIME: [int(row["ts"] * 1000) for row in rows],
            _ORDER: [_double(row.get(sort_by)) if sort_by else None for row in rows],
            TIME_COLUMN: [float(row["ts"]) for row in rows],
        }
        for word in range(self.n_words):
            columns[f"event_bits{word}"] = [
                1 << (place % _BITS) if place // _BITS == word else 0 for place in range(len(rows))
            ]
        for name, kind in self.kinds.items():
            values = [row.get(name) for row in rows]
            columns[name] = [_double(value) for value in values] if kind == NUMBER else values
        types = {field.name: ARROW_TYPES[field.type] for field in self._stream().fields}
        return pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})

    def outcome(self) -> dict[str, Any]:
        """Return the matches and timeouts."""
        stream = self._stream()
        (program,) = compile_sources([Source("case", self.rule.text)], {stream.name: stream}).programs
        matches: dict[str, Any] = {"matches": [], "match_ts": [], "timeouts": []}
        for row in _rows(self._feed(program)):
            taken = self._taken(row)
            if row.get("outcome", "match") == "match":
                matches["matches"].append(taken)
                matches["match_ts"].append(row["match_end"] // 1000)
            else:
                matches["timeouts"].append({"match": taken, "ts": row["match_end"] // 1000})
        return matches

    def _feed(self, program: Program) -> Iterator[pa.Table]:
        matcher = Matcher(program)
        table = self._table()
        done = 0
        for n_before, watermark in self.events.watermarks:
            matcher.push(prepare(program, table.slice(done, n_before - done)))
            done = n_before
            yield matcher.advance(watermark * 1000)
        matcher.push(prepare(program, table.slice(done)))
        yield matcher.advance(self._last_watermark_us())

    def _last_watermark_us(self) -> int:
        last = self.case.get("finalWatermark", "max")
        if last == "max":
            return END_OF_TIME_US
        if last == "last":
            return max((int(row["ts"] * 1000) for row in self.events.rows), default=0)
        return int(last * 1000)

    def _taken(self, row: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return the ids of the events of a match for each stage, in the order of matching."""
        rows = self.events.rows
        sort_by = self.case.get("sortBy")

        def place(number: int) -> tuple[Any, ...]:
            return rows[number]["ts"], _double(rows[number].get(sort_by)) or 0.0 if sort_by else 0.0, number

        places: dict[str, list[int]] = {}
        for number, (_, stage) in enumerate(self.rule.variables):
            words = [row[f"taken_{number}_{word}"] or 0 for word in range(self.n_words)]
            places.setdefault(stage, []).extend(
                bit + _BITS * at for at, word in enumerate(words) for bit in range(_BITS) if word >> bit & 1
            )
        return {
            stage: [rows[one]["id"] for one in sorted(found, key=place)]
            for stage, found in places.items()
            if found
        }


def _rows(tables: Iterator[pa.Table]) -> Iterator[Mapping[str, Any]]:
    for table in tables:
        names = [name for name in table.column_names if pa.types.is_timestamp(table.column(name).type)]
        for name in names:
            table = table.set_column(
                table.column_names.index(name), name, table.column(name).cast(pa.int64())
            )
        yield from table.to_pylist()


def _kinds(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the kind of each field, without the fields that are null in all events."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, value in row.items():
            if name in ("id", "ts") or value is None:
                continue
            kind = FLAG if isinstance(value, bool) else NUMBER if isinstance(value, int | float) else TEXT
            if kinds.setdefault(name, kind) != kind:
                raise UntranslatableError(f"the field {name} has several types: a column has one")
            if name in _INTERNAL or name.startswith("event_bits"):
                raise UntranslatableError(f"the name {name} is the adapter's own")
    return kinds


def _double(value: Any) -> float | None:
    return None if value is None else float(value)


def _in_arrival_order(events: _Events, pattern: Pattern) -> _Events:
    """Return the events with their numbers as times, so that they stay in the order of arrival."""
    times = [row["ts"] for row in events.rows]
    if times == sorted(times):
        return events
    limits = [
        pattern.window_ms,
        *(limit for s in pattern.every_stage() for limit in (s.gap_ms, s.repeat_gap_ms)),
    ]
    if any(limits) or events.watermarks:
        raise UntranslatableError("events out of order with a window: a rule orders events by their time")
    return _Events(tuple({**row, "ts": place} for place, row in enumerate(events.rows)), ())
