"""Texts in other languages: which it is, the rule that is proposed, and docs/start/coming_from.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cep import find_matches
from cep.compiler.compile import check_sources
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.language.other_languages.recognize import other_language
from cep.language.parser import parse
from cep.settings.schema_file import parse_streams
from tests.pages import DOCS, blocks
from tests.property.hostile_text import Text, seeds
from tests.property.text import examine

PAGE = (DOCS / "start/coming_from.md").read_text()
GOLDEN = Path(__file__).parents[2] / "golden/errors"
PAIRS = re.findall(r"^```sql\n(.*?)^```\n\n```cep\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def problems_of(rule: str) -> str:
    streams, wrong = parse_streams(Source("streams", blocks(PAGE, "yaml")[0]))
    assert wrong == []
    return render(check_sources([Source("rule", rule)], streams)[1])


@pytest.mark.parametrize("rule", blocks(PAGE, "cep"))
def test_a_rule_of_the_page_is_a_rule_over_its_streams(rule: str) -> None:
    assert problems_of(rule) == ""


@pytest.mark.parametrize(("text", "rule"), PAIRS, ids=[rule.split("\n")[3] for _, rule in PAIRS])
def test_the_rule_of_the_page_is_the_one_that_is_proposed(text: str, rule: str) -> None:
    found = other_language(text)
    assert found is not None
    assert found.rule is not None
    assert f"{found.rule}\n" == rule
    (problem,) = parse(Source("text", text))[1]
    assert problem.code == "E0117"
    assert problem.help.endswith(f", for example:\n{found.rule}")


def test_the_page_has_an_example_of_each_language_that_is_translated() -> None:
    assert len(PAIRS) == 6


@pytest.mark.parametrize("file", sorted(GOLDEN.glob("E0117*.txt")), ids=lambda file: file.stem)
def test_a_message_links_to_a_section_of_the_page(file: Path) -> None:
    for anchor in re.findall(r"coming_from\.md#(\w+)", file.read_text()):
        assert anchor in {heading.lower() for heading in re.findall(r"^## (\w+)$", PAGE, re.MULTILINE)}


def _payments(*given: tuple[str, float]) -> list[dict[str, object]]:
    return [
        {"card": "c1", "ts": f"2024-05-01T{time}Z", "amount": amount, "approved": True}
        for time, amount in given
    ]


def _events(*given: tuple[str, str, str, int]) -> list[dict[str, object]]:
    return [
        {
            "ts": f"2024-05-01T{time}Z",
            "host_id": "h1",
            "user_name": "ann",
            "event_category": category,
            "process_name": process,
            "destination_port": port,
        }
        for time, category, process, port in given
    ]


_MANY = tuple((f"10:00:{second:02}", 10.0) for second in range(0, 60, 10))
_LOGINS = tuple((f"10:00:{second:02}", "authentication", "sshd", 22) for second in range(0, 50, 5))


@pytest.mark.parametrize(
    ("number", "rows", "expected"),
    [
        (
            0,
            _payments(("10:00:00", 150), ("10:01:00", 140), ("10:02:00", 90), ("10:03:00", 200)),
            [{"first_amount": 150.0, "lowest": 90.0}],
        ),
        (1, _payments(*_MANY), [{"payments": 6}]),
        (2, _payments(("10:00:00", 1), ("10:01:00", 2), ("10:02:00", 600)), [{}, {}]),
        (3, _payments(("10:00:00", 1), ("10:01:00", 2), ("10:02:00", 3), ("10:03:00", 600)), [{}]),
        (4, _events(("10:00:00", "process", "cmd.exe", 0), ("10:01:00", "network", "", 443)), [{}]),
        (5, _payments(*_MANY), [{"n": 6, "total": 60.0}]),
        (6, _events(*_LOGINS), [{"host": "h1"}]),
    ],
)
def test_a_rule_of_the_page_finds_what_its_original_looks_for(
    number: int, rows: list[dict[str, object]], expected: list[dict[str, object]]
) -> None:
    streams, _ = parse_streams(Source("streams", blocks(PAGE, "yaml")[0]))
    found = find_matches(blocks(PAGE, "cep")[number], streams, rows)
    measured = [{name: match[name] for name in (*expected[0],)} for match in found]
    assert measured[: len(expected)] == expected
    assert len(found) >= len(expected)
    assert find_matches(blocks(PAGE, "cep")[number], streams, rows[:1]) == []


def test_no_rule_file_is_taken_for_another_language() -> None:
    texts = seeds(rules=True)
    assert len(texts) > 100
    for text in texts:
        if "RULE" in text or "VIEW" in text:
            assert other_language(text) is None


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("T | where a > 5 | summarize count() by b", "this is a query with pipes (KQL, ES|QL, SPL)"),
        ("FROM logs | STATS n = COUNT(*) BY host", "this is a query with pipes (KQL, ES|QL, SPL)"),
        ("index=main error | stats count by host", "this is a query with pipes (KQL, ES|QL, SPL)"),
        ("search index=main | transaction user", "this is a query with pipes (KQL, ES|QL, SPL)"),
        ("import org.apache.flink.cep.CEP;\nclass A {}", "this is a program for Flink"),
        ('Pattern<E, ?> p = Pattern.<E>begin("a").followedBy("b");', "this is a program for Flink"),
        ("from pyflink.table import TableEnvironment", "this is a program for Flink"),
        ('t.sql("SELECT * FROM a MATCH_RECOGNIZE (");', "this is SQL with MATCH_RECOGNIZE"),
        ("create schema A (x int);\nselect * from A", "this is Esper's EPL"),
        ("@Name('x') select * from A#length(5)", "this is Esper's EPL"),
        ("define stream S (x int);", "this is Siddhi"),
        ("from S[x > 5] select x insert into T;", "this is Siddhi"),
        ("@info(name='q')\nfrom S[x > 5] select x insert into T;", "this is Siddhi"),
        ("WITH t AS (SELECT 1) SELECT * FROM t", "this is SQL"),
        ("/* a */ // b\n# c\nselect x from t", "this is SQL"),
        ("sequence by a\n  [any where true]\n  [x where y == 1]", "this is EQL"),
        ("correlation:\n  type: event_count\ntitle: x", "this is Sigma"),
    ],
)
def test_a_language_is_told_by_its_first_words_and_its_shape(text: str, title: str) -> None:
    found = other_language(text)
    assert found is not None
    assert found.title == title


@pytest.mark.parametrize(
    "text",
    [
        "-- select * from pattern [ every a -> b ]\nRULE r FROM s PARTITION BY k PATTERN a",
        "/* MATCH_RECOGNIZE ( */ x\nRULE r\nFROM s PARTITION BY k PATTERN a",
        "FROM payments PARTITION BY card PATTERN a -> b",
        "select",
        "payments",
        "",
        "PATTERN a -> b",
        "TITLE 'insert into' FROM s PARTITION BY k PATTERN a",
        "with best regards",
    ],
)
def test_what_is_no_other_language_is_not_taken_for_one(text: str) -> None:
    assert other_language(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "select * from pattern [every a=A -> (b=B or c=C)]",
        "select * from pattern [every a=A",
        "select * from t match_recognize (",
        "select * from t match_recognize (pattern (A {- B -}) define A as true)",
        "select * from t match_recognize (define A as true)",
        "sequence [process where true] until [x where true]",
        'sequence by a [process where x like~ "y*"] [any where true]',
        "from every e1=A -> e2=B[x > 5 select 1 insert into O",
        "select * from pattern [every a=A -> b=A(k = a.k) -> c=A(k = a.k) where timer:within(5 min)]",
        "from every e1=A -> e2=A within 2 months select e1.x insert into O;",
        "sequence by a with maxspan=1w [any where true] [any where true]",
        "select * from a, b match_recognize (partition by k pattern (A) define A as true)",
        "select count(*) as n from a, b group by k, tumble(ts, interval '5' minute)",
        "select count(*) as n from a group by k, tumble(ts, interval '5' minute, interval '1' minute)",
        "with w as (select k from t group by k, tumble(ts, interval '5' minute)) select * from w where n > 5",
        "T | where x has_any ('a') | summarize count() by k, bin(ts, 5m)",
        "T | where a > 5 | summarize arg_max(x, y) by k, bin(ts, 5m)",
        "T | summarize count() by k",
        "T | extend x = 5 | summarize count() by k, bin(ts, 5m)",
        "select count(*) from table(tumble(table t, descriptor(ts), 5)) group by k",
    ],
)
def test_what_cannot_be_translated_is_only_named(text: str) -> None:
    (problem,) = parse(Source("text", text))[1]
    assert problem.code == "E0117"
    assert "\n" not in problem.help


_MATCH = "MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts {} PATTERN (A B) DEFINE B AS B.price > 3)"
_TUMBLE = "TUMBLE(ts, INTERVAL '10' MINUTE)"
_EPL = "select * from pattern [every a=quotes -> b=quotes(sym = a.sym)]"
_SIDDHI = "from every e1=quotes -> e2=quotes[sym == e1.sym] select e2.ask as ask {} insert into O;"
_KQL = "quotes | where {} | summarize n = count() by sym, bin(ts, 10m)"


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (f"SELECT * FROM quotes {_MATCH} AS T WHERE T.p > 100", ["WHERE T.p > 100"]),
        (f"SELECT * FROM quotes {_MATCH} T ORDER BY p LIMIT 3;", ["ORDER BY p", "LIMIT 3"]),
        (f"SELECT * FROM quotes {_MATCH}; SELECT a FROM b", ["SELECT a FROM b"]),
        (f"SELECT p * 2 AS q, T.r FROM quotes {_MATCH} AS T", ["SELECT p * 2 AS q"]),
        (
            f"SELECT * FROM quotes q {_MATCH}".replace("ORDER BY ts", "ORDER BY q.ts DESC"),
            ["ORDER BY ts DESC"],
        ),
        (
            f"SELECT * FROM (SELECT *, ask / 2 AS half FROM quotes WHERE price > 0 LIMIT 9) {_MATCH}",
            ["SELECT ask / 2 AS half", "LIMIT 9", "WHERE price > 0 before the pattern"],
        ),
        (
            f"WITH c AS (SELECT * FROM quotes) SELECT * FROM c {_MATCH}",
            ["WITH c AS (SELECT * FROM quotes)"],
        ),
        (
            f"SELECT * FROM quotes {_MATCH.format('MEASURES A.x AS x, CLASSIFIER() AS c')}",
            ["CLASSIFIER() AS c"],
        ),
        (
            f"SELECT * FROM quotes {_MATCH.format('MEASURES SUM(A.x) AS x ALL ROWS PER MATCH')}",
            ["up to each row, SUM(A.x) AS x: a rule measures the whole match"],
        ),
        (
            f"SELECT sym, COUNT(*) AS n FROM quotes GROUP BY sym, {_TUMBLE} ORDER BY n DESC LIMIT 10",
            ["ORDER BY n DESC", "LIMIT 10"],
        ),
        (
            "SELECT COUNT(*) AS n FROM quotes q JOIN l ON q.a = l.a "
            f"GROUP BY sym, {_TUMBLE} UNION ALL SELECT 1 FROM x",
            ["JOIN l ON q.a = l.a", "UNION ALL SELECT 1 FROM x"],
        ),
        (
            "SELECT COUNT(*) AS n FROM quotes WHERE ts > now() - INTERVAL '1' HOUR and ask > 5 "
            f"GROUP BY sym, {_TUMBLE}",
            ["WHERE ts > now() - INTERVAL '1' HOUR"],
        ),
        (
            f"SELECT COUNT(*) AS n, UPPER(sym) FROM quotes GROUP BY sym, UPPER(at), {_TUMBLE}",
            ["SELECT UPPER(sym)", "GROUP BY UPPER(at)"],
        ),
        (
            f"{_EPL} where b.ask > 10 having count(*) > 4 output first every 5 minutes",
            ["WHERE b.ask > 10", "HAVING count(*) > 4", "OUTPUT first every 5 minutes"],
        ),
        (f"context PerDay {_EPL} as p; select * from O", ["context PerDay", "SELECT * FROM O"]),
        (_EPL.replace("*", "a.ask, count(*) as n, a"), ["select count(*) as n", "select a"]),
        (_EPL.replace(")]", ") -> c=quotes(ask > 3)]"), ["c of any sym: here all steps have the same"]),
        (
            _EPL.replace("every ", ""),
            ["without `every` only one match is found ever; SUPPRESS FOR 36500 DAYS finds one for each key"],
        ),
        (
            _SIDDHI.format("having ask > 600 output first every 5 min"),
            ["HAVING ask > 600", "OUTPUT first every 5 min"],
        ),
        (
            _SIDDHI.format("").replace("every ", ""),
            ["without `every` only one match is found ever; SUPPRESS FOR 36500 DAYS finds one for each key"],
        ),
        (
            f"from S[x > 5] select x insert into M; {_SIDDHI.format('')}",
            ["from S[x > 5] SELECT x INSERT into M"],
        ),
        (
            f"partition with (x > 5 as 'big' of quotes) begin {_SIDDHI.format('')} end;",
            ["partition with (x > 5 as 'big' of quotes)"],
        ),
        (_KQL.format("TimeGenerated > ago(1h) and ask > 5"), ["where TimeGenerated > ago(1h)"]),
        (f"{_KQL.format('ask > 5')} | where n > 5 | top 10 by n", ["top 10 by n"]),
    ],
)
def test_what_the_rule_lacks_is_named(text: str, missing: list[str]) -> None:
    text = text.replace("{}", "")
    found = other_language(text)
    assert found is not None
    assert found.rule is not None
    assert parse(Source("text", text))[1][0].help.endswith(f":\n{found.rule}")
    assert re.findall("^-- not translated: (.*)$", found.rule, re.MULTILINE) == missing


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            f"SELECT q.sym, COUNT(*) n FROM quotes q WHERE q.at = 'from a.q.b' "
            f"GROUP BY q.sym, {_TUMBLE.replace('ts', 'q.ts')} HAVING n > 5",
            ["PARTITION BY sym", "WHERE at = 'from a.q.b'", "HAVING COUNT(*) > 5", "MEASURES COUNT(*) AS n"],
        ),
        (
            "SELECT COUNT(*) AS n FROM (SELECT * FROM quotes WHERE a OR b) AS q WHERE q.c "
            f"GROUP BY sym, {_TUMBLE}",
            ["FROM quotes", "WHERE (a OR b) AND (c)"],
        ),
        (
            f"SELECT COUNT(*) AS n FROM quotes GROUP BY {_TUMBLE}",
            ["PARTITION BY key  -- every rule has a key: write its column here"],
        ),
        (
            "SELECT * FROM (SELECT * FROM quotes) MATCH_RECOGNIZE (PATTERN (A B) "
            "DEFINE B AS B.x > PREV(A.x) -- up\n  AND B.y > 3)",
            [
                "FROM quotes",
                "PARTITION BY key  -- every rule has a key: write its column here",
                "  B AS B.x > PREV(A.x) AND B.y > 3,",
            ],
        ),
        (
            "select a.ask, b[0].bid as c, b[1].bid as d, b.ask - a.ask as e from pattern "
            "[every (a=quotes(x > 5, y > 6 or z) -> b=quotes(sym = a.sym)) where timer:within(1 min 30 sec)]",
            [
                "WITHIN < 90 SECONDS",
                "  a AS x > 5 AND (y > 6 OR z),",
                "  a.ask AS a_ask,",
                "  FIRST(b.bid) AS c,",
                "  FIRST(b.bid, 1) AS d,",
                "  b.ask - a.ask AS e",
            ],
        ),
        (
            "partition with (card of A, number of B) begin from every e1=A<2:> -> e2=B "
            "select e1[last].x as l, e1[last - 1].x as k, e2.y insert into O; end;",
            ["PARTITION BY A.card = B.number", "  LAST(e1.x) AS l,", "  LAST(e1.x, 1) AS k,", "  e2.y AS y"],
        ),
        (
            'sequence by a [any where x like "a_*"] [any where y == "this or  that"]',
            ["  a AS x LIKE 'a\\_%',", "  b AS y = 'this or  that'"],
        ),
        (_KQL.format('at has "Ab"'), ["WHERE LOWER(at) RLIKE '(^|[^a-z0-9])ab([^a-z0-9]|$)'"]),
        (_KQL.format('at contains "A%"'), ["WHERE CONTAINS(LOWER(at), 'a%')"]),
        (_KQL.format('at startswith "Ab"'), ["WHERE STARTSWITH(LOWER(at), 'ab')"]),
        (_KQL.format('at !endswith_cs "Ab"'), ["WHERE NOT ENDSWITH(at, 'Ab')"]),
        (_KQL.format('at =~ "Ab" or at !~ "C"'), ["WHERE (LOWER(at) = 'ab' OR LOWER(at) != 'c')"]),
        (
            _KQL.format('at == "x has " and at == "bed and breakfast"'),
            ["WHERE at = 'x has ' AND at = 'bed and breakfast'"],
        ),
    ],
)
def test_what_is_certain_is_translated(text: str, lines: list[str]) -> None:
    found = other_language(text)
    assert found is not None
    assert found.rule is not None
    assert parse(Source("rule", found.rule))[1] == []
    assert "not translated" not in found.rule
    assert [line for line in found.rule.splitlines() if line in lines] == lines


def test_prev_of_another_variable_keeps_its_meaning() -> None:
    found = other_language(
        "SELECT * FROM payments MATCH_RECOGNIZE (PARTITION BY card ORDER BY ts MEASURES A.amount AS first "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B C) "
        "DEFINE B AS B.amount > A.amount, C AS C.amount > PREV(A.amount))"
    )
    assert found is not None
    assert found.rule is not None
    streams, _ = parse_streams(Source("streams", blocks(PAGE, "yaml")[0]))
    rows = _payments(("10:00:00", 1), ("10:01:00", 10), ("10:02:00", 20), ("10:03:00", 5))
    assert [match["first"] for match in find_matches(found.rule, streams, rows)] == [10.0]


@pytest.mark.parametrize(("name", "is_found"), [("Grand HOTEL", True), ("a_hotel", True), ("hotels", False)])
def test_has_of_kql_finds_whole_terms(name: str, is_found: bool) -> None:
    found = other_language(
        'events | where user_name has "Hotel" | summarize n = count() by host_id, bin(ts, 1m)'
    )
    assert found is not None
    assert found.rule is not None
    streams, _ = parse_streams(Source("streams", blocks(PAGE, "yaml")[0]))
    rows = [{**_events(("10:00:00", "process", "", 0))[0], "user_name": name}]
    assert len(find_matches(found.rule, streams, rows)) == is_found


@pytest.mark.parametrize(
    "text",
    [
        "select " + "pattern [" * 2_000,
        "select x from t match_recognize (" + "(" * 3_000,
        "select x from t match_recognize (pattern (" + "A " * 1_500 + ") define A as true)",
        "sequence by " + "a, " * 1_000 + "[" * 500,
        "from every " + "e1=A -> " * 400,
        "@app:name" + "\n" * 19_000,
        "from " + "a" * 19_000,
        "from every" + " " * 19_000,
        "create " + "@name (" * 2_000,
        "-- x\n" * 9_000 + "select x from t",
        "select sum(" * 400 + " from tumble(5 minutes) group by " + "a," * 300,
    ],
    ids=lambda text: text[:20],
)
def test_a_text_that_could_cost_much_is_read_within_the_limit_of_all_texts(text: str) -> None:
    examine(Text("other language", is_rules=True, data=text.encode()))  # raises HarmError
