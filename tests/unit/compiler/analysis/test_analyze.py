from __future__ import annotations

import pytest

from cep.compiler import ir
from cep.compiler.analysis.analyze import analyze
from cep.diagnostics.diagnostic import render
from cep.errors import Source
from cep.expression import Aggregate, Call, Column, Expression, Literal, Type, is_local
from cep.language.parser import parse
from cep.schema.stream import Field, Stream

_COLUMNS = {
    "id": "bigint",
    "card": "string",
    "ts": "timestamp",
    "amount": "double",
    "items": "int",
    "country": "string",
    "city": "string",
    "approved": "boolean",
}
STREAMS = {"payments": Stream("payments", tuple(Field(*item) for item in _COLUMNS.items()), "ts", ("id",))}
_HEAD = "RULE r FROM payments PARTITION BY card"

AMOUNT = Column("amount", Type.DOUBLE)
ITEMS = Column("items", Type.BIGINT)
COUNTRY = Column("country", Type.STRING)
TS = Column("ts", Type.TIMESTAMP)


def analyzed(text: str) -> tuple[tuple[ir.Rule, ...], list[str]]:
    rules, problems = parse(Source("test.cep", text))
    assert not problems, render(problems)
    typed, problems = analyze(rules, STREAMS)
    return typed, [problem.code for problem in problems]


def rule_of(text: str) -> ir.Rule:
    typed, codes = analyzed(f"{_HEAD} {text}")
    assert [code for code in codes if code.startswith("E")] == []
    (rule,) = typed
    return rule


def codes_of(text: str) -> list[str]:
    """The codes of all problems but W0511: few variables of these rules are defined."""
    return [code for code in analyzed(f"{_HEAD} {text}")[1] if code != "W0511"]


def condition_of(text: str) -> Expression:
    """The condition of b in ``a -> b``."""
    rule = rule_of(f"PATTERN a -> b WITHIN 1 HOUR DEFINE b AS {text}")
    predicate = rule.variables[1].predicate
    assert predicate is not None
    return predicate


def measure_of(text: str) -> Expression:
    return rule_of(f"PATTERN a -> b WITHIN 1 HOUR MEASURES {text} AS m").measures[0].expression


def last(variable: str, column: Column) -> Aggregate:
    return Aggregate("LAST", variable, column, 0, column.type)


def call(function: str, *args: Expression, type: Type = Type.BOOLEAN) -> Call:  # noqa: A002
    return Call(function, args, type)


def test_what_is_left_out_has_its_default() -> None:
    rule = rule_of("PATTERN a")
    assert (rule.title, rule.severity, rule.tags, rule.window) == ("", "medium", (), None)
    assert (rule.selection, rule.skip) == (ir.Selection.EARLIEST, ir.Skip(ir.SkipKind.PAST_LAST))
    assert rule_of("PATTERN a MATCH ALL").skip == ir.Skip(ir.SkipKind.NO_SKIP)


def test_a_pattern_keeps_its_structure_and_names_each_variable_once() -> None:
    rule = rule_of("PATTERN a->{2,}? -> (b | a c) ->> !d -> b? WITHIN < 1 SECOND")
    assert [variable.name for variable in rule.variables] == ["a", "b", "c", "d"]
    assert rule.window == ir.Window(1_000_000, inclusive=False)
    strict, following, anything = ir.Contiguity.STRICT, ir.Contiguity.NEXT, ir.Contiguity.ANY
    assert rule.pattern == ir.Sequence(
        (
            ir.Item(strict, ir.Repeat(ir.Take("a"), 2, None, following, ir.Greed.RELUCTANT)),
            ir.Item(
                following,
                ir.Alternation(
                    (
                        ir.Take("b"),
                        ir.Sequence((ir.Item(strict, ir.Take("a")), ir.Item(strict, ir.Take("c")))),
                    )
                ),
            ),
            ir.Item(anything, ir.Absent("d")),
            ir.Item(following, ir.Repeat(ir.Take("b"), 0, 1, strict, ir.Greed.GREEDY)),
        )
    )


def test_a_number_without_fraction_becomes_a_double_beside_one() -> None:
    assert condition_of("amount > 5") == call(">", AMOUNT, Literal(5.0, Type.DOUBLE))
    assert condition_of("items > amount") == call(">", call("double", ITEMS, type=Type.DOUBLE), AMOUNT)
    assert condition_of("items / 2 > 1") == call(
        ">",
        call("/", call("double", ITEMS, type=Type.DOUBLE), Literal(2.0, Type.DOUBLE), type=Type.DOUBLE),
        Literal(1.0, Type.DOUBLE),
    )
    assert condition_of("items IN (1, 2.5)") == call(
        "in", call("double", ITEMS, type=Type.DOUBLE), Literal(1.0, Type.DOUBLE), Literal(2.5, Type.DOUBLE)
    )


def test_the_event_under_test_is_the_last_event_of_its_own_variable() -> None:
    plain = condition_of("amount > 5")
    assert condition_of("b.amount > 5") == plain
    assert condition_of("LAST(b.amount) > 5") == plain
    assert condition_of("LAST(b.amount, 0) > 5") == plain
    assert is_local(plain)
    assert not is_local(condition_of("LAST(b.amount, 1) > 5"))
    assert not is_local(condition_of("a.amount > 5"))


def test_a_column_of_another_variable_is_its_last_event() -> None:
    assert condition_of("country <> a.country") == call("<>", COUNTRY, last("a", COUNTRY))
    assert measure_of("b.amount") == last("b", AMOUNT)


def test_an_aggregate_may_be_over_an_expression() -> None:
    product = call("*", AMOUNT, call("double", ITEMS, type=Type.DOUBLE), type=Type.DOUBLE)
    assert measure_of("SUM(a.amount * a.items)") == Aggregate("SUM", "a", product, 0, Type.DOUBLE)
    assert measure_of("COUNT(a.*)") == Aggregate("COUNT", "a", None, 0, Type.BIGINT)
    assert measure_of("AVG(a.items)") == Aggregate("AVG", "a", ITEMS, 0, Type.DOUBLE)
    assert measure_of("FIRST(a.country, 3)") == Aggregate("FIRST", "a", COUNTRY, 3, Type.STRING)


def test_times_and_durations_have_their_own_arithmetic() -> None:
    minute = Literal(60_000_000, Type.INTERVAL)
    apart = call("-", TS, last("a", TS), type=Type.INTERVAL)
    assert condition_of("ts - a.ts < 1 MINUTE") == call("<", apart, minute)
    later = call("+", last("a", TS), minute, type=Type.TIMESTAMP)
    assert condition_of("ts > 1 MINUTE + a.ts") == call(">", TS, later)
    assert measure_of("MAX(b.ts) - MIN(a.ts)").type is Type.INTERVAL


def test_tests_become_calls_that_have_their_truth_table() -> None:
    truth = call("coalesce", Column("approved", Type.BOOLEAN), Literal(False, Type.BOOLEAN))
    assert condition_of("approved IS TRUE") == truth
    assert condition_of("approved IS NOT TRUE") == call("not", truth)
    assert condition_of("country IS NOT NULL") == call("is_not_null", COUNTRY)
    assert condition_of("items NOT BETWEEN 1 AND 2") == call(
        "not",
        call(
            "and",
            call(">=", ITEMS, Literal(1, Type.BIGINT)),
            call("<=", ITEMS, Literal(2, Type.BIGINT)),
        ),
    )


def test_a_case_has_an_else_and_one_type() -> None:
    found = measure_of("CASE a.items WHEN 1 THEN a.amount WHEN 2 THEN 5 END")
    assert isinstance(found, Call)
    assert found.function == "case"
    assert found.args[1::2] == (last("a", AMOUNT), Literal(5.0, Type.DOUBLE))
    assert found.args[4] == Literal(None, Type.DOUBLE)
    assert found.type is Type.DOUBLE


def test_functions_of_one_remembered_event_are_computed_when_it_is_taken() -> None:
    upper = call("upper", COUNTRY, type=Type.STRING)
    same = Aggregate("LAST", "a", upper, 0, Type.STRING)
    assert condition_of("UPPER(a.country) = UPPER(country)") == call("=", same, upper)
    city = Column("city", Type.STRING)
    contains = Aggregate("LAST", "a", call("contains", city, COUNTRY), 0, Type.BOOLEAN)
    assert condition_of("CONTAINS(a.city, a.country)") == contains
    longer = Aggregate(
        "FIRST",
        "a",
        call("length", COUNTRY, type=Type.BIGINT),
        2,
        Type.BIGINT,
    )
    assert condition_of("LENGTH(FIRST(a.country, 2)) > 5") == call(">", longer, Literal(5, Type.BIGINT))


@pytest.mark.parametrize(
    "condition",
    [
        "country < a.country",
        "CONTAINS(country, a.country)",
        "CONTAINS(LAST(a.country), LAST(a.city, 1))",
        "LEAST(a.country, a.city) = 'DE'",
        "LOWER(COALESCE(a.country, 'x')) = country",
        "country || a.country = 'DE'",
        "SUBSTRING(country, COUNT(a.*)) = 'DE'",
        "CAST(COUNT(a.*) AS STRING) = country",
    ],
)
def test_texts_of_other_events_are_only_compared(condition: str) -> None:
    assert codes_of(f"PATTERN a -> b WITHIN 1 HOUR DEFINE b AS {condition}") == ["E0211"]


@pytest.mark.parametrize(
    "condition",
    [
        "a.country = country",
        "a.country = a.city",
        "COALESCE(a.country, country) = 'DE'",
        "CASE WHEN approved THEN a.country ELSE country END = 'DE'",
        "a.country IN ('DE', 'FR') AND COALESCE(country, a.country) IS NULL",
        "NULLIF(a.country, country) IS NULL",
        "SPLIT_PART(a.country, '-', 1) = country",
        "a.country < 'DE'",
        "a.country IN ('DE', 'FR')",
        "a.country LIKE 'D%'",
        "a.country IS NULL",
        "COALESCE(country, city) = a.country",
        "CASE WHEN a.country = 'DE' THEN 1 ELSE 0 END = 1",
        "COUNT(a.country) > 2",
    ],
)
def test_texts_of_one_event_may_be_tested(condition: str) -> None:
    assert codes_of(f"PATTERN a -> b WITHIN 1 HOUR DEFINE b AS {condition}") == []


def test_measures_may_mix_texts() -> None:
    assert measure_of("COALESCE(a.country, LOWER(b.country), 'none')").type is Type.STRING


def test_null_takes_the_type_of_its_surroundings() -> None:
    assert measure_of("COALESCE(NULL, a.amount)") == call(
        "coalesce", Literal(None, Type.DOUBLE), last("a", AMOUNT), type=Type.DOUBLE
    )


def test_every_problem_of_a_condition_is_reported() -> None:
    codes = codes_of(
        "PATTERN a WITHIN 1 HOUR DEFINE a AS amout > 5 AND items > 'x' AND foo(1) AND v.x = 1 OR items"
    )
    assert sorted(codes) == ["E0202", "E0203", "E0203", "E0204", "E0207", "E0208"]


def test_a_rule_with_an_error_does_not_hide_the_others() -> None:
    typed, codes = analyzed(
        f"{_HEAD} PATTERN a* RULE s FROM payments PARTITION BY card PATTERN a "
        "RULE t FROM x PARTITION BY y PATTERN a"
    )
    assert [rule.name for rule in typed] == ["s"]
    assert codes == ["E0308", "W0511", "E0201"]


def test_measures_of_rules_over_one_stream_share_their_columns() -> None:
    text = "RULE {} FROM payments PARTITION BY card PATTERN a MEASURES {} AS {}\n"
    assert analyzed(text.format("r", "a.items", "m") + text.format("s", "a.amount", "m"))[1] == []
    assert analyzed(text.format("r", "a.items", "m") + text.format("s", "a.ts", "m"))[1] == ["E0213"]
    assert analyzed(text.format("r", "a.items", "m") + text.format("s", "a.items", "M"))[1] == ["E0304"]


@pytest.mark.parametrize(
    ("pattern", "codes"),
    [
        ("a", []),
        ("a b c", []),
        ("a{3} b", []),
        ("a -> b", ["W0501"]),
        ("a+ b", ["W0501"]),
        ("a->{2}", ["W0501"]),
        ("a !b", []),
        ("a !b -> c", ["W0501"]),
        ("(a | b -> c) d", ["W0501"]),
    ],
)
def test_a_rule_whose_runs_can_live_for_ever_is_reported(pattern: str, codes: list[str]) -> None:
    assert codes_of(f"PATTERN {pattern}") == codes


@pytest.mark.parametrize(
    ("clauses", "codes"),
    [
        ("PATTERN a -> !b", ["E0311"]),
        ("PATTERN a -> !b -> c?", ["E0311"]),
        ("PATTERN a -> (b | c -> !d)", ["E0311"]),
        ("PATTERN (a -> !b)+", ["E0311"]),
        ("PATTERN (a -> !b)->+ -> c WITHIN 1 HOUR", []),
        ("PATTERN a -> !b WITHIN 1 HOUR", []),
        ("PATTERN a -> (b | !c) WITHIN 1 HOUR", ["E0313"]),
        ("PATTERN (!a b) WITHIN 1 HOUR", []),
        ("PATTERN a | !b c WITHIN 1 HOUR", []),
        ("PATTERN !b c", ["E0311"]),
        ("PATTERN a? -> !b -> c", ["E0311"]),
        ("PATTERN !b FOR 1 HOUR c", []),
        ("PATTERN (!b -> a)? c WITHIN 1 HOUR", []),
        ("PATTERN (!b -> a)+ WITHIN 1 HOUR", ["E0313"]),
        ("PATTERN (!b -> a) & c WITHIN 1 HOUR", ["E0313"]),
        ("PATTERN !b | c WITHIN 1 HOUR", ["E0313"]),
        ("PATTERN !b FOR 1 HOUR", ["E0313"]),
        ("PATTERN a -> !b FOR 1 HOUR", []),
        ("PATTERN a -> !c -> !b FOR 1 HOUR", ["E0311"]),
        ("PATTERN (a -> !b FOR 1 HOUR) (c -> !b WITHIN 2 HOURS)", ["E0322"]),
        ("PATTERN a [<= 1 HOUR]{2,} b", []),
        ("PATTERN a ->[< 0 SECONDS] b WITHIN 2 EVENTS", ["E0312"]),
        ("PATTERN (a b WITHIN 0 EVENTS) -> c", ["E0312"]),
        ("PATTERN a->{2,} -> (b | c & a) WITHIN 2 EVENTS", ["W0508"]),
        ("PATTERN a->{2,} -> (b | c & a) WITHIN 3 EVENTS", []),
        ("PATTERN a? -> !b -> (a | b?) -> c WITHIN 1 EVENT", []),
        ("PATTERN a -> !b FOR < 1 MICROSECOND", ["E0312"]),
        ("PATTERN a -> !b FOR 999999 DAYS", ["E0907"]),
        ("PATTERN (a?)* (b | c*)", ["E0308"]),
        ("PATTERN a{1000}", []),
        ("PATTERN a{1001}", ["E0903"]),
        ("PATTERN (a{100} | b){11}", ["E0903"]),
        ("PATTERN a{999999999,}", ["E0903"]),
        ("PATTERN a b WITHIN 36500 DAYS", []),
        ("PATTERN a b WITHIN 999999999999999999 WEEKS", ["E0907"]),
        ("PATTERN a b AFTER MATCH SKIP TO FIRST a", ["E0310"]),
        ("PATTERN a b MATCH ALL AFTER MATCH SKIP TO FIRST a", []),
        ("PATTERN a b MATCH ALL AFTER MATCH SKIP TO LAST a", []),
        ("PATTERN a? b AFTER MATCH SKIP TO FIRST a", []),
        ("PATTERN a{2} b AFTER MATCH SKIP TO LAST a", []),
        ("PATTERN a !b c AFTER MATCH SKIP TO LAST b", ["E0309"]),
    ],
)
def test_patterns_and_clauses_are_bounded(clauses: str, codes: list[str]) -> None:
    assert [code for code in codes_of(clauses) if code != "W0501"] == codes


@pytest.mark.parametrize(
    ("definition", "codes"),
    [
        ("a AS amount > b.amount", ["W0507"]),
        ("b AS amount > a.amount", []),
        ("b AS COUNT(b.*) > c.items", ["W0507"]),
        ("d AS amount > a.amount", []),
        ("d AS amount > c.amount", ["W0507"]),
        ("b AS amount < b.amount OR amount = amount", ["W0502", "W0503"]),
        ("b AS approved = (items < 5)", []),
    ],
)
def test_conditions_that_cannot_be_meant_are_reported(definition: str, codes: list[str]) -> None:
    assert codes_of(f"PATTERN a -> b -> !d -> c WITHIN 1 HOUR DEFINE {definition}") == codes


def test_in_a_loop_a_later_variable_has_been_taken_before() -> None:
    assert codes_of("PATTERN (a -> b){2} WITHIN 1 HOUR DEFINE a AS amount > b.amount") == []


def test_a_wide_condition_is_not_deep() -> None:
    terms = " OR ".join(f"items = {number}" for number in range(2000))
    assert codes_of(f"PATTERN a DEFINE a AS {terms}") == []


@pytest.mark.parametrize(
    ("rule", "column"),
    [
        ("PARTITION BY host.name PATTERN a WITHIN 1 HOUR", "host.name"),
        ("PARTITION BY k PATTERN a WITHIN 1 HOUR DEFINE a AS host.name = 'x'", "host.name"),
        ("PARTITION BY k WINDOW TUMBLING 1 HOUR WHERE host.name = 'x' MEASURES COUNT(*) AS n", "host.name"),
    ],
)
def test_a_column_with_a_dot_is_written_in_backticks(rule: str, column: str) -> None:
    columns = {"k": "string", "ts": "timestamp", "host.name": "string"}
    streams = {"s": Stream("s", tuple(Field(*item) for item in columns.items()), "ts")}

    def problems_of(text: str) -> list[str]:
        rules, problems = parse(Source("test.cep", text))
        assert not problems, render(problems)
        return [problem.help for problem in analyze(rules, streams)[1] if problem.is_error]

    assert problems_of(f"RULE r FROM s {rule}") == [f"put the column in backticks: `{column}`"]
    assert problems_of(f"RULE r FROM s {rule}".replace(column, f"`{column}`")) == []
