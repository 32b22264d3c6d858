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
        ("create schema A (x int);\nselect * from A", "this is Esper's EPL"),
        ("@Name('x') select * from A#length(5)", "this is Esper's EPL"),
        ("define stream S (x int);", "this is Siddhi"),
        ("from S[x > 5] select x insert into T;", "this is Siddhi"),
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
