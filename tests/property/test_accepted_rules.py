"""Each rule that the analyzer accepts can be compiled, so each type and function has a way to bytecode."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cep.compiler.analysis.analyze import analyze
from cep.compiler.compile import compile_rules
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.language.parser import parse
from cep.settings.schema_file import load_streams
from tests.deep import n_cases
from tests.golden.errors_cases import FOLDER

_STREAMS = load_streams(FOLDER / "streams.yaml")
_COLUMNS = {"N": ["amount", "items", "id"], "S": ["country", "card"], "T": ["ts"], "B": ["approved"]}

# Texts of expressions by type, with columns of the event under test and of the variables a and b.
_TEMPLATES = {
    "N": "({N} {op} {N})|ABS({N})|FLOOR({N})|SQRT({N})|DOUBLE({N})|LENGTH({S})|COALESCE({N}, NULL)"
    "|LEAST({N}, {N})|CASE WHEN {B} THEN {N} ELSE {N} END|{sum}({v}.{n})|COUNT({v}.*)|COUNT({v}.card)"
    "|-({N})|2.5|3|COUNT(*)|u.amount|SUM(u.items)|ROUND({N}, 2)|POWER({N}, 2)|NULLIF({N}, {N})"
    "|IF({B}, {N}, {N})"
    "|HOUR({T})|UNIX_SECONDS({T})|INSTR({S}, {S})|CAST({S} AS BIGINT)|CAST({N} AS BIGINT)|MOD({N}, {N})",
    "S": "UPPER({S})|COALESCE({S}, {S})|CASE WHEN {B} THEN {S} END|GREATEST({S}, {S})|'DE'|'x'"
    "|TRIM({S})|LEFT({S}, 2)|SUBSTRING({S}, LENGTH({S}))|REPLACE({S}, 'a', {S})|SPLIT_PART({S}, '-', 1)"
    "|CAST(COUNT({v}.*) AS STRING)|NULLIF({S}, {S})|u.country",
    "T": "({T} + {I})|MIN({v}.ts)|TIMESTAMP '2020-01-01'|DATE_TRUNC('HOUR', {T})|TIMESTAMP_SECONDS(COUNT(*))"
    "|FROM_UTC_TIMESTAMP({v}.ts, 'Asia/Kolkata')",
    "I": "({T} - {T})|ABS({I})|({I} + {I})|5 MINUTES",
    "B": "({N} {cmp} {N})|({S} {cmp} {S})|({T} {cmp} {T})|({I} {cmp} {I})|({B} = {B})|({B} AND {B})"
    "|({B} OR {B})|NOT ({B})|({N} IS NULL)|({S} IS NOT NULL)|({B} IS NOT TRUE)|({S} IN ('x', 'DE'))"
    "|ISNAN({N})|({S} LIKE 'D%')|CONTAINS({S}, {S})|({N} BETWEEN {N} AND {N})",
}


@st.composite
def _expression(draw: st.DrawFn, kind: str, depth: int) -> str:
    leaves = []
    if kind in _COLUMNS:
        column = st.sampled_from(_COLUMNS[kind])
        leaves.append(st.builds("{}{}".format, st.sampled_from(["", "a.", "b."]), column))
        leaves.append(st.builds("LAST({}.{}, {})".format, st.sampled_from("ab"), column, st.integers(0, 2)))
    if depth == 0:
        return draw(st.one_of(*leaves)) if leaves else "5 MINUTES"
    template = draw(st.sampled_from([*_TEMPLATES[kind].split("|"), *["leaf"] * 4 * bool(leaves)]))
    if template == "leaf":
        leaf: str = draw(st.one_of(*leaves))
        return leaf
    for name, words in (
        ("op", ["+", "-", "*", "/", "%"]),
        ("cmp", ["=", "<>", "<", ">="]),
        ("sum", ["SUM", "AVG", "MIN", "STDDEV"]),
        ("v", ["a", "b"]),
        ("n", _COLUMNS["N"]),
    ):
        while f"{{{name}}}" in template:
            template = template.replace(f"{{{name}}}", draw(st.sampled_from(words)), 1)
    for part in _TEMPLATES:
        while f"{{{part}}}" in template:
            template = template.replace(f"{{{part}}}", draw(_expression(part, depth - 1)), 1)
    return template


@settings(
    max_examples=n_cases(300),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(_expression("B", 3), st.sampled_from(sorted(_COLUMNS)).flatmap(lambda kind: _expression(kind, 2)))
def test_a_rule_without_errors_compiles(condition: str, measure: str) -> None:
    text = (
        "RULE r FROM payments PARTITION BY card PATTERN a -> b WITHIN 1 HOUR SUBSET u = (a, b) "
        f"DEFINE b AS {condition} MEASURES {measure} AS m"
    )
    rules, problems = parse(Source("test.cep", text))
    assert not problems, render(problems)
    typed, problems = analyze(rules, _STREAMS)
    # The texts are well typed. Only texts of other events and columns of no event may still be refused.
    assert {problem.code for problem in problems if problem.is_error} <= {"E0209", "E0211"}
    assert len(compile_rules(typed, _STREAMS)) == len(typed)  # most examples reach this line
