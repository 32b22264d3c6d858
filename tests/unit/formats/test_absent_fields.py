"""A declared field that no event has is named, with what the events have instead."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cep.counts import Counts
from cep.formats.ahead import AheadGuard
from cep.formats.files import read_events
from cep.formats.intake import count_chunk
from cep.formats.payloads.debezium import DebeziumFormat
from cep.formats.text.json_lines import JSON_LINES
from cep.formats.text.messages import MessageReader, Messages
from cep.local.match_file import match_file
from cep.output.summary import loss_lines, summary_lines
from cep.rule_set import RuleSet
from cep.rulebook import compile_rulebook, load_rulebook
from cep.schema.stream import Field, Stream

FIELDS = (
    Field("ts", "timestamp"),
    Field("k", "string"),
    Field("Speed", "double"),
    Field("card", "string", path=("n", "card_id")),
)
STREAM = Stream("e", FIELDS, "ts")
EVENT = {"ts": "2024-05-01T10:00:00Z", "k": "a"}


def counted(
    path: Path, lines: Sequence[object], stream: Stream = STREAM, block_bytes: int = 1 << 20
) -> Counts:
    file = path / "e.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = Counts()
    for chunk in read_events(file, stream, block_bytes=block_bytes):
        counts.add(count_chunk(chunk, stream))
    return counts


def told(counts: Counts, read: set[tuple[str, str]] | None = None) -> list[str]:
    lines = summary_lines(counts, 0.0, {"e": STREAM}, "", read or set())
    at = next((number for number, line in enumerate(lines) if line.startswith("absent")), len(lines))
    return [" ".join(line.split()) for line in lines[at:-1]]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"speed": 1}, "the data have `speed`: upper and lower case count; declare field: speed"),
        ({"Speed ": 1}, 'the data have `Speed `, with blanks; declare field: "Speed "'),
        ({"Spede": 1}, "did you mean `Spede`? Declare field: Spede"),
        ({"x": 1}, "the data have `ts`, `k`, `n`, `x`"),
    ],
)
def test_the_nearest_name_is_said(tmp_path: Path, more: dict[str, object], text: str) -> None:
    counts = counted(tmp_path, [{**EVENT, "n": {"card_id": 1}, **more}, {**EVENT, **more}, "no object"])
    assert counts.events == 1  # the card of the first is no text
    counts = counted(tmp_path, [{**EVENT, "n": {"card_id": "c"}, **more}, {**EVENT, **more}, "no object"])
    assert counts.absent_columns == [("e", "Speed")]
    expected = f"field `Speed` is in none of 2 events; {text}"
    assert told(counts, {("e", "Speed")}) == [f"absent fields 1 {expected}"]
    assert told(counts) == [f"absent fields 1 {expected}; no rule reads it"]


def test_a_field_inside_another_is_looked_for_there(tmp_path: Path) -> None:
    for inside, text in (
        (
            {"n": {"Card_id": "c"}},
            "the data have `Card_id`: upper and lower case count; declare field: n.Card_id",
        ),
        ({"N": {"card_id": "c"}}, "the data have `N`: upper and lower case count; declare field: N.card_id"),
        ({}, "the data have `ts`, `k`, `Speed`"),
    ):
        counts = counted(tmp_path, [{**EVENT, "Speed": 1, **inside}] * 40)
        assert told(counts, {("e", "card")}) == [
            "absent fields 1 field `n.card_id` is in none of 10 events that were examined, "
            f"and NULL in all 40; {text}"
        ]


@pytest.mark.parametrize("block_bytes", [1, 100, 1 << 20])
def test_an_explicit_null_or_one_value_is_enough(tmp_path: Path, block_bytes: int) -> None:
    whole = {**EVENT, "Speed": None, "n": {"card_id": None}}
    assert counted(tmp_path, [whole] * 50, block_bytes=block_bytes).absent_columns == []
    assert counted(tmp_path, [{**whole, "n": None}] * 50, block_bytes=block_bytes).absent_columns == []
    one = [{**EVENT, "n": {"card_id": "c"}}] * 50 + [{**EVENT, "Speed": 1.5}]
    assert counted(tmp_path, one, block_bytes=block_bytes).absent_columns == []
    none = [{**EVENT, "n": {"card_id": "c"}}] * 50
    assert counted(tmp_path, none, block_bytes=block_bytes).absent_columns == [("e", "Speed")]


def test_events_without_their_time_or_key_are_named_too(tmp_path: Path) -> None:
    counts = counted(
        tmp_path, [{"Ts": "2024-05-01T10:00:00Z", "k": "a", "Speed": 1, "n": {"card_id": "c"}}] * 3
    )
    assert (counts.events, counts.malformed) == (0, 3)
    text = "the data have `Ts`: upper and lower case count; declare field: Ts"
    assert told(counts, {("e", "ts")}) == [f"absent fields 1 field `ts` is in none of 3 events; {text}"]


def test_messages_and_envelopes_are_looked_at(tmp_path: Path) -> None:
    rows = [{**EVENT, "speed": 1, "n": {"card_id": "c"}}] * 3
    key = Field("key", "string")
    stream = Stream("e", (*FIELDS, key), "ts")
    for value_format, values in (
        (JSON_LINES, rows),
        (DebeziumFormat(), [{"op": "c", "before": None, "after": row} for row in rows]),
        (
            DebeziumFormat(),
            [{"schema": {}, "payload": {"op": "d", "before": row, "after": None}} for row in rows],
        ),
    ):
        reader = MessageReader(stream, value_format, columns=["key"])
        given = [json.dumps(value).encode() for value in values]
        messages = Messages("t[0]", given, np.arange(3), {"key": pa.nulls(3, pa.string())})
        chunk = reader.chunk(messages, AheadGuard(stream.max_ahead_us))
        assert chunk.dead_letters.to_pylist() == []
        assert dict(chunk.absent) == {
            "Speed": "the data have `speed`: upper and lower case count; declare field: speed"
        }


def rules_of(folder: Path) -> RuleSet:
    (folder / "streams.yaml").write_text(
        "streams:\n  e:\n    event_time: ts\n"
        "    schema: {ts: timestamp, k: string, x: double, y: double, z: int}\n"
        "tables:\n  t: {key: k, static: true, schema: {k: string, Lim: double, w: double}}\n"
    )
    (folder / "r.cep").write_text(
        "RULE r FROM e JOIN t ON k PARTITION BY k PATTERN a -> b\n"
        "DEFINE a AS x > t.Lim, b AS k <> 'none' MEASURES b.y AS y"
    )
    return compile_rulebook(load_rulebook([folder / "r.cep"])).rule_set


def test_columns_that_rules_read_are_known(tmp_path: Path) -> None:
    rules = rules_of(tmp_path)
    columns = {("e", "ts"), ("e", "k"), ("e", "x"), ("e", "y"), ("t", "k"), ("t", "Lim")}
    assert rules.read_columns == columns
    (tmp_path / "e.jsonl").write_text(json.dumps({**EVENT, "x": 1, "Y": 2}) + "\n")
    (tmp_path / "t.jsonl").write_text('{"k":"a","lim":1}\n')
    counts = match_file(rules, {"e": tmp_path / "e.jsonl", "t": tmp_path / "t.jsonl"}).counts
    assert counts.absent_columns == [("e", "y"), ("e", "z"), ("t", "Lim"), ("t", "w")]
    lines = [" ".join(line.split()) for line in loss_lines(counts, rules.inputs, "", rules.read_columns)]
    assert lines == [
        "absent fields 2 field `y` is in none of 1 event; the data have `Y`: upper and lower case count; "
        "declare field: Y",
        "field `Lim` is in none of 1 event; the data have `lim`: upper and lower case count; "
        "declare field: lim",
    ]


def test_counts_travel_as_json_and_add_up() -> None:
    one = Counts(records={"e": 2}, absent={"e: x": 2}, looked_at={"e": 2}, instead={"e: x": "first"})
    other = Counts(records={"e": 3}, absent={"e: x": 3}, looked_at={"e": 3}, instead={"e: x": "second"})
    one.add(Counts.of_json(other.to_json()))
    assert (one.absent_columns, one.instead, one.looked_at) == ([("e", "x")], {"e: x": "first"}, {"e": 5})
    one.add(Counts(records={"e": 1}))
    assert one.absent_columns == []
