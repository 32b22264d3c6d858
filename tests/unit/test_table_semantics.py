"""The examples of "Tables" in docs/language/semantics/tables.md, on oracle and engine, in several ways."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import check_sources, compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.predicates import prepare
from cep.engine.prepare.versions import prepared_versions
from cep.errors import Source
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.oracle import find_matches as find_matches_slowly
from tests.pages import DOCS

PAGE = (DOCS / "language/semantics/tables.md").read_text()
SECOND_US = 1_000_000
RULE = """RULE r FROM events JOIN rows ON key PARTITION BY key PATTERN a
DEFINE a AS TRUE MEASURES a.rows.x AS x, a.at AS at MATCH ALL"""
EVENTS = Stream("events", (Field("key", "string"), Field("at", "timestamp")), "at")


@dataclass(frozen=True)
class Example:
    versions: tuple[dict[str, Any], ...]
    tie_break: tuple[str, ...]
    events: tuple[int, ...]
    values: tuple[int | None, ...]

    @property
    def table(self) -> Stream:
        fields = (
            *(Field("key", "string"), Field("at", "timestamp"), Field("op", "string")),
            *(Field("x", "bigint"), Field("n", "bigint")),
        )
        settings = TableSettings(("key",), TableKind.CHANGELOG, "op")
        return Stream("rows", fields, "at", self.tie_break, table=settings)

    @property
    def streams(self) -> dict[str, Stream]:
        return {"events": EVENTS, "rows": self.table}

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [{"key": "k", "at": second * SECOND_US} for second in self.events]


def _number(text: str | None) -> int | None:
    return None if text in (None, "NULL") else int(text)


def _version(text: str) -> dict[str, Any]:
    found = re.fullmatch(r"(?:x=(?P<x>\w+)|deleted)(?: n=(?P<n>\d+))? @(?P<at>\d+)", text)
    assert found is not None, text
    return {
        "key": "k",
        "at": int(found["at"]) * SECOND_US,
        "op": "d" if text.startswith("deleted") else "u",
        "x": _number(found["x"]),
        "n": _number(found["n"]),
    }


def _example(text: str) -> Example:
    lines = dict(line.split(": ") for line in text.strip().splitlines())
    return Example(
        tuple(_version(part) for part in lines["versions"].split(", ")),
        tuple(lines.get("tie_break", "").split()),
        tuple(map(int, lines["events"].split())),
        tuple(map(_number, lines["x"].split())),
    )


(BLOCK,) = re.findall(r"^```tables\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
each = pytest.mark.parametrize("example", [_example(text) for text in BLOCK.split("\n\n")])


@each
def test_the_oracle_finds_the_values(example: Example) -> None:
    rules, problems = check_sources([Source("r.cep", RULE)], example.streams)
    assert not [problem for problem in problems if problem.is_error]
    tables = {"rows": (example.table, example.versions)}
    found = find_matches_slowly(rules[0], EVENTS, example.rows, tables)
    assert tuple(match.measures["x"] for match in found) == example.values


@each
def test_the_engine_finds_the_values(example: Example) -> None:
    rows = {"events": example.rows, "rows": example.versions}
    assert tuple(match["x"] for match in find_matches(RULE, example.streams, rows)) == example.values


@each
def test_the_engine_finds_them_instant_by_instant_restored_after_each(example: Example) -> None:
    (program,) = compile_sources([Source("r.cep", RULE)], example.streams).programs
    matcher = Matcher(program)
    found = []
    for instant in sorted({row["at"] for row in (*example.versions, *example.rows)}):
        versions = [row for row in example.versions if row["at"] == instant]
        events = [row for row in example.rows if row["at"] == instant]
        matcher.push(prepare(program, event_table(EVENTS, events)))
        for table in prepared_versions(program, example.table, event_table(example.table, versions)):
            matcher.push(table)
        found.append(matcher.advance(instant))
        matcher = Matcher.restore(program, matcher.snapshot())
    found.append(matcher.finish())
    assert tuple(pa.concat_tables(found).column("x").to_pylist()) == example.values


def test_in_asks_for_a_column_of_a_table_at_the_events_taken() -> None:
    rule = """RULE r FROM events JOIN rows ON key PARTITION BY key PATTERN a->{2} -> b WITHIN 1 HOUR
    DEFINE a AS rows.n = 0, b AS rows.x IN (a.rows.x) MEASURES b.at AS at"""
    table = Example((), (), (), ()).table
    versions = [
        {"key": "k", "at": second * SECOND_US, "op": "u", "x": x, "n": n}
        for second, x, n in ((1, 7, 0), (2, 8, 0), (3, 9, 1), (5, 8, 1))
    ]
    events = [{"key": "k", "at": second * SECOND_US} for second in (1, 2, 3, 4, 5)]
    streams = {"events": EVENTS, "rows": table}
    found = find_matches(rule, streams, {"events": events, "rows": versions})
    assert [match["match_end"].second for match in found] == [5]
