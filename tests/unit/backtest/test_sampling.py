"""A sample of keys has all events of a key or none, and the same keys everywhere."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cep.backtest.history import Scope, backtest
from cep.backtest.sampling import sample_of
from cep.errors import InputError
from cep.formats.chunks import Chunk, no_events
from cep.local.given_events import event_table
from cep.local.match_file import match_chunks
from cep.rule_set import RuleSet
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream

ORDERS = Stream(
    "orders",
    (
        Field("id", "bigint"),
        Field("ts", "timestamp"),
        Field("account", "string"),
        Field("symbol", "string"),
        Field("number", "bigint"),
        Field("price", "double"),
    ),
    "ts",
    ("id",),
)
LOGINS = Stream("logins", (Field("ts", "timestamp"), Field("who", "string"), Field("ok", "boolean")), "ts")
STREAMS = {"orders": ORDERS, "logins": LOGINS}


def rule(name: str, key: str, rest: str = "FROM orders") -> str:
    return f"RULE {name} {rest} PARTITION BY {key} PATTERN a -> b WITHIN 1 HOUR DEFINE b AS TRUE\n"


def rules(*texts: str) -> RuleSet:
    return load_rules(list(texts), STREAMS)


def chunks_of(stream: Stream, rows: list[dict[str, object]]) -> list[Chunk]:
    dead = no_events(stream, "").dead_letters
    return [Chunk(event_table(stream, rows[at : at + 7]), dead) for at in range(0, len(rows), 7)]


ROWS: list[dict[str, object]] = [
    {
        "id": n,
        "ts": n * 1_000_000,
        "account": f"a{n * 7 % 13}",
        "symbol": f"s{n % 40}",
        "number": n % 6,
        "price": 1.0,
    }
    for n in range(800)
]


def test_a_sample_is_chosen_by_the_columns_that_all_keys_have() -> None:
    sample = sample_of(rules(rule("one", "account, symbol"), rule("two", "symbol")), 0.5)
    assert sample.of_streams == {"orders": ("symbol",)}
    assert sample.of_rules == {"one": ("symbol",), "two": ("symbol",)}
    both = sample_of(rules(rule("one", "account, symbol")), 0.5)
    assert both.of_streams == {"orders": ("account", "symbol")}


def test_matches_of_a_sample_are_those_of_its_keys_in_a_run_over_everything() -> None:
    given = rules(rule("one", "account, symbol"), rule("two", "symbol"))
    sample = sample_of(given, 0.3)
    every = match_chunks(given, chunks_of(ORDERS, ROWS)).matches
    found = backtest(given, {"orders": chunks_of(ORDERS, ROWS)}, Scope(sample=sample))
    symbols = set(found.matches["symbol"].to_pylist())
    assert 4 < len(symbols) < 20
    expected = every.filter([symbol in symbols for symbol in every["symbol"].to_pylist()])
    assert found.matches.equals(expected)
    assert found.n_events == sum(row["symbol"] in symbols for row in ROWS)
    assert found.a_day(3) == pytest.approx(10.0)


def test_the_keys_of_a_sample_never_change() -> None:
    sample = sample_of(rules(rule("one", "symbol")), 0.25)
    table = pa.table({"symbol": [f"s{n}" for n in range(12)]})
    assert [
        symbol
        for symbol, is_in in zip(table["symbol"].to_pylist(), sample.has(table, ["symbol"]), strict=True)
        if is_in
    ] == ["s5", "s7", "s8"]


def test_a_larger_sample_has_the_keys_of_a_smaller_one() -> None:
    table = pa.table({"number": range(1000)})
    given = rules(rule("one", "number"))
    small, large = (sample_of(given, share).has(table, ["number"]) for share in (0.1, 0.4))
    assert 60 < small.sum() < 140
    assert 340 < large.sum() < 460
    assert not (small & ~large).any()


def test_a_key_that_is_null_is_in_no_sample() -> None:
    table = pa.table({"symbol": pa.array([None, None], pa.string())})
    assert sample_of(rules(rule("one", "symbol")), 0.99).has(table, ["symbol"]).tolist() == [False, False]


def test_streams_may_name_the_column_of_a_key_in_two_ways() -> None:
    text = (
        "RULE drain FROM logins, orders PARTITION BY logins.who = orders.account PATTERN a -> b "
        "WITHIN 1 HOUR DEFINE a ON logins AS ok, b ON orders AS price > 0"
    )
    sample = sample_of(rules(text, rule("one", "account, symbol")), 0.5)
    assert sample.of_streams == {"logins": ("who",), "orders": ("account",)}
    assert sample.of_rules == {"drain": ("who",), "one": ("account",)}


def test_rules_that_read_matches_are_sampled_by_the_key_of_the_rule_they_read() -> None:
    inner = rule("one", "account, symbol")
    sample = sample_of(rules(inner, rule("again", "symbol", "FROM MATCHES OF one")), 0.5)
    assert sample.of_rules == {"one": ("symbol",), "again": ("symbol",)}


@pytest.mark.parametrize(
    "texts",
    [
        (rule("one", "account"), rule("two", "symbol")),
        (rule("one", "ts"),),
        (
            rule("one", "symbol").rstrip() + " MEASURES a.account AS who\n",
            rule("again", "who", "FROM MATCHES OF one"),
        ),
    ],
)
def test_rules_without_a_common_column_have_no_sample(texts: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        sample_of(rules(*texts), 0.5)
    assert caught.value.code == "E0691"
    assert "--only" in str(caught.value)
