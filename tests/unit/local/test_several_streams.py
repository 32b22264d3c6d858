"""Local runs over several streams, and with keys that differ per variable: what is late, what is counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.local.match_file import Result, match_file
from cep.schema.stream import Field, Stream

FIELDS = (Field("id", "bigint"), Field("card", "string"), Field("other", "string"), Field("ts", "timestamp"))
PAYMENTS = Stream("payments", FIELDS, "ts", ("id",), lateness_us=10_000_000, deduplicate=True)
REFUNDS = Stream("refunds", FIELDS, "ts", ("id",), lateness_us=20_000_000)
STREAMS = {"payments": PAYMENTS, "refunds": REFUNDS}
BACK = """
RULE back FROM refunds, payments PARTITION BY payments.card = refunds.other PATTERN a -> b WITHIN 1 MINUTE
DEFINE a ON payments AS id > 0, b ON refunds AS id > 0 MEASURES a.id AS paid, b.id AS returned
"""
LINKED = """
RULE linked FROM payments PARTITION BY person PATTERN a -> b WITHIN 1 MINUTE
DEFINE a BY card AS id > 0, b BY other AS id > 0 MEASURES a.id AS first_id, b.id AS second_id
AFTER MATCH SKIP TO NEXT EVENT
"""

Event = tuple[int, str | None, str | None, int]
"""id, card, other, second."""


def write(folder: Path, name: str, events: list[Event]) -> Path:
    lines = [
        {"id": number, "card": card, "other": other, "ts": f"2024-05-01T10:{at // 60:02}:{at % 60:02}"}
        for number, card, other, at in events
    ]
    (folder / f"{name}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / f"{name}.json"


def run(folder: Path, text: str, events: dict[str, list[Event]], **options: Any) -> Result:
    programs = compile_sources([Source("rules", text)], STREAMS).rule_set
    return match_file(programs, {name: write(folder, name, part) for name, part in events.items()}, **options)


def measures(result: Result, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in result.matches.to_pylist()]


def test_complete_inputs_meet_in_order_of_time_then_of_declaration(tmp_path: Path) -> None:
    events: dict[str, list[Event]] = {
        "refunds": [(1, "x", "c", 30), (2, "x", "c", 5)],
        "payments": [(3, "c", None, 30), (4, "d", None, 0)],
    }
    assert measures(run(tmp_path, BACK, events), "card", "paid", "returned") == [("c", 3, 1)]


def test_there_is_one_watermark_for_all_streams_with_the_largest_lateness(tmp_path: Path) -> None:
    events: dict[str, list[Event]] = {
        "payments": [(1, "c", None, 100), (2, "c", None, 80), (3, "c", None, 81)],
        "refunds": [(4, None, "c", 101), (5, None, "c", 81), (6, None, "c", 82)],
    }
    result = run(tmp_path, BACK, events, as_stream=True)
    late = {stream.name: table.column("id").to_pylist() for stream, table in result.late.items()}
    assert late == {"payments": [2], "refunds": [5]}
    assert result.counts.late == 2
    assert measures(result, "paid", "returned") == [(3, 6), (1, 4)]


def test_an_event_in_two_partitions_is_counted_once_however_it_is_counted(tmp_path: Path) -> None:
    events: list[Event] = [
        (1, "p", "q", 100), (1, "p", "q", 100), (2, "q", "p", 101), (3, "p", "p", 102),
        (4, None, "p", 103), (5, None, None, 104), (6, "p", "q", 40),
    ]  # fmt: skip
    result = run(tmp_path, LINKED, {"payments": events}, as_stream=True)
    counts = result.counts
    assert (counts.events, counts.malformed, counts.late, counts.duplicates) == (6, 1, 1, 1)
    assert result.dead_letters.column("reason").to_pylist() == ["key is NULL: `card`, `other`"]
    assert sorted(measures(result, "person", "first_id", "second_id")) == [("p", 1, 2), ("p", 3, 4)]


def test_every_stream_needs_an_input_and_every_input_a_stream(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="reads stream `payments`, there is no input for it"):
        run(tmp_path, BACK, {"refunds": []})
    with pytest.raises(InputError, match="no rule reads a stream `refunds`"):
        run(tmp_path, LINKED, {"payments": [], "refunds": []})
