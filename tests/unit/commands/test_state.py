"""`cep state` shows windows, tables and suppressed matches of keys, next to open runs."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import cep.commands.state
from cep.commands.cli import main
from cep.engine.chains.chain import Chain
from cep.engine.prepare.columns import plain_table
from cep.errors import Source
from cep.expression import Type
from cep.local.given_events import event_table
from cep.program.window_functions import Function
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_texts
from cep.settings.schema_file import parse_streams
from spark_runtime.event_time.reached import Reached
from spark_runtime.state.contents import StoredGroup, StoredState, programs_in
from spark_runtime.state.snapshots import encode_state

STREAMS = """
streams:
  payments:
    event_time: ts
    schema: {card: string, shop: bigint, ts: timestamp, amount: double, kind: string}
tables:
  limits:
    key: [card]
    event_time: ts
    schema: {card: string, ts: timestamp, most: double}
  shops:
    replicated: true
    key: [shop]
    event_time: ts
    schema: {shop: bigint, ts: timestamp, country: string}
"""
SECOND = 1_000_000
DAY = "2024-05-01T"

BURST = """
RULE burst FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 HOUR
DEFINE a AS amount < 5, b AS amount > 10 * AVG(amount) OVER PREVIOUS 3 EVENTS
  AND COUNT(*) FILTER (WHERE kind = 'web' AND amount > 1) OVER LAST 10 MINUTES > 5
"""
ABOVE = """
RULE above FROM payments PARTITION BY card PATTERN a -> a2 WITHIN 1 HOUR
DEFINE a AS amount > limits.most AND shops.country = 'AT', a2 AS amount > 0
JOIN limits ON card = limits.card
JOIN shops ON shop = shops.shop
"""
HOURLY = """
RULE hourly FROM payments PARTITION BY card WINDOW HOPPING 10 MINUTES EVERY 5 MINUTES
HAVING COUNT(*) > 100
MEASURES COUNT(*) AS n, MAX(amount) AS most
"""
TWICE = """
RULE twice FROM payments PARTITION BY card PATTERN a WITHIN 1 HOUR DEFINE a AS kind = 'cash'
SUPPRESS FOR 1 DAY
"""
DAILY = TWICE.replace("twice", "daily").replace("SUPPRESS FOR 1 DAY", "SUPPRESS AFTER 1 PER DAY")

BY_ALL = """
RULE all FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 HOUR
LET n = COUNT(*) OVER LAST 1 HOUR DEFINE a AS amount > 0 AND n > 0, b AS amount > 10000 MEASURES a.n AS n
"""


def payment(time: str, card: str, amount: float, kind: str = "web", shop: int = 7) -> dict[str, Any]:
    return {"card": card, "shop": shop, "ts": f"{DAY}{time}Z", "amount": amount, "kind": kind}


def at(time: str) -> int:
    hour, minute, second = map(int, time.split(":"))
    return 1_714_521_600 * SECOND + (hour * 3600 + minute * 60 + second) * SECOND


class Stored:
    """A checkpoint with one key group, as `cep state` sees it."""

    def __init__(self, patched: pytest.MonkeyPatch, *texts: str, corrections: bool = False) -> None:
        streams, problems = parse_streams(Source("streams.yaml", STREAMS))
        assert not problems
        sources = tuple(Source(f"{number}.cep", text) for number, text in enumerate(texts))
        rules: RuleSet = compile_texts(sources, streams).rule_set
        self.rules = rules.with_corrections(Corrections(60 * SECOND) if corrections else None)
        self.chain = Chain(self.rules)
        patched.setattr(cep.commands.state, "stored_state_of", lambda checkpoint: self.state())

    def push(self, name: str, *rows: dict[str, Any]) -> None:
        stream = self.rules.inputs[name]
        self.chain.push_events(stream, plain_table(event_table(stream, list(rows))))

    def state(self) -> StoredState:
        data = encode_state(self.chain.matchers, 1)
        group = StoredGroup(0, len(data), False, tuple(programs_in(data, self.rules)))
        return StoredState((), self.rules, Reached(), iter([group]))


def rows(verb: str, *words: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(main, ["state", verb, "checkpoint", *words, "--format", "json"])
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def table(verb: str, *words: str) -> str:
    result = CliRunner().invoke(main, ["state", verb, "checkpoint", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_values_of_windows_are_those_that_the_next_event_would_see(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = Stored(monkeypatch, BURST)
    stored.push(
        "payments",
        payment("10:00:00", "c1", 3),
        payment("10:05:00", "c1", 1),
        payment("10:08:00", "c1", 8),
        payment("10:08:00", "c1", 9, "cash"),
        payment("10:08:00", "c2", 900),
    )
    stored.chain.advance(at("10:09:00"), lambda matches: None)
    average, count = (
        "AVG(amount) OVER PREVIOUS 3 EVENTS",
        ("COUNT(*) FILTER (WHERE kind = 'web' AND amount > 1.0) OVER LAST 10 MINUTES"),
    )
    shown = [row for row in rows("show", "c1") if "windowed_value" in row]
    assert {row["windowed_value"]: row["value"] for row in shown} == {average: 6.0, count: 2}
    assert {row["rules"] for row in shown} == {"burst"}
    stored.chain.advance(at("10:10:00"), lambda matches: None)  # the first event leaves the window then
    shown = [row for row in rows("show", "c1") if "windowed_value" in row]
    assert {row["windowed_value"]: row["value"] for row in shown} == {average: 6.0, count: 1}
    assert [row["started"] for row in rows("show", "c1") if "rule" in row] == [
        f"{DAY}10:00:00Z",
        f"{DAY}10:05:00Z",
    ]
    assert {row["windowed_value"]: row["value"] for row in rows("show", "c2") if "windowed_value" in row} == {
        average: 900.0,
        count: 1,
    }
    sizes = {row["windows"]: row for row in rows("ls") if "windows" in row}
    assert (sizes[average]["keys"], sizes[average]["entries"]) == (2, 4), "what the next events see"
    assert sizes[average]["bytes"] > 0
    (rule,) = (row for row in rows("ls") if "rule" in row)
    assert rule["bytes"] > 0
    heaviest = [row for row in rows("top") if row.get("windows") == average]
    assert [(row["key"], row["entries"]) for row in heaviest] == [({"card": "c1"}, 3), ({"card": "c2"}, 1)]


def test_open_windows_of_window_rules_have_their_values_so_far_whatever_having_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = Stored(monkeypatch, HOURLY)
    stored.push(
        "payments",
        payment("10:01:00", "c1", 3),
        payment("10:07:00", "c1", 8),
        payment("10:07:00", "c2", 900),
    )
    stored.chain.advance(at("10:08:00"), lambda matches: None)
    expected = [
        ("10:00:00", "10:10:00", {"n": 2, "most": 8.0}),
        ("10:05:00", "10:15:00", {"n": 1, "most": 8.0}),
    ]
    for _ in range(2):  # showing changes nothing
        shown = [(row["from"][11:19], row["to"][11:19], row["so_far"]) for row in rows("show", "c1")]
        assert shown == expected
    assert "n = 2, most = 8.0" in table("show", "c1")


def test_rows_of_tables_by_the_key_are_shown_also_of_a_key_without_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = Stored(monkeypatch, ABOVE)
    limit = {"card": "c1", "ts": f"{DAY}09:00:00Z", "most": 50.0}
    stored.push("limits", limit, {**limit, "ts": f"{DAY}09:30:00Z", "most": 60.0}, {**limit, "card": "c9"})
    stored.push("shops", {"shop": 7, "ts": f"{DAY}09:00:00Z", "country": "AT"})
    stored.push("payments", payment("10:00:00", "c1", 70))
    stored.chain.advance(at("10:00:00"), lambda matches: None)
    assert [row for row in rows("show", "c1") if "row_of" in row] == [
        {"row_of": "limits", "holds": {"most": 60.0}}
    ]
    assert rows("show", "c9") == [{"row_of": "limits", "holds": {"most": 50.0}}]
    assert table("show", "c3") == "nothing of this key\n"
    assert table("show", "c1,c2") == "nothing of this key: a key has one column, `card`\n"
    assert {row["table"]: row["rows"] for row in rows("ls") if "table" in row} == {"limits": 2, "shops": 1}


def test_a_key_with_another_number_of_values_is_told_which_columns_keys_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_two = TWICE.replace("PARTITION BY card", "PARTITION BY card, shop")
    stored = Stored(monkeypatch, of_two)
    stored.push("payments", payment("10:00:00", "c1", 3, "cash"))
    assert table("show", "c1") == "nothing of this key: a key has 2 columns, `card, shop`\n"
    assert table("show", "c2,7") == "nothing of this key\n"
    stored = Stored(monkeypatch, of_two, DAILY)
    told = "nothing of this key: a key has one column, `card`, or 2 columns, `card, shop`\n"
    assert table("show", "c1,7,8") == told


@pytest.mark.parametrize("corrections", [False, True])
def test_suppressed_matches_are_shown_until_they_are_reported_again(
    monkeypatch: pytest.MonkeyPatch, corrections: bool
) -> None:
    stored = Stored(monkeypatch, TWICE, DAILY, corrections=corrections)
    stored.push("payments", payment("10:00:00", "c1", 3, "cash"), payment("10:00:00", "c2", 3))
    stored.chain.advance(at("10:05:00"), lambda matches: None)
    shown = {row["suppressed"]: row["until"] for row in rows("show", "c1") if "suppressed" in row}
    assert shown == {"twice": "2024-05-02T10:00:00Z", "daily": "2024-05-02T00:00:00Z"}
    assert not [row for row in rows("show", "c2") if "suppressed" in row]


FRAMES = (
    *("PREVIOUS 3 EVENTS", "PREVIOUS 20 SECONDS", "LAST 20 SECONDS", "LAST 20 SECONDS BY 5 SECONDS"),
    *("TUMBLING 30 SECONDS", "SESSION 10 SECONDS", "ALL"),
)


@pytest.mark.parametrize("frame", FRAMES)
def test_each_function_has_the_value_that_the_next_event_sees(
    monkeypatch: pytest.MonkeyPatch, frame: str
) -> None:
    calls = [
        function.shown(argument, 2 if function is Function.LAG else 0.5)
        for function in Function
        for argument in ("amount", "kind")
        if function is not Function.SEEN and (argument == "amount" or Type.STRING in function.value.takes)
        if function.kept.of_whole or not ("BY" in frame or frame == "ALL")
    ]
    values = [f"{call} FILTER (WHERE shop = 1) OVER {frame}" for call in calls]
    measures = ", ".join(f"{value} AS v{number}" for number, value in enumerate(values))
    rule = "RULE r FROM payments PARTITION BY card PATTERN a WITHIN 1 HOUR DEFINE a AS shop = 2"
    random, n_shown = Random(frame), 0
    for _ in range(5):
        stored = Stored(monkeypatch, f"{rule} MEASURES {measures}")
        seconds = sorted(random.sample(range(1, 59), 9))
        stored.push(
            "payments",
            *(
                payment(
                    f"10:00:{second:02}", random.choice("cd"), random.randrange(9), random.choice("ab"), 1
                )
                for second in seconds
            ),
        )
        stored.chain.advance(at(f"10:00:{seconds[-1] + 1:02}"), lambda matches: None)
        shown = {row["windowed_value"]: row["value"] for row in rows("show", "c") if "windowed_value" in row}
        found: list[pa.Table] = []
        stored.push("payments", payment(f"10:00:{seconds[-1] + 1:02}.000001", "c", 5, "a", 2))
        stored.chain.finish(found.append)
        (match,) = pa.concat_tables(found).to_pylist()
        if shown:  # the key has not been forgotten
            n_shown += 1
            assert shown == {value: match[f"v{number}"] for number, value in enumerate(values)}
    assert n_shown > 1


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("card", "c1"),
        ("card", "a,b"),
        ("shop", "7"),
        ("ok", "true"),
        ("at", f"{DAY}09:00:00Z"),
        ("card, shop", "c1,7"),
        ("card, shop", "a,b,7"),
        ("card, at", f"c1,{DAY}09:00:00Z"),
    ],
)
def test_a_key_of_any_type_is_found_as_it_is_written(
    monkeypatch: pytest.MonkeyPatch, columns: str, key: str
) -> None:
    text = BY_ALL.replace("card", columns)
    streams = STREAMS.replace("kind: string}", "kind: string, ok: boolean, at: timestamp}")
    monkeypatch.setattr("tests.unit.commands.test_state.STREAMS", streams)
    stored = Stored(monkeypatch, text)
    one = payment("10:00:00", "a,b" if "a,b" in key else "c1", 1.5)
    other = payment("10:00:00", "c3", 9, shop=8)
    stored.push(
        "payments",
        {**one, "ok": True, "at": f"{DAY}09:00:00Z"},
        {**other, "ok": False, "at": f"{DAY}09:30:00Z"},
    )
    stored.chain.advance(at("10:00:00"), lambda matches: None)
    shown = rows("show", key)
    assert [next(iter(row)) for row in shown] == ["rule", "windowed_value"], shown
    assert table("show", "8.25").startswith("nothing")
