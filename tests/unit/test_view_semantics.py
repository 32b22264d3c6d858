"""The examples of "Views" in docs/language/semantics/tables.md, and what views are beside other rules."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from cep.compiler.compile import compile_sources
from cep.engine.matching.matcher import Matcher
from cep.engine.prepare.versions import prepared_versions
from cep.errors import InputError, RuleError, Source
from cep.explain.explain import explain
from cep.local.find_matches import find_matches
from cep.local.given_events import event_table
from cep.output.rows import match_rows
from cep.program.program import Program
from cep.rule_set import Corrections, RuleSet
from cep.rulebook import compile_texts, texts_of
from cep.schema.stream import Field, Stream, TableKind, TableSettings
from tests.oracle.views import Joined, Row, View, changes
from tests.pages import DOCS

PAGE = (DOCS / "language/semantics/tables.md").read_text()
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
    found: list[Row] = []
    for part in text.split(", "):
        written = re.fullmatch(r"(?:(?P<column>[xy])=(?P<value>\w+)|deleted) @(?P<at>\d+)", part)
        assert written is not None, part
        row: dict[str, Any] = {**key, "at": int(written["at"]) * SECOND_US, "op": "d"}
        if written["column"]:
            value = None if written["value"] == "NULL" else int(written["value"])
            row |= {"op": "u", written["column"]: value}
        found.append(row)
    return found


def _example(text: str) -> tuple[list[Row], list[Row], dict[str, list[str]]]:
    lines = dict(line.split(": ") for line in text.strip().splitlines())
    a, c = (_versions(lines.pop(table), {"k": 1, "f": 5}) for table in "ac")
    assert list(lines) == ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]
    return a, c, {kind: [] if told == "none" else told.split("; ") for kind, told in lines.items()}


def _shown(at_us: int, is_there: bool, values: tuple[Any, ...]) -> str:
    told = ",".join("NULL" if value is None else str(value) for value in values) if is_there else "gone"
    return f"{told} @{at_us // SECOND_US}"


(BLOCK,) = re.findall(r"^```views\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
EXAMPLES = [_example(text) for text in BLOCK.split("\n\n")]


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize(
    ("kind", "customers"),
    [
        *((f"{word} JOIN".strip(), CUSTOMERS) for word in ("", "LEFT", "RIGHT", "FULL")),
        *((f"{word} JOIN".strip(), BY_VALUE) for word in ("", "LEFT")),
    ],
    ids=lambda of: of if isinstance(of, str) else of.table.kind,
)
def test_an_example_has_the_rows_of_the_page(
    example: tuple[list[Row], list[Row], dict[str, list[str]]], kind: str, customers: Stream
) -> None:
    accounts, of_customer, told = example
    (key,) = () if customers.table is None else customers.table.key
    known = {field.name for field in customers.fields}
    rows = [{name: value for name, value in row.items() if name in known} for row in of_customer]
    view = View(
        "a",
        ("k",),
        (Joined("c", (key,), kind.removesuffix("JOIN").strip()),),
        lambda of: True,
        lambda of: (of["a"].get("x"), of["c"].get("y")),
    )
    expected = told[kind]
    found = changes(view, {"a": (ACCOUNTS, accounts), "c": (customers, rows)})
    assert [_shown(change.at_us, change.is_there, change.values) for change in found] == expected
    text = f"VIEW v KEY k FROM a {kind} c ON {key} SELECT a.x, c.y"
    matches = find_matches(text, {"a": ACCOUNTS, "c": customers}, {"a": accounts, "c": rows})
    assert [
        _shown(row["revision"], row["kind"] == "match", (row["x"], row["y"])) for row in matches
    ] == expected


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("customers", [CUSTOMERS, BY_VALUE], ids=["by key", "by value"])
def test_an_example_has_them_instant_by_instant_restored_after_each(
    example: tuple[list[Row], list[Row], dict[str, list[str]]], customers: Stream
) -> None:
    accounts, of_customer, told = example
    (key,) = () if customers.table is None else customers.table.key
    streams = {"a": ACCOUNTS, "c": customers}
    text = f"VIEW v KEY k FROM a JOIN c ON {key} SELECT a.x, c.y"
    (program,) = compile_sources([Source("v.cep", text)], streams).programs
    known = {field.name for field in customers.fields}
    cut: list[Row] = [{name: row[name] for name in row if name in known} for row in of_customer]
    rows = {"a": accounts, "c": cut}
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
    assert shown == told["JOIN"]


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


@pytest.mark.parametrize("unseen", ["login", "many"])
def test_rows_of_shadow_rules_and_of_the_others_have_the_columns_of_a_view(unseen: str) -> None:
    text = VIEW + RULES
    rules = _compiled(text.replace(f"RULE {unseen}\n", f"RULE {unseen}\nSTATUS shadow\n"))
    assert rules.shadow == {unseen}
    for shadow in (True, False):
        schema = rules.schema_of(shadow=shadow)
        assert schema.names[5:7] == ["revision", "kind"]
        rows = [dict.fromkeys(schema.names) | {"rule": name} for name in rules.names(shadow=shadow)]
        table = pa.Table.from_pylist(rows, pa.schema([item.with_nullable(True) for item in schema]))
        for row in match_rows(rules, table):
            assert {"revision", "kind"} <= row.keys()


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


def _rows_of_key(text: str, rows: dict[str, list[dict[str, Any]]], **more: Stream) -> list[dict[str, Any]]:
    found = find_matches(text, {"a": ACCOUNTS, "c": CUSTOMERS, **more}, rows)
    of_all = ("rule", "match_id", "match_start", "match_end")
    return [{name: value for name, value in row.items() if name not in of_all} for row in found]


ALONE: dict[str, list[dict[str, Any]]] = {"c": [{"k": 1, "y": 7, "at": 2, "op": "c"}]}


def test_the_key_of_a_full_join_is_never_null_and_that_of_a_table_is() -> None:
    text = "VIEW v KEY k FROM a FULL JOIN c ON k WHERE k > 0 SELECT k, a.k AS a_k, k + c.y AS n"
    expected = {"k": 1, "revision": 2, "kind": "match", "a_k": None, "n": 8}
    assert _rows_of_key(text, ALONE) == [expected]
    written = text.replace("SELECT k,", "SELECT COALESCE(a.k, c.k) AS k,")
    assert _rows_of_key(written, ALONE) == [expected]
    assert _rows_of_key(text.replace("FULL JOIN", "RIGHT OUTER JOIN"), ALONE) == [expected]


def test_a_join_behind_a_full_join_is_by_the_key_of_the_view_or_of_the_table() -> None:
    rates = _table("r", "z", kind=TableKind.REPLICATED)
    rows = ALONE | {"r": [{"k": 1, "z": 3, "at": 5, "op": "c"}]}
    text = "VIEW v KEY k FROM a FULL JOIN c ON k LEFT JOIN r ON k SELECT r.z"
    assert [row["z"] for row in _rows_of_key(text, rows, r=rates)] == [None, 3]
    by_table = text.replace("r ON k", "r ON a.k = r.k")
    assert [row["z"] for row in _rows_of_key(by_table, rows, r=rates)] == [None]


def test_what_an_inner_join_leaves_out_is_not_in_a_full_join_behind_it() -> None:
    other = _table("d", "w")
    rows = {
        "a": [{"k": 1, "x": 2, "at": 1, "op": "c"}],
        "d": [{"k": 1, "w": 9, "at": 2, "op": "c"}],
        "c": [{"k": 1, "y": 7, "at": 3, "op": "c"}],
    }
    text = "VIEW v KEY k FROM a JOIN c ON k FULL JOIN d ON k SELECT a.x, c.y, d.w"
    assert [(row["x"], row["y"], row["w"]) for row in _rows_of_key(text, rows, d=other)] == [
        (None, None, 9),
        (2, 7, 9),
    ]


def test_explain_says_which_rows_a_view_has_and_what_it_does_not_report() -> None:
    names = _table("names", "z", kind=TableKind.STATIC)
    streams = {"a": ACCOUNTS, "c": CUSTOMERS, "names": replace(names, event_time="")}
    text = "VIEW v KEY k FROM a FULL JOIN c ON k JOIN names ON k WHERE c.y > 0 SELECT c.y, names.z"
    shown = explain(compile_sources([Source("v.cep", text)], streams).rules[0])
    assert "of the rows of a and c, with the key k\n" in shown
    assert "exists while it is (in a or in c) and in names and where c.y > 0\n" in shown
    assert "its columns of a, c are NULL where there is no row of it\n" in shown
    assert "a new file of names changes no row that was reported" in shown


def test_a_view_of_many_rules_runs_alone_and_a_rule_over_it_with_it() -> None:
    source = [Source("rules.cep", VIEW + RULES)]
    of_view = compile_texts(source, STREAMS, "v")
    assert [rule.name for rule in of_view.rules] == ["v"]
    assert list(of_view.rule_set.inputs) == ["a", "c"]
    (text,) = texts_of(of_view)
    assert compile_sources([text], STREAMS).programs[0].fingerprint == of_view.programs[0].fingerprint
    assert [rule.name for rule in compile_texts(source, STREAMS, ["many"]).rules] == ["v", "many"]
    every = compile_texts(source, STREAMS)
    assert len(every.rules) == 3
    of_table = every.rule_set.of_streams(["a"])
    assert [rule.name for program in of_table.programs for rule in program.rules] == ["v", "many"]
    with pytest.raises(RuleError, match="E0897"):
        compile_texts(source, STREAMS, ["v", "mani"])
