"""The usual layout of rules: what `cep fmt` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cep.errors import RuleError, Source
from cep.language.front_ends import rule_files
from cep.language.layout import laid_out

ROOT = Path(__file__).parents[3]
HEAD = "RULE r\nFROM s\nPARTITION BY k\n"


def layout(text: str) -> str:
    laid = laid_out(Source("r.cep", text))
    assert laid_out(Source("r.cep", laid)) == laid
    return laid


@pytest.mark.parametrize(
    "path",
    [*rule_files(ROOT / "rules"), *rule_files(ROOT / "scenarios")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_rules_of_this_project_are_in_the_usual_layout(path: Path) -> None:
    text = path.read_text()
    assert laid_out(Source(str(path), text)) == text


def test_clauses_items_and_columns_get_their_places() -> None:
    text = (
        "rule r title 'x'  severity high tags a ,b from s join t on k partition  by k pattern a->b{2,}"
        "->[<=5 s]c within 10 minutes let x=avg ( p ) over last 10 minutes,long=- p define a as x>1 and p "
        "in(1,2),longer on s as p between - 1 and 2 measures count( a.* ) as n,a.p as price after match "
        "skip past last event"
    )
    assert layout(text) == (
        "RULE r\n"
        "  TITLE 'x'\n"
        "  SEVERITY high\n"
        "  TAGS a, b\n"
        "FROM s\n"
        "JOIN t ON k\n"
        "PARTITION BY k\n"
        "PATTERN a -> b{2,} ->[<= 5 s] c\n"
        "WITHIN 10 MINUTES\n"
        "LET\n"
        "  x    = AVG(p) OVER LAST 10 MINUTES,\n"
        "  long = -p\n"
        "DEFINE\n"
        "  a           AS x > 1 AND p IN (1, 2),\n"
        "  longer ON s AS p BETWEEN -1 AND 2\n"
        "MEASURES\n"
        "  COUNT(a.*) AS n,\n"
        "  a.p        AS price\n"
        "AFTER MATCH SKIP PAST LAST EVENT\n"
    )


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        ("a - > b", None),
        ("a->{2,3}+->b", "a->{2,3}+ -> b"),
        ("a ->> + ?", "a->>+?"),
        ("a->[ <=5 s ]{ 3 }DISTINCT BY x", "a->[<= 5 s]{3} DISTINCT BY x"),
        ("a[< 5 s]{3}", "a[< 5 s]{3}"),
        ("a [1 s,2 s] b", "a [1 s, 2 s] b"),
        ("a ->[1h30m,2h]b", "a ->[1h30m, 2h] b"),
        ("a->!( b|c )for 5 minutes->d", "a -> !(b | c) FOR 5 MINUTES -> d"),
        ("^(a b)", "^ (a b)"),
        ("permute (a,b)", "PERMUTE(a, b)"),
        ("a&b|c", "a & b | c"),
        ("(a&b)|c", "(a & b) | c"),
        ("a->{2,} UNTIL(x.y+1>-2 or abs (z)>1)->b", "a->{2,} UNTIL (x.y + 1 > -2 OR ABS(z) > 1) -> b"),
        ("( a->b WITHOUT(c|d) )", "(a -> b WITHOUT (c | d))"),
        ("(a ->b within<5 minutes)c", "(a -> b WITHIN < 5 MINUTES) c"),
    ],
)
def test_signs_of_a_pattern_get_their_spaces(pattern: str, shown: str | None) -> None:
    text = f"{HEAD}PATTERN {pattern}\n"
    if shown is None:
        with pytest.raises(RuleError):
            layout(text)
    else:
        assert layout(text) == f"{HEAD}PATTERN {shown}\n"


@pytest.mark.parametrize(
    ("condition", "shown"),
    [
        ("- - p=1", "- -p = 1"),
        ("p- -1=2*-q", "p - -1 = 2 * -q"),
        ("not(p=1)or( q . x=2 )", "NOT (p = 1) OR (q.x = 2)"),
        ("count(*)-1>0", "COUNT(*) - 1 > 0"),
        ("count(distinct(p))>1", "COUNT(DISTINCT (p)) > 1"),
        ("case when p then -1 else(2)end>0", "CASE WHEN p THEN -1 ELSE (2) END > 0"),
        ("cast( p as double )>1", "CAST(p AS DOUBLE) > 1"),
        ("p||'a  b'='--c'", "p || 'a  b' = '--c'"),
        ("`Two  words`=1", "`Two  words` = 1"),
        ("sum(p)filter(where q)over(last 5 events)>0", None),
        ("sum(p)filter(where q)over last 5 events>0", "SUM(p) FILTER (WHERE q) OVER LAST 5 EVENTS > 0"),
    ],
)
def test_signs_of_a_condition_get_their_spaces(condition: str, shown: str | None) -> None:
    text = f"{HEAD}PATTERN a\nDEFINE a AS {condition}\n"
    if shown is None:
        with pytest.raises(RuleError):
            layout(text)
    else:
        assert layout(text) == f"{HEAD}PATTERN a\nDEFINE a AS {shown}\n"


def test_comments_stay_behind_their_words_and_on_their_lines() -> None:
    text = (
        "\n\n-- about the file\n\n\n-- about the rule\nRULE r-- name\n  FROM s\n     -- before a clause   \n"
        "\nPARTITION BY k\nPATTERN a -- first\n  -> b\nDEFINE a AS p = 1 -- one\n  -- two\n , b AS p = 2"
        " -- three\n"
        "   -- last item\nWITHIN 5 MINUTES\n\n-- end\n\n"
    )
    assert layout(text) == (
        "-- about the file\n\n-- about the rule\nRULE r  -- name\nFROM s\n-- before a clause\n"
        "PARTITION BY k\nPATTERN a  -- first\n        -> b\nDEFINE\n  a AS p = 1,  -- one\n  -- two\n"
        "  b AS p = 2  -- three\n-- last item\nWITHIN 5 MINUTES\n\n-- end\n"
    )


def test_an_empty_line_precedes_a_rule_and_its_comments() -> None:
    rule = f"{HEAD}PATTERN a\n"
    assert layout(rule + rule) == f"{rule}\n{rule}"
    assert layout(f"{rule}-- next\n{rule}") == f"{rule}\n-- next\n{rule}"
    assert layout(f"{rule}-- of this one\n\n\n{rule}") == f"{rule}-- of this one\n\n{rule}"
    assert layout(f"{rule}  -- next\n\n-- more\n{rule}") == f"{rule}-- next\n\n-- more\n{rule}"


def test_lines_of_a_condition_stay_and_a_long_line_is_divided() -> None:
    assert layout(f"{HEAD}PATTERN a\nDEFINE a AS p = 1\nAND (q = 1\nOR r\n= 2)\nAND COALESCE(\nx,\ny\n)") == (
        f"{HEAD}PATTERN a\nDEFINE\n"
        "  a AS p = 1\n"
        "       AND (q = 1\n"
        "           OR r\n"
        "               = 2)\n"
        "       AND COALESCE(x,\n"
        "           y)\n"
    )
    terms = " AND ".join(f"value_{number:02} BETWEEN 1 AND 2" for number in range(9))
    lines = layout(f"{HEAD}PATTERN a\nDEFINE a AS {terms}").splitlines()
    assert lines[5:] == [
        f"  a AS {' AND '.join(f'value_{number:02} BETWEEN 1 AND 2' for number in range(4))}",
        f"       AND {' AND '.join(f'value_{number:02} BETWEEN 1 AND 2' for number in range(4, 7))}",
        "       AND value_07 BETWEEN 1 AND 2 AND value_08 BETWEEN 1 AND 2",
    ]


@pytest.mark.parametrize("value", ["ABS(\na.p\n)", "TIMESTAMP\n'1970-01-01 00:00:00'", "a\n.p", "a.p +\n1"])
def test_columns_are_the_same_when_a_line_break_of_an_item_goes(value: str) -> None:
    text = f"{HEAD}PATTERN a\nMEASURES a.longer_name AS n,\n{value} AS m\n"
    once = laid_out(Source("r.cep", text))
    assert laid_out(Source("r.cep", once)) == once


def test_a_text_with_a_problem_is_refused() -> None:
    with pytest.raises(RuleError, match="E0101"):
        laid_out(Source("r.cep", f"{HEAD}PATTERN a ->\n"))
