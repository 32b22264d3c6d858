"""Local runs: complete input, input as a stream, several keys, counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import InputError, Source
from cep.local import Result, match_file, match_schema
from cep.program import Program
from cep.schema import Field, Stream

FIELDS = (
    Field("id", "bigint"),
    Field("card", "string"),
    Field("shop", "bigint"),
    Field("ts", "timestamp"),
    Field("amount", "double"),
)
STREAM = Stream("payments", FIELDS, "ts", ("id",), lateness_us=10_000_000, deduplicate=True)
RULES = """
RULE by_card FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS amount < 5, b AS amount > 50 MEASURES b.amount AS loss, a.id AS first_id

RULE by_shop FROM payments PARTITION BY shop PATTERN c WITHIN 1 MINUTE
DEFINE c AS amount > 50 MEASURES c.id AS loss, c.card AS seen
"""


def programs(text: str = RULES, streams: dict[str, Stream] | None = None) -> tuple[Program, ...]:
    return compile_sources([Source("test.cep", text)], streams or {"payments": STREAM}).programs


def run(tmp_path: Path, *events: tuple[int, float, int], text: str = RULES, **options: Any) -> Result:
    """Run over events of one card given as (id, amount, second)."""
    lines = [
        json.dumps(
            {
                "id": number,
                "card": "c",
                "shop": 7,
                "ts": f"2024-05-01T10:{at // 60:02}:{at % 60:02}",
                "amount": amount,
            }
        )
        for number, amount, at in events
    ]
    (tmp_path / "in.json").write_text("\n".join(lines))
    return match_file(programs(text), tmp_path / "in.json", **options)


def short(result: Result) -> list[tuple[str, str, str]]:
    return [
        (row["rule"], f"{row['match_start']:%M:%S}", f"{row['match_end']:%M:%S}")
        for row in result.matches.to_pylist()
    ]


def test_matches_of_rules_with_different_keys_are_one_ordered_table(tmp_path: Path) -> None:
    result = run(tmp_path, (1, 1.0, 0), (2, 99.0, 30))
    assert result.matches.schema == match_schema(programs())
    assert result.matches.column_names == [
        "rule", "card", "shop", "match_id", "match_start", "match_end", "loss", "first_id", "seen"
    ]  # fmt: skip
    rows = [
        {k: v for k, v in row.items() if not k.startswith("match_")} for row in result.matches.to_pylist()
    ]
    assert rows == [
        {"rule": "by_card", "card": "c", "shop": None, "loss": 99.0, "first_id": 1, "seen": None},
        {"rule": "by_shop", "card": None, "shop": 7, "loss": 2.0, "first_id": None, "seen": "c"},
    ]
    assert result.counts.matches == {"by_card": 1, "by_shop": 1}


def test_complete_input_may_be_in_any_order(tmp_path: Path) -> None:
    result = run(tmp_path, (2, 99.0, 50), (1, 1.0, 0))
    assert short(result) == [("by_card", "00:00", "00:50"), ("by_shop", "00:50", "00:50")]
    assert result.counts.late == 0


def test_as_a_stream_an_event_behind_the_lateness_is_late(tmp_path: Path) -> None:
    # The lateness is 10 seconds: after 50 an event of 41 is in time, one of 40 is not.
    result = run(tmp_path, (2, 99.0, 50), (1, 1.0, 40), (3, 1.0, 41), (4, 99.0, 42), as_stream=True)
    assert short(result) == [
        ("by_card", "00:41", "00:42"),
        ("by_shop", "00:42", "00:42"),
        ("by_shop", "00:50", "00:50"),
    ]
    assert result.counts.late == 1
    assert [row["id"] for row in result.late.to_pylist()] == [1]


def test_as_a_stream_in_order_gives_what_complete_input_gives(tmp_path: Path) -> None:
    events = [(number, float(number * 37 % 100), number * 7 % 3000) for number in range(200)]
    events.sort(key=lambda event: event[2] // 10)
    complete = run(tmp_path, *events)
    stream = run(tmp_path, *events, as_stream=True)
    assert stream.counts.late == 0
    assert stream.matches.equals(complete.matches)
    assert len(complete.matches) > 20


def test_absence_at_the_end_of_the_input_is_a_match(tmp_path: Path) -> None:
    text = """RULE silent FROM payments PARTITION BY card PATTERN a -> !b WITHIN 1 MINUTE
    DEFINE a AS amount < 5, b AS amount > 50"""
    for as_stream in (False, True):
        result = run(tmp_path, (1, 1.0, 0), text=text, as_stream=as_stream)
        assert short(result) == [("silent", "00:00", "01:00")]


def test_a_copy_is_counted_once_however_many_keys_there_are(tmp_path: Path) -> None:
    result = run(tmp_path, (1, 99.0, 0), (1, 99.0, 0), (2, 99.0, 0))
    assert result.counts.duplicates == 1
    assert result.counts.events == 3
    assert result.counts.matches == {"by_card": 0, "by_shop": 2}


def test_malformed_lines_are_counted_and_kept(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('bad\n{"ts":"2024-05-01"}\n{"ts":null}\n')
    result = match_file(programs(), tmp_path / "in.json")
    assert result.counts.malformed == 3
    assert result.counts.events == 0
    assert [(row["position"], row["reason"]) for row in result.dead_letters.to_pylist()] == [
        (1, "not a JSON object"),
        (2, "key is NULL: `card`, `shop`"),
        (3, "event time `ts` is NULL"),
    ]


def test_one_input_cannot_hold_the_events_of_two_streams(tmp_path: Path) -> None:
    streams = {"payments": STREAM, "refunds": Stream("refunds", FIELDS, "ts")}
    text = RULES + "RULE other FROM refunds PARTITION BY card PATTERN a DEFINE a AS amount > 1"
    with pytest.raises(InputError, match="the rules read 2 streams, the input has the events of one"):
        match_file(programs(text, streams), tmp_path / "in.json")
