"""The examples of "Views" in docs/semantics.md, and what views are beside other rules."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matcher import Matcher
from cep.engine.prepare.versions import prepared_versions
from cep.errors import InputError, Source
from cep.output.rows import match_rows
from cep.program.program import Program
from cep.rule_set import Corrections, RuleSet
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from cep.testing import event_table, find_matches
from tests.oracle.views import Joined, Row, View, changes

PAGE = (Path(__file__).parents[2] / "docs" / "semantics.md").read_text()
SECOND_US = 1_000_000


def _table(name: str, *columns: str, key: str = "k", kind: TableKind = TableKind.CHANGELOG) -> Stream:
    fields = [Field(column, "bigint") for column in (key, *columns)]
    return Stream(
        name,
        (*fields, Field("at", "timestamp"), Field("op", "string")),
        "at",
        table=TableSettings((key,), kind, "op"),
    )


ACCOUNTS, CUSTOMERS = _table("a", "x", "f"), _table("c", "y")
BY_VALUE = _table("c", "y", key="f", kind=TableKind.REPLICATED)
LOGINS = Stream("logins", (Field("k", "bigint"), Field("at", "timestamp")), "at")


def _versions(text: str, key: dict[str, int]) -> list[Row]:
    found = []
    for part in text.split(", "):
        written = re.fullmatch(r"(?:(?P<column>[xy])=(?P<value>\w+)|deleted) @(?P<at>\d+)", part)
        assert written is not None, part
        row: dict[str, Any] = {**key, "at": int(written["at"]) * SECOND_US, "op": "d"}
        if written["column"]:
            value = None if written["value"] == "NULL" else int(written["value"])
            row |= {"op": "u", written["column"]: value}
        found.append(row)
    return found


def _example(text: str) -> tuple[list[Row], list[Row], str, str]:
    lines = dict(line.split(": ") for line in text.strip().splitlines())
    accounts = _versions(lines["a"], {"k": 1, "f": 5})
    return accounts, _versions(lines["c"], {"k": 1, "f": 5}), lines["JOIN"], lines["LEFT JOIN"]


def _shown(at_us: int, is_there: bool, values: tuple[Any, ...]) -> str:
    told = ",".join("NULL" if value is None else str(value) for value in values) if is_there else "gone"
    return f"{told} @{at_us // SECOND_US}"


(BLOCK,) = re.findall(r"^```views\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [_example(text) for text in BLOCK.split("\n\n")]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.parametrize("customers", [CUSTOMERS, BY_VALUE], ids=["by key", "by value"])
def test_an_example_has_the_rows_of_the_page(
    example: tuple[list[Row], list[Row], str, str], is_left: bool, customers: Stream
) -> None:
    accounts, of_customer, inner, left = example
    (key,) = () if customers.table is None else customers.table.key
    known = {field.name for field in customers.fields}
    rows = [{name: value for name, value in row.items() if name in known} for row in of_customer]
    view = View(
        "a",
        ("k",),
        (Joined("c", (key,), is_left),),
        lambda of: True,
        lambda of: (of["a"].get("x"), of["c"].get("y")),
    )
    expected = [] if (left if is_left else inner) == "none" else (left if is_left else inner).split("; ")
    found = changes(view, {"a": (ACCOUNTS, accounts), "c": (customers, rows)})
    assert [_shown(change.at_us, change.is_there, change.values) for change in found] == expected
    text = f"VIEW v KEY k FROM a {'LEFT ' * is_left}JOIN c ON {key} SELECT a.x, c.y"
    matches = find_matches(text, {"a": ACCOUNTS, "c": customers}, {"a": accounts, "c": rows})
    assert [
        _shown(row["revision"], row["kind"] == "match", (row["x"], row["y"])) for row in matches
    ] == expected


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("customers", [CUSTOMERS, BY_VALUE], ids=["by key", "by value"])
def test_an_example_has_them_instant_by_instant_restored_after_each(
    example: tuple[list[Row], list[Row], str, str], customers: Stream
) -> None:
    accounts, of_customer, inner, _ = example
    (key,) = () if customers.table is None else customers.table.key
    streams = {"a": ACCOUNTS, "c": customers}
    text = f"VIEW v KEY k FROM a JOIN c ON {key} SELECT a.x, c.y"
    (program,) = compile_sources([Source("v.cep", text)], streams).programs
    known = {field.name for field in customers.fields}
    rows = {"a": accounts, "c": [{name: row[name] for name in row if name in known} for row in of_customer]}
    matcher = Matcher(program)
    found = []
    for at_us in sorted({row["at"] for of_table in rows.values() for row in of_table}):
        for name, of_table in rows.items():
            versions = event_table(streams[name], [row for row in of_table if row["at"] == at_us])
            for prepared in prepared_versions(program, streams[name], versions):
                assert matcher.push(prepared).num_rows == 0
        found += matcher.advance(at_us).to_pylist()
        matcher = Matcher.restore(program, matcher.snapshot())
    shown = [_shown(row["revision"], row["kind"] == "match", (row["x"], row["y"])) for row in found]
    assert shown == ([] if inner == "none" else inner.split("; "))


VIEW = """
VIEW v
KEY k
FROM a
JOIN c ON k
SELECT k, x + c.y AS total
"""
RULES = """
RULE many
FROM MATCHES OF v
PARTITION BY k
PATTERN one -> gone
DEFINE one AS kind = 'match' AND total > 5, gone AS kind = 'retract'
MEASURES one.total AS total

RULE login
FROM logins
JOIN a ON k
PARTITION BY k
PATTERN l
DEFINE l AS a.x > 0
"""
STREAMS = {"a": ACCOUNTS, "c": CUSTOMERS, "logins": LOGINS}
ROWS: dict[str, list[dict[str, Any]]] = {
    "a": [{"k": 1, "x": 2, "at": 1, "op": "c"}, {"k": 1, "at": 9, "op": "d"}],
    "c": [{"k": 1, "y": 5, "at": 2, "op": "c"}],
    "logins": [{"k": 1, "at": 5}],
}


def _compiled(text: str) -> RuleSet:
    return compile_sources([Source("rules.cep", text)], STREAMS).rule_set


def test_a_rule_reads_the_rows_of_a_view_and_other_rules_run_beside_it() -> None:
    rows = find_matches(VIEW + RULES, STREAMS, ROWS)
    assert [(row["rule"], row["kind"], row["revision"], row["total"]) for row in rows] == [
        ("v", "match", 2, 7),
        ("login", "match", 0, None),
        ("many", "match", 0, 7),
        ("v", "retract", 9, 7),
    ]


def test_the_rows_of_a_view_have_their_columns_once() -> None:
    rules = _compiled(VIEW + RULES)
    assert rules.match_schema.names[:7] == [
        *("rule", "k", "match_id", "match_start", "match_end", "revision", "kind")
    ]
    none = next(iter(match_rows(rules, rules.match_schema.empty_table())), None)
    assert none is None


def test_the_rows_of_a_view_are_not_corrected() -> None:
    with pytest.raises(InputError, match="E0896"):
        _compiled(VIEW).with_corrections(Corrections(5))


def test_a_view_of_one_table_reports_what_changes_in_what_it_selects() -> None:
    versions = [
        {"k": 1, "x": 1, "f": 1, "at": 1, "op": "c"},
        {"k": 1, "x": 1, "f": 2, "at": 2, "op": "u"},
        {"k": 1, "x": 3, "f": 2, "at": 3, "op": "u"},
        {"k": 2, "x": 3, "f": 2, "at": 3, "op": "c"},
    ]
    rows = find_matches("VIEW v KEY k FROM a WHERE f > 0 SELECT x, 'same' AS s", STREAMS, versions)
    assert [(row["k"], row["revision"], row["x"], row["s"]) for row in rows] == [
        (1, 1, 1, "same"),
        (1, 3, 3, "same"),
        (2, 3, 3, "same"),
    ]
    assert rows[0]["match_id"] == rows[1]["match_id"] != rows[2]["match_id"]


def test_views_over_one_table_share_a_program_and_their_state_means_what_they_are() -> None:
    def programs(text: str) -> tuple[Program, ...]:
        return _compiled(text).programs

    (both,) = programs(VIEW + VIEW.replace("VIEW v", "VIEW w").replace("x + c.y", "c.y"))
    (one,) = programs(VIEW)
    assert [rule.name for rule in both.rules] == ["v", "w"]
    assert [joined.table.name for joined in both.joins.tables] == ["a", "c"]
    assert programs(VIEW)[0].fingerprint == one.fingerprint
    assert programs(VIEW.replace("JOIN", "LEFT JOIN"))[0].fingerprint != one.fingerprint


def test_a_rule_may_read_the_key_of_a_replicated_table() -> None:
    streams = {
        "logins": replace(LOGINS, fields=(*LOGINS.fields, Field("f", "bigint"))),
        "c": BY_VALUE,
    }
    text = """RULE r FROM logins JOIN c ON f PARTITION BY k PATTERN l
DEFINE l AS c.f IS NOT NULL MEASURES l.c.f AS f"""
    rows = {
        "logins": [{"k": 1, "f": 5, "at": 3}, {"k": 1, "f": 6, "at": 4}],
        "c": [{"f": 5, "at": 1, "op": "c"}],
    }
    assert [row["f"] for row in find_matches(text, streams, rows)] == [5]
