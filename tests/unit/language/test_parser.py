from __future__ import annotations

import pytest

from cep.errors import Source
from cep.language import ast
from cep.language.parser import parse
from cep.language.printer import print_expression, print_pattern, print_rules

_HEAD = "RULE r FROM s PARTITION BY k "


def rule_of(text: str) -> ast.Rule:
    rules, problems = parse(Source("test.cep", text))
    assert problems == []
    (rule,) = rules
    return rule


def pattern_of(text: str) -> ast.Pattern:
    return rule_of(f"{_HEAD} PATTERN {text}").pattern


def expression_of(text: str) -> ast.Expression:
    (definition,) = rule_of(f"{_HEAD} PATTERN a DEFINE a AS {text}").definitions
    assert definition.condition is not None
    return definition.condition


def codes_of(text: str) -> list[str]:
    return [problem.code for problem in parse(Source("test.cep", text))[1]]


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("a b", "a b"),
        ("a->b", "a -> b"),
        ("a ->> b | c d", "a ->> b | c d"),
        ("a (b | c) d", "a (b | c) d"),
        ("((a)) (b c)", "a (b c)"),
        ("a->+ -> b", "a->+ -> b"),
        ("probe->{3,} -> cashout", "probe->{3,} -> cashout"),
        ("a ->> {2} b", "a->>{2} b"),
        ("a{,4}? b{2,3} c{5}", "a{,4}? b{2,3} c{5}"),
        ("a?? b*? c+?", "a?? b*? c+?"),
        ("(a -> b)->* c", "(a -> b)->* c"),
        ("(a+){2}", "(a+){2}"),
        ("a !b -> !c -> d", "a !b -> !c -> d"),
        ("a | (b | c)", "a | (b | c)"),
        ("`within` -> `two words`", "`within` -> `two words`"),
        ("start -> end", "start -> `end`"),
    ],
)
def test_a_pattern_is_read_as_it_is_printed(written: str, printed: str) -> None:
    found = pattern_of(written)
    assert print_pattern(found) == printed
    assert pattern_of(printed) == found


def test_an_arrow_before_a_quantifier_is_the_joint_inside_it() -> None:
    match pattern_of("a->+ -> b"):
        case ast.Sequence(items=(ast.Item(pattern=ast.Repetition(joint=inside)), ast.Item(joint=between))):
            assert (inside, between) == (ast.Joint.NEXT, ast.Joint.NEXT)
        case other:
            pytest.fail(str(other))


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("1 + 2 * 3 = 7", "(1 + (2 * 3)) = 7"),
        ("8 - 4 - 2 = 2", "((8 - 4) - 2) = 2"),
        ("a.x / 2 % 3 > 1", "((a.x / 2) % 3) > 1"),
        ("x = 1 OR y = 2 AND z = 3", "x = 1 OR (y = 2 AND z = 3)"),
        ("NOT x = 1 AND y", "NOT (x = 1) AND y"),
        ("NOT NOT x", "NOT (NOT x)"),
        ("x != 1 and y == 2", "x <> 1 AND y = 2"),
        ("x BETWEEN 1 AND 2 AND y", "x BETWEEN 1 AND 2 AND y"),
        ("x NOT BETWEEN 1 AND 2 + 3", "x NOT BETWEEN 1 AND (2 + 3)"),
        ("x NOT IN (1, -2, 3.5)", "x NOT IN (1, -2, 3.5)"),
        ("s NOT LIKE 'it''s%'", "s NOT LIKE 'it''s%'"),
        ("x > 5 IS NOT TRUE", "(x > 5) IS NOT TRUE"),
        ("x IS NULL", "x IS NULL"),
        ("- - 5 < -x", "(-(-5)) < (-x)"),
        ("-9223372036854775808 < x", "-9223372036854775808 < x"),
        (".5 < 1e3", "0.5 < 1000.0"),
        ("ts - a.ts < interval '90' second", "(ts - a.ts) < 90 SECONDS"),
        ("ts - a.ts < 60 seconds", "(ts - a.ts) < 1 MINUTE"),
        ("ts > timestamp '2020-01-31T01:00:00+01:00'", "ts > TIMESTAMP '2020-01-31 00:00:00'"),
        ("case when x then 1 else 0 end = 1", "CASE WHEN x THEN 1 ELSE 0 END = 1"),
        ("case x when 1 then 'a' end = 'a'", "CASE x WHEN 1 THEN 'a' END = 'a'"),
        ("count(a.*) > 1 and last(a.x, 1) < x", "COUNT(a.*) > 1 AND LAST(a.x, 1) < x"),
        (
            "title = 'x' and tags = severity and match_id",
            "`title` = 'x' AND `tags` = `severity` AND match_id",
        ),
        ("a.from > timestamp", "a.`from` > timestamp"),
        ("x -- a comment > 5\n > 3", "x > 3"),
    ],
)
def test_an_expression_is_read_as_it_is_printed(written: str, printed: str) -> None:
    found = expression_of(written)
    assert print_expression(found) == printed
    assert expression_of(printed) == found


def test_clauses_may_come_in_any_order_and_case() -> None:
    rule = rule_of(
        "rule `my rule` no skip define a as x match all measures a.x as y within <= 2 hours "
        "pattern a from s title 't' tags x, 'y z' severity HIGH partition by k, l"
    )
    assert rule.name.text == "my rule"
    assert rule.mode is ast.Mode.ALL
    assert rule.skip == ast.Skip(ast.SkipTarget.NO_SKIP, None, rule.span)
    assert rule.window == ast.Window(7_200_000_000, True, rule.span)
    assert rule.tags == ("x", "y z")
    assert rule.severity == "high"
    assert [part.name.text for part in rule.key] == ["k", "l"]


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("AFTER MATCH SKIP PAST LAST EVENT", ast.SkipTarget.PAST_LAST_EVENT),
        ("AFTER MATCH SKIP TO NEXT EVENT", ast.SkipTarget.TO_NEXT_EVENT),
        ("AFTER MATCH SKIP TO FIRST a", ast.SkipTarget.TO_FIRST),
        ("AFTER MATCH SKIP TO LAST a", ast.SkipTarget.TO_LAST),
        ("AFTER MATCH NO SKIP", ast.SkipTarget.NO_SKIP),
        ("NO SKIP", ast.SkipTarget.NO_SKIP),
    ],
)
def test_every_skip_clause_is_read(written: str, target: ast.SkipTarget) -> None:
    skip = rule_of(f"{_HEAD} PATTERN a {written} MATCH ALL").skip
    assert skip is not None
    assert skip.target is target


def test_a_rule_with_a_problem_does_not_hide_the_others() -> None:
    rules, problems = parse(
        Source("test.cep", f"{_HEAD} PATTERN a ->\nRULE s FROM\n{_HEAD.replace(' r ', ' t ')} PATTERN a")
    )
    assert [rule.name.text for rule in rules] == ["t"]
    assert [problem.code for problem in problems] == ["E0101", "E0101", "E0106", "E0106"]


def test_the_end_of_a_file_is_pointed_at_after_its_last_word() -> None:
    _, (problem,) = parse(Source("test.cep", f"{_HEAD}PATTERN a ->   \n\n-- no more\n"))
    assert problem.span is not None
    assert problem.span.start == len(f"{_HEAD}PATTERN a ->")


@pytest.mark.parametrize(
    "text",
    ["\ufeffRULE", "RULE", "RULE RULE RULE", "'", "`", "\x00", "(" * 3000, "RULE r PATTERN " + "(" * 5000],
)
def test_any_text_is_refused_with_a_code(text: str) -> None:
    codes = codes_of(text)
    assert codes
    assert all(code.startswith("E01") or code == "E0902" for code in codes)


def test_nesting_right_below_the_limit_is_read() -> None:
    assert codes_of(f"{_HEAD} PATTERN {'(' * 64}a{')' * 64} DEFINE a AS {'(' * 64}x{')' * 64}") == []
    assert codes_of(f"{_HEAD} PATTERN {'(' * 65}a{')' * 65}") == ["E0902"]
    assert codes_of(f"{_HEAD} PATTERN a DEFINE a AS {'NOT ' * 99}x") == []
    assert codes_of(f"{_HEAD} PATTERN a DEFINE a AS {'NOT ' * 5000}x") == ["E0902"]
    assert codes_of(f"{_HEAD} PATTERN a DEFINE a AS {' AND '.join(['x'] * 4000)}") == []


def test_rules_of_a_file_are_printed_one_after_another() -> None:
    text = f"{_HEAD} TITLE 'it''s' PATTERN a -> b WITHIN < 90 SECONDS RULE q FROM s PARTITION BY k PATTERN a"
    rules, _ = parse(Source("test.cep", text))
    again, problems = parse(Source("printed.cep", print_rules(rules)))
    assert problems == []
    assert again == rules


def test_a_limit_of_runs_may_stand_before_on_timeout() -> None:
    report = rule_of(f"{_HEAD} PATTERN a MAX RUNS 5 PER KEY ON TIMEOUT WITHIN 1 HOUR").report
    assert report.limit is not None
    assert report.limit.overflow is None
    assert report.timeout is not None


@pytest.mark.parametrize(
    "text",
    [
        "RULE r FROM window PARTITION BY window PATTERN window -> sliding\nDEFINE window AS TRUE",
        "RULE r FROM s PARTITION BY k PATTERN a\nLET window = AVG(x) OVER ALL\nDEFINE a AS window > 5",
        "RULE r FROM s PARTITION BY k PATTERN `group` -> by DEFINE group BY k AS x > 5",
        "RULE r FROM s PARTITION BY k PATTERN limit -> event\n  -> select -> emit DEFINE event AS TRUE",
        "RULE r FROM s PARTITION BY k PATTERN a DEFINE a AS having > 5 AND window = where",
        "RULE r FROM s PARTITION BY k WINDOW TUMBLING 1 HOUR HAVING SUM(window) > 5",
    ],
)
def test_words_of_foreign_clauses_are_names_wherever_no_such_clause_is_meant(text: str) -> None:
    assert codes_of(text) == []


def test_one_mistake_in_a_clause_that_is_needed_is_one_problem() -> None:
    for wrong in ("GROUP BY k", "PARTITON BY k"):
        assert len(codes_of(f"RULE r\nFROM s\n{wrong}\nPATTERN a -> b\nWITHIN 1 HOUR")) == 1
    assert codes_of("RULE r\nFROM s\nPARTITION BY k\nWINDOW SLIDING 1 HOUR\nHAVING COUNT(*) > 1") == ["E0114"]


@pytest.mark.parametrize("opened", ["(" * 60, "(a -> " * 60, "a{", "a ->[", "!("])
def test_the_innermost_bracket_that_is_open_is_named(opened: str) -> None:
    (problem,) = parse(Source("t", f"{_HEAD}\nPATTERN {opened}\nDEFINE a AS x > 5"))[1]
    assert problem.code == "E0116"
    assert problem.span is not None
    innermost = max(opened.rindex(sign) for sign in "({[" if sign in opened)
    assert problem.span.start == len(f"{_HEAD}\nPATTERN ") + innermost


def test_words_of_clauses_are_names_after_a_comma_at_the_start_of_a_line() -> None:
    words = ("title", "tags", "severity", "let", "param", "status", "join", "on", "no")
    listed = ",\n".join(("x", *words))
    measures = ",\n".join(f"{word} AS {word}" for word in ("x", *words))
    text = f"RULE r FROM s PARTITION BY {listed} PATTERN a DEFINE a AS GREATEST({listed}) > 3"
    assert parse(Source("r", f"{text} MEASURES {measures}"))[1] == []
