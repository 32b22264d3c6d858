"""RLIKE: what a pattern may be, and that it finds what it says."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from cep.compiler.typing.regular_expressions import (
    BROKEN,
    MAX_GROUPS,
    MAX_LENGTH,
    MAX_STEPS,
    MISSING,
    TOO_LARGE,
    problem_of,
)
from cep.engine.prepare.text_functions import matches_pattern
from cep.expression import Call, Column, Literal, Type
from tests.oracle.expressions import evaluate
from tests.regular_expressions import some_pattern, some_text


def found(pattern: str, *texts: str) -> list[bool]:
    assert problem_of(pattern) is None
    return list(matches_pattern(pa.array(texts), pattern).to_pylist())


def by_oracle(pattern: str, text: str | None) -> bool | None:
    call = Call("rlike", (Column("s", Type.STRING), Literal(pattern, Type.STRING)), Type.BOOLEAN)
    result: bool | None = evaluate(call, {"s": text}, {})
    return result


def test_random_patterns_mean_the_same_in_the_engine_and_the_oracle() -> None:
    random = Random(7)
    n_found = 0
    for _ in range(3000):
        pattern = some_pattern(random)
        texts = [some_text(random) for _ in range(8)]
        assert problem_of(pattern) is None, pattern
        expected = [by_oracle(pattern, text) for text in texts]
        assert found(pattern, *texts) == expected, (pattern, texts)
        n_found += sum(map(bool, expected))
    assert 4000 < n_found < 20_000


def test_a_pattern_is_found_anywhere() -> None:
    assert found("b+c", "abbcd", "bd") == [True, False]
    assert found("^b", "b", "ab") == [True, False]
    assert found("a$", "a", "a\n", "ab") == [True, False, False]
    assert found("", "", "x") == [True, True]
    assert found("a.b", "a\nb", "a\rb", "aéb") == [False, True, True]
    assert found("(?s)a.b", "a\nb") == [True]
    assert found("(?i)grün", "GRÜN", "gruen") == [True, False]
    assert found("(?i:a)b", "Ab", "AB") == [True, False]
    assert found(r"^\x41\.\t$", "A.\t") == [True]


@pytest.mark.parametrize(
    ("pattern", "code", "place"),
    [
        ("ab(c", BROKEN, "("),
        ("a)b", BROKEN, ")"),
        ("*a", BROKEN, "*"),
        ("a|+", BROKEN, "+"),
        ("^*", BROKEN, "*"),
        ("(?i)*a", BROKEN, "*"),
        ("a{", BROKEN, "{"),
        ("a{,3}", BROKEN, "{"),
        ("a{3,1}", BROKEN, "{3,1}"),
        ("a{2}{3}", BROKEN, "{3}"),
        ("a**", BROKEN, "*"),
        ("[ab", BROKEN, "["),
        ("[]a]", BROKEN, "]"),
        ("[[:alpha:]]", BROKEN, "["),
        ("[a&&b]", BROKEN, "&&"),
        ("[z-a]", BROKEN, "z-a"),
        (r"[a-\d]", BROKEN, r"a-\d"),
        ("[a-", BROKEN, "["),
        (r"a\q", BROKEN, r"\q"),
        ("a\\", BROKEN, "\\"),
        (r"\x4", MISSING, r"\x"),
        ("a(?=b)", MISSING, "(?="),
        ("(?<!b)a", MISSING, "(?<!"),
        ("(?>a)", MISSING, "(?>"),
        ("(?P<n>a)", MISSING, "(?P<"),
        ("(?<n>a)", MISSING, "(?<"),
        ("(?m)a", MISSING, "(?"),
        ("a(?i)b", MISSING, "(?i)"),
        (r"(a)\1", MISSING, r"\1"),
        ("a++", MISSING, "++"),
        ("a{2}+", MISSING, "{2}+"),
        (r"\pL", MISSING, r"\p"),
        (r"\Ba", MISSING, r"\B"),
        (r"a\Z", MISSING, r"\Z"),
        (r"\h", MISSING, r"\h"),
        ("a{1001}", TOO_LARGE, "a{1001}"),
        ("x(a{40}b){25}", TOO_LARGE, "(a{40}b){25}"),
        ("a{999999999}", TOO_LARGE, "a{999999999}"),
    ],
)
def test_what_is_refused_and_where(pattern: str, code: str, place: str) -> None:
    problem = problem_of(pattern)
    assert problem is not None
    assert (problem.code, pattern[problem.start : problem.stop]) == (code, place)
    assert problem.help


def test_limits() -> None:
    assert problem_of("a" * MAX_LENGTH) is None
    assert problem_of("a" * (MAX_LENGTH + 1)).code == TOO_LARGE  # type: ignore[union-attr]
    assert problem_of(f"[ab]{{{MAX_STEPS // 2}}}") is None
    assert problem_of(f"[ab]{{{MAX_STEPS // 2 + 1}}}").code == TOO_LARGE  # type: ignore[union-attr]
    assert problem_of("(" * MAX_GROUPS + ")" * MAX_GROUPS) is None
    assert problem_of("(" * (MAX_GROUPS + 1) + ")" * (MAX_GROUPS + 1)).code == TOO_LARGE  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)[^ä-ÿα-ωА-я]{333}$",
        f"(?s)^.{{{MAX_STEPS}}}$",
        "(x+x+)+y",
        "((a*)*)*$b",
        ".*a.*b.*c.*d.*e$",
        "(?:a?){500}a{500}$",
        "(" * MAX_GROUPS + "a*" + ")*" * MAX_GROUPS + "$",
        f"(?:{'|'.join('é' * 8 for _ in range(99))}){{1}}$",
    ],
)
def test_the_largest_patterns_search_long_texts_and_end(pattern: str) -> None:
    # A search that goes back in the text would take years; the alarm of tests/conftest.py ends it.
    found(pattern, "a" * 20_000, "éxab" * 5_000, *["x" * 200] * 200)


def test_any_text_as_a_pattern_is_refused_or_searched_with() -> None:
    random = Random(3)
    signs = ["a", "b", "0", "-", ",", "\\", "[", "]", "^", "$", "(", ")", "{", "}", "|", "?", "*", "+", ".",
             "é", ":", "i", "<", "=", "d", "w", "x", "4", "1", "&"]  # fmt: skip
    accepted = 0
    for _ in range(20_000):
        pattern = "".join(random.choice(signs) for _ in range(random.randrange(9)))
        if problem_of(pattern) is None:
            accepted += 1
            texts = ["", "ab", "a-0", "é1"]
            assert found(pattern, *texts) == [by_oracle(pattern, text) for text in texts], pattern
    assert accepted > 500
