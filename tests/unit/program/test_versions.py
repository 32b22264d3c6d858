"""The version of a rule is a hash of its meaning."""

from __future__ import annotations

import pytest

from cep import find_matches, load_rules
from cep.errors import InputError
from cep.program.identity import ProgramIdentity
from cep.rule_set import RULE_VERSION, RuleSet
from cep.schema.stream import Field, Stream

STREAM = Stream("t", (Field("k", "string"), Field("ts", "timestamp"), Field("x", "double")), "ts")
RULE = """RULE up TITLE 'a' PARAM small = 10 FROM t PARTITION BY k PATTERN a -> b WITHIN 1 MINUTE
DEFINE a AS a.x < small, b AS b.x > 100 MEASURES b.x AS top
"""
OTHER = RULE.replace("up", "other").replace("1 MINUTE", "2 MINUTES")
ROWS = [{"k": "one", "ts": n * 1_000_000, "x": x} for n, x in enumerate((1.0, 200.0, 2.0))]


def rules(text: str, parameters: dict[str, str] | None = None) -> RuleSet:
    return load_rules(text, STREAM, parameters=parameters)


@pytest.mark.parametrize(
    ("text", "parameters", "is_same"),
    [
        (RULE, {}, True),
        (RULE.replace("'a'", "'b' SEVERITY low STATUS shadow"), {}, True),
        (OTHER + RULE, {}, True),
        (RULE.replace("small", "little"), {}, True),
        (RULE, {"small": "11"}, False),
        (RULE.replace("1 MINUTE", "2 MINUTES"), {}, False),
        (RULE.replace("b.x AS top", "b.x + 1 AS top"), {}, False),
    ],
)
def test_it_changes_with_the_meaning_and_the_parameters_only(
    text: str, parameters: dict[str, str], is_same: bool
) -> None:
    before, now = rules(RULE).versions["up"], rules(text, parameters).versions["up"]
    assert len(now) == 12
    assert (before == now) is is_same


def test_rules_that_read_matches_change_with_the_rules_that_they_read() -> None:
    reader = "RULE twice FROM MATCHES OF up, t PARTITION BY k PATTERN m WITHIN 1 HOUR DEFINE m ON up"
    before = rules(RULE + reader).versions
    now = rules(RULE.replace("> 100", "> 101") + reader).versions
    assert before["twice"] != now["twice"]


def test_it_is_known_from_what_a_checkpoint_stores() -> None:
    found = rules(RULE + OTHER)
    stored = [ProgramIdentity.of_json(program.identity.to_json()) for program in found.programs]
    assert {name: of for program in stored for name, of in program.versions.items()} == found.versions


def test_matches_have_it_if_asked_for_and_the_same_ids() -> None:
    found = rules(RULE + OTHER)
    plain, told = find_matches(found, None, ROWS), find_matches(found.telling_version(), None, ROWS)
    assert {row["rule"]: row.pop(RULE_VERSION) for row in told} == found.versions
    assert told == plain


def test_a_column_of_the_same_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"E0650.*measure `rule_version`, with `rule_version` matches have"):
        rules(RULE.replace("AS top", "AS rule_version")).telling_version()
