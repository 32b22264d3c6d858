"""The kit for rule authors."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cep.errors import InputError, RuleError
from cep.local.find_matches import find_matches
from cep.rulebook import load_rules
from cep.schema.stream import Field, Stream
from tests.letters import LetterRule, match_letters, read_letters

CARDS = Stream(
    "transactions",
    (Field("card", "string"), Field("ts", "timestamp"), Field("amount", "double")),
    event_time="ts",
)
RULE = """
RULE drain
FROM transactions
PARTITION BY card
PATTERN small -> large
WITHIN 1 MINUTE
DEFINE small AS amount < 5, large AS amount > 100 * small.amount
MEASURES large.amount AS loss
"""


def at(second: int) -> datetime:
    return datetime(2024, 5, 1, 10, 0, second, tzinfo=UTC)


def test_rules_run_over_rows_in_any_order() -> None:
    rows = [
        {"card": "c1", "ts": at(30), "amount": 900.0},
        {"card": "c1", "ts": at(10), "amount": 1.0},
        {"card": "c2", "ts": at(5), "amount": 900.0},
        {"card": "c1", "ts": at(20)},
    ]
    (match,) = find_matches(RULE, {"transactions": CARDS}, rows)
    assert len(match.pop("match_id")) == 32
    assert match == {
        "rule": "drain",
        "card": "c1",
        "match_start": at(10),
        "match_end": at(30),
        "loss": 900.0,
    }


def test_a_wrong_rule_says_what_is_wrong() -> None:
    with pytest.raises(RuleError, match="amout"):
        find_matches(RULE.replace("amount < 5", "amout < 5"), {"transactions": CARDS}, [])


def test_a_row_with_a_column_that_the_stream_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="stream `transactions` has no column amout"):
        find_matches(RULE, {"transactions": CARDS}, [{"card": "c1", "ts": at(1), "amout": 1.0}])


def test_a_row_without_event_time_is_refused() -> None:
    with pytest.raises(ValueError, match="no event time"):
        find_matches(RULE, {"transactions": CARDS}, [{"card": "c1", "amount": 1.0}])


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        find_matches(RULE, {"transactions": CARDS}, [{"card": "c1", "ts": at(1).replace(tzinfo=None)}])


def test_times_may_be_texts_as_in_json_lines() -> None:
    rows = [
        {"card": "c1", "ts": "2024-05-01T10:00:10Z", "amount": 1},
        {"card": "c1", "ts": "2024-05-01 12:00:20.5+02:00", "amount": 900},
        {"card": "c2", "ts": "2024-05-01", "amount": 1.0},
    ]
    (match,) = find_matches(RULE, {"transactions": CARDS}, rows)
    assert (match["match_start"], match["match_end"]) == (
        at(10),
        at(20).replace(microsecond=500_000),
    )


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"ts": "10:00"}, "column `ts` is timestamp, and '10:00' in row 1 is not\nhelp: give a text such as "
         "'2024-05-31T18:30:00Z', or microseconds since 1970, or a datetime with a zone"),
        ({"ts": "2024-02-30T10:00:00Z"},
         "column `ts` is timestamp, and '2024-02-30T10:00:00Z' in row 1 is not\nhelp: give a text such as "
         "'2024-05-31T18:30:00Z', or microseconds since 1970, or a datetime with a zone"),
        ({"amount": "much"},
         "column `amount` is double, and 'much' in row 1 is not\nhelp: give a floating-point number"),
        ({"amount": "1.5"},
         "column `amount` is double, and '1.5' in row 1 is not\nhelp: give a floating-point number"),
        ({"card": 17}, "column `card` is string, and 17 in row 1 is not\nhelp: give a string"),
        ({"items": 2**70},
         "column `items` is bigint, and 1180591620717411303424 in row 1 is not\nhelp: give an integer"),
        ({"items": 1.5}, "column `items` is bigint, and 1.5 in row 1 is not\nhelp: give an integer"),
        ({"tags": "x"},
         "column `tags` is array<string>, and 'x' in row 1 is not\nhelp: give a value of type array<string>"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_place(row: dict[str, object], message: str) -> None:
    fields = (*CARDS.fields, Field("items", "bigint"), Field("tags", "array<string>"))
    rows = [{"card": "c1", "ts": at(1), "amount": 1.0}, {"card": "c1", "ts": at(2)} | row]
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        find_matches(RULE, {"transactions": replace(CARDS, fields=fields)}, rows)
    assert str(raised.value) == f"error[E0832]: {message}; rows are counted from 0"


def test_rules_may_be_a_path(tmp_path: Path) -> None:
    (tmp_path / "drain.cep").write_text(RULE)
    rows = [{"card": "c1", "ts": at(1), "amount": 1.0}, {"card": "c1", "ts": at(2), "amount": 900.0}]
    for path in (tmp_path / "drain.cep", str(tmp_path / "drain.cep"), tmp_path, str(tmp_path)):
        assert [match["rule"] for match in find_matches(path, {"transactions": CARDS}, rows)] == ["drain"]
    with pytest.raises(RuleError) as raised:
        find_matches("no_such.cep", {"transactions": CARDS}, rows)
    assert str(raised.value) == "error[E0611]: there is no file or directory `no_such.cep`"
    (tmp_path / "drain.cep").write_text(RULE.replace("small -> large", "small => large"))
    with pytest.raises(RuleError, match=re.escape(f"{tmp_path}/drain.cep:5:15")):
        find_matches(tmp_path, {"transactions": CARDS}, rows)


@pytest.mark.parametrize("pattern", ["a -> (", "!a", "", "a => b", "a{0}", "PATTERN"])
def test_a_wrong_pattern_of_letters_is_a_rule_error(pattern: str) -> None:
    with pytest.raises(RuleError):
        match_letters(LetterRule(pattern), "A")


def test_letters_are_a_second_apart_and_take_names_and_values() -> None:
    events = read_letters("A B@5(x=3, y=1.5, s='p q') B2 C C(key='other', x=NULL)")
    assert events.names == ("A", "B", "B2", "C1", "C2")
    assert [row["ts"] for row in events.rows] == [0, 5_000_000, 6_000_000, 7_000_000, 8_000_000]
    assert events.rows[1] | {"ts": 0} == {
        "key": "k",
        "ts": 0,
        "letter": "B",
        "seq": 1,
        "x": 3,
        "y": 1.5,
        "s": "p q",
    }
    assert events.rows[4]["key"] == "other"
    assert events.rows[4]["x"] is None


@pytest.mark.parametrize(
    ("letters", "message"),
    [
        ("A b", "not a letter event: 'b'"),
        ("A@x", "not a letter event: 'A@x'"),
        ("A(z=1)", r"not a value of a letter event: 'z=1'"),
        ("A(x=1 y=2)", r"not a value of a letter event"),
        ("B1 B1", "two events are called B1"),
    ],
)
def test_what_is_no_stream_of_letters_is_refused(letters: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_letters(letters)


LOGINS = Stream(
    "logins", (Field("account", "string"), Field("ts", "timestamp"), Field("ok", "boolean")), event_time="ts"
)
TAKEOVER = """
RULE takeover
FROM logins, transactions
PARTITION BY logins.account = transactions.card
PATTERN login -> drain
DEFINE login ON logins AS ok, drain ON transactions AS amount > 500
MEASURES drain.amount AS loss
"""
TWO = {"logins": LOGINS, "transactions": CARDS}


def test_rows_of_several_streams_are_given_by_name() -> None:
    logins = [{"account": "c1", "ts": at(1), "ok": True}, {"account": "c2", "ts": at(1), "ok": False}]
    cards = [{"card": card, "ts": at(2), "amount": 900.0} for card in ("c1", "c2", "c3")]
    (match,) = find_matches(TAKEOVER, TWO, {"transactions": cards, "logins": logins})
    assert (match["account"], match["loss"]) == ("c1", 900.0)
    assert find_matches(TAKEOVER, TWO, {"logins": logins}) == []
    with pytest.raises(ValueError, match="give rows by name: logins, transactions"):
        find_matches(TAKEOVER, TWO, cards)
    with pytest.raises(ValueError, match="no rule reads stream transfers"):
        find_matches(TAKEOVER, TWO, {"logins": logins, "transfers": cards})


def test_letters_may_be_of_several_streams() -> None:
    rule = LetterRule("a -> b", streams=("left", "right"), on={"a": "left", "b": "right"})
    assert match_letters(rule, "A B1 B2(on='right') B3") == ["A B2"]
    with pytest.raises(ValueError, match="middle"):
        match_letters(rule, "A B(on='middle')")


def test_matches_show_their_events_end_and_measures() -> None:
    rule = LetterRule("a -> b->* -> !c", within="9 SECONDS", measures="COUNT(b.*) AS n, b.s AS s")
    assert match_letters(rule, "A B B(s='p') X") == ["A B1 B2 @9 (n=2, s='p')"]


def test_a_match_with_more_events_than_can_be_shown_is_an_error_not_cut_off() -> None:
    with pytest.raises(ValueError, match="more than 24 events are taken as `a`"):
        match_letters(LetterRule("a{25} b"), "A " * 25 + "B")


def test_parameters_of_rules_have_other_values() -> None:
    rule = RULE.replace("FROM", "PARAM least = 100.0\nFROM").replace("> 100 *", "> least *")
    rows = [
        {"card": "c1", "ts": at(10), "amount": 1.0},
        {"card": "c1", "ts": at(20), "amount": 50.0},
    ]
    assert find_matches(rule, CARDS, rows) == []
    assert len(find_matches(rule, CARDS, rows, parameters={"least": "20"})) == 1
    with pytest.raises(InputError, match="parameters cannot be given here"):
        find_matches(load_rules(rule, CARDS), None, rows, parameters={"least": "20"})
