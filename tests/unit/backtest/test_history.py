"""Which alerts of history count: those that end in the range, as a run over everything reports them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cep.backtest.history import Backtest, Scope, backtest, day_of
from cep.formats.chunks import Chunk, no_events
from cep.local.given_events import event_table
from cep.rule_set import RuleSet
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream
from tests.unit.backtest.test_sampling import chunks_of

HOUR_US, DAY_US = 3_600_000_000, 86_400_000_000
STREAM = Stream(
    "events", (Field("ts", "timestamp"), Field("key", "string"), Field("kind", "string")), "ts", ("kind",)
)
RULE = (
    "RULE pair FROM events PARTITION BY key PATTERN a -> b WITHIN 3 HOURS "
    "DEFINE a AS kind = 'a', b AS kind = 'b'"
)


def at(hours: float, kind: str, key: str = "k") -> dict[str, object]:
    return {"ts": int(hours * HOUR_US), "key": key, "kind": kind}


def over(rows: list[dict[str, object]], scope: Scope, rule: str = RULE) -> Backtest:
    return backtest(load_rules([rule + "\n"], STREAM), {"events": chunks_of(STREAM, rows)}, scope)


def ends(found: Backtest) -> list[float]:
    return [end_us / HOUR_US for end_us in found.alerts["end_us"].to_pylist()]


PAIRS = [row for hour in range(0, 60, 10) for row in (at(hour, "a"), at(hour + 2, "b"))]


def test_without_a_range_the_alerts_and_days_are_those_of_all_events() -> None:
    found = over(PAIRS, Scope())
    assert ends(found) == [2, 12, 22, 32, 42, 52]
    assert found.n_events == 12
    assert found.days == pytest.approx(52 / 24)
    assert (day_of(found.from_us), day_of(found.to_us)) == ("1970-01-01", "1970-01-03")


def test_a_shadow_rule_is_tried_as_others() -> None:
    assert ends(over(PAIRS, Scope(), RULE.replace("RULE pair", "RULE pair STATUS shadow"))) == ends(
        over(PAIRS, Scope())
    )


def test_an_alert_counts_if_it_ends_in_the_range_even_if_it_begins_before() -> None:
    found = over(PAIRS, Scope(from_us=11 * HOUR_US, to_us=32 * HOUR_US))
    assert ends(found) == [12, 22]
    assert found.n_events == 4
    assert found.days == 1.0


def test_an_absence_counts_when_its_time_is_over() -> None:
    rule = RULE.replace("a -> b", "a -> !b FOR 2 HOURS")
    rows = [at(1, "a"), at(5, "a"), at(6, "b"), at(9, "a")]
    assert ends(over(rows, Scope(), rule)) == [3, 11]
    assert ends(over(rows, Scope(to_us=10 * HOUR_US), rule)) == [3]


def test_events_further_away_than_the_margin_are_not_read() -> None:
    scope = Scope(from_us=11 * HOUR_US, to_us=33 * HOUR_US, margin_us=HOUR_US)
    assert ends(over(PAIRS, scope)) == [12, 22, 32]
    assert ends(over(PAIRS, Scope(11 * HOUR_US, 33 * HOUR_US, margin_us=0))) == [22, 32]


def test_a_match_with_a_row_for_each_event_is_one_alert() -> None:
    found = over(PAIRS, Scope(), RULE + " ALL ROWS PER MATCH")
    assert len(found.matches) == 12
    assert ends(found) == [2, 12, 22, 32, 42, 52]


def test_a_timeout_is_an_alert() -> None:
    found = over([at(0, "a"), at(9, "a")], Scope(), RULE + " ON TIMEOUT")
    assert len(found.alerts) == 2


def test_a_key_of_several_columns_is_in_the_order_of_the_rule() -> None:
    rule = RULE.replace("BY key", "BY kind, key").replace("kind = 'b'", "TRUE")
    rules = load_rules([RULE.replace("RULE pair", "RULE other") + "\n", rule + "\n"], STREAM)
    rows = [at(0, "a"), at(1, "a")]
    found = backtest(rules, {"events": chunks_of(STREAM, rows)}, Scope())
    assert found.alerts["key"].to_pylist() == ["a,k"]


@pytest.mark.parametrize("other", ["kind", "kind, key", "key, kind"])
def test_rules_of_different_keys_each_have_theirs(other: str) -> None:
    rules = load_rules(
        [RULE + "\n", f"RULE one FROM events PARTITION BY {other} PATTERN a DEFINE a AS TRUE\n"], STREAM
    )
    found = backtest(rules, {"events": chunks_of(STREAM, PAIRS[:2])}, Scope())
    of_one = [
        ("one", ",".join({"key": "k", "kind": kind}[name] for name in other.split(", "))) for kind in "ab"
    ]
    keys = list(zip(found.alerts["rule"].to_pylist(), found.alerts["key"].to_pylist(), strict=True))
    assert sorted(keys) == [*of_one, ("pair", "k")]


def test_keys_that_differ_in_the_place_of_a_comma_are_two() -> None:
    stream = replace(STREAM, fields=(*STREAM.fields, Field("more", "string")))
    keys = [("a,b", "c"), ("a", "b,c"), ("a\\", "b,c"), ("a", "c")]
    rows = [at(hour, kind, key) | {"more": more} for key, more in keys for hour, kind in ((0, "a"), (1, "b"))]
    rules = load_rules([RULE.replace("BY key", "BY key, more") + "\n"], stream)
    rows.sort(key=lambda row: str(row["kind"]))
    found = backtest(rules, {"events": chunks_of(stream, rows)}, Scope())
    assert sorted(found.alerts["key"].to_pylist()) == ["a,b\\,c", "a,c", "a\\,b,c", "a\\\\,b\\,c"]


def test_a_row_of_a_view_that_is_new_or_has_changed_is_an_alert() -> None:
    owners = Stream(
        "owners",
        (Field("key", "string"), Field("since", "timestamp"), Field("owner", "string")),
        "since",
        table=_table(),
    )
    rules: RuleSet = load_rules(
        [RULE + "\n", "VIEW owned KEY key FROM owners SELECT owner AS owner\n"],
        {"events": STREAM, "owners": owners},
    )
    rows: list[dict[str, Any]] = [
        {"key": "k", "since": at, "owner": owner} for at, owner in ((0, "o"), (1, "p"))
    ]
    dead = no_events(owners, "").dead_letters
    versions = [Chunk(event_table(owners, rows), dead)]
    found = backtest(rules, {"events": chunks_of(STREAM, PAIRS[:2]), "owners": versions}, Scope())
    assert found.names == ("pair", "owned")
    assert sorted(found.alerts["rule"].to_pylist()) == ["owned", "owned", "pair"]


def _table() -> Any:
    from cep.settings.schema_file import load_streams  # the declaration as a streams file has it

    text = "tables:\n  owners: {key: [key], event_time: since, schema: {key: string, since: timestamp}}\n"
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "streams.yaml"
        path.write_text(text)
        return load_streams(path)["owners"].table
