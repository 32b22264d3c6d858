"""What is legal and probably not meant: each warning, and how to say that it is meant."""

from __future__ import annotations

import re
from random import Random

import pytest

from cep.compiler.compile import check_sources
from cep.errors import Diagnostic, Source
from cep.language.foreign import VARIABLE_WORDS
from cep.local.find_matches import find_matches
from tests.letters import LETTERS, LetterRule, match_letters

DEFINED = "DEFINE a AS letter = 'A', b AS letter = 'B', c AS letter = 'C'"


def problems_of(clauses: str) -> list[Diagnostic]:
    text = f"RULE r FROM letters PARTITION BY key {clauses}"
    return list(check_sources([Source("r.cep", text)], {"letters": LETTERS})[1])


def codes_of(clauses: str) -> list[str]:
    return [problem.code for problem in problems_of(clauses)]


@pytest.mark.parametrize(
    "clauses",
    [
        "DEFINE a AS x = 1",
        "DEFINE a AS x = 1 MEASURES COUNT(*) AS n",
        "DEFINE a AS x = 1 MATCH ALL AFTER MATCH SKIP TO LAST a",
        "DEFINE a AS x = 1 SUBSET u = (a)",
    ],
)
def test_a_variable_that_nothing_defines_or_reads_is_warned_of(clauses: str) -> None:
    assert codes_of(f"PATTERN a -> v WITHIN 1 HOUR {clauses}") == ["W0511"]


@pytest.mark.parametrize(
    "clauses",
    [
        "DEFINE a AS x = 1, v AS TRUE",
        "DEFINE a AS x = 1, v ON letters",
        "DEFINE a AS x = 1 MEASURES COUNT(v.*) AS n",
        "DEFINE a AS x = 1 MEASURES v.x + 1 AS n",
        "DEFINE a AS x = 1 AFTER MATCH SKIP TO LAST v",
        "DEFINE a AS x = 1 SUBSET u = (a, v)",
    ],
)
def test_one_that_is_meant_to_be_any_event_is_not(clauses: str) -> None:
    assert codes_of(f"PATTERN a -> v WITHIN 1 HOUR {clauses}") == []
    assert codes_of("PATTERN v -> a WITHIN 1 HOUR DEFINE a AS x > v.x") == []
    assert codes_of("PATTERN v -> a+ UNTIL (x > v.x) WITHIN 1 HOUR DEFINE a AS x > 1") == []


def test_a_rule_that_defines_nothing_has_one_warning() -> None:
    (problem,) = problems_of("PATTERN a -> b -> c WITHIN 1 HOUR")
    assert (problem.code, problem.title) == ("W0511", "no variable of this pattern is defined")


def test_any_event_may_be_taken_as_a_variable_that_is_true() -> None:
    rule = LetterRule("a v b", define={"v": "TRUE"})
    assert match_letters(rule, "A X B") == ["A X B"]


@pytest.mark.parametrize("word", [*VARIABLE_WORDS, "followedBy", "followed_by", "EVERY", "x3", "X12"])
def test_a_word_of_another_language_is_warned_of_unless_it_is_defined(word: str) -> None:
    name = f"`{word}`" if word == "`" else word
    assert codes_of(f"PATTERN a {name} b WITHIN 1 HOUR {DEFINED.partition(', c')[0]}") == ["W0512"]
    defined = f"{DEFINED.partition(', c')[0]}, {name} AS TRUE"
    assert codes_of(f"PATTERN a {name} b WITHIN 1 HOUR {defined}") == []


GUARDED = [
    "b -> !c -> a->{2} -> d",
    "b -> !c -> a->{3} -> d",
    "b -> !c -> a->+ -> d",
    "b -> !c -> a->{2,3}? -> d",
    "b -> !c -> a->>{2,} -> d",
    "b -> !c -> a->* -> d",
    "b -> !c -> (a e)->{2,3} -> d",
    "b ->> !c -> a->[<= 2 SECONDS]{2,4} -> d",
    "b -> !c -> a->{2,}+ -> d",
]


@pytest.mark.parametrize("pattern", GUARDED)
def test_what_to_write_for_an_absence_before_a_loop_means_what_it_says(pattern: str) -> None:
    """Over random streams: one form has the matches of the pattern, the other those without a C inside."""
    names = [name for name in "abcde" if name in pattern]
    defined = "DEFINE " + ", ".join(f"{name} AS letter = '{name.upper()}'" for name in names)
    problems = problems_of(f"PATTERN {pattern} WITHIN 1 HOUR {defined}")
    (problem,) = [problem for problem in problems if problem.code == "W0513"]
    found = re.fullmatch(r"write (.+) if it holds in the loop, too, (.+) if not", problem.help)
    loop = re.search(r"->>? !c -> .+(?= -> d)", pattern)
    assert found is not None
    assert loop is not None
    inside, outside = (pattern.replace(loop[0], text) for text in found.groups())
    random = Random(pattern)
    pieces = ["AE", "AE", "B", "C", "D"] if "e" in pattern else list("AAABCD")
    streams = ["".join(random.choice(pieces) for _ in range(12)) for _ in range(400)]
    matches, clean, same = (_matches(text, streams, names) for text in (pattern, inside, outside))
    assert same == matches
    held = {(key, taken) for key, taken in matches if _holds(streams[key], taken)}
    if pattern.endswith("+ -> d") and "->+" not in pattern:  # possessive: it holds behind the loop, too
        assert clean < held
    else:
        assert clean == held
    assert len(matches) > len(clean) > 0
    for text in (inside, outside):
        assert "W0513" not in codes_of(f"PATTERN {text} WITHIN 1 HOUR {defined}")


def _matches(pattern: str, streams: list[str], names: list[str]) -> set[tuple[int, tuple[int, ...]]]:
    """Return the matches in all streams: number of the stream, places of the events taken."""
    taken = ", ".join(name for name in names if name != "c")
    rule = LetterRule(pattern, match="ALL", subset=f"u = ({taken})", measures="ARRAY_AGG(u.seq) AS taken")
    rows = [
        {"key": str(number), "ts": place * 1_000_000, "letter": letter, "seq": place}
        for number, stream in enumerate(streams)
        for place, letter in enumerate(stream)
    ]
    found = find_matches(rule.text(), {"letters": LETTERS}, rows)
    return {(int(match["key"]), tuple(match["taken"])) for match in found}


def _holds(stream: str, taken: tuple[int, ...]) -> bool:
    """Say whether no C lies between the first and the last repetition."""
    return "C" not in stream[taken[1] : taken[-2]]


@pytest.mark.parametrize(
    "pattern",
    [
        "a -> !c -> b->{3} -> !c -> a",
        "a -> !c -> (b -> !c)->{2} -> b",
        "a -> !c -> b b",
        "a -> !c -> b{3}",
        "a -> !c -> b->?",
        "a !c -> b->{3}",
        "a -> !c FOR 1 SECOND -> b->{3}",
        "!c -> a->{2} -> b",
    ],
)
def test_an_absence_that_holds_in_the_loop_or_is_of_another_kind_is_not_warned_of(pattern: str) -> None:
    assert "W0513" not in codes_of(f"PATTERN {pattern} WITHIN 1 HOUR {DEFINED}")


@pytest.mark.parametrize(
    ("pattern", "condition", "expected"),
    [
        ("a->{2,} -> b", "letter = 'B' AND x = a.x", ["W0514"]),
        ("a->{2,} -> !c -> b", "a.x = x", ["W0514"]),
        ("a->+? -> (b | c)", "x = a.x AND y > 1", ["W0514"]),
        ("a->{2,}+ -> b", "x = a.x", []),
        ("a->{2} -> b", "x = a.x", []),
        ("a->{2,} b", "x = a.x", []),
        ("a{2,} -> b", "x = a.x", []),
        ("a->{2,} -> b", "x = LAST(a.x)", []),
        ("a->{2,} -> b", "x > a.x", []),
        ("a->{2,} -> b", "x = a.x OR y = 1", []),
        ("a->{2,} -> b", "key = a.key", []),
    ],
)
def test_a_comparison_with_a_loop_that_can_end_anywhere_is_warned_of(
    pattern: str, condition: str, expected: list[str]
) -> None:
    clauses = f"PATTERN {pattern} WITHIN 1 HOUR DEFINE a AS letter = 'A', b AS {condition}"
    clauses += ", c AS letter = 'C'" if "c" in pattern else ""
    assert codes_of(clauses) == expected


def test_such_a_comparison_is_true_of_any_event_of_the_loop() -> None:
    events = "A1(x=1) A2(x=2) A3(x=3) B(x=2)"
    assert match_letters(LetterRule("a->{2,} -> b", where={"b": "x = a.x"}), events) == ["A1 A2 B"]
    assert match_letters(LetterRule("a->{2,}+ -> b", where={"b": "x = a.x"}), events) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a b{3,} c{3,}", []),
        ("a b* c", []),
        ("(a | b)+ c", []),
        ("a b+ -> c", ["W0501", "W0504"]),
        ("a->+ b c", ["W0501"]),
        ("a->[<= 5 SECONDS]+ b c", ["W0501"]),
    ],
)
def test_a_strict_loop_ends_with_the_next_event_that_does_not_fit(pattern: str, expected: list[str]) -> None:
    assert codes_of(f"PATTERN {pattern} {DEFINED}") == expected


def test_a_strict_loop_of_any_event_does_not() -> None:
    assert codes_of("PATTERN a b+ c DEFINE a AS x = 1, c AS x > b.x") == ["W0501"]
