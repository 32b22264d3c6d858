"""JOIN: in rules over several streams, with keys of several columns, and what a program says of it."""

from __future__ import annotations

import pytest

from cep.compiler.compile import compile_sources
from cep.errors import RuleError, Source
from cep.local.find_matches import find_matches
from cep.program.program import Program
from cep.program.tables import VERSION_COLUMN
from cep.schema.stream import Field, Stream, TableKind, TableSettings

ORDERS = Stream("orders", (Field("ts", "timestamp"), Field("who", "string"), Field("land", "string")), "ts")
LOGINS = Stream("logins", (Field("ts", "timestamp"), Field("user", "string"), Field("land", "string")), "ts")


def table(name: str, kind: TableKind, *key: str) -> Stream:
    fields = (*(Field(column, "string") for column in key), Field("at", "timestamp"), Field("x", "bigint"))
    return Stream(
        name, fields, "" if kind is TableKind.STATIC else "at", table=TableSettings(key, kind, None, 9)
    )


STREAMS = {
    stream.name: stream
    for stream in (
        *(ORDERS, LOGINS),
        table("people", TableKind.CHANGELOG, "name"),
        table("lands", TableKind.STATIC, "iso"),
        table("stays", TableKind.CHANGELOG, "place", "name"),
    )
}


def program(text: str) -> Program:
    (found,) = compile_sources([Source("r.cep", text)], STREAMS).programs
    return found


BOTH = """RULE r FROM orders, logins
JOIN people ON orders.who = people.name
JOIN lands ON logins.land = lands.iso
PARTITION BY orders.who = logins.user PATTERN o -> l WITHIN 1 HOUR
DEFINE o ON orders AS people.x > 1, l ON logins AS lands.x > 5 OR people.x IS NULL AND lands.x > 3
MEASURES o.people.x AS x, o.lands.x AS of_others, l.lands.x AS y, l.people.x AS nothing"""


def test_a_table_is_joined_to_the_events_of_one_stream_of_several() -> None:
    rows = {
        "orders": [{"ts": 10, "who": "ann", "land": "DE"}, {"ts": 11, "who": "bob", "land": "DE"}],
        "logins": [{"ts": 20, "user": "ann", "land": "FR"}, {"ts": 21, "user": "bob", "land": "FR"}],
        "people": [{"name": "ann", "at": 10, "x": 2}, {"name": "bob", "at": 12, "x": 3}],
        "lands": [{"iso": "FR", "x": 4}, {"iso": "DE", "x": 9}],
    }
    (match,) = find_matches(BOTH, STREAMS, rows)
    assert [match[name] for name in ("who", "x", "of_others", "y", "nothing")] == ["ann", 2, None, 4, None]


def test_a_program_says_where_the_rows_of_a_table_are_needed() -> None:
    joins = program(BOTH).joins
    assert [(joined.table.name, joined.is_co_partitioned) for joined in joins.tables] == [
        ("people", True),
        ("lands", False),
    ]
    assert VERSION_COLUMN in program(BOTH).event_schema.names


def test_a_rule_without_a_join_has_no_column_of_versions() -> None:
    found = program("RULE r FROM orders PARTITION BY who PATTERN a")
    assert VERSION_COLUMN not in found.event_schema.names
    only_static = (
        "RULE r FROM orders JOIN lands ON land = lands.iso PARTITION BY who PATTERN a DEFINE a AS lands.x > 1"
    )
    assert VERSION_COLUMN not in program(only_static).event_schema.names


@pytest.mark.parametrize("key", ["who, land", "land, who"])
def test_a_key_of_several_columns_is_that_of_the_rule_in_any_order(key: str) -> None:
    text = f"""RULE r FROM orders JOIN stays ON who = stays.name AND stays.place = land
    PARTITION BY {key} PATTERN a DEFINE a AS stays.x = 7 MEASURES a.stays.x AS x"""
    (joined,) = program(text).joins.tables
    assert joined.key == (("name", "place") if key.startswith("who") else ("place", "name"))
    rows = {
        "orders": [{"ts": 5, "who": "a", "land": "b"}, {"ts": 6, "who": "b", "land": "a"}],
        "stays": [{"name": "a", "place": "b", "at": 1, "x": 7}],
    }
    assert [match["who"] for match in find_matches(text, STREAMS, rows)] == ["a"]


def test_a_changelog_with_a_part_of_the_key_is_refused() -> None:
    with pytest.raises(RuleError, match="is joined by"):
        program("RULE r FROM orders JOIN people ON who = people.name PARTITION BY who, land PATTERN a")
