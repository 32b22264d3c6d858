"""Durations as people write them."""

from __future__ import annotations

import pytest

from cep.errors import Source
from cep.language import ast
from cep.language.parser import parse
from cep.schema.time_literals import parse_duration, print_duration

SECOND_US = 1_000_000


@pytest.mark.parametrize(
    ("text", "length_us"),
    [
        ("10 seconds", 10 * SECOND_US),
        ("10s", 10 * SECOND_US),
        ("10 sec", 10 * SECOND_US),
        ("10m", 600 * SECOND_US),
        ("10 min", 600 * SECOND_US),
        ("2h", 7200 * SECOND_US),
        ("3 d", 259_200 * SECOND_US),
        ("1 W", 604_800 * SECOND_US),
        ("250ms", 250_000),
        ("7 us", 7),
        ("1.5 hours", 5400 * SECOND_US),
        (".5 s", 500_000),
        ("0.000001 SECONDS", 1),
        (" 1 hour 30 minutes ", 5400 * SECOND_US),
        ("1h30m", 5400 * SECOND_US),
        ("30 minutes 1 hour", 5400 * SECOND_US),
        ("0 seconds", 0),
    ],
)
def test_a_duration_is_read_in_yaml_and_in_a_rule(text: str, length_us: int) -> None:
    assert parse_duration(text) == length_us
    for written in (text, f"INTERVAL '{text}'", f"INTERVAL {text}"):
        rules, problems = parse(Source("t", f"RULE r FROM s PARTITION BY k PATTERN a WITHIN {written}"))
        assert problems == []
        (rule,) = rules
        assert isinstance(rule.window, ast.Window)
        assert rule.window.length_us == length_us
    assert parse_duration(print_duration(length_us)) == length_us


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "s",
        "10 months",
        "1e3 s",
        "-5 s",
        "+5 s",
        "5 s, 3 ms",
        "1_0 s",
        "0.0000001 s",
        "1.5 us",
        "5. s",
    ],
)
def test_what_is_no_duration_is_none(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    ("written", "length_us"),
    [
        ("INTERVAL '10' MINUTE", 600 * SECOND_US),
        ("INTERVAL '1.5' HOUR", 5400 * SECOND_US),
        ("INTERVAL 1 HOUR 30 MINUTES", 5400 * SECOND_US),
    ],
)
def test_an_interval_stands_wherever_a_duration_does(written: str, length_us: int) -> None:
    text = (
        f"RULE r FROM s PARTITION BY k "
        f"PATTERN (a ->[< {written}] b ->[{written}, {written}]+ -> !c FOR {written}"
        f" WITHIN {written}) WITHIN < {written} DEFINE b AS ts - a.ts < {written} SUPPRESS FOR {written}"
    )
    (rule,), problems = parse(Source("t", text))
    assert problems == []
    assert rule.report.suppression is not None
    assert isinstance(rule.window, ast.Window)
    assert isinstance(rule.pattern, ast.Group)
    assert isinstance(rule.pattern.window, ast.Window)
    found = [rule.report.suppression.length_us, rule.window.length_us, rule.pattern.window.length_us]
    assert isinstance(rule.pattern.body, ast.Sequence)
    gaps = [item.gap for item in rule.pattern.body.items]
    found += [gap.first_us for gap in gaps if gap is not None]
    assert found == [length_us] * 4
